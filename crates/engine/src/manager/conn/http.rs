//! Answers.

use super::Conn;
use super::fields::{Fields, check_fields};
use crate::manager::error::ConnError;
use crate::reply::{Body, Reply, Response, WriteError};
use bytes::Bytes;
use dwell_proto::http1::encode;

/// The type of a body without one.
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
    /// #
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, page);
    /// # assert!(answer.ends_with("\r\n\r\n<p>hello"), "{answer}");
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
    /// #
    /// # let hello = Bytes::from_static(b"<p>hello");
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, move |conn, event| {
    /// #     page(&hello, conn, event);
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\n<p>hello"), "{answer}");
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
    /// #
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, health);
    /// # assert!(answer.ends_with("{\"status\": \"ok\"}"), "{answer}");
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
    /// /// Sends a report line by line.
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
    /// #
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, report);
    /// # assert!(answer.contains("\n99,9801\n"), "{answer}");
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
        self.piece(data, |data, reply| reply.write(data))
    }

    fn piece<D>(
        &mut self,
        data: &D,
        write: impl FnOnce(&D, &mut Reply<'_>) -> Result<(), WriteError> + Send + 'static,
    ) -> Result<(), ConnError>
    where
        D: ToOwned<Owned: Send + 'static> + AsRef<[u8]> + ?Sized,
    {
        self.http_place()?;
        self.now_or_later(data, |conn, data| {
            let written = conn.with_reply(|reply| match data.as_ref() {
                _ if reply.is_verbatim() => None,
                [] => Some(reply.finish(&[])),
                _ => Some(write(data, reply)),
            })?;
            let frame = || conn.frame(data.as_ref());
            written.map_or_else(frame, |written| written.map_err(Into::into))
        })
    }

    /// Writes a piece of an answer whose head was sent as bytes.
    fn frame(&mut self, data: &[u8]) -> Result<(), ConnError> {
        let mut framed = Vec::with_capacity(data.len() + 16);
        if data.is_empty() {
            encode::last_chunk(&mut framed);
        } else {
            encode::chunk(&mut framed, data);
        }
        self.write_answer(&framed)
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
    /// #
    /// # let answer = dwell_testkit::manage_stream(
    /// #     |conn| conn.begin(200, &[], Some(4)),
    /// #     |manager| publish(manager, &Bytes::from_static(b"news")),
    /// # );
    /// # assert!(answer.ends_with("\r\n\r\nnews"), "{answer}");
    /// ```
    pub fn chunk_shared(&mut self, data: &Bytes) -> Result<(), ConnError> {
        self.piece(data, |data, reply| reply.write_shared(data))
    }

    /// Ends the answer that was begun; trailer fields go out where it is chunked.
    ///
    /// # Errors
    /// [`ConnError::NotOpen`], and those of fields.
    pub fn finish(&mut self, trailers: &[(&str, &[u8])]) -> Result<(), ConnError> {
        check_fields(trailers)?;
        self.http_place()?;
        self.now_or_later_with(trailers, |conn, trailers| {
            let finished = conn.with_reply(|reply| {
                if reply.is_verbatim() {
                    // Only the end of the connection tells its client that it is whole.
                    reply.close_after();
                }
                reply.finish(trailers)
            })?;
            finished.map_err(Into::into)
        })
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
    /// #
    /// # let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, page);
    /// # assert!(answer.starts_with("HTTP/1.1 103 Early Hints\r\n"), "{answer}");
    /// # assert!(answer.ends_with("\r\n\r\n<p>at last"), "{answer}");
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
        self.now_or_later_with(fields, move |conn, fields| {
            conn.with_reply(|reply| reply.informational(status, fields))
        })
    }

    fn answer(&mut self, status: u16, fields: Fields<'_>, body: Body<'_>) -> Result<(), ConnError> {
        if !matches!(status, 101 | 200..=599) {
            return Err(ConnError::Status(status));
        }
        check_fields(fields)?;
        self.answer_place()?;
        if self.is_deferred() {
            let body = shared(body);
            return self.now_or_later_with(fields, move |conn, fields| {
                conn.answer(status, fields, body)
            });
        }
        let has_body = status != 101 && !matches!(body, Body::Stream(_));
        let wants_type = has_body && !has(fields, "content-type");
        let typed: Vec<_>;
        let fields = match fields {
            _ if !wants_type => fields,
            [] => &[TEXT],
            _ => {
                typed = [TEXT].iter().chain(fields).copied().collect();
                &typed
            }
        };
        self.first_reply(|reply| {
            reply.send(&Response {
                status,
                fields,
                body,
            });
        })
    }
}

fn has(fields: Fields<'_>, name: &str) -> bool {
    fields
        .iter()
        .any(|(field, _)| field.eq_ignore_ascii_case(name))
}

/// A body that lasts.
fn shared(body: Body<'_>) -> Body<'static> {
    match body {
        Body::Empty => Body::Empty,
        Body::Absent(length) => Body::Absent(length),
        Body::Slice(bytes) => Body::Shared(Bytes::copy_from_slice(bytes)),
        Body::Shared(bytes) => Body::Shared(bytes),
        Body::Parts(parts) => Body::Shared(parts.concat().into()),
        Body::File(slice) => Body::File(slice),
        Body::Stream(length) => Body::Stream(length),
    }
}
