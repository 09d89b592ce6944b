//! Writes the safetensors files: headers from the plan, and then tensor by tensor, of which one row is in memory.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::affine::Packed;
use crate::blocks::{elements, groups};
use crate::codes::pack;
use crate::error::ConvertError;
use crate::plan::{Entry, Plan, Way};
use crate::safetensors;
use crate::watch::Watch;

/// The files of the source.
pub(crate) struct Source {
    files: Vec<(PathBuf, File)>,
}

/// One row of the source at a time.
pub(crate) struct Rows<'a> {
    file: &'a (PathBuf, File),
    entry: &'a Entry,
    bytes: Vec<u8>,
    elements: Vec<f32>,
}

impl Source {
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Source, ConvertError> {
        let open = |path: &PathBuf| Ok((path.clone(), File::open(path).map_err(ConvertError::io(path))?));
        Ok(Source { files: paths.iter().map(open).collect::<Result<_, ConvertError>>()? })
    }

    pub(crate) fn rows<'a>(&'a self, entry: &'a Entry) -> Rows<'a> {
        let row = entry.origin.row_bytes as usize;
        Rows { file: &self.files[entry.origin.file], entry, bytes: vec![0; row], elements: Vec::new() }
    }
}

impl Rows<'_> {
    /// The bytes of the row that becomes row `row`.
    pub(crate) fn bytes(&mut self, row: u64) -> Result<&[u8], ConvertError> {
        let origin = &self.entry.origin;
        let row = self.entry.pairs.map_or(row, |pairs| pairs.source_row(row));
        let (path, file) = self.file;
        let at = origin.offset + row * origin.row_bytes;
        file.read_exact_at(&mut self.bytes, at).map_err(ConvertError::io(path))?;
        Ok(&self.bytes)
    }

    /// Its elements, as they are to be in the result before they are rounded.
    pub(crate) fn elements(&mut self, row: u64) -> Result<&[f32], ConvertError> {
        self.bytes(row)?;
        elements(self.entry.origin.kind, &self.bytes, &mut self.elements);
        let offset = self.entry.offset;
        self.elements.iter_mut().for_each(|value| *value -= offset);
        Ok(&self.elements)
    }
}

impl Rows<'_> {
    /// A row's bytes, and its elements as they are to be in the result.
    pub(crate) fn both(&mut self, row: u64) -> Result<(&[u8], &[f32]), ConvertError> {
        self.elements(row)?;
        Ok((&self.bytes, &self.elements))
    }
}

/// A part of a file, whole.
pub(crate) fn read_at(path: &Path, offset: u64, bytes: u64) -> Result<Vec<u8>, ConvertError> {
    let mut out = vec![0; bytes as usize];
    let file = File::open(path).map_err(ConvertError::io(path))?;
    file.read_exact_at(&mut out, offset).map_err(ConvertError::io(path))?;
    Ok(out)
}

/// Writes all files into a directory and gives their lengths together.
pub(crate) fn write(
    source: &Source,
    plan: &Plan,
    to: &Path,
    watch: &mut Watch<'_>,
) -> Result<u64, ConvertError> {
    let mut total = 0;
    for (number, entries) in plan.files.iter().enumerate() {
        let entries = &plan.entries[entries.clone()];
        let path = to.join(plan.file_name(number));
        let outputs = entries.iter().flat_map(Entry::outputs);
        let text = safetensors::header(
            outputs.map(|output| (output.name, output.dtype, output.shape, output.bytes)),
        );
        let mut file = File::create_new(&path).map_err(ConvertError::io(&path))?;
        file.write_all(&(text.len() as u64).to_le_bytes()).map_err(ConvertError::io(&path))?;
        file.write_all(text.as_bytes()).map_err(ConvertError::io(&path))?;
        let mut at = 8 + text.len() as u64;
        for entry in entries {
            at = tensor(&mut source.rows(entry), &path, at, watch)?;
        }
        file.sync_all().map_err(ConvertError::io(&path))?;
        total += at;
    }
    Ok(total)
}

/// Writes what a tensor becomes, from byte `at` on, and gives the byte behind it.
fn tensor(rows: &mut Rows<'_>, path: &Path, mut at: u64, watch: &mut Watch<'_>) -> Result<u64, ConvertError> {
    let entry = rows.entry;
    let mut outs = Vec::new();
    for output in entry.outputs() {
        let mut out = OpenOptions::new().write(true).open(path).map_err(ConvertError::io(path))?;
        out.seek(SeekFrom::Start(at)).map_err(ConvertError::io(path))?;
        outs.push(BufWriter::with_capacity(1 << 20, out));
        at += output.bytes;
    }
    let mut packed = Packed::default();
    for number in 0..entry.rows {
        row(rows, number, &mut packed)?;
        let parts = [&mut packed.words, &mut packed.scales, &mut packed.biases];
        for (out, part) in outs.iter_mut().zip(parts) {
            out.write_all(part).map_err(ConvertError::io(path))?;
            part.clear();
        }
        watch.step(entry.origin.row_bytes)?;
    }
    for out in outs {
        out.into_inner().map_err(|error| ConvertError::io(path)(error.into_error()))?;
    }
    Ok(at)
}

/// One row as it is in the result; what has no groups is in `words`.
fn row(rows: &mut Rows<'_>, number: u64, packed: &mut Packed) -> Result<(), ConvertError> {
    let (entry, plain) = (rows.entry, rows.entry.plain);
    match entry.way {
        Way::Copied => packed.words.extend(rows.bytes(number)?),
        Way::Floats => {
            for value in rows.elements(number)? {
                if value.is_finite() && !plain.round(*value).is_finite() {
                    let why = format!("row {number} has {value:e}, which {} has not; bf16 has", plain.name());
                    return Err(ConvertError::tensor(&entry.name, why));
                }
                plain.put(*value, &mut packed.words);
            }
        }
        Way::Repacked(form) => groups(entry.origin.kind, rows.bytes(number)?, |group| {
            pack(&group.codes, form.bits(), &mut packed.words);
            plain.put(group.scale, &mut packed.scales);
            plain.put(group.bias, &mut packed.biases);
        }),
        Way::Quantized(form) => {
            rows.elements(number)?;
            rows.elements.iter_mut().for_each(|value| *value = plain.round(*value));
            if let Some(value) = rows.elements.iter().find(|value| !value.is_finite()) {
                let why =
                    format!("row {number} has {value} as {}, which has no code", plain.name().to_lowercase());
                return Err(ConvertError::tensor(&entry.name, why));
            }
            form.quantize(&rows.elements, plain, packed);
        }
    }
    Ok(())
}
