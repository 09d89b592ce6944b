//! The header of a GGUF file: facts, and the checks without which llama.cpp would abort the process.
//!
//! llama.cpp asserts what it expects of metadata. Whatever of that a file can break is checked here first, so that a
//! hostile file is an error with words.
#![expect(unsafe_code, reason = "reads the header through gguf's C interface")]

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{Code, Fault};

use crate::log;

/// LLAMA_MAX_LAYERS of llama.cpp.
const LAYERS_MAX: u64 = 512;
/// LLAMA_MAX_EXPERTS of llama.cpp.
const EXPERTS_MAX: u64 = 1024;
/// Longest path that llama.cpp is given, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Where a tensor lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A parsed header.
#[derive(Debug)]
pub(crate) struct Header {
    raw: NonNull<sys::gguf_context>,
    name: String,
    file_bytes: u64,
}

impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: made by `gguf_init_from_file` and freed once.
        unsafe { sys::gguf_free(self.raw.as_ptr()) };
    }
}

/// A path for C, after the file was found to be one that can be read.
pub(crate) fn readable(path: &Path) -> Result<(CString, u64), Fault> {
    let bytes = path.as_os_str().as_bytes();
    let c_path = CString::new(bytes).ok().filter(|_| bytes.len() < PATH_BYTES_MAX).ok_or_else(|| {
        Fault::new(Code::Arg, format!("a path of {} bytes, at most {PATH_BYTES_MAX}", bytes.len()))
            .field("paths")
    })?;
    let missing = |why: &dyn std::fmt::Display| {
        Fault::new(Code::NotFound, format!("cannot open {}: {why}", path.display())).field("paths")
    };
    let file = File::open(path).map_err(|error| missing(&error))?;
    let facts = file.metadata().map_err(|error| missing(&error))?;
    if !facts.is_file() {
        return Err(missing(&"not a file"));
    }
    Ok((c_path, facts.len()))
}

impl Header {
    /// Reads and checks the header.
    pub(crate) fn open(path: &Path) -> Result<Header, Fault> {
        let (c_path, file_bytes) = readable(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let params = sys::gguf_init_params { no_alloc: true, ctx: std::ptr::null_mut() };
        let (raw, words) = log::capture(|| {
            // SAFETY: a C string that lives for the call; gguf reports damage by NULL and catches its exceptions.
            unsafe { sys::gguf_init_from_file(c_path.as_ptr(), params) }
        });
        let raw = NonNull::new(raw)
            .ok_or_else(|| Fault::new(Code::Format, format!("{name}: {words}")).field("paths"))?;
        let header = Header { raw, name, file_bytes };
        header.check_tensors()?;
        header.check_shape()?;
        Ok(header)
    }

    fn damaged(&self, key: &str, why: impl std::fmt::Display) -> Fault {
        Fault::new(Code::Format, format!("{}: {key} {why}", self.name)).field(key)
    }

    fn raw(&self) -> *const sys::gguf_context {
        self.raw.as_ptr()
    }

    fn find(&self, key: &str) -> Option<(i64, sys::gguf_type)> {
        let key = CString::new(key).ok()?;
        // SAFETY: a live header and a C string.
        let id = unsafe { sys::gguf_find_key(self.raw(), key.as_ptr()) };
        // SAFETY: a key that was just found.
        (id >= 0).then(|| (id, unsafe { sys::gguf_get_kv_type(self.raw(), id) }))
    }

    /// An unsigned value of any integer type.
    pub(crate) fn uint(&self, key: &str) -> Option<u64> {
        let (id, kind) = self.find(key)?;
        let raw = self.raw();
        match kind {
            // SAFETY: the key holds this type, which is all these functions ask.
            sys::GGUF_TYPE_UINT8 => Some(u64::from(unsafe { sys::gguf_get_val_u8(raw, id) })),
            // SAFETY: as above.
            sys::GGUF_TYPE_UINT16 => Some(u64::from(unsafe { sys::gguf_get_val_u16(raw, id) })),
            // SAFETY: as above.
            sys::GGUF_TYPE_UINT32 => Some(u64::from(unsafe { sys::gguf_get_val_u32(raw, id) })),
            // SAFETY: as above.
            sys::GGUF_TYPE_UINT64 => Some(unsafe { sys::gguf_get_val_u64(raw, id) }),
            // SAFETY: as above.
            sys::GGUF_TYPE_INT32 => u64::try_from(unsafe { sys::gguf_get_val_i32(raw, id) }).ok(),
            // SAFETY: as above.
            sys::GGUF_TYPE_INT64 => u64::try_from(unsafe { sys::gguf_get_val_i64(raw, id) }).ok(),
            _ => None,
        }
    }

    /// A text, up to its first NUL.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        let (id, kind) = self.find(key)?;
        if kind != sys::GGUF_TYPE_STRING {
            return None;
        }
        // SAFETY: the type was just compared.
        let text = unsafe { sys::gguf_get_val_str(self.raw(), id) };
        Some(owned(text))
    }

