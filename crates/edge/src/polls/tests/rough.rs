//! Links that split, delay and refuse, in orders that seeds choose: whatever they do, all have the
//! newest value in the end, and no value comes after a newer one.

use super::feeds::Events;
use super::harness::{Client, Edge, cursor, rough_network};
use super::sockets::Socket;

const CHANGES: usize = 20;
const CLIENTS: usize = 3;

/// Clients of each kind wait for a key while it changes.
fn play(seed: u64) {
    let _network = rough_network(seed);
    let mut edge = Edge::new("");
    let mut streams: Vec<_> = (0..CLIENTS)
        .map(|_| Events::follow(&edge, "/poll/a", ""))
        .collect();
    let mut sockets: Vec<_> = (0..CLIENTS)
        .map(|_| Socket::open(&edge, "/poll/a"))
        .collect();
    let ask = |_| (edge.ask("GET /poll/a?wait=50s"), String::new());
    let mut polls: Vec<_> = (0..CLIENTS).map(ask).collect();
    let ask_again = |poll: &mut Client, (status, body): (u16, String)| {
        assert_eq!(status, 200);
        let since = cursor(&body);
        poll.send(&format!("GET /poll/a?since={since}&wait=50s"));
        body
    };
    let mut last = String::new();
    for change in 0..CHANGES {
        last = format!("value {change}");
        edge.set("/poll/a", &last);
        for _ in 0..change % 4 {
            edge.turn();
        }
        for (poll, has) in &mut polls {
            if let Some(answer) = poll.take_answer() {
                *has = ask_again(poll, answer);
            }
        }
    }
    for (poll, has) in &mut polls {
        while *has != last {
            let answer = edge.answer(poll);
            *has = ask_again(poll, answer);
        }
    }
    let frame = format!(r#"{{"v":"{last}","c":"{}"}}"#, cursor(&last));
    for socket in &mut sockets {
        socket.await_last(&mut edge, &frame);
    }
    for socket in &sockets {
        assert!(socket.frames.is_sorted_by_key(|frame| number_of(frame)));
    }
    for stream in &mut streams {
        edge.turn_until(|_| stream.data().last() == Some(&&*last));
        let data = stream.data();
        assert!(data.is_sorted_by_key(|value| number_of(value)), "{data:?}");
    }
    drop((polls, sockets, streams));
    edge.assert_nothing_left();
}

/// The number of the change that a text names.
fn number_of(text: &str) -> usize {
    let (_, rest) = text.split_once("value ").unwrap();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

#[test]
fn everybody_has_the_newest_value_whatever_the_links_do() {
    for seed in 1..=20 {
        play(seed);
    }
}
