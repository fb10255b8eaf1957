//! Polls that asked for the same and got nothing by it: each asks for itself, a few at a time.

use super::fetch::{Fetching, Kept, Missed, common_of, head_limits};
use super::misses::{Fetch, Join, Queued, UpstreamResult};
use super::places::Event;
use super::sharing::Owner;
use crate::ids::{FetchId, FetchMember, Packed};
use dwell_engine::Http;
use dwell_proto::http1::FieldStorage;
use dwell_upstream::Client;

/// Requests of one queue that are in progress at once.
const AT_ONCE: usize = 16;

impl Fetching<'_> {
    /// Has each of these ask for itself, in the order in which they came. Their deadlines stay.
    /// Returns those for which nothing can be sent.
    #[must_use]
    pub(super) fn each_for_itself(
        &mut self,
        http: &Http,
        fetch: &Fetch,
        members: &[Packed<FetchMember>],
    ) -> Vec<Packed<FetchMember>> {
        if members.is_empty() {
            return Vec::new();
        }
        let Some(queue) = self.misses.open_queue(fetch, members) else {
            return members.to_vec();
        };
        for member in members {
            self.set_place(*member, queue);
        }
        let next = |_| self.next_in_queue(http, Some(queue));
        (0..AT_ONCE.min(members.len())).flat_map(next).collect()
    }

    /// Sends the request of the next one whose client is still there. Returns those before it, for
    /// which nothing can be sent.
    #[must_use]
    pub(super) fn next_in_queue(
        &mut self,
        http: &Http,
        queue: Option<FetchId>,
    ) -> Vec<Packed<FetchMember>> {
        let mut left = Vec::new();
        while let Some(queued) = queue.and_then(|queue| self.misses.take_queued(queue)) {
            if self.ask_alone(http, &queued).is_some() {
                break;
            }
            left.push(queued.member);
        }
        left
    }

    /// Sends the request of a member that waited; `None` if that cannot be.
    fn ask_alone(&mut self, http: &Http, queued: &Queued) -> Option<()> {
        let kept = self.kept_of(http, queued.member)?;
        let mut storage = FieldStorage::new();
        let missed = Missed {
            name: &queued.name,
            ask: kept.ask,
            route: kept.route,
            head: &kept.head(&mut storage, &head_limits(self.config))?,
            body: kept.request.body(),
            peer: &|| kept.peer,
            client: &|| kept.client.clone(),
        };
        let Missed {
            head, ask, route, ..
        } = missed;
        let common = common_of(self.routes, self.misses, head, ask, route);
        let request = self.encode(&missed, false);
        let fetch = self.misses.open_queued(queued, common, request)?;
        self.set_place(queued.member, fetch);
        Some(())
    }

    /// The client whose request has joined, if it is still there.
    pub(crate) fn client_of_join(&self, http: &Http, join: &Join) -> Option<Client> {
        let kept = self.kept_of(http, join.member)?;
        let mut storage = FieldStorage::new();
        let head = kept.head(&mut storage, &head_limits(self.config))?;
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
            client: http.client_names(poll.exchange).cloned(),
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
}

/// The members that the result of a shared request does not belong to, out of `members`: each asks
/// for itself.
pub(super) fn left_to_ask(
    fetch: &Fetch,
    result: &UpstreamResult,
    members: &mut Vec<Packed<FetchMember>>,
) -> Vec<Packed<FetchMember>> {
    // A request for one client is its own, and a result that was remembered belongs to all.
    if !fetch.is_led() {
        return Vec::new();
    }
    let answered = match Owner::of(result, fetch.common.is_plain) {
        Owner::All => return Vec::new(),
        Owner::Nobody if fetch.common.is_trimmed => 0,
        Owner::Nobody | Owner::Asker => 1,
    };
    members.split_off(answered.min(members.len()))
}