    /// Length and element type of an array.
    fn array(&self, key: &str) -> Option<(i64, usize, sys::gguf_type)> {
        let (id, kind) = self.find(key)?;
        if kind != sys::GGUF_TYPE_ARRAY {
            return None;
        }
        // SAFETY: the key holds an array.
        let kind = unsafe { sys::gguf_get_arr_type(self.raw(), id) };
        // SAFETY: as above.
        let len = unsafe { sys::gguf_get_arr_n(self.raw(), id) };
        Some((id, len, kind))
    }

    /// Value of layer `layer`: an array has one per layer, a scalar is the same for all.
    pub(crate) fn per_layer(&self, key: &str, layer: usize) -> Option<u64> {
        let Some((id, len, kind)) = self.array(key) else { return self.uint(key) };
        if layer >= len {
            return None;
        }
        let at = match kind {
            sys::GGUF_TYPE_UINT32 | sys::GGUF_TYPE_INT32 | sys::GGUF_TYPE_BOOL => {
                // SAFETY: an array of numbers.
                unsafe { sys::gguf_get_arr_data(self.raw(), id) }
            }
            _ => return None,
        };
        if kind == sys::GGUF_TYPE_BOOL {
            // SAFETY: gguf stores booleans as bytes; `layer` is below the length.
            return Some(u64::from(unsafe { at.cast::<u8>().wrapping_add(layer).read() } != 0));
        }
        // SAFETY: `layer` is below the length of an array of 32-bit numbers.
        Some(u64::from(unsafe { at.cast::<u32>().wrapping_add(layer).read_unaligned() }))
    }

    /// Whether the key holds an array.
    pub(crate) fn is_array(&self, key: &str) -> bool {
        self.array(key).is_some()
    }

    pub(crate) fn architecture(&self) -> String {
        self.text("general.architecture").unwrap_or_default()
    }

    /// A value of the model's architecture, `key` without its name.
    pub(crate) fn of_arch(&self, key: &str) -> Option<u64> {
        self.uint(&self.arch_key(key))
    }

