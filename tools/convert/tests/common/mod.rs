//! What the tests share: a tiny model in a GGUF file, directories made of it, and their tensors.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sf_codec::{Codec, CodecOptions};
use sf_convert::{ConvertError, Options, Report, convert};

pub(crate) const HIDDEN: u64 = 64;
pub(crate) const HEAD: u64 = 32;
pub(crate) const FFN: u64 = 96;
pub(crate) const LAYERS: u32 = 2;
pub(crate) const VOCAB: u64 = 258;
/// Type of a tensor in GGUF.
const F32: u32 = 0;

/// A model of the architecture llama whose every number is written here.
pub(crate) struct Tiny {
    /// `llama.rope.dimension_count`.
    pub(crate) turned: Option<u32>,
    /// GGUF's number of a type that one tensor has.
    pub(crate) kind: u32,
    /// A tensor that is not there.
    pub(crate) without: &'static str,
    /// Of the feed-forward.
    pub(crate) ffn: u64,
    /// A tensor's type, by its number, and its bytes.
    pub(crate) blocks: Option<(&'static str, u32, Vec<u8>)>,
    /// `rope_freqs`.
    pub(crate) divisors: &'static [f32],
    /// More keys that are numbers.
    pub(crate) more: &'static [(&'static str, f32)],
    /// `llama.rope.scaling.type`.
    pub(crate) scaling: Option<&'static str>,
}

impl Default for Tiny {
    fn default() -> Tiny {
        Tiny {
            turned: None,
            kind: F32,
            without: "",
            ffn: FFN,
            blocks: None,
            divisors: &[],
            more: &[],
            scaling: None,
        }
    }
}

/// In steps of 1/256 within half of one, so that every type holds it.
pub(crate) fn element(name: &str, at: u64) -> f32 {
    let seed = name.bytes().fold(7_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let mixed = (seed ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as f32 / 256.0 - 0.5
}

/// Names in GGUF and sizes, columns first.
fn tensors(ffn: u64) -> Vec<(String, Vec<u64>)> {
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), vec![HIDDEN, VOCAB]),
        ("output_norm.weight".to_owned(), vec![HIDDEN]),
    ];
    for layer in 0..LAYERS {
        let parts: [(&str, &[u64]); 9] = [
            ("attn_norm", &[HIDDEN]),
            ("attn_q", &[HIDDEN, 2 * HEAD]),
            ("attn_k", &[HIDDEN, HEAD]),
            ("attn_v", &[HIDDEN, HEAD]),
            ("attn_output", &[2 * HEAD, HIDDEN]),
            ("ffn_norm", &[HIDDEN]),
            ("ffn_gate", &[HIDDEN, ffn]),
            ("ffn_up", &[HIDDEN, ffn]),
            ("ffn_down", &[ffn, HIDDEN]),
        ];
        let name = |part| format!("blk.{layer}.{part}.weight");
        tensors.extend(parts.map(|(part, dims)| (name(part), dims.to_vec())));
    }
    tensors
}

/// GPT-2's printable stand-in for a byte.
fn printable(byte: u8) -> char {
    let stands = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let nth = (0..byte).filter(|&byte| !stands(byte)).count() as u32;
    if stands(byte) { byte.into() } else { char::from_u32(0x100 + nth).unwrap() }
}

#[derive(Default)]
struct Keys {
    count: u64,
    bytes: Vec<u8>,
}

impl Keys {
    fn string(&mut self, text: &str) {
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    fn key(&mut self, key: &str, kind: u32) {
        self.count += 1;
        self.string(key);
        self.bytes.extend(kind.to_le_bytes());
    }

    fn number(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        self.string(value);
    }

    fn array(&mut self, key: &str, kind: u32, count: usize) {
        self.key(key, 9);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend((count as u64).to_le_bytes());
    }
}

impl Tiny {
    fn keys(&self) -> Keys {
        let mut keys = Keys::default();
        keys.text("general.architecture", "llama");
        for (key, value) in [
            ("block_count", LAYERS),
            ("context_length", 128),
            ("embedding_length", HIDDEN as u32),
            ("feed_forward_length", self.ffn as u32),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
        ] {
            keys.number(&format!("llama.{key}"), value);
        }
        if let Some(turned) = self.turned {
            keys.number("llama.rope.dimension_count", turned);
        }
        if let Some(kind) = self.scaling {
            keys.text("llama.rope.scaling.type", kind);
            keys.number("llama.rope.scaling.original_context_length", 64);
        }
        for (key, value) in self.more {
            keys.key(key, 6);
            keys.bytes.extend(value.to_le_bytes());
        }
        keys.text("tokenizer.ggml.model", "gpt2");
        keys.text("tokenizer.ggml.pre", "gpt-2");
        keys.array("tokenizer.ggml.tokens", 8, VOCAB as usize);
        (0..=255).for_each(|byte| keys.string(&printable(byte).to_string()));
        ["<s>", "</s>"].iter().for_each(|token| keys.string(token));
        keys.array("tokenizer.ggml.token_type", 5, VOCAB as usize);
        for id in 0..VOCAB {
            keys.bytes.extend(if id < 256 { 1_i32 } else { 3 }.to_le_bytes());
        }
        keys.array("tokenizer.ggml.merges", 8, 0);
        keys.number("tokenizer.ggml.bos_token_id", 256);
        keys.number("tokenizer.ggml.eos_token_id", 257);
        keys
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) {
        fs::write(path, self.file(self.keys(), &self.all())).unwrap();
    }

