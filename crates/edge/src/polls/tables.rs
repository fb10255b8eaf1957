//! The records of everything that waits, and the tables they live in.

use super::ask::{Ask, KEYS_MAX};
use super::decide::Content;
use super::kept_request::KeptRequest;
use super::places::{Event, PollPlace};
use crate::access::CorsGrant;
use crate::config::{OnDelete, RouteId, Rules};
use crate::cursor::{Condition, Cursor};
use crate::responder::{HeldRequest, RequestLine};
use dwell_engine::ExchangeId;
use dwell_evloop::{Id, Slab, Token};
use dwell_memcache::watch::WaitedByLoop;
use dwell_store::SharedKey;
use dwell_timers::Tick;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use std::collections::HashSet;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use crate::ids::{FeedId, FetchId, KeyId, LookupId, ResponseSource, SetId, WaiterId};

/// One exchange that is owed its answer.
#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) exchange: ExchangeId,
    pub(crate) ask: Ask,
    /// The source of its response.
    pub(crate) place: PollPlace,
    pub(crate) arrived: Instant,
    /// The request, for the application or the access log; absent if neither needs it.
    pub(crate) request: Option<Box<KeptRequest>>,
    pub(crate) route: RouteId,
    /// The CORS grant of its page.
    pub(crate) origin: Option<CorsGrant>,
}

impl Poll {
    /// The time for which it may be held from `now` on.
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        self.ask.rest_of_wait(self.arrived, now)
    }

    /// It is held for a change of a key from now on.
    pub(super) fn waits_from_now(&mut self, key: KeyId) {
        self.place.moves(Event::Current, key);
        self.ask.form.set_held();
    }

    /// The key whose change it is held for, if it is.
    pub(crate) fn waits_for(&self) -> Option<KeyId> {
        match self.place.source()? {
            ResponseSource::Key(key) => Some(key),
            ResponseSource::Lookup(_)
            | ResponseSource::Subrequest(_)
            | ResponseSource::Fetch(_) => None,
        }
    }
}

impl HeldRequest for Poll {
    fn exchange(&self) -> ExchangeId {
        self.exchange
    }

    fn arrived(&self) -> Instant {
        self.arrived
    }

    fn was_held(&self) -> bool {
        self.ask.form.was_held()
    }

    fn line(&self) -> Option<RequestLine<'_>> {
        self.request.as_deref()?.line()
    }

    fn route(&self) -> RouteId {
        self.route
    }

    fn page(&self) -> Option<(RouteId, CorsGrant)> {
        Some((self.route, self.origin?))
    }
}

/// One key that a stream of events or a WebSocket follows.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) sink: Sink,
    pub(crate) key: KeyId,
    /// The client's cursor: of the last event it was sent, or of its request.
    pub(crate) has: Condition,
    pub(crate) ends: Tick,
    /// The set of those with which it shares a stream, if it has not one for itself.
    pub(crate) set: Option<SetId>,
    pub(crate) route: RouteId,
    /// The cache has had a value since the stream began or its last deletion was told.
    pub(crate) is_cached: bool,
    /// The application is asked for a value, or has answered and its client has not been told yet.
    pub(crate) is_asking: bool,
}

/// The effect of a change of its key on a feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    None,
    Value,
    Deleted,
    /// It ends, so that its client comes back and the application is asked.
    Ends,
}

/// The destination of a feed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sink {
    Events(ExchangeId),
    /// A connection that is about to become a WebSocket; the bits say what was negotiated.
    Leaving(u32),
    Socket(Token),
}

/// The feeds of one stream that follows several keys.
#[derive(Debug, Default)]
pub(crate) struct FeedSet {
    /// In the order in which the client has named the keys.
    pub(crate) members: Vec<Member>,
    /// State of a WebSocket, which may follow other keys later, or none.
    pub(crate) socket: Option<Box<SocketSet>>,
}

