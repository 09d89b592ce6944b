//! What the tests share: the C runtimes compiled on the spot, a tiny model file, and plans.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};
use std::process::Command;

use sf_core::{EngineOption, Feed, LaneId, LaneOp, LaneSpec, OptionValue, StepOut, StepPlan, Token};
use sf_engine::{EngineError, Link, OpenSpec, WorkerExe, WorkerLimits, open_worker_with};
use tempfile::TempDir;

/// The worker that cargo built for this test.
pub(crate) fn exe() -> WorkerExe {
    WorkerExe(env!("CARGO_BIN_EXE_superfluid-workerd").into())
}

/// A folder with compiled runtimes and a model file.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let bench = Bench { folder: tempfile::tempdir().unwrap() };
        std::fs::write(bench.model(), toy_model()).unwrap();
        bench
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn model(&self) -> PathBuf {
        self.path().join("toy.gguf")
    }

    /// Compiles `tests/runtimes/<source>` with the given compiler arguments.
    pub(crate) fn compile(&self, source: &str, name: &str, args: &[&str]) -> PathBuf {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let library = self.path().join(format!("lib{name}.so"));
        let output = Command::new("cc")
            .args(["-std=c99", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-I"])
            .arg(repository.join("abi/include"))
            .args(args)
            .arg(repository.join("tests/runtimes").join(source))
            .arg("-o")
            .arg(&library)
            .arg("-lm")
            .output()
            .expect("a C compiler, cc");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        library
    }

    pub(crate) fn sample(&self) -> PathBuf {
        self.compile("sample/sample_runtime.c", "sample", &[])
    }

    pub(crate) fn noop(&self) -> PathBuf {
        self.compile("noop/noop_runtime.c", "noop", &[])
    }

    pub(crate) fn bad(&self, mode: &str) -> PathBuf {
        self.compile("bad/bad_runtime.c", &format!("bad_{mode}"), &[&format!("-DBAD_MODE={mode}")])
    }

    pub(crate) fn spec(&self, library: PathBuf) -> OpenSpec {
        OpenSpec {
            library,
            env: Vec::new(),
            models: vec![self.model()],
            options: Vec::new(),
            lanes_max: 4,
            vocabulary: None,
        }
    }

    /// Opens the bad runtime in a worker.
    pub(crate) fn open_bad(&self, mode: &str, limits: WorkerLimits) -> Result<Box<dyn Link>, EngineError> {
        open_worker_with(&exe(), &self.spec(self.bad(mode)), limits)
    }
}

/// A GGUF file that the sample reads: 97 tokens, no tensors.
fn toy_model() -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    };
    bytes.extend_from_slice(&3u32.to_le_bytes());
    bytes.extend_from_slice(&0u64.to_le_bytes());
    bytes.extend_from_slice(&4u64.to_le_bytes());
    text(&mut bytes, "general.architecture");
    bytes.extend_from_slice(&8u32.to_le_bytes());
    text(&mut bytes, "toy");
    for (key, value) in [("toy.vocab_size", 97u32), ("toy.seed", 5), ("toy.context_length", 256)] {
        text(&mut bytes, key);
        bytes.extend_from_slice(&4u32.to_le_bytes());
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

pub(crate) fn option(key: &str, value: OptionValue) -> EngineOption {
    EngineOption { key: key.to_owned(), value, must: true }
}

/// A plan that opens lane 0, greedy, and feeds it three tokens.
pub(crate) fn first_plan() -> StepPlan {
    StepPlan {
        seq: 1,
        ops: vec![LaneOp::Open { lane: LaneId(0), spec: LaneSpec::default() }],
        feeds: vec![Feed { lane: LaneId(0), tokens: 0..3, pos0: 0, sample: true, more: 0 }],
        tokens: vec![Token(1), Token(2), Token(3)],
        steps_max: 1,
    }
}

/// As [`first_plan`], going on for `steps` steps in all.
pub(crate) fn long_plan(steps: u32) -> StepPlan {
    let mut plan = first_plan();
    plan.steps_max = steps;
    plan.feeds[0].more = steps - 1;
    plan
}

/// A plan of one step.
pub(crate) fn step(link: &mut dyn Link, plan: &StepPlan) -> Result<StepOut, EngineError> {
    let mut out = StepOut::default();
    link.begin(plan)?;
    link.next(&mut out)?;
    assert!(out.last, "{out:?}");
    Ok(out)
}

/// The steps of a plan, up to the last or the error.
pub(crate) fn tick(link: &mut dyn Link, plan: &StepPlan) -> (Vec<StepOut>, Option<EngineError>) {
    let mut outs: Vec<StepOut> = Vec::new();
    if let Err(error) = link.begin(plan) {
        return (outs, Some(error));
    }
    while outs.last().is_none_or(|out| !out.last) {
        let mut out = StepOut::default();
        match link.next(&mut out) {
            Ok(()) => outs.push(out),
            Err(error) => return (outs, Some(error)),
        }
    }
    (outs, None)
}

/// The tokens of lane 0, one per step that drew one.
pub(crate) fn drawn(outs: &[StepOut]) -> Vec<Token> {
    let of = |out: &StepOut| {
        let lane = out.lanes.iter().find(|told| told.lane == LaneId(0))?;
        lane.result.as_ref().ok()?.as_ref().map(|sampled| sampled.token)
    };
    outs.iter().filter_map(of).collect()
}
