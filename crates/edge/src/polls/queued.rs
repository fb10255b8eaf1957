//! Polls that asked for the same and got nothing by it: each asks for itself, a few at a time.

use super::Polls;
use super::fetch::{Kept, Missed};
use super::fetched::Member;
use super::misses::{Fetch, FetchedValue, Join, Queued, UpstreamResult};
use super::places::Event;
use super::sharing::Owner;
use crate::ids::{FetchId, FetchMember, Packed};
use crate::responder::Responder;
use dwell_engine::Http;
use dwell_evloop::Context;
use dwell_proto::http1::FieldStorage;
use dwell_upstream::Client;

/// Requests of one queue that are under way at once.
const AT_ONCE: usize = 16;

impl Polls {
    /// Takes the members out of `members` that the result of a shared request does not belong to;
    /// each asks for itself.
    pub(super) fn queue_up(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: &Fetch,
        result: &UpstreamResult,
        members: &mut Vec<Packed<FetchMember>>,
    ) {
        // A request for one client is its own, and a result that was remembered belongs to all.
        if !fetch.is_led() {
            return;
        }
        let answered = match Owner::of(result, fetch.common.is_plain) {
            Owner::All => return,
            Owner::Nobody if fetch.common.is_trimmed => 0,
            Owner::Nobody | Owner::Asker => 1,
        };
        let queued = members.split_off(answered.min(members.len()));
        self.each_for_itself(context, http, fetch, &queued);
    }

    /// Has each of these ask for itself, in the order in which they came. Their deadlines stay.
    pub(super) fn each_for_itself(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: &Fetch,
        members: &[Packed<FetchMember>],
    ) {
        if members.is_empty() {
            return;
        }
        let Some(queue) = self.misses.open_queue(fetch, members) else {
            for member in members {
                self.turn_away(context, http, *member);
            }
            return;
        };
        for member in members {
            self.set_place(*member, queue);
        }
        for _ in 0..AT_ONCE.min(members.len()) {
            self.next_in_queue(context, http, Some(queue));
        }
    }

    /// Sends the request of the next one whose client is still there.
    pub(super) fn next_in_queue(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        queue: Option<FetchId>,
    ) {
        let Some(queue) = queue else {
            return;
        };
        while let Some(queued) = self.misses.take_queued(queue) {
            if self.ask_alone(http, &queued).is_some() {
                return;
            }
            self.turn_away(context, http, queued.member);
        }
    }

    /// Sends the request of a member that waited; `None` if that cannot be.
    fn ask_alone(&mut self, http: &Http, queued: &Queued) -> Option<()> {
        let kept = self.kept_of(http, queued.member)?;
        let mut storage = FieldStorage::new();
        let missed = Missed {
            name: &queued.name,
            ask: kept.ask,
            route: kept.route,
            head: &kept.head(&mut storage, &self.head_limits())?,
            body: kept.request.body(),
            peer: &|| kept.peer,
        };
        let common = self.common_of(missed.head, missed.ask, missed.route);
        let request = self.encode(&missed, false);
        let fetch = self.misses.open_queued(queued, common, request)?;
        self.set_place(queued.member, fetch);
        Some(())
    }

    /// The client whose request has joined, if it is still there.
    pub(crate) fn client_of_join(&self, http: &Http, join: &Join) -> Option<Client> {
        let kept = self.kept_of(http, join.member)?;
        let mut storage = FieldStorage::new();
        let head = kept.head(&mut storage, &self.head_limits())?;
        Some(self.gate.client_of(&head, kept.peer))
    }

    /// The request of a member of a fetch, if its client is still there.
    fn kept_of(&self, http: &Http, member: Packed<FetchMember>) -> Option<Kept<'_>> {
        let poll = match member.id() {
            FetchMember::SubFetch(key) => return self.misses.sub_fetch(key).map(Kept::of_key),
            FetchMember::Poll(poll) => self.waiters.polls().get(poll)?,
        };
        Some(Kept {
            request: poll.request.as_deref()?,
            target: None,
            ask: &poll.ask,
            route: poll.route,
            peer: http.peer_address(poll.exchange),
        })
    }

    /// Notes that a member waits for `fetch`; keys have no place of their own.
    fn set_place(&mut self, member: Packed<FetchMember>, fetch: FetchId) {
        if let FetchMember::Poll(poll) = member.id()
            && let Some(poll) = self.waiters.poll_mut(poll)
        {
            poll.place.moves(Event::NotShared, fetch);
        }
    }

    /// Answers a member that nothing can be sent for it, if it is still there.
    pub(super) fn turn_away(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        member: Packed<FetchMember>,
    ) {
        match self.take_member(member) {
            Some(Member::Poll(poll)) => {
                let mut to = Responder::held(http, &poll, &self.responses);
                self.refuse_busy(context, &mut to);
            }
            Some(Member::Key(sub_fetch)) => {
                self.end_sub_fetch(context, http, &sub_fetch, FetchedValue::Unknown);
            }
            None => {}
        }
    }
}
