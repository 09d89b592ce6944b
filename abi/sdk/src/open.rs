//! A request to open a model, with its options under account: what was read is honoured, the rest is not.
#![expect(unsafe_code, reason = "reads the caller's request and marks its options in place")]

use core::cell::Cell;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU32, Ordering};
use std::path::Path;

use sf_abi::*;

use crate::fault::{Code, Fault};
use crate::wire::{self, Span};

/// Most paths, options or devices in one request.
const ITEMS_MAX: u32 = 4096;

/// The value of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value<'a> {
    Bool(bool),
    I64(i64),
    F64(f64),
    Str(&'a str),
}

#[derive(Debug)]
struct Item<'a> {
    key: &'a str,
    value: Value<'a>,
    must: bool,
    honoured: Cell<u32>,
    at: *mut SfrOpt,
}

/// The options of a request. Reading one counts as honouring it exactly; see [`Options::approximately`].
#[derive(Debug, Default)]
pub struct Options<'a> {
    items: Vec<Item<'a>>,
}

impl<'a> Options<'a> {
    /// The option's integer, `None` when it was not given.
    ///
    /// # Errors
    /// `Option` when it is another type or outside `range`.
    pub fn int(&self, key: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, Fault> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::I64(value)) if range.contains(&value) => Ok(Some(value)),
            Some(Value::I64(value)) => {
                Err(refused(key, format_args!("is {value}, it takes {} to {}", range.start(), range.end())))
            }
            Some(_) => Err(refused(key, "takes an integer")),
        }
    }

    /// The option's switch, `None` when it was not given.
    ///
    /// # Errors
    /// `Option` when it is another type.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, Fault> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(refused(key, "takes on or off")),
        }
    }

    /// The option's number, `None` when it was not given.
    ///
    /// # Errors
    /// `Option` when it is another type or outside `range`.
    pub fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, Fault> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::F64(value)) if range.contains(&value) => Ok(Some(value)),
            Some(Value::F64(value)) => {
                Err(refused(key, format_args!("is {value}, it takes {} to {}", range.start(), range.end())))
            }
            Some(_) => Err(refused(key, "takes a number")),
        }
    }

    /// The option's text, `None` when it was not given.
    ///
    /// # Errors
    /// `Option` when it is another type.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, Fault> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Str(value)) => Ok(Some(value)),
            Some(_) => Err(refused(key, "takes text")),
        }
    }

    /// Takes back that `key` was honoured exactly: a MUST option then refuses the open.
    pub fn approximately(&self, key: &str) {
        for item in self.items.iter().filter(|item| item.key == key) {
            item.honoured.set(SFR_HONOURED_APPROXIMATELY);
        }
    }

    fn take(&self, key: &str) -> Option<Value<'a>> {
        let item = self.items.iter().find(|item| item.key == key)?;
        item.honoured.set(SFR_HONOURED_EXACTLY);
        Some(item.value)
    }

    /// Names the first MUST option that was not honoured exactly.
    fn check_must(&self) -> Result<(), Fault> {
        for item in self.items.iter().filter(|item| item.must) {
            match item.honoured.get() {
                SFR_HONOURED_EXACTLY => {}
                SFR_HONOURED_APPROXIMATELY => {
                    return Err(refused(item.key, "cannot be honoured exactly here"));
                }
                _ => return Err(refused(item.key, "is not an option of this runtime")),
            }
        }
        Ok(())
    }
}

fn refused(key: &str, why: impl core::fmt::Display) -> Fault {
    Fault::new(Code::Option, format!("option {key} {why}")).field(key)
}

/// The shared words that ask a long call to end. Poll them between layers or chunks.
#[derive(Debug)]
pub struct Control {
    words: *const SfrControl,
    yield_start: u32,
    abort_start: u32,
}

