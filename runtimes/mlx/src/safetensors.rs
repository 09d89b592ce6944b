//! Reads the header of a safetensors file: which tensors it has, of what type and shape, and where their bytes stand.
//!
//! Every number is compared with the file's length before it is believed, and no byte of a tensor is read here.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize as _;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;

/// Most bytes of a header; one with a hundred thousand tensors has a tenth of it.
const HEADER_BYTES_MAX: u64 = 100 << 20;
/// Most dimensions of a tensor.
const DIMS_MAX: usize = 8;
/// The header's own length stands in this many bytes before it.
const PREFIX_BYTES: u64 = 8;

/// Element types by their names in a header, and the bytes of one element.
const TYPES: [(&str, Dtype); 7] = [
    ("F32", Dtype::F32),
    ("F16", Dtype::F16),
    ("BF16", Dtype::Bf16),
    ("U32", Dtype::U32),
    ("I32", Dtype::I32),
    ("U8", Dtype::U8),
    // Nothing is computed with them; old encoders keep the numbers of their positions so.
    ("I64", Dtype::I64),
];

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is its own name")]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    U32,
    I32,
    U8,
    I64,
}

impl Dtype {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::F32 | Dtype::U32 | Dtype::I32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U8 => 1,
            Dtype::I64 => 8,
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::F16 | Dtype::Bf16)
    }

    /// As headers spell it.
    pub fn name(self) -> &'static str {
        TYPES.iter().find(|(_, dtype)| *dtype == self).map_or("?", |(name, _)| name)
    }
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Type of its elements.
    pub dtype: Dtype,
    /// Sizes, outermost first.
    pub shape: Vec<u32>,
    /// Where its bytes begin, counted from the start of the file.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
}

/// The tensors of a file by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// By name.
    pub tensors: BTreeMap<String, Tensor>,
}

/// What is wrong with a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum HeaderError {
    #[error("the file has {0} bytes, a safetensors file has at least 8")]
    Short(u64),
    #[error(
        "the header says it has {header} bytes, the file has {file} and at most {HEADER_BYTES_MAX} are read"
    )]
    Length { header: u64, file: u64 },
    #[error("the header ends after {0} bytes")]
    Cut(u64),
    #[error("the header is not JSON: {0}")]
    Json(String),
    #[error("the header names tensor {0} twice")]
    Twice(String),
    #[error("tensor {name}: {why}")]
    Tensor { name: String, why: String },
    #[error("tensors {first} and {second} share bytes")]
    Overlap { first: String, second: String },
    #[error("between {before} and {after} lie {bytes} bytes of no tensor")]
    Gap { before: String, after: String, bytes: u64 },
    #[error("the tensors end at byte {tensors}, the file has {file}")]
    Tail { tensors: u64, file: u64 },
}

/// Length of a header as its first eight bytes say it, checked against the file's length.
///
/// # Errors
/// A file that is too short for it.
pub fn header_bytes(prefix: &[u8], file_bytes: u64) -> Result<u64, HeaderError> {
    let prefix: [u8; 8] =
        prefix.get(..8).and_then(|bytes| bytes.try_into().ok()).ok_or(HeaderError::Short(file_bytes))?;
    let header = u64::from_le_bytes(prefix);
    let room = file_bytes.checked_sub(PREFIX_BYTES).ok_or(HeaderError::Short(file_bytes))?;
    if header > room || header > HEADER_BYTES_MAX {
        return Err(HeaderError::Length { header, file: file_bytes });
    }
    Ok(header)
}

