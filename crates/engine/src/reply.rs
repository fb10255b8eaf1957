//! Writing one answer: at once, in pieces, or byte for byte.

mod fields;
mod framed;
mod outgoing;
mod piece;
mod response;
mod streaming;

use crate::connection::Unread;
use crate::date::Start;
use crate::http::{Origin, UnderWay};
use bytes::Bytes;
use dwell_evloop::{ClientNames, FileSlice, PeerCertificates, Stream, TlsFacts, Token};
use dwell_proto::http1::{Version, encode};
use std::fmt;
use std::io;
use std::net::SocketAddr;

use fields::Fields;

pub use fields::SharedFields;
pub(crate) use fields::append as append_fields;
pub(crate) use framed::{Framed, encode_switch};
use outgoing::Left;
pub(crate) use outgoing::Outgoing;
pub use piece::SharedPiece;
pub use response::{Body, Response};

/// Reasons why a piece of a response was not taken; no byte of it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// No streaming answer is open: none was begun, or it has ended.
    NotOpen,
    /// The queue is full until the reader has taken it; the app is called then.
    Full {
        /// [`Limits::output_bytes_max`](crate::Limits::output_bytes_max).
        limit: usize,
        /// Bytes that wait.
        queued: usize,
    },
    /// The piece goes beyond the announced size.
    TooLong {
        /// The rest of the announced size.
        limit: u64,
        /// The size of the piece.
        length: u64,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpen => f.write_str("no streaming answer is open"),
            Self::Full { limit, queued } => {
                write!(f, "queued output exceeds {limit} bytes: {queued}")
            }
            Self::TooLong { limit, length } => {
                write!(
                    f,
                    "piece exceeds {limit} bytes left of the announced length: {length}"
                )
            }
        }
    }
}

impl std::error::Error for WriteError {}

/// Properties of a request that decide how its response is framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Framing {
    pub(crate) is_head: bool,
    pub(crate) is_http10: bool,
    pub(crate) keep_alive: bool,
}

impl Framing {
    /// The options of `Connection`; none where all is as the version has it.
    fn connection(self, upgrade: bool) -> Option<&'static [u8]> {
        Some(match (self.keep_alive, upgrade) {
            (false, false) => b"close",
            (false, true) => b"close, upgrade",
            (true, false) if self.is_http10 => b"keep-alive",
            (true, true) if self.is_http10 => b"keep-alive, upgrade",
            (true, true) => b"upgrade",
            (true, false) => return None,
        })
    }
}

/// The place where the answer to one request goes.
///
/// ```
/// use dwell_engine::handler::Exchange;
/// use dwell_engine::{Body, Reply, Request, Response, Server};
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
///
/// fn respond(reply: &mut Reply<'_>) {
///     reply.informational(103, &[("Link", b"</style.css>; rel=preload; as=style")]);
///     assert!(!reply.is_sent() && !reply.has_unread_body());
///     reply.close_after();
///     reply.send(&Response { status: 200, fields: &[], body: Body::Stream(None) });
///     assert!(reply.is_open() && !reply.has_unread_body());
///     assert!(reply.peer_address().is_some() && reply.local_address().is_some());
///     assert_eq!(reply.suite_number(), None, "the client is not under TLS");
///     assert!(reply.peer_certificates().is_none() && reply.client_names().is_none());
///     assert_eq!(reply.listener_label(), None, "the listener has no label");
///     reply.write(b"by and ").expect("it is open and not full");
///     reply.write_shared(&"by".into()).expect("as before");
///     assert!(reply.queued_bytes() > 0);
///     reply.finish(&[("Server-Timing", b"all;dur=1")]).expect("as before");
/// }
///
/// let running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     // An `Exchange` is a `Reply`, and more.
///     .serve(|_: &Request<'_>, exchange: &mut Exchange<'_, '_>| respond(exchange))?;
/// let mut client = TcpStream::connect(running.addresses()[0])?;
/// client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.starts_with("HTTP/1.1 103 Early Hints\r\n"));
/// assert!(answer.ends_with("7\r\nby and \r\n2\r\nby\r\n0\r\nServer-Timing: all;dur=1\r\n\r\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reply<'a> {
    pub(crate) output: &'a mut Vec<u8>,
    pub(crate) stream: &'a mut Stream,
    /// The origin of the connection that it goes to, or of that of its stream.
    pub(crate) origin: Origin<'a>,
    pub(crate) start: Start<'a>,
    pub(crate) framing: Framing,
    pub(crate) outgoing: &'a mut Outgoing,
    pub(crate) output_bytes_max: usize,
    pub(crate) unread: Unread,
    /// Body bytes that the app has granted so far.
    pub(crate) granted: u64,
    /// The choice of the app to wait for its body or not; `None` before one.
    pub(crate) awaits_body: Option<bool>,
    pub(crate) sent: bool,
    /// Bytes that were given to the socket already.
    pub(crate) written: u64,
    /// The socket has failed.
    pub(crate) failed: bool,
    /// Small pieces are not written at once, as they go out with those of others.
    pub(crate) gathers: bool,
    /// The stream of HTTP/2 that the answer goes to, if it is one.
    pub(crate) framed: Option<Framed<'a>>,
}

