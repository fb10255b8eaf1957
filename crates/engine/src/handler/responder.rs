//! Answering from anywhere.

use super::answer::{Answer, Field};
use super::gone::Gone;
use super::takeover::{StreamHandler, Takeover};
use super::writer::BodyWriter;
use crate::desk::Line;
use crate::server::{Channel, Order};
use dwell_evloop::BlockingStream;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// Answers one request, from any thread and at any time.
///
/// Shape: until it is used or dropped the client waits, at the cost of an entry in the loop's
/// tables. Dropped unused, it answers 500. After the end of the exchange its methods do nothing and
/// return [`Gone`].
///
/// ```
/// use dwell_engine::handler::{Answer, Exchange};
/// use dwell_engine::{Request, Server};
///
/// # let running =
/// Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(|_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
///         let responder = exchange.responder();
///         std::thread::spawn(move || responder.send(Answer::text(200, "from afar")));
///     })?;
/// # let answer = dwell_testkit::ask(running.addresses()[0], "GET / HTTP/1.0\r\n\r\n");
/// # assert!(answer.ends_with("from afar"), "{answer}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Responder {
    channel: Option<Arc<Channel>>,
}

impl Responder {
    pub(super) fn new(channel: Arc<Channel>) -> Self {
        Self {
            channel: Some(channel),
        }
    }

    /// Sends the answer.
    ///
    /// # Errors
    /// [`Gone`]. Success means that the client was there a moment ago, not that the response has
    /// arrived.
    pub fn send(self, answer: Answer) -> Result<(), Gone> {
        self.answer(Order::Send(answer))
    }

    /// Sends an informational answer, such as 103, before the answer itself. More than
    /// [32](crate::desk::INFORMATIONAL_MAX) for one request are dropped.
    ///
    /// # Errors
    /// [`Gone`].
    ///
    /// ```
    /// use dwell_engine::handler::{Answer, Gone, Responder};
    ///
    /// /// Says what the page will need while the page is made.
    /// fn page(responder: Responder, make: impl FnOnce() -> String) -> Result<(), Gone> {
    ///     let link = "</style.css>; rel=preload; as=style";
    ///     responder.informational(103, vec![("Link".into(), link.into())])?;
    ///     responder.send(Answer::text(200, make()))
    /// }
    /// #
    /// # let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    /// # let answer = dwell_testkit::respond_once(request, |responder| {
    /// #     page(responder, || "hello".into())
    /// # });
    /// # assert!(answer.starts_with("HTTP/1.1 103 Early Hints\r\n"), "{answer}");
    /// # assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    /// ```
    pub fn informational(&self, status: u16, fields: Vec<Field>) -> Result<(), Gone> {
        let order = Order::Informational(Answer::of_fields(status, fields));
        match self.channel.as_ref() {
            Some(channel) if channel.order(order) => Ok(()),
            _ => Err(Gone),
        }
    }

    /// Sends the head of the response. Its body, of this length if one is given, comes from the
    /// writer in pieces.
    ///
    /// # Errors
    /// [`Gone`].
    ///
    /// ```
    /// use dwell_engine::handler::{Answer, Responder, TryWriteError};
    ///
    /// /// Sends a table, row by row, from a thread.
    /// fn report(responder: Responder) -> Result<(), TryWriteError> {
    ///     let head = Answer::new(200).field("Content-Type", "text/csv");
    ///     let Ok(mut writer) = responder.stream(head, None) else { return Ok(()) };
    ///     for row in 0..1000 {
    ///         // Waits for a slow client, and ends with one that has left.
    ///         writer.write_blocking(format!("{row},{}\n", row * row))?;
    ///     }
    ///     writer.finish(Vec::new()).map_err(|_| TryWriteError::Gone)
    /// }
    /// #
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::respond_once(request, report);
    /// # assert!(answer.ends_with("\n999,998001\n"), "{answer}");
    /// ```
    pub fn stream(mut self, head: Answer, length: Option<u64>) -> Result<BodyWriter, Gone> {
        match self.channel.take() {
            Some(channel) if channel.answer(Order::Begin(head, length)) => {
                Ok(BodyWriter::new(channel, length))
            }
            _ => Err(Gone),
        }
    }