impl Header {
    /// Reads a header from the start of a file of `file_bytes` bytes.
    ///
    /// # Errors
    /// [`HeaderError`], which names the tensor.
    pub fn parse(start: &[u8], file_bytes: u64) -> Result<Header, HeaderError> {
        let len = header_bytes(start, file_bytes)?;
        let end = usize::try_from(PREFIX_BYTES + len).map_err(|_| HeaderError::Cut(start.len() as u64))?;
        let text = start.get(PREFIX_BYTES as usize..end).ok_or(HeaderError::Cut(start.len() as u64))?;
        let mut json = serde_json::Deserializer::from_slice(text);
        let entries =
            Entries::deserialize(&mut json).map_err(|error| HeaderError::Json(error.to_string()))?;
        json.end().map_err(|error| HeaderError::Json(error.to_string()))?;
        let data = PREFIX_BYTES + len;
        let mut tensors = BTreeMap::new();
        for (name, value) in entries.0 {
            if name == "__metadata__" {
                continue;
            }
            let tensor = tensor(&value, data, file_bytes)
                .map_err(|why| HeaderError::Tensor { name: name.clone(), why })?;
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(HeaderError::Twice(name));
            }
        }
        let header = Header { tensors };
        header.check_order(data, file_bytes)?;
        Ok(header)
    }

    /// Every byte behind the header belongs to exactly one tensor: whatever else lies there, nobody asked for.
    fn check_order(&self, data: u64, file_bytes: u64) -> Result<(), HeaderError> {
        let mut order: Vec<(&String, &Tensor)> = self.tensors.iter().collect();
        order.sort_by_key(|(_, tensor)| (tensor.offset, tensor.bytes));
        let (mut before, mut at) = ("the header", data);
        for (name, tensor) in order {
            if tensor.offset < at {
                return Err(HeaderError::Overlap { first: before.to_owned(), second: name.clone() });
            }
            if tensor.offset > at {
                let bytes = tensor.offset - at;
                return Err(HeaderError::Gap { before: before.to_owned(), after: name.clone(), bytes });
            }
            (before, at) = (name, tensor.offset + tensor.bytes);
        }
        if at != file_bytes {
            return Err(HeaderError::Tail { tensors: at, file: file_bytes });
        }
        Ok(())
    }
}

/// The header's pairs as they stand, so that a name that stands twice is seen.
struct Entries(Vec<(String, Value)>);

