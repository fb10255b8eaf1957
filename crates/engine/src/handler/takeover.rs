//! Connections that have left HTTP for a protocol of the handler's own.

use super::gone::Gone;
use super::outlet::{Outlet, SendError};
use super::web_socket::WebSocketHandler;
use crate::components::Order;
use crate::streams::{StreamEnd, StreamRef};
use crate::websocket::Negotiated;
use bytes::Bytes;
use dwell_evloop::BlockingStream;

/// Speaks a protocol of its own on a connection that has left HTTP, on its loop.
///
/// Shape: any `FnMut(&mut StreamRef, &[u8]) -> usize` is one. Called on the loop, so it must not
/// block. A handler that panics loses its connection.
///
/// ```
/// use dwell_engine::handler::{Answer, Exchange, StreamHandler, StreamSender};
/// use dwell_engine::{Request, Server, StreamEnd, StreamRef};
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use std::sync::mpsc;
///
/// /// Sends input back, and reports the end.
/// struct Echo(mpsc::Sender<StreamEnd>);
///
/// impl StreamHandler for Echo {
///     fn opened(&mut self, _: &mut StreamRef<'_>, sender: StreamSender) {
///         std::thread::spawn(move || sender.write("from a thread\n"));
///     }
///
///     fn data(&mut self, stream: &mut StreamRef<'_>, input: &[u8]) -> usize {
///         if stream.write(input) { input.len() } else { 0 }
///     }
///
///     fn drained(&mut self, stream: &mut StreamRef<'_>) {
///         assert_eq!(stream.queued_bytes(), 0);
///     }
///
///     fn draining(&mut self, stream: &mut StreamRef<'_>) {
///         stream.write(b"the server ends\n");
///         stream.close();
///     }
///
///     fn closed(&mut self, end: StreamEnd) {
///         let _ = self.0.send(end);
///     }
/// }
///
/// let (tell, told) = mpsc::channel();
/// let running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
///         exchange.take_over(Answer::new(101), Echo(tell.clone()));
///     })?;
/// let mut client = TcpStream::connect(running.addresses()[0])?;
/// client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nhello")?;
/// client.shutdown(std::net::Shutdown::Write)?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.starts_with("HTTP/1.1 101") && answer.contains("hello"));
/// assert!(told.recv()?.is_orderly());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait StreamHandler: Send + 'static {
    /// The connection has left HTTP; `sender` writes to it from any thread.
    fn opened(&mut self, stream: &mut StreamRef<'_>, sender: StreamSender) {
        let _ = (stream, sender);
    }

    /// Bytes came; returns how many of `input` were used.
    ///
    /// Shape: as [`StreamApp::data`](crate::StreamApp::data); what is left is handed over again
    /// with what comes next, up to 32 KiB.
    fn data(&mut self, stream: &mut StreamRef<'_>, input: &[u8]) -> usize;

    /// The peer sends no more. By default the stream is closed after what is queued for it.
    fn peer_closed(&mut self, stream: &mut StreamRef<'_>) {
        stream.close();
    }

    /// All that was queued is out, after a time in which something was.
    fn drained(&mut self, stream: &mut StreamRef<'_>) {
        let _ = stream;
    }

    /// The server ends. By default the stream is closed after what is queued for it; one that
    /// lives on is cut at the server's deadline.
    fn draining(&mut self, stream: &mut StreamRef<'_>) {
        stream.close();
    }

    /// The connection is gone.
    fn closed(&mut self, end: StreamEnd) {
        let _ = end;
    }
}

impl<F> StreamHandler for F
where
    F: FnMut(&mut StreamRef<'_>, &[u8]) -> usize + Send + 'static,
{
    fn data(&mut self, stream: &mut StreamRef<'_>, input: &[u8]) -> usize {
        self(stream, input)
    }
}

/// Makes a [`StreamHandler`] of a closure, whose arguments need no types then.
///
/// ```
/// use dwell_engine::Server;
/// use dwell_engine::handler::{Answer, handler_fn, stream_fn};
///
/// let running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(handler_fn(|_, exchange| {
///         exchange.take_over(Answer::new(101), stream_fn(|stream, input| {
///             stream.write(input);
///             input.len()
///         }));
///     }))?;
/// # let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\nhello";
/// # let answer = dwell_testkit::ask_and_finish(running.addresses()[0], request);
/// # assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
pub fn stream_fn<F>(handler: F) -> F
where
    F: FnMut(&mut StreamRef<'_>, &[u8]) -> usize + Send + 'static,
{
    handler
}

/// The program that takes a connection over.
pub(crate) enum Takeover {
    Loop(Box<dyn StreamHandler>),
    Thread(Box<dyn FnOnce(BlockingStream, Vec<u8>) + Send>),
    WebSocket(Negotiated, Box<dyn WebSocketHandler>),
}

/// Writes to a connection that has left HTTP, from any thread.
///
/// Shape: what it does after the end of the connection does nothing. Until its loop takes them, up
/// to [`output_bytes`](crate::ServerBuilder::output_bytes) and one piece wait; then they stand in
/// the connection's queue, and a write that the full queue refuses is lost, and with it the
/// connection.
///
/// ```
/// use dwell_engine::handler::{Answer, Exchange, SendError, StreamHandler, StreamSender};
/// use dwell_engine::{Request, Server, StreamRef};
///
/// /// Counts down; a peer that has left is not noticed here.
/// fn count_down(sender: &StreamSender, from: u32) -> Result<(), SendError> {
///     if from == 0 {
///         return Ok(sender.abort()?);
///     }
///     for number in (1..=from).rev() {
///         sender.write(format!("{number}\n"))?;
///     }
///     Ok(sender.close()?)
/// }
///
/// struct Count;
///
/// impl StreamHandler for Count {
///     fn opened(&mut self, _: &mut StreamRef<'_>, sender: StreamSender) {
///         std::thread::spawn(move || count_down(&sender, 3));
///     }
///
///     fn data(&mut self, _: &mut StreamRef<'_>, input: &[u8]) -> usize {
///         input.len()
///     }
/// }
///
/// let handler = |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
///     exchange.take_over(Answer::new(101), Count);
/// };
/// let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(handler)?;
/// # let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// # let answer = dwell_testkit::ask(running.addresses()[0], request);
/// # assert!(answer.ends_with("\r\n\r\n3\n2\n1\n"), "{answer}");
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct StreamSender(pub(crate) Outlet);

impl StreamSender {
    /// Writes `bytes`.
    ///
    /// # Errors
    /// [`SendError`]; nothing of `bytes` was taken. A connection that is gone is not noticed.
    pub fn write(&self, bytes: impl Into<Bytes>) -> Result<(), SendError> {
        let bytes = bytes.into();
        self.0.write(bytes.len(), Order::Write(bytes))
    }

    /// Closes the connection in order: what is queued goes out first.
    ///
    /// # Errors
    /// [`Gone`] when the loop has ended, or takes no more messages.
    pub fn close(&self) -> Result<(), Gone> {
        self.0.order(Order::Close(None, String::new()))
    }

    /// Ends the connection without sending what is queued.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn abort(&self) -> Result<(), Gone> {
        self.0.order(Order::Abort)
    }
}
