//! A server that runs, and its end.

use super::state::ServerState;
use super::statistics::Statistics;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A server that runs; dropped, it ends at once.
///
/// ```
/// use dwell_engine::handler::Exchange;
/// use dwell_engine::{Request, Running, Server};
/// use std::time::Duration;
///
/// let running: Running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(|_: &Request<'_>, exchange: &mut Exchange<'_, '_>| exchange.text(200, "hello"))?;
/// assert_ne!(running.addresses()[0].port(), 0);
/// assert_eq!(running.paths().next(), None);
/// # let answer = dwell_testkit::ask(running.addresses()[0], "GET / HTTP/1.0\r\n\r\n");
/// # assert!(answer.ends_with("hello\n"), "{answer}");
/// assert_eq!(running.statistics().requests, 1);
/// running.shutdown(Duration::from_secs(5));
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
#[derive(Debug)]
pub struct Running {
    addresses: Vec<SocketAddr>,
    paths: Vec<PathBuf>,
    server: Arc<ServerState>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// The result of a server's shutdown.
///
/// ```
/// use dwell_engine::Shutdown;
///
/// /// Returns the exit code of a program.
/// fn exit_code(shutdown: &Shutdown) -> u8 {
///     let is_clean = shutdown.cut_connections == 0 && shutdown.cut_requests == 0;
///     u8::from(!is_clean || shutdown.failed_loops > 0)
/// }
/// assert_eq!(exit_code(&Shutdown::default()), 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Shutdown {
    /// Connections that were cut off at the deadline.
    pub cut_connections: usize,
    /// Requests that waited for the rest of their answer then.
    pub cut_requests: usize,
    /// Loops that had ended before, by an error of the system or of ours.
    pub failed_loops: usize,
}

impl Running {
    pub(super) fn new(
        addresses: Vec<SocketAddr>,
        paths: Vec<PathBuf>,
        server: Arc<ServerState>,
    ) -> Self {
        Self {
            addresses,
            paths,
            server,
            threads: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, thread: JoinHandle<io::Result<()>>) {
        self.threads.push(thread);
    }

    /// The TCP addresses it listens on, in the order they were given, their ports resolved.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The unix sockets it listens on.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Returns the counters of the server.
    pub fn statistics(&self) -> Statistics {
        self.server.statistics()
    }

    /// Ends it in order, within `deadline`.
    ///
    /// Shape: no more clients are accepted. Connections between two requests are closed at once,
    /// others behind the response that is owed; the rest is cut off at the deadline. Handlers that
    /// wait for a change learn of it by [`Responder::draining`] and [`BodyWriter::draining`],
    /// connections that have left HTTP by [`StreamHandler::draining`]. Waits for all of this, but
    /// not for handlers that still block on the worker pool, nor for connections that live on
    /// threads of their own. A handler that blocks its loop, which none may, holds this up.
    ///
    /// [`BodyWriter::draining`]: crate::handler::BodyWriter::draining
    /// [`Responder::draining`]: crate::handler::Responder::draining
    /// [`StreamHandler::draining`]: crate::handler::StreamHandler::draining
    pub fn shutdown(mut self, deadline: Duration) -> Shutdown {
        self.server.drain(deadline);
        self.join()
    }

    /// Waits until it ends, by a signal it [watches](crate::ServerBuilder::shutdown_on_signals) or
    /// an error of the system.
    pub fn wait(mut self) -> Shutdown {
        self.join()
    }

    fn join(&mut self) -> Shutdown {
        let joined = self.threads.drain(..).map(JoinHandle::join);
        let failed_loops = joined.filter(|end| !matches!(end, Ok(Ok(())))).count();
        self.server.pool().close();
        let (cut_connections, cut_requests) = self.server.cut();
        Shutdown {
            cut_connections,
            cut_requests,
            failed_loops,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.server.drain(Duration::ZERO);
            self.join();
        }
    }
}
