//! Bytes in and out of a connection.

use super::{Access, Conn, expect_kind, kind};
use crate::components::Protocol;
use crate::manager::error::ConnError;
use crate::manager::written;
use crate::streams::StreamRef;
use bytes::Bytes;

impl Conn<'_> {
    /// Sends bytes as they are.
    ///
    /// Shape: on an HTTP connection they are the answer to its request, or a piece of it, status
    /// line and all; the engine follows them to see where the answer ends.
    ///
    /// # Errors
    /// [`ConnError::Full`] when so much waits for the peer that nothing was taken, and others
    /// that say why nothing can be sent here.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn greet(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::Accept => conn.send(b"220 ready\r\n"),
    ///         Event::Read { .. } => conn.send(b"250 noted\r\n"),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_bytes("QUIT\r\n", greet);
    /// # assert_eq!(answer, "220 ready\r\n250 noted\r\n");
    /// ```
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ConnError> {
        self.note_request(bytes);
        self.send_bytes(bytes)
    }

    /// As [`send`](Self::send); what the socket refuses is queued by reference.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use dwell_engine::manager::Manager;
    ///
    /// /// Sends a line to all clients; its bytes exist once.
    /// fn say(manager: &mut Manager, line: &Bytes) {
    ///     for id in manager.connections() {
    ///         if let Some(mut conn) = manager.conn(id) {
    ///             let _ = conn.send_shared(line.clone());
    ///         }
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_then("tcp", "", |_, _| {}, |manager| {
    /// #     say(manager, &Bytes::from_static(b"hello"));
    /// # });
    /// # assert_eq!(answer, "hello");
    /// ```
    pub fn send_shared(&mut self, bytes: Bytes) -> Result<(), ConnError> {
        self.note_request(&bytes);
        self.send_shared_bytes(bytes)
    }

    /// Keeps the last `bytes` of the data of a [`Read`](crate::manager::Event::Read) event on a raw
    /// connection: they come again with the next ones.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, Event};
    ///
    /// /// Takes whole lines only.
    /// fn lines(conn: &mut Conn<'_>, event: Event<'_>) {
    ///     if let Event::Read { data, .. } = event {
    ///         let whole = data.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    ///         // What is left comes again, with what follows it.
    ///         let _ = conn.send(&data[..whole]);
    ///         conn.keep(data.len() - whole);
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_bytes("whole\nunfinished", lines);
    /// # assert_eq!(answer, "whole\n");
    /// ```
    pub fn keep(&mut self, bytes: usize) {
        self.scope.state.kept = bytes;
    }

    /// Takes the connection out of the raw streams, which are free.
    pub(in crate::manager) fn leave_stream(&mut self, protocol: Protocol) {
        let Some(place) = self.place().filter(|place| place.kind() == kind::RAW) else {
            return;
        };
        let (context, components) = (&mut *self.scope.context, &mut self.scope.components);
        let streams = components
            .as_deref_mut()
            .map(|components| &mut components.streams);
        if let Some(detached) = streams.and_then(|streams| streams.detach(context, place)) {
            self.scope.state.leave(self.token, protocol, detached);
        }
    }

    /// Sends as [`send`](Self::send) does, for bytes whose response is expected already.
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), ConnError> {
        if self.open_place()?.kind() == kind::HTTP2_STREAM {
            return Err(ConnError::Protocol);
        }
        if self.is_deferred() {
            return self.send_shared_bytes(Bytes::copy_from_slice(bytes));
        }
        match self.open_place()?.kind() {
            kind::RAW => self.send_on_stream(|stream| stream.write(bytes)),
            kind::HTTP => self.write_answer(bytes),
            _ => Err(ConnError::Protocol),
        }
    }

    fn send_shared_bytes(&mut self, bytes: Bytes) -> Result<(), ConnError> {
        let place = self.open_place()?;
        if self.is_deferred() {
            self.note_answer();
            self.later_unclosed(move |conn| drop(conn.send_shared_bytes(bytes)));
            return Ok(());
        }
        match place.kind() {
            kind::RAW => self.send_on_stream(|stream| stream.write_shared(bytes)),
            kind::HTTP => self.write_answer(&bytes),
            _ => Err(ConnError::Protocol),
        }
    }

    /// Writes bytes of an answer that its handler frames.
    pub(super) fn write_answer(&mut self, bytes: &[u8]) -> Result<(), ConnError> {
        let mut written = self.extra().and_then(|extra| extra.written.take());
        let result = self.with_reply(|reply| written::write(&mut written, reply, bytes));
        if let Some(extra) = self.extra() {
            extra.written = written;
        }
        result?.map_err(Into::into)
    }

    /// On an outbound HTTP connection: its handler writes the bytes of requests.
    fn note_request(&mut self, bytes: &[u8]) {
        let record = self.scope.state.records.get_mut(self.token);
        let extra = record.and_then(|record| record.extra.as_mut());
        if let Some(client) = extra.and_then(|extra| extra.client.as_mut()) {
            client.wrote(bytes);
        }
    }

    fn send_on_stream(
        &mut self,
        write: impl FnOnce(&mut StreamRef<'_>) -> bool,
    ) -> Result<(), ConnError> {
        let limit = self.scope.state.stream_output_bytes_max;
        self.with_stream(|stream| {
            if stream.is_full() {
                Err(ConnError::Full { limit })
            } else if write(stream) {
                Ok(())
            } else {
                Err(ConnError::Closed)
            }
        })?
    }

    /// Lets `act` work on the raw stream, which has to be within reach.
    pub(super) fn with_stream<T>(
        &mut self,
        act: impl FnOnce(&mut StreamRef<'_>) -> T,
    ) -> Result<T, ConnError> {
        let place = expect_kind(self.place(), kind::RAW)?;
        if let Access::Stream(access) = &mut self.access {
            let (mut act, mut result) = (Some(act), None);
            access.with(&mut |stream| result = act.take().map(|act| act(stream)));
            return result.ok_or(ConnError::Closed);
        }
        let components = self.scope.components.as_deref_mut();
        components
            .and_then(|components| {
                components
                    .streams
                    .with_stream(self.scope.context, place, act)
            })
            .ok_or(ConnError::Closed)
    }
}
