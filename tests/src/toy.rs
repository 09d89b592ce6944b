//! Writes the tiny GGUF files that the C runtimes serve: a byte-level vocabulary, ChatML, and no real weights.

use std::fs;
use std::path::{Path, PathBuf};

/// The ChatML template that a toy model carries.
pub const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] \
     + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// What varies between toy models.
#[derive(Clone, Debug)]
pub struct ToyModel {
    /// File name without `.gguf`, and `general.name`.
    pub name: String,
    /// `general.architecture`; the C runtimes refuse any but `toy`.
    pub architecture: String,
    /// Other seeds give other texts.
    pub seed: u32,
    /// `toy.context_length`, positions.
    pub context_length: u32,
    /// `tokenizer.chat_template`; `None` makes a base model.
    pub chat_template: Option<String>,
}

impl Default for ToyModel {
    fn default() -> Self {
        Self {
            name: "toy".into(),
            architecture: "toy".into(),
            seed: 7,
            context_length: 1024,
            chat_template: Some(CHATML.into()),
        }
    }
}

impl ToyModel {
    /// Ids 0 to 255 are the bytes, then come [`ToyModel::MERGED`], then [`ToyModel::CONTROL`].
    pub const VOCAB: u32 = 256 + Self::MERGED.len() as u32 + Self::CONTROL.len() as u32;
    /// Tokens made by a merge each, in GPT-2's alphabet.
    pub const MERGED: [&'static str; 5] = ["th", "he", "in", "er", "\u{120}a"];
    /// Control tokens: BOS, start of turn, EOS and end of turn.
    pub const CONTROL: [&'static str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    /// `<|endoftext|>`.
    pub const BOS: u32 = Self::VOCAB - 3;
    /// `<|im_end|>`.
    pub const EOS: u32 = Self::VOCAB - 1;

    /// The file's bytes.
    pub fn to_gguf(&self) -> Vec<u8> {
        let mut tokens: Vec<String> = (0..=255).map(|byte| gpt2_char(byte).to_string()).collect();
        tokens.extend(Self::MERGED.map(str::to_owned));
        let normal = tokens.len();
        tokens.extend(Self::CONTROL.map(str::to_owned));
        let kinds: Vec<i32> = (0..tokens.len()).map(|id| if id < normal { 1 } else { 3 }).collect();
        let merges: Vec<String> = Self::MERGED.iter().map(|pair| split_pair(pair)).collect();

        let mut gguf = Gguf::default();
        gguf.text("general.architecture", &self.architecture);
        gguf.text("general.name", &self.name);
        gguf.u32("general.file_type", 0);
        gguf.u32("toy.context_length", self.context_length);
        gguf.u32("toy.vocab_size", Self::VOCAB);
        gguf.u32("toy.seed", self.seed);
        gguf.text("tokenizer.ggml.model", "gpt2");
        gguf.text("tokenizer.ggml.pre", "gpt-2");
        gguf.texts("tokenizer.ggml.tokens", &tokens);
        gguf.i32s("tokenizer.ggml.token_type", &kinds);
        gguf.texts("tokenizer.ggml.merges", &merges);
        gguf.u32("tokenizer.ggml.bos_token_id", Self::BOS);
        gguf.u32("tokenizer.ggml.eos_token_id", Self::EOS);
        gguf.boolean("tokenizer.ggml.add_bos_token", false);
        if let Some(template) = &self.chat_template {
            gguf.text("tokenizer.chat_template", template);
        }
        gguf.finish()
    }
}

/// Writes `<dir>/<name>.gguf` and returns its path.
///
/// # Panics
/// When `dir` cannot be written to.
pub fn toy_model(dir: &Path, model: &ToyModel) -> PathBuf {
    let path = dir.join(format!("{}.gguf", model.name));
    fs::write(&path, model.to_gguf()).expect("the test's directory is writable");
    path
}

/// GPT-2's printable stand-in for a byte: itself when printable, else the n-th character from U+0100 on.
fn gpt2_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let nth = (0..byte).filter(|b| !printable(*b)).count() as u32;
    char::from_u32(0x100 + nth).expect("67 characters from U+0100 on are letters")
}

/// `th` → `t h`: every merged token here is a pair.
fn split_pair(token: &str) -> String {
    let chars: Vec<String> = token.chars().map(String::from).collect();
    chars.join(" ")
}

/// GGUF v3, little-endian: key-value pairs and one tiny tensor.
#[derive(Default)]
struct Gguf {
    pairs: u64,
    body: Vec<u8>,
}

impl Gguf {
    fn string(&mut self, text: &str) {
        self.body.extend((text.len() as u64).to_le_bytes());
        self.body.extend(text.as_bytes());
    }

    fn key(&mut self, key: &str, kind: u32) {
        self.pairs += 1;
        self.string(key);
        self.body.extend(kind.to_le_bytes());
    }

    fn u32(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        self.body.extend(value.to_le_bytes());
    }

    fn boolean(&mut self, key: &str, value: bool) {
        self.key(key, 7);
        self.body.push(value.into());
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        self.string(value);
    }

    fn array(&mut self, key: &str, kind: u32, len: usize) {
        self.key(key, 9);
        self.body.extend(kind.to_le_bytes());
        self.body.extend((len as u64).to_le_bytes());
    }

    fn texts(&mut self, key: &str, values: &[String]) {
        self.array(key, 8, values.len());
        for value in values {
            self.string(value);
        }
    }

    fn i32s(&mut self, key: &str, values: &[i32]) {
        self.array(key, 5, values.len());
        for value in values {
            self.body.extend(value.to_le_bytes());
        }
    }

    /// Header, pairs, one f32 tensor of eight zeros at offset 0 of the data, aligned to 32.
    fn finish(mut self) -> Vec<u8> {
        const TENSORS: u64 = 1;
        self.string("token_embd.weight");
        self.body.extend(1u32.to_le_bytes()); // dimensions
        self.body.extend(8u64.to_le_bytes());
        self.body.extend(0u32.to_le_bytes()); // f32
        self.body.extend(0u64.to_le_bytes()); // offset
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(TENSORS.to_le_bytes());
        file.extend(self.pairs.to_le_bytes());
        file.append(&mut self.body);
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend([0; 8 * 4]);
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_alphabet_is_gpt2s() {
        for (byte, expect) in
            [(b'a', 'a'), (b' ', '\u{120}'), (b'\n', '\u{10a}'), (0, '\u{100}'), (0xAD, '\u{143}')]
        {
            assert_eq!(gpt2_char(byte), expect, "byte {byte}");
        }
        let distinct: std::collections::BTreeSet<char> = (0..=255).map(gpt2_char).collect();
        assert_eq!(distinct.len(), 256);
    }

    #[test]
    fn a_toy_file_ends_with_its_whole_tensor() {
        let bytes = ToyModel::default().to_gguf();
        assert_eq!(&bytes[..4], b"GGUF");
        assert_eq!(bytes.len() % 32, 0);
        assert!(bytes[bytes.len() - 32..].iter().all(|byte| *byte == 0));
    }
}
