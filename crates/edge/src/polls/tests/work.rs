//! Requests and messages of few bytes that ask for much.

use super::feeds::Events;
use super::harness::{Client, Edge};
use super::sockets::Socket;
use crate::metrics::{PollOutcome, StreamEnd};
use std::io::Write;

const COUNT: usize = 12;

/// An edge with a large value for each of some clients, and a small one for another.
fn edge_with_values() -> Edge {
    let mut edge = Edge::new("");
    for number in 0..COUNT {
        let lines = "\n".repeat(50_000);
        edge.set(&format!("/poll/{number}"), &format!("{lines}{number}"));
    }
    edge.set("/poll/small", "small");
    edge
}

#[test]
fn polls_of_several_keys_leave_the_turn_to_others() {
    let mut edge = edge_with_values();
    let ask = |number| edge.ask(&format!("GET /poll/?k={number}"));
    let mut clients: Vec<_> = (0..COUNT).map(ask).collect();
    let mut other = edge.ask("GET /poll/small");
    edge.turn_until(|edge| edge.servers.http.connections() == COUNT + 1);
    assert_eq!(edge.answer(&mut other), (200, "small".to_owned()));
    let hits = edge.driver.metrics.polls.of(PollOutcome::Hit).value() as usize;
    assert!(hits < COUNT, "{hits}");
    for (number, client) in clients.iter_mut().enumerate() {
        let (status, body) = edge.answer(client);
        assert!(status == 200 && body.contains(&format!("\\n{number}\"")));
    }
    drop((clients, other));
    edge.assert_nothing_left();
}

#[test]
fn first_values_leave_the_turn_to_others() {
    let mut edge = edge_with_values();
    let follow = |number| Events::follow(&edge, &format!("/poll/{number}"), "");
    let mut streams: Vec<_> = (0..COUNT).map(follow).collect();
    let open = |number| Socket::open(&edge, &format!("/poll/{number}"));
    let mut sockets: Vec<_> = (0..COUNT).map(open).collect();
    let mut other = edge.ask("GET /poll/small");
    edge.turn_until(|edge| {
        edge.servers.http.connections() + edge.servers.websockets.connections() > 2 * COUNT
    });
    assert_eq!(edge.answer(&mut other), (200, "small".to_owned()));
    let events = |edge: &Edge| edge.driver.metrics.stream_events.value() as usize;
    assert!(events(&edge) < 2 * COUNT, "{}", events(&edge));
    for (number, stream) in streams.iter_mut().enumerate() {
        let end = format!("data: {number}\n\n\r\n");
        edge.turn_until(|_| stream.ends_with(&end));
    }
    edge.turn_until(|edge| edge.metrics.stream_events.value() as usize == 2 * COUNT);
    for socket in &mut sockets {
        edge.turn_until(|_| socket.has_received(100_000));
    }
    for _ in 0..10 {
        edge.turn();
    }
    assert_eq!(events(&edge), 2 * COUNT, "each is told once");
    drop((streams, sockets, other));
    edge.assert_nothing_left();
}

#[test]
fn keys_taken_up_and_given_up_leave_the_turn_to_others() {
    const ROUNDS: usize = 25;
    let mut edge = Edge::new("limits.websocket_messages_rate = \"off\"");
    edge.set("/poll/small", "small");
    let mut socket = Socket::open(&edge, "/poll/");
    edge.turn_until(|edge| edge.servers.websockets.connections() == 1);
    let names: Vec<_> = (0..16).map(|name| format!("\"{name}\"")).collect();
    let names = names.join(",");
    for _ in 0..ROUNDS {
        socket.say(&format!("{{\"subscribe\":[{names}]}}"));
        socket.say(&format!("{{\"unsubscribe\":[{names}]}}"));
    }
    let mut other = edge.ask("GET /poll/small");
    assert_eq!(edge.answer(&mut other), (200, "small".to_owned()));
    let begun = 1 + 16 * ROUNDS as u64;
    let waits = edge.driver.metrics.waits.value();
    assert!(waits < begun, "{waits}");
    edge.turn_until(|edge| edge.metrics.waits.value() == begun);
    drop((socket, other));
    edge.assert_nothing_left();
}

