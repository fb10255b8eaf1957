//! The seam: what a program on raw streams implements.

use super::{StreamEnd, StreamRef};
use dwell_evloop::{Context, Token};

/// A program on raw streams: it is called for the events of each of them.
///
/// Shape: every stream that was [`opened`](Self::opened), adopted or begun by
/// [`Streams::connect`](super::Streams::connect) ends in exactly one [`closed`](Self::closed).
///
/// # Panics
/// A callback must not panic, as one of an [`App`](crate::App).
///
/// ```
/// use dwell_engine::{StreamApp, StreamEnd, StreamRef};
/// use dwell_evloop::{Context, Token};
///
/// /// Asks a question wherever it is connected to, and keeps the first line of the answer.
/// #[derive(Default)]
/// struct Asker {
///     answers: Vec<String>,
///     failures: usize,
/// }
///
/// impl StreamApp for Asker {
///     fn opened(&mut self, _: &mut Context, stream: &mut StreamRef<'_>, _: u64) {
///         // No client is expected.
///         stream.abort();
///     }
///
///     fn connected(&mut self, _: &mut Context, stream: &mut StreamRef<'_>) {
///         assert!(!stream.is_connecting());
///         stream.set_tag(self.answers.len() as u64);
///         self.answers.push(String::new());
///         stream.write(b"version\r\n");
///     }
///
///     fn data(
///         &mut self,
///         _: &mut Context,
///         stream: &mut StreamRef<'_>,
///         input: &[u8],
///         _: usize,
///     ) -> usize {
///         let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
///             // Handed out again, with what comes next.
///             return 0;
///         };
///         let answer = String::from_utf8_lossy(&input[..end]);
///         self.answers[stream.tag() as usize] = answer.trim_end().into();
///         stream.close();
///         end + 1
///     }
///
///     fn closed(&mut self, _: &mut Context, _: Token, _: u64, end: StreamEnd) {
///         self.failures += usize::from(!end.is_orderly());
///     }
/// }
/// #
/// # use dwell_engine::{StreamLimits, Streams};
/// # use dwell_evloop::{Driver, EventLoop, Readiness};
/// # use std::io::{Read, Write};
/// # struct Alone(Streams, Asker);
/// # impl Driver for Alone {
/// #     type Message = ();
/// #     fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
/// #         self.0.ready(context, token, readiness, &mut self.1);
/// #     }
/// #     fn expired(&mut self, context: &mut Context, token: Token) {
/// #         self.0.expired(context, token, &mut self.1);
/// #     }
/// #     fn message(&mut self, _: &mut Context, (): ()) {}
/// # }
/// # let mut event_loop = EventLoop::new()?;
/// # let mut driver = Alone(Streams::new(0, 1, StreamLimits::default()), Asker::default());
/// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # driver.0.connect(event_loop.context(), listener.local_addr()?, 0)?;
/// # let server = std::thread::spawn(move || -> std::io::Result<()> {
/// #     let (mut client, _) = listener.accept()?;
/// #     client.read_exact(&mut [0; 9])?;
/// #     client.write_all(b"1.0\r\n")
/// # });
/// # while driver.1.answers.first().is_none_or(String::is_empty) {
/// #     event_loop.turn(&mut driver, None)?;
/// # }
/// # assert_eq!((driver.1.answers, driver.1.failures), (vec!["1.0".into()], 0));
/// # server.join().expect("it does not panic")?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait StreamApp {
    /// A client came on the listener that was given `listener_tag`.
    fn opened(&mut self, context: &mut Context, stream: &mut StreamRef<'_>, listener_tag: u64);

    /// An outbound connection is established.
    fn connected(&mut self, context: &mut Context, stream: &mut StreamRef<'_>) {
        let _ = (context, stream);
    }

    /// The handshake of TLS of a stream of the app's own has failed; [`closed`](Self::closed)
    /// follows.
    fn handshake_failed(
        &mut self,
        context: &mut Context,
        stream: &mut StreamRef<'_>,
        error: &std::io::Error,
    ) {
        let _ = (context, stream, error);
    }

    /// Bytes came; returns how many of `input` were used.
    ///
    /// Shape: `input` begins with what earlier calls left over, and its last `fresh` bytes were
    /// just read; what this one leaves is kept, up to
    /// [`StreamLimits::input_bytes_max`](super::StreamLimits::input_bytes_max), beyond
    /// which the stream ends.
    fn data(
        &mut self,
        context: &mut Context,
        stream: &mut StreamRef<'_>,
        input: &[u8],
        fresh: usize,
    ) -> usize;

    /// The peer sends no more. By default the stream is closed after what is queued for it.
    fn peer_closed(&mut self, context: &mut Context, stream: &mut StreamRef<'_>) {
        let _ = context;
        stream.close();
    }

    /// The socket took output: `taken` bytes since the last call.
    fn written(&mut self, context: &mut Context, stream: &mut StreamRef<'_>, taken: usize) {
        let _ = (context, stream, taken);
    }

    /// All that was queued is out, after a time in which something was.
    fn drained(&mut self, context: &mut Context, stream: &mut StreamRef<'_>) {
        let _ = (context, stream);
    }

    /// The stream is gone; `token` names nothing from now on.
    fn closed(&mut self, context: &mut Context, token: Token, tag: u64, end: StreamEnd);

    /// A client was turned away, because there are too many or no descriptor is left.
    fn refused(&mut self, context: &mut Context) {
        let _ = context;
    }
}
