//! One client's socket: read and written by hyper, and watched beside it for the client's going away.
//!
//! While hyper answers a request it looks for the end of the connection only as long as nothing else has come in. A client
//! that sent one byte more, say the next request, and then went away would keep its lane until its answer is complete.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::sockopt;
use sf_core::limits::{PEER_PROBE_PAUSE, PEER_PROBES_MAX, PEER_SILENCE_MAX};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The end of the socket that hyper gets.
pub(crate) struct Socket(Arc<TcpStream>);

/// The end that only waits.
pub(crate) struct Watch(Arc<TcpStream>);

/// Makes a fresh connection fit for streams, and splits it.
pub(crate) fn split(stream: TcpStream) -> (Socket, Watch) {
    // A token is smaller than a segment; waiting to fill one would hold it back.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was not set");
    }
    // A machine that lost its power sends no end; without this a request of it that waits would wait for nobody.
    if let Err(error) = probe_silent_peers(&stream) {
        tracing::debug!(%error, "keep-alive was not set");
    }
    let stream = Arc::new(stream);
    (Socket(Arc::clone(&stream)), Watch(stream))
}

fn probe_silent_peers(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PEER_SILENCE_MAX)?;
    sockopt::set_tcp_keepintvl(stream, PEER_PROBE_PAUSE)?;
    sockopt::set_tcp_keepcnt(stream, PEER_PROBES_MAX)
}

impl Watch {
    /// Returns once the client has closed the connection or its sending side.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) async fn gone(self) {
        // Readable would be true for every byte that hyper leaves in the socket. Urgent data is not registered for, so
        // that this wakes for the end and for nothing else.
        drop(self.0.ready(tokio::io::Interest::PRIORITY).await);
    }

    /// Never returns: here there is only what hyper sees.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) async fn gone(self) {
        std::future::pending().await
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write) {
            // The client was faster.
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}
