//! What clients have a loop hold by not reading.

use super::feeds::Events;
use super::harness::{Client, Edge, cursor};
use super::sockets::Socket;
use std::io::Read;

const EVENT: &str = "Accept: text/event-stream\r\n";
/// More than the sockets of a reader take, and as an event seven times that.
const VALUE_BYTES: usize = 128 << 10;

fn held(edge: &Edge) -> usize {
    edge.driver.output.held()
}

/// A client whose socket takes little of what it asks for.
fn silent(edge: &Edge, request: &str) -> Client {
    let mut client = edge.connect_with_window(4096);
    client.send(request);
    client
}

#[test]
fn readers_that_take_nothing_share_what_they_were_sent() {
    let mut edge = Edge::new("");
    let value = "\n".repeat(VALUE_BYTES - 1000);
    edge.set("/poll/a", &value);
    let event_bytes = 7 * value.len();
    let mut clients = Vec::new();
    for count in 1..=8 {
        clients.push(silent(&edge, &format!("GET /poll/a\n{EVENT}")));
        clients.push(silent(&edge, &format!("GET /poll/?k=a\n{EVENT}")));
        clients.push(silent(&edge, "GET /poll/?k=a"));
        clients.push(silent(&edge, &format!("GET /poll/a\n{}", Socket::FIELDS)));
        edge.turn_until(|edge| {
            edge.front.polls.streams() == 2 * count && edge.front.polls.sockets() == count
        });
        for _ in 0..20 {
            edge.turn();
        }
    }
    // Lines, members and a frame; heads and framing are each reader's own.
    let once = event_bytes + 2 * (2 * value.len());
    assert!(held(&edge) > event_bytes, "{}", held(&edge));
    assert!(held(&edge) < once + 64 * 1024, "{} of {once}", held(&edge));
    drop(clients);
    edge.assert_nothing_left();
    edge.turn_until(|edge| edge.servers.http.connections() == 0);
    assert_eq!(held(&edge), 0);
}

#[test]
fn a_large_change_is_told_to_many_over_several_turns() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let since = cursor("one");
    let poll = format!("GET /poll/?k=a&since={since}&wait=50s");
    let mut polls: Vec<_> = (0..12).map(|_| edge.ask(&poll)).collect();
    let target = format!("/poll/a?since={since}");
    let mut sockets: Vec<_> = (0..12).map(|_| Socket::open(&edge, &target)).collect();
    edge.turn_until_waiting(24);
    edge.turn_until(|edge| edge.servers.websockets.connections() == 12);
    let told = |edge: &Edge| {
        let events = edge.driver.metrics.stream_events.value() as usize;
        (
            12 - edge.driver.front.polls.waiters.multi_polls().len(),
            events,
        )
    };
    assert_eq!(told(&edge), (0, 0));
    edge.set("/poll/a", &"a".repeat(VALUE_BYTES - 1000));
    while told(&edge) == (0, 0) {
        edge.turn();
    }
    // The work of a turn, and what it takes to write them as text.
    let (answered, events) = told(&edge);
    assert!((1..=3).contains(&answered), "{answered}");
    assert!((1..=3).contains(&events), "{events}");
    // Whoever is left gets the newest, and only that.
    edge.set("/poll/a", "last");
    let mut newest = 0;
    for client in &mut polls {
        let body = edge.answer(client).1;
        newest += usize::from(body.contains("last"));
        assert!(body.contains("last") || body.contains("aaaa"));
    }
    assert!(newest >= 8, "{newest}");
    edge.turn_until(|edge| edge.metrics.stream_events.value() >= 12 + events as u64);
    assert_eq!(told(&edge).1, 12 + events);
    drop(sockets.drain(..));
    edge.assert_nothing_left();
}

#[test]
fn the_slowest_are_cut_off_where_too_much_waits() {
    let mut edge = Edge::new("limits.output_bytes_max = \"4MiB\"");
    // A reader that reads has nothing to fear.
    let mut events = Events::follow(&edge, "/poll/good", "");
    edge.turn_until(|edge| edge.front.polls.streams() == 1);
    let mut clients = Vec::new();
    for round in 0..12 {
        let key = format!("/poll/{round}");
        edge.set(&key, &"\n".repeat(VALUE_BYTES - 1000));
        // As if each had a version of its own.
        clients.push(silent(&edge, &format!("GET {key}\n{EVENT}")));
        for _ in 0..20 {
            edge.turn();
        }
        assert!(held(&edge) < 5 << 20, "{}", held(&edge));
    }
    let cuts = edge.driver.metrics.output_cuts.value();
    assert!((7..12).contains(&cuts), "{cuts}");
    let is_cut = |client: &mut Client| loop {
        match client.socket.read(&mut [0; 4096]) {
            Ok(1..) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
            Ok(0) | Err(_) => return true,
        }
    };
    // The oldest have waited the longest.
    assert!(is_cut(&mut clients[0]));
    assert!(!is_cut(&mut clients[11]));
    edge.set("/poll/good", "news");
    edge.turn_until(|_| events.text().contains("data: news\n"));
}