/// Room for an answer of the usual size, made at once.
const ANSWER_BYTES: usize = 1024;
/// Bodies up to this size are copied next to their head; larger ones are written by reference.
const COPY_BYTES_MAX: usize = 16 * 1024;
/// Output of one callback that is gathered before it is written.
const GATHERED_BYTES_MAX: usize = 64 * 1024;

impl Reply<'_> {
    /// Returns the client's address, asked of the system at each call unless it is
    /// [kept](crate::Http::keep_peers); `None` over a unix socket, or when it is gone.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.origin.address(self.stream)
    }

    /// Returns the [label](crate::Http::label) of the listener that has accepted the connection, if
    /// it has one.
    pub fn listener_label(&self) -> Option<u8> {
        self.origin.label()
    }

    /// Returns true if the answer goes to a stream of HTTP/2.
    pub(crate) fn is_framed(&self) -> bool {
        self.framed.is_some()
    }

    /// Returns true if the stream of HTTP/2 that the answer goes to asks to leave HTTP.
    pub(crate) fn is_connecting(&self) -> bool {
        self.framed.as_ref().is_some_and(|framed| framed.connects)
    }

    /// Returns the number of the cipher suite of a client under TLS: from 0x1301 to 0x1303 for TLS
    /// 1.3, another one for TLS 1.2; `None` without TLS.
    pub fn suite_number(&self) -> Option<u16> {
        self.stream.suite_number()
    }

    /// Returns the facts of the client's handshake; `None` without TLS.
    pub(crate) fn tls_facts(&self) -> Option<TlsFacts<'_>> {
        self.stream.tls_facts()
    }

    /// Returns the certificates that a client under TLS has shown. See
    /// [`TlsBuilder`](crate::tls::TlsBuilder).
    pub fn peer_certificates(&self) -> Option<&PeerCertificates> {
        self.stream.peer_certificates()
    }

    /// Returns the names in the certificate of a client under TLS, or that it has shown none;
    /// `None` where the listener does not keep them.
    pub fn client_names(&self) -> Option<&ClientNames> {
        self.stream.client_names()
    }

    /// The address the client has connected to, asked of the system at each call.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.stream.local_address().ok().flatten()
    }

    /// Closes the connection after this answer.
    pub fn close_after(&mut self) {
        self.framing.keep_alive = false;
    }

    /// Returns true if a response was sent, or the head of a streaming one.
    pub fn is_sent(&self) -> bool {
        self.sent
    }

    /// Returns true if a streaming response is open.
    pub fn is_open(&self) -> bool {
        self.outgoing.is_open()
    }

    /// Returns true if a streaming response is open of which only the head is sent.
    pub(crate) fn is_bodiless(&self) -> bool {
        matches!(self.outgoing, Outgoing::Bodiless)
    }

    /// Returns true if the open response is one of [`verbatim`](Self::verbatim).
    pub(crate) fn is_verbatim(&self) -> bool {
        matches!(self.outgoing, Outgoing::Verbatim)
    }

    /// Returns true if the request is one of HEAD.
    pub(crate) fn is_head(&self) -> bool {
        self.framing.is_head
    }

    /// Returns true if the request has a body whose end was not handed over.
    ///
    /// Shape: the protocol of a connection changes behind a whole request (RFC 9110 section 7.8),
    /// so while this is true a 101 may not be sent.
    pub fn has_unread_body(&self) -> bool {
        self.unread != Unread::Nothing
    }

    /// Has [`App::drained`](crate::App::drained) called when the client has taken all that waits
    /// for it, if anything does.
    ///
    /// Shape: it is called anyway where a socket has refused some, or a write was refused as
    /// [`WriteError::Full`]. On a stream of HTTP/2 little waits behind the callback without that.
    ///
    /// ```
    /// use dwell_engine::{Body, Reply, Response};
    ///
    /// /// Begins an answer whose next piece is made when the client has taken this one.
    /// fn begin(reply: &mut Reply<'_>) {
    ///     reply.send(&Response { status: 200, fields: &[], body: Body::Stream(None) });
    ///     reply.write(b"first").expect("it is open");
    ///     reply.await_drained();
    /// }
    /// #
    /// # let answer = dwell_testkit::serve_once(begin);
    /// # assert!(answer.ends_with("5\r\nfirst\r\n0\r\n\r\n"), "{answer}");
    /// ```
    pub fn await_drained(&mut self) {
        if let Some(framed) = &mut self.framed {
            framed.is_awaited = true;
        }
    }

    /// Counts work for the request that goes on elsewhere, for as long as the result lives.
    ///
    /// Shape: a connection of HTTP/2 has at most 128 such pieces in progress, and a request beyond
    /// them is refused with `REFUSED_STREAM`. The work of a request that its client has reset
    /// counts as well, so resets give no client more work than it may have. Nothing is counted on
    /// HTTP/1.1. [`Exchange::offload`](crate::handler::Exchange::offload) counts its jobs itself.
    pub fn under_way(&mut self) -> UnderWay {
        match &mut self.framed {
            Some(framed) => framed.work.begin(),
            None => UnderWay::uncounted(),
        }
    }

    /// Bytes of output that wait for the reader.
    pub fn queued_bytes(&self) -> usize {
        match &self.framed {
            Some(framed) => framed.out.bytes(),
            None => self.stream.queued_bytes() + self.output.len(),
        }
    }

    /// Bytes of output that wait for the client, without those which are gathered for it.
    pub(crate) fn refused_bytes(&self) -> usize {
        match &self.framed {
            Some(framed) => framed.out.bytes(),
            None => self.stream.queued_bytes(),
        }
    }

    /// Returns true if the app is told when there is room again for what was refused as too much.
    pub(crate) fn tells_when_drained(&self) -> bool {
        self.framed.is_some() || !self.stream.is_flushed()
    }

    /// Lets so many more bytes of a streamed body come.
    ///
    /// Shape: [`App::body_data`](crate::App::body_data) follows, not before this callback ends.
    /// The end of a chunked body comes only while some are granted, as it is read like them; that
    /// of an announced length with its last byte. The first grant sends the 100 (Continue) that a
    /// client waits for, unless an answer was begun before it.
    pub fn grant(&mut self, bytes: u64) {
        self.granted = self.granted.saturating_add(bytes);
    }

    /// Turns the wait for the bytes that the app has granted on or off; at first it is on.
    ///
    /// Shape: for an app that lets bytes come ahead of its reader. While it does not wait, the time
    /// of the client stands still ([`Limits::body_timeout`](crate::Limits::body_timeout)), and that
    /// of a hold runs. Over HTTP/2 what comes meanwhile stays with the engine, which counts it for
    /// [`Limits::gathered_bytes_max`](crate::Limits::gathered_bytes_max).
    ///
    /// ```
    /// use dwell_engine::{ExchangeId, Http};
    /// use dwell_evloop::Context;
    ///
    /// // The reader of a body has nothing left, and waits for what comes next.
    /// fn waits(http: &mut Http, context: &mut Context, exchange: ExchangeId) {
    ///     http.with_reply(context, exchange, |reply| reply.await_body(true));
    /// }
    /// # dwell_testkit::hold_once(|http, context, exchange| {
    /// #     waits(http, context, exchange);
    /// # });
    /// ```
    pub fn await_body(&mut self, waits: bool) {
        self.awaits_body = Some(waits);
    }

    /// Sends an informational answer before the final one; 103 (RFC 8297), for one.
    ///
    /// Shape: does nothing after the final answer was begun, for a client of HTTP/1.0, which does
    /// not know them (RFC 9110 section 15.2), for one that does not read, or for a status that is
    /// not 100 or 102 to 199.
    pub fn informational(&mut self, status: u16, fields: &[(&str, &[u8])]) {
        let is_due = !self.sent && !self.framing.is_http10 && matches!(status, 100 | 102..=199);
        if !is_due || self.has_room().is_err() {
            return;
        }
        if let Some(framed) = &mut self.framed {
            append_fields(self.output, status, fields.iter().copied());
            framed.interim(status, self.output);
            self.output.clear();
            return;
        }
        encode::status_line(self.output, Version::Http11, status);
        append_fields(self.output, status, fields.iter().copied());
        encode::end_of_head(self.output);
    }

    /// Sends an answer of the engine's own to a request of this token.
    pub(crate) fn reject(&mut self, token: Token, status: u16) {
        // Clients that are turned away together do not come back together.
        let after = [b'1' + (token.to_bits() % 5) as u8];
        let reason = [encode::reason(status), "\n"].concat();
        let fields: [(&str, &[u8]); 2] = [
            ("Content-Type", b"text/plain; charset=utf-8"),
            ("Retry-After", &after),
        ];
        let last = usize::from(matches!(status, 429 | 503));
        self.send(&Response {
            status,
            fields: &fields[..=last],
            body: Body::Slice(reason.as_bytes()),
        });
    }

    /// Sends the answer, or with [`Body::Stream`] its head; a second one to the same request is
    /// ignored.
    ///
    /// Shape: the connection closes behind a response whose end the client would look for
    /// elsewhere: one of 1xx, or one with [`Body::Absent`] to another method than HEAD.
    pub fn send(&mut self, response: &Response<'_>) {
        self.send_as(response, None);
    }

    /// As [`send`](Self::send), with a reason phrase of the app's own; bytes that may not be in
    /// one are sent as spaces.
    ///
    /// Source: RFC 9112 section 4.
    ///
    /// ```
    /// use dwell_engine::{Body, Reply, Response};
    ///
    /// /// For clients that show people the phrase.
    /// fn refuse(reply: &mut Reply<'_>) {
    ///     let response = Response { status: 403, fields: &[], body: Body::Empty };
    ///     reply.send_with_reason(&response, b"Closed On Sundays");
    /// }
    /// #
    /// # let answer = dwell_testkit::serve_once(refuse);
    /// # assert!(answer.starts_with("HTTP/1.1 403 Closed On Sundays\r\n"), "{answer}");
    /// ```
    pub fn send_with_reason(&mut self, response: &Response<'_>, reason: &[u8]) {
        self.send_as(response, Some(reason));
    }

    /// As [`send`](Self::send), with fields that were encoded before.
    pub fn send_shared(&mut self, fields: &SharedFields, body: &Body<'_>) {
        self.send_with(fields.status, body, None, Fields::Shared(fields));
    }

    /// As [`send_shared`](Self::send_shared), with `own` fields before those that were encoded.
    ///
    /// ```
    /// use dwell_engine::{Body, Reply, SharedFields};
    ///
    /// /// A version of a value whose other fields are those of all values.
    /// fn send_version(reply: &mut Reply<'_>, shared: &SharedFields) {
    ///     reply.send_joined(&[("ETag", b"\"one\"")], shared, &Body::Slice(b"value"));
    /// }
    /// #
    /// # let shared = SharedFields::new(200, &[("Content-Type", b"text/plain")]);
    /// # let answer = dwell_testkit::serve_once(move |reply| send_version(reply, &shared));
    /// # let fields = "\r\nETag: \"one\"\r\nContent-Type: text/plain\r\n";
    /// # assert!(answer.contains(fields), "{answer}");
    /// ```
    pub fn send_joined(&mut self, own: &[(&str, &[u8])], fields: &SharedFields, body: &Body<'_>) {
        self.send_with(fields.status, body, None, Fields::Joined(own, fields));
    }

    fn send_as(&mut self, response: &Response<'_>, reason: Option<&[u8]>) {
        let fields = Fields::Own(response.fields);
        self.send_with(response.status, &response.body, reason, fields);
    }

    fn send_with(
        &mut self,
        status: u16,
        body: &Body<'_>,
        reason: Option<&[u8]>,
        fields: Fields<'_>,
    ) {
        if self.sent {
            return;
        }
        self.sent = true;
        if self.framed.is_some() {
            return self.send_framed(status, body, fields);
        }
        self.framing.keep_alive &= self.unread != Unread::InTheWay;
        let bodiless = self.framing.is_head || is_bodiless(status);
        let is_missing = !bodiless && matches!(body, Body::Absent(_));
        self.framing.keep_alive &= status >= 200 && !is_missing;
        if let Body::Stream(length) = *body {
            *self.outgoing = match length {
                _ if bodiless => Outgoing::Bodiless,
                Some(length) => Outgoing::Length(Left(length)),
                None if self.framing.is_http10 => Outgoing::UntilClose,
                None => Outgoing::Chunked,
            };
            let until_close = matches!(*self.outgoing, Outgoing::UntilClose);
            self.framing.keep_alive &= !until_close;
        }
        self.head(status, body, reason, fields);
        if bodiless {
            return;
        }
        match body {
            Body::Empty | Body::Absent(_) | Body::Stream(_) => {}
            Body::Slice(bytes) => self.output.extend_from_slice(bytes),
            Body::Shared(bytes) => self.append_shared(bytes),
            Body::Parts(parts) => self.append_parts(parts),
            Body::File(slice) => self.append_file(slice.clone()),
        }
    }

    /// Sends `text` as `text/plain`, with a line feed.
    pub fn text(&mut self, status: u16, text: &str) {
        let mut body = String::with_capacity(text.len() + 1);
        body.push_str(text);
        body.push('\n');
        self.send(&Response {
            status,
            fields: &[("Content-Type", b"text/plain; charset=utf-8")],
            body: Body::Slice(body.as_bytes()),
        });
    }

    /// Appends body bytes that others share; many are written at once, with what is before them.
    fn append_shared(&mut self, bytes: &Bytes) {
        if let Some(framed) = &mut self.framed {
            framed.out.push_shared(bytes.clone());
            return;
        }
        if bytes.len() <= COPY_BYTES_MAX {
            self.output.extend_from_slice(bytes);
            return;
        }
        let result = self.stream.write_shared(self.output, bytes.clone());
        self.given(bytes.len() as u64, &result);
    }

    /// Appends body bytes in parts; what is small of them is gathered.
    fn append_parts(&mut self, parts: &[Bytes]) {
        for part in parts {
            self.append_shared(part);
            self.spill();
        }
    }

    /// Writes what is gathered, and a part of a file behind it.
    fn append_file(&mut self, slice: FileSlice) {
        if let Some(framed) = &mut self.framed {
            framed.out.push_file(slice);
            return;
        }
        let length = slice.length;
        let result = self.stream.write_file(self.output, slice);
        self.given(length, &result);
    }

    /// Writes what is gathered where it is much.
    fn spill(&mut self) {
        if self.output.len() >= GATHERED_BYTES_MAX {
            self.write_gathered();
        }
    }

    fn write_gathered(&mut self) {
        let result = self.stream.write(self.output);
        self.given(0, &result);
    }

    /// Counts the gathered output, and `length` bytes behind it, as given to the socket.
    fn given(&mut self, length: u64, result: &io::Result<()>) {
        self.written += self.output.len() as u64 + length;
        self.failed |= result.is_err();
        self.output.clear();
    }

    fn head(&mut self, status: u16, body: &Body<'_>, reason: Option<&[u8]>, fields: Fields<'_>) {
        let output = &mut *self.output;
        output.reserve(ANSWER_BYTES);
        match reason {
            None if status == 200 => output.extend_from_slice(self.start.ok()),
            None => {
                encode::status_line(output, Version::Http11, status);
                output.extend_from_slice(self.start.date());
            }
            Some(reason) => {
                encode::status_line_with(output, Version::Http11, status, reason);
                output.extend_from_slice(self.start.date());
            }
        }
        let asked = fields.append(status, output);
        self.framing.keep_alive &= !asked.close;
        match asked.length_of(body, self.framing.is_head) {
            _ if is_bodiless(status) => {}
            Some(length) => {
                output.extend_from_slice(b"Content-Length: ");
                output.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                output.extend_from_slice(b"\r\n");
            }
            None if matches!(body, Body::Stream(_)) && !self.framing.is_http10 => {
                output.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
            None => {}
        }
        if status == 101 {
            // The connection has no next request, and `Connection` is the app's.
        } else if let Some(options) = self.framing.connection(asked.upgrade) {
            output.extend_from_slice(b"Connection: ");
            output.extend_from_slice(options);
            output.extend_from_slice(b"\r\n");
        }
        output.extend_from_slice(b"\r\n");
    }
}

/// Returns true if a response of this status never has a body (RFC 9110 section 6.4.1).
fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
