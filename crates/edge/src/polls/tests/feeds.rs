//! Streams of events, and a model of what followers may be told.

use super::harness::{Client, Edge, cursor};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::io::Read;
use std::net::Shutdown;

const EVENTS: &str = "Accept: text/event-stream\r\n";

/// A client that follows a key by a stream.
struct Events {
    client: Client,
    received: Vec<u8>,
}

impl Events {
    fn follow(edge: &Edge, target: &str, last_event_id: &str) -> Self {
        let id = match last_event_id {
            "" => String::new(),
            id => format!("Last-Event-ID: {id}\r\n"),
        };
        Self {
            client: edge.ask(&format!("GET {target}\n{EVENTS}{id}")),
            received: Vec::new(),
        }
    }

    /// Everything that has come, as text.
    fn text(&mut self) -> String {
        let mut buffer = [0; 16 * 1024];
        while let Ok(read @ 1..) = self.client.socket.read(&mut buffer) {
            self.received.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// The id and data of the last whole event, and how many there are.
    fn last(&mut self) -> (usize, Option<(String, String)>) {
        let text = self.text().replace("\r\n", "\n");
        let events: Vec<_> = text
            .match_indices("\nid: ")
            .filter_map(|(start, begin)| {
                let (id, rest) = text[start + begin.len()..].split_once("\ndata: ")?;
                let (data, _) = rest.split_once("\n\n")?;
                Some((id.to_owned(), data.to_owned()))
            })
            .collect();
        (events.len(), events.last().cloned())
    }

    #[track_caller]
    fn await_last(&mut self, edge: &mut Edge, id: &str, data: &str) {
        let wanted = Some((id.to_owned(), data.to_owned()));
        edge.turn_until(|_| self.last().1 == wanted);
    }
}

#[test]
fn a_stream_is_told_what_is_new_and_leaves_nothing() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let mut fresh = Events::follow(&edge, "/poll/a", "");
    let mut known = Events::follow(&edge, "/poll/a", &cursor("one"));
    edge.turn_until_waiting(2);
    assert_eq!(edge.driver.polls.streams(), 2);
    fresh.await_last(&mut edge, &cursor("one"), "one");
    edge.set("/poll/a", "one");
    edge.set("/poll/a", "two");
    for stream in [&mut fresh, &mut known] {
        stream.await_last(&mut edge, &cursor("two"), "two");
    }
    assert_eq!((fresh.last().0, known.last().0), (2, 1));
    edge.delete("/poll/a");
    fresh.await_last(&mut edge, "", "");
    fresh.client.reset();
    known.client.socket.shutdown(Shutdown::Write).unwrap();
    edge.assert_nothing_left();
}

#[test]
fn polls_and_streams_wait_for_one_key() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let since = cursor("one");
    let mut poll = edge.ask(&format!("GET /poll/a?since={since}&wait=50s"));
    let mut stream = Events::follow(&edge, "/poll/a", &since);
    edge.turn_until_waiting(2);
    assert_eq!(edge.store().statistics().watched_keys, 1);
    edge.set("/poll/a", "two");
    assert_eq!(edge.answer(&mut poll), (200, "two".to_owned()));
    stream.await_last(&mut edge, &cursor("two"), "two");
    assert_eq!(edge.store().statistics().watched_keys, 1);
    edge.set("/poll/a", "three");
    stream.await_last(&mut edge, &cursor("three"), "three");
    drop(stream);
    edge.assert_nothing_left();
}

#[test]
fn a_stream_ends_in_its_time_and_with_the_server() {
    let mut edge = Edge::new("limits.stream_lifetime = \"40ms\"");
    let mut stream = Events::follow(&edge, "/poll/a", "");
    edge.turn_until(|_| stream.text().ends_with("\r\n0\r\n\r\n"));
    edge.assert_nothing_left();
    let mut edge = Edge::new("");
    let mut stream = Events::follow(&edge, "/poll/a", "");
    edge.turn_until_waiting(1);
    edge.driver.fleet.give(crate::fleet::Order::Drain);
    edge.turn_until(|_| stream.text().ends_with("\r\n0\r\n\r\n"));
    assert_eq!(stream.text().matches("retry: ").count(), 2);
    while !edge.event_loop.context().is_stopped() {
        edge.turn();
    }
    assert!(edge.driver.polls.is_empty());
}

#[test]
fn a_stream_that_misses_leaves_nothing() {
    let app = super::App::start();
    let mut edge = Edge::before(&app, "");
    let mut first = Events::follow(&edge, "/poll/a", "");
    let (mut exchange, line) = app.accept(&mut edge);
    assert_eq!(line, "GET /poll/a HTTP/1.1");
    let gone = Events::follow(&edge, "/poll/a", "");
    let mut known = Events::follow(&edge, "/poll/a", &cursor("fresh"));
    edge.turn_until(|edge| edge.polls.records.len() == 3);
    gone.client.reset();
    edge.turn_until(|edge| edge.polls.records.len() == 2);
    exchange.answer(200, "", "fresh");
    first.await_last(&mut edge, &cursor("fresh"), "fresh");
    edge.turn_until_waiting(2);
    assert_eq!(known.last(), (0, None), "it has this value");
    drop((first, known));
    edge.assert_nothing_left();
}

