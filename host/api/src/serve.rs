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
use crate::socket;

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
    let (socket, watch) = socket::split(stream);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEADERS_READ_MAX)
        .max_buf_size(limits::CONNECTION_BUFFER_BYTES_MAX)
        // What leaves at once is small: copied into one buffer it costs less than a list of them.
        .writev(false)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(routes.clone()));
    let connection = drain.watch(connection);
    connections.spawn(async move {
        tokio::select! {
            // What can be read or written first decides: a request and the end behind it may come in one go.
            biased;
            result = connection => if let Err(error) = result {
                tracing::debug!(%error, "a connection ended early");
            },
            () = watch.gone() => tracing::debug!("a client went away"),
        }
    });
}
