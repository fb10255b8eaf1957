//! Waits without a connection, before an embedded store that is watched, and before memcached.

use super::super::ask::{Ask, Form, Method};
use super::super::decide::Content;
use super::super::key_state::KeyState;
use super::super::places::{Event, PollPlace};
use super::super::tables::SocketSet;
use super::*;
use crate::cursor::Condition;
use crate::ids::{LookupId, Packed, ResponseSource};
use crate::metrics::Metrics;
use dwell_engine::ExchangeId;
use dwell_evloop::Token;
use dwell_store::{Expiry, Store, StoreConfig, WatcherId};
use dwell_timers::Tick;
use std::sync::Mutex;

const NOW: u32 = 1000;
const HELD_MAX: usize = 3;
const ROOMS: Rooms = Rooms {
    held_max: HELD_MAX,
    waiting_max: 4,
};

/// Notes what a store tells its watcher.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Mutex<Vec<Box<[u8]>>>>);

impl dwell_store::Notify for Told {
    fn changed(&self, _: WatcherId, key: &[u8]) {
        self.0.lock().unwrap().push(key.into());
    }
}

/// Waiters before an embedded store, the store, and what it has told.
fn embedded() -> (Waiters, Arc<Store>, Told) {
    let told = Told::default();
    let store = Store::new(&StoreConfig::default(), Box::new(told.clone()));
    let store = Arc::new(store);
    let watcher = WatcherId::new(0).unwrap();
    let waiters = before(Source::Embedded(Arc::clone(&store), watcher));
    (waiters, store, told)
}

fn before(source: Source) -> Waiters {
    let metrics = Metrics::new(1, Vec::new(), 0).of_loop(0);
    Waiters::new(source, metrics, None, ROOMS, 1)
}

fn set(store: &Store, name: &str, value: &str) {
    store.set(name.as_bytes(), 0, Expiry::NEVER, value.as_bytes(), NOW);
}

/// The number of changes that the store has told of.
fn told(told: &Told) -> usize {
    told.0.lock().unwrap().len()
}

fn exchange() -> ExchangeId {
    ExchangeId::new(Token::new(1, 0, 0), 0)
}

fn ask() -> Ask {
    Ask {
        method: Method::Get,
        condition: Condition::Foreign,
        wait_ms: 50_000,
        form: Form::default(),
        shareable: true,
        is_stream: false,
    }
}

/// A poll that has come to this place.
fn poll(event: Event, to: impl Into<Packed<ResponseSource>>) -> Poll {
    let mut place = PollPlace::default();
    place.moves(event, to);
    Poll {
        exchange: exchange(),
        ask: ask(),
        place,
        arrived: dwell_testkit::start(),
        request: None,
        route: RouteId::FIRST,
        origin: None,
    }
}

/// Has a poll wait for a key of this name; returns its token.
fn wait(waiters: &mut Waiters, name: &str) -> PollId {
    let (key, _) = waiters.enter(name.as_bytes(), NOW).unwrap();
    waiters.insert(poll(Event::Current, key)).unwrap()
}

fn multi_poll(keys: usize) -> MultiPoll {
    let keys = (0..keys).map(|number| KeyState {
        label: number.to_string().into(),
        key: None,
        said: Condition::Foreign,
        current: Condition::None,
        news: None,
        is_joined: false,
        from_origin: false,
    });
    MultiPoll {
        exchange: exchange(),
        arrived: dwell_testkit::start(),
        request: None,
        ask: ask(),
        keys: keys.collect(),
        asking: 0,
        route: RouteId::FIRST,
        origin: None,
        is_by_tag: false,
        unasked: None,
        is_fetched: false,
        has_failed: false,
        is_held: true,
        is_ready: false,
    }
}

/// The sink of a connection that is about to become a WebSocket.
const SOCKET: Sink = Sink::Leaving(0);

fn feed(sink: Sink, set: Option<SetId>) -> impl FnOnce(KeyId) -> Feed {
    move |key| Feed {
        sink,
        key,
        has: Condition::None,
        ends: Tick::new(0),
        set,
        route: RouteId::FIRST,
        is_cached: false,
        is_asking: false,
    }
}

fn socket_set() -> SocketSet {
    SocketSet {
        sink: SOCKET,
        ends: Tick::new(0),
        route: RouteId::FIRST,
        path: "/poll/".into(),
        given_up: Vec::new(),
    }
}

