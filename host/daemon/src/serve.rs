//! `superfluid serve`: bind first, then choose and load, answer until told to stop, drain.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sf_api::{ApiKey, ApiSettings};
use sf_core::limits::CONNECTIONS_MAX;
use sf_core::ports::Inference;
use sf_service::Service;
use sf_settings::{HttpSettings, ServeSettings};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::exit::Fatal;
use crate::prepare::{Prepared, Preparer};
use crate::say;

/// Bucket bounds of all latency histograms, seconds.
const SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0];

/// Runs the server until it is told to stop.
pub(crate) fn serve(settings: &ServeSettings, preparer: &Preparer) -> Result<(), Fatal> {
    for notice in &settings.notices {
        say!("note: {notice}");
    }
    // A taken port fails before anything loads.
    let listener = settings.http.listen.as_ref().map(bind).transpose()?;
    let metrics = install_metrics()?;
    let mut specs = Vec::new();
    for model in &settings.models {
        let Prepared { spec, lines } = preparer.prepare(model, settings.models.len())?;
        for line in lines {
            say!("{line}");
        }
        specs.push(spec);
    }
    let service =
        Service::start(specs).map_err(|error| Fatal::failed(format!("cannot start a thread: {error}")))?;
    if settings.scheduling.os_pressure != Some(false) {
        service
            .watch_os_pressure()
            .map_err(|error| Fatal::failed(format!("cannot start a thread: {error}")))?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(http_threads())
        .thread_name("http")
        .enable_all()
        .build()
        .map_err(|error| Fatal::failed(format!("cannot start the HTTP threads: {error}")))?;
    runtime.block_on(run(settings, listener, service.shared(), metrics))
}

/// HTTP work is small beside the engine's, and every wake of a second thread costs a switch: half of the cores, and at most
/// four.
fn http_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2).clamp(1, 4)
}

fn bind(address: &sf_settings::ListenAddress) -> Result<TcpListener, Fatal> {
    let refused = |error: std::io::Error| {
        Fatal::failed(format!("cannot listen on {address}: {error}\n  hint: choose another with --port"))
    };
    let listener = TcpListener::bind((address.host.as_str(), address.port)).map_err(refused)?;
    // The standard library's backlog is 128: of a larger burst, the rest would wait a second for its next attempt.
    rustix::net::listen(&listener, CONNECTIONS_MAX as i32).map_err(|error| refused(error.into()))?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok(listener)
}

fn install_metrics() -> Result<PrometheusHandle, Fatal> {
    let failed = |error: metrics_exporter_prometheus::BuildError| {
        Fatal::failed(format!("cannot set up metrics: {error}"))
    };
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
        .map_err(failed)?
        .install_recorder()
        .map_err(failed)
}

async fn run(
    settings: &ServeSettings,
    listener: Option<TcpListener>,
    service: Arc<Service>,
    metrics: PrometheusHandle,
) -> Result<(), Fatal> {
    let mut stop = StopSignals::new()?;
    let (shutdown, told) = oneshot::channel::<()>();
    let bound = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let server = listener.map(|listener| {
        let inference: Arc<dyn Inference> = Arc::<Service>::clone(&service);
        let api = api_settings(&settings.http, metrics.clone());
        tokio::spawn(sf_api::serve(listener, inference, api, async {
            // An error means that the sender is gone, and then it is time to stop as well.
            drop(told.await);
        }))
    });
    // Histograms keep raw samples until somebody asks; without a scrape they must still be folded.
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            metrics.run_upkeep();
        }
    });
    tokio::select! {
        ready = service.wait_ready() => {
            ready.map_err(|(model, reason)| Fatal::failed(format!("cannot load {model}: {reason}")))?;
            announce(&settings.http, bound);
        }
        () = stop.next() => return Ok(()),
    }
    stop.next().await;
    drain(settings.http.drain_timeout, &service, shutdown, server, &mut stop).await;
    Ok(())
}

fn announce(http: &HttpSettings, bound: Option<SocketAddr>) {
    let Some(bound) = bound else {
        say!("ready; not listening (--no-http)");
        return;
    };
    let auth = if http.api_key.is_some() { "an API key is required" } else { "no authentication" };
    say!("ready; listening on http://{bound}, {auth}");
    if http.api_key.is_none() && !bound.ip().is_loopback() {
        say!("warning: {bound} is reachable from other machines and authentication is off; set --api-key");
    }
}

async fn drain(
    limit: Duration,
    service: &Service,
    shutdown: oneshot::Sender<()>,
    server: Option<tokio::task::JoinHandle<std::io::Result<()>>>,
    stop: &mut StopSignals,
) {
    say!("stopping: no new requests; running ones may finish within {} s", limit.as_secs());
    service.drain();
    // The receiver lives in the server's task; without a server there is nobody to tell.
    let _ = shutdown.send(());
    let Some(server) = server else { return };
    tokio::select! {
        _ = server => say!("stopped"),
        () = tokio::time::sleep(limit) => say!("stopped; answers still running after {} s were cut", limit.as_secs()),
        () = stop.next() => say!("stopped at once"),
    }
}

fn api_settings(http: &HttpSettings, metrics: PrometheusHandle) -> ApiSettings {
    ApiSettings {
        api_key: http.api_key.as_ref().map(|key| ApiKey::new(key.reveal())),
        request_timeout: http.request_timeout,
        default_class: http.default_class,
        qos_header: http.qos_header,
        metrics: Some(Arc::new(move || metrics.render())),
    }
}

/// SIGTERM and SIGINT.
struct StopSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl StopSignals {
    fn new() -> Result<Self, Fatal> {
        let failed = |error| Fatal::failed(format!("cannot watch for signals: {error}"));
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