/// State of a WebSocket besides its keys.
#[derive(Debug)]
pub(crate) struct SocketSet {
    pub(crate) sink: Sink,
    pub(crate) ends: Tick,
    pub(crate) route: RouteId,
    /// The path of its request.
    pub(crate) path: Box<str>,
    /// The keys that it has dropped, by their labels, with the last value that it was sent of each:
    /// its client may not have that yet when it takes the key up again.
    pub(crate) given_up: Vec<(Box<str>, Condition)>,
}

impl SocketSet {
    /// A key is followed no longer, of which the client was told this last.
    pub(crate) fn give_up(&mut self, label: Box<str>, told: Condition) {
        let is_full = self.given_up.len() == KEYS_MAX;
        let known = self.given_up.iter_mut().find(|(of, _)| *of == label);
        match known {
            Some((_, known)) => *known = told,
            None if is_full => {}
            None => self.given_up.push((label, told)),
        }
    }

    /// The last cursor that the client was sent of a key it has unsubscribed from, if any;
    /// [`Condition::Foreign`] if that is not known any more.
    pub(crate) fn told_last(&self, label: &str) -> Option<Condition> {
        let known = self.given_up.iter().find(|(of, _)| **of == *label);
        let is_full = self.given_up.len() == KEYS_MAX;
        known
            .map(|(_, told)| *told)
            .or(is_full.then_some(Condition::Foreign))
    }
}

/// One key of a stream that follows several.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) feed: FeedId,
    /// The key as the client has named it; nothing where the path of the request did.
    pub(crate) label: Option<Box<str>>,
}

impl Feed {
    /// Returns true if the client has the value with this cursor.
    pub(crate) fn has(&self, current: Cursor) -> bool {
        self.has == Condition::Since(current)
    }

    /// The effect of the current content of its key.
    pub(super) fn news(&self, current: Option<Content>, rules: Rules) -> News {
        match (current, rules.on_delete) {
            (Some(content), _) if self.has(content.cursor) => News::None,
            (Some(_), _) => News::Value,
            // What was never in the cache cannot have gone from there.
            (None, _) if !self.is_cached || self.is_asking => News::None,
            (None, OnDelete::KeepWaiting) => News::None,
            // The application is asked for one value at a time.
            (None, OnDelete::Origin)
                if rules.has_upstream
                    && self.set.is_none()
                    && matches!(self.sink, Sink::Events(_)) =>
            {
                News::Ends
            }
            // A value that came and went before its client was told of it is no news.
            (None, _) if self.has == Condition::None => News::None,
            (None, OnDelete::Origin | OnDelete::NotFound) => News::Deleted,
        }
    }

    /// Its client was sent what its key has now, or that it has nothing.
    pub(crate) fn was_told(&mut self, content: Option<Content>) {
        self.has = content.map_or(Condition::None, |content| Condition::Since(content.cursor));
        self.is_cached = content.is_some();
    }
}

/// One key that something is in progress for.
#[derive(Debug)]
pub(crate) struct Key {
    /// Shared with the embedded store while it is waited for.
    pub(crate) name: SharedKey,
    /// The polls and streams held for a change of it.
    pub(crate) waiting: Group,
    /// The lookup that goes out at the end of this turn, which further polls of the turn share.
    pub(crate) lookup: Option<LookupId>,
    /// Lookups in progress, this one among them; the polls that share one may begin to wait, so the
    /// record outlives them.
    pub(crate) lookups: u32,
    /// The first of the requests to the upstream that further misses share.
    pub(crate) fetch: Option<FetchId>,
    /// The version of the value that the waiting polls were compared with.
    pub(crate) version: Version,
}

/// The version of a value in memcached: a cas unique, which has a meaning only on its connection.
///
/// Shape: both halves of the cas unique, and the last bits of the number of the connection; small
/// words, as each waiting key has them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Version([u32; 3]);

impl Version {
    pub(crate) fn new(epoch: u64, cas_unique: u64) -> Self {
        #[cfg(feature = "sim")]
        let epoch = if dwell_evloop::sim::Planted::ForgetRestart.is_in() {
            0
        } else {
            epoch
        };
        Self([cas_unique as u32, (cas_unique >> 32) as u32, epoch as u32])
    }