#[test]
fn the_last_waiter_takes_the_watch_along() {
    let (mut waiters, store, has_told) = embedded();
    set(&store, "a", "one");
    let (key, watch) = waiters.enter(b"a", NOW).unwrap();
    let Watch::Begun(Some(item)) = watch else {
        panic!("a value was there");
    };
    assert_eq!(&*item.value, b"one");
    let first = waiters.insert(poll(Event::Current, key)).unwrap();
    let (same, watch) = waiters.enter(b"a", NOW).unwrap();
    assert!(same == key && matches!(watch, Watch::Running));
    let second = waiters.insert(poll(Event::Current, key)).unwrap();
    set(&store, "a", "two");
    assert_eq!((told(&has_told), waiters.waiting()), (1, 2));
    let watcher = WatcherId::new(0).unwrap();
    store.reread(b"a", watcher, NOW);
    waiters.remove(first).unwrap();
    set(&store, "a", "three");
    assert_eq!((told(&has_told), waiters.keys.waited()), (2, 1));
    store.reread(b"a", watcher, NOW);
    waiters.remove(second).unwrap();
    assert!(waiters.remove(second).is_none());
    set(&store, "a", "four");
    assert_eq!(told(&has_told), 2, "it is not waited for");
    assert!(waiters.has_nothing() && waiters.is_idle());
}

#[test]
fn a_key_before_memcached_is_watched_by_sweeps_alone() {
    let mut waiters = before(Source::Memcached);
    let (key, watch) = waiters.enter(b"a", NOW).unwrap();
    assert!(matches!(watch, Watch::Running) && waiters.reread(b"a", NOW).is_none());
    let held = waiters.insert(poll(Event::Current, key)).unwrap();
    assert_eq!(waiters.keys.waited_keys(), [key]);
    waiters.remove(held).unwrap();
    assert!(waiters.has_nothing());
}

#[test]
fn a_key_that_is_given_up_stays_for_those_that_wait() {
    let (mut waiters, store, has_told) = embedded();
    let (key, _) = waiters.enter(b"a", NOW).unwrap();
    waiters.give_up(key);
    set(&store, "a", "one");
    assert!(waiters.has_nothing() && told(&has_told) == 0);
    let held = wait(&mut waiters, "a");
    let (key, _) = waiters.enter(b"a", NOW).unwrap();
    waiters.give_up(key);
    set(&store, "a", "two");
    assert_eq!(told(&has_told), 1);
    assert_eq!(waiters.polls().get(held).unwrap().waits_for(), Some(key));
}

#[test]
fn a_full_table_leaves_no_watch_behind() {
    let (mut waiters, store, has_told) = embedded();
    let held: Vec<PollId> = (0..HELD_MAX).map(|_| wait(&mut waiters, "a")).collect();
    assert_eq!(waiters.no_waits(1), None);
    assert_eq!(waiters.no_waits(2), Some(Refusal::TooManyWait));
    assert_eq!(waiters.no_records(1), Some(Refusal::Busy), "no place");
    let (key, _) = waiters.enter(b"b", NOW).unwrap();
    let refused = waiters.insert(poll(Event::Current, key)).unwrap_err();
    assert_eq!(refused.waits_for(), Some(key));
    set(&store, "b", "one");
    assert_eq!((told(&has_told), waiters.keys.find(b"b")), (0, None));
    // Smaller limits end nothing that is there.
    let limits = LimitsConfig {
        connections_max: 1,
        waiters_max: 1,
        ..LimitsConfig::default()
    };
    let rooms = waiters.set_limits(&limits);
    assert_eq!((rooms.held_max, rooms.waiting_max), (1, 1));
    assert_eq!(waiters.waiting(), HELD_MAX);
    waiters.remove(held[0]).unwrap();
    assert_eq!(waiters.no_waits(1), Some(Refusal::TooManyWait));
    waiters.refuse_waits();
    assert_eq!(waiters.no_waits(0), Some(Refusal::ShuttingDown));
    assert_eq!(waiters.no_records(0), Some(Refusal::ShuttingDown));
}

#[test]
fn a_key_that_is_still_needed_outlives_its_last_waiter() {
    let (mut waiters, store, has_told) = embedded();
    let (one, two) = (wait(&mut waiters, "a"), wait(&mut waiters, "a"));
    let key = waiters.keys.find(b"a").unwrap();
    assert!(waiters.take(one, key, |_| None::<()>).is_none(), "it stays");
    let (taken, (), is_last) = waiters.take(one, key, |_| Some(())).unwrap();
    assert!(!is_last && taken.waits_for() == Some(key));
    assert!(waiters.take(two, key, |_| Some(())).unwrap().2);
    assert_eq!((waiters.waiting(), waiters.keys.find(b"a")), (0, Some(key)));
    waiters.end_watch(key);
    set(&store, "a", "one");
    assert!(waiters.has_nothing() && told(&has_told) == 0);
}