// SAFETY: the words are in shared memory and are only read as atomics.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Control {
    /// # Safety
    /// `words` is NULL or points to a control page that outlives the value.
    pub(crate) unsafe fn new(words: *const SfrControl) -> Result<Control, Fault> {
        if !words.is_null() {
            // SAFETY: the caller's promise covers the whole page.
            unsafe { wire::check_out(words, "control") }?;
        }
        let mut control = Control { words, yield_start: 0, abort_start: 0 };
        (control.yield_start, control.abort_start) = control.load();
        Ok(control)
    }

    /// `abort_seq` moved: give up with `Code::Cancelled`, lanes as before.
    pub fn aborted(&self) -> bool {
        self.load().1 != self.abort_start
    }

    /// `yield_seq` moved: end the step at the next chunk.
    pub fn wants_yield(&self) -> bool {
        self.load().0 != self.yield_start
    }

    fn load(&self) -> (u32, u32) {
        if self.words.is_null() {
            return (0, 0);
        }
        // SAFETY: a field of a live page (see `new`); only its address is taken.
        let yield_at = unsafe { &raw const (*self.words).yield_seq };
        // SAFETY: as above.
        let abort_at = unsafe { &raw const (*self.words).abort_seq };
        // SAFETY: aligned, live, and both sides only access it atomically.
        let yield_word = unsafe { AtomicU32::from_ptr(yield_at.cast_mut()) };
        // SAFETY: as above.
        let abort_word = unsafe { AtomicU32::from_ptr(abort_at.cast_mut()) };
        (yield_word.load(Ordering::Acquire), abort_word.load(Ordering::Acquire))
    }
}

/// What the host asks to open (or to look at).
#[derive(Debug)]
pub struct OpenRequest<'a> {
    paths: Vec<&'a Path>,
    devices: Vec<&'a str>,
    options: Options<'a>,
    scratch: Option<&'a Path>,
    cache: Option<&'a Path>,
    control: Control,
    progress: Option<unsafe extern "C" fn(*mut core::ffi::c_void, f32)>,
    progress_ctx: *mut core::ffi::c_void,
}

impl<'a> OpenRequest<'a> {
    /// The model's files, the main one first; at least one, all absolute.
    pub fn paths(&self) -> &[&'a Path] {
        &self.paths
    }

    /// Device ids from probe; empty = the runtime's own order.
    pub fn devices(&self) -> &[&'a str] {
        &self.devices
    }

    /// The options.
    pub fn options(&self) -> &Options<'a> {
        &self.options
    }

    /// A directory for files that need not survive the model.
    pub fn scratch_dir(&self) -> Option<&'a Path> {
        self.scratch
    }

    /// A directory for files worth keeping.
    pub fn cache_dir(&self) -> Option<&'a Path> {
        self.cache
    }

    /// Asks whether the load was cancelled.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Tells the host how far the load is, 0 to 1. Call it from the thread that `open` runs on.
    pub fn progress(&self, fraction: f32) {
        if let Some(progress) = self.progress {
            // SAFETY: the header lets the opening thread call it during the call, which `&self` proves.
            unsafe { progress(self.progress_ctx, fraction) };
        }
    }

    /// # Safety
    /// `request` follows the header, and lives and stays the same for `'a`.
    pub(crate) unsafe fn read(request: *const SfrOpen) -> Result<OpenRequest<'a>, Fault> {
        // SAFETY: the caller's promise.
        let request = unsafe { wire::read(request, "request") }?;
        if request.flags != 0 {
            return Err(Fault::newer("flags", format_args!("unknown bits {:#x}", request.flags)));
        }
        // SAFETY: the caller's promise covers the arrays.
        let paths = unsafe { strings(request.paths, "paths") }?;
        if paths.is_empty() {
            return Err(Fault::new(Code::Arg, "no path of a model is given").field("paths"));
        }
        // SAFETY: as above.
        let devices = unsafe { strings(request.devices, "devices") }?;
        // SAFETY: as above.
        let options = unsafe { read_options(request.opts) }?;
        // SAFETY: as above.
        let scratch = unsafe { wire::text(request.scratch_dir, "scratch_dir") }?;
        // SAFETY: as above.
        let cache = unsafe { wire::text(request.cache_dir, "cache_dir") }?;
        Ok(OpenRequest {
            paths: paths.into_iter().map(absolute).collect::<Result<_, _>>()?,
            devices,
            options,
            scratch: (!scratch.is_empty()).then(|| Path::new(scratch)),
            cache: (!cache.is_empty()).then(|| Path::new(cache)),
            // SAFETY: the header says that the page outlives the call.
            control: unsafe { Control::new(request.control) }?,
            progress: request.progress,
            progress_ctx: request.progress_ctx,
        })
    }

    /// Refuses the first MUST option that was not honoured exactly.
    pub(crate) fn check_must(&self) -> Result<(), Fault> {
        self.options.check_must()
    }
}

