//! The command line of `bench mlx`.

use std::path::PathBuf;

use super::SCENARIOS;
use crate::error::BenchError;
use crate::serve::number;
use crate::sysinfo;

/// What `bench mlx` was asked for.
#[derive(Clone, Debug)]
pub(crate) struct MlxOptions {
    pub(super) only: Vec<&'static str>,
    pub(super) rounds: usize,
    pub(super) threads: usize,
    /// Short answers, few of them.
    pub(super) quick: bool,
    pub(super) bin_dir: Option<PathBuf>,
    /// A libopenblas.so with the usual names, for the peer.
    pub(super) openblas: Option<PathBuf>,
    pub(super) json: Option<PathBuf>,
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<MlxOptions, BenchError> {
    let mut options = MlxOptions {
        only: SCENARIOS.iter().map(|(name, ..)| *name).collect(),
        rounds: 5,
        threads: sysinfo::cpus(),
        quick: false,
        bin_dir: None,
        openblas: None,
        json: None,
    };
    while let Some(flag) = args.next() {
        if flag == "--quick" {
            options.quick = true;
            continue;
        }
        let value = args.next().ok_or_else(|| BenchError::Usage(format!("{flag} needs a value")))?;
        match flag.as_str() {
            "--only" => options.only = value.split(',').map(named).collect::<Result<_, _>>()?,
            "--rounds" => options.rounds = number(&flag, &value)?,
            "--threads" => options.threads = number(&flag, &value)?,
            "--bin-dir" => options.bin_dir = Some(value.into()),
            "--openblas" => options.openblas = Some(value.into()),
            "--json" => options.json = Some(value.into()),
            _ => return Err(BenchError::Usage(format!("no option {flag}"))),
        }
    }
    Ok(options)
}

fn named(part: &str) -> Result<&'static str, BenchError> {
    let known = SCENARIOS.iter().find(|(name, ..)| *name == part);
    known.map(|(name, ..)| *name).ok_or_else(|| {
        let all: Vec<_> = SCENARIOS.iter().map(|(name, ..)| *name).collect();
        BenchError::Usage(format!("no scenario {part:?}; there are {}", all.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let parsed = |text: &str| parse(text.split_whitespace().map(str::to_owned));
        let options = parsed("--only churn,decode --rounds 2 --quick").expect("good options");
        assert_eq!((options.only, options.rounds, options.quick), (vec!["churn", "decode"], 2, true));
        for wrong in ["--only churns", "--rounds 0", "--rounds", "--speed 3"] {
            assert!(matches!(parsed(wrong), Err(BenchError::Usage(_))), "{wrong}");
        }
    }
}
