//! One connection in the hands of a handler.

mod access;
mod content;
mod exchange;
mod facts;
mod fields;
mod http;
mod raw;
mod websocket;

use super::error::ConnError;
use super::event::Event;
use super::state::{Extra, Record};
use super::{Handler, Scope, kind};
use crate::websocket::CloseCode;
pub(super) use access::Access;
use dwell_evloop::Token;
use dwell_proto::http2::ErrorCode;
use fields::{Fields, borrowed, owned};
use std::any::Any;
use std::borrow::Borrow as _;
use std::fmt;

/// A connection or listener, for as long as a handler or a borrow of the manager lasts.
///
/// Shape: what is done on the connection the handler was called for happens at once, as far as the
/// event allows it. Calls on another one, by [`Scope::conn`], take effect right after the handler
/// has returned; only `Error` and `Close` report their failures. From outside of handlers
/// everything happens at once.
///
/// ```
/// use dwell_engine::manager::{Conn, Event};
///
/// /// A chat on `tcp://`: what one says, all others hear.
/// fn chat(conn: &mut Conn<'_>, event: Event<'_>) {
///     let Event::Read { data, .. } = event else { return };
///     let own = conn.id();
///     let mut scope = conn.scope();
///     for id in scope.connections() {
///         if let Some(mut other) = scope.conn(id)
///             && id != own
///             && !other.is_listening()
///         {
///             // One that takes no more misses this line.
///             let _ = other.send(data);
///         }
///     }
/// }
/// #
/// # use std::io::{Read, Write};
/// # use std::net::TcpStream;
/// # let heard = dwell_testkit::manage("tcp", chat, |address| {
/// #     let (mut one, mut other) = (TcpStream::connect(address)?, TcpStream::connect(address)?);
/// #     one.write_all(b"hello")?;
/// #     let mut heard = [0; 5];
/// #     other.read_exact(&mut heard).map(|()| heard)
/// # });
/// # assert_eq!(&heard?, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Conn<'a> {
    pub(super) scope: Scope<'a>,
    pub(super) id: u64,
    pub(super) token: Token,
    pub(super) access: Access<'a>,
}

