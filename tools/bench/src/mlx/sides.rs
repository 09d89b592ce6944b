//! The servers that are compared, on directories that hold the same weights.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use sf_convert::Options;

use super::MlxOptions;
use crate::error::BenchError;
use crate::server::Server;
use crate::sysinfo;

/// Where Debian's package puts it.
const OPENBLAS: &str = "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0";
const DERIVE: &str = include_str!("derive.py");

/// One model with other element types.
#[derive(Debug)]
pub(super) struct Models {
    /// The file that all are made from.
    pub(super) gguf: PathBuf,
    /// Packed as in the file, other elements f16.
    pub(super) q4: PathBuf,
    /// Packed as in the file, other elements f32, which makes mlx-lm compute in f32.
    pub(super) q4_act32: PathBuf,
    pub(super) bf16: PathBuf,
    pub(super) f32: PathBuf,
}

/// Who answers, and on what.
#[derive(Clone, Copy, Debug)]
pub(super) enum Engine<'a> {
    /// superfluid with the runtime that reads it.
    Ours(&'a Path),
    /// The same without what fills up to a limit: copies of dropped prefixes, and MLX's freed memory.
    OursWithoutCaches(&'a Path),
    /// mlx_lm.server, with OpenBLAS under MLX or as it is.
    MlxLm(&'a Path, bool),
}

/// Programs and directories.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    pub(super) options: &'a MlxOptions,
    pub(super) work: PathBuf,
    superfluid: PathBuf,
    python: PathBuf,
    openblas: Option<PathBuf>,
}

impl<'a> Programs<'a> {
    pub(super) fn find(options: &'a MlxOptions) -> Result<Programs<'a>, BenchError> {
        let own = std::env::current_exe().map_err(BenchError::io("find our own folder"))?;
        let folder = options.bin_dir.clone().unwrap_or_else(|| own.with_file_name(""));
        let superfluid = folder.join("superfluid");
        if !folder.join("runtimes/mlx/runtime.json").is_file() {
            let how = "not there: cargo build --release -p superfluid -p superfluid-workerd, cargo xtask fetch mlx, and \
                       cargo xtask engine mlx --profile release"
                .to_owned();
            return Err(BenchError::Command { command: "runtimes/mlx".to_owned(), how });
        }
        let openblas = options.openblas.clone().unwrap_or_else(|| OPENBLAS.into());
        let work = std::env::temp_dir().join(format!("superfluid-bench-mlx-{}", std::process::id()));
        std::fs::create_dir_all(&work).map_err(BenchError::io(format!("create {}", work.display())))?;
        Ok(Programs {
            options,
            work,
            superfluid,
            python: sf_tests::python("mlx_lm.txt"),
            openblas: openblas.is_file().then_some(openblas),
        })
    }

    /// Whether a peer with OpenBLAS can be started.
    pub(super) fn has_openblas(&self) -> bool {
        self.openblas.is_some()
    }

    /// Makes the directories.
    pub(super) fn models(&self) -> Result<Models, BenchError> {
        let gguf = sysinfo::model_dir().join("SmolLM2-135M-Instruct.Q4_1.gguf");
        let at = |name: &str| self.work.join(name);
        let q4 = at("q4");
        let converted =
            sf_convert::convert(&gguf, &q4, &Options::default(), &mut |_, _| ControlFlow::Continue(()));
        converted.map_err(|error| BenchError::Command {
            command: format!("converting {}", gguf.display()),
            how: error.to_string(),
        })?;
        let script = self.work.join("derive.py");
        std::fs::write(&script, DERIVE).map_err(BenchError::io(format!("write {}", script.display())))?;
        let derive = |kind: &str| {
            let to = at(kind);
            let mut python = Command::new(&self.python);
            sf_tests::run(python.arg(&script).arg(&q4).arg(kind).arg(&to));
            to
        };
        Ok(Models { q4_act32: derive("act32"), bf16: derive("bf16"), f32: derive("f32"), q4, gguf })
    }

    /// Starts a server.
    pub(super) fn start(&self, name: &'static str, engine: Engine<'_>) -> Result<Server, BenchError> {
        let threads = self.options.threads;
        match engine {
            Engine::Ours(model) | Engine::OursWithoutCaches(model) => {
                let none: &[&str] = match engine {
                    Engine::OursWithoutCaches(_) => &["--prefix-blob-budget-mb=0", "--mlx-cache-mb=0"],
                    _ => &[],
                };
                let args = |port: u16| {
                    let model = model.display().to_string();
                    let more = [format!("--port={port}"), format!("--threads={threads}")];
                    let fixed = ["--max-context=2048", "--max-batch=8"].map(str::to_owned);
                    let none = none.iter().map(|&flag| flag.to_owned());
                    ["serve".to_owned(), model].into_iter().chain(more).chain(fixed).chain(none).collect()
                };
                Server::start(name, &self.superfluid, args, "/ready", &self.work)
            }
            Engine::MlxLm(model, fast) => {
                let args = |port: u16| {
                    let mut args: Vec<String> = vec![format!("OPENBLAS_NUM_THREADS={threads}")];
                    if let Some(openblas) = self.openblas.as_ref().filter(|_| fast) {
                        args.push(format!("LD_PRELOAD={}", openblas.display()));
                    }
                    args.push(self.python.display().to_string());
                    args.extend(["-m", "mlx_lm", "server", "--host", "127.0.0.1"].map(str::to_owned));
                    args.extend(["--log-level".to_owned(), "ERROR".to_owned(), "--model".to_owned()]);
                    args.extend([model.display().to_string(), "--port".to_owned(), port.to_string()]);
                    args
                };
                Server::start(name, Path::new("/usr/bin/env"), args, "/health", &self.work)
            }
        }
    }
}

impl Drop for Programs<'_> {
    fn drop(&mut self) {
        // What cannot be removed lies in the system's folder for such things.
        drop(std::fs::remove_dir_all(&self.work));
    }
}
