//! The body of an answer, written in pieces from anywhere.

use super::answer::Field;
use super::gone::Gone;
use crate::desk::{Line, Refusal};
use crate::server::{Channel, Order};
use bytes::Bytes;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, Write};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Writes the body of an answer in pieces, from any thread.
///
/// Shape: what the client has not taken waits, up to
/// [`output_bytes`](crate::ServerBuilder::output_bytes); a full queue refuses
/// [`try_write`](Self::try_write) and holds up [`write_blocking`](Self::write_blocking). Dropped
/// before [`finish`](Self::finish), it cuts the connection, so that the client does not take the
/// answer for whole. As a [`Write`] it blocks.
///
/// ```
/// use dwell_engine::handler::{Answer, BodyWriter, Exchange, TryWriteError};
/// use dwell_engine::{Request, Server};
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use std::sync::mpsc;
///
/// /// Gives a piece to the clients that keep up. Those that have left are removed.
/// fn publish(writers: &mut Vec<BodyWriter>, piece: &bytes::Bytes) {
///     writers.retain_mut(|writer| {
///         let written = writer.try_write(piece.clone());
///         matches!(written, Ok(()) | Err(TryWriteError::Full(_))) && !writer.is_cancelled()
///     });
/// }
///
/// let (tell, told) = mpsc::channel();
/// let running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
///         let head = Answer::new(200).close_after();
///         if let Ok(writer) = exchange.responder().stream(head, None) {
///             let _ = tell.send(writer);
///         }
///     })?;
/// let mut client = TcpStream::connect(running.addresses()[0])?;
/// client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
/// let mut writers = vec![told.recv()?];
/// publish(&mut writers, &"news".into());
/// for writer in writers {
///     writer.finish(Vec::new())?;
/// }
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.ends_with("\r\n\r\n4\r\nnews\r\n0\r\n\r\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BodyWriter {
    channel: Option<Arc<Channel>>,
    /// The rest of the announced size.
    left: Option<u64>,
}

/// Reasons why a piece was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TryWriteError {
    /// The client has yet to take what waits for it; the piece is given back.
    Full(Bytes),
    /// The client has left, or the exchange has ended otherwise.
    Gone,
    /// The piece goes beyond the announced size.
    TooLong {
        /// The rest of the announced size.
        limit: u64,
        /// The size of the piece.
        length: u64,
    },
}

impl fmt::Display for TryWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("the queue of this answer is full"),
            Self::Gone => Gone.fmt(f),
            Self::TooLong { limit, length } => {
                write!(
                    f,
                    "piece exceeds {limit} bytes left of the announced length: {length}"
                )
            }
        }
    }
}

impl std::error::Error for TryWriteError {}

