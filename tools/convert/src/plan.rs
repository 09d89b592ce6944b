//! What each tensor of the source becomes, with its place in the result: decided before anything is written.

use std::collections::BTreeMap;
use std::ops::Range;

use sf_artifact::gguf::TensorType;

use crate::affine::Affine;
use crate::error::ConvertError;
use crate::kinds::Plain;
use crate::names::Pairs;
use crate::{Options, safetensors};

/// Where the rows of a tensor are.
pub(crate) struct Origin {
    /// Index into the source's files.
    pub(crate) file: usize,
    /// From the start of that file.
    pub(crate) offset: u64,
    pub(crate) row_bytes: u64,
    pub(crate) kind: TensorType,
}

/// How elements get into the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Byte by byte.
    Copied,
    /// As floats of [`Entry::plain`].
    Floats,
    /// Blocks of the source become groups of the affine form, exactly.
    Repacked(Affine),
    /// As MLX quantizes.
    Quantized(Affine),
}

/// One tensor.
pub(crate) struct Entry {
    /// In the result.
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) pairs: Option<Pairs>,
    /// To be taken from each element.
    pub(crate) offset: f32,
    pub(crate) way: Way,
    /// Type of plain elements, or of scales and biases.
    pub(crate) plain: Plain,
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    pub(crate) shape: Vec<u64>,
    /// It is multiplied with, or looked up row by row.
    pub(crate) matrix: bool,
}

/// A tensor of the result.
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: u64,
}

/// How the matrices are packed.
pub(crate) struct Forms {
    /// Of most of them.
    pub(crate) usual: Affine,
    /// Each that differs: its name and its form, none if it is plain.
    pub(crate) others: Vec<(String, Option<Affine>)>,
}

/// All tensors, in the order in which they are written.
pub(crate) struct Plan {
    pub(crate) entries: Vec<Entry>,
    /// The entries of each file.
    pub(crate) files: Vec<Range<usize>>,
}

impl Entry {
    /// The form of its codes, when it has some.
    pub(crate) fn affine(&self) -> Option<Affine> {
        match self.way {
            Way::Repacked(form) | Way::Quantized(form) => Some(form),
            Way::Copied | Way::Floats => None,
        }
    }

    /// Its tensors of the result, in order.
    pub(crate) fn outputs(&self) -> Vec<Output> {
        let output = |name: String, dtype, shape: Vec<u64>, element: u64| {
            let bytes = shape.iter().product::<u64>() * element;
            Output { name, dtype, shape, bytes }
        };
        let name = self.name.clone();
        let Some(form) = self.affine() else {
            let dtype = if self.way == Way::Copied { self.origin.kind.name } else { self.plain.name() };
            let element =
                safetensors::element_bytes(dtype).expect("each type that is written is listed there");
            return vec![output(name, dtype, self.shape.clone(), element)];
        };
        let stem = stem(&name).to_owned();
        let of_groups = |suffix: &str| {
            let shape = vec![self.rows, self.cols / u64::from(form.group())];
            output(format!("{stem}.{suffix}"), self.plain.name(), shape, self.plain.bytes())
        };
        let words = vec![self.rows, self.cols / 32 * u64::from(form.bits())];
        vec![output(name, "U32", words, 4), of_groups("scales"), of_groups("biases")]
    }

    /// Bytes of the source.
    pub(crate) fn source_bytes(&self) -> u64 {
        self.rows * self.origin.row_bytes
    }

    /// The type of plain elements of the source; `None` = blocks or integers.
    pub(crate) fn source_plain(&self) -> Option<Plain> {
        Plain::named(self.origin.kind.name)
    }

    /// In words, what is done to it.
    pub(crate) fn words(&self) -> String {
        let plain = self.plain.name().to_lowercase();
        match (self.way, self.source_plain()) {
            (Way::Copied, _) => "copied".to_owned(),
            (Way::Floats, Some(from)) if self.plain.holds(from) => "copied".to_owned(),
            (Way::Floats, Some(_)) => format!("rounded to {plain}"),
            (Way::Floats, None) => format!("{} to {plain}", self.origin.kind.name),
            (Way::Repacked(_), _) => "repacked".to_owned(),
            (Way::Quantized(form), _) => {
                format!("quantized to {} bits in groups of {}", form.bits(), form.group())
            }
        }
    }
}

/// A matrix' name without `.weight`.
fn stem(name: &str) -> &str {
    name.strip_suffix(".weight").unwrap_or(name)
}

/// How plain or rounded elements get into the result: `own` is the type they have, or get when nothing is asked.
pub(crate) fn float_way(options: &Options, matrix: bool, cols: u64, own: Plain) -> (Way, Plain) {
    let plain = options.plain.unwrap_or(own);
    match options.quantize {
        Some(form) if matrix && cols.is_multiple_of(u64::from(form.group())) => (Way::Quantized(form), plain),
        _ => (Way::Floats, plain),
    }
}

impl Plan {
    /// Shares the entries out to files of at most `file_bytes`, or of one entry.
    pub(crate) fn new(entries: Vec<Entry>, options: &Options) -> Result<Plan, ConvertError> {
        let quantized = |entry: &Entry| matches!(entry.way, Way::Quantized(_) | Way::Repacked(_));
        if let Some(form) = options.quantize
            && !entries.iter().any(quantized)
        {
            return Err(ConvertError::Group { group: form.group() });
        }
        let (mut files, mut first, mut held) = (Vec::new(), 0, 0);
        for (at, entry) in entries.iter().enumerate() {
            let bytes: u64 = entry.outputs().iter().map(|output| output.bytes).sum();
            if at > first && held + bytes > options.file_bytes_max {
                files.push(first..at);
                (first, held) = (at, 0);
            }
            held += bytes;
        }
        files.push(first..entries.len());
        Ok(Plan { entries, files })
    }

    /// Bytes of all tensors of the result.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.iter().flat_map(Entry::outputs).map(|output| output.bytes).sum()
    }

    /// Bytes of all tensors of the source.
    pub(crate) fn source_bytes(&self) -> u64 {
        self.entries.iter().map(Entry::source_bytes).sum()
    }

    /// As readers of several files expect it.
    pub(crate) fn file_name(&self, file: usize) -> String {
        match self.files.len() {
            1 => "model.safetensors".to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", file + 1),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name)
    }

    /// How the matrices are packed; `None` = none of them is.
    pub(crate) fn forms(&self) -> Option<Forms> {
        let mut counts = BTreeMap::<Affine, usize>::new();
        let matrices: Vec<&Entry> = self.entries.iter().filter(|entry| entry.matrix).collect();
        let forms = matrices.iter().filter_map(|entry| entry.affine());
        forms.for_each(|form| *counts.entry(form).or_default() += 1);
        let usual = counts.into_iter().max_by_key(|&(_, count)| count)?.0;
        let differs = matrices.into_iter().filter(|entry| entry.affine() != Some(usual));
        let others = differs.map(|entry| (stem(&entry.name).to_owned(), entry.affine())).collect();
        Some(Forms { usual, others })
    }
}
