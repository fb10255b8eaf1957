//! The connection on which a server is asked for its statistics.

use super::connection::{Connection, Lost, Place, next_tenant};
use super::figures::{Difference, Figures};
use super::metrics::ResyncReason;
use super::pace::Pace;
use dwell_evloop::{Context, Readiness, Token};
use dwell_proto::memcache::{Reply, ReplyLimits, ResponseDecoder};
use std::net::SocketAddr;
use std::time::Duration;

/// Asks again and again, and compares.
///
/// The token's deadline is the one by which the server has to answer, or the time of the next
/// attempt to connect.
#[derive(Debug)]
pub(super) struct Statistics {
    place: Place,
    token: Token,
    connection: Option<Connection>,
    decoder: ResponseDecoder,
    is_owed: bool,
    /// The part of the owed answer that has come.
    coming: Figures,
    /// The last ones; they stay while connections come and go.
    last: Option<Figures>,
    pace: Pace,
}

impl Statistics {
    pub(super) fn new(place: Place, token: Token, seed: u64) -> Self {
        Self {
            place,
            token,
            connection: None,
            decoder: ResponseDecoder::default(),
            is_owed: false,
            coming: Figures::default(),
            last: None,
            pace: Pace::new(seed),
        }
    }

    /// Asks, unless an answer is owed; connects first where that is due.
    pub(super) fn ask(&mut self, context: &mut Context, timeout: Duration) {
        if self.is_owed {
            return;
        }
        match &mut self.connection {
            None if context.is_armed(self.token) => {}
            None => self.connect(context, timeout),
            Some(_) => {
                if self.send(context, timeout) == Err(Lost) {
                    self.lost(context);
                }
            }
        }
    }

    /// Ends the connection, with nothing to come after it.
    pub(super) fn end(&mut self, context: &mut Context) {
        self.drop_connection(context);
    }

    /// Ends the connection; the next one is to another address, whose figures begin again.
    pub(super) fn turn_to(&mut self, context: &mut Context, address: SocketAddr) {
        self.drop_connection(context);
        self.place.address = address;
        self.last = None;
    }

    fn connect(&mut self, context: &mut Context, timeout: Duration) {
        let limits = ReplyLimits {
            // Statistics have none.
            value_bytes_max: 0,
            ..ReplyLimits::default()
        };
        self.decoder = ResponseDecoder::new(limits);
        self.connection = Connection::open(context, &self.place, self.token);
        if self.connection.is_some() {
            self.is_owed = true;
            context.arm(self.token, timeout);
        } else {
            self.lost(context);
        }
    }

    fn send(&mut self, context: &mut Context, timeout: Duration) -> Result<(), Lost> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        self.is_owed = true;
        self.coming = Figures::default();
        context.arm(self.token, timeout);
        connection.write(b"stats\r\n")
    }

    /// The deadline has passed: no answer has come, or the next attempt is due.
    pub(super) fn expired(&mut self, context: &mut Context, token: Token, timeout: Duration) {
        if token != self.token {
            return;
        }
        if self.connection.is_some() {
            self.lost(context);
        } else {
            self.connect(context, timeout);
        }
    }

    /// Takes what has come; returns what has happened since the last answer, when this one is
    /// whole.
    pub(super) fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        timeout: Duration,
        tells_deletions: bool,
    ) -> Option<Difference> {
        if token != self.token {
            return None;
        }
        match self.take(context, readiness, timeout) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(Lost) => {
                self.lost(context);
                return None;
            }
        }
        context.disarm(self.token);
        self.is_owed = false;
        self.pace.succeeded();
        Some(self.compare(tells_deletions))
    }

    /// Makes what has come the last ones.
    fn compare(&mut self, tells_deletions: bool) -> Difference {
        match self.last.replace(self.coming) {
            Some(before) => self.coming.since(&before, tells_deletions),
            // Since the watch has begun, what is never told may have happened already.
            None => Difference {
                reason: Some(ResyncReason::Connected),
                ..Difference::default()
            },
        }
    }

    /// Tells whether the answer is whole.
    fn take(
        &mut self,
        context: &mut Context,
        readiness: Readiness,
        timeout: Duration,
    ) -> Result<bool, Lost> {
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        if connection.go_on(readiness)? {
            self.send(context, timeout)?;
        }
        let Some(connection) = self.connection.as_mut().filter(|_| readiness.is_readable()) else {
            return Ok(false);
        };
        if !connection.is_established() {
            return Ok(false);
        }
        let (decoder, coming, mut is_whole) = (&mut self.decoder, &mut self.coming, false);
        connection.receive(context, self.token, readiness, |input| {
            let mut used = 0;
            while let Some((length, reply)) = decoder.decode(&input[used..]).map_err(|_| Lost)? {
                used += length;
                match reply {
                    Reply::Stat { name, value } => coming.take(name, value),
                    // A server without statistics says nothing, which is an answer as well.
                    Reply::End | Reply::Error { .. } => is_whole = true,
                    _ => return Err(Lost),
                }
            }
            Ok(used)
        })?;
        Ok(is_whole)
    }

    fn lost(&mut self, context: &mut Context) {
        self.drop_connection(context);
        context.arm(self.token, self.pace.failed());
    }

    /// Makes what is still on its way to the connection find nothing.
    fn drop_connection(&mut self, context: &mut Context) {
        context.disarm(self.token);
        self.connection = None;
        self.is_owed = false;
        self.token = next_tenant(self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Statistics {
        /// An answer that says how often everything was flushed.
        fn come(&mut self, flushes: &[u8]) -> Option<ResyncReason> {
            self.coming = Figures::default();
            self.coming.take(b"cmd_flush", flushes);
            self.compare(false).reason
        }
    }

    #[test]
    fn the_first_figures_say_that_nobody_knows_what_was_before() {
        let place = Place {
            address: ([127, 0, 0, 1], 11211).into(),
            tls: None,
        };
        let mut statistics = Statistics::new(place, Token::new(7, 0, 2), 1);
        assert_eq!(statistics.come(b"3"), Some(ResyncReason::Connected));
        assert_eq!(statistics.come(b"3"), None);
        assert_eq!(statistics.come(b"4"), Some(ResyncReason::Flushed));
        assert_eq!(statistics.come(b"4"), None);
    }
}
