//! `sf.embed/1` of an open model: requests as bytes before inaccessible pages, and the vectors that come back.
#![expect(unsafe_code, reason = "calls the embed table")]

use core::ptr;

use sf_abi::{
    SFR_NORMALIZE_MODEL, SFR_POOLING_MODEL, SfrArray, SfrBuf, SfrEmbed, SfrEmbedVt, SfrModel, SfrStatus,
};

use crate::journal::{Broken, ensure};
use crate::memory::Guarded;
use crate::plan::narrow;
use crate::raw::{Refusal, call, fetch_bytes, size_u32};

/// Largest answer of a check, bytes.
const BYTES_MAX: usize = 64 << 20;

/// The table of an open model.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    vt: SfrEmbedVt,
    model: *mut SfrModel,
    pub(crate) dims: usize,
}

/// A request before it becomes bytes.
pub(crate) struct EmbedDraft {
    pub(crate) tokens: Vec<u32>,
    pub(crate) lengths: Vec<u32>,
    /// Bytes behind the request, counted in its size.
    pub(crate) tail: Vec<u8>,
    /// Last changes to the record, its arrays' addresses included.
    pub(crate) edit: fn(&mut SfrEmbed),
}

impl EmbedDraft {
    pub(crate) fn of(texts: &[&[u32]]) -> EmbedDraft {
        let lengths = texts.iter().map(|text| narrow(text.len())).collect();
        EmbedDraft { tokens: texts.concat(), lengths, tail: Vec::new(), edit: |_| {} }
    }

    pub(crate) fn with(self, edit: fn(&mut SfrEmbed)) -> EmbedDraft {
        EmbedDraft { edit, ..self }
    }
}

impl Vectors {
    /// # Safety
    /// `vt` is the table of `model`, which stays open as long as this is used, by one thread at a time.
    pub(crate) unsafe fn new(vt: SfrEmbedVt, model: *mut SfrModel, dims: usize) -> Vectors {
        Vectors { vt, model, dims }
    }

    /// The table has its function.
    pub(crate) fn is_complete(&self) -> bool {
        self.vt.embed.is_some()
    }

    /// Vectors of texts through the whole buffer protocol, as the model's own files have them.
    pub(crate) fn of(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, Broken> {
        self.draft(&EmbedDraft::of(texts), texts.len())
    }

    /// As [`Vectors::of`], of an edited request.
    pub(crate) fn draft(&self, draft: &EmbedDraft, count: usize) -> Result<Vec<Vec<f32>>, Broken> {
        let bytes = fetch_bytes("embed", BYTES_MAX, &mut |out, err| self.run(draft, out, err))?;
        let want = count * self.dims * 4;
        ensure!(bytes.len() == want, "embed gave {} bytes, {count} vectors have {want}", bytes.len());
        let floats: Vec<f32> = bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes(four.try_into().expect("four bytes")))
            .collect();
        let wild = floats.iter().position(|value| !value.is_finite());
        ensure!(wild.is_none(), "element {wild:?} of the vectors is not a finite number");
        Ok(floats.chunks_exact(self.dims).map(<[f32]>::to_vec).collect())
    }

    /// What a hostile request gets, with room for its vectors.
    pub(crate) fn attempt(&self, draft: &EmbedDraft) -> Result<(), Refusal> {
        let room = Guarded::zeroed((draft.lengths.len().max(1)) * self.dims * 4);
        let mut buf = SfrBuf { p: room.as_ptr().cast(), cap: room.len() as u64, needed: 0 };
        call(|err| self.run(draft, &raw mut buf, err))
    }

    fn run(&self, draft: &EmbedDraft, out: *mut SfrBuf, err: *mut sf_abi::SfrError) -> SfrStatus {
        let words = |values: &[u32]| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
            Guarded::copy_of(&bytes)
        };
        let (tokens, lengths) = (words(&draft.tokens), words(&draft.lengths));
        let array =
            |at: &Guarded, count: usize| SfrArray { at: at.address(), count: narrow(count), stride: 4 };
        let mut request = SfrEmbed {
            struct_size: size_u32::<SfrEmbed>() + narrow(draft.tail.len()),
            flags: 0,
            tokens: array(&tokens, draft.tokens.len()),
            lengths: array(&lengths, draft.lengths.len()),
            pooling: SFR_POOLING_MODEL,
            normalize: SFR_NORMALIZE_MODEL,
            control: ptr::null(),
        };
        (draft.edit)(&mut request);
        let held = Guarded::holding(&request, &draft.tail);
        let embed = self.vt.embed.expect("asked after is_complete");
        // SAFETY: the model is open; request, arrays, buffer and record live through the call.
        unsafe { embed(self.model, held.as_ptr().cast(), out, err) }
    }
}
