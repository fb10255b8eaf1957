//! Polls that join a fetch whose request may still wait for a connection.
//!
//! Such a request waits in the line of the client that asked first, and that may be a long one. So
//! the upstream client is told of the polls that join, on whichever loop, and lets the request wait
//! with the client of one of them instead.

use super::Polls;
use super::memory::Follower;
use super::tables::{Fetch, kind};
use dwell_engine::Http;
use dwell_evloop::Token;
use dwell_proto::http1::{FieldStorage, parse_request};
use dwell_upstream::Client;

/// The polls that have joined a fetch in this turn.
#[derive(Debug, Default)]
pub(crate) struct Joins(Vec<Join>);

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join {
    pub(crate) fetch: Token,
    /// The loop that has sent the request, if that is another one, and the fetch there.
    pub(crate) leader: Option<Follower>,
    poll: Token,
}

impl Joins {
    /// Notes that `poll` is the newest of a fetch.
    ///
    /// Shape: another loop is told of the first, the second, the fourth and so on. So the most that
    /// one request costs it is a message for each doubling.
    pub(super) fn note(&mut self, token: Token, fetch: &Fetch, poll: Token) {
        let leader = fetch.leader;
        let is_told = match leader {
            Some(_) => fetch.polls.len().is_power_of_two(),
            None => fetch.polls.len() > 1 && !fetch.is_anothers,
        };
        if is_told {
            self.0.push(Join {
                fetch: token,
                leader,
                poll,
            });
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Join> {
        std::mem::take(&mut self.0)
    }
}

impl Polls {
    /// The client whose request has joined, if it is still there.
    pub(crate) fn client_of_join(&self, http: &Http, join: &Join) -> Option<Client> {
        let (kept, peer) = if join.poll.kind() == kind::MISSING {
            self.asked_by(join.poll)?
        } else {
            let poll = self.waiters.records.get(join.poll)?;
            (poll.request.as_deref()?, http.peer_address(poll.exchange))
        };
        let mut storage = FieldStorage::new();
        let head = parse_request(kept.head(), &mut storage, &self.head_limits()).ok()?;
        Some(self.gate.client_of(&head, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::Method;
    use super::super::common::Common;
    use super::*;
    use crate::config::RouteId;

    #[test]
    fn another_loop_is_told_of_each_doubling_and_ones_own_client_of_all_but_the_first() {
        let token = |index| Token::new(kind::MISSING, 0, index);
        let leader = Follower {
            of_loop: 1,
            fetch: 7,
        };
        for (leader, count) in [(Some(leader), 11), (None, 1023)] {
            let mut joins = Joins::default();
            let mut fetch = Fetch {
                leader,
                is_anothers: leader.is_some(),
                ..Fetch::new(b"a", RouteId::FIRST, Common::nobodys(Method::Get))
            };
            for index in 0..1024 {
                fetch.polls.push(token(index));
                joins.note(token(0), &fetch, token(index));
            }
            assert_eq!(joins.take().len(), count);
            assert!(joins.take().is_empty());
        }
    }
}
