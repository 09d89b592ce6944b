//! A runtime's own tokenizer (`sf.tokenizer/1`), opened without weights.
#![expect(unsafe_code, reason = "calls the functions of sfr_tokenizer_vt")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sf_abi::{SFR_ENCODE_ADD_BOS, SFR_ENCODE_SPECIAL, SfrTokenizer, SfrTokenizerVt};
use sf_core::{Token, limits};

use crate::calls::{self, lend, main_calls, need};
use crate::error::KitError;
use crate::runtime::Bound;

/// How text becomes tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeFlags {
    /// Control tokens written in the text become control tokens.
    pub special: bool,
    /// Add BOS and EOS as the model's metadata asks.
    pub add_bos: bool,
}

/// The raw bytes of a run of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenBytes {
    /// All of them, concatenated.
    pub bytes: Vec<u8>,
    /// Where each token's bytes end; never falls, the last is `bytes.len()`.
    pub ends: Vec<u32>,
}

impl TokenBytes {
    /// The bytes of the `at`-th token of the run; empty past its end.
    pub fn get(&self, at: usize) -> &[u8] {
        let from = at.checked_sub(1).map_or(0, |before| self.ends.get(before).copied().unwrap_or(0));
        let to = self.ends.get(at).copied().unwrap_or(from);
        self.bytes.get(from as usize..to as usize).unwrap_or_default()
    }
}

/// An open tokenizer; every call may come from any thread.
#[derive(Debug)]
pub struct RuntimeTokenizer {
    handle: NonNull<SfrTokenizer>,
    table: SfrTokenizerVt,
    bound: Arc<Bound>,
}

// SAFETY: the header tags every function of the tokenizer [any].
unsafe impl Send for RuntimeTokenizer {}
// SAFETY: the header tags every function of the tokenizer [any].
unsafe impl Sync for RuntimeTokenizer {}

impl RuntimeTokenizer {
    /// Takes over a handle.
    ///
    /// # Safety
    /// `handle` comes from `open` of `table`, nobody else closes it, and `bound.live` was counted for it.
    pub(crate) unsafe fn adopt(
        handle: NonNull<SfrTokenizer>,
        table: SfrTokenizerVt,
        bound: Arc<Bound>,
    ) -> RuntimeTokenizer {
        RuntimeTokenizer { handle, table, bound }
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`].
    pub fn encode(&self, text: &str, flags: EncodeFlags) -> Result<Vec<Token>, KitError> {
        let encode = need("encode", self.table.encode)?;
        let mut word = 0;
        if flags.special {
            word |= SFR_ENCODE_SPECIAL;
        }
        if flags.add_bos {
            word |= SFR_ENCODE_ADD_BOS;
        }
        // Most tokens cover more than a byte; a text of single bytes costs a second call.
        let first = (text.len() + 16) * 4;
        let bytes = calls::buffer("encode", first, limits::TOKENIZER_BYTES_MAX, |buf, err| {
            // SAFETY: [any]; the text, buf and err live through the call.
            unsafe { encode(self.handle.as_ptr(), lend(text), word, buf, err) }
        })?;
        if bytes.len() % 4 != 0 {
            return Err(KitError::contract("encode", format!("{} bytes are no whole tokens", bytes.len())));
        }
        Ok(bytes.chunks_exact(4).map(|b| Token(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect())
    }

    /// The raw bytes of `count` tokens from `first` on.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`].
    pub fn token_bytes(&self, first: Token, count: u32) -> Result<TokenBytes, KitError> {
        let token_bytes = need("token_bytes", self.table.token_bytes)?;
        let ends_max = limits::TOKENIZER_BYTES_MAX / 4;
        if count as usize > ends_max {
            let message = format!("{count} tokens in one call, the limit is {ends_max}");
            return Err(KitError::refused("token_bytes", sf_abi::SFR_E_ARG, "count", message));
        }
        let mut ends = vec![0_u32; count as usize];
        let guess = (count as usize) * 8;
        let bytes = calls::buffer("token_bytes", guess, limits::TOKENIZER_BYTES_MAX, |buf, err| {
            // SAFETY: [any]; `ends` has room for `count` words and lives through the call like buf and err.
            unsafe { token_bytes(self.handle.as_ptr(), first.0, count, ends.as_mut_ptr(), buf, err) }
        })?;
        let last = ends.last().map_or(0, |end| *end as usize);
        if !ends.is_sorted() || last != bytes.len() {
            let reason = format!("its ends fall or stop at {last} of {} bytes", bytes.len());
            return Err(KitError::contract("token_bytes", reason));
        }
        Ok(TokenBytes { bytes, ends })
    }

    /// JSON: `{"vocab":..,"bos":..,"eos":..,"eog":[..],"add_bos":..,"kind":..}`.
    ///
    /// # Errors
    /// As the runtime says, or [`KitError::Contract`].
    pub fn facts(&self) -> Result<String, KitError> {
        let facts = need("facts", self.table.facts)?;
        calls::json("facts", 4096, |buf, err| {
            // SAFETY: [any]; buf and err live through the call.
            unsafe { facts(self.handle.as_ptr(), buf, err) }
        })
    }
}

impl Drop for RuntimeTokenizer {
    fn drop(&mut self) {
        let _main = main_calls();
        if let Some(close) = self.table.close {
            // SAFETY: [any]; the handle is ours and dies here.
            unsafe { close(self.handle.as_ptr()) };
        }
        self.bound.live.fetch_sub(1, Ordering::AcqRel);
    }
}
