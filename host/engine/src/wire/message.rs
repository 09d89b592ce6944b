//! One request and one answer in the shared memory: which kind it is, and its record.

use sf_core::{EmbedBatch, StepOut, StepPlan};
use sf_kit::Rooms;

use super::WireError;
use super::bytes::{Reader, Writer};
use super::fault::WireFault;
use super::{embed, step};
use crate::error::EngineError;
use crate::link::EngineStats;

const STEP: u32 = 1;
const STATS: u32 = 2;
const BYE: u32 = 3;
const ERROR: u32 = 4;
const EMBED: u32 = 5;

/// What the worker is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A tick; its plan is decoded into a buffer that is kept.
    Step {
        /// The yield word when the plan was made.
        word: u32,
    },
    /// Vectors of texts, which are decoded into a buffer that is kept.
    Embed,
    Stats,
    Bye,
}

pub(crate) fn put_step(bytes: &mut Vec<u8>, plan: &StepPlan, word: u32) {
    let mut w = Writer::new(bytes);
    w.u32(STEP);
    w.u32(word);
    step::put_plan(&mut w, plan);
}

pub(crate) fn put_embed(bytes: &mut Vec<u8>, batch: &EmbedBatch) {
    let mut w = Writer::new(bytes);
    w.u32(EMBED);
    embed::put_batch(&mut w, batch);
}

pub(crate) fn put_stats(bytes: &mut Vec<u8>) {
    Writer::new(bytes).u32(STATS);
}

pub(crate) fn put_bye(bytes: &mut Vec<u8>) {
    Writer::new(bytes).u32(BYE);
}

pub(crate) fn take_request(
    bytes: &[u8],
    plan: &mut StepPlan,
    batch: &mut EmbedBatch,
) -> Result<Request, WireError> {
    let mut r = Reader::new(bytes);
    let request = match r.u32()? {
        STEP => {
            let word = r.u32()?;
            step::take_plan(&mut r, plan)?;
            Request::Step { word }
        }
        EMBED => {
            embed::take_batch(&mut r, batch)?;
            Request::Embed
        }
        STATS => Request::Stats,
        BYE => Request::Bye,
        value => return Err(WireError::Tag { what: "request", value }),
    };
    r.end().map(|()| request)
}

pub(crate) fn put_step_answer(bytes: &mut Vec<u8>, answer: Result<&StepOut, &EngineError>) {
    let mut w = Writer::new(bytes);
    match answer {
        Ok(out) => {
            w.u32(STEP);
            step::put_out(&mut w, out);
        }
        Err(error) => {
            w.u32(ERROR);
            WireFault::from(error).put(&mut w);
        }
    }
}

pub(crate) fn put_stats_answer(bytes: &mut Vec<u8>, answer: Result<&EngineStats, &EngineError>) {
    let mut w = Writer::new(bytes);
    match answer {
        Ok(stats) => {
            w.u32(STATS);
            w.u32(stats.lanes_live);
            w.u64(stats.steps);
            for number in stats.bytes.iter().chain(&stats.kv_cells) {
                w.u64(*number);
            }
        }
        Err(error) => {
            w.u32(ERROR);
            WireFault::from(error).put(&mut w);
        }
    }
}

pub(crate) fn put_embed_answer(bytes: &mut Vec<u8>, answer: Result<&[f32], &EngineError>) {
    let mut w = Writer::new(bytes);
    match answer {
        Ok(vectors) => {
            w.u32(EMBED);
            embed::put_vectors(&mut w, vectors);
        }
        Err(error) => {
            w.u32(ERROR);
            WireFault::from(error).put(&mut w);
        }
    }
}

/// Bytes of a step's answer at most, of a step of `lanes` lanes without operations, or of an error in its place.
pub(crate) fn step_answer_bytes_max(lanes: usize) -> usize {
    4 + step::out_bytes_max(lanes).max(WireFault::BYTES_MAX)
}

