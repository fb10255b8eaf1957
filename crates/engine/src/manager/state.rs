//! The state of a manager's connections, apart from their sockets.

use super::client::Client;
use super::conn::Access;
use super::error::ConnError;
use super::event::{Event, EventSet};
use super::written::Written;
use super::{Conn, Handler, Scope, Waker, kind};
use crate::Detached;
use crate::components::{Components, Protocol};
use crate::manager::timer::TimerEntry;
use crate::websocket::Negotiated;
use dwell_evloop::{Connector, Context, Slab, Token};
use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The origin of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Listener,
    Accepted,
    Outbound,
}

/// One connection or listener.
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that are independent of one another"
)]
#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: u64,
    /// Its name in the component that owns its socket; the kind of that token names the component.
    /// Its kind is [`kind::NOWHERE`] while none owns it.
    pub(super) place: Token,
    pub(super) handler: u32,
    pub(super) origin: Origin,
    /// It gets an event for every turn.
    pub(super) polls: bool,
    /// It stands in the list of those that are.
    is_polled: bool,
    /// It was closed by us; what is queued may still be on its way.
    pub(super) closing: bool,
    /// It closes with the answer that is owed.
    pub(super) draining: bool,
    /// Reading is paused.
    pub(super) paused: bool,
    /// It was answered at the head of its request, before the body had come.
    pub(super) answers_early: bool,
    /// Its peer, or its clients, speak TLS.
    pub(super) is_secure: bool,
    /// The handler has seen the head of a request whose body is collected.
    pub(super) collects: bool,
    /// Its destination when it leaves HTTP, which it does with the running callback.
    pub(super) leaves: Option<Protocol>,
    /// Bytes of a streamed body that are to be granted when reading goes on.
    pub(super) withheld: u32,
    pub(super) extra: Option<Box<Extra>>,
}

/// The rarely used state of a connection.
#[derive(Debug, Default)]
pub(super) struct Extra {
    pub(super) user: Option<Box<dyn Any + Send>>,
    pub(super) client: Option<Client>,
    /// The answer that is being written as bytes.
    pub(super) written: Written,
    /// The address a listener was given.
    pub(super) address: Option<SocketAddr>,
    /// The handshake that follows the connect.
    pub(super) connector: Option<Connector>,
}