#[test]
fn a_poll_waits_for_a_key_once_its_place_is_one() {
    let mut waiters = before(Source::Memcached);
    let lookup = LookupId::nth(1);
    let asking = waiters.insert(poll(Event::Unread, lookup)).unwrap();
    assert!(waiters.waiting() == 0 && waiters.owes());
    let (key, _) = waiters.enter(b"a", NOW).unwrap();
    waiters.wait_for(key, asking);
    assert_eq!((waiters.waiting(), waiters.watchers_of(key).polls), (1, 1));
    waiters.remove(asking).unwrap();
    assert!(waiters.has_nothing());
}

#[test]
fn a_poll_of_several_keys_waits_for_each_of_them() {
    let (mut waiters, store, has_told) = embedded();
    let token = waiters.insert_multi_poll(multi_poll(2)).unwrap();
    for (place, name) in ["a", "b"].iter().enumerate() {
        let (key, _) = waiters.enter(name.as_bytes(), NOW).unwrap();
        waiters.join_multi_poll(token, place, key);
    }
    let b = waiters.keys.find(b"b").unwrap();
    let (record, name) = waiters.multi_poll_and_name(token, b).unwrap();
    assert_eq!((record.places_of(b), name), (vec![1], &b"b"[..]));
    assert_eq!((waiters.waiting(), waiters.watchers_of(b).total()), (2, 1));
    waiters.remove_multi_poll(token).unwrap();
    set(&store, "b", "one");
    assert!(waiters.has_nothing() && told(&has_told) == 0);
    let rest = (0..=HELD_MAX).filter_map(|_| waiters.insert_multi_poll(multi_poll(1)));
    assert_eq!(rest.count(), HELD_MAX);
}

#[test]
fn members_are_looked_at_apart_and_those_that_are_gone_do_not_come_back() {
    let (mut waiters, store, has_told) = embedded();
    let (one, two) = (wait(&mut waiters, "a"), wait(&mut waiters, "a"));
    let key = waiters.keys.find(b"a").unwrap();
    waiters.remove(one).unwrap();
    let mut members = waiters.take_members(key).unwrap();
    assert!(waiters.take_members(key).is_none());
    members.retain(|waiter| waiter == two.into());
    assert!(waiters.put_members_back(key, members));
    assert_eq!(waiters.watchers_of(key).polls, 1);
    // A fault has lost the record, but not the group.
    let mut members = waiters.take_members(key).unwrap();
    members.retain(|_| false);
    assert!(!waiters.put_members_back(key, members));
    set(&store, "a", "one");
    assert_eq!((told(&has_told), waiters.keys.waited()), (0, 0));
}

#[test]
fn keys_that_begin_and_end_to_be_waited_for_are_noted_if_that_is_asked_for() {
    let mut waiters = before(Source::Memcached);
    let before = wait(&mut waiters, "a");
    assert!(waiters.take_presence().is_empty(), "no webhook");
    waiters.note_presence();
    let (one, two) = (wait(&mut waiters, "b"), wait(&mut waiters, "b"));
    for poll in [before, one, two] {
        waiters.remove(poll).unwrap();
    }
    let noted = waiters.take_presence();
    let noted: Vec<_> = (noted.iter())
        .map(|change| (&*change.name, change.begins))
        .collect();
    assert_eq!(noted, [(&b"b"[..], true), (b"a", false), (b"b", false)]);
    assert!(waiters.take_presence().is_empty());
}

#[test]
fn streams_count_once_however_many_keys_they_follow() {
    let (mut waiters, store, has_told) = embedded();
    let events = Sink::Events(exchange());
    let one = waiters.follow(b"a", NOW, feed(events, None)).unwrap();
    let set = waiters.feeds.open_set(None).unwrap();
    for (name, label) in [("a", "x"), ("b", "y")] {
        let of_set = feed(events, Some(set));
        let followed = waiters.follow_in_set(name.as_bytes(), Some(label.into()), NOW, of_set);
        assert_eq!(waiters.feeds.stream_of(followed.unwrap()), set.into());
    }
    assert_eq!((waiters.feeds.streams(), waiters.feeds.len()), (2, 3));
    let a = waiters.keys.find(b"a").unwrap();
    assert_eq!(waiters.watchers_of(a).streams, 2);
    // The table of feeds is as long as may wait.
    waiters.follow(b"c", NOW, feed(events, None)).unwrap();
    assert!(waiters.follow(b"d", NOW, feed(events, None)).is_none());
    assert_eq!(waiters.keys.find(b"d"), None, "it has no room");
    assert!(matches!(
        waiters.remove_stream(set.into()),
        Some(Sink::Events(_))
    ));
    assert!(waiters.remove_stream(set.into()).is_none());
    set_all(&store, ["b", "d"]);
    assert_eq!((told(&has_told), waiters.feeds.streams()), (0, 2));
    let lost = waiters.keys.find(b"c").unwrap();
    assert!(waiters.lost_streams().is_empty());
    waiters.end_watch(lost);
    assert!(waiters.lost_streams().is_empty(), "it is waited for still");
    waiters.remove_stream(one.into()).unwrap();
    assert_eq!(waiters.waiting(), 1);
}