#[test]
fn messages_beyond_their_rate_end_a_socket() {
    let mut edge = Edge::new("limits.websocket_messages_rate = \"20/h\"");
    let (mut within, mut beyond) = (Socket::open(&edge, "/poll/"), Socket::open(&edge, "/poll/"));
    edge.turn_until(|edge| edge.servers.websockets.connections() == 2);
    // Each key that is named counts.
    for socket in [&mut within, &mut beyond] {
        socket.say(r#"{"subscribe":["a","b","c","d","e","f","g","h","i","j"]}"#);
        socket.say(r#"{"unsubscribe":["a","b","c","d","e","f","g","h","i","j"]}"#);
    }
    beyond.say(r#"{"subscribe":["a"]}"#);
    edge.turn_until(|edge| edge.front.polls.sockets() == 1);
    beyond.await_close(&mut edge, 1008);
    let ended = &edge.driver.metrics.streams_ended;
    assert_eq!(ended.of(StreamEnd::Rate).value(), 1);
    edge.set("/poll/", "news");
    edge.turn_until(|_| within.read() == 1);
    drop((within, beyond));
    edge.assert_nothing_left();
}

/// Sends one request after the other, and reads what comes.
struct Greedy {
    client: Client,
    answers: usize,
}

impl Greedy {
    /// A client that has sent so many requests at once.
    fn begin(edge: &Edge, target: &str, requests: usize) -> Self {
        let mut client = edge.connect();
        let request = format!("GET {target} HTTP/1.1\r\nHost: edge\r\n\r\n");
        let all = request.repeat(requests);
        client.socket.write_all(all.as_bytes()).unwrap();
        Self { client, answers: 0 }
    }

    /// Takes in all that has come; returns how many answers there were.
    fn read(&mut self) -> usize {
        while let Some((status, _)) = self.client.take_answer() {
            assert_eq!(status, 200);
            self.answers += 1;
        }
        self.answers
    }
}

#[test]
fn those_who_ask_for_more_take_turns() {
    const CLIENTS: usize = 6;
    const REQUESTS: usize = 60;
    let mut edge = Edge::new("");
    edge.set("/poll/a", &"a".repeat(20_000));
    let begin = |_| Greedy::begin(&edge, "/poll/?k=a", REQUESTS);
    let mut clients: Vec<_> = (0..CLIENTS).map(begin).collect();
    let mut answers = Vec::new();
    edge.turn_until(|_| {
        answers = clients.iter_mut().map(Greedy::read).collect();
        answers.contains(&REQUESTS)
    });
    // When the first has all, the others have had their turns.
    assert!(
        answers.iter().all(|count| *count > REQUESTS / 3),
        "{answers:?}"
    );
    drop(clients);
    edge.assert_nothing_left();
}

#[test]
fn sockets_that_say_more_take_turns() {
    const SOCKETS: usize = 10;
    const ROUNDS: usize = 12;
    let mut edge = Edge::new("limits.websocket_messages_rate = \"off\"");
    let open = |_| Socket::open(&edge, "/poll/");
    let mut sockets: Vec<_> = (0..SOCKETS).map(open).collect();
    edge.turn_until(|edge| edge.servers.websockets.connections() == SOCKETS);
    let names: Vec<_> = (0..16).map(|name| format!("\"{name}\"")).collect();
    let names = names.join(",");
    for (number, socket) in sockets.iter_mut().enumerate() {
        for _ in 0..ROUNDS {
            socket.say(&format!("{{\"subscribe\":[{names}]}}"));
            socket.say(&format!("{{\"unsubscribe\":[{names}]}}"));
        }
        // It has said all.
        socket.say(&format!("{{\"unsubscribe\":[\"end{number}\"]}}"));
    }
    let waits = SOCKETS as u64;
    let all = waits * (1 + 16 * ROUNDS as u64);
    let mut ends = Vec::new();
    edge.turn_until(|edge| {
        for (number, socket) in sockets.iter_mut().enumerate() {
            if socket.read() > 0 && !ends.contains(&number) {
                ends.push(number);
            }
        }
        !ends.is_empty() || edge.metrics.waits.value() == all
    });
    // When the first has said all, the others have said most of it: each has a turn in ten, and
    // news of its socket give it one more now and then.
    let begun = edge.driver.metrics.waits.value();
    assert!(begun > all / 4 * 3, "{begun} of {all}");
    drop(sockets);
    edge.assert_nothing_left();
}

#[test]
fn a_stream_of_several_keys_has_its_turn_beside_newcomers() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", &"a".repeat(20_000));
    edge.set("/poll/b", &"b".repeat(20_000));
    edge.set("/poll/n", &"n".repeat(20_000));
    let connect = |_| Greedy::begin(&edge, "/poll/?k=n", 1);
    let mut newcomers: Vec<_> = (0..75).map(connect).collect();
    let mut stream = Events::follow(&edge, "/poll/?k=a&k=b", "");
    let mut turns = 0;
    let request = "GET /poll/?k=n HTTP/1.1\r\nHost: edge\r\n\r\n";
    edge.turn_until(|_| {
        // There is always somebody who has just come.
        for newcomer in &mut newcomers {
            if newcomer.read() > 0 {
                newcomer.answers = 0;
                newcomer
                    .client
                    .socket
                    .write_all(request.as_bytes())
                    .unwrap();
            }
        }
        turns += 1;
        stream.ends_with("bbb\n\n\r\n") || turns > 100
    });
    assert!(turns < 40, "{turns}");
    drop((newcomers, stream));
    edge.assert_nothing_left();
}
