//! Texts and their vectors as flat records, and how many texts one answer has room for.

use std::ops::Range;

use sf_core::{EmbedBatch, Token};

use super::WireError;
use super::bytes::{Reader, Writer};

pub(super) fn put_batch(w: &mut Writer<'_>, batch: &EmbedBatch) {
    w.count(batch.lengths.len());
    batch.lengths.iter().for_each(|length| w.u32(*length));
    w.count(batch.tokens.len());
    batch.tokens.iter().for_each(|token| w.u32(token.0));
}

pub(super) fn take_batch(r: &mut Reader<'_>, batch: &mut EmbedBatch) -> Result<(), WireError> {
    batch.clear();
    let count = r.count(4)?;
    for _ in 0..count {
        batch.lengths.push(r.u32()?);
    }
    let tokens = r.count(4)?;
    for _ in 0..tokens {
        batch.tokens.push(Token(r.u32()?));
    }
    Ok(())
}

pub(super) fn put_vectors(w: &mut Writer<'_>, vectors: &[f32]) {
    w.count(vectors.len());
    vectors.iter().for_each(|value| w.f32(*value));
}

/// Appends them to `out`.
pub(super) fn take_vectors(r: &mut Reader<'_>, out: &mut Vec<f32>) -> Result<(), WireError> {
    let count = r.count(4)?;
    out.reserve(count);
    for _ in 0..count {
        out.push(r.f32()?);
    }
    Ok(())
}

/// The texts of a batch in runs whose vectors of `dims` elements fit into `room` bytes, and the tokens of each run.
pub(crate) fn pieces(
    batch: &EmbedBatch,
    dims: usize,
    room: usize,
) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
    // Tag and count go before the vectors; one text is asked for however long its vector is.
    let most = (room.saturating_sub(8) / (dims * 4).max(1)).max(1);
    let (mut text, mut token) = (0, 0);
    std::iter::from_fn(move || {
        let texts = text..(text + most).min(batch.lengths.len());
        let sum: usize = batch.lengths[texts.clone()].iter().map(|length| *length as usize).sum();
        let tokens = token..(token + sum).min(batch.tokens.len());
        (text, token) = (texts.end, tokens.end);
        (!texts.is_empty()).then_some((texts, tokens))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_cut_where_its_answer_would_not_fit() {
        let batch = EmbedBatch { tokens: vec![Token(1); 10], lengths: vec![1, 2, 3, 4] };
        let check = |dims, room, expect: &[(Range<usize>, Range<usize>)]| {
            assert_eq!(pieces(&batch, dims, room).collect::<Vec<_>>(), expect, "{dims} {room}");
        };
        check(4, 8 + 64, &[(0..4, 0..10)]);
        check(4, 8 + 63, &[(0..3, 0..6), (3..4, 6..10)]);
        check(4, 8 + 32, &[(0..2, 0..3), (2..4, 3..10)]);
        check(4, 0, &[(0..1, 0..1), (1..2, 1..3), (2..3, 3..6), (3..4, 6..10)]);
    }
}
