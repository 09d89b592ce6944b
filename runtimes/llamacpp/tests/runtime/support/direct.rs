//! llama.cpp by its own interface, without any of ours: the reference that the runtime is compared with.
#![expect(unsafe_code, reason = "calls llama.cpp")]

use std::ffi::CString;
use std::path::Path;

use llama_cpp_sys_2 as sys;

/// A model, a context of one sequence and llama.cpp's own greedy sampler.
#[derive(Debug)]
pub(crate) struct Direct {
    model: *mut sys::llama_model,
    context: *mut sys::llama_context,
    sampler: *mut sys::llama_sampler,
}

impl Drop for Direct {
    fn drop(&mut self) {
        // SAFETY: each was made by `open` and is freed once, the model last.
        unsafe { sys::llama_sampler_free(self.sampler) };
        // SAFETY: as above.
        unsafe { sys::llama_free(self.context) };
        // SAFETY: as above.
        unsafe { sys::llama_model_free(self.model) };
    }
}

/// Drops llama.cpp's log.
#[allow(dead_code, reason = "for the example; the tests keep the runtime's log")]
pub(crate) fn be_quiet() {
    unsafe extern "C" fn nothing(
        _: sys::ggml_log_level,
        _: *const std::ffi::c_char,
        _: *mut std::ffi::c_void,
    ) {
    }
    // SAFETY: a function of this program.
    unsafe { sys::llama_log_set(Some(nothing), std::ptr::null_mut()) };
}

impl Direct {
    pub(crate) fn open(path: &Path, threads: i32) -> Direct {
        let path = CString::new(path.to_str().expect("a UTF-8 path")).expect("no NUL");
        // SAFETY: no arguments.
        unsafe { sys::llama_backend_init() };
        // SAFETY: no arguments.
        let settings = unsafe { sys::llama_model_default_params() };
        // SAFETY: a C string that lives for the call.
        let model = unsafe { sys::llama_model_load_from_file(path.as_ptr(), settings) };
        assert!(!model.is_null(), "llama.cpp cannot load the model");
        // SAFETY: no arguments.
        let mut settings = unsafe { sys::llama_context_default_params() };
        settings.n_ctx = 2048;
        settings.n_threads = threads;
        settings.n_threads_batch = threads;
        // SAFETY: a live model.
        let context = unsafe { sys::llama_init_from_model(model, settings) };
        assert!(!context.is_null(), "llama.cpp cannot make a context");
        // SAFETY: no arguments.
        let sampler = unsafe { sys::llama_sampler_init_greedy() };
        Direct { model, context, sampler }
    }

    fn vocab(&self) -> *const sys::llama_vocab {
        // SAFETY: a live model.
        unsafe { sys::llama_model_get_vocab(self.model) }
    }

    /// Tokens of a text in which control tokens count, with BOS as the model asks.
    pub(crate) fn tokenize(&self, text: &str) -> Vec<u32> {
        let mut tokens = vec![0i32; text.len() + 8];
        // SAFETY: the text and the room live for the call.
        let count = unsafe {
            sys::llama_tokenize(
                self.vocab(),
                text.as_ptr().cast(),
                text.len() as i32,
                tokens.as_mut_ptr(),
                tokens.len() as i32,
                true,
                true,
            )
        };
        tokens.truncate(usize::try_from(count).expect("room for every byte"));
        tokens.iter().map(|token| token.cast_unsigned()).collect()
    }

    pub(crate) fn is_eog(&self, token: u32) -> bool {
        // SAFETY: the vocabulary of a live model.
        unsafe { sys::llama_vocab_is_eog(self.vocab(), token.cast_signed()) }
    }

    /// The text of tokens, control tokens left out.
    pub(crate) fn text(&self, tokens: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &token in tokens {
            let mut piece = [0u8; 512];
            // SAFETY: the room lives for the call.
            let count = unsafe {
                sys::llama_token_to_piece(
                    self.vocab(),
                    token.cast_signed(),
                    piece.as_mut_ptr().cast(),
                    piece.len() as i32,
                    0,
                    false,
                )
            };
            bytes.extend(&piece[..usize::try_from(count).expect("a piece of less than 512 bytes")]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn decode(&mut self, tokens: &[u32]) {
        let mut tokens: Vec<i32> = tokens.iter().map(|token| token.cast_signed()).collect();
        // SAFETY: the tokens live until the decode below.
        let batch = unsafe { sys::llama_batch_get_one(tokens.as_mut_ptr(), tokens.len() as i32) };
        // SAFETY: a live context and the batch of live tokens.
        assert_eq!(unsafe { sys::llama_decode(self.context, batch) }, 0);
    }

    /// The whole prompt in one batch, then `count - 1` greedy tokens one by one; stops after an end of generation.
    #[allow(dead_code, reason = "for the tests")]
    pub(crate) fn generate(&mut self, prompt: &[u32], count: usize) -> Vec<u32> {
        self.generate_in_chunks(prompt, usize::MAX, count)
    }

    /// The same with a prompt that is fed `chunk` tokens at a time.
    pub(crate) fn generate_in_chunks(&mut self, prompt: &[u32], chunk: usize, count: usize) -> Vec<u32> {
        // SAFETY: a live context.
        let memory = unsafe { sys::llama_get_memory(self.context) };
        // SAFETY: its memory.
        unsafe { sys::llama_memory_clear(memory, true) };
        let mut next = prompt.to_vec();
        let mut tokens = Vec::new();
        while tokens.len() < count {
            next.chunks(chunk).for_each(|chunk| self.decode(chunk));
            // SAFETY: the last position of a batch has logits.
            let token = unsafe { sys::llama_sampler_sample(self.sampler, self.context, -1) };
            tokens.push(token.cast_unsigned());
            if self.is_eog(token.cast_unsigned()) {
                break;
            }
            next = vec![token.cast_unsigned()];
        }
        tokens
    }
}
