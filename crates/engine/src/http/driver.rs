//! The driver of a loop that has HTTP on it and nothing else.

use super::{Http, Kinds};
use crate::app::App;
use crate::limits::Limits;
use dwell_evloop::{Context, Driver, ListenOptions, Readiness, Token, bind_group};
use std::io;
use std::net::SocketAddr;

/// The driver of a loop that has one [`Http`] and its app on it, and nothing else.
///
/// ```
/// use dwell_engine::{HttpDriver, Limits, Outcome, Reply, Request};
/// use dwell_evloop::{Context, EventLoop};
/// use std::time::Duration;
///
/// let app = |_: &mut Context, request: &Request<'_>, reply: &mut Reply<'_>| {
///     reply.text(200, request.head.path);
///     Outcome::Answered
/// };
/// let mut event_loop = EventLoop::new()?;
/// let mut driver = HttpDriver::new(Limits::default(), app);
/// let address = driver.listen(event_loop.context(), ([127, 0, 0, 1], 0).into())?;
///
/// let client = std::thread::spawn(move || -> std::io::Result<String> {
///     use std::io::Write;
///     let mut stream = std::net::TcpStream::connect(address)?;
///     stream.write_all(b"GET /here HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
///     std::io::read_to_string(stream)
/// });
/// while !client.is_finished() {
///     event_loop.turn(&mut driver, Some(Duration::from_millis(10)))?;
/// }
/// let answer = client.join().expect("it does not panic")?;
/// assert!(answer.ends_with("\r\n\r\n/here\n"));
/// assert_eq!(driver.http.connections(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct HttpDriver<A> {
    /// The connections.
    pub http: Http,
    /// The app that answers the requests.
    pub app: A,
}

/// The kinds of a loop that this component has to itself.
const KINDS: Kinds = Kinds {
    listener: 0,
    connection: 1,
};

impl<A: App> HttpDriver<A> {
    /// A component without listeners, and its app.
    ///
    /// # Panics
    /// As [`Http::new`].
    pub fn new(limits: Limits, app: A) -> Self {
        Self {
            http: Http::new(KINDS, limits),
            app,
        }
    }

    /// Listens on `address`, of which port 0 takes a free one; returns where that is.
    ///
    /// # Errors
    /// When the address cannot be had, and as [`Http::listen`].
    pub fn listen(&mut self, context: &mut Context, address: SocketAddr) -> io::Result<SocketAddr> {
        let mut bound = address;
        for listener in bind_group(address, 1, ListenOptions::default())? {
            bound = self.http.listen(context, listener)?.unwrap_or(bound);
        }
        Ok(bound)
    }
}

impl<A: App> Driver for HttpDriver<A> {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.http.ready(context, token, readiness, &mut self.app);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.http.expired(context, token, &mut self.app);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}