impl Conn<'_> {
    /// Its number: above 0, given out in rising order, and never again to another connection.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The rest of the manager.
    pub fn scope(&mut self) -> Scope<'_> {
        self.scope.reborrow()
    }

    /// Returns the value that [`set_user_data`](Self::set_user_data) attached, if it is a `T`.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, Event};
    ///
    /// /// Answers with how often something came.
    /// fn count(conn: &mut Conn<'_>, event: Event<'_>) {
    ///     match event {
    ///         Event::Accept => conn.set_user_data(0_u32),
    ///         Event::Read { .. } => {
    ///             let count = conn.user_data::<u32>().expect("set when it came");
    ///             *count += 1;
    ///             let answer = format!("{count}\n");
    ///             let _ = conn.send(answer.as_bytes());
    ///         }
    ///         _ => {}
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_bytes("hello", count);
    /// # assert_eq!(answer, "1\n");
    /// ```
    pub fn user_data<T: Any>(&mut self) -> Option<&mut T> {
        let record = self.scope.state.records.get_mut(self.token)?;
        record.extra.as_mut()?.user.as_mut()?.downcast_mut()
    }

    /// Attaches a value of the handler's own; it is dropped with the connection.
    pub fn set_user_data<T: Any + Send>(&mut self, value: T) {
        if let Some(record) = self.scope.state.records.get_mut(self.token) {
            record.extra.get_or_insert_default().user = Some(Box::new(value));
        }
    }

    /// Gives the connection, and on a listener the clients to come, a handler of its own.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, Event};
    ///
    /// /// The first byte says what is spoken from then on.
    /// fn choose(conn: &mut Conn<'_>, event: Event<'_>) {
    ///     let Event::Read { data, .. } = event else { return };
    ///     match data.first() {
    ///         Some(b'e') => {
    ///             conn.set_handler(echo);
    ///             let _ = conn.send(b"echo\n");
    ///         }
    ///         _ => conn.error("no such protocol"),
    ///     }
    /// }
    ///
    /// fn echo(conn: &mut Conn<'_>, event: Event<'_>) {
    ///     if let Event::Read { data, .. } = event {
    ///         let _ = conn.send(data);
    ///     }
    /// }
    /// #
    /// # use std::io::{Read, Write};
    /// # let answer = dwell_testkit::manage("tcp", choose, |address| {
    /// #     let mut client = std::net::TcpStream::connect(address)?;
    /// #     client.write_all(b"e")?;
    /// #     client.read_exact(&mut [0; 5])?;
    /// #     client.write_all(b"hello")?;
    /// #     let mut answer = [0; 5];
    /// #     client.read_exact(&mut answer).map(|()| answer)
    /// # });
    /// # assert_eq!(&answer?, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_handler(&mut self, handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static) {
        let handler: Handler = Box::new(handler);
        let index = self.scope.state.add_handler(handler);
        self.scope.state.set_handler(self.token, index);
    }

    /// Turns [`Event::Poll`] at the end of every turn on or off. The clients of a listener inherit
    /// it.
    ///
    /// Off by default: a turn costs as much as it delivers, and no handler runs for a connection
    /// on which nothing happens.
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use std::time::Duration;
    ///
    /// let turns = Arc::new(AtomicU32::new(0));
    /// let counted = Arc::clone(&turns);
    /// let mut manager = Manager::new(move |_, event| {
    ///     if let Event::Poll = event {
    ///         counted.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// })?;
    /// let listener = manager.listen("tcp://127.0.0.1:0")?;
    /// if let Some(mut conn) = manager.conn(listener) {
    ///     conn.set_poll_events(true);
    /// }
    /// manager.poll(Duration::ZERO)?;
    /// assert_eq!(turns.load(Ordering::Relaxed), 1);
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn set_poll_events(&mut self, wanted: bool) {
        self.scope.state.set_polls(self.token, wanted);
    }

    /// Closes the connection after the answer that is owed, or at once where none is; nothing
    /// further that the peer sends is served.
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    ///
    /// /// Sends the answers that are owed, before a restart.
    /// fn retire(manager: &mut Manager) {
    ///     for id in manager.connections() {
    ///         if let Some(mut conn) = manager.conn(id) {
    ///             conn.drain();
    ///             assert!(conn.is_draining());
    ///         }
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_then("tcp", "", |_, _| {}, |manager| retire(manager));
    /// # assert_eq!(answer, "");
    /// ```
    pub fn drain(&mut self) {
        if self.is_deferred() {
            return self.later_unclosed(|conn| {
                conn.drain();
            });
        }
        if self.drain_streams() {
            return;
        }
        let owes = match self.place().map(Token::kind) {
            Some(kind::HTTP | kind::HTTP2_STREAM) => self.owes_answer(),
            _ => false,
        };
        let owes = owes || self.record().is_some_and(|record| record.collects);
        if let Ok(record) = self.scope.state.open_record(self.token) {
            record.draining = true;
        }
        if !owes {
            return self.close();
        }
        let _ = self.with_reply(|reply| {
            reply.close_after();
        });
    }

    /// Lets the streams of a connection of HTTP/2 finish; false for any other.
    fn drain_streams(&mut self) -> bool {
        let (Some(place), Some(components)) = (self.place(), self.scope.components.as_deref_mut())
        else {
            return false;
        };
        if place.kind() != kind::HTTP || !components.http.is_http2(place) {
            return false;
        }
        let is_left = components
            .http
            .drain_http2_untold(self.scope.context, place);
        if let Ok(record) = self.scope.state.open_record(self.token) {
            record.draining = true;
        }
        if !is_left {
            self.scope.state.end_later(self.id);
        }
        true
    }

    /// Closes the connection: what was written goes out first. A listener stops listening.
    ///
    /// Shape: an answer that is owed is not given, and one that is streamed is cut off where it
    /// is. `Close` follows, not before the handler has returned.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, Event};
    ///
    /// /// Sends the time to each client that connects.
    /// fn daytime(conn: &mut Conn<'_>, event: Event<'_>) {
    ///     if let Event::Accept = event {
    ///         if conn.send(b"Sun Nov 22 03:24:00 2026\n").is_err() {
    ///             conn.abort();
    ///         }
    ///         conn.close();
    ///         assert!(conn.is_closing());
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_bytes("", daytime);
    /// # assert_eq!(answer, "Sun Nov 22 03:24:00 2026\n");
    /// ```
    pub fn close(&mut self) {
        let Ok(record) = self.scope.state.open_record(self.token) else {
            return;
        };
        record.closing = true;
        self.shut(false);
    }

    /// Ends the connection at once: what waits to be written is lost, and the peer reads a reset,
    /// not the end.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, Event};
    ///
    /// /// Cuts off a client that sends unexpected bytes.
    /// fn strict(conn: &mut Conn<'_>, event: Event<'_>) {
    ///     if let Event::Read { data, .. } = event
    ///         && !data.is_ascii()
    ///     {
    ///         conn.abort();
    ///     }
    /// }
    /// #
    /// # let end = dwell_testkit::manage("tcp", strict, |address| {
    /// #     let mut client = std::net::TcpStream::connect(address)?;
    /// #     std::io::Write::write_all(&mut client, b"\xff")?;
    /// #     std::io::read_to_string(client)
    /// # });
    /// # let error = end.expect_err("it is reset");
    /// # assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    /// ```
    pub fn abort(&mut self) {
        let Some(record) = self.scope.state.records.get_mut(self.token) else {
            return;
        };
        record.closing = true;
        self.shut(true);
    }

    /// Raises [`Event::Error`] with this text, and ends the connection.
    pub fn error(&mut self, text: &str) {
        let text = text.to_owned();
        self.later(move |conn| {
            conn.tell(Event::Error(&text));
            conn.abort();
        });
    }

    /// Reads no more for now, so that the peer's sending is held back. On an HTTP connection the
    /// streamed body is not read; see [`stream_body`](Self::stream_body).
    ///
    /// Shape: that the peer has ended its side is not told before reading goes on; that the
    /// connection has failed is.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// /// Sends everything back, and reads no faster than the peer does.
    /// fn echo(conn: &mut Conn<'_>, event: Event<'_>) {
    ///     match event {
    ///         Event::Read { data, .. } => {
    ///             if matches!(conn.send(data), Err(ConnError::Full { .. })) {
    ///                 // The same bytes are handed out again.
    ///                 conn.keep(data.len());
    ///             }
    ///             if conn.is_full() {
    ///                 conn.pause();
    ///             }
    ///         }
    ///         Event::Drained => conn.resume(),
    ///         _ => {}
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_bytes("hello", echo);
    /// # assert_eq!(answer, "hello");
    /// ```
    pub fn pause(&mut self) {
        self.set_paused(true);
    }

    /// Reads again.
    pub fn resume(&mut self) {
        self.set_paused(false);
    }

    fn set_paused(&mut self, paused: bool) {
        if self.is_deferred() {
            // At once where it is the credit of a body that is about to be granted.
            if let Ok(record) = self.scope.state.open_record(self.token) {
                record.paused = paused;
            }
            return self.later(move |conn| conn.set_paused(paused));
        }
        let Ok(record) = self.scope.state.open_record(self.token) else {
            return;
        };
        record.paused = paused;
        let withheld = if paused {
            0
        } else {
            std::mem::take(&mut record.withheld)
        };
        // What is gone meanwhile needs neither.
        match record.place.kind() {
            kind::RAW => drop(self.with_stream(|stream| {
                if paused {
                    stream.pause();
                } else {
                    stream.resume();
                }
            })),
            kind::WEBSOCKET => drop(self.with_socket(|socket| {
                if paused {
                    socket.pause();
                } else {
                    socket.resume();
                }
            })),
            _ if withheld > 0 => self.grant(u64::from(withheld)),
            _ => {}
        }
    }

    pub(super) fn record(&self) -> Option<&Record> {
        self.scope.state.records.get(self.token)
    }

    /// Its name in the component that has its socket.
    pub(super) fn place(&self) -> Option<Token> {
        self.record().map(|record| record.place)
    }

    /// Returns true if nothing can be done on it before the running handler has returned.
    pub(super) fn is_deferred(&self) -> bool {
        let is_out_of_reach = matches!(self.access, Access::None | Access::Socket(_));
        is_out_of_reach && self.scope.components.is_none()
    }

    /// Has `act` done on it as soon as no callback runs.
    pub(super) fn later(&mut self, act: impl FnOnce(&mut Conn<'_>) + Send + 'static) {
        self.scope.state.defer(self.id, act);
    }

    /// Defers an act as [`later`](Self::later) does, but runs it before a close that was ordered
    /// after it.
    pub(super) fn later_unclosed(&mut self, act: impl FnOnce(&mut Conn<'_>) + Send + 'static) {
        self.later(move |conn| {
            let closing = conn.set_closing(false);
            act(conn);
            if closing {
                conn.set_closing(true);
            }
        });
    }

    /// Does `act` with `data` at once, or with a copy of it as [`later_unclosed`] does; its failure
    /// is not told then.
    ///
    /// [`later_unclosed`]: Self::later_unclosed
    pub(super) fn now_or_later<D>(
        &mut self,
        data: &D,
        act: impl FnOnce(&mut Conn<'_>, &D) -> Result<(), ConnError> + Send + 'static,
    ) -> Result<(), ConnError>
    where
        D: ToOwned<Owned: Send + 'static> + ?Sized,
    {
        if !self.is_deferred() {
            return act(self, data);
        }
        let data = data.to_owned();
        self.later_unclosed(move |conn| drop(act(conn, data.borrow())));
        Ok(())
    }

    /// The same with fields.
    pub(super) fn now_or_later_with(
        &mut self,
        fields: Fields<'_>,
        act: impl FnOnce(&mut Conn<'_>, Fields<'_>) -> Result<(), ConnError> + Send + 'static,
    ) -> Result<(), ConnError> {
        if !self.is_deferred() {
            return act(self, fields);
        }
        let fields = owned(fields);
        self.later_unclosed(move |conn| drop(act(conn, &borrowed(&fields))));
        Ok(())
    }

    /// Returns what it was before.
    fn set_closing(&mut self, closing: bool) -> bool {
        let record = self.scope.state.records.get_mut(self.token);
        record.is_some_and(|record| std::mem::replace(&mut record.closing, closing))
    }

    /// Calls its handler; only where the components are free, as no handler runs then.
    pub(super) fn tell(&mut self, event: Event<'_>) {
        self.scope.state.tell(
            self.scope.context,
            self.scope.components.as_deref_mut(),
            self.token,
            Access::None,
            event,
        );
    }

    /// Returns the rarely needed part of the state.
    pub(super) fn extra(&mut self) -> Option<&mut Extra> {
        let record = self.scope.state.records.get_mut(self.token)?;
        Some(record.extra.get_or_insert_default())
    }

    fn shut(&mut self, abort: bool) {
        match &mut self.access {
            Access::Stream(access) if abort => access.with(&mut |stream| stream.abort()),
            Access::Stream(access) => access.with(&mut |stream| stream.close()),
            Access::WebSocket(access) if abort => access.with(&mut |socket| socket.abort()),
            Access::WebSocket(access) => {
                access.with(&mut |socket| socket.close(CloseCode::NORMAL, ""));
            }
            Access::None if self.scope.components.is_some() => self.close_in_component(abort),
            Access::None | Access::Socket(_) | Access::Reply(_) => {
                self.later(move |conn| conn.close_in_component(abort));
            }
        }
    }

    /// Has the component that has the socket close it; the components are free.
    fn close_in_component(&mut self, abort: bool) {
        let Some(place) = self.place() else { return };
        let Scope {
            state,
            context,
            components,
        } = &mut self.scope;
        let Some(components) = components.as_deref_mut() else {
            return;
        };
        match (place.kind(), abort) {
            (kind::RAW | kind::WEBSOCKET, true) => {
                components.abort(context, place);
            }
            (kind::RAW | kind::WEBSOCKET, false) => {
                components.close(context, place, Some(CloseCode::NORMAL), "");
            }
            (kind::HTTP2_STREAM, _) => {
                let http = &mut components.http;
                // An answer that is given goes out, and its stream ends by that.
                if abort || http.exchange_on(place).is_some() {
                    http.reset_stream(context, place, ErrorCode::INTERNAL_ERROR);
                }
            }
            (kind::HTTP, _) => {
                // The component calls no app for what is done here.
                let http = &mut components.http;
                let is_left = !abort
                    && if http.is_http2(place) {
                        http.end_http2_untold(context, place)
                    } else {
                        http.close_connection(context, place)
                    };
                if !is_left {
                    components.http.abort_connection(context, place);
                    state.end_later(self.id);
                }
            }
            (kind::RAW_LISTENER, _) => {
                components.streams.unlisten(context, place);
                state.end_later(self.id);
            }
            (kind::HTTP_LISTENER, _) => {
                components.http.unlisten(context, place);
                state.end_later(self.id);
            }
            _ => state.end_later(self.id),
        }
    }
}

impl fmt::Debug for Conn<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Conn")
            .field("id", &self.id)
            .field("closing", &self.is_closing())
            .finish_non_exhaustive()
    }
}

/// Refuses what the other protocol's operations are for.
pub(super) fn expect_kind(place: Option<Token>, kind: u8) -> Result<Token, ConnError> {
    match place {
        None => Err(ConnError::Closed),
        Some(place) if place.kind() == kind => Ok(place),
        Some(_) => Err(ConnError::Protocol),
    }
}