    /// Returns true if it is this version; 0 is no version.
    pub(crate) fn is(self, epoch: u64, cas_unique: u64) -> bool {
        cas_unique != 0 && self == Self::new(epoch, cas_unique)
    }

    /// Returns true if it is later than this version, which is impossible on a server that has not
    /// restarted.
    pub(crate) fn is_after(self, epoch: u64, cas_unique: u64) -> bool {
        let Self([low, high, of_epoch]) = self;
        let own = u64::from(high) << 32 | u64::from(low);
        of_epoch == epoch as u32 && cas_unique < own
    }
}

/// Polls and streams that wait together: mostly one, and then without memory of its own.
#[derive(Debug, Default)]
pub(crate) enum Group {
    #[default]
    Empty,
    One(WaiterId),
    Many(Box<Crowd>),
}

/// Members that left are skipped, and cleared out when they are many.
#[derive(Debug)]
pub(crate) struct Crowd {
    members: Vec<WaiterId>,
    live: usize,
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(crate) fn join(&mut self, waiter: WaiterId) {
        match self {
            Self::Empty => *self = Self::One(waiter),
            Self::One(first) => {
                let members = vec![*first, waiter];
                *self = Self::Many(Box::new(Crowd { members, live: 2 }));
            }
            Self::Many(crowd) => {
                crowd.members.push(waiter);
                crowd.live += 1;
            }
        }
    }

    /// Notes that one member has left; `is_member` is true for those that are still there.
    pub(crate) fn leave(&mut self, is_member: impl Fn(WaiterId) -> bool) {
        match self {
            Self::Many(crowd) if crowd.live > 1 => {
                crowd.live -= 1;
                if crowd.members.len() > 2 * crowd.live + 16 {
                    crowd.members.retain(|waiter| is_member(*waiter));
                }
            }
            _ => *self = Self::Empty,
        }
    }

    /// All members, and possibly some that have left.
    pub(crate) fn members(&self) -> &[WaiterId] {
        match self {
            Self::Empty => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(crowd) => &crowd.members,
        }
    }

    /// Keeps the members for which `stays` is true; it is false for those that have left.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(WaiterId) -> bool) {
        let is_empty = match self {
            Self::Empty => true,
            Self::One(waiter) => !stays(*waiter),
            Self::Many(crowd) => {
                crowd.members.retain(|waiter| stays(*waiter));
                crowd.live = crowd.members.len();
                crowd.live == 0
            }
        };
        if is_empty {
            *self = Self::Empty;
        }
    }
}

/// The keys that something is in progress for, by name.
#[derive(Debug)]
pub(crate) struct Keys {
    slab: Slab<Key, KeyId>,
    /// The places of the keys.
    by_name: HashTable<u32>,
    /// Keys are chosen by clients, so the hash is seeded against chosen collisions.
    hasher: RandomState,
    waited: usize,
    /// Keys with open lookups that may have changed after they were read.
    pub(crate) hinted: HashSet<KeyId>,
    /// The keys that the change feed watches.
    seen: Option<WaitedByLoop>,
}

/// Names for which the table keeps its room when it is empty.
const NAMES_KEPT: usize = 256;

impl Keys {
    pub(crate) fn new(seen: Option<WaitedByLoop>) -> Self {
        Self {
            slab: KeyId::slab(usize::MAX),
            by_name: HashTable::new(),
            hasher: RandomState::default(),
            waited: 0,
            hinted: HashSet::new(),
            seen,
        }
    }