/// The outer error is ours or the wire's, the inner one the worker's answer.
pub(crate) fn take_step_answer(
    bytes: &[u8],
    out: &mut StepOut,
    rooms: &mut Rooms,
) -> Result<Result<(), EngineError>, WireError> {
    let mut r = Reader::new(bytes);
    let answer = match r.u32()? {
        STEP => Ok(step::take_out(&mut r, out, rooms)?),
        ERROR => Err(WireFault::take(&mut r)?.into()),
        value => return Err(WireError::Tag { what: "answer", value }),
    };
    r.end().map(|()| answer)
}

/// Appends the vectors to `out`.
pub(crate) fn take_embed_answer(
    bytes: &[u8],
    out: &mut Vec<f32>,
) -> Result<Result<(), EngineError>, WireError> {
    let mut r = Reader::new(bytes);
    let answer = match r.u32()? {
        EMBED => Ok(embed::take_vectors(&mut r, out)?),
        ERROR => Err(WireFault::take(&mut r)?.into()),
        value => return Err(WireError::Tag { what: "answer", value }),
    };
    r.end().map(|()| answer)
}

pub(crate) fn take_stats_answer(bytes: &[u8]) -> Result<Result<EngineStats, EngineError>, WireError> {
    let mut r = Reader::new(bytes);
    let answer = match r.u32()? {
        STATS => Ok(EngineStats {
            lanes_live: r.u32()?,
            steps: r.u64()?,
            bytes: [r.u64()?, r.u64()?, r.u64()?],
            kv_cells: [r.u64()?, r.u64()?],
        }),
        ERROR => Err(WireFault::take(&mut r)?.into()),
        value => return Err(WireError::Tag { what: "answer", value }),
    };
    r.end().map(|()| answer)
}

#[cfg(test)]
mod tests {
    use sf_core::Token;

    use super::*;

    #[test]
    fn requests_and_answers_are_told_apart() {
        let (mut bytes, mut plan, mut batch) = (Vec::new(), StepPlan::default(), EmbedBatch::default());
        put_stats(&mut bytes);
        assert_eq!(take_request(&bytes, &mut plan, &mut batch), Ok(Request::Stats));
        put_bye(&mut bytes);
        assert_eq!(take_request(&bytes, &mut plan, &mut batch), Ok(Request::Bye));
        put_step(&mut bytes, &StepPlan { seq: 7, ..StepPlan::default() }, 3);
        assert_eq!(take_request(&bytes, &mut plan, &mut batch), Ok(Request::Step { word: 3 }));
        assert_eq!(plan.seq, 7);
        let texts = EmbedBatch { tokens: vec![Token(5), Token(6), Token(7)], lengths: vec![1, 2] };
        put_embed(&mut bytes, &texts);
        assert_eq!(take_request(&bytes, &mut plan, &mut batch), Ok(Request::Embed));
        assert_eq!(batch, texts);
        put_embed_answer(&mut bytes, Ok(&[0.5, f32::MIN_POSITIVE]));
        let mut vectors = vec![1.0];
        assert_eq!(take_embed_answer(&bytes, &mut vectors), Ok(Ok(())));
        assert_eq!(vectors, [1.0, 0.5, f32::MIN_POSITIVE]);
        assert_eq!(
            take_request(&9u32.to_le_bytes(), &mut plan, &mut batch),
            Err(WireError::Tag { what: "request", value: 9 })
        );

        let stats = EngineStats { lanes_live: 1, steps: 2, bytes: [3, 4, 5], kv_cells: [6, 7] };
        put_stats_answer(&mut bytes, Ok(&stats));
        assert_eq!(take_stats_answer(&bytes), Ok(Ok(stats)));
        let take = |bytes: &[u8]| take_step_answer(bytes, &mut StepOut::default(), &mut Rooms::default());
        let wrong = take(&bytes);
        assert_eq!(wrong, Err(WireError::Tag { what: "answer", value: STATS }));

        let error = EngineError::Contract { call: "step_end", reason: "seq".into() };
        put_step_answer(&mut bytes, Err(&error));
        assert_eq!(take(&bytes), Ok(Err(error)));
    }
}
