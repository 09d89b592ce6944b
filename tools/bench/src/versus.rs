//! superfluid beside llama.cpp's own server: same model, threads, window and prompts, in alternating order.

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Options;
use crate::error::BenchError;
use crate::load::{Round, round};
use crate::peer;
use crate::report;
use crate::server::Server;
use crate::stats::{median, ms, percentile};
use crate::sysinfo;

/// Starts measured per server.
const STARTS: usize = 3;

/// Figures of one server at one width.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) ttft_ms_p50: f64,
    pub(crate) ttft_ms_p99: f64,
    pub(crate) itl_ms_p50: f64,
    pub(crate) itl_ms_p95: f64,
    pub(crate) itl_ms_p99: f64,
    pub(crate) tokens_per_second: f64,
    pub(crate) cpu_ms_per_token: f64,
}

/// One width, both servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Width {
    pub(crate) clients: usize,
    pub(crate) ours: Figures,
    pub(crate) peer: Figures,
    /// Rounds in which all texts of both servers were equal.
    pub(crate) rounds_with_equal_text: usize,
    pub(crate) rounds: usize,
}

/// The whole run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Versus {
    pub(crate) model: String,
    pub(crate) cpu: String,
    pub(crate) threads: usize,
    pub(crate) window: usize,
    pub(crate) tokens: usize,
    pub(crate) in_process: bool,
    pub(crate) load_average_before: f64,
    pub(crate) widths: Vec<Width>,
    pub(crate) start_ms: [f64; 2],
    pub(crate) rss_idle_mib: [f64; 2],
    pub(crate) rss_after_mib: [f64; 2],
}

pub(crate) fn run(options: &Options) -> Result<(), BenchError> {
    let peer_binary = peer::server_binary(options.peer.as_deref())?;
    let load_average_before = sysinfo::load_average();
    let lanes = options.clients.iter().copied().max().unwrap_or(1);
    let start_ours = || start_ours(options, lanes);
    let start_peer = || start_peer(options, lanes, &peer_binary);

    let (mut ours_starts, mut peer_starts) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        ours_starts.push(ms(start_ours()?.ready_after));
        peer_starts.push(ms(start_peer()?.ready_after));
    }
    let (ours, peer) = (start_ours()?, start_peer()?);
    let rss = |server: &Server| sysinfo::tree_rss_bytes(server.pid()) as f64 / f64::from(1 << 20);
    let rss_idle_mib = [rss(&ours), rss(&peer)];

    let bar = ProgressBar::new((options.clients.len() * (options.rounds + 1) * 2) as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}").expect("the template is valid"));
    let widths = options
        .clients
        .iter()
        .map(|&clients| measure(options, clients, [&ours, &peer], &bar))
        .collect::<Result<Vec<_>, _>>()?;
    bar.finish_and_clear();

    let result = Versus {
        model: options.model.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        cpu: sysinfo::cpu_name(),
        threads: options.threads,
        window: options.window,
        tokens: options.tokens,
        in_process: options.in_process,
        load_average_before,
        widths,
        start_ms: [median(&ours_starts), median(&peer_starts)],
        rss_idle_mib,
        rss_after_mib: [rss(&ours), rss(&peer)],
    };
    report::print_versus(&result);
    report::write_json(&result, options.json.as_deref())
}

fn start_ours(options: &Options, lanes: usize) -> Result<Server, BenchError> {
    let program =
        std::env::current_exe().map_err(BenchError::io("find our own folder"))?.with_file_name("superfluid");
    if !program.is_file() {
        let how = "not built: run cargo build --release -p superfluid -p superfluid-workerd".to_owned();
        return Err(BenchError::Command { command: program.display().to_string(), how });
    }
    let args = |port: u16| {
        let mut args = vec!["serve".to_owned(), options.model.display().to_string()];
        args.push(format!("--port={port}"));
        args.push(format!("--max-context={}", options.window));
        args.push(format!("--max-batch={lanes}"));
        args.push(format!("--threads={}", options.threads));
        if options.in_process {
            args.push("--no-worker-process".to_owned());
        }
        args
    };
    Server::start("superfluid", &program, args, "/ready")
}

fn start_peer(options: &Options, lanes: usize, program: &std::path::Path) -> Result<Server, BenchError> {
    let args = |port: u16| {
        let pairs = [
            ("-m", options.model.display().to_string()),
            ("--port", port.to_string()),
            ("-t", options.threads.to_string()),
            ("-np", lanes.to_string()),
            ("-c", (options.window * lanes).to_string()),
        ];
        let mut args: Vec<String> =
            pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        // Its best setting: partly filled split KV slots cost it about 30 %. No host prompt cache, for the memory figure.
        args.extend(["-kvu", "--cache-ram", "0", "--no-webui"].map(str::to_owned));
        args
    };
    Server::start("llama-server", program, args, "/health")
}

fn measure(
    options: &Options,
    clients: usize,
    servers: [&Server; 2],
    bar: &ProgressBar,
) -> Result<Width, BenchError> {
    let mut rounds: [Vec<Round>; 2] = [Vec::new(), Vec::new()];
    for index in 0..=options.rounds {
        // A B, B A, A B, ...: neither server always runs on the warmer machine.
        for which in if index % 2 == 0 { [0, 1] } else { [1, 0] } {
            bar.set_message(format!("{} clients, {}", clients, servers[which].name));
            let result = round(servers[which], clients, options.tokens, index + 1)?;
            bar.inc(1);
            // The first round warms both up.
            if index > 0 {
                rounds[which].push(result);
            }
        }
    }
    let [ours, peer] = &rounds;
    let text = |round: &Round| round.answers.iter().map(|answer| answer.text.clone()).collect::<Vec<_>>();
    Ok(Width {
        clients,
        ours: figures(ours),
        peer: figures(peer),
        rounds_with_equal_text: ours.iter().zip(peer).filter(|(a, b)| text(a) == text(b)).count(),
        rounds: options.rounds,
    })
}

fn figures(rounds: &[Round]) -> Figures {
    let answers = || rounds.iter().flat_map(|round| &round.answers);
    let ttft: Vec<f64> = answers().map(|answer| ms(answer.ttft)).collect();
    let gaps: Vec<f64> = answers().flat_map(|answer| &answer.gaps).map(|gap| ms(*gap)).collect();
    let rates: Vec<f64> = rounds.iter().map(|round| round.tokens() as f64 / round.seconds).collect();
    let cpu: Vec<f64> =
        rounds.iter().map(|round| round.cpu_seconds * 1e3 / round.tokens().max(1) as f64).collect();
    Figures {
        ttft_ms_p50: percentile(&ttft, 50.0),
        ttft_ms_p99: percentile(&ttft, 99.0),
        itl_ms_p50: percentile(&gaps, 50.0),
        itl_ms_p95: percentile(&gaps, 95.0),
        itl_ms_p99: percentile(&gaps, 99.0),
        tokens_per_second: median(&rates),
        cpu_ms_per_token: median(&cpu),
    }
}
