//! Actions that the proxy leaves for the end of the turn.

use super::tunnels::Tunnel;
use crate::ids::{FetchId, ProxiedId, Requested};
use dwell_engine::ExchangeId;
use dwell_evloop::Token;
use dwell_upstream::UpstreamRequest;

/// The actions of a loop, in their order.
#[derive(Default, Debug)]
pub(super) struct Actions(Vec<Action>);

/// An action for a proxied request.
#[derive(Debug)]
pub(super) enum Action {
    /// Sends a request.
    Send(Box<UpstreamRequest>),
    /// Writes a piece of a request body, framed already.
    Write {
        id: ProxiedId,
        piece: Vec<u8>,
        is_last: bool,
    },
    /// Reads more of a response.
    Grant {
        id: ProxiedId,
        connection: Token,
        bytes: usize,
    },
    /// Reads more of a response that was too large to be shared.
    TakeOver {
        connection: Token,
        fetch: FetchId,
        id: ProxiedId,
    },
    /// Checks that a client which has closed its sending side is still there.
    Probe { id: ProxiedId, exchange: ExchangeId },
    /// Cancels a response that no client waits for.
    Cancel {
        connection: Option<Token>,
        request: Requested,
    },
    /// Begins a tunnel: the application has switched the protocol.
    Tunnel(Box<Tunnel>),
}

impl Actions {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.0)
    }

    pub(super) fn push(&mut self, action: Action) {
        self.0.push(action);
    }

    /// The piece of a body that is written next, to which more can be added.
    pub(super) fn piece_of(&mut self, of: ProxiedId, ends: bool) -> &mut Vec<u8> {
        let is_same = matches!(
            self.0.last(),
            Some(Action::Write { id, is_last: false, .. }) if *id == of
        );
        if !is_same {
            self.push(Action::Write {
                id: of,
                piece: Vec::new(),
                is_last: false,
            });
        }
        match self.0.last_mut() {
            Some(Action::Write { piece, is_last, .. }) => {
                *is_last = ends;
                piece
            }
            // One was added above if there was none.
            _ => unreachable!("the last action is to write"),
        }
    }
}
