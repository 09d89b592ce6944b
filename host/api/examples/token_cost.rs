//! Measures what a streamed token costs the server: `token_cost [steady|burst|flood] [SECONDS] [STREAMS] [THREADS]`.
//!
//! It starts itself as a server over a model that only counts, reads its streams, and prints the server's CPU time per
//! token, the lane thread that feeds the streams included. `steady` is a token per stream every 40 ms, each a write of
//! its own; `burst` is 4 tokens per stream every 10 ms, one write each; `flood` is 8 tokens per stream and tick, tick
//! after tick, as fast as they are taken. THREADS = 0: all HTTP on the main thread.

#![allow(clippy::print_stdout, reason = "the numbers are what it prints")]
#![allow(clippy::unwrap_used, reason = "a measurement that fails has no other way out")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use futures_util::task::AtomicWaker;
use sf_api::{ApiSettings, serve};
use sf_core::ports::{Accepted, BoxFuture, Inference, ModelCard, Rendered, Tuning};
use sf_core::{Chat, Fault, FaultKind, Input, Token, Turn, TurnEvent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Name, time between ticks, tokens per stream and tick.
const MODES: [(&str, Duration, usize); 3] = [
    ("steady", Duration::from_millis(40), 1),
    ("burst", Duration::from_millis(10), 4),
    ("flood", Duration::ZERO, 8),
];
/// A flooded stream that holds so many events is left out of a tick.
const WAITING_MAX: usize = 64;

/// What one tick left for one stream.
#[derive(Default)]
struct Pipe {
    events: Mutex<VecDeque<TurnEvent>>,
    waker: AtomicWaker,
}

struct Reader {
    pipe: Arc<Pipe>,
    /// Taken over in one go, so that an event does not cost a lock.
    taken: VecDeque<TurnEvent>,
}

impl Stream for Reader {
    type Item = TurnEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        let this = self.get_mut();
        if this.taken.is_empty() {
            this.pipe.waker.register(cx.waker());
            std::mem::swap(&mut this.taken, &mut this.pipe.events.lock().unwrap());
        }
        this.taken.pop_front().map_or(Poll::Pending, |event| Poll::Ready(Some(event)))
    }
}

/// The streams of the one lane thread.
#[derive(Default)]
struct Lanes(Mutex<Vec<Arc<Pipe>>>);

impl Lanes {
    fn tick(&self, tokens: usize) -> bool {
        let pipes = self.0.lock().unwrap().clone();
        let mut fed = false;
        for pipe in &pipes {
            let mut events = pipe.events.lock().unwrap();
            if events.len() >= WAITING_MAX {
                continue;
            }
            let event = |_| TurnEvent::Delta { choice: 0, text: " token".to_owned(), tokens: Vec::new() };
            events.extend((0..tokens).map(event));
            drop(events);
            pipe.waker.wake();
            fed = true;
        }
        fed
    }
}

struct Counting(Arc<Lanes>);

impl Counting {
    fn start(tick: Duration, tokens: usize) -> Counting {
        let lanes = Arc::<Lanes>::default();
        let counting = Counting(Arc::clone(&lanes));
        let feed = move || {
            loop {
                if !lanes.tick(tokens) || !tick.is_zero() {
                    std::thread::sleep(tick.max(Duration::from_micros(200)));
                }
            }
        };
        std::thread::Builder::new().name("lanes".to_owned()).spawn(feed).unwrap();
        counting
    }
}

