//! Asks runtimes whether they can run here, through a port, and remembers the answers.

use std::path::Path;

use sf_abi::descriptor::ProbeAnswer;
use sf_core::ports::Prober;
use sha2::{Digest as _, Sha256};

use crate::cache::{Cache, ProbeRecord, hex};
use crate::discover::Catalog;
use crate::entry::{Entry, State};
use crate::machine::Machine;
use crate::reason::Reason;

/// No driver library is touched.
const QUICK: u32 = 0;
/// Devices are listed.
const DEVICES: u32 = 1;

impl Catalog {
    /// Probes every sound runtime at depth 0, each in a process that is thrown away; an answer that is remembered for
    /// this library, kernel, CPU and environment under `cache_dir` is not asked for again. A crash and a time-out are
    /// remembered too.
    pub fn probe_all(&mut self, prober: &dyn Prober, cache_dir: Option<&Path>) {
        self.probe(prober, cache_dir, None);
    }

    /// Probes every sound runtime again, devices included, whatever is remembered.
    pub fn probe_again(&mut self, prober: &dyn Prober, cache_dir: Option<&Path>) {
        self.probe(prober, cache_dir, Some(DEVICES));
    }

    fn probe(&mut self, prober: &dyn Prober, cache_dir: Option<&Path>, again: Option<u32>) {
        let mut cache = Cache::open(cache_dir, self.uid);
        for entry in self.entries.iter_mut().filter(|entry| entry.state == State::Usable) {
            let depth = again.unwrap_or(QUICK);
            let quick = key(entry, &self.machine, QUICK);
            let deep = key(entry, &self.machine, DEVICES);
            // A remembered deeper answer holds at depth 0 too, and lists devices.
            let known =
                if again.is_some() { None } else { cache.probe(&deep).or_else(|| cache.probe(&quick)) };
            let record = known.unwrap_or_else(|| {
                let record = ask(entry, prober, depth);
                cache.remember(if depth == QUICK { &quick } else { &deep }, record.clone());
                record
            });
            judge(entry, &record);
        }
        cache.save();
    }
}

fn ask(entry: &Entry, prober: &dyn Prober, depth: u32) -> ProbeRecord {
    match prober.probe(&entry.library, &entry.env(), depth) {
        Ok(answer) => ProbeRecord::Answer(answer),
        Err(failure) => ProbeRecord::Failure(failure.reason),
    }
}

fn judge(entry: &mut Entry, record: &ProbeRecord) {
    let reason = match record {
        ProbeRecord::Failure(reason) => Reason::ProbeFailed { reason: reason.clone() },
        ProbeRecord::Answer(json) => match serde_json::from_str::<ProbeAnswer>(json) {
            Err(error) => Reason::BadProbe { why: error.to_string() },
            Ok(answer) => {
                let unavailable = (!answer.available).then(|| {
                    let reason = answer.reason.clone().unwrap_or_else(|| "it gives no reason".into());
                    Reason::Unavailable { reason }
                });
                entry.probe = Some(answer);
                match unavailable {
                    Some(reason) => reason,
                    None => return,
                }
            }
        },
    };
    entry.state = State::Unusable(reason);
}

/// Everything that an answer depends on.
fn key(entry: &Entry, machine: &Machine, depth: u32) -> String {
    let mut sha = Sha256::new();
    let mut part = |text: &str| {
        sha.update((text.len() as u64).to_le_bytes());
        sha.update(text);
    };
    part(&entry.sha256);
    part(&depth.to_string());
    part(&machine.kernel);
    machine.cpu.iter().for_each(|feature| part(feature));
    let env = entry.descriptor.env.iter();
    for (name, value) in env.chain(machine.visibility.iter().map(|(name, value)| (name, value))) {
        part(name);
        part(value);
    }
    hex(&sha.finalize())
}