    pub(crate) fn get(&self, key: KeyId) -> Option<&Key> {
        self.slab.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: KeyId) -> Option<&mut Key> {
        self.slab.get_mut(key)
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<KeyId> {
        self.find_by(self.hasher.hash_one(name), name)
    }

    fn find_by(&self, hash: u64, name: &[u8]) -> Option<KeyId> {
        let is_name = |place: &u32| self.slab.at(*place).is_some_and(|key| *key.name == *name);
        self.slab.id_at(*self.by_name.find(hash, is_name)?)
    }

    /// The record of `name`, made if it is missing. `None` when no more fit.
    pub(crate) fn enter(&mut self, name: &[u8]) -> Option<KeyId> {
        let hash = self.hasher.hash_one(name);
        if let Some(token) = self.find_by(hash, name) {
            return Some(token);
        }
        let key = Key {
            name: name.into(),
            waiting: Group::default(),
            lookup: None,
            lookups: 0,
            fetch: None,
            version: Version::default(),
        };
        let token = self.slab.insert(key).ok()?;
        if let Some(seen) = &self.seen {
            seen.enter(name);
        }
        let (slab, hasher) = (&self.slab, &self.hasher);
        let place = token.token().index();
        self.by_name.insert_unique(hash, place, |place| {
            let key = slab.at(*place);
            key.map_or(0, |key| hasher.hash_one(&*key.name))
        });
        Some(token)
    }

    /// Notes that somebody begins to wait for a key without having been compared with its value:
    /// the next sweep reads it, although others have been.
    pub(crate) fn begin_uncompared(&mut self, key: KeyId) {
        if let Some(record) = self.slab.get_mut(key) {
            record.version = Version::default();
        }
    }

    /// The name of a key that polls or streams wait for.
    pub(crate) fn waited_name(&self, key: KeyId) -> Option<&[u8]> {
        let record = self.slab.get(key)?;
        (!record.waiting.is_empty()).then_some(&*record.name)
    }

    /// The name of a key that no poll or stream waits for yet.
    pub(crate) fn unwaited(&self, key: KeyId) -> Option<&SharedKey> {
        let record = self.slab.get(key)?;
        record.waiting.is_empty().then_some(&record.name)
    }

    /// Forgets a key that nothing is in progress for; returns its name if it did.
    pub(crate) fn release(&mut self, token: KeyId) -> Option<SharedKey> {
        let key = self.slab.get(token)?;
        if !key.waiting.is_empty() || key.lookups > 0 || key.fetch.is_some() {
            return None;
        }
        if let Some(seen) = &self.seen {
            seen.leave(&key.name);
        }
        let hash = self.hasher.hash_one(&*key.name);
        let place = token.token().index();
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == place) {
            entry.remove();
        }
        if self.by_name.is_empty() && self.by_name.capacity() > NAMES_KEPT {
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
        if let Some(seen) = &self.seen {
            seen.set_waiting(self.waited);
        }
    }

    /// Leaves room for no further key.
    #[cfg(test)]
    pub(crate) fn leave_no_room(&mut self) {
        self.slab.set_capacity_max(self.slab.len());
    }

    /// Returns true if no key has a record.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty() && self.by_name.is_empty()
    }

    /// Keys that polls wait for now.
    pub(crate) fn waited(&self) -> usize {
        self.waited
    }

