//! The records of everything that waits, and the tables they live in.

use super::ask::Ask;
use dwell_engine::ExchangeId;
use dwell_evloop::{Slab, Token};
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

/// The kinds of the tokens of these records. They name no sockets, so the loop never sees them.
pub(crate) mod kind {
    pub(crate) const POLL: u8 = 1;
    pub(crate) const KEY: u8 = 2;
    pub(crate) const LOOKUP: u8 = 3;
    pub(crate) const FETCH: u8 = 4;
}

/// One exchange that is owed its answer.
#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) exchange: ExchangeId,
    pub(crate) ask: Ask,
    pub(crate) place: Place,
    pub(crate) arrived: Instant,
    /// What forwarding it needs; absent where it can never be forwarded.
    pub(crate) request: Option<Box<KeptRequest>>,
    /// Index of its route; [`NO_ROUTE`] for a request that is no poll.
    pub(crate) route: u16,
}

/// The route of a request that is no poll.
pub(crate) const NO_ROUTE: u16 = u16::MAX;

/// What an exchange waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The answer of memcached.
    Lookup(Token),
    /// A change of its key, until its wait ends.
    Waiting(Token),
    /// The answer of the upstream.
    Fetch(Token),
}

/// A request as it came, in memory of just its size.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    bytes: Box<[u8]>,
    head_bytes: u32,
}

impl KeptRequest {
    pub(crate) fn new(head: &[u8], body: &[u8]) -> Self {
        let bytes = [head, body].concat().into_boxed_slice();
        Self {
            bytes,
            head_bytes: head.len() as u32,
        }
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..self.head_bytes as usize]
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.head_bytes as usize..]
    }
}

/// One key that something is under way for.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: Box<[u8]>,
    /// The polls held for a change of it.
    pub(crate) waiting: Group,
    /// The lookup that goes out at the end of this turn, which further polls of the turn share.
    pub(crate) lookup: Option<Token>,
    /// Lookups under way, this one among them; the polls that share one may begin to wait, so the
    /// record outlives them.
    pub(crate) lookups: u32,
    /// The request to the upstream that further misses share.
    pub(crate) fetch: Option<Token>,
    /// Epoch of the connection and cas unique that came with the value the waiting polls were
    /// compared with; neither says anything without the other.
    pub(crate) version: (u64, u64),
}

/// One question to memcached.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) key: Token,
    pub(crate) polls: Vec<Token>,
}

/// One request to the upstream.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// The key whose misses share it, if they do.
    pub(crate) key: Option<Token>,
    /// The first is the one whose request was sent.
    pub(crate) polls: Vec<Token>,
}

/// Polls that wait together. Members that left are skipped, and cleared out when they are many.
#[derive(Debug, Default)]
pub(crate) struct Group {
    members: Vec<Token>,
    live: u32,
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    pub(crate) fn join(&mut self, poll: Token) {
        if self.members.capacity() == 0 {
            // Most keys have one waiter; the default first allocation is for four.
            self.members.reserve_exact(1);
        }
        self.members.push(poll);
        self.live += 1;
    }

    /// One member left; `is_member` tells of those who are still there.
    pub(crate) fn leave(&mut self, is_member: impl Fn(Token) -> bool) {
        self.live = self.live.saturating_sub(1);
        if self.members.len() > 2 * self.live as usize + 16 {
            self.members.retain(|poll| is_member(*poll));
        }
    }

    /// Takes everybody out.
    pub(crate) fn take(&mut self) -> Vec<Token> {
        self.live = 0;
        std::mem::take(&mut self.members)
    }

    /// Puts those who go on waiting back, before anybody else joins.
    pub(crate) fn put_back(&mut self, members: Vec<Token>) {
        self.live += members.len() as u32;
        if self.members.is_empty() {
            self.members = members;
        } else {
            self.members.extend(members);
        }
    }
}

