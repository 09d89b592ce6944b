//! What each tensor of the source becomes, with its place in the result: decided before anything is written.

use std::collections::BTreeMap;

use sf_artifact::Gguf;
use sf_artifact::gguf::TensorInfo;

use crate::blocks::{Form, GROUP, form};
use crate::error::ConvertError;
use crate::kinds::Plain;
use crate::names::{Kind, Named};

/// One tensor.
pub(crate) struct Entry {
    /// Index into the source's tensors.
    pub(crate) source: usize,
    pub(crate) named: Named,
    pub(crate) form: Form,
    /// Of plain elements, or of scales and biases.
    pub(crate) plain: Plain,
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    /// The source has one dimension.
    pub(crate) flat: bool,
}

/// A tensor of the result.
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: u64,
}

/// How the matrices are packed.
pub(crate) struct Bits {
    /// Of most of them.
    pub(crate) usual: u32,
    /// Each that differs: its name and its bits, none if it is plain.
    pub(crate) others: Vec<(String, Option<u32>)>,
}

/// All tensors, in the order in which they are written.
pub(crate) struct Plan {
    pub(crate) entries: Vec<Entry>,
    kinds: BTreeMap<String, usize>,
}

impl Entry {
    /// Bits of a code, when it is affine.
    pub(crate) fn bits(&self) -> Option<u32> {
        match self.form {
            Form::Halves(bits) | Form::Floats(bits) => Some(bits),
            Form::Plain | Form::Dequantized => None,
        }
    }

    /// Its tensors of the result, in order.
    pub(crate) fn outputs(&self) -> Vec<Output> {
        let output = |name: String, dtype, shape: Vec<u64>, element: u64| {
            let bytes = shape.iter().product::<u64>() * element;
            Output { name, dtype, shape, bytes }
        };
        let name = self.named.name.clone();
        let Some(bits) = self.bits() else {
            let shape = if self.flat { vec![self.cols] } else { vec![self.rows, self.cols] };
            return vec![output(name, self.plain.name(), shape, self.plain.bytes())];
        };
        let stem = name.strip_suffix(".weight").unwrap_or(&name).to_owned();
        let groups = vec![self.rows, self.cols / GROUP as u64];
        let of_groups = |suffix: &str| {
            output(format!("{stem}.{suffix}"), self.plain.name(), groups.clone(), self.plain.bytes())
        };
        let words = vec![self.rows, self.cols / 32 * u64::from(bits)];
        vec![output(name, "U32", words, 4), of_groups("scales"), of_groups("biases")]
    }
}

impl Plan {
    /// Decides about every tensor.
    pub(crate) fn make(gguf: &Gguf, kind: &Kind, plain: Plain) -> Result<Plan, ConvertError> {
        let mut plan = Plan { entries: Vec::new(), kinds: BTreeMap::new() };
        for (source, tensor) in gguf.tensors().iter().enumerate() {
            plan.entries.push(entry(source, tensor, kind, plain)?);
            if plan.entries[source].form == Form::Dequantized {
                *plan.kinds.entry(tensor.kind.name.to_owned()).or_default() += 1;
            }
        }
        Ok(plan)
    }

    pub(crate) fn exact(&self) -> usize {
        self.entries.iter().filter(|entry| entry.form != Form::Dequantized).count()
    }

    pub(crate) fn dequantized(&self) -> Vec<(String, usize)> {
        self.kinds.iter().map(|(kind, count)| (kind.clone(), *count)).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.named.name == name)
    }

    /// How the matrices are packed; `None` = none of them is.
    pub(crate) fn bits(&self) -> Option<Bits> {
        let mut counts = BTreeMap::<u32, usize>::new();
        let matrices: Vec<&Entry> = self.entries.iter().filter(|entry| !entry.flat).collect();
        matrices
            .iter()
            .filter_map(|entry| entry.bits())
            .for_each(|bits| *counts.entry(bits).or_default() += 1);
        let usual = counts.into_iter().max_by_key(|&(_, count)| count)?.0;
        let stem = |entry: &Entry| {
            let name = &entry.named.name;
            (name.strip_suffix(".weight").unwrap_or(name).to_owned(), entry.bits())
        };
        let differs = matrices.into_iter().filter(|entry| entry.bits() != Some(usual));
        Some(Bits { usual, others: differs.map(stem).collect() })
    }
}

fn entry(source: usize, tensor: &TensorInfo, kind: &Kind, plain: Plain) -> Result<Entry, ConvertError> {
    let refused = |why: String| ConvertError::tensor(&tensor.name, why);
    let named = kind.name(&tensor.name)?;
    let form = form(tensor.kind)
        .ok_or_else(|| refused(format!("blocks of {} are not converted", tensor.kind.name)))?;
    let [cols, rows, ref more @ ..] = tensor.dims;
    if cols == 0 || rows == 0 {
        return Err(refused("it is empty".to_owned()));
    }
    if more.iter().any(|&size| size != 1) {
        return Err(refused("more than two dimensions".to_owned()));
    }
    if form != Form::Plain && !cols.is_multiple_of(GROUP as u64) {
        return Err(refused(format!("rows of {cols} elements are no whole groups of {GROUP}")));
    }
    if let Some(heads) = named.interleaved
        && heads.checked_mul(2).is_none_or(|halves| halves == 0 || !rows.is_multiple_of(halves))
    {
        return Err(refused(format!("{rows} rows are no pairs of {heads} heads")));
    }
    let plain = match (form, tensor.kind.name) {
        (Form::Plain, "F32") | (Form::Floats(_), _) => Plain::F32,
        (Form::Plain, "BF16") => Plain::Bf16,
        (Form::Plain | Form::Halves(_), _) => Plain::F16,
        (Form::Dequantized, _) => plain,
    };
    let flat = rows == 1 && (tensor.name.ends_with("_norm.weight") || tensor.name.ends_with(".bias"));
    Ok(Entry { source, named, form, plain, rows, cols, flat })
}
