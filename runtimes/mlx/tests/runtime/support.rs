//! A model of a runtime in the kit's hands, and steps in one line. The test's root imports the runtime's entry.
#![expect(unsafe_code, reason = "binds the runtime")]

use std::path::Path;

use sf_core::{EngineOption, OptionValue, Token};
use sf_kit::{KitError, OpenRequest, Runtime, RuntimeLane, StepBuffer, host};

use crate::superfluid_runtime_v1;

pub(crate) fn runtime() -> Runtime {
    // SAFETY: our own runtime keeps the header's rules; whether it does is what the tests ask.
    unsafe { Runtime::bind(superfluid_runtime_v1, host::host()) }.unwrap()
}

pub(crate) fn int(key: &str, value: i64) -> EngineOption {
    EngineOption { key: key.to_owned(), value: OptionValue::Int(value), must: true }
}

pub(crate) fn request(path: &Path, options: &[EngineOption]) -> OpenRequest {
    let mut all = vec![int("threads", 1)];
    all.retain(|usual| options.iter().all(|option| option.key != usual.key));
    all.extend_from_slice(options);
    OpenRequest { models: vec![path.to_owned()], options: all, devices: vec![] }
}

pub(crate) fn open(path: &Path, options: &[EngineOption]) -> Result<Model, KitError> {
    Ok(Model(runtime().open(&request(path, options))?, StepBuffer::default()))
}

/// An open model and its step.
pub(crate) struct Model(pub(crate) sf_kit::Model, StepBuffer);

/// A run of a lane: its tokens from a position on, and the positions of the run that want logits.
pub(crate) type Run<'a> = (RuntimeLane, u32, &'a [u32], std::ops::Range<u32>);

impl Model {
    pub(crate) fn lane(&mut self) -> RuntimeLane {
        self.0.lane_create().unwrap()
    }

    /// The wanted rows of each run.
    pub(crate) fn step(&mut self, runs: &[Run<'_>]) -> Result<Vec<Vec<Vec<f32>>>, KitError> {
        self.1.clear();
        for (lane, pos0, run, rows) in runs {
            let run: Vec<Token> = run.iter().map(|token| Token(*token)).collect();
            self.1.push(*lane, &run, *pos0, rows.clone());
        }
        let view = self.0.step(&mut self.1)?;
        let rows = |feed: usize| {
            let logits = |row| match view.logits(row) {
                sf_kit::sampler::Logits::F32(row) => row.to_vec(),
                other => panic!("logits are floats, not {other:?}"),
            };
            view.rows(feed).iter().map(logits).collect()
        };
        for out in view.lanes() {
            assert_eq!(out.status, 0, "a run was refused: {out:?}");
        }
        Ok((0..runs.len()).map(rows).collect())
    }

    /// Feeds a run whose last position wants logits.
    pub(crate) fn last(&mut self, lane: RuntimeLane, pos0: u32, run: &[u32]) -> Vec<f32> {
        let len = run.len() as u32;
        self.step(&[(lane, pos0, run, len - 1..len)]).unwrap().remove(0).remove(0)
    }

    /// The greedy tokens behind a prompt.
    pub(crate) fn greedy(&mut self, lane: RuntimeLane, prompt: &[u32], count: usize) -> Vec<u32> {
        let (mut run, mut pos, mut tokens) = (prompt.to_vec(), 0, Vec::new());
        while tokens.len() < count {
            let row = self.last(lane, pos, &run);
            pos += run.len() as u32;
            run = vec![argmax(&row)];
            tokens.push(run[0]);
        }
        tokens
    }
}

pub(crate) fn argmax(row: &[f32]) -> u32 {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    best as u32
}
