//! Llama.cpp's log lines: each goes to the host, and those of an error are kept for the fault that follows.
#![expect(unsafe_code, reason = "callbacks that llama.cpp calls")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{Host, Level};

const TARGET: &str = "llama.cpp";
/// More lines than one failure ever has.
const KEPT_MAX: usize = 8;

static HOST: OnceLock<Host> = OnceLock::new();

thread_local! {
    /// Error lines of this thread since [`capture`] began; `None` outside of one.
    static KEPT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
    /// Warnings of this thread are no news; see [`quietly`].
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Sends llama.cpp's log to the host from now on.
pub(crate) fn attach(host: Host) {
    let _ = HOST.set(host);
    // SAFETY: the callback is a function of this library, which is never unloaded.
    unsafe { sys::llama_log_set(Some(on_line), std::ptr::null_mut()) };
    // SAFETY: as above. It runs on the way into abort(), so that the reason is in the log.
    unsafe { sys::ggml_set_abort_callback(Some(on_abort)) };
}

/// One line of our own.
pub(crate) fn line(level: Level, message: &str) {
    if let Some(host) = HOST.get() {
        host.log(level, "llamacpp", message);
    }
}

/// Runs a call of llama.cpp and gives back what it complained about, in words for an error message.
pub(crate) fn capture<T>(call: impl FnOnce() -> T) -> (T, String) {
    KEPT.with_borrow_mut(|kept| *kept = Some(Vec::new()));
    let result = call();
    let lines = KEPT.take().unwrap_or_default();
    (result, words(&lines))
}

/// Runs a call whose warnings do not hold for us: a context of many lanes has more cells than any one lane's window, and
/// llama.cpp warns that the model was trained for less.
pub(crate) fn quietly<T>(call: impl FnOnce() -> T) -> T {
    QUIET.set(true);
    let result = call();
    QUIET.set(false);
    result
}

/// Drops what says nothing ("failed to load model") and the names of C++ functions in front.
fn words(lines: &[String]) -> String {
    let mut words: Vec<&str> = Vec::new();
    for line in lines {
        let line = line.split_once(": ").map_or(line.as_str(), |(_, rest)| rest).trim();
        let line = line.strip_prefix("error loading model: ").unwrap_or(line);
        if !line.is_empty() && line != "failed to load model" && !words.contains(&line) {
            words.push(line);
        }
    }
    if words.is_empty() { "llama.cpp gave no reason".to_owned() } else { words.join("; ") }
}

unsafe extern "C" fn on_line(level: sys::ggml_log_level, text: *const c_char, _: *mut c_void) {
    let level = match level {
        sys::GGML_LOG_LEVEL_ERROR => Level::Error,
        sys::GGML_LOG_LEVEL_WARN if QUIET.get() => Level::Debug,
        sys::GGML_LOG_LEVEL_WARN => Level::Warn,
        // A model's load alone is 150 of these.
        sys::GGML_LOG_LEVEL_INFO => Level::Debug,
        sys::GGML_LOG_LEVEL_DEBUG => Level::Trace,
        // The rest are dots of a progress bar and the ends of lines.
        _ => return,
    };
    let keep = level == Level::Error && KEPT.with_borrow(Option::is_some);
    let Some(host) = HOST.get() else { return };
    if text.is_null() || (!keep && !host.log_enabled(level, TARGET)) {
        return;
    }
    // SAFETY: llama.cpp passes a C string that lives for the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let text = text.trim_end();
    if keep {
        KEPT.with_borrow_mut(|kept| {
            if let Some(kept) = kept.as_mut().filter(|kept| kept.len() < KEPT_MAX) {
                kept.push(text.to_owned());
            }
        });
        // The fault that carries it is shown by the host; once is enough.
        host.log(Level::Debug, TARGET, text);
    } else if !text.is_empty() {
        host.log(level, TARGET, text);
    }
}

unsafe extern "C" fn on_abort(message: *const c_char) {
    if message.is_null() {
        return;
    }
    // SAFETY: ggml passes a C string that lives for the call.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    line(Level::Error, &format!("llama.cpp gives up: {message}"));
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn the_words_of_a_failure_are_those_that_say_something() {
        let lines = [
            "llama_model_load: error loading model: tensor 'x' data is not within the file bounds\n",
            "llama_model_load_from_file_impl: failed to load model\n",
        ]
        .map(str::to_owned);
        assert_eq!(words(&lines), "tensor 'x' data is not within the file bounds");
        assert_eq!(words(&[]), "llama.cpp gave no reason");
    }
}