fn set_all(store: &Store, names: [&str; 2]) {
    for name in names {
        set(store, name, "new");
    }
}

#[test]
fn a_socket_becomes_one_of_several_keys_and_gives_them_up() {
    let mut waiters = before(Source::Memcached);
    let single = waiters.follow(b"/poll/", NOW, feed(SOCKET, None)).unwrap();
    assert_eq!(waiters.path_of(single.into()), Some("/poll/"));
    assert_eq!(waiters.feeds.unnamed_feed(single.into()), Some(single));
    let stream = waiters.widen(single.into()).unwrap();
    assert_eq!(waiters.widen(stream.into()), Some(stream));
    assert_eq!(waiters.path_of(stream.into()), Some("/poll/"));
    assert_eq!(waiters.feeds.unnamed_feed(stream.into()), Some(single));
    assert_eq!((waiters.feeds.sockets(), waiters.feeds.streams()), (1, 0));
    let of_set = feed(SOCKET, Some(stream));
    let named = waiters.follow_in_set(b"/poll/a", Some("a".into()), NOW, of_set);
    let named = named.unwrap();
    assert_eq!(waiters.feeds.label_of(named), Some("a"));
    let content = super::super::answers::content(b"one", 0);
    assert!(waiters.feeds.was_told(named, Some(content)));
    assert!(!waiters.unfollow(stream.into(), "b"));
    assert!(waiters.unfollow(stream.into(), "a") && !waiters.unfollow(stream.into(), "a"));
    assert_eq!(
        (waiters.waiting(), waiters.keys.find(b"/poll/a")),
        (1, None)
    );
    let since = Condition::Since(content.cursor);
    let still_has = |has| waiters.feeds.still_has(stream, "a", has);
    assert_eq!(still_has(since), since);
    assert_eq!(still_has(Condition::None), Condition::Foreign, "or it has");
    let token = Token::new(1, 0, 9);
    waiters.feeds.set_sink(stream.into(), Sink::Socket(token));
    let sink = waiters.remove_stream(stream.into());
    assert!(matches!(sink, Some(Sink::Socket(of)) if of == token));
    assert!(waiters.has_nothing());
}

#[test]
fn a_set_without_keys_is_found_and_closed() {
    let mut waiters = before(Source::Memcached);
    let socket = waiters.feeds.open_set(Some(socket_set())).unwrap();
    assert_eq!(waiters.feeds.empty_sets().collect::<Vec<_>>(), [socket]);
    assert!(!waiters.is_idle() && !waiters.owes());
    waiters.remove_stream(socket.into()).unwrap();
    assert!(waiters.is_idle());
}

#[test]
fn an_answer_of_the_application_is_kept_until_its_feed_has_one() {
    let mut waiters = before(Source::Memcached);
    let token = waiters.follow(b"a", NOW, feed(SOCKET, None)).unwrap();
    let content =
        |value: &[u8]| -> Option<Content> { Some(super::super::answers::content(value, 0)) };
    let keep = |waiters: &mut Waiters| {
        assert!(waiters.feeds.begin_asking(token));
        waiters.feeds.keep_answer(token, "said".into(), 0);
        let kept = waiters.feeds.answered_value(token);
        assert_eq!(kept.unwrap().bytes(), b"said");
    };
    keep(&mut waiters);
    waiters.feeds.note_told(token, content(b"said"), false);
    let told = waiters.feeds.get(token).unwrap();
    assert!(!told.is_asking && !told.is_cached);
    assert!(told.has(content(b"said").unwrap().cursor));
    keep(&mut waiters);
    waiters.feeds.note_told(token, content(b"stored"), true);
    assert!(waiters.feeds.answered_value(token).is_none(), "it is older");
    assert!(waiters.feeds.get(token).unwrap().is_cached);
    keep(&mut waiters);
    waiters.remove_stream(token.into()).unwrap();
    assert!(waiters.has_nothing());
    assert!(!waiters.feeds.begin_asking(token));
}