/// An act on a connection that runs when no callback does.
pub(super) type Act = Box<dyn FnOnce(&mut Conn<'_>) + Send>;

/// A function that runs with the whole manager.
pub(super) type Call = Box<dyn FnOnce(&mut Scope<'_>) + Send>;

/// A connection that leaves HTTP, with its destination.
pub(super) struct Leaving {
    pub(super) record: Token,
    pub(super) protocol: Protocol,
    pub(super) detached: Detached,
}

/// A handler, taken out while it runs, and how many connections and listeners use it.
struct HandlerSlot {
    handler: Option<Handler>,
    users: usize,
}

/// The clients of the HTTP component.
#[derive(Debug)]
pub(super) struct HttpRecords {
    /// The record of each connection, by the index of its token.
    connections: Vec<Token>,
    /// The record of each stream of HTTP/2, likewise.
    streams: Vec<Token>,
    /// Clients under TLS may choose HTTP/2.
    #[cfg(feature = "tls")]
    pub(super) offers_http2: bool,
}

pub(super) struct ManagerApp {
    pub(super) records: Slab<Record>,
    by_id: HashMap<u64, Token, BuildHasherDefault<IdHasher>>,
    pub(super) http: HttpRecords,
    /// The record of each listener of the HTTP component.
    pub(super) http_listeners: Vec<(Token, Token)>,
    handlers: Vec<HandlerSlot>,
    /// Free places in `handlers`.
    free_handlers: Vec<u32>,
    next_id: u64,
    pub(super) timers: Slab<TimerEntry>,
    pub(super) acts: Vec<(u64, Act)>,
    pub(super) leaving: Vec<Leaving>,
    /// The records that get an event for every turn.
    pub(super) polled: Vec<Token>,
    pub(super) events: EventSet,
    pub(super) body_bytes_max: u64,
    pub(super) http_output_bytes_max: usize,
    pub(super) stream_output_bytes_max: usize,
    pub(super) websocket_output_bytes_max: usize,
    pub(super) answer_timeout: Duration,
    pub(super) connect_timeout: Duration,
    /// The most bytes of the body that the running handler takes in pieces.
    pub(super) streamed_bytes_max: Option<u64>,
    pub(super) waker: Waker,
    pub(super) panics: u64,
    pub(super) refused: u64,
    /// Bytes of input at the end that the running handler will be given again.
    pub(super) kept: usize,
    pub(super) resolving: usize,
    pub(super) stopped: bool,
    /// Nothing new may begin.
    pub(super) is_closed: bool,
}

/// The handler of those that were given none of their own.
pub(super) const DEFAULT_HANDLER: u32 = 0;

impl ManagerApp {
    pub(super) fn new(handler: Handler, options: &super::ManagerOptions, waker: Waker) -> Self {
        let default = HandlerSlot {
            handler: Some(handler),
            users: 1,
        };
        Self {
            records: Slab::new(kind::RECORD, usize::MAX),
            by_id: HashMap::default(),
            http: HttpRecords {
                connections: Vec::new(),
                streams: Vec::new(),
                #[cfg(feature = "tls")]
                offers_http2: options.http2,
            },
            http_listeners: Vec::new(),
            handlers: vec![default],
            free_handlers: Vec::new(),
            next_id: 1,
            timers: Slab::new(kind::TIMER, usize::MAX),
            acts: Vec::new(),
            leaving: Vec::new(),
            polled: Vec::new(),
            events: options.events,
            body_bytes_max: options.body_bytes_max,
            http_output_bytes_max: options.http.output_bytes_max,
            stream_output_bytes_max: options.streams.output_bytes_max,
            websocket_output_bytes_max: options.websockets.output_bytes_max,
            answer_timeout: options.answer_timeout,
            connect_timeout: options.streams.connect_timeout,
            streamed_bytes_max: None,
            waker,
            panics: 0,
            refused: 0,
            kept: 0,
            resolving: 0,
            stopped: false,
            is_closed: false,
        }
    }

    /// Makes a record that no component has yet, and names it.
    pub(super) fn add(&mut self, origin: Origin, handler: u32) -> Option<(Token, u64)> {
        let id = self.next_id;
        let record = Record {
            id,
            place: Token::new(kind::NOWHERE, 0, 0),
            handler,
            origin,
            polls: false,
            is_polled: false,
            closing: false,
            draining: false,
            paused: false,
            answers_early: false,
            is_secure: false,
            collects: false,
            leaves: None,
            withheld: 0,
            extra: None,
        };
        let token = self.records.insert(record).ok()?;
        self.next_id += 1;
        self.by_id.insert(id, token);
        if let Some(slot) = self.handlers.get_mut(handler as usize) {
            slot.users += 1;
        }
        Some((token, id))
    }

    /// Makes a record for a client of `listener`, which hands its handler down.
    pub(super) fn add_accepted(&mut self, listener: Token) -> Option<Token> {
        let parent = self.records.get(listener);
        let (handler, polls, is_secure) = parent
            .map_or((DEFAULT_HANDLER, false, false), |parent| {
                (parent.handler, parent.polls, parent.is_secure)
            });
        let (token, _) = self.add(Origin::Accepted, handler)?;
        if let Some(record) = self.records.get_mut(token) {
            record.is_secure = is_secure;
        }
        self.set_polls(token, polls);
        Some(token)
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, token: Token) {
        if let Some(record) = self.records.remove(token) {
            self.by_id.remove(&record.id);
            if record.origin == Origin::Listener {
                self.http_listeners.retain(|(_, known)| *known != token);
            }
            self.leave_handler(record.handler);
        }
    }

    pub(super) fn find(&self, id: u64) -> Option<Token> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<_> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The requests of an outbound HTTP connection.
    pub(super) fn client(&mut self, token: Token) -> Option<&mut Client> {
        let record = self.records.get_mut(token)?;
        record.extra.as_mut()?.client.as_mut()
    }

    /// The record of a listener of the HTTP component; there are few.
    pub(super) fn listener_record(&self, listener: Token) -> Option<Token> {
        self.http_listeners
            .iter()
            .find(|(known, _)| *known == listener)
            .map(|(_, record)| *record)
    }

    /// Remembers which record a connection or stream of the HTTP component has; returns the record
    /// that stood there.
    pub(super) fn set_http_record(&mut self, connection: Token, record: Token) -> Token {
        let index = connection.index() as usize;
        let nobody = Token::new(kind::NOWHERE, 0, 0);
        let records = match connection.kind() {
            kind::HTTP2_STREAM => &mut self.http.streams,
            _ => &mut self.http.connections,
        };
        if records.len() <= index {
            records.resize(index + 1, nobody);
        }
        let before = std::mem::replace(&mut records[index], record);
        if let Some(record) = self.records.get_mut(record) {
            record.place = connection;
        }
        before
    }

    /// The record of a connection or stream of the HTTP component.
    pub(super) fn http_record(&self, connection: Token) -> Option<Token> {
        let records = match connection.kind() {
            kind::HTTP2_STREAM => &self.http.streams,
            _ => &self.http.connections,
        };
        let token = *records.get(connection.index() as usize)?;
        (self.records.get(token)?.place == connection).then_some(token)
    }

    pub(super) fn add_handler(&mut self, handler: Handler) -> u32 {
        let slot = HandlerSlot {
            handler: Some(handler),
            users: 0,
        };
        if let Some(index) = self.free_handlers.pop() {
            self.handlers[index as usize] = slot;
            return index;
        }
        self.handlers.push(slot);
        (self.handlers.len() - 1) as u32
    }

    /// Gives a connection another handler.
    pub(super) fn set_handler(&mut self, token: Token, handler: u32) {
        let Some(record) = self.records.get_mut(token) else {
            return;
        };
        let before = std::mem::replace(&mut record.handler, handler);
        if let Some(slot) = self.handlers.get_mut(handler as usize) {
            slot.users += 1;
        }
        self.leave_handler(before);
    }

    fn leave_handler(&mut self, handler: u32) {
        if let Some(slot) = self.handlers.get_mut(handler as usize) {
            slot.users -= 1;
            if slot.users == 0 {
                slot.handler = None;
                self.free_handlers.push(handler);
            }
        }
    }

    /// Turns the event of every turn on or off for a connection.
    pub(super) fn set_polls(&mut self, token: Token, polls: bool) {
        let Some(record) = self.records.get_mut(token) else {
            return;
        };
        record.polls = polls;
        if polls && !std::mem::replace(&mut record.is_polled, true) {
            self.polled.push(token);
        }
    }

    /// Takes the connections that get an event every turn. Connections that get none any more are
    /// dropped from the list.
    pub(super) fn take_polled(&mut self) -> Vec<Token> {
        let mut polled = std::mem::take(&mut self.polled);
        polled.retain(|token| {
            let record = self.records.get_mut(*token);
            record.is_some_and(|record| {
                record.is_polled = record.polls;
                record.polls
            })
        });
        polled
    }

    /// Has `act` done on a connection as soon as no callback runs.
    pub(super) fn defer(&mut self, id: u64, act: impl FnOnce(&mut Conn<'_>) + Send + 'static) {
        self.acts.push((id, Box::new(act)));
    }

    /// Ends a connection later, with an event, for an end that no component reports.
    pub(super) fn end_later(&mut self, id: u64) {
        self.defer(id, |conn| {
            conn.tell(Event::Close);
            conn.scope.state.remove(conn.token);
        });
    }

    /// An outbound connection becomes a WebSocket when the running callback is over.
    pub(super) fn becomes_websocket(&mut self, token: Token, negotiated: Negotiated) {
        let Some(record) = self.records.get_mut(token) else {
            return;
        };
        if let Some(extra) = &mut record.extra {
            extra.client = None;
        }
        let protocol = Protocol::WebSocket(negotiated);
        let id = record.id;
        self.defer(id, move |conn| conn.leave_stream(protocol));
    }

    /// A connection has left HTTP.
    pub(super) fn leave(&mut self, record: Token, protocol: Protocol, detached: Detached) {
        if let Some(record) = self.records.get_mut(record) {
            record.place = Token::new(kind::NOWHERE, 0, 0);
        }
        self.leaving.push(Leaving {
            record,
            protocol,
            detached,
        });
    }

    /// Calls the handler of a connection, unless events of this kind are not wanted.
    ///
    /// A handler that panics costs its connection, and is counted.
    pub(super) fn tell(
        &mut self,
        context: &mut Context,
        components: Option<&mut Components>,
        token: Token,
        mut access: Access<'_>,
        event: Event<'_>,
    ) {
        if !self.events.contains(event.kind()) {
            return;
        }
        let Some(record) = self.records.get(token) else {
            return;
        };
        let (id, index) = (record.id, record.handler);
        let Some(mut handler) = self.take_handler(index) else {
            return;
        };
        let mut conn = Conn {
            scope: Scope {
                state: self,
                context,
                components,
            },
            id,
            token,
            access: access.reborrow(),
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| handler(&mut conn, event)));
        if outcome.is_err() {
            // At once, so that the rest of what has come is not told.
            conn.abort();
            conn.scope.state.panics += 1;
        }
        self.return_handler(index, handler);
    }

    fn take_handler(&mut self, index: u32) -> Option<Handler> {
        self.handlers.get_mut(index as usize)?.handler.take()
    }

    /// Puts a handler back, unless the last of its users left while it ran.
    fn return_handler(&mut self, index: u32, handler: Handler) {
        if let Some(slot) = self.handlers.get_mut(index as usize)
            && slot.users > 0
            && slot.handler.is_none()
        {
            slot.handler = Some(handler);
        }
    }

    /// The record of `token`, unless it is closing.
    pub(super) fn open_record(&mut self, token: Token) -> Result<&mut Record, ConnError> {
        self.records
            .get_mut(token)
            .filter(|record| !record.closing)
            .ok_or(ConnError::Closed)
    }
}

/// Spreads ids, which are given out one after the other and not by a peer.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The table takes its place from the low bits and its tag from the high ones.
        self.0 = (self.0 ^ id)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_small() {
        // It is all that a manager adds to an idle connection, but for its id in a map.
        assert!(size_of::<Record>() <= 56, "{}", size_of::<Record>());
    }
}
