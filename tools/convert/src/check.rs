//! Reads the result again and compares each tensor with the source, element by element.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use sf_artifact::safetensors::Tensor;

use crate::affine::Affine;
use crate::codes::unpack;
use crate::error::ConvertError;
use crate::kinds::Plain;
use crate::plan::{Entry, Plan, Way};
use crate::report::Share;
use crate::safetensors;
use crate::watch::Watch;
use crate::write::{Rows, Source};

/// The result's files, by the names of their tensors.
struct Written {
    files: Vec<(PathBuf, File)>,
    tensors: BTreeMap<String, (usize, Tensor)>,
}

/// What is read of one tensor: its own rows, or codes, scales and biases.
struct Parts<'a> {
    parts: Vec<(&'a (PathBuf, File), &'a Tensor)>,
    rows: u64,
    bytes: [Vec<u8>; 3],
}

/// Compares everything and says, for each way in which elements got there, how far they are.
pub(crate) fn check(
    source: &Source,
    plan: &Plan,
    result: &Path,
    watch: &mut Watch<'_>,
) -> Result<Vec<Share>, ConvertError> {
    let written = Written::open(plan, result)?;
    let mut shares = BTreeMap::<String, Share>::new();
    for entry in &plan.entries {
        let mut parts = written.parts(entry)?;
        let mut rows = source.rows(entry);
        let share = shares.entry(entry.words()).or_insert_with(|| Share::new(entry.words()));
        for row in 0..entry.rows {
            parts.read(row)?;
            let far = far(entry, &mut rows, row, &parts.bytes)?;
            share.error_max = share.error_max.max(far);
            watch.step(entry.origin.row_bytes)?;
        }
        share.tensors += 1;
        share.elements += entry.rows * entry.cols;
    }
    Ok(shares.into_values().collect())
}

impl Written {
    fn open(plan: &Plan, result: &Path) -> Result<Written, ConvertError> {
        let mut written = Written { files: Vec::new(), tensors: BTreeMap::new() };
        for file in 0..plan.files.len() {
            let path = result.join(plan.file_name(file));
            for tensor in safetensors::tensors(&path)? {
                written.tensors.insert(tensor.name.clone(), (file, tensor));
            }
            let open = File::open(&path).map_err(ConvertError::io(&path))?;
            written.files.push((path, open));
        }
        Ok(written)
    }

    fn parts(&self, entry: &Entry) -> Result<Parts<'_>, ConvertError> {
        let mut parts = Vec::new();
        for output in entry.outputs() {
            let found = self.tensors.get(&output.name);
            let fits = |tensor: &Tensor| tensor.dtype == output.dtype && tensor.shape == output.shape;
            let Some((file, tensor)) = found.filter(|(_, tensor)| fits(tensor)) else {
                let why = "it is missing, or of another type or shape".to_owned();
                return Err(ConvertError::Check { tensor: output.name, why });
            };
            parts.push((&self.files[*file], tensor));
        }
        Ok(Parts { parts, rows: entry.rows, bytes: Default::default() })
    }
}

impl Parts<'_> {
    fn read(&mut self, row: u64) -> Result<(), ConvertError> {
        for (((path, file), tensor), bytes) in self.parts.iter().zip(&mut self.bytes) {
            let count = tensor.bytes / self.rows;
            bytes.resize(count as usize, 0);
            file.read_exact_at(bytes, tensor.offset + row * count).map_err(ConvertError::io(path))?;
        }
        Ok(())
    }
}

/// How far the farthest element of a row is from the source's, as a share of the row's largest.
fn far(entry: &Entry, rows: &mut Rows<'_>, row: u64, got: &[Vec<u8>; 3]) -> Result<f32, ConvertError> {
    let differs = |why: String| ConvertError::Check { tensor: entry.name.clone(), why };
    if entry.way == Way::Copied {
        return match rows.bytes(row)? == got[0] {
            true => Ok(0.0),
            false => Err(differs(format!("row {row} has other bytes"))),
        };
    }
    let want = rows.elements(row)?;
    let values = values(entry, got);
    if values.len() != want.len() {
        return Err(differs(format!("row {row} has {} elements, not {}", values.len(), want.len())));
    }
    let allowed = |at: usize| match entry.way {
        Way::Copied | Way::Repacked(_) => 0.0,
        Way::Floats if entry.source_plain().is_some_and(|from| entry.plain.holds(from)) => 0.0,
        Way::Floats => entry.plain.rounding(want[at]),
        Way::Quantized(form) => {
            let group = form.group() as usize;
            bound(form, entry.plain, &want[at / group * group..][..group])
        }
    };
    let mut allowed_here = 0.0;
    let group = entry.affine().map_or(1, |form| form.group() as usize);
    let (mut most, mut far) = (0_f32, 0_f32);
    for (at, (want, got)) in want.iter().zip(&values).enumerate() {
        if at % group == 0 {
            allowed_here = allowed(at);
        }
        // What is no number stays none.
        let same = want == got || (want.is_nan() && got.is_nan());
        let away = if same { 0.0 } else { (want - got).abs() };
        if away.is_nan() || away > allowed_here {
            return Err(differs(format!("element {at} of row {row} is {got:e} and not {want:e}")));
        }
        (most, far) = (most.max(want.abs()), far.max(away));
    }
    Ok(if most > 0.0 { far / most } else { far })
}

/// Most that an element of a group may be away from the source's: half a step where a code is near; a whole one where
/// making zero a code moved the end of the range; and what rounding the scale and the bias adds up to.
fn bound(form: Affine, plain: Plain, group: &[f32]) -> f32 {
    let spread = form.spread(group);
    let codes = ((1_u32 << form.bits()) - 1) as f32;
    let rounded = group.iter().fold(0_f32, |most, value| most.max(plain.rounding(*value)));
    spread.step
        + spread.reach * 4.0 * f32::EPSILON
        + plain.rounding(spread.reach)
        + codes * plain.rounding(0.0)
        + 3.0 * rounded
}

/// The elements of a row as MLX would compute them.
fn values(entry: &Entry, [words, scales, biases]: &[Vec<u8>; 3]) -> Vec<f32> {
    let plain = entry.plain;
    let size = plain.bytes() as usize;
    let Some(form) = entry.affine() else {
        return words.chunks_exact(size).map(|bytes| plain.take(bytes)).collect();
    };
    let value = |(at, code): (usize, u8)| {
        let group = at / form.group() as usize * size;
        plain.take(&scales[group..]) * f32::from(code) + plain.take(&biases[group..])
    };
    unpack(words, form.bits()).enumerate().map(value).collect()
}
