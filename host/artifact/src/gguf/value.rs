//! What the key-value pairs of a GGUF header hold; long arrays stay where they lie in the header.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::types::ValueType;

/// One value.
#[derive(Clone, Debug)]
pub enum Value {
    /// Unsigned, 1 byte.
    U8(u8),
    /// Signed, 1 byte.
    I8(i8),
    /// Unsigned, 2 bytes.
    U16(u16),
    /// Signed, 2 bytes.
    I16(i16),
    /// Unsigned, 4 bytes.
    U32(u32),
    /// Signed, 4 bytes.
    I32(i32),
    /// Single precision.
    F32(f32),
    /// True or false.
    Bool(bool),
    /// Text.
    String(Box<str>),
    /// Many of one type.
    Array(Array),
    /// Unsigned, 8 bytes.
    U64(u64),
    /// Signed, 8 bytes.
    I64(i64),
    /// Double precision.
    F64(f64),
}

impl Value {
    pub(super) fn from_bits(kind: ValueType, bits: u64) -> Value {
        match kind {
            ValueType::U8 => Value::U8(bits as u8),
            ValueType::I8 => Value::I8(bits as i8),
            ValueType::U16 => Value::U16(bits as u16),
            ValueType::I16 => Value::I16(bits as i16),
            ValueType::U32 => Value::U32(bits as u32),
            ValueType::I32 => Value::I32(bits as i32),
            ValueType::F32 => Value::F32(f32::from_bits(bits as u32)),
            ValueType::Bool => Value::Bool(bits != 0),
            ValueType::I64 => Value::I64(bits as i64),
            ValueType::F64 => Value::F64(f64::from_bits(bits)),
            // Strings and arrays are no scalars; the scan never gives them here.
            ValueType::U64 | ValueType::String | ValueType::Array => Value::U64(bits),
        }
    }

    /// Its type.
    pub fn kind(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// Any whole number that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(value) => Some(value.into()),
            Value::U16(value) => Some(value.into()),
            Value::U32(value) => Some(value.into()),
            Value::U64(value) => Some(value),
            Value::I8(value) => value.try_into().ok(),
            Value::I16(value) => value.try_into().ok(),
            Value::I32(value) => value.try_into().ok(),
            Value::I64(value) => value.try_into().ok(),
            _ => None,
        }
    }

    /// Text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// True or false.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// An array.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }
}

/// Many values of one type, read out of the shared header on demand. Cheap to clone.
#[derive(Clone)]
pub struct Array {
    pub(super) header: Arc<Vec<u8>>,
    pub(super) kind: ValueType,
    pub(super) count: usize,
    pub(super) range: Range<usize>,
}

impl Array {
    /// Type of the elements; never an array.
    pub fn kind(&self) -> ValueType {
        self.kind
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.header[self.range.clone()]
    }

    /// The UTF-8 bytes of each string; `None` when the elements are no strings.
    pub fn strings(&self) -> Option<Strings<'_>> {
        (self.kind == ValueType::String).then(|| Strings { rest: self.bytes(), left: self.count })
    }

    /// The elements as `f32`; `None` when they are something else.
    pub fn f32s(&self) -> Option<impl ExactSizeIterator<Item = f32> + '_> {
        (self.kind == ValueType::F32).then(|| self.words().map(f32::from_le_bytes))
    }

    /// The elements as `i32`; `None` when they are something else.
    pub fn i32s(&self) -> Option<impl ExactSizeIterator<Item = i32> + '_> {
        (self.kind == ValueType::I32).then(|| self.words().map(i32::from_le_bytes))
    }

    /// The elements as bytes; `None` when they are neither `u8` nor `i8`.
    pub fn u8s(&self) -> Option<&[u8]> {
        matches!(self.kind, ValueType::U8 | ValueType::I8).then(|| self.bytes())
    }

    fn words(&self) -> impl ExactSizeIterator<Item = [u8; 4]> + '_ {
        self.bytes().chunks_exact(4).map(|word| word.try_into().expect("chunks of four"))
    }
}

impl fmt::Debug for Array {
    /// Type and length only: a vocabulary has a quarter of a million elements.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}]", self.kind.name(), self.count)
    }
}

/// Iterator over the strings of an [`Array`], as their bytes (UTF-8, checked when the header was read).
#[derive(Clone, Debug)]
pub struct Strings<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = self.rest.split_first_chunk().expect("the scan walked this array");
        let (text, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        self.rest = rest;
        Some(text)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Strings<'_> {}
