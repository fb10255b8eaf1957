//! Streams of events.

use super::harness::{Client, Edge, cursor};

const EVENTS: &str = "Accept: text/event-stream\r\n";

/// A client that follows a key by a stream.
pub(super) struct Events {
    client: Client,
}

impl Events {
    pub(super) fn follow(edge: &Edge, target: &str, last_event_id: &str) -> Self {
        let id = match last_event_id {
            "" => String::new(),
            id => format!("Last-Event-ID: {id}\r\n"),
        };
        Self {
            client: edge.ask(&format!("GET {target}\n{EVENTS}{id}")),
        }
    }

    /// True if the last that has come is this.
    pub(super) fn ends_with(&mut self, text: &str) -> bool {
        self.client.receive();
        self.client.received.ends_with(text.as_bytes())
    }

    /// The data of every event that has come whole, for values of one line.
    pub(super) fn data(&mut self) -> Vec<&str> {
        self.client.receive();
        let received = &self.client.received;
        // A search for a large text is slow where it is not optimised; one for the ends of lines is
        // not.
        let whole = received.iter().rposition(|byte| *byte == b'\n');
        let text = std::str::from_utf8(&received[..whole.unwrap_or(0)]).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect()
    }

    /// The number of bytes that have come.
    pub(super) fn received(&mut self) -> usize {
        self.client.receive();
        self.client.received.len()
    }

    /// Everything that has come, as text.
    pub(super) fn text(&mut self) -> &str {
        self.client.receive();
        std::str::from_utf8(&self.client.received).unwrap()
    }

    /// The id and data of the last whole event, and how many there are.
    fn last(&mut self) -> (usize, Option<(String, String)>) {
        let text = self.text();
        let events = text.match_indices("\nid: ").filter_map(|(start, begin)| {
            let (id, rest) = text[start + begin.len()..].split_once("\ndata: ")?;
            let (data, _) = rest.split_once("\n\n")?;
            Some((id, data))
        });
        let count = events.clone().count();
        let last = events.last();
        (
            count,
            last.map(|(id, data)| (id.to_owned(), data.to_owned())),
        )
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
    assert_eq!(edge.driver.front.polls.streams(), 2);
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
    known.client.socket.shutdown_write().unwrap();
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
    edge.turn_until(|_| stream.ends_with("\r\n0\r\n\r\n"));
    edge.assert_nothing_left();
    let mut edge = Edge::new("");
    let mut stream = Events::follow(&edge, "/poll/a", "");
    edge.turn_until_waiting(1);
    edge.driver.fleet.advance(dwell_evloop::Lifecycle::Drain);
    edge.turn_until(|_| stream.ends_with("\r\n0\r\n\r\n"));
    assert_eq!(stream.text().matches("retry: ").count(), 2);
    while !edge.event_loop.context().is_stopped() {
        edge.turn();
    }
    assert!(edge.driver.front.polls.is_empty());
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
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 3);
    gone.client.reset();
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 2);
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
        (
            edge.driver.front.polls.streams(),
            edge.driver.front.polls.waiting()
        ),
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
    edge.driver.fleet.advance(dwell_evloop::Lifecycle::Drain);
    edge.turn_until(|_| back.text().ends_with("\r\n0\r\n\r\n"));
    edge.turn_until(|edge| edge.front.polls.is_empty());
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
    assert_eq!(edge.driver.front.polls.streams(), 1);
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
    edge.turn_until(|_| stream.received() > 30 * 40_000);
    edge.turn_until(|_| stream.text().matches("event: ").count() == 20);
    drop(stream);
    edge.assert_nothing_left();
}
