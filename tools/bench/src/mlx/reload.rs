//! `kill -9` of the worker again and again: every reload answers, and nothing piles up.

use super::Bench;
use super::sides::Engine;
use crate::client::{self, Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::scenarios::kill_worker;
use crate::serve::{Found, Row, Target};
use crate::stats::ms;
use crate::sysinfo;

pub(super) const ABOUT: &str = "kill -9 of the worker 50 times on the 4-bit directory, a request behind each: all answers are the \
                                first one's, and memory and threads of server and worker stay what they were after the fifth.";
const FLAT: f64 = 1.03;

pub(super) fn run(bench: &Bench<'_>, found: &mut Found) -> Result<(), BenchError> {
    let server = bench.programs.start("superfluid", Engine::Ours(&bench.models.q4))?;
    let ask = Ask::completion(&prompts::story(5), 8, Drawing::Greedy);
    let first = client::stream(&server, &ask)?.whole(&server)?.text;
    let kills = bench.size(50, 6);
    let (mut equal, mut waits, mut sizes) = (0, Vec::new(), Vec::new());
    for kill in 0..kills {
        bench.bar.set_message(format!("kill {} of {kills}", kill + 1));
        kill_worker(&server)?;
        let answer = client::stream(&server, &ask)?.whole(&server)?;
        equal += usize::from(answer.text == first);
        waits.push(ms(answer.ended - answer.begun));
        let processes: Vec<u32> = server.workers().into_iter().chain([server.pid()]).collect();
        let threads: usize = processes.iter().map(|&pid| sysinfo::threads(pid)).sum();
        sizes.push((sysinfo::tree_rss_bytes(server.pid()) as f64 / f64::from(1 << 20), threads));
    }
    let row = Row::alone(format!("of {kills} reloads: answers as before"), "", vec![equal as f64]);
    found.row(row.target(Target::at_least(kills as f64)));
    let (calm, after) = sizes.split_at(5.min(sizes.len() - 1));
    let most = |part: &[(f64, usize)]| {
        part.iter().fold((0.0_f64, 0), |most, size| (most.0.max(size.0), most.1.max(size.1)))
    };
    let ((before, threads_before), (behind, threads_behind)) = (most(calm), most(after));
    let row = Row::alone("peak RSS behind the fifth / up to it", "", vec![behind / before]);
    found.row(row.target(Target::at_most(FLAT)));
    let row =
        Row::alone("more threads behind the fifth", "", vec![threads_behind as f64 - threads_before as f64]);
    found.row(row.target(Target::at_most(0.0)));
    found.row(Row::alone("kill to the end of the next answer", "ms", waits));
    found.raw("RSS in MiB and threads, by kill", sizes);
    Ok(())
}
