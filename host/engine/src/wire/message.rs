//! One request and one answer in the shared memory: which kind it is, and its record.

use sf_core::{StepOut, StepPlan};

use super::WireError;
use super::bytes::{Reader, Writer};
use super::fault::WireFault;
use super::step;
use crate::error::EngineError;
use crate::link::EngineStats;

const STEP: u32 = 1;
const STATS: u32 = 2;
const BYE: u32 = 3;
const ERROR: u32 = 4;

/// What the worker is asked. A plan is decoded into a buffer that is kept between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Step,
    Stats,
    Bye,
}

/// A request other than a step.
pub(crate) fn put_request(bytes: &mut Vec<u8>, request: Request) {
    Writer::new(bytes).u32(match request {
        Request::Step => STEP,
        Request::Stats => STATS,
        Request::Bye => BYE,
    });
}

pub(crate) fn put_step(bytes: &mut Vec<u8>, plan: &StepPlan) {
    let mut w = Writer::new(bytes);
    w.u32(STEP);
    step::put_plan(&mut w, plan);
}

pub(crate) fn take_request(bytes: &[u8], plan: &mut StepPlan) -> Result<Request, WireError> {
    let mut r = Reader::new(bytes);
    let request = match r.u32()? {
        STEP => {
            step::take_plan(&mut r, plan)?;
            Request::Step
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

/// The outer error is ours or the wire's, the inner one the worker's answer.
pub(crate) fn take_step_answer(
    bytes: &[u8],
    out: &mut StepOut,
) -> Result<Result<(), EngineError>, WireError> {
    let mut r = Reader::new(bytes);
    let answer = match r.u32()? {
        STEP => Ok(step::take_out(&mut r, out)?),
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
    use super::*;

    #[test]
    fn requests_and_answers_are_told_apart() {
        let (mut bytes, mut plan) = (Vec::new(), StepPlan::default());
        for request in [Request::Stats, Request::Bye] {
            put_request(&mut bytes, request);
            assert_eq!(take_request(&bytes, &mut plan), Ok(request));
        }
        put_step(&mut bytes, &StepPlan { seq: 7, ..StepPlan::default() });
        assert_eq!(take_request(&bytes, &mut plan), Ok(Request::Step));
        assert_eq!(plan.seq, 7);
        assert_eq!(
            take_request(&9u32.to_le_bytes(), &mut plan),
            Err(WireError::Tag { what: "request", value: 9 })
        );

        let stats = EngineStats { lanes_live: 1, steps: 2, bytes: [3, 4, 5], kv_cells: [6, 7] };
        put_stats_answer(&mut bytes, Ok(&stats));
        assert_eq!(take_stats_answer(&bytes), Ok(Ok(stats)));
        let wrong = take_step_answer(&bytes, &mut StepOut::default());
        assert_eq!(wrong, Err(WireError::Tag { what: "answer", value: STATS }));

        let error = EngineError::Contract { call: "step_end", reason: "seq".into() };
        put_step_answer(&mut bytes, Err(&error));
        assert_eq!(take_step_answer(&bytes, &mut StepOut::default()), Ok(Err(error)));
    }
}