    /// The keys that polls wait for now.
    pub(crate) fn waited_keys(&self) -> Vec<KeyId> {
        let waits = |key: &KeyId| {
            let key = self.slab.get(*key);
            key.is_some_and(|key| !key.waiting.is_empty())
        };
        self.slab.tokens().filter(waits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PollId;
    use dwell_evloop::{Id, Token};

    fn poll(index: u32) -> WaiterId {
        PollId::nth(index).into()
    }

    #[test]
    fn a_key_is_one_record_while_anything_needs_it() {
        let mut keys = Keys::new(None);
        let token = keys.enter(b"/poll/a").unwrap();
        assert_eq!(keys.enter(b"/poll/a"), Some(token));
        keys.get_mut(token).unwrap().waiting.join(poll(1));
        assert!(keys.release(token).is_none());
        keys.get_mut(token).unwrap().waiting.leave(|_| false);
        assert_eq!(keys.release(token).as_deref(), Some(&b"/poll/a"[..]));
        assert_eq!(keys.find(b"/poll/a"), None);
    }

    #[test]
    fn a_key_outlives_the_lookups_under_way_for_it() {
        let mut keys = Keys::new(None);
        let token = keys.enter(b"/poll/a").unwrap();
        keys.get_mut(token).unwrap().lookups = 1;
        assert!(keys.release(token).is_none());
        keys.get_mut(token).unwrap().lookups = 0;
        assert!(keys.release(token).is_some());
    }

    #[test]
    fn what_is_news_to_a_feed_depends_on_its_client_and_its_route() {
        let content = |value: &[u8]| super::super::answers::content(value, 0);
        let (had, other) = (content(b"had"), content(b"other"));
        let feed = |is_cached, is_asking, set| Feed {
            sink: Sink::Events(ExchangeId::new(Token::new(1, 0, 0), 0)),
            key: KeyId::nth(0),
            has: Condition::Since(had.cursor),
            ends: Tick::new(0),
            set,
            route: RouteId::FIRST,
            is_cached,
            is_asking,
        };
        let alone = feed(true, false, None);
        let news = |feed: &Feed, current, on_delete, has_upstream| {
            let rules = Rules {
                on_delete,
                has_upstream,
            };
            feed.news(current, rules)
        };
        let (origin, keeps) = (OnDelete::Origin, OnDelete::KeepWaiting);
        assert_eq!(news(&alone, Some(had), origin, true), News::None);
        assert_eq!(news(&alone, Some(other), keeps, true), News::Value);
        assert_eq!(news(&alone, None, keeps, true), News::None);
        assert_eq!(news(&alone, None, OnDelete::NotFound, true), News::Deleted);
        assert_eq!(news(&alone, None, origin, true), News::Ends);
        assert_eq!(news(&alone, None, origin, false), News::Deleted);
        let one_of_several = feed(true, false, Some(SetId::nth(0)));
        assert_eq!(news(&one_of_several, None, origin, true), News::Deleted);
        let never_cached = feed(false, false, None);
        assert_eq!(news(&never_cached, None, origin, true), News::None);
        let is_asked_for = feed(true, true, None);
        assert_eq!(news(&is_asked_for, None, origin, true), News::None);
        let untold = Feed {
            has: Condition::None,
            ..alone
        };
        assert_eq!(news(&untold, None, OnDelete::NotFound, true), News::None);
    }

    #[test]
    fn members_that_come_and_go_leave_nothing_behind() {
        let mut group = Group::default();
        group.join(poll(0));
        for index in 1..10_000 {
            group.join(poll(index));
            group.leave(|poll| poll.token().index() == 0);
        }
        let Group::Many(crowd) = &group else {
            panic!("{group:?}");
        };
        assert!(crowd.members.len() < 32, "{}", crowd.members.len());
        let mut seen = Vec::new();
        group.retain(|poll| {
            seen.push(poll.token().index());
            poll.token().index() == 0
        });
        assert_eq!(seen.first(), Some(&0));
        group.leave(|_| false);
        assert!(group.is_empty());
    }

    #[test]
    fn members_that_stay_are_one_or_many() {
        let mut group = Group::default();
        for index in 0..5 {
            group.join(poll(index));
        }
        group.retain(|poll| poll.token().index() % 2 == 0);
        for _ in 0..3 {
            assert!(!group.is_empty());
            group.leave(|_| true);
        }
        assert!(group.is_empty());
    }

    #[test]
    fn what_was_told_of_too_many_keys_is_not_known() {
        let mut socket = SocketSet {
            sink: Sink::Leaving(0),
            ends: Tick::new(0),
            route: RouteId::FIRST,
            path: "/poll/".into(),
            given_up: Vec::new(),
        };
        assert_eq!(socket.told_last("0"), None);
        for number in 0..=KEYS_MAX {
            socket.give_up(number.to_string().into(), Condition::None);
        }
        socket.give_up("0".into(), Condition::Any);
        assert_eq!(socket.given_up.len(), KEYS_MAX);
        assert_eq!(socket.told_last("0"), Some(Condition::Any));
        assert_eq!(socket.told_last("1"), Some(Condition::None));
        let beyond = KEYS_MAX.to_string();
        assert_eq!(socket.told_last(&beyond), Some(Condition::Foreign));
    }

    #[test]
    fn what_a_held_poll_costs_is_known() {
        assert_eq!(size_of::<Poll>(), 72);
        assert_eq!(size_of::<Feed>(), 56);
        assert_eq!(size_of::<Key>(), 56);
        assert_eq!(size_of::<Group>(), 16);
    }
}
