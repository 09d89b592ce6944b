//! The command line of `bench serve`.

use std::path::PathBuf;

use crate::error::BenchError;
use crate::scenarios;
use crate::sysinfo;

/// What `bench serve` was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServeOptions {
    pub(crate) model: PathBuf,
    /// What ours serves instead: the same model in a form that llama-server does not read.
    pub(crate) bundle: Option<PathBuf>,
    /// Names of scenarios, in the order in which they run.
    pub(crate) only: Vec<&'static str>,
    /// Rounds at most; a scenario may have fewer.
    pub(crate) rounds: usize,
    /// All of them in every scenario, however long it takes.
    pub(crate) all_rounds: bool,
    /// A smoke run: one round, short answers, few kills.
    pub(crate) quick: bool,
    /// Engine threads of every server.
    pub(crate) threads: usize,
    /// Kills on the sample runtime.
    pub(crate) kills: usize,
    /// Folder of our binaries; ours when `None`.
    pub(crate) bin_dir: Option<PathBuf>,
    /// An existing llama-server.
    pub(crate) peer: Option<PathBuf>,
    /// Measure us alone.
    pub(crate) no_peer: bool,
    pub(crate) json: Option<PathBuf>,
}

/// Reads the options; `--list` and `--help` are the caller's.
pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<ServeOptions, BenchError> {
    let mut options = ServeOptions {
        model: model("smol"),
        bundle: None,
        only: scenarios::ALL.iter().map(|scenario| scenario.name).collect(),
        rounds: 5,
        all_rounds: false,
        quick: false,
        threads: sysinfo::cpus(),
        kills: 200,
        bin_dir: None,
        peer: None,
        no_peer: false,
        json: None,
    };
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--quick" => options.quick = true,
            "--all-rounds" => options.all_rounds = true,
            "--no-peer" => options.no_peer = true,
            _ => {
                let value = args.next().ok_or_else(|| BenchError::Usage(format!("{flag} needs a value")))?;
                options.set(&flag, &value)?;
            }
        }
    }
    Ok(options)
}

impl ServeOptions {
    fn set(&mut self, flag: &str, value: &str) -> Result<(), BenchError> {
        match flag {
            "--only" => self.only = names(value)?,
            "--skip" => {
                let skipped = names(value)?;
                self.only.retain(|name| !skipped.contains(name));
            }
            "--model" => self.model = model(value),
            "--bundle" => self.bundle = Some(value.into()),
            "--rounds" => self.rounds = number(flag, value)?,
            "--threads" => self.threads = number(flag, value)?,
            "--kills" => self.kills = number(flag, value)?,
            "--bin-dir" => self.bin_dir = Some(value.into()),
            "--peer" => self.peer = Some(value.into()),
            "--json" => self.json = Some(value.into()),
            _ => return Err(BenchError::Usage(format!("no option {flag}"))),
        }
        Ok(())
    }
}

fn model(name: &str) -> PathBuf {
    match name {
        "smol" => sysinfo::model_dir().join("SmolLM2-135M-Instruct.Q4_1.gguf"),
        "gemma" => sysinfo::model_dir().join("gemma-3-270m-Q4_K_M.gguf"),
        file => file.into(),
    }
}

fn names(value: &str) -> Result<Vec<&'static str>, BenchError> {
    let find = |part: &str| {
        let known = scenarios::ALL.iter().find(|scenario| scenario.name == part);
        known.map(|scenario| scenario.name).ok_or_else(|| {
            let all: Vec<_> = scenarios::ALL.iter().map(|scenario| scenario.name).collect();
            BenchError::Usage(format!("no scenario {part:?}; there are {}", all.join(", ")))
        })
    };
    value.split(',').map(find).collect()
}

/// A whole number above 0.
pub(crate) fn number(flag: &str, value: &str) -> Result<usize, BenchError> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(BenchError::Usage(format!("{flag} takes whole numbers above 0, not {value:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<ServeOptions, BenchError> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_or_refused() {
        let options = parsed("--only chat,kill --rounds 3 --quick --model x.gguf").expect("good options");
        assert_eq!((options.only, options.rounds, options.quick), (vec!["chat", "kill"], 3, true));
        assert_eq!(options.model, PathBuf::from("x.gguf"));
        let all = parsed("").expect("no options").only;
        let some = parsed("--skip kill,noop").expect("good options").only;
        assert_eq!(some.len() + 2, all.len());
        for wrong in ["--only chats", "--rounds 0", "--rounds", "--speed 3"] {
            assert!(matches!(parsed(wrong), Err(BenchError::Usage(_))), "{wrong}");
        }
    }
}
