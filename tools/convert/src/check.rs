//! Reads the result again and compares each tensor with the source, element by element.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sf_artifact::Gguf;
use sf_artifact::gguf::TensorInfo;

use crate::blocks::{Form, GROUP, elements};
use crate::error::ConvertError;
use crate::plan::{Entry, Plan};
use crate::write::{read, source_row, unpack};

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Checked {
    /// Elements compared.
    pub elements: u64,
    /// Most that an element of a dequantized tensor differs, as a share of the largest of its row.
    pub rounding_max: f32,
}

/// An element of an affine row is the product and sum that MLX makes, in floats: the last bit may differ.
const LAST_BIT: f32 = 2.0 * f32::EPSILON;
/// Of a row's largest element, what rounding to bf16 may cost.
const ROUNDING: f32 = 1.0 / 256.0;

pub(crate) fn check(source: &Path, gguf: &Gguf, plan: &Plan, result: &Path) -> Result<Checked, ConvertError> {
    let from = File::open(source).map_err(ConvertError::io(source))?;
    let file = File::open(result).map_err(ConvertError::io(result))?;
    let mut prefix = [0; 8];
    file.read_exact_at(&mut prefix, 0).map_err(ConvertError::io(result))?;
    let mut at = 8 + u64::from_le_bytes(prefix);
    let mut checked = Checked::default();
    for entry in &plan.entries {
        let mut parts = Vec::new();
        for output in entry.outputs() {
            let mut bytes = vec![0; usize::try_from(output.bytes).expect("it was just written from memory")];
            file.read_exact_at(&mut bytes, at).map_err(ConvertError::io(result))?;
            at += output.bytes;
            parts.push(bytes);
        }
        let tensor = &gguf.tensors()[entry.source];
        let bytes = read(&from, gguf, tensor).map_err(ConvertError::io(source))?;
        compare(entry, tensor, &bytes, &parts, &mut checked)?;
    }
    Ok(checked)
}

fn compare(
    entry: &Entry,
    tensor: &TensorInfo,
    bytes: &[u8],
    parts: &[Vec<u8>],
    checked: &mut Checked,
) -> Result<(), ConvertError> {
    let row_bytes = bytes.len() / entry.rows as usize;
    let (mut want, mut got) = (Vec::new(), Vec::new());
    for number in 0..entry.rows {
        elements(
            tensor.kind,
            &bytes[source_row(entry, number) as usize * row_bytes..][..row_bytes],
            &mut want,
        );
        want.iter_mut().for_each(|value| *value -= entry.named.offset);
        result_row(entry, parts, number as usize, &mut got);
        let most = want.iter().fold(0_f32, |most, value| most.max(value.abs()));
        let far = want.iter().zip(&got).fold(0_f32, |far, (want, got)| far.max((want - got).abs()));
        let share = if most > 0.0 { far / most } else { far };
        let allowed = if entry.form == Form::Dequantized { ROUNDING } else { LAST_BIT };
        if share.is_nan() || share > allowed || want.len() != got.len() {
            let why = format!("row {number} is {share:.1e} of its largest element away");
            return Err(ConvertError::Check { tensor: entry.named.name.clone(), why });
        }
        if entry.form == Form::Dequantized {
            checked.rounding_max = checked.rounding_max.max(share);
        }
        checked.elements += want.len() as u64;
    }
    Ok(())
}

/// The elements of a row as MLX would compute them.
fn result_row(entry: &Entry, parts: &[Vec<u8>], row: usize, out: &mut Vec<f32>) {
    out.clear();
    let size = entry.plain.bytes() as usize;
    let row_of = |part: usize| {
        &parts[part][row * (parts[part].len() / entry.rows as usize)..]
            [..parts[part].len() / entry.rows as usize]
    };
    let Some(bits) = entry.bits() else {
        out.extend(row_of(0).chunks_exact(size).map(|bytes| entry.plain.take(bytes)));
        return;
    };
    let (scales, biases) = (row_of(1), row_of(2));
    out.extend(unpack(row_of(0), bits).enumerate().map(|(at, code)| {
        let group = at / GROUP * size;
        entry.plain.take(&scales[group..]) * f32::from(code) + entry.plain.take(&biases[group..])
    }));
}