/// The keys that something is under way for, by name.
#[derive(Debug)]
pub(crate) struct Keys {
    slab: Slab<Key>,
    by_name: HashTable<Token>,
    /// Keys are chosen by clients, so the hash is keyed against chosen collisions.
    hasher: RandomState,
    waited: usize,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self {
            slab: Slab::new(kind::KEY, usize::MAX),
            by_name: HashTable::new(),
            hasher: RandomState::new(),
            waited: 0,
        }
    }

    pub(crate) fn get(&self, key: Token) -> Option<&Key> {
        self.slab.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Token) -> Option<&mut Key> {
        self.slab.get_mut(key)
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<Token> {
        let is_name = |token: &Token| self.slab.get(*token).is_some_and(|key| *key.name == *name);
        self.by_name
            .find(self.hasher.hash_one(name), is_name)
            .copied()
    }

    /// The record of `name`, made if there is none. `None` when no more fit.
    pub(crate) fn enter(&mut self, name: &[u8]) -> Option<Token> {
        if let Some(token) = self.find(name) {
            return Some(token);
        }
        let key = Key {
            name: name.into(),
            waiting: Group::default(),
            lookup: None,
            lookups: 0,
            fetch: None,
            version: (0, 0),
        };
        let token = self.slab.insert(key).ok()?;
        let (slab, hasher) = (&self.slab, &self.hasher);
        self.by_name
            .insert_unique(hasher.hash_one(name), token, |token| {
                slab.get(*token)
                    .map_or(0, |key| hasher.hash_one(&*key.name))
            });
        Some(token)
    }

    /// Forgets a key that nothing is under way for; returns its name if it did.
    pub(crate) fn release(&mut self, token: Token) -> Option<Box<[u8]>> {
        let key = self.slab.get(token)?;
        if !key.waiting.is_empty() || key.lookups > 0 || key.fetch.is_some() {
            return None;
        }
        let hash = self.hasher.hash_one(&*key.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == token) {
            entry.remove();
        }
        if self.by_name.is_empty() {
            self.by_name = HashTable::new();
        }
        self.slab.remove(token).map(|key| key.name)
    }

    /// Counts a key that polls begin to wait for, or end to.
    pub(crate) fn count_waited(&mut self, begins: bool) {
        if begins {
            self.waited += 1;
        } else {
            self.waited = self.waited.saturating_sub(1);
        }
    }

    /// Keys that polls wait for now.
    pub(crate) fn waited(&self) -> usize {
        self.waited
    }

    /// The keys that polls wait for now.
    pub(crate) fn waited_keys(&self) -> Vec<Token> {
        let waits = |token: &Token| {
            self.slab
                .get(*token)
                .is_some_and(|key| !key.waiting.is_empty())
        };
        self.slab.tokens().filter(waits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_record_while_anything_needs_it() {
        let mut keys = Keys::new();
        let token = keys.enter(b"/poll/a").unwrap();
        assert_eq!(keys.enter(b"/poll/a"), Some(token));
        keys.get_mut(token)
            .unwrap()
            .waiting
            .join(Token::new(kind::POLL, 0, 1));
        assert!(keys.release(token).is_none());
        keys.get_mut(token).unwrap().waiting.leave(|_| false);
        assert_eq!(keys.release(token).as_deref(), Some(&b"/poll/a"[..]));
        assert_eq!(keys.find(b"/poll/a"), None);
    }

    #[test]
    fn a_key_outlives_the_lookups_under_way_for_it() {
        let mut keys = Keys::new();
        let token = keys.enter(b"/poll/a").unwrap();
        keys.get_mut(token).unwrap().lookups = 1;
        assert!(keys.release(token).is_none());
        keys.get_mut(token).unwrap().lookups = 0;
        assert!(keys.release(token).is_some());
    }

    #[test]
    fn members_that_come_and_go_leave_nothing_behind() {
        let mut group = Group::default();
        group.join(Token::new(kind::POLL, 0, 0));
        for index in 1..10_000 {
            group.join(Token::new(kind::POLL, 0, index));
            group.leave(|poll| poll.index() == 0);
        }
        assert!(group.members.len() < 32, "{}", group.members.len());
        assert!(!group.is_empty());
        assert_eq!(group.take().first().map(|poll| poll.index()), Some(0));
    }

    #[test]
    fn what_a_held_poll_costs_is_known() {
        assert!(size_of::<Poll>() <= 112, "{}", size_of::<Poll>());
        assert!(size_of::<Key>() <= 104, "{}", size_of::<Key>());
    }
}
