//! Clients that come and go at random lengths: no answer may differ from the one that its request gets alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sf_load::Rng;

use super::Bench;
use super::sides::Engine;
use crate::client::{self, Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::serve::{Found, Row, Target};
use crate::sysinfo;

pub(super) const ABOUT: &str = "8 clients, 500 requests of random lengths (some prompts of hundreds of tokens, replies of 1 to 48, \
                                half of them sampled) on the 4-bit directory: each answer must be the one that the same request \
                                gets alone, and memory must stay flat behind the first 100. Caches that fill up to a limit are off.";
const CLIENTS: usize = 8;
/// Growth of resident memory that noise makes.
const FLAT: f64 = 1.03;

pub(super) fn run(bench: &Bench<'_>, found: &mut Found) -> Result<(), BenchError> {
    let server = bench.programs.start("superfluid", Engine::OursWithoutCaches(&bench.models.q4))?;
    let count = bench.size(500, 24);
    let asks: Vec<Ask> = (0..count).map(ask).collect();
    let mut alone = Vec::new();
    for (at, ask) in asks.iter().enumerate() {
        bench.bar.set_message(format!("alone, request {} of {count}", at + 1));
        alone.push(client::stream(&server, ask)?.whole(&server)?.text);
    }
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let memory = Mutex::new(Vec::new());
    let serve = || -> Result<(), BenchError> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(ask) = asks.get(at) else { return Ok(()) };
            bench.bar.set_message(format!("together, request {} of {count}", at + 1));
            let answer = client::stream(&server, ask)?.whole(&server)?;
            if answer.text != alone[at] {
                wrong.lock().expect("nobody panics").push((at, answer.text));
            }
            if at.is_multiple_of(25) {
                let bytes = sysinfo::tree_rss_bytes(server.pid());
                memory.lock().expect("nobody panics").push((at, bytes as f64 / f64::from(1 << 20)));
            }
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(serve)).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
    })?;
    let wrong = wrong.into_inner().expect("nobody panics");
    let mut memory = memory.into_inner().expect("nobody panics");
    memory.sort_by_key(|(at, _)| *at);
    let row = Row::alone("answers that differ from the lone run", "", vec![wrong.len() as f64]);
    found.row(row.target(Target::at_most(0.0)));
    let most = |part: &mut dyn Iterator<Item = &(usize, f64)>| part.map(|(_, mib)| *mib).fold(0.0, f64::max);
    let early = most(&mut memory.iter().filter(|(at, _)| *at <= count / 5));
    let late = most(&mut memory.iter().filter(|(at, _)| *at > count / 5));
    let row = Row::alone("peak RSS behind the first fifth / in it", "", vec![late / early.max(1.0)]);
    found.row(row.target(Target::at_most(FLAT)));
    found.raw("RSS by request, MiB", memory);
    found.raw("wrong answers", wrong);
    Ok(())
}

fn ask(number: usize) -> Ask {
    let mut random = Rng::new(31, number as u64);
    let mut prompt = prompts::story(number);
    for more in 0..random.below(4) * random.below(4) {
        prompt.push(' ');
        prompt.push_str(&prompts::story(number + more as usize));
    }
    let drawing = match number % 2 {
        0 => Drawing::Greedy,
        _ => Drawing::Sampled(number as u64),
    };
    Ask::completion(&prompt, 1 + random.below(48) as usize, drawing)
}