impl<'de> serde::Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Entries(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// One entry; the words say what is wrong with it.
fn tensor(value: &Value, data: u64, file_bytes: u64) -> Result<Tensor, String> {
    let object = value.as_object().ok_or("it is no object")?;
    if let Some(key) = object.keys().find(|key| !matches!(key.as_str(), "dtype" | "shape" | "data_offsets")) {
        return Err(format!("unknown key {key}"));
    }
    let name = value["dtype"].as_str().ok_or("it has no dtype")?;
    let dtype = TYPES.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype).ok_or_else(|| {
        let known: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        format!("dtype {name} is not read here, these are: {}", known.join(", "))
    })?;
    let shape = value["shape"].as_array().ok_or("it has no shape")?;
    if shape.len() > DIMS_MAX {
        return Err(format!("{} dimensions, at most {DIMS_MAX}", shape.len()));
    }
    let mut elements = 1_u64;
    let mut sizes = Vec::with_capacity(shape.len());
    for size in shape {
        let size = size.as_u64().and_then(|size| u32::try_from(size).ok());
        let size = size
            .filter(|&size| size <= i32::MAX.cast_unsigned())
            .ok_or("a size of its shape is no positive 31-bit number")?;
        elements = elements.checked_mul(u64::from(size)).ok_or("its shape has more than 2^64 elements")?;
        sizes.push(size);
    }
    let offsets = value["data_offsets"].as_array().filter(|pair| pair.len() == 2);
    let offsets = offsets.ok_or("data_offsets are no pair")?;
    let (begin, end) = (offsets[0].as_u64(), offsets[1].as_u64());
    let (begin, end) = begin.zip(end).ok_or("data_offsets are no positive numbers")?;
    let bytes = elements.checked_mul(dtype.bytes()).ok_or("its shape has more than 2^64 bytes")?;
    if end.checked_sub(begin) != Some(bytes) {
        return Err(format!("data_offsets are {begin} to {end}, its shape has {bytes} bytes"));
    }
    if data.checked_add(end).is_none_or(|end| end > file_bytes) {
        return Err(format!("its bytes end at {end} of the data, the file ends before"));
    }
    Ok(Tensor { dtype, shape: sizes, offset: data + begin, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    #[test]
    fn a_header_is_read_or_refused_in_words() {
        let check = |header: &str, data: usize, expect: &str| {
            let bytes = file(header, data);
            let words = match Header::parse(&bytes, bytes.len() as u64) {
                Ok(header) => format!("{} tensors", header.tensors.len()),
                Err(error) => error.to_string(),
            };
            assert!(words.contains(expect), "{header}: {words}");
        };
        let one = |name: &str, dtype: &str, shape: &str, offsets: &str| {
            format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
        };
        let (a, b) = (one("a", "F32", "[2,3]", "[0,24]"), one("b", "BF16", "[4]", "[24,32]"));
        check(&format!("{{{a},{b}}}"), 32, "2 tensors");
        check(&format!(r#"{{"__metadata__":{{"format":"mlx"}},{b},{a}}}  "#), 32, "2 tensors");
        check("{}", 0, "0 tensors");
        check(&format!("{{{a}}}"), 25, "end at byte");
        check(&format!("{{{a}}}"), 23, "the file ends before");
        check(&format!("{{{b}}}"), 32, "between the header and b lie 24 bytes");
        check(&format!("{{{a},{}}}", one("b", "F16", "[2]", "[20,24]")), 24, "a and b share bytes");
        check(&format!("{{{a},{}}}", one("a", "F32", "[2,3]", "[0,24]")), 24, "a twice");
        check(&format!("{{{}}}", one("a", "F64", "[1]", "[0,8]")), 8, "dtype F64 is not read here");
        check(&format!("{{{}}}", one("a", "F32", "[1]", "[0,8]")), 8, "its shape has 4 bytes");
        check(&format!("{{{}}}", one("a", "F32", "[1]", "[8,4]")), 8, "8 to 4");
        check(&format!("{{{}}}", one("a", "F32", "[-1]", "[0,4]")), 8, "31-bit");
        check(&format!("{{{}}}", one("a", "U8", "[4294967296]", "[0,4]")), 8, "31-bit");
        check(&format!("{{{}}}", one("a", "F32", "[2147483647,2147483647,2147483647]", "[0,4]")), 8, "2^64");
        check(&format!("{{{}}}", one("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]")), 4, "9 dimensions");
        check(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}"#, 4, "unknown key x");
        check(r#"{"a":[]}"#, 4, "no object");
        check(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), 0, "not JSON");
        check(&format!(r#"{{"a":{}1{}}}"#, "[".repeat(500), "]".repeat(500)), 0, "recursion limit");
    }

    #[test]
    fn a_length_that_the_file_has_not_is_refused_before_it_is_read() {
        for (bytes, file, expect) in [
            (vec![1, 2, 3], 3, HeaderError::Short(3)),
            (
                u64::MAX.to_le_bytes().to_vec(),
                1 << 40,
                HeaderError::Length { header: u64::MAX, file: 1 << 40 },
            ),
            (100_u64.to_le_bytes().to_vec(), 50, HeaderError::Length { header: 100, file: 50 }),
            (100_u64.to_le_bytes().to_vec(), 500, HeaderError::Cut(8)),
        ] {
            assert_eq!(Header::parse(&bytes, file), Err(expect));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_header_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Header::parse(&bytes, bytes.len() as u64);
        }

        #[test]
        fn a_damaged_header_never_reaches_outside_of_the_file(at in 8_usize..150, byte in any::<u8>()) {
            let mut bytes = file(
                r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}}"#,
                32,
            );
            if at < bytes.len() {
                bytes[at] = byte;
            }
            if let Ok(header) = Header::parse(&bytes, bytes.len() as u64) {
                for tensor in header.tensors.values() {
                    prop_assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
                }
            }
        }
    }
}
