//! `sf.embed/1` of an open model: texts in, vectors out, every answer checked before it is believed.
#![expect(unsafe_code, reason = "calls the function of sfr_embed_vt")]

use sf_abi::{
    SFR_E_INTERNAL, SFR_E_UNSUPPORTED, SFR_NORMALIZE_MODEL, SFR_POOLING_MODEL, SfrArray, SfrBuf, SfrEmbed,
};
use sf_core::EmbedBatch;

use crate::calls::{call, need};
use crate::error::KitError;
use crate::model::Model;

/// Room for one call's arrays, kept for the next: in words of 8 bytes, as an array's address must be.
#[derive(Debug, Default)]
pub(crate) struct EmbedRoom {
    tokens: Vec<u64>,
    lengths: Vec<u64>,
}

/// Packs words of 4 bytes into words of 8, and says where they are.
fn packed(room: &mut Vec<u64>, words: impl ExactSizeIterator<Item = u32>) -> SfrArray {
    let count = words.len() as u32;
    room.clear();
    for (at, word) in words.enumerate() {
        let shifted = if cfg!(target_endian = "little") == (at % 2 == 0) {
            u64::from(word)
        } else {
            u64::from(word) << 32
        };
        match (at % 2, room.last_mut()) {
            (1, Some(pair)) => *pair |= shifted,
            _ => room.push(shifted),
        }
    }
    SfrArray { at: room.as_ptr().expose_provenance() as u64, count, stride: 4 }
}

impl Model {
    /// Writes a vector per text into `out`, one after the other, and returns their length.
    ///
    /// # Errors
    /// `SFR_E_UNSUPPORTED` when the model makes no vectors; else as the runtime says, or [`KitError::Contract`].
    pub fn embed(&mut self, batch: &EmbedBatch, out: &mut Vec<f32>) -> Result<usize, KitError> {
        let (Some(table), Some(facts)) = (self.embed_table(), self.description().embedding.as_ref()) else {
            return Err(KitError::refused("embed", SFR_E_UNSUPPORTED, "", "this model makes no vectors"));
        };
        let dims = facts.dims as usize;
        let embed = need("embed", table.embed)?;
        let mut room = std::mem::take(&mut self.embed_room);
        let request = SfrEmbed {
            struct_size: size_of::<SfrEmbed>() as u32,
            flags: 0,
            tokens: packed(&mut room.tokens, batch.tokens.iter().map(|token| token.0)),
            lengths: packed(&mut room.lengths, batch.lengths.iter().copied()),
            pooling: SFR_POOLING_MODEL,
            normalize: SFR_NORMALIZE_MODEL,
            control: self.page().as_abi(),
        };
        out.clear();
        out.resize(batch.lengths.len() * dims, f32::NAN);
        let bytes = out.len() as u64 * 4;
        let mut buf = SfrBuf { p: out.as_mut_ptr().cast(), cap: bytes, needed: 0 };
        // SAFETY: [model] through `&mut`; the request's arrays, the buffer's memory and err live through the call, the
        // control page as long as the model.
        let answer = call("embed", |err| unsafe { embed(self.as_ptr(), &request, &mut buf, err) });
        self.embed_room = room;
        answer?;
        if buf.needed != bytes {
            let reason =
                format!("it wrote {} bytes for {} vectors of {dims}", buf.needed, batch.lengths.len());
            return Err(KitError::contract("embed", reason));
        }
        match out.iter().position(|value| !value.is_finite()) {
            None => Ok(dims),
            Some(at) => {
                let message =
                    format!("element {} of the vector of text {} is {}", at % dims, at / dims, out[at]);
                Err(KitError::refused("embed", SFR_E_INTERNAL, "", message))
            }
        }
    }
}
