//! Polls that asked for the same and got nothing by it: each asks for itself, a few at a time.

use super::misses::{FetchedValue, UpstreamResult};
use super::responder::Responder;
use super::sharing::Owner;
use super::tables::{Fetch, Link, kind};
use super::{FetchRequest, Join, Polls};
use crate::config::RouteId;
use dwell_engine::Http;
use dwell_evloop::{Context, Token};
use dwell_proto::http1::{FieldStorage, parse_request};
use dwell_upstream::Client;

/// Requests of one queue that are under way at once.
const AT_ONCE: usize = 16;

impl Polls {
    /// Takes the polls out of `polls` that the result of a shared request does not belong to; each
    /// asks for itself.
    pub(super) fn queue_up(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: &Fetch,
        verdict: &UpstreamResult,
        polls: &mut Vec<Token>,
    ) {
        // A request for one client is its own, and a result that was remembered belongs to all.
        if fetch.key.is_none() || fetch.is_anothers {
            return;
        }
        let answered = match Owner::of(verdict, fetch.common.is_plain) {
            Owner::All => return,
            Owner::Nobody if fetch.common.is_trimmed => 0,
            Owner::Nobody | Owner::Asker => 1,
        };
        let queued = polls.split_off(answered.min(polls.len()));
        self.each_for_itself(context, http, fetch, &queued);
    }

    /// Has each of these ask for itself, in the order in which they came. Their deadlines stay.
    pub(super) fn each_for_itself(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: &Fetch,
        polls: &[Token],
    ) {
        if polls.is_empty() {
            return;
        }
        let queue = self.misses.fetches.insert(Fetch {
            polls: polls.iter().rev().copied().collect(),
            ..Fetch::new(&fetch.name, fetch.route, fetch.common)
        });
        let Ok(queue) = queue else {
            for token in polls {
                self.turn_away(context, http, *token);
            }
            return;
        };
        for token in polls {
            if let Some(poll) = self.waiters.poll_mut(*token) {
                poll.place = queue;
            }
        }
        for _ in 0..AT_ONCE.min(polls.len()) {
            self.next_in_queue(context, http, Link::to(queue));
        }
    }

    /// Sends the request of the next one whose client is still there.
    pub(super) fn next_in_queue(&mut self, context: &mut Context, http: &mut Http, queue: Link) {
        let Some(queue) = queue.token() else {
            return;
        };
        loop {
            let Some(waiting) = self.misses.fetches.get_mut(queue) else {
                return;
            };
            let (next, is_last) = (waiting.polls.pop(), waiting.polls.is_empty());
            let (name, route) = (waiting.name.clone(), waiting.route);
            if is_last {
                self.close_fetch(queue);
            }
            let Some(token) = next else {
                return;
            };
            if self.ask_alone(http, &name, route, token, queue) {
                return;
            }
            self.turn_away(context, http, token);
        }
    }

    /// Sends the request of a poll that waited; false if that cannot be.
    fn ask_alone(
        &mut self,
        http: &mut Http,
        name: &[u8],
        route: RouteId,
        token: Token,
        queue: Token,
    ) -> bool {
        let Some(forward) = self.own_request(http, token) else {
            return false;
        };
        let Some(fetch) = self.open_fetch(None, name, route, forward) else {
            return false;
        };
        if let Some(fetch) = self.misses.fetches.get_mut(fetch) {
            fetch.queue = Link::to(queue);
            fetch.polls.push(token);
        }
        if let Some(poll) = self.waiters.poll_mut(token) {
            poll.place = fetch;
        }
        true
    }

    /// The client whose request has joined, if it is still there.
    pub(crate) fn client_of_join(&self, http: &Http, join: &Join) -> Option<Client> {
        let (kept, peer) = if join.member.kind() == kind::MISSING {
            self.asked_by(join.member)?
        } else {
            let poll = self.waiters.polls().get(join.member)?;
            (poll.request.as_deref()?, http.peer_address(poll.exchange))
        };
        let mut storage = FieldStorage::new();
        let head = parse_request(kept.head(), &mut storage, &self.head_limits()).ok()?;
        Some(self.gate.client_of(&head, peer))
    }

    fn own_request(&self, http: &Http, token: Token) -> Option<FetchRequest> {
        if token.kind() == kind::MISSING {
            return self.encode_missing(token, false);
        }
        let poll = self.waiters.polls().get(token)?;
        let peer = http.peer_address(poll.exchange);
        let kept = poll.request.as_deref()?;
        self.encode_kept(kept, peer, false, &poll.ask, poll.route)
    }

    /// Answers a poll that nothing can be sent for it, if it is still there.
    fn turn_away(&mut self, context: &mut Context, http: &mut Http, token: Token) {
        if token.kind() == kind::MISSING {
            self.missing_ends(context, http, token, FetchedValue::Unknown);
        } else if let Some(poll) = self.waiters.remove(token) {
            let mut to = Responder::held(http, &poll, &self.responses);
            self.refuse_busy(context, &mut to);
        }
    }
}
