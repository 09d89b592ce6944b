//! Writes tiny GGUF files byte by byte, right and wrong ones; shared by the tests of both crates that read them.
#![allow(dead_code, reason = "each test binary uses its own part")]

/// Type tags of the format.
pub(crate) const U8: u32 = 0;
pub(crate) const U32: u32 = 4;
pub(crate) const I32: u32 = 5;
pub(crate) const F32: u32 = 6;
pub(crate) const BOOL: u32 = 7;
pub(crate) const STRING: u32 = 8;
pub(crate) const ARRAY: u32 = 9;

/// Little-endian bytes in the making.
#[derive(Clone, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
    pub(crate) fn u32(self, value: u32) -> Self {
        self.raw(&value.to_le_bytes())
    }
    pub(crate) fn u64(self, value: u64) -> Self {
        self.raw(&value.to_le_bytes())
    }
    pub(crate) fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).raw(text.as_bytes())
    }
    pub(crate) fn head(tensors: u64, keys: u64) -> Self {
        Bytes::default().raw(b"GGUF").u32(3).u64(tensors).u64(keys)
    }
    pub(crate) fn pair_text(self, key: &str, text: &str) -> Self {
        self.text(key).u32(STRING).text(text)
    }
    pub(crate) fn pair_u32(self, key: &str, value: u32) -> Self {
        self.text(key).u32(U32).u32(value)
    }
    pub(crate) fn pair_bool(self, key: &str, value: bool) -> Self {
        self.text(key).u32(BOOL).raw(&[value.into()])
    }
    pub(crate) fn array(self, key: &str, kind: u32, count: u64) -> Self {
        self.text(key).u32(ARRAY).u32(kind).u64(count)
    }
    pub(crate) fn pair_texts(self, key: &str, texts: &[&str]) -> Self {
        texts.iter().fold(self.array(key, STRING, texts.len() as u64), |bytes, text| bytes.text(text))
    }
    pub(crate) fn pair_i32s(self, key: &str, values: &[i32]) -> Self {
        let bytes = self.array(key, I32, values.len() as u64);
        values.iter().fold(bytes, |bytes, value| bytes.raw(&value.to_le_bytes()))
    }
    pub(crate) fn pair_f32s(self, key: &str, values: &[f32]) -> Self {
        let bytes = self.array(key, F32, values.len() as u64);
        values.iter().fold(bytes, |bytes, value| bytes.raw(&value.to_le_bytes()))
    }
    pub(crate) fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let bytes = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(bytes, |bytes, &dim| bytes.u64(dim)).u32(kind).u64(offset)
    }
    /// Zeros up to the next multiple of `alignment`, then `count` more: the data section.
    pub(crate) fn data(mut self, alignment: usize, count: usize) -> Self {
        let end = self.0.len().next_multiple_of(alignment) + count;
        self.0.resize(end, 0);
        self
    }
}

/// A small valid file with every type of value and two tensors.
pub(crate) fn tiny() -> Vec<u8> {
    let mut bytes = Bytes::head(2, 16)
        .pair_text("general.architecture", "toy")
        .pair_text("general.name", "Tiny — ünï")
        .pair_u32("toy.context_length", 512)
        .pair_u32("general.alignment", 64)
        .pair_bool("tokenizer.ggml.add_bos_token", true)
        .pair_texts("tokenizer.ggml.tokens", &["", "a", "▁b", "<eos>"])
        .pair_i32s("tokenizer.ggml.token_type", &[1, 1, 1, 3])
        .pair_f32s("tokenizer.ggml.scores", &[0.0, -1.0, -2.0, 0.5]);
    // The other scalar types: u8 i8 u16 i16 i32 f32 u64 i64, of 1, 1, 2, 2, 4, 4, 8, 8 bytes.
    for (tag, size) in [(0, 1), (1, 1), (2, 2), (3, 2), (5, 4), (6, 4), (10, 8), (11, 8)] {
        bytes = bytes.text(&format!("x.scalar{tag}")).u32(tag).raw(&[1; 8][..size]);
    }
    bytes.tensor("one", &[32, 2], 8, 0).tensor("two", &[3], 0, 128).data(64, 128 + 12).0
}

/// Directory of the real models: `SUPERFLUID_MODELS`, else the cache of this user.
///
/// # Panics
/// When the file is not there: a test that skips itself proves nothing.
pub(crate) fn real_model(file: &str) -> std::path::PathBuf {
    let directory = std::env::var_os("SUPERFLUID_MODELS").map_or_else(
        || {
            let home = std::env::var_os("HOME").expect("HOME is set");
            std::path::PathBuf::from(home).join(".cache/superfluid/models")
        },
        std::path::PathBuf::from,
    );
    let path = directory.join(file);
    assert!(path.is_file(), "{} is missing: run cargo xtask fetch", path.display());
    path
}

pub(crate) const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub(crate) const GEMMA3: &str = "gemma-3-270m-Q4_K_M.gguf";
