//! The model's vocabulary without its weights.
#![expect(unsafe_code, reason = "calls llama.cpp")]

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{Code, Fault, OpenRequest, Tokenizer};

use crate::header::Header;
use crate::weights::Weights;

/// A vocabulary; llama.cpp's tokenizer is thread-safe.
#[derive(Debug)]
pub struct LlamaTokenizer {
    weights: Weights,
}

impl LlamaTokenizer {
    pub(crate) fn open(request: &OpenRequest<'_>) -> Result<LlamaTokenizer, Fault> {
        Header::open(request.paths()[0])?.check_vocabulary()?;
        let weights = Weights::vocabulary(request)?;
        if weights.vocab_len() == 0 {
            return Err(
                Fault::new(Code::Unsupported, "this model has no vocabulary").field("tokenizer.ggml.model")
            );
        }
        Ok(LlamaTokenizer { weights })
    }

    fn special(
        &self,
        which: unsafe extern "C" fn(*const sys::llama_vocab) -> sys::llama_token,
    ) -> Option<u32> {
        // SAFETY: the vocabulary of a live model; -1 stands for none.
        u32::try_from(unsafe { which(self.weights.vocab()) }).ok()
    }

    fn flag(&self, which: unsafe extern "C" fn(*const sys::llama_vocab) -> bool) -> bool {
        // SAFETY: the vocabulary of a live model.
        unsafe { which(self.weights.vocab()) }
    }

    fn tokenize(&self, text: &str, tokens: &mut Vec<i32>, special: bool, add_bos: bool) -> i32 {
        // SAFETY: the text and the room of the vector live for the call.
        unsafe {
            sys::llama_tokenize(
                self.weights.vocab(),
                text.as_ptr().cast(),
                i32::try_from(text.len()).unwrap_or(i32::MAX),
                tokens.as_mut_ptr(),
                i32::try_from(tokens.len()).unwrap_or(i32::MAX),
                add_bos,
                special,
            )
        }
    }
}

impl Tokenizer for LlamaTokenizer {
    fn vocab(&self) -> u32 {
        self.weights.vocab_len()
    }

    fn encode(&self, text: &str, special: bool, add_bos: bool) -> Result<Vec<u32>, Fault> {
        if i32::try_from(text.len()).is_err() {
            return Err(
                Fault::new(Code::Arg, format!("a text of {} bytes, at most 2^31", text.len())).field("text")
            );
        }
        let mut tokens = vec![0i32; text.len() / 2 + 16];
        let mut count = self.tokenize(text, &mut tokens, special, add_bos);
        if count < 0 && count != i32::MIN {
            tokens.resize(count.unsigned_abs() as usize, 0);
            count = self.tokenize(text, &mut tokens, special, add_bos);
        }
        let count = usize::try_from(count)
            .map_err(|_| Fault::new(Code::Arg, "the text has more than 2^31 tokens").field("text"))?;
        Ok(tokens[..count].iter().map(|token| token.cast_unsigned()).collect())
    }

    fn token_bytes(&self, token: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut room = 64usize;
        loop {
            let start = out.len();
            out.resize(start + room, 0);
            let at = out[start..].as_mut_ptr().cast();
            // SAFETY: a token below the vocabulary's length and `room` writable bytes.
            let count = unsafe {
                sys::llama_token_to_piece(
                    self.weights.vocab(),
                    token.cast_signed(),
                    at,
                    i32::try_from(room).unwrap_or(i32::MAX),
                    0,
                    true,
                )
            };
            if let Ok(count) = usize::try_from(count) {
                out.truncate(start + count);
                return Ok(());
            }
            out.truncate(start);
            room = count.unsigned_abs() as usize;
        }
    }

    fn facts(&self) -> String {
        let vocab = self.weights.vocab();
        // SAFETY: the vocabulary of a live model.
        let kind = match unsafe { sys::llama_vocab_type(vocab) } {
            sys::LLAMA_VOCAB_TYPE_SPM => "spm",
            sys::LLAMA_VOCAB_TYPE_BPE => "bpe",
            sys::LLAMA_VOCAB_TYPE_WPM => "wpm",
            sys::LLAMA_VOCAB_TYPE_UGM => "ugm",
            sys::LLAMA_VOCAB_TYPE_RWKV => "rwkv",
            sys::LLAMA_VOCAB_TYPE_PLAMO2 => "plamo2",
            _ => "unknown",
        };
        let is_eog = |token: &u32| {
            // SAFETY: a token below the vocabulary's length.
            unsafe { sys::llama_vocab_is_eog(vocab, token.cast_signed()) }
        };
        let eog: Vec<u32> = (0..self.vocab()).filter(is_eog).collect();
        serde_json::json!({
            "vocab": self.vocab(),
            "bos": self.special(sys::llama_vocab_bos),
            "eos": self.special(sys::llama_vocab_eos),
            "eot": self.special(sys::llama_vocab_eot),
            "pad": self.special(sys::llama_vocab_pad),
            "eog": eog,
            "add_bos": self.flag(sys::llama_vocab_get_add_bos),
            "add_eos": self.flag(sys::llama_vocab_get_add_eos),
            "kind": kind,
        })
        .to_string()
    }
}
