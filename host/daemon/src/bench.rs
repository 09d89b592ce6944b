//! `superfluid bench`: loads a server, or one of its own, and prints what its clients saw.

use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sf_load::{
    Arrivals, Bench, Classes, Connections, Lengths, LoadError, OwnServer, Pacing, Report, Route, Run,
    RunOptions, Target, Traffic, WarmUp, free_port, fresh_seed, raise_file_limit,
};
use sf_settings::{BenchServer, BenchSettings};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Fatal;
use crate::{print, say};

/// Warm-up requests of an open loop.
const WARM_UP_OPEN: u32 = 4;

/// Exit code 1 if a request failed and nobody allowed it.
pub(crate) fn bench(settings: &BenchSettings) -> Result<ExitCode, Fatal> {
    let traffic = traffic(settings)?;
    let warm_up = warm_up(settings)?;
    let options = RunOptions {
        timeout: Some(settings.timeout),
        connections: match settings.connections {
            "fresh" => Connections::Fresh,
            "kept" => Connections::Kept,
            _ => Connections::Auto,
        },
        ..RunOptions::default()
    };
    raise_file_limit();
    let stop = stop_on_signal()?;
    let (target, server) = target(settings, &stop)?;
    let server_pid = settings.server_pid.or_else(|| server.as_ref().map(OwnServer::pid));
    let duration = settings.duration;
    let bench = Bench { target, traffic, duration, warm_up, options, server_pid, stop };
    let (run, report) = bench.run().map_err(fatal)?;
    drop(server);
    show(settings, &report)?;
    let failed = report.total.requests.failed > 0;
    if let Some(failure) = run.first_failure() {
        say!("first failure: {failure}");
    }
    hint_at_length(&run, settings);
    Ok(if failed && !settings.allow_failures { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A server that ends answers early measures something else than was asked for.
fn hint_at_length(run: &Run, settings: &BenchSettings) {
    let early = run.records.iter().filter(|record| record.finish_reason.as_deref() == Some("stop")).count();
    if settings.ignore_eos && early > 0 {
        let all = run.records.len();
        say!("note: {early} of {all} answers ended before their length: the server does not take ignore_eos");
    }
}

fn fatal(error: LoadError) -> Fatal {
    if error.is_usage() { Fatal::refused(error) } else { Fatal::failed(error) }
}

fn traffic(settings: &BenchSettings) -> Result<Traffic, Fatal> {
    let pacing = match (settings.rate, settings.arrivals) {
        (None, None) => Pacing::Clients(settings.clients),
        (None, Some(_)) => {
            return Err(fatal(LoadError::Contradiction("--arrivals has no meaning without --rate")));
        }
        (Some(rate), arrivals) => Pacing::Rate {
            per_second: f64::from(rate),
            arrivals: if arrivals == Some("constant") { Arrivals::Constant } else { Arrivals::Poisson },
        },
    };
    if settings.prefix_groups.is_some() && settings.shared_prefix == 0 {
        return Err(fatal(LoadError::Contradiction(
            "--prefix-groups has no meaning without --shared-prefix",
        )));
    }
    let classes = settings.classes.as_deref().map_or(Ok(Classes::default()), Classes::read).map_err(fatal)?;
    let body = settings.body.as_deref().unwrap_or("{}");
    let extra = serde_json::from_str(body).map_err(|_| {
        let accepts = "a JSON object, e.g. '{\"top_k\":40}'";
        fatal(LoadError::Setting { setting: "--body", value: body.to_owned(), accepts })
    })?;
    Ok(Traffic {
        pacing,
        requests: settings.requests.map(u64::from),
        route: if settings.chat { Route::Chat } else { Route::Completions },
        streamed: settings.stream,
        prompts: Lengths::read(&settings.prompt_tokens, "--prompt-tokens").map_err(fatal)?,
        answers: Lengths::read(&settings.answer_tokens, "--answer-tokens").map_err(fatal)?,
        shared_prefix: settings.shared_prefix,
        prefix_groups: settings.prefix_groups.unwrap_or(1),
        classes,
        temperature: settings.temperature,
        top_p: settings.top_p,
        ignore_eos: settings.ignore_eos,
        model: settings.model.clone(),
        extra,
        seed: settings.seed.map_or_else(fresh_seed, u64::from),
    })
}

fn warm_up(settings: &BenchSettings) -> Result<WarmUp, Fatal> {
    match &settings.warm_up {
        Some(text) => WarmUp::read(text).map_err(fatal),
        None if settings.rate.is_some() => Ok(WarmUp::Requests(WARM_UP_OPEN)),
        None => Ok(WarmUp::Requests(settings.clients)),
    }
}

/// The server to load, and the one that was started for it.
fn target(settings: &BenchSettings, stop: &AtomicBool) -> Result<(Target, Option<OwnServer>), Fatal> {
    let dressed = |mut target: Target| {
        if let Some(key) = &settings.api_key {
            target = target.with_key(key.reveal());
        }
        settings.headers.iter().try_fold(target, |target, line| target.with_header(line)).map_err(fatal)
    };
    match &settings.server {
        BenchServer::Url(url) => Ok((dressed(Target::new(url).map_err(fatal)?)?, None)),
        BenchServer::Own { model, serve } => {
            let port = free_port().map_err(fatal)?;
            let target = dressed(Target::local(port))?;
            let mut command = own_server(model, serve, port)?;
            if let Some(key) = &settings.api_key {
                command.env("SUPERFLUID_API_KEY", key.reveal());
            }
            let server = OwnServer::start(command, &target, stop).map_err(fatal)?;
            Ok((target, Some(server)))
        }
    }
}

fn own_server(model: &str, serve: &[String], port: u16) -> Result<Command, Fatal> {
    let exe = std::env::current_exe()
        .map_err(|error| Fatal::failed(format!("cannot find this program on the disk: {error}")))?;
    let mut command = Command::new(exe);
    command.args(["serve", model, "--http", &format!("127.0.0.1:{port}")]).args(serve);
    // A line per request would be measured too. A flag after -- wins.
    if std::env::var_os("SUPERFLUID_LOG_FILTER").is_none() {
        command.env("SUPERFLUID_LOG_FILTER", "warn");
    }
    Ok(command)
}

/// The table, and the document where it was asked for. Stdout carries one of them.
fn show(settings: &BenchSettings, report: &Report) -> Result<(), Fatal> {
    match settings.json.as_deref() {
        Some(path) if path == Path::new("-") => {
            if std::io::stderr().is_terminal() {
                say!("{report}");
            }
            print(&report.json())
        }
        Some(path) => {
            print(&report.to_string())?;
            std::fs::write(path, report.json())
                .map_err(|error| Fatal::failed(format!("cannot write {}: {error}", path.display())))
        }
        None => print(&report.to_string()),
    }
}

/// SIGINT and SIGTERM end the run; what there is by then is printed.
pub(crate) fn stop_on_signal() -> Result<Arc<AtomicBool>, Fatal> {
    let failed = |error| Fatal::failed(format!("cannot watch for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    drop(guard);
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let listen = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            told.store(true, Ordering::Relaxed);
        });
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen)
        .map_err(|error| Fatal::failed(format!("cannot start a thread: {error}")))?;
    Ok(stop)
}