#[test]
fn a_stream_of_several_keys_is_told_of_each_and_leaves_nothing() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    edge.set("/poll/b", "two");
    let mut stream = Events::follow(&edge, "/poll/?k=a&k=b&k=c&k=a", "");
    let id = |values: [&str; 3]| {
        values.map(|value| match value {
            "" => String::new(),
            value => cursor(value),
        })
    };
    let both = id(["one", "two", ""]).join(".");
    stream.await_last(&mut edge, &both, "two");
    assert_eq!(
        (edge.driver.polls.streams(), edge.driver.polls.waiting()),
        (1, 3)
    );
    let mut other = Events::follow(&edge, "/poll/b", &cursor("two"));
    let mut back = Events::follow(&edge, "/poll/?k=a&k=b&k=c", &both);
    edge.turn_until_waiting(7);
    edge.set("/poll/c", "three");
    let all = id(["one", "two", "three"]).join(".");
    for stream in [&mut stream, &mut back] {
        stream.await_last(&mut edge, &all, "three");
    }
    assert_eq!(back.last().0, 1, "it has the others");
    edge.delete("/poll/b");
    let rest = id(["one", "", "three"]).join(".");
    stream.await_last(&mut edge, &rest, "b");
    other.await_last(&mut edge, "", "");
    drop((stream, other));
    edge.turn_until_waiting(3);
    edge.driver.fleet.give(crate::fleet::Order::Drain);
    edge.turn_until(|_| back.text().ends_with("\r\n0\r\n\r\n"));
    edge.turn_until(|edge| edge.polls.is_empty());
    assert_eq!(edge.store().statistics().watched_keys, 0);
}

#[test]
fn streams_of_one_key_and_of_several_end_by_themselves() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let single = Events::follow(&edge, "/poll/a", "");
    let mut several = Events::follow(&edge, "/poll/?k=a&k=b", "");
    edge.turn_until_waiting(3);
    single.client.reset();
    edge.turn_until_waiting(2);
    assert_eq!(edge.driver.polls.streams(), 1);
    edge.set("/poll/b", "two");
    let id = format!("{}.{}", cursor("one"), cursor("two"));
    several.await_last(&mut edge, &id, "two");
    drop(several);
    edge.assert_nothing_left();
}

#[test]
fn large_values_of_many_keys_are_sent_as_they_are_taken() {
    let mut edge = Edge::new("");
    for key in 0..20 {
        edge.set(&format!("/poll/{key}"), &format!("{key}").repeat(40_000));
    }
    let keys: Vec<_> = (0..20).map(|key| format!("k={key}")).collect();
    let target = format!("/poll/?{}", keys.join("&"));
    let mut stream = Events::follow(&edge, &target, "");
    edge.turn_until(|_| stream.text().matches("event: ").count() == 20);
    drop(stream);
    edge.assert_nothing_left();
}

/// What is done to one key, and by the one who follows it.
#[derive(Clone, Debug)]
enum Step {
    Set(u8),
    Delete,
    /// Turns of the loop.
    Turn,
    /// The follower leaves and comes back with what it has: by a stream or by a long poll.
    Reconnect(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8).prop_map(Step::Set),
        1 => Just(Step::Delete),
        3 => Just(Step::Turn),
        2 => any::<bool>().prop_map(Step::Reconnect),
    ]
}

/// One client that changes its transport in mid-stream.
struct Follower {
    /// What it has: the cursor and the value.
    has: Option<(String, String)>,
    line: Line,
}

enum Line {
    Stream(Events, usize),
    Poll(Client),
}

impl Follower {
    fn reconnect(&mut self, edge: &Edge, by_stream: bool) {
        let since = self.has.as_ref().map_or("", |(cursor, _)| cursor);
        self.line = if by_stream {
            Line::Stream(Events::follow(edge, "/poll/a", since), 0)
        } else {
            let target = match since {
                "" => "/poll/a?wait=50s".to_owned(),
                since => format!("/poll/a?since={since}&wait=50s"),
            };
            Line::Poll(edge.ask(&format!("GET {target}")))
        };
    }

