//! Connections that go on at another place.

use super::Link;
use crate::connection::Operation;
use crate::{ClientOptions, Endpoint};
use dwell_evloop::{Context, Token};
use std::sync::Arc;

impl Link {
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
