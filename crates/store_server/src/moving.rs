//! Connections that leave for another process, and those that have come from one.

use super::connection::{Connection, Phase, StoreServer, register};
use super::session::Session;
use crate::moment::Moment;
use dwell_evloop::{Context, Detached, Flushed, Listener, Peer, Readiness, Stream, Token};
use dwell_proto::memcache::ErrorLine;
use std::path::Path;
use std::sync::Arc;

/// A connection that has left.
#[derive(Debug)]
pub struct Left {
    /// The socket.
    pub stream: Stream,
    /// Input that was received and not executed.
    pub input: Vec<u8>,
    /// True if its client is authenticated.
    pub is_trusted: bool,
}

impl StoreServer {
    /// The listeners, to be given to another process.
    pub fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter()
    }

    /// Removes the file of the unix socket with its listener here.
    pub fn own_file(&mut self, path: &Path) {
        for listener in self.listeners.iter_mut() {
            if let Err(error) = listener.own_file(path) {
                tracing::warn!(%error, path = %path.display(), "the socket has lost its file");
            }
        }
    }

    /// Stops listening and executing commands: another process has the store. Every connection
    /// leaves, once its client has taken the replies that it is owed.
    pub fn hand_over(&mut self, context: &mut Context) {
        if std::mem::replace(&mut self.retired, true) {
            return;
        }
        self.listeners.iter().for_each(Listener::leave_file);
        self.listeners.unlisten_all(context);
        let connections: Vec<_> = self.connections.tokens().collect();
        for token in connections {
            self.advance_out(context, token);
        }
    }

    /// Returns true if no connection has to leave any more.
    pub fn is_left(&self) -> bool {
        !self.retired || self.connections.is_empty()
    }

    /// Goes on with a connection that is to leave.
    pub(super) fn advance_out(&mut self, context: &mut Context, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        match connection.peer.stream.flush() {
            // It has its place among those that leave.
            Ok(Flushed::All) if connection.phase == Phase::Leaving && !self.draining => {}
            Ok(Flushed::All) if connection.can_leave() && !self.draining => {
                connection.phase = Phase::Leaving;
                context.disarm(token);
                self.leaving.push_back(token);
            }
            Ok(Flushed::All) | Err(_) => self.close(context, token),
            Ok(Flushed::More) => context.again(token, Readiness::WRITABLE),
            Ok(Flushed::Blocked) => context.arm(token, self.service.limits.stall_timeout),
        }
    }

    /// Takes out those that can leave by now, at most so many; the others wait for the next call.
    pub fn take_leaving(&mut self, context: &mut Context, count_max: usize) -> Vec<Left> {
        let count = count_max.min(self.leaving.len());
        let left = self.leaving.drain(..count).filter_map(|token| {
            let mut connection = self.connections.remove(token)?;
            context.disarm(token);
            // It fails only for a socket that has no registration, which is as well.
            let _ = context.deregister(&mut connection.peer.stream);
            self.service.leave(&connection.record);
            let mut input = connection.session.rest_of_line();
            input.extend_from_slice(connection.peer.tail());
            Some(Left {
                is_trusted: connection.session.is_trusted(&self.service),
                stream: connection.peer.stream,
                input,
            })
        });
        left.collect()
    }

    /// Serves a client that has left another process, whose `input` comes before what is in its
    /// socket.
    pub fn adopt(
        &mut self,
        context: &mut Context,
        mut stream: Stream,
        input: Vec<u8>,
        is_trusted: bool,
    ) {
        let peer = stream.peer_address().ok().flatten();
        let now = Moment::of(context).steady;
        let Some(record) = self.service.admit(peer, now) else {
            // As for one that connects: there is nothing to wait for.
            let _ = stream.write(ErrorLine::TooManyConnections.as_bytes());
            return;
        };
        let has_input = !input.is_empty();
        let peer = Peer::from(Detached { stream, input });
        let mut connection = Connection::new(peer, &self.service, Arc::clone(&record));
        if is_trusted {
            connection.session = Session::trusted(self.service.limits.request);
        }
        let idle_timeout = self.service.limits.idle_timeout;
        match register(context, &mut self.connections, connection, idle_timeout) {
            Some(token) if has_input => context.again(token, Readiness::default()),
            Some(_) => {}
            None => self.service.leave(&record),
        }
    }
}

impl Connection {
    /// Returns true if another process can go on with it unnoticed by its client.
    fn can_leave(&self) -> bool {
        let is_whole = !self.session.is_discarding() && !self.session.is_listing();
        self.phase != Phase::Closing && is_whole
    }
}