impl Inference for Counting {
    fn submit(&self, _: Turn) -> BoxFuture<'_, Result<Accepted, Fault>> {
        Box::pin(async move {
            let pipe = Arc::<Pipe>::default();
            self.0.0.lock().unwrap().push(Arc::clone(&pipe));
            let events = Box::pin(Reader { pipe, taken: VecDeque::new() });
            Ok(Accepted {
                model: "org/counting-135m-instruct".to_owned(),
                prompt_tokens: 1,
                warnings: Vec::new(),
                events,
            })
        })
    }

    fn tokenize(&self, _: Option<&str>, _: &Input) -> Result<Vec<Token>, Fault> {
        Ok(Vec::new())
    }

    fn render(&self, _: Option<&str>, _: &Chat) -> Result<Rendered, Fault> {
        Err(Fault::new(
            FaultKind::Unsupported,
            "not_in_this_build",
            "a model that only counts has no template",
        ))
    }

    fn detokenize(&self, _: Option<&str>, _: &[Token]) -> Result<String, Fault> {
        Ok(String::new())
    }

    fn models(&self) -> Vec<ModelCard> {
        Vec::new()
    }

    fn tuning(&self) -> Tuning {
        Tuning { background_every: 1 }
    }

    fn tune(&self, _: Tuning) -> Result<(), Fault> {
        Ok(())
    }
}

/// The server: prints its port, and ends with its standard input.
fn run_server(mode: &str, threads: usize) {
    let mut builder = if threads == 0 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads);
        builder
    };
    let seconds: Vec<f64> = (0..20).map(|power| 1e-4 * 2f64.powi(power)).collect();
    let metrics = metrics_exporter_prometheus::PrometheusBuilder::new().set_buckets(&seconds).unwrap();
    let metrics = metrics.install_recorder().unwrap();
    let runtime = builder.thread_name("http").enable_all().build().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let (_, tick, tokens) =
        MODES.into_iter().find(|(name, ..)| *name == mode).expect("steady, burst or flood");
    let inference = Arc::new(Counting::start(tick, tokens));
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(5));
            metrics.run_upkeep();
        }
    });
    std::thread::spawn(|| {
        let _ = std::io::stdin().lines().next();
        std::process::exit(0);
    });
    runtime.block_on(serve(listener, inference, ApiSettings::default(), std::future::pending())).unwrap();
}

/// Reads one stream; every event ends with an empty line.
async fn read(port: u16, lines: &Cell<u64>, reads: &Cell<u64>) {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let body = r#"{"messages":[{"role":"user","content":"x"}],"stream":true}"#;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut block = vec![0; 128 << 10];
    loop {
        let count = stream.read(&mut block).await.unwrap();
        assert!(count > 0, "the server ended a stream");
        let events = block[..count].windows(6).filter(|six| *six == b"data: ").count();
        lines.set(lines.get() + events as u64);
        reads.set(reads.get() + 1);
    }
}

/// Nanoseconds on a CPU so far, by thread name.
fn cpu(pid: u32) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default().trim().to_owned();
        let stat = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let ns = stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        all.push((name, ns));
    }
    all
}

/// Reads `streams` streams for a while and prints what they cost the server.
async fn measure(child: u32, port: u16, mode: &str, streams: usize, seconds: u64) {
    let seen = Rc::new((Cell::new(0), Cell::new(0)));
    for _ in 0..streams {
        let seen = Rc::clone(&seen);
        tokio::task::spawn_local(async move { read(port, &seen.0, &seen.1).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, tokens, reads, start) = (cpu(child), seen.0.get(), seen.1.get(), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (after, tokens, reads) = (cpu(child), seen.0.get() - tokens, seen.1.get() - reads);
    let rate = tokens as f64 / start.elapsed().as_secs_f64();
    let each = tokens as f64 / reads as f64;
    println!("{mode}: {streams} streams, {tokens} tokens, {rate:.0} tokens/s, {each:.1} tokens per read");
    let mut total = 0;
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        let ns = after - before;
        total += ns;
        if ns > 0 {
            println!("  {name:16} {:7.3} us per token", ns as f64 / 1e3 / tokens as f64);
        }
    }
    println!("  {:16} {:7.3} us per token", "server", total as f64 / 1e3 / tokens as f64);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let mode = arguments.first().map_or("steady", String::as_str);
    if mode == "serve" {
        return run_server(&arguments[1], number(2, 2));
    }
    let (seconds, streams) = (number(1, 10), number(2, if mode == "steady" { 8 } else { 256 }));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["serve", mode, &number(3, 2).to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port: u16 = line.trim().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(measure(child.id(), port, mode, streams, seconds as u64)));
    let _ = child.stdin.take().unwrap().write_all(b"\n");
    let _ = child.wait();
}