impl From<TryWriteError> for io::Error {
    fn from(error: TryWriteError) -> Self {
        let kind = match error {
            TryWriteError::Full(_) => io::ErrorKind::WouldBlock,
            TryWriteError::Gone => io::ErrorKind::BrokenPipe,
            TryWriteError::TooLong { .. } => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

impl BodyWriter {
    pub(super) fn new(channel: Arc<Channel>, length: Option<u64>) -> Self {
        Self {
            channel: Some(channel),
            left: length,
        }
    }

    /// Writes a piece, if the queue is not full.
    ///
    /// Shape: nothing waits for anything. One piece may take the queue beyond its bound.
    ///
    /// # Errors
    /// [`TryWriteError`]; nothing of the piece was taken.
    pub fn try_write(&mut self, piece: impl Into<Bytes>) -> Result<(), TryWriteError> {
        let piece = piece.into();
        let length = piece.len() as u64;
        if let Some(limit) = self.left
            && length > limit
        {
            return Err(TryWriteError::TooLong { limit, length });
        }
        let Some(channel) = &self.channel else {
            return Err(TryWriteError::Gone);
        };
        if piece.is_empty() {
            return Ok(());
        }
        match channel.write(piece) {
            Ok(()) => {
                self.left = self.left.map(|left| left - length);
                Ok(())
            }
            Err((Refusal::Full, piece)) => Err(TryWriteError::Full(piece)),
            Err((Refusal::Gone, _)) => Err(TryWriteError::Gone),
        }
    }

    /// Writes a piece, waiting until the queue takes it.
    ///
    /// # Errors
    /// [`TryWriteError`]; `Full` only on the loop of the exchange, where waiting would be for ever.
    pub fn write_blocking(&mut self, piece: impl Into<Bytes>) -> Result<(), TryWriteError> {
        let mut piece = piece.into();
        loop {
            match self.try_write(piece) {
                Err(TryWriteError::Full(refused)) => piece = refused,
                other => return other,
            }
            let Some(channel) = self
                .channel
                .as_ref()
                .filter(|channel| !channel.line().is_here())
            else {
                return Err(TryWriteError::Full(piece));
            };
            if !channel.wait_writable() {
                return Err(TryWriteError::Gone);
            }
        }
    }

    /// Writes a piece as soon as the queue takes it.
    ///
    /// # Errors
    /// [`TryWriteError`], but for `Full`.
    ///
    /// ```
    /// use dwell_engine::Request;
    /// use dwell_engine::handler::{Answer, Exchange};
    /// use std::future::poll_fn;
    ///
    /// /// As much as the client takes, on the loop.
    /// fn handle(_: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    ///     exchange.spawn(|responder| async move {
    ///         let Ok(mut writer) = responder.stream(Answer::new(200), None) else { return };
    ///         for number in 0..10_000_u32 {
    ///             if writer.write_async(format!("{number}\n")).await.is_err() {
    ///                 return;
    ///             }
    ///         }
    ///         // Waits as `write_async` does, for a piece that is made only when it will be taken.
    ///         if poll_fn(|task| writer.poll_writable(task)).await.is_ok() {
    ///             let _ = writer.finish(Vec::new());
    ///         }
    ///     });
    /// }
    /// #
    /// # use dwell_engine::Server;
    /// # let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(handle)?;
    /// # let answer = dwell_testkit::ask(running.addresses()[0], "GET / HTTP/1.0\r\n\r\n");
    /// # assert!(answer.ends_with("\n9999\n"), "{answer}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn write_async(&mut self, piece: impl Into<Bytes>) -> Result<(), TryWriteError> {
        let mut piece = piece.into();
        loop {
            match self.try_write(piece) {
                Err(TryWriteError::Full(refused)) => piece = refused,
                other => return other,
            }
            poll_fn(|task| self.poll_writable(task)).await?;
        }
    }

    /// Ready when a piece would be taken.
    ///
    /// # Errors
    /// [`TryWriteError::Gone`].
    pub fn poll_writable(&self, task: &mut Context<'_>) -> Poll<Result<(), TryWriteError>> {
        let Some(channel) = &self.channel else {
            return Poll::Ready(Err(TryWriteError::Gone));
        };
        match channel.poll_writable(task.waker()) {
            None => Poll::Ready(Ok(())),
            Some(Refusal::Gone) => Poll::Ready(Err(TryWriteError::Gone)),
            Some(Refusal::Full) => Poll::Pending,
        }
    }

    /// Ends the answer; the trailer fields go out where it is chunked, and nowhere else.
    ///
    /// Shape: one that is shorter than announced is cut off by closing the connection.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn finish(mut self, trailers: Vec<Field>) -> Result<(), Gone> {
        match self.channel.take() {
            Some(channel) if channel.order(Order::Finish(trailers)) => Ok(()),
            _ => Err(Gone),
        }
    }

    /// Returns true if the server is shutting down, which waits for open streams: end them then.
    ///
    /// ```
    /// use dwell_engine::handler::BodyWriter;
    ///
    /// /// Ends the streams of a server that shuts down.
    /// fn beat(writers: Vec<BodyWriter>) -> Vec<BodyWriter> {
    ///     let (ending, mut going_on): (Vec<_>, Vec<_>) =
    ///         writers.into_iter().partition(BodyWriter::is_draining);
    ///     for writer in ending {
    ///         // A client that has left meanwhile needs no end.
    ///         let _ = writer.finish(Vec::new());
    ///     }
    ///     going_on.retain_mut(|writer| writer.try_write(":\n\n").is_ok());
    ///     going_on
    /// }
    /// #
    /// # use dwell_engine::handler::{Answer, Exchange};
    /// # use dwell_engine::{Request, Server};
    /// # let (tell, told) = std::sync::mpsc::channel();
    /// # let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(
    /// #     move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
    /// #         let writer = exchange.responder().stream(Answer::new(200), None);
    /// #         let _ = tell.send(writer.expect("its client waits"));
    /// #     },
    /// # )?;
    /// # let address = running.addresses()[0];
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let client = std::thread::spawn(move || dwell_testkit::ask(address, request));
    /// # let mut writers = beat(vec![told.recv()?]);
    /// # assert_eq!(writers.len(), 1);
    /// # let patience = std::time::Duration::from_secs(20);
    /// # let end = std::thread::spawn(move || running.shutdown(patience));
    /// # while !writers.is_empty() {
    /// #     writers = beat(writers);
    /// #     std::thread::yield_now();
    /// # }
    /// # assert_eq!(end.join().expect("it does not panic").cut_requests, 0);
    /// # assert!(client.join().expect("it does not panic").contains(":\n\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_draining(&self) -> bool {
        let channel = self.channel.as_ref();
        channel.is_some_and(|channel| channel.line().is_draining())
    }

    /// Waits until the server begins to shut down, or the exchange has ended.
    ///
    /// ```
    /// use dwell_engine::Request;
    /// use dwell_engine::handler::{Answer, Exchange};
    ///
    /// /// A stream of events that ends in order when the server does.
    /// fn events(_: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    ///     exchange.spawn(|responder| async move {
    ///         let head = Answer::new(200).field("Content-Type", "text/event-stream");
    ///         let Ok(mut writer) = responder.stream(head, None) else { return };
    ///         if writer.write_async("data: hello\n\n").await.is_ok() {
    ///             writer.draining().await;
    ///             let _ = writer.finish(Vec::new());
    ///         }
    ///     });
    /// }
    /// #
    /// # use dwell_engine::Server;
    /// # use std::io::{Read, Write};
    /// # let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(events)?;
    /// # let mut client = std::net::TcpStream::connect(running.addresses()[0])?;
    /// # client.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    /// # client.read_exact(&mut [0])?;
    /// # let shutdown = running.shutdown(std::time::Duration::from_secs(20));
    /// # assert_eq!(shutdown.cut_requests, 0);
    /// # assert!(std::io::read_to_string(client)?.ends_with("\r\n\r\ndata: hello\n\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn draining(&self) {
        poll_fn(|task| match &self.channel {
            Some(channel) => channel.poll_draining(task.waker()),
            None => Poll::Ready(()),
        })
        .await;
    }

    /// Returns true if the exchange has ended.
    pub fn is_cancelled(&self) -> bool {
        self.channel
            .as_ref()
            .is_none_or(|channel| channel.ended().is_some())
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_blocking(Bytes::copy_from_slice(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            channel.order(Order::Abort);
        }
    }
}