    pub(crate) fn arch_key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture())
    }

    pub(crate) fn layers(&self) -> usize {
        self.of_arch("block_count").map_or(0, |layers| layers.min(LAYERS_MAX) as usize)
    }

    pub(crate) fn ctx_trained(&self) -> u32 {
        self.of_arch("context_length").map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Tokens of the vocabulary, 0 when the file has none.
    pub(crate) fn vocab(&self) -> u64 {
        self.array("tokenizer.ggml.tokens").map_or(0, |(_, len, _)| len as u64)
    }

    pub(crate) fn quantization(&self) -> String {
        match self.uint("general.file_type").and_then(|kind| sys::llama_ftype::try_from(kind).ok()) {
            // SAFETY: a static text for every number.
            Some(kind) => owned(unsafe { sys::llama_ftype_name(kind) }),
            None => "unknown".to_owned(),
        }
    }

    fn tensors(&self) -> i64 {
        // SAFETY: a live header.
        unsafe { sys::gguf_get_n_tensors(self.raw()) }
    }

    /// Where the tensors begin, in bytes from the start of the file.
    pub(crate) fn data_offset(&self) -> u64 {
        // SAFETY: a live header.
        unsafe { sys::gguf_get_data_offset(self.raw()) as u64 }
    }

    /// The tensors' places behind [`Header::data_offset`], all within the file.
    pub(crate) fn tensor_spans(&self) -> impl Iterator<Item = Span> {
        (0..self.tensors()).map(|i| Span {
            // SAFETY: every index below the count is legal.
            offset: unsafe { sys::gguf_get_tensor_offset(self.raw(), i) } as u64,
            // SAFETY: as above.
            bytes: unsafe { sys::gguf_get_tensor_size(self.raw(), i) } as u64,
        })
    }

    /// Bytes of all tensors in this file.
    pub(crate) fn tensor_bytes(&self) -> u64 {
        self.tensor_spans().map(|span| span.bytes).sum()
    }

    /// A truncated download is the usual damage: say which byte is missing.
    fn check_tensors(&self) -> Result<(), Fault> {
        let data = self.data_offset();
        for (i, Span { offset, bytes }) in (0..).zip(self.tensor_spans()) {
            let end = data.checked_add(offset).and_then(|at| at.checked_add(bytes));
            if end.is_none_or(|end| end > self.file_bytes) {
                // SAFETY: a tensor of this header.
                let name = owned(unsafe { sys::gguf_get_tensor_name(self.raw(), i) });
                return Err(Fault::new(
                    Code::Format,
                    format!(
                        "{}: the file ends at byte {}, tensor {name} needs {}",
                        self.name,
                        self.file_bytes,
                        end.unwrap_or(u64::MAX)
                    ),
                )
                .field("paths"));
            }
        }
        Ok(())
    }

    fn check_shape(&self) -> Result<(), Fault> {
        if self.architecture().is_empty() {
            return Err(self.damaged("general.architecture", "is missing"));
        }
        let bounded = |key: &str, max: u64| match self.of_arch(key) {
            Some(value) if value > max => {
                Err(self.damaged(&self.arch_key(key), format_args!("is {value}, at most {max}")))
            }
            value => Ok(value.unwrap_or(0)),
        };
        if self.of_arch("block_count") == Some(0) {
            return Err(self.damaged(&self.arch_key("block_count"), "is 0"));
        }
        let layers = bounded("block_count", LAYERS_MAX)?;
        bounded("nextn_predict_layers", layers)?;
        let experts = bounded("expert_count", EXPERTS_MAX)?;
        bounded("expert_used_count", experts)?;
        bounded("expert_group_count", experts)?;
        let scaling = self.arch_key("rope.scaling.type");
        match self.text(&scaling).as_deref() {
            None | Some("none" | "linear" | "yarn" | "longrope") => Ok(()),
            Some(other) => Err(self.damaged(&scaling, format_args!("is {other}"))),
        }
    }

    /// What the vocabulary's loader takes for granted.
    pub(crate) fn check_vocabulary(&self) -> Result<(), Fault> {
        let arrays = [
            ("tokenizer.ggml.tokens", &[sys::GGUF_TYPE_STRING][..]),
            ("tokenizer.ggml.merges", &[sys::GGUF_TYPE_STRING]),
            ("tokenizer.ggml.scores", &[sys::GGUF_TYPE_FLOAT32, sys::GGUF_TYPE_INT32]),
            ("tokenizer.ggml.token_type", &[sys::GGUF_TYPE_INT32, sys::GGUF_TYPE_UINT32]),
            ("tokenizer.ggml.suppress_tokens", &[sys::GGUF_TYPE_INT32, sys::GGUF_TYPE_UINT32]),
            ("tokenizer.ggml.precompiled_charsmap", &[sys::GGUF_TYPE_INT8, sys::GGUF_TYPE_UINT8]),
        ];
        for (key, kinds) in arrays {
            match (self.find(key), self.array(key)) {
                (None, _) => {}
                (Some(_), Some((_, _, kind))) if kinds.contains(&kind) => {}
                _ => return Err(self.damaged(key, "is not the array it should be")),
            }
        }
        let Some((id, len, _)) = self.array("tokenizer.ggml.tokens") else { return Ok(()) };
        let mut seen = HashSet::with_capacity(len);
        for i in 0..len {
            // SAFETY: an array of strings, `i` is below its length.
            let text = unsafe { sys::gguf_get_arr_str(self.raw(), id, i) };
            // SAFETY: gguf's strings end with a NUL and live as long as the header.
            let text = unsafe { CStr::from_ptr(text) }.to_bytes();
            if !text.is_empty() && !seen.insert(text) {
                let text = String::from_utf8_lossy(text).into_owned();
                return Err(self.damaged("tokenizer.ggml.tokens", format_args!("has {text:?} twice")));
            }
        }
        Ok(())
    }

    /// The answer of `sf.inspect/1`.
    pub(crate) fn facts(&self) -> serde_json::Value {
        // SAFETY: a live header.
        let version = unsafe { sys::gguf_get_version(self.raw()) };
        serde_json::json!({
            "architecture": self.architecture(),
            "quantization": self.quantization(),
            "ctx_trained": self.ctx_trained(),
            "vocab": self.vocab(),
            "name": self.text("general.name"),
            "gguf_version": version,
            "layers": self.layers(),
            "embedding": self.of_arch("embedding_length"),
            "heads": self.of_arch("attention.head_count"),
            "heads_kv": self.of_arch("attention.head_count_kv"),
            "tensors": self.tensors(),
            "bytes_tensors": self.tensor_bytes(),
        })
    }
}

/// A C string of llama.cpp as ours.
pub(crate) fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: callers pass strings that gguf or llama.cpp own, which end with a NUL and are alive.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
