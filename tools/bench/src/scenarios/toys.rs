//! Models and runtimes without weights, made on the spot: the C runtimes of `tests/` and a byte-level vocabulary.

use std::path::PathBuf;

use sf_tests::{ToyModel, build_sample, compile, source_path, toy_model, write_manifest};

use crate::error::BenchError;
use crate::serve::Stage;

/// A model file and the folder of the runtime that serves it.
pub(crate) struct Toy {
    pub(crate) model: PathBuf,
    runtime: PathBuf,
}

impl Toy {
    /// The sample runtime: its text depends on every token of a lane and on nothing else.
    pub(crate) fn sample(stage: &Stage, window: u32) -> Toy {
        let runtime = build_sample(&stage.work);
        let model = ToyModel { context_length: window, ..ToyModel::default() };
        Toy { model: toy_model(&stage.work, &model), runtime }
    }

    /// The no-op runtime, with the toy vocabulary and `a` as the only likely token.
    pub(crate) fn noop(stage: &Stage, window: u32) -> Result<Toy, BenchError> {
        let runtime = stage.work.join("noop");
        std::fs::create_dir_all(&runtime).map_err(BenchError::io("make a folder for the no-op runtime"))?;
        let library = runtime.join(format!("libnoop{}", std::env::consts::DLL_SUFFIX));
        let vocab = format!("-DVOCAB={}u", ToyModel::VOCAB);
        let likely = format!("-DLIKELY={}u", u32::from(b'a'));
        compile("cc", &source_path("noop"), &library, &["-O2", &vocab, &likely]);
        write_manifest(&library);
        let model = ToyModel {
            name: "noop".to_owned(),
            architecture: "noop".to_owned(),
            context_length: window,
            ..ToyModel::default()
        };
        Ok(Toy { model: toy_model(&stage.work, &model), runtime })
    }

    /// Arguments of our server that name the runtime.
    pub(crate) fn args(&self) -> Vec<String> {
        vec!["--runtime".to_owned(), self.runtime.display().to_string()]
    }
}
