//! Writing an answer in pieces, or byte for byte.

use super::response::length_of;
use super::{Outgoing, Reply, SharedPiece, WriteError};
use crate::connection::Unread;
use bytes::Bytes;
use dwell_evloop::{FileSlice, Sends};
use dwell_proto::http2::ErrorCode;

impl Reply<'_> {
    /// Writes a piece of the open streaming answer; nothing for no bytes.
    ///
    /// # Errors
    /// [`WriteError`]: a piece is taken whole or not at all. The body of an answer to HEAD, or with
    /// status 204 or 304, is taken and dropped.
    pub fn write(&mut self, data: &[u8]) -> Result<(), WriteError> {
        self.open_piece(data.len())?;
        if data.is_empty() || matches!(self.outgoing, Outgoing::Bodiless) {
            return Ok(());
        }
        self.outgoing.before(data.len(), self.output);
        if let Some(framed) = &mut self.framed {
            framed.out.push(data);
            return Ok(());
        }
        self.output.extend_from_slice(data);
        self.outgoing.after(self.output);
        self.spill();
        Ok(())
    }

    /// As [`write`](Self::write); a large piece is not copied, not even for a slow reader.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_shared(&mut self, data: &Bytes) -> Result<(), WriteError> {
        self.open_piece(data.len())?;
        if data.is_empty() || matches!(self.outgoing, Outgoing::Bodiless) {
            return Ok(());
        }
        self.outgoing.before(data.len(), self.output);
        self.append_shared(data);
        self.outgoing.after(self.output);
        self.spill();
        Ok(())
    }

    /// As [`write`](Self::write), of a piece that is in parts, of which others may have some: large
    /// ones are not copied, not even for a slow reader.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use dwell_engine::{Body, Reply, Response, WriteError};
    ///
    /// /// One piece, of which only the beginning is this client's.
    /// fn greet(reply: &mut Reply<'_>, name: &str, news: &Bytes) -> Result<(), WriteError> {
    ///     reply.send(&Response { status: 200, fields: &[], body: Body::Stream(None) });
    ///     reply.write_parts(&[format!("dear {name}, ").into(), news.clone()])?;
    ///     reply.finish(&[])
    /// }
    /// #
    /// # let answer = dwell_testkit::serve_once(|reply| {
    /// #     greet(reply, "reader", &Bytes::from_static(b"news"));
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\n11\r\ndear reader, news\r\n0\r\n\r\n"), "{answer}");
    /// ```
    pub fn write_parts(&mut self, parts: &[Bytes]) -> Result<(), WriteError> {
        let length = length_of(parts) as usize;
        self.open_piece(length)?;
        if length == 0 || matches!(self.outgoing, Outgoing::Bodiless) {
            return Ok(());
        }
        self.outgoing.before(length, self.output);
        self.append_parts(parts);
        self.outgoing.after(self.output);
        self.spill();
        Ok(())
    }

    /// As [`write`](Self::write); a part of a file, which is sent as the reader takes it and
    /// counts nothing in [`queued_bytes`](Self::queued_bytes).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// ```
    /// use dwell_engine::{Body, Reply, Response, WriteError};
    /// use dwell_evloop::FileSlice;
    ///
    /// /// A file between two lines of text.
    /// fn framed(reply: &mut Reply<'_>, file: FileSlice) -> Result<(), WriteError> {
    ///     reply.send(&Response { status: 200, fields: &[], body: Body::Stream(None) });
    ///     reply.write(b"begin\n")?;
    ///     reply.write_file(file)?;
    ///     reply.write(b"end\n")?;
    ///     reply.finish(&[])
    /// }
    /// #
    /// # let mut file = tempfile::tempfile()?;
    /// # std::io::Write::write_all(&mut file, b"a text\n")?;
    /// # let file = FileSlice { file: file.into(), offset: 0, length: 7 };
    /// # let answer = dwell_testkit::serve_once(move |reply| framed(reply, file.clone()));
    /// # assert!(answer.contains("begin\n\r\n7\r\na text\n\r\n4\r\nend\n"), "{answer}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_file(&mut self, slice: FileSlice) -> Result<(), WriteError> {
        let length = slice.length as usize;
        self.open_piece(length)?;
        if length == 0 || matches!(self.outgoing, Outgoing::Bodiless) {
            return Ok(());
        }
        self.outgoing.before(length, self.output);
        self.append_file(slice);
        self.outgoing.after(self.output);
        Ok(())
    }

    /// As [`write`](Self::write), of a piece that goes to many: it is framed already, and what the
    /// socket refuses of it is kept by reference, however small it is.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// ```
    /// use dwell_engine::{ExchangeId, Http, SharedPiece};
    /// use dwell_evloop::Context;
    ///
    /// /// Sends a piece in many answers: framed once, kept once.
    /// fn publish(http: &mut Http, context: &mut Context, streams: &[ExchangeId], news: &[u8]) {
    ///     let piece = SharedPiece::new(news);
    ///     for exchange in streams {
    ///         // A client that has left, or does not keep up, misses it.
    ///         let _ = http.with_reply(context, *exchange, |reply| reply.write_piece(&piece));
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::stream_once(|http, context, exchange| {
    /// #     publish(http, context, &[exchange], b"news");
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\nnews"), "{answer}");
    /// ```
    pub fn write_piece(&mut self, piece: &SharedPiece) -> Result<(), WriteError> {
        let is_chunked = matches!(self.outgoing, Outgoing::Chunked);
        if !is_chunked || piece.data().is_empty() {
            return self.write_shared(piece.data());
        }
        self.open_piece(piece.data().len())?;
        let goes_with_others = self.gathers && piece.chunk().len() <= Sends::BYTES_MAX;
        if self.output.is_empty() && !goes_with_others {
            let result = self.stream.write_shared(&[], piece.chunk().clone());
            self.given(piece.chunk().len() as u64, &result);
        } else {
            self.append_shared(piece.chunk());
            self.spill();
        }
        Ok(())
    }

    /// Ends the open streaming answer; trailer fields go out where it is chunked or on a stream of
    /// HTTP/2, and nowhere else.
    ///
    /// Shape: an answer that is shorter than was announced is cut off by closing the connection,
    /// so that the client does not take it for whole (RFC 9112 section 8).
    ///
    /// # Errors
    /// [`WriteError::NotOpen`].
    pub fn finish(&mut self, trailers: &[(&str, &[u8])]) -> Result<(), WriteError> {
        if !self.outgoing.is_open() {
            return Err(WriteError::NotOpen);
        }
        if self.framed.is_some() {
            self.finish_framed(trailers);
            return Ok(());
        }
        self.framing.keep_alive &= self.outgoing.end(trailers, self.output);
        Ok(())
    }

    /// Begins a response whose bytes the app writes itself, status line included, and whose end the
    /// app determines: with [`write`](Self::write) and its variants, up to
    /// [`finish`](Self::finish).
    ///
    /// Shape: the engine does not read them. If the connection is to close after the response, the
    /// app announces that in its head and by [`close_after`](Self::close_after). Does nothing where
    /// an answer was begun.
    ///
    /// ```
    /// use dwell_engine::{Reply, WriteError};
    ///
    /// /// Sends an answer whose framing a gateway has written already.
    /// fn pass_on(reply: &mut Reply<'_>) -> Result<(), WriteError> {
    ///     reply.verbatim();
    ///     reply.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")?;
    ///     reply.finish(&[])
    /// }
    /// #
    /// # let answer = dwell_testkit::serve_once(pass_on);
    /// # assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    /// ```
    pub fn verbatim(&mut self) {
        if let Some(framed) = &mut self.framed {
            framed.reset.get_or_insert(ErrorCode::HTTP_1_1_REQUIRED);
            self.sent = true;
        } else if !self.sent {
            self.sent = true;
            self.framing.keep_alive &= self.unread != Unread::InTheWay;
            *self.outgoing = Outgoing::Verbatim;
        }
    }

    /// Checks that the open response takes a piece of this size.
    fn open_piece(&mut self, length: usize) -> Result<(), WriteError> {
        let length = length as u64;
        match &mut *self.outgoing {
            Outgoing::None => return Err(WriteError::NotOpen),
            Outgoing::Length(left) if length > left.bytes() => {
                return Err(WriteError::TooLong {
                    limit: left.bytes(),
                    length,
                });
            }
            _ => {}
        }
        self.has_room()
    }

    pub(super) fn has_room(&mut self) -> Result<(), WriteError> {
        if self.framed.is_none() && self.queued_bytes() > self.output_bytes_max {
            // Only what the socket has refused is told of when it is gone.
            self.write_gathered();
        }
        let queued = self.queued_bytes();
        if queued > self.output_bytes_max {
            return Err(WriteError::Full {
                limit: self.output_bytes_max,
                queued,
            });
        }
        Ok(())
    }
}
