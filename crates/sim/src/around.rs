//! The circumstances of a client, which others decide.

use crate::answer::Answer;
use crate::app::Record;
use crate::bounds::Refused;
use crate::connection::Connection;
use crate::keys::Key;
use crate::report::Counts;
use crate::tls::Who;
use crate::transports::Transports;
use dwell_evloop::sim::SimNet;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

/// The end of a process.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// The process ends: it may close connections and end waits.
    pub(crate) ends: bool,
    /// A process before may do so, as another one serves.
    pub(crate) hands_over: bool,
}

/// The circumstances of a client, which others decide.
pub(crate) struct Around<'a> {
    pub(crate) network: &'a SimNet,
    pub(crate) edge: SocketAddr,
    pub(crate) keys: &'a mut [Key],
    pub(crate) counts: &'a mut Counts,
    pub(crate) keeps_waiting: bool,
    /// Requests that are sent before the answers to those before.
    pub(crate) pipeline: usize,
    /// Until then a loop stands still, or no descriptor is left.
    pub(crate) hindered_until: Duration,
    /// The values are in memcached, where lookups may fail until then.
    pub(crate) fails_until: Option<Duration>,
    pub(crate) ending: Ending,
    /// The application, if there is one.
    pub(crate) app: Option<&'a RefCell<Record>>,
    /// Nothing goes wrong any more, and what has is over.
    pub(crate) is_calm: bool,
    /// Bounds may strike clients, who note it here.
    pub(crate) refused: Option<&'a mut Refused>,
    pub(crate) transports: &'a Transports,
    /// Writes are refused although there is room, or have been.
    pub(crate) refuses_writes: bool,
    /// Until then handshakes may give way to those of a flood.
    pub(crate) flooded_until: Duration,
}

impl Around<'_> {
    /// Begins the connection of a client.
    pub(crate) fn connect(&self, who: Who) -> Connection {
        self.transports.connect(who, self.network, self.edge)
    }

    /// Returns true if a process may end waits and connections.
    pub(crate) fn may_end(&self) -> bool {
        self.ending.ends || self.ending.hands_over
    }

    /// Returns true if handshakes may give way to others.
    pub(crate) fn is_flooded(&self) -> bool {
        self.network.elapsed() < self.flooded_until
    }

    /// A connection is closed without an answer; returns true if a bound may be why.
    pub(crate) fn refuses_connection(&mut self) -> bool {
        let Some(refused) = self.refused.as_deref_mut() else {
            return false;
        };
        self.counts.reach("refused connection");
        refused.note_closed();
        true
    }

    /// An answer is 503; returns true if a bound is why.
    pub(crate) fn refuses_answer(&mut self, answer: &Answer) -> bool {
        if answer.body.is_empty() && (self.app.is_some() || self.fails_until.is_some()) {
            // An application or a memcached that fails may be why, so it is not counted.
            return answer.retries && self.refused.is_some();
        }
        let is_reason = answer.body.is_empty() || answer.body.starts_with(TOO_MANY.as_bytes());
        answer.retries && is_reason && self.refuses_request()
    }

    /// A request is refused; returns true if a bound may be why.
    pub(crate) fn refuses_request(&mut self) -> bool {
        let Some(refused) = self.refused.as_deref_mut() else {
            return false;
        };
        self.counts.reach("refused wait");
        refused.note_busy();
        true
    }

    /// A WebSocket on a stream is refused; returns true if a bound may be why.
    pub(crate) fn refuses_stream(&mut self) -> bool {
        let Some(refused) = self.refused.as_deref_mut() else {
            return false;
        };
        self.counts.reach("refused WebSocket on a stream");
        refused.note_stream();
        true
    }

    /// A message of a WebSocket is refused; returns true if a bound is why, or an upgrade.
    pub(crate) fn refuses_message(&mut self, why: &str) -> bool {
        if why == "shutting down" && self.ending.hands_over {
            return true;
        }
        let refused = self.refused.as_deref_mut();
        let Some(refused) = refused.filter(|_| why.starts_with(TOO_MANY)) else {
            return false;
        };
        self.counts.reach("refused key");
        refused.note_message();
        true
    }
}

/// The beginning of a reason.
const TOO_MANY: &str = "too many ";
