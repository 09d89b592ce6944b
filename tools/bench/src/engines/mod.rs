//! Engines without a server: the runtimes beside each other in this process, on the same ABI, in alternating rounds.

mod numerics;
mod place;
mod session;
mod speed;

use std::path::PathBuf;

use crate::error::BenchError;

pub(crate) use numerics::run as numerics;
pub(crate) use speed::run as speed;

/// What both commands take.
pub(crate) struct Options {
    /// The first one is what the others are compared with.
    pub(crate) models: Vec<PathBuf>,
    pub(crate) threads: Vec<i64>,
    pub(crate) rounds: usize,
    /// Of `numerics`.
    pub(crate) text: Option<PathBuf>,
    pub(crate) windows: usize,
    pub(crate) json: Option<PathBuf>,
    /// Rows of `engines`; none = all.
    pub(crate) only: Vec<String>,
}

/// Reads the command line of `engines` and `numerics`.
pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, BenchError> {
    let (threads, only) = (vec![1, 2], Vec::new());
    let mut options =
        Options { models: Vec::new(), threads, rounds: 5, text: None, windows: 20, json: None, only };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| BenchError::Usage(format!("{arg} takes a value")));
        let count = |text: &str| {
            let count = text.parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| BenchError::Usage(format!("{text} is no count")))
        };
        match arg.as_str() {
            "--threads" => {
                options.threads = value()?
                    .split(',')
                    .map(|text| count(text).map(|n: usize| n as i64))
                    .collect::<Result<_, _>>()?;
            }
            "--rounds" => options.rounds = count(&value()?)?,
            "--windows" => options.windows = count(&value()?)?,
            "--text" => options.text = Some(value()?.into()),
            "--json" => options.json = Some(value()?.into()),
            "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
            flag if flag.starts_with("--") => return Err(BenchError::Usage(format!("no option {flag}"))),
            model => options.models.push(model.into()),
        }
    }
    if options.models.is_empty() {
        return Err(BenchError::Usage("name the models, the one to compare with first".to_owned()));
    }
    Ok(options)
}
