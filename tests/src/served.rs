//! A toy model with a C runtime, ready to be served, and the requests that tests send it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Answer, Server, ToyModel, build_bad, build_sample, toy_model};

/// A toy model and a runtime for it in a folder of their own.
pub struct Toy {
    dir: tempfile::TempDir,
    /// The runtime's folder.
    pub runtime: PathBuf,
    /// The model's file.
    pub model: PathBuf,
}

impl Default for Toy {
    fn default() -> Self {
        Toy::new(&ToyModel::default())
    }
}

impl Toy {
    /// A model on the good C runtime.
    ///
    /// # Panics
    /// When there is no C compiler or no place for files.
    pub fn new(model: &ToyModel) -> Toy {
        let dir = folder();
        Toy { runtime: build_sample(dir.path()), model: toy_model(dir.path(), model), dir }
    }

    /// The default model on the bad C runtime.
    ///
    /// # Panics
    /// As [`Toy::new`], and for an unknown mode.
    pub fn bad(mode: &str) -> Toy {
        let dir = folder();
        let model = toy_model(dir.path(), &ToyModel::default());
        Toy { runtime: build_bad(dir.path(), mode), model, dir }
    }

    /// Starts a server and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn serve(&self, more: &[&str]) -> Server {
        let mut args = vec![text(&self.model), "--runtime", text(&self.runtime)];
        args.extend(more);
        Server::start(&args)
    }

    /// The folder that holds both.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a place for temporary files")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// The body of a completion that goes on past end-of-text tokens.
pub fn completion(prompt: &str, tokens: u32, seed: u64) -> Value {
    json!({"prompt": prompt, "max_tokens": tokens, "seed": seed, "temperature": 0.8, "ignore_eos": true})
}

/// The text of a completion's answer.
///
/// # Panics
/// When it was refused.
pub fn text_of(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    answer.body["choices"][0]["text"].as_str().expect("a text").to_owned()
}

/// The text that an event of a completion's stream brings.
///
/// # Panics
/// When it brings an error.
pub fn piece_of(event: &Value) -> &str {
    assert!(event.get("error").is_none(), "{event}");
    event["choices"][0]["text"].as_str().unwrap_or_default()
}

/// Asks for a completion as a stream and collects its text.
///
/// # Panics
/// When the stream breaks.
pub fn streamed(server: &Server, mut body: Value) -> String {
    body["stream"] = json!(true);
    server.stream("/v1/completions", &body).map(|event| piece_of(&event).to_owned()).collect()
}