    /// Writes it as several, `NAME-00001-of-0000N.gguf` the first.
    pub(crate) fn write_split(&self, directory: &Path, name: &str, count: usize) {
        let tensors = self.all();
        for (number, tensors) in tensors.chunks(tensors.len().div_ceil(count)).enumerate() {
            let mut keys = if number == 0 { self.keys() } else { Keys::default() };
            keys.number("split.count", count as u32);
            keys.number("split.no", number as u32);
            let path = directory.join(format!("{name}-{:05}-of-{count:05}.gguf", number + 1));
            fs::write(path, self.file(keys, tensors)).unwrap();
        }
    }

    fn all(&self) -> Vec<(String, Vec<u64>)> {
        let mut tensors = tensors(self.ffn);
        tensors.retain(|(name, _)| name != self.without);
        if !self.divisors.is_empty() {
            tensors.push(("rope_freqs.weight".to_owned(), vec![self.divisors.len() as u64]));
        }
        tensors
    }

    fn file(&self, mut keys: Keys, tensors: &[(String, Vec<u64>)]) -> Vec<u8> {
        let mut data: Vec<u8> = Vec::new();
        for (name, dims) in tensors {
            keys.string(name);
            keys.bytes.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|size| keys.bytes.extend(size.to_le_bytes()));
            let own = self.blocks.as_ref().filter(|(tensor, ..)| tensor == name);
            let kind = match own {
                Some((_, kind, _)) => *kind,
                None if name == "blk.0.ffn_up.weight" => self.kind,
                None => F32,
            };
            keys.bytes.extend(kind.to_le_bytes());
            keys.bytes.extend((data.len() as u64).to_le_bytes());
            let count: u64 = dims.iter().product();
            match own {
                Some((.., bytes)) => data.extend(bytes),
                None if name == "rope_freqs.weight" => {
                    data.extend(self.divisors.iter().flat_map(|value| value.to_le_bytes()));
                }
                None => (0..count).for_each(|at| data.extend(element(name, at).to_le_bytes())),
            }
            data.resize(data.len().next_multiple_of(32), 0);
        }
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend((tensors.len() as u64).to_le_bytes());
        file.extend(keys.count.to_le_bytes());
        file.extend(keys.bytes);
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(data);
        file
    }
}

/// A model that `cargo xtask fetch` gets.
pub(crate) fn model(name: &str) -> PathBuf {
    let folder = std::env::var_os("SUPERFLUID_MODELS").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/superfluid/models"),
        PathBuf::from,
    );
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing: run cargo xtask fetch", path.display());
    path
}

/// The text of a model.
pub(crate) fn codec(path: &Path) -> Codec {
    Codec::open(&sf_artifact::open(path).unwrap(), CodecOptions::default()).unwrap()
}

pub(crate) fn run(source: &Path, to: &Path, options: &Options) -> Result<Report, ConvertError> {
    convert(source, to, options, &mut |_, _| ControlFlow::Continue(()))
}

/// A folder with the tiny model as a file and as a directory of plain elements.
pub(crate) struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    pub(crate) fn new(options: &Options) -> Folder {
        let folder = Folder { dir: tempfile::tempdir().unwrap() };
        Tiny::default().write(&folder.path("tiny.gguf"));
        run(&folder.path("tiny.gguf"), &folder.path("tiny"), options).unwrap();
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What lies in it, by name.
    pub(crate) fn names(&self) -> Vec<String> {
        names(self.dir.path())
    }

    /// Changes the JSON of a file in it.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let path = self.path(name);
        let mut value = json(&path);
        change(&mut value);
        fs::write(path, value.to_string()).unwrap();
    }
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The header of a safetensors file, and the bytes behind it.
pub(crate) fn parts(path: &Path) -> (Value, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    (serde_json::from_slice(header).unwrap(), data.to_vec())
}

/// Writes such a file.
pub(crate) fn join(path: &Path, header: &str, data: &[u8]) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).unwrap();
}

/// A tensor's type, shape and bytes.
pub(crate) type Tensor = (String, Vec<u64>, Vec<u8>);

/// Every tensor of a directory by its name.
pub(crate) fn read(directory: &Path) -> BTreeMap<String, Tensor> {
    let mut tensors = BTreeMap::new();
    for name in names(directory).into_iter().filter(|name| name.ends_with(".safetensors")) {
        let (header, data) = parts(&directory.join(name));
        for (name, entry) in header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__") {
            let number = |value: &Value| value.as_u64().unwrap();
            let [begin, end] = [0, 1].map(|at| number(&entry["data_offsets"][at]) as usize);
            let shape = entry["shape"].as_array().unwrap().iter().map(number).collect();
            let dtype = entry["dtype"].as_str().unwrap().to_owned();
            tensors.insert(name.clone(), (dtype, shape, data[begin..end].to_vec()));
        }
    }
    tensors
}

/// Opens a directory as the runtime that will serve it does, as far as its headers.
pub(crate) fn open(directory: &Path) -> (superfluid_mlx::config::Config, superfluid_mlx::layout::Layout) {
    let files = superfluid_mlx::files::Files::open(directory).unwrap();
    let config = superfluid_mlx::config::Config::parse(&files.config).unwrap();
    let layout = superfluid_mlx::layout::Layout::find(&config, &files).unwrap();
    assert_eq!(layout.unused, Vec::<String>::new());
    (config, layout)
}
