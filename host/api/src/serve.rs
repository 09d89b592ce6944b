//! Owns the connections of one listener: takes them up to a limit, and drains them when told to stop.

use std::io;
use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use sf_core::limits;
use sf_core::ports::Inference;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::routes::{Exposure, router};
use crate::settings::ApiSettings;

/// Serves HTTP on `listener` until `shutdown` is ready, then stops accepting and returns when the requests that run
/// have been answered. How long that may take is the caller's to bound: dropping the future cuts all connections.
///
/// # Errors
///
/// When the listener cannot be used by the event loop. A connection's failure is that connection's.
pub async fn serve(
    listener: std::net::TcpListener,
    inference: Arc<dyn Inference>,
    settings: ApiSettings,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let exposure =
        if listener.local_addr()?.ip().is_loopback() { Exposure::Loopback } else { Exposure::Network };
    let routes = router(inference, settings, exposure);
    let drain = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let has_room = connections.len() < limits::CONNECTIONS_MAX;
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, _)) => connect(stream, &routes, &drain, &mut connections),
                Err(error) => {
                    // A connection that died in the backlog, or no descriptors left: neither ends the server.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(limits::ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    tracing::debug!(open = connections.len(), "draining connections");
    drain.shutdown().await;
    Ok(())
}

fn connect(stream: TcpStream, routes: &Router, drain: &GracefulShutdown, connections: &mut JoinSet<()>) {
    // A token is smaller than a segment; waiting to fill one would hold it back.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was not set");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEADERS_READ_MAX)
        .max_buf_size(limits::CONNECTION_BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes.clone()));
    let connection = drain.watch(connection);
    connections.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended early");
        }
    });
}
