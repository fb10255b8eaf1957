//! Answers, and the requests of a client.

use super::{Access, Conn, expect_kind, kind};
use crate::manager::error::ConnError;
use crate::manager::state::{Leaves, Role};
use crate::reply::{Body, Reply, Response, WriteError};
use bytes::Bytes;
use dwell_evloop::Token;
use dwell_proto::http1::{Version, encode, is_token};

/// Fields of an answer, as (name, value).
type Fields<'f> = &'f [(&'f str, &'f [u8])];
/// The same, owned.
type OwnedFields = Vec<(String, Vec<u8>)>;

/// What a body is taken for that says nothing of itself.
const TEXT: (&str, &[u8]) = ("Content-Type", b"text/plain; charset=utf-8");

impl Conn<'_> {
    /// Answers the request.
    ///
    /// Shape: the engine adds `Date`, `Content-Length` and `Connection`, and leaves such fields
    /// out of `fields`, where `Connection: close` closes the connection after the answer. A body
    /// without `Content-Type` is text. A HEAD request, and a status 204 or 304, get no body.
    ///
    /// # Errors
    /// [`ConnError::Answered`] and [`ConnError::NoRequest`] where no answer is owed;
    /// [`ConnError::Status`], [`ConnError::FieldName`] and [`ConnError::FieldValue`] for what
    /// cannot be sent.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn page(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpMessage(message) if message.path() == "/" => {
    ///             conn.reply(200, &[("Content-Type", b"text/html")], b"<p>hello")
    ///         }
    ///         Event::HttpMessage(_) => conn.reply(404, &[], b"nothing here"),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// ```
    pub fn reply(
        &mut self,
        status: u16,
        fields: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<(), ConnError> {
        self.answer(status, fields, Body::Slice(body))
    }

    /// As [`reply`](Self::reply), with a body that many answers share: it is not copied.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use bytes::Bytes;
    ///
    /// /// One page, made once.
    /// fn page(page: &Bytes, conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     if let Event::HttpMessage(_) = event {
    ///         conn.reply_shared(200, &[("Content-Type", b"text/html")], page.clone())?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn reply_shared(
        &mut self,
        status: u16,
        fields: &[(&str, &[u8])],
        body: Bytes,
    ) -> Result<(), ConnError> {
        self.answer(status, fields, Body::Shared(body))
    }

    /// Answers the request with a JSON text.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn health(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpMessage(_) => conn.reply_json(200, r#"{"status": "ok"}"#),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// ```
    pub fn reply_json(&mut self, status: u16, json: &str) -> Result<(), ConnError> {
        let fields: Fields<'_> = &[("Content-Type", b"application/json")];
        self.answer(status, fields, Body::Slice(json.as_bytes()))
    }

    /// Begins an answer that is written by and by with [`chunk`](Self::chunk): of this length in
    /// all, or in chunks where it is not known.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// /// A report whose lines are made one by one.
    /// fn report(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     if let Event::HttpMessage(_) = event {
    ///         conn.begin(200, &[("Content-Type", b"text/csv")], None)?;
    ///         for line in 0..100 {
    ///             conn.chunk(format!("{line},{}\n", line * line).as_bytes())?;
    ///         }
    ///         conn.finish(&[])?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn begin(
        &mut self,
        status: u16,
        fields: &[(&str, &[u8])],
        length: Option<u64>,
    ) -> Result<(), ConnError> {
        self.answer(status, fields, Body::Stream(length))
    }

    /// Writes a piece of the answer that was begun; an empty one ends it.
    ///
    /// Shape: after a head that was sent as bytes, by [`send`](Self::send), the piece is framed as
    /// a chunk.
    ///
    /// # Errors
    /// [`ConnError::Full`] when so much waits for the peer that nothing was taken; on with it at
    /// [`Event::Drained`](crate::manager::Event::Drained). [`ConnError::NotOpen`].
    pub fn chunk(&mut self, data: &[u8]) -> Result<(), ConnError> {
        self.http_place()?;
        if self.is_deferred() {
            let data = data.to_vec();
            self.later_unclosed(move |conn| {
                // As for `send_shared`.
                let _ = conn.chunk(&data);
            });
            return Ok(());
        }
        self.with_reply(|reply| write_chunk(reply, data))?
            .map_err(Into::into)
    }

    /// As [`chunk`](Self::chunk), of bytes that many answers share: they are queued by reference.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use dwell_engine::manager::Manager;
    ///
    /// /// Writes a piece into every answer that was begun.
    /// fn publish(manager: &mut Manager, piece: &Bytes) {
    ///     for id in manager.connections() {
    ///         if let Some(mut conn) = manager.conn(id) {
    ///             // Refused where nothing was begun, or the client does not keep up.
    ///             let _ = conn.chunk_shared(piece);
    ///         }
    ///     }
    /// }
    /// ```
    pub fn chunk_shared(&mut self, data: &Bytes) -> Result<(), ConnError> {
        self.http_place()?;
        if self.is_deferred() {
            let data = data.clone();
            self.later_unclosed(move |conn| {
                let _ = conn.chunk_shared(&data);
            });
            return Ok(());
        }
        if data.is_empty() || self.with_reply(|reply| reply.is_raw())? {
            return self.chunk(data);
        }
        self.with_reply(|reply| reply.write_shared(data))?
            .map_err(Into::into)
    }

    /// Ends the answer that was begun; trailer fields go out where it is chunked.
    ///
    /// # Errors
    /// [`ConnError::NotOpen`], and those of fields.
    pub fn finish(&mut self, trailers: &[(&str, &[u8])]) -> Result<(), ConnError> {
        check_fields(trailers)?;
        self.http_place()?;
        if self.is_deferred() {
            let trailers = owned(trailers);
            self.later_unclosed(move |conn| {
                let _ = conn.finish(&borrowed(&trailers));
            });
            return Ok(());
        }
        self.with_reply(|reply| reply.finish(trailers))?
            .map_err(Into::into)
    }

    /// Sends an informational answer, 103 (Early Hints) for one, before the final one.
    ///
    /// # Errors
    /// As [`reply`](Self::reply); [`ConnError::Status`] unless it is 100 or 102 to 199.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn page(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     if let Event::HttpMessage(_) = event {
    ///         conn.informational(103, &[("Link", b"</style.css>; rel=preload; as=style")])?;
    ///         conn.reply(200, &[("Content-Type", b"text/html")], b"<p>at last")?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn informational(
        &mut self,
        status: u16,
        fields: &[(&str, &[u8])],
    ) -> Result<(), ConnError> {
        if !matches!(status, 100 | 102..=199) {
            return Err(ConnError::Status(status));
        }
        check_fields(fields)?;
        self.http_place()?;
        if self.is_deferred() {
            let fields = owned(fields);
            self.later_unclosed(move |conn| {
                let _ = conn.informational(status, &borrowed(&fields));
            });
            return Ok(());
        }
        self.with_reply(|reply| reply.informational(status, fields))
    }

    /// In [`HttpHeaders`](crate::manager::Event::HttpHeaders) of a request with a body: has the
    /// body handed over in pieces, by [`HttpBody`](crate::manager::Event::HttpBody), instead of
    /// whole. While reading is [paused](Self::pause) the client is held back.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn upload(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpHeaders(message) if message.method() == "PUT" => {
    ///             conn.set_user_data(0_usize);
    ///             conn.stream_body(1 << 30);
    ///             Ok(())
    ///         }
    ///         Event::HttpBody { data, is_last } => {
    ///             let total = conn.user_data::<usize>().map_or(0, |total| {
    ///                 *total += data.len();
    ///                 *total
    ///             });
    ///             if is_last {
    ///                 conn.reply(200, &[], format!("{total} bytes").as_bytes())?;
    ///             }
    ///             Ok(())
    ///         }
    ///         _ => Ok(()),
    ///     }
    /// }
    /// ```
    pub fn stream_body(&mut self, bytes_max: u64) {
        self.scope.state.streamed_bytes_max = Some(bytes_max);
    }

    /// Takes the connection out of HTTP, without an answer or after a 101 that was sent: what
    /// comes now is told by [`Read`](crate::manager::Event::Read), and
    /// [`send`](Self::send) sends bytes.
    ///
    /// Shape: in the handler of a request it happens when the handler has returned. What is left of
    /// a streamed body comes first, as it came.
    ///
    /// # Errors
    /// [`ConnError::NoRequest`] where no request waits for an answer.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// /// Speaks lines instead of HTTP from the 101 on.
    /// fn lines(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpMessage(message) if message.header("Upgrade") == Some(b"lines") => {
    ///             conn.reply(101, &[("Connection", b"upgrade"), ("Upgrade", b"lines")], b"")?;
    ///             conn.hijack()
    ///         }
    ///         Event::HttpMessage(_) => conn.reply(426, &[("Upgrade", b"lines")], b""),
    ///         Event::Read { data, .. } if !data.is_empty() => conn.send(data),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// ```
    pub fn hijack(&mut self) -> Result<(), ConnError> {
        let place = self.http_place()?;
        match &self.access {
            Access::Reply(_) => {
                if let Some(record) = self.scope.state.records.get_mut(self.token) {
                    record.leaves = Some(Leaves::Raw);
                }
                Ok(())
            }
            _ if self.is_deferred() => {
                self.answer_later(|conn| {
                    let _ = conn.hijack();
                });
                Ok(())
            }
            _ => {
                let (state, context) = (&mut *self.scope.state, &mut *self.scope.context);
                let components = self.scope.components.as_deref_mut();
                let http = &mut components.ok_or(ConnError::NoRequest)?.http;
                let exchange = http.exchange_on(place).ok_or(ConnError::NoRequest)?;
                let detached = http.detach(context, exchange).ok_or(ConnError::Closed)?;
                state.leave(self.token, Leaves::Raw, detached);
                Ok(())
            }
        }
    }

    /// On an outbound HTTP connection: sends a request, with `Host` and `Content-Length` unless
    /// given.
    ///
    /// Shape: its answer is told by [`HttpMessage`](crate::manager::Event::HttpMessage), in the
    /// order of the requests.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn fetch(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::Connect => conn.request("GET", "/status", &[], b"")?,
    ///         Event::HttpMessage(message) => {
    ///             println!("{:?}: {}", message.status(), message.text());
    ///             conn.close();
    ///         }
    ///         _ => {}
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ConnError::RequestLine`] and those of fields for what cannot be sent; otherwise as
    /// [`send`](Self::send).
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<(), ConnError> {
        let is_clean = target.bytes().all(|byte| byte > b' ' && byte != 0x7f);
        if !is_token(method.as_bytes()) || target.is_empty() || !is_clean {
            return Err(ConnError::RequestLine);
        }
        check_fields(fields)?;
        self.open_place()?;
        let client = self.extra().and_then(|extra| extra.client.as_mut());
        let client = client.ok_or(ConnError::Protocol)?;
        let given = |name: &str| {
            fields
                .iter()
                .any(|(field, _)| field.eq_ignore_ascii_case(name))
        };
        let mut output = Vec::with_capacity(256 + body.len());
        encode::request_line(&mut output, method, target, Version::Http11);
        if !given("Host") {
            encode::field(&mut output, "Host", client.authority().as_bytes());
        }
        for (name, value) in fields {
            encode::field(&mut output, name, value);
        }
        let has_body = !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH");
        if has_body && !given("Content-Length") && !given("Transfer-Encoding") {
            encode::field_u64(&mut output, "Content-Length", body.len() as u64);
        }
        encode::end_of_head(&mut output);
        output.extend_from_slice(body);
        client.expect(method);
        let sent = self.send_bytes(&output);
        if sent.is_err()
            && let Some(client) = self.extra().and_then(|extra| extra.client.as_mut())
        {
            client.expect_not();
        }
        sent
    }

    fn answer(&mut self, status: u16, fields: Fields<'_>, body: Body<'_>) -> Result<(), ConnError> {
        if !matches!(status, 101 | 200..=599) {
            return Err(ConnError::Status(status));
        }
        check_fields(fields)?;
        self.http_place()?;
        if self.is_deferred() {
            let (fields, body) = (owned(fields), shared(body));
            self.answer_later(move |conn| {
                let _ = conn.answer(status, &borrowed(&fields), body);
            });
            return Ok(());
        }
        let has_body = status != 101 && !matches!(body, Body::Stream(_));
        let wants_type = has_body && !has(fields, "content-type");
        let is_plain = !wants_type && !fields.iter().any(|(name, _)| is_framing(status, name));
        if is_plain {
            return self.with_reply(|reply| send(reply, status, fields, body))?;
        }
        if fields.is_empty() {
            return self.with_reply(|reply| send(reply, status, &[TEXT], body))?;
        }
        let mut kept: Vec<_> = wants_type.then_some(TEXT).into_iter().collect();
        let others = fields.iter().filter(|(name, _)| !is_framing(status, name));
        kept.extend(others);
        let closes = fields.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case(b"close")
        });
        self.with_reply(|reply| {
            if closes && !reply.is_sent() {
                reply.close_after();
            }
            send(reply, status, &kept, body)
        })?
    }

    /// As [`later`](Self::later), for what answers the request.
    pub(super) fn answer_later(&mut self, answer: impl FnOnce(&mut Conn<'_>) + Send + 'static) {
        if let Some(record) = self.scope.state.records.get_mut(self.token) {
            record.answers_early = true;
        }
        self.later_unclosed(answer);
    }

    /// Lets so many more bytes of a streamed body come.
    pub(super) fn grant(&mut self, bytes: u64) {
        if self.is_deferred() {
            return self.later(move |conn| conn.grant(bytes));
        }
        if let Access::Reply(access) = &mut self.access {
            return access.with(&mut |reply| reply.grant(bytes));
        }
        let components = self.scope.components.as_deref_mut();
        if let Some(components) = components
            && let Some(place) = self
                .scope
                .state
                .records
                .get(self.token)
                .map(|record| record.place)
            && let Some(exchange) = components.http.exchange_on(place)
        {
            components.http.grant(self.scope.context, exchange, bytes);
        }
    }

    /// Whether an answer is owed and its place within reach.
    pub(super) fn owes_answer(&mut self) -> bool {
        self.with_reply(|reply| !reply.is_sent() || reply.is_open())
            .unwrap_or(false)
    }

    /// Lets `make` write to the place of the answer, which has to be within reach.
    pub(super) fn with_reply<T>(
        &mut self,
        make: impl FnOnce(&mut Reply<'_>) -> T,
    ) -> Result<T, ConnError> {
        let place = expect_kind(self.place(), kind::HTTP)?;
        if let Access::Reply(access) = &mut self.access {
            let (mut make, mut result) = (Some(make), None);
            access.with(&mut |reply| result = make.take().map(|make| make(reply)));
            return result.ok_or(ConnError::NoRequest);
        }
        let components = self.scope.components.as_deref_mut();
        let http = &mut components.ok_or(ConnError::NoRequest)?.http;
        let exchange = http.exchange_on(place).ok_or(ConnError::NoRequest)?;
        let result = http.with_reply(self.scope.context, exchange, make);
        if !http.contains(place) {
            // It failed, or that was its last answer; the component tells nobody.
            self.scope.state.end_later(self.id);
        }
        result.ok_or(ConnError::NoRequest)
    }

    /// Its name in the HTTP component, which has to have it.
    pub(super) fn http_place(&self) -> Result<Token, ConnError> {
        expect_kind(Some(self.open_place()?), kind::HTTP)
    }

    /// Its name in the component that has its socket, unless it is closing.
    pub(super) fn open_place(&self) -> Result<Token, ConnError> {
        let record = self.record().ok_or(ConnError::Closed)?;
        if record.role == Role::Listener {
            return Err(ConnError::Protocol);
        }
        if record.closing {
            return Err(ConnError::Closed);
        }
        Ok(record.place)
    }
}

fn send(
    reply: &mut Reply<'_>,
    status: u16,
    fields: Fields<'_>,
    body: Body<'_>,
) -> Result<(), ConnError> {
    if reply.is_sent() {
        return Err(ConnError::Answered);
    }
    reply.send(&Response {
        status,
        fields,
        body,
    });
    Ok(())
}

fn write_chunk(reply: &mut Reply<'_>, data: &[u8]) -> Result<(), WriteError> {
    let written = if data.is_empty() {
        Err(WriteError::NotOpen)
    } else {
        reply.write(data)
    };
    if written != Err(WriteError::NotOpen) || !reply.is_open() {
        return written;
    }
    if !reply.is_raw() {
        return reply.finish(&[]);
    }
    let mut framed = Vec::with_capacity(data.len() + 16);
    if data.is_empty() {
        encode::last_chunk(&mut framed);
    } else {
        encode::chunk(&mut framed, data);
    }
    reply.raw(&framed)
}

/// Whether a field says what the engine says by itself.
fn is_framing(status: u16, name: &str) -> bool {
    match name.len() {
        4 => name.eq_ignore_ascii_case("date"),
        10 => status != 101 && name.eq_ignore_ascii_case("connection"),
        14 => name.eq_ignore_ascii_case("content-length"),
        17 => name.eq_ignore_ascii_case("transfer-encoding"),
        _ => false,
    }
}

fn has(fields: Fields<'_>, name: &str) -> bool {
    fields
        .iter()
        .any(|(field, _)| field.eq_ignore_ascii_case(name))
}

pub(super) fn check_fields(fields: Fields<'_>) -> Result<(), ConnError> {
    for (name, value) in fields {
        if !is_token(name.as_bytes()) {
            return Err(ConnError::FieldName((*name).into()));
        }
        if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(ConnError::FieldValue((*name).into()));
        }
    }
    Ok(())
}

pub(super) fn owned(fields: Fields<'_>) -> OwnedFields {
    let pairs = fields.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), value.to_vec()))
        .collect()
}

pub(super) fn borrowed(fields: &OwnedFields) -> Vec<(&str, &[u8])> {
    let pairs = fields.iter();
    pairs
        .map(|(name, value)| (name.as_str(), value.as_slice()))
        .collect()
}

/// A body that lasts.
fn shared(body: Body<'_>) -> Body<'static> {
    match body {
        Body::Empty => Body::Empty,
        Body::Absent(length) => Body::Absent(length),
        Body::Slice(bytes) => Body::Shared(Bytes::copy_from_slice(bytes)),
        Body::Shared(bytes) => Body::Shared(bytes),
        Body::File(slice) => Body::File(slice),
        Body::Stream(length) => Body::Stream(length),
    }
}
