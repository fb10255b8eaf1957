//! Connections that go on at another place.

use super::Link;
use crate::connection::{Connection, Operation};
use crate::{ClientOptions, Endpoint};
use dwell_evloop::{Breaker, Context, Token};
use std::sync::Arc;
use std::time::Instant;

/// The failures of a place in a row, and the time before which it is not tried again.
#[derive(Debug)]
pub(crate) struct Attempts {
    breaker: Breaker,
    pub(crate) next_at: Option<Instant>,
}

impl Link {
    /// Takes the attempts at this place, for the time when the connection goes on there again.
    pub(crate) fn take_attempts(&mut self, options: &ClientOptions) -> Attempts {
        Attempts {
            breaker: std::mem::replace(&mut self.breaker, Breaker::new(options.failures_max)),
            next_at: self.next_at,
        }
    }

    /// Goes on with the attempts at a place that it was at before.
    pub(crate) fn resume(&mut self, context: &mut Context, attempts: Attempts) {
        self.breaker = attempts.breaker;
        let next_at = attempts.next_at.filter(|at| *at > context.now());
        if let Some(at) = next_at.filter(|_| self.connection.is_none()) {
            self.next_at = next_at;
            context.arm(self.token, at.saturating_duration_since(context.now()));
        }
    }

    /// Goes on at another place, under a token with this index. Commands that were not sent go
    /// there. Returns the connection to the place before, if that owes replies.
    pub(crate) fn leave_for(
        &mut self,
        context: &mut Context,
        (endpoint, index): (Endpoint, u32),
        options: &ClientOptions,
    ) -> Option<Self> {
        let generation = self.token.generation().wrapping_add(1);
        let token = Token::new(self.token.kind(), generation, index);
        let handshakes = std::mem::take(&mut self.handshakes);
        let mut there = Self {
            handshakes,
            ..Self::new(self.purpose, endpoint, token, options)
        };
        std::mem::swap(self, &mut there);
        let mut before = there;
        let Some(connection) = before.connection.take_if(|it| it.in_flight() > 0) else {
            before.close(context);
            before.give_up(context);
            return None;
        };
        if connection.is_greeted() {
            before.connection = Some(connection);
        } else {
            match self.begin(context, options) {
                Ok(begun) => {
                    let deadline = context.now() + options.connect_timeout;
                    let turned = connection.turned_to(begun, options.value_bytes_max, deadline);
                    self.connection = Some(turned);
                    self.set_deadline(context, options);
                    before.give_up(context);
                    return None;
                }
                // They fail where they are.
                Err(_) => before.connection = Some(connection),
            }
        }
        if let Some(connection) = &mut before.connection {
            connection.forget_own();
        }
        Some(before)
    }

    /// Takes the reads of keys that are waited for, whose replies are of no use any more.
    pub(crate) fn take_reads(&mut self, reads: &mut Vec<(Arc<[u8]>, Operation)>) {
        if let Some(connection) = &mut self.connection {
            connection.take_reads(reads);
        }
    }

    /// Has the replies to sweeps change nothing; returns the number of them.
    pub(crate) fn end_sweeps(&mut self) -> usize {
        self.connection.as_mut().map_or(0, Connection::end_sweeps)
    }

    /// Asks other Sentinels from the next connection on.
    pub(crate) fn ask_others(&mut self, endpoint: Endpoint) {
        self.target.ask_others(endpoint);
    }

    /// The index of its tokens.
    pub(crate) fn index(&self) -> u32 {
        self.token.index()
    }

    /// Returns true of a token of the connection, or of its next attempt.
    pub(crate) fn has(&self, token: Token) -> bool {
        token == self.token
    }
}