impl Drop for Options<'_> {
    /// The answer to each option is written however the call ends.
    fn drop(&mut self) {
        for item in &self.items {
            let answer = match item.honoured.get() {
                SFR_HONOURED_UNSEEN => SFR_HONOURED_IGNORED,
                seen => seen,
            };
            // SAFETY: `at` is a checked record of the caller's array, which lives as long as `'_`.
            let slot = unsafe { &raw mut (*item.at).honoured };
            // SAFETY: as above; the header makes `honoured` an output.
            unsafe { slot.write_unaligned(answer) };
        }
    }
}

fn absolute(path: &str) -> Result<&Path, Fault> {
    if path.contains('\0') {
        return Err(Fault::new(Code::Arg, "a path holds a NUL").field("paths"));
    }
    let path = Path::new(path);
    if !path.is_absolute() {
        return Err(
            Fault::new(Code::Arg, format!("{} is not an absolute path", path.display())).field("paths")
        );
    }
    Ok(path)
}

unsafe fn strings<'a>(array: SfrArray, what: &str) -> Result<Vec<&'a str>, Fault> {
    bounded(array, what)?;
    let span = Span::at_address::<SfrStr>(array, what)?;
    let mut out = Vec::with_capacity(span.count);
    for i in 0..span.count {
        // SAFETY: our caller promises the array; `i` is below its count.
        let text = unsafe { span.get::<SfrStr>(i, what) }?;
        // SAFETY: our caller promises the strings for `'a`.
        out.push(unsafe { wire::text(text, what) }?);
    }
    Ok(out)
}

unsafe fn read_options<'a>(array: SfrArray) -> Result<Options<'a>, Fault> {
    bounded(array, "opts")?;
    let span = Span::at_address::<SfrOpt>(array, "opts")?;
    let mut options = Options { items: Vec::with_capacity(span.count) };
    for i in 0..span.count {
        // SAFETY: our caller promises the array; `i` is below its count.
        let opt = unsafe { span.get::<SfrOpt>(i, "opts") }?;
        // SAFETY: our caller promises the strings for `'a`.
        let key = unsafe { wire::text(opt.key, "opts") }?;
        if opt.flags & !SFR_OPT_MUST != 0 || opt.reserved0 != 0 {
            return Err(Fault::newer(key, format_args!("unknown flags {:#x}", opt.flags)));
        }
        if key.is_empty() || options.items.iter().any(|item| item.key == key) {
            return Err(refused(key, "is given twice or has no name"));
        }
        let value = match opt.r#type {
            SFR_T_BOOL if opt.i == 0 || opt.i == 1 => Value::Bool(opt.i == 1),
            SFR_T_I64 => Value::I64(opt.i),
            SFR_T_F64 if !opt.f.is_nan() => Value::F64(opt.f),
            // SAFETY: as for the key.
            SFR_T_STR => Value::Str(unsafe { wire::text(opt.s, key) }?),
            kind => return Err(refused(key, format_args!("has no value of type {kind}"))),
        };
        options.items.push(Item {
            key,
            value,
            must: opt.flags & SFR_OPT_MUST != 0,
            honoured: Cell::new(SFR_HONOURED_UNSEEN),
            at: span.address(i).cast_mut().cast::<SfrOpt>(),
        });
    }
    Ok(options)
}

fn bounded(array: SfrArray, what: &str) -> Result<(), Fault> {
    if array.count > ITEMS_MAX {
        return Err(Fault::new(Code::Arg, format!("{} {what}, at most {ITEMS_MAX}", array.count)).field(what));
    }
    Ok(())
}
