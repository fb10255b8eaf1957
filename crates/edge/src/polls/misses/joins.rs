//! Polls that join a fetch whose request may still wait for a connection.
//!
//! Such a request waits in the line of the client that asked first, and that may be a long one. So
//! the upstream client gets the polls that join, on whichever loop, and lets the request wait with
//! the client of one of them instead.

use super::memory::LoopFetch;
use super::{Fetch, FetchOrigin};
use crate::ids::{FetchId, FetchMember, Packed};

/// The polls that have joined a fetch in this turn.
#[derive(Debug, Default)]
pub(crate) struct Joins(Vec<Join>);

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join {
    pub(crate) fetch: FetchId,
    /// The loop that has sent the request, if that is another one, and the fetch there.
    pub(crate) leader: Option<LoopFetch>,
    /// The poll or key that has joined.
    pub(crate) member: Packed<FetchMember>,
}

impl Joins {
    /// Notes that `member` is the newest of a fetch.
    ///
    /// Shape: another loop gets the first, the second, the fourth and so on. So the most that one
    /// request costs it is a message for each doubling.
    pub(super) fn note(&mut self, token: FetchId, fetch: &Fetch, member: Packed<FetchMember>) {
        let count = fetch.members.len();
        let (leader, is_told) = match fetch.origin {
            FetchOrigin::Own => (None, count > 1),
            FetchOrigin::Loop(leader) => (Some(leader), count.is_power_of_two()),
            FetchOrigin::Memory => (None, false),
        };
        if is_told {
            self.0.push(Join {
                fetch: token,
                leader,
                member,
            });
        }
    }
}

impl IntoIterator for Joins {
    type Item = Join;
    type IntoIter = std::vec::IntoIter<Join>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::ask::Method;
    use super::super::super::common::{Common, Variant};
    use super::super::FetchSubject;
    use super::*;
    use crate::config::RouteId;
    use crate::ids::SubFetchId;

    #[test]
    fn another_loop_is_told_of_each_doubling_and_ones_own_client_of_all_but_the_first() {
        let common = Common {
            variant: Variant {
                method: Method::Get,
                digest: 0,
            },
            is_trimmed: false,
            is_plain: false,
            is_of_key: false,
        };
        let subject = FetchSubject {
            name: b"a",
            route: RouteId::FIRST,
            common,
        };
        let member = |index| Packed::from(SubFetchId::nth(index));
        let leader = LoopFetch {
            of_loop: 1,
            fetch: FetchId::nth(7),
        };
        for (leader, count) in [(Some(leader), 11), (None, 1023)] {
            let mut joins = Joins::default();
            let mut fetch = Fetch {
                origin: leader.map_or(FetchOrigin::Own, FetchOrigin::Loop),
                ..Fetch::new(subject)
            };
            for index in 0..1024 {
                fetch.members.push(member(index));
                joins.note(FetchId::nth(0), &fetch, member(index));
            }
            assert_eq!(joins.into_iter().count(), count);
        }
    }
}
