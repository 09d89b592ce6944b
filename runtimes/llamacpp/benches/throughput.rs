//! How fast the runtime steps, in the pattern of llama.cpp's `llama-batched-bench`, so that the two can be compared.
//!
//! `cargo xtask throughput MODEL [key=number ...]`: `lanes` that decode, fed `prompt` tokens each and then `tokens` one by one, beside
//! `residents` idle lanes of `resident` tokens; then `chunks` prefill chunks of `chunk` tokens while all lanes but one
//! decode; then forks and cuts. `threads`, `lanes_max`, `cells`, `window` (positions a lane may hold), `ubatch` and `swa_full` (0 or 1) open the
//! model. Nothing looks at the rows. CPU time is of the whole process, in milliseconds a token.

#[path = "../tests/runtime/support/mod.rs"]
mod support;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use support::{Model, Run, Value, run};

/// What the command line says; see the module.
struct Args {
    lanes: usize,
    prompt: usize,
    tokens: usize,
    residents: usize,
    resident: usize,
    chunk: usize,
    chunks: usize,
    threads: i64,
    lanes_max: i64,
    cells: i64,
    window: i64,
    ubatch: i64,
    swa_full: bool,
    /// Attention as llama.cpp has it.
    original: bool,
}

impl Args {
    fn read(args: impl Iterator<Item = String>) -> Option<Args> {
        let mut read = Args {
            lanes: 8,
            prompt: 64,
            tokens: 64,
            residents: 0,
            resident: 1500,
            chunk: 128,
            chunks: 0,
            threads: 2,
            lanes_max: 0,
            cells: 4096,
            window: 4096,
            ubatch: 512,
            swa_full: false,
            original: false,
        };
        for arg in args {
            let (key, value) = arg.split_once('=')?;
            let number: usize = value.parse().ok()?;
            match key {
                "lanes" => read.lanes = number,
                "prompt" => read.prompt = number,
                "tokens" => read.tokens = number,
                "residents" => read.residents = number,
                "resident" => read.resident = number,
                "chunk" => read.chunk = number,
                "chunks" => read.chunks = number,
                "threads" => read.threads = number as i64,
                "lanes_max" => read.lanes_max = number as i64,
                "cells" => read.cells = number as i64,
                "window" => read.window = number as i64,
                "ubatch" => read.ubatch = number as i64,
                "swa_full" => read.swa_full = number != 0,
                "original" => read.original = number != 0,
                _ => return None,
            }
        }
        read.lanes_max = read.lanes_max.max((read.lanes + read.residents + 2) as i64);
        Some(read)
    }

    fn open(&self, path: &Path) -> Model {
        let options = [
            ("ctx.max", Value::Int(self.window)),
            ("lanes.max", Value::Int(self.lanes_max)),
            ("threads", Value::Int(self.threads)),
            ("x.llamacpp.kv-cells", Value::Int(self.cells)),
            ("x.llamacpp.ubatch-size", Value::Int(self.ubatch)),
            ("x.llamacpp.swa-full", Value::Bool(self.swa_full)),
        ];
        support::runtime();
        let ours = superfluid_llamacpp::use_original_attention(self.original);
        assert!(ours || self.original, "our attention is not in this build");
        Model::open(path, &options).expect("the model opens")
    }
}

/// Wall and CPU time since a moment.
struct Watch {
    start: Instant,
    cpu: Duration,
}

impl Watch {
    fn start() -> Watch {
        Watch { start: Instant::now(), cpu: cpu() }
    }

    /// Tokens a second, and milliseconds of CPU a token.
    fn rate(&self, tokens: usize) -> String {
        let (wall, used) = (self.start.elapsed(), cpu().saturating_sub(self.cpu));
        format!(
            "{:8.1} tok/s {:7.3} ms CPU/tok",
            tokens as f64 / wall.as_secs_f64(),
            used.as_secs_f64() * 1e3 / tokens as f64
        )
    }
}

/// CPU time of this process, where the system tells; in ticks of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 = behind_name.split(' ').skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Lanes with their lengths and a stream of tokens to feed them.
struct Bench {
    model: Model,
    lanes: Vec<(u64, u32)>,
    seed: u32,
}

impl Bench {
    /// Any token of the vocabulary does; control tokens stand at its start.
    fn run_of(&mut self, count: usize) -> Vec<u32> {
        (0..count)
            .map(|_| {
                self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                1000 + (self.seed >> 8) % 40_000
            })
            .collect()
    }

    fn add(&mut self) -> usize {
        self.lanes.push((self.model.lane(), 0));
        self.lanes.len() - 1
    }

    /// One step of `counts[i].1` tokens for lane `counts[i].0`.
    fn step(&mut self, counts: &[(usize, usize)]) {
        let tokens: Vec<Vec<u32>> = counts.iter().map(|&(_, count)| self.run_of(count)).collect();
        let runs: Vec<Run<'_>> = counts
            .iter()
            .zip(&tokens)
            .map(|(&(lane, _), tokens)| run(self.lanes[lane].0, self.lanes[lane].1, tokens))
            .collect();
        self.model.step_unread(&runs).expect("a good step");
        for &(lane, count) in counts {
            self.lanes[lane].1 += count as u32;
        }
    }
}

fn main() -> std::io::Result<()> {
    // Cargo adds an argument of its own.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let usage =
        || std::io::Error::other("usage: throughput MODEL [key=number ...]; see the example's source");
    let path = args.next().ok_or_else(usage)?;
    let args = Args::read(args).ok_or_else(usage)?;
    let mut bench = Bench { model: args.open(path.as_ref()), lanes: Vec::new(), seed: 1 };
    let mut out = std::io::stdout().lock();
    let residents: Vec<usize> = (0..args.residents).map(|_| bench.add()).collect();
    for &lane in &residents {
        for from in (0..args.resident).step_by(512) {
            bench.step(&[(lane, 512.min(args.resident - from))]);
        }
    }
    let lanes: Vec<usize> = (0..args.lanes).map(|_| bench.add()).collect();
    let watch = Watch::start();
    bench.step(&lanes.iter().map(|&lane| (lane, args.prompt)).collect::<Vec<_>>());
    writeln!(out, "prefill {}", watch.rate(args.lanes * args.prompt))?;
    let ones: Vec<(usize, usize)> = lanes.iter().map(|&lane| (lane, 1)).collect();
    let watch = Watch::start();
    for _ in 0..args.tokens {
        bench.step(&ones);
    }
    writeln!(out, "decode  {}", watch.rate(args.lanes * args.tokens))?;
    if args.chunks > 0 {
        let newcomer = bench.add();
        let mut mixed = ones[1..].to_vec();
        mixed.push((newcomer, args.chunk));
        let watch = Watch::start();
        for _ in 0..args.chunks {
            bench.step(&mixed);
        }
        writeln!(out, "mixed   {}", watch.rate(args.chunks * (args.chunk + args.lanes - 1)))?;
    }
    moves(&mut bench, residents.first().copied().unwrap_or(0), &mut out)
}

/// What a fork, a cut, and an export with its import cost.
fn moves(bench: &mut Bench, parent: usize, out: &mut impl Write) -> std::io::Result<()> {
    let (parent, len) = bench.lanes[parent];
    let start = Instant::now();
    let child = bench.model.fork(parent, len).expect("a fork");
    let forked = start.elapsed();
    let start = Instant::now();
    bench.model.truncate(child, len - 1);
    let cut = start.elapsed();
    let start = Instant::now();
    bench.model.free(child);
    writeln!(out, "fork {forked:?}, cut {cut:?}, free {:?} of {len} positions", start.elapsed())
}