    /// Takes in what has come; nothing of it may be what it has already.
    fn read(&mut self, edge: &Edge) -> TestCaseResult {
        let told = match &mut self.line {
            Line::Stream(events, seen) => {
                let (count, last) = events.last();
                let is_new = count > std::mem::replace(seen, count);
                last.filter(|_| is_new)
            }
            Line::Poll(client) => match client.take_answer() {
                None => return Ok(()),
                Some((200, value)) => Some((cursor(&value), value)),
                Some(_) => None,
            },
        };
        if let Some(told) = told {
            prop_assert_eq!(&told.0, &cursor(&told.1));
            prop_assert_ne!(Some(&told), self.has.as_ref(), "told twice");
            self.has = Some(told);
        }
        if matches!(self.line, Line::Poll(_)) {
            self.reconnect(edge, false);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_follower_ends_on_the_newest_value_and_is_told_nothing_twice(
        steps in proptest::collection::vec(step(), 1..40),
        transports in proptest::collection::vec(any::<bool>(), 3),
    ) {
        // A key that goes away is no news, so that what is told is a sequence of values.
        let route = "[[route]]\nprefix = \"/poll/\"\non_delete = \"keep-waiting\"";
        let mut edge = Edge::new(route);
        edge.set("/poll/a", "start");
        let mut followers: Vec<_> = transports
            .iter()
            .map(|by_stream| {
                let line = Line::Poll(edge.connect());
                let mut follower = Follower { has: None, line };
                follower.reconnect(&edge, *by_stream);
                follower
            })
            .collect();
        for (number, step) in steps.into_iter().enumerate() {
            let place = number % followers.len();
            match step {
                Step::Set(value) => edge.set("/poll/a", &format!("value {value}")),
                Step::Delete => {
                    let now = edge.event_loop.context().unix_seconds() as u32;
                    edge.store().delete(b"/poll/a", now);
                }
                Step::Turn => edge.turn(),
                Step::Reconnect(by_stream) => followers[place].reconnect(&edge, by_stream),
            }
            for follower in &mut followers {
                follower.read(&edge)?;
            }
        }
        edge.set("/poll/a", "the end");
        let mut result = Ok(());
        let last = Some((cursor("the end"), "the end".to_owned()));
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while result.is_ok() && followers.iter().any(|follower| follower.has != last) {
            prop_assert!(std::time::Instant::now() < end, "one waits on an old value");
            edge.turn();
            for follower in &mut followers {
                result = result.and(follower.read(&edge));
            }
        }
        result?;
        drop(followers);
        edge.assert_nothing_left();
    }
}

const KEYS: [&str; 3] = ["a", "b", "c"];

/// A client that follows several keys by one stream.
struct SetFollower {
    events: Events,
    seen: usize,
    id: String,
    has: [Option<String>; KEYS.len()],
}

impl SetFollower {
    fn begin(edge: &Edge) -> Self {
        Self {
            events: Events::follow(edge, "/poll/?k=a&k=b&k=c", ""),
            seen: 0,
            id: String::new(),
            has: Default::default(),
        }
    }

    fn reconnect(&mut self, edge: &Edge) {
        self.events = Events::follow(edge, "/poll/?k=a&k=b&k=c", &self.id);
        self.seen = 0;
    }

    /// Takes in what has come; nothing of it may be what it has already.
    fn read(&mut self) -> TestCaseResult {
        let events = self.events.of_several();
        for (kind, id, data) in events.into_iter().skip(self.seen) {
            self.seen += 1;
            let key = if kind == "delete" { &data } else { &kind };
            let place = KEYS.iter().position(|known| known == key).unwrap();
            let told = (kind != "delete").then_some(data);
            prop_assert_ne!(&told, &self.has[place], "told twice");
            self.has[place] = told;
            self.id = id;
        }
        let cursors = self
            .has
            .iter()
            .map(|has| has.as_deref().map_or(String::new(), cursor));
        let cursors: Vec<_> = cursors.collect();
        if self.seen > 0 {
            prop_assert_eq!(&self.id, &cursors.join("."), "the id says what it has");
        }
        Ok(())
    }
}

impl Events {
    /// The type, id and data of each whole event.
    fn of_several(&mut self) -> Vec<(String, String, String)> {
        let text = self.text().replace("\r\n", "\n");
        let event = |(start, begin): (usize, &str)| {
            let (kind, rest) = text[start + begin.len()..].split_once("\nid: ")?;
            let (id, rest) = rest.split_once("\ndata: ")?;
            let (data, _) = rest.split_once("\n\n")?;
            Some((kind.to_owned(), id.to_owned(), data.to_owned()))
        };
        text.match_indices("\nevent: ").filter_map(event).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_follower_of_several_keys_ends_on_what_is_there(
        steps in proptest::collection::vec((0..3_usize, step()), 1..40),
    ) {
        let mut edge = Edge::new("");
        let mut now: [Option<String>; 3] = Default::default();
        let mut followers = [SetFollower::begin(&edge), SetFollower::begin(&edge)];
        for (place, step) in steps {
            let name = format!("/poll/{}", KEYS[place]);
            match step {
                Step::Set(value) => {
                    edge.set(&name, &format!("value {value}"));
                    now[place] = Some(format!("value {value}"));
                }
                Step::Delete => {
                    if now[place].take().is_some() {
                        edge.delete(&name);
                    }
                }
                Step::Turn => edge.turn(),
                Step::Reconnect(is_first) => followers[usize::from(is_first)].reconnect(&edge),
            }
            for follower in &mut followers {
                follower.read()?;
            }
        }
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while followers.iter().any(|follower| follower.has != now) {
            prop_assert!(std::time::Instant::now() < end, "one waits on an old value");
            edge.turn();
            for follower in &mut followers {
                follower.read()?;
            }
        }
        drop(followers);
        edge.assert_nothing_left();
    }
}
