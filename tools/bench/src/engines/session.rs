//! One model opened by the runtime that reads it, and steps in one line.

use std::path::Path;

use sf_artifact::{Artifact, ArtifactFormat};
use sf_core::{EngineOption, OptionValue, Token};
use sf_kit::{Model, OpenRequest, RuntimeLane, StepBuffer};

use crate::error::BenchError;

/// An open model.
pub(crate) struct Session {
    model: Model,
    step: StepBuffer,
    room: Vec<f32>,
}

/// A run of a lane: its tokens from a position on; whether all positions want logits, or the last one.
pub(crate) struct Run<'a> {
    pub(crate) lane: RuntimeLane,
    pub(crate) position: u32,
    pub(crate) tokens: &'a [u32],
    pub(crate) all: bool,
}

pub(crate) fn artifact(path: &Path) -> Result<Artifact, BenchError> {
    sf_artifact::open(path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, how: &dyn std::fmt::Display) -> BenchError {
    BenchError::Server { server: path.display().to_string(), what: how.to_string() }
}

/// Runtimes lie beside this program.
fn library(artifact: &Artifact) -> Result<std::path::PathBuf, BenchError> {
    let id = match artifact.format {
        ArtifactFormat::Gguf { .. } => "llamacpp",
        ArtifactFormat::SafetensorsDir => "mlx",
        ArtifactFormat::Base => "basert",
    };
    let here = std::env::current_exe().map_err(BenchError::io("find our own folder"))?;
    let name = format!("{}superfluid_{id}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path = here.parent().expect("a program lies in a folder").join("runtimes").join(id).join(name);
    if path.is_file() {
        return Ok(path);
    }
    let what = format!("{} is missing: cargo xtask engine {id} --profile release", path.display());
    Err(BenchError::Usage(what))
}

impl Session {
    /// Opens a model for lanes of `window` positions each.
    pub(crate) fn open(path: &Path, threads: i64, lanes: i64, window: i64) -> Result<Session, BenchError> {
        let artifact = artifact(path)?;
        let runtime =
            sf_engine::loader::load(&library(&artifact)?, None).map_err(|error| failed(path, &error))?;
        let int = |key: &str, value| EngineOption {
            key: key.to_owned(),
            value: OptionValue::Int(value),
            must: true,
        };
        let options = vec![
            int("threads", threads),
            int("lanes.max", lanes),
            int("ctx.max", window),
            int("kv.cells", (window as u64 * lanes as u64).next_multiple_of(256) as i64),
            int("step.tokens.max", window.max(512)),
        ];
        let path = path.canonicalize().map_err(BenchError::io(format!("find {}", path.display())))?;
        let request = OpenRequest { models: vec![path.clone()], options, devices: Vec::new() };
        let model = runtime.open(&request).map_err(|error| failed(&path, &error))?;
        Ok(Session { model, step: StepBuffer::default(), room: Vec::new() })
    }

    pub(crate) fn lane(&mut self) -> Result<RuntimeLane, BenchError> {
        self.model.lane_create().map_err(|error| failed("lane".as_ref(), &error))
    }

    pub(crate) fn free(&mut self, lane: RuntimeLane) -> Result<(), BenchError> {
        self.model.lane_free(lane).map_err(|error| failed("lane".as_ref(), &error))
    }

    /// Runs a step and shows each wanted row, in order: number of the run, row.
    pub(crate) fn step(
        &mut self,
        runs: &[Run<'_>],
        mut row: impl FnMut(usize, &[f32]),
    ) -> Result<(), BenchError> {
        self.step.clear();
        for run in runs {
            let tokens: Vec<Token> = run.tokens.iter().map(|token| Token(*token)).collect();
            let len = tokens.len() as u32;
            self.step.push(run.lane, &tokens, run.position, if run.all { 0..len } else { len - 1..len });
        }
        let view = self.model.step(&mut self.step).map_err(|error| failed("step".as_ref(), &error))?;
        if let Some(out) = view.lanes().iter().find(|out| out.status != 0) {
            return Err(failed("step".as_ref(), &format!("a lane was refused: {out:?}")));
        }
        for number in 0..runs.len() {
            for wanted in view.rows(number) {
                row(number, view.logits(wanted).widen(&mut self.room));
            }
        }
        Ok(())
    }
}

pub(crate) fn argmax(row: &[f32]) -> u32 {
    let mut best = 0;
    for (at, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = at;
        }
    }
    best as u32
}