    /// Sends `answer`, a 101, and hands the connection's bytes to `handler` on its loop from then
    /// on.
    ///
    /// Shape: behind a body that was not read to its end no other protocol begins (RFC 9110 section
    /// 7.8): the client gets 400 then.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn take_over(self, answer: Answer, handler: impl StreamHandler) -> Result<(), Gone> {
        self.order_takeover(answer, Takeover::Loop(Box::new(handler)))
    }

    /// Sends `answer`, a 101, and gives the connection to `run` in a thread of its own, with what
    /// the client has sent beyond its request.
    ///
    /// Shape: as [`take_over`](Self::take_over). A client under TLS gets 501: its socket has
    /// records, which the loop alone can open.
    ///
    /// # Errors
    /// [`Gone`].
    ///
    /// ```
    /// use dwell_engine::handler::{Answer, Gone, Responder};
    /// use std::io::Write;
    ///
    /// /// Gives the socket to a thread that may block.
    /// fn classic(responder: Responder) -> Result<(), Gone> {
    ///     let answer = Answer::new(101).field("Connection", "upgrade").field("Upgrade", "lines");
    ///     responder.take_over_blocking(answer, |mut socket, early| {
    ///         // It is closed at the end of this, whatever came of it.
    ///         let _ = socket.write_all(&early);
    ///     })
    /// }
    /// #
    /// # let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\nhello";
    /// # let answer = dwell_testkit::respond_once(request, classic);
    /// # assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    /// ```
    pub fn take_over_blocking(
        self,
        answer: Answer,
        run: impl FnOnce(BlockingStream, Vec<u8>) + Send + 'static,
    ) -> Result<(), Gone> {
        self.order_takeover(answer, Takeover::Thread(Box::new(run)))
    }

    /// Closes the connection without an answer.
    pub fn abort(self) {
        // A connection that is gone needs no closing.
        let _ = self.answer(Order::Abort);
    }

    /// Returns true if the response is not needed any more; for work that is worth stopping then.
    ///
    /// ```
    /// use dwell_engine::handler::{Answer, Gone, Responder};
    ///
    /// /// Stops long work when its result is not needed any more.
    /// fn work(responder: Responder, steps: u32) -> Result<(), Gone> {
    ///     for _ in 0..steps {
    ///         if responder.is_cancelled() {
    ///             return Err(Gone);
    ///         }
    ///         // One step of it.
    ///     }
    ///     responder.send(Answer::text(200, "done\n"))
    /// }
    /// #
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::respond_once(request, |responder| {
    /// #     work(responder, 3)
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\ndone\n"), "{answer}");
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.channel
            .as_ref()
            .is_none_or(|channel| channel.ended().is_some())
    }

    /// Waits until the response is not needed any more. It is for tasks of another runtime; a
    /// future of [`Exchange::spawn`](super::Exchange::spawn) is dropped at that moment.
    ///
    /// ```
    /// use dwell_engine::handler::Exchange;
    /// use dwell_engine::{Request, Server};
    /// use std::net::TcpStream;
    /// use std::sync::mpsc;
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let tasks = runtime.handle().clone();
    /// let (tell, told) = mpsc::channel();
    /// let handle = move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
    ///     let (responder, tell) = (exchange.responder(), tell.clone());
    ///     tasks.spawn(async move {
    ///         responder.cancelled().await;
    ///         let _ = tell.send("its client has left");
    ///     });
    /// };
    /// let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(handle)?;
    /// # use std::io::Write;
    /// let mut client = TcpStream::connect(running.addresses()[0])?;
    /// client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
    /// drop(client);
    /// assert_eq!(told.recv()?, "its client has left");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn cancelled(&self) {
        poll_fn(|task| match &self.channel {
            Some(channel) => channel.poll_over(task.waker()),
            None => Poll::Ready(()),
        })
        .await;
    }

    /// Returns true if the server is shutting down, which waits for the responses that are owed.
    pub fn is_draining(&self) -> bool {
        let channel = self.channel.as_ref();
        channel.is_some_and(|channel| channel.line().is_draining())
    }

    /// Waits until the server begins to shut down, or the response is not needed any more. A
    /// handler that waits for a change then sends the response it has, so that the server need not
    /// cut it off at its deadline.
    ///
    /// ```
    /// use dwell_engine::handler::{Answer, Exchange};
    /// use dwell_engine::{Request, Server};
    /// use std::io::{Read, Write};
    /// use std::time::Duration;
    ///
    /// let running = Server::builder()
    ///     .listen(([127, 0, 0, 1], 0).into())
    ///     .serve(|_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
    ///         // A long-poll for which there are no news.
    ///         exchange.spawn(|responder| async move {
    ///             responder.draining().await;
    ///             let _ = responder.send(Answer::new(204));
    ///         });
    ///     })?;
    /// let mut client = std::net::TcpStream::connect(running.addresses()[0])?;
    /// client.write_all(b"GET /news HTTP/1.1\r\nHost: a\r\n\r\n")?;
    /// while running.statistics().in_flight == 0 {
    ///     std::thread::yield_now();
    /// }
    /// let shutdown = running.shutdown(Duration::from_secs(60));
    /// assert_eq!(shutdown.cut_requests, 0);
    /// let mut answer = String::new();
    /// client.read_to_string(&mut answer)?;
    /// assert!(answer.starts_with("HTTP/1.1 204 No Content\r\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn draining(&self) {
        poll_fn(|task| match &self.channel {
            Some(channel) => channel.poll_draining(task.waker()),
            None => Poll::Ready(()),
        })
        .await;
    }

    pub(super) fn order_takeover(self, answer: Answer, takeover: Takeover) -> Result<(), Gone> {
        self.answer(Order::TakeOver(answer, takeover))
    }

    fn answer(mut self, order: Order) -> Result<(), Gone> {
        match self.channel.take() {
            Some(channel) if channel.answer(order) => Ok(()),
            _ => Err(Gone),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            let answer = Answer::text(500, "Internal Server Error\n").close_after();
            channel.answer(Order::Send(answer));
        }
    }
}
