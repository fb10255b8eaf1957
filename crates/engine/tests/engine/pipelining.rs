//! Requests that come in any pieces, and several at once.

use crate::support::{End, Fixture, get};
use proptest::prelude::*;
use std::cell::RefCell;

thread_local! {
    /// One server for all cases of a property.
    static FIXTURE: RefCell<Fixture> = RefCell::default();
}

/// Requests whose answers do not depend on anything but themselves.
fn request() -> impl Strategy<Value = String> {
    let body = "[a-z]{0,40}";
    prop_oneof![
        4 => "[a-z]{0,20}".prop_map(|path| get(&format!("/{path}"))),
        1 => Just("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        1 => Just(get("/status?is=304")),
        1 => Just("GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned()),
        1 => Just(format!("\r\n{}", get("/after-an-empty-line"))),
        2 => (body, any::<bool>()).prop_map(|(body, expects)| {
            let expect = if expects { "Expect: 100-continue\r\n" } else { "" };
            let length = body.len();
            let head = format!("POST /length HTTP/1.1\r\nHost: a\r\n{expect}");
            format!("{head}Content-Length: {length}\r\n\r\n{body}")
        }),
        2 => proptest::collection::vec("[a-z]{1,20}", 0..4).prop_map(|chunks| chunked(&chunks)),
    ]
}

fn chunked(chunks: &[String]) -> String {
    let chunks: Vec<_> = chunks
        .iter()
        .map(|chunk| format!("{:x};n=v\r\n{chunk}\r\n", chunk.len()))
        .collect();
    format!(
        "POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         {}0\r\nX-Trailer: t\r\n\r\n",
        chunks.concat()
    )
}

/// What ends a connection: in order, or by a fault.
fn last() -> impl Strategy<Value = String> {
    let faults = [
        "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /old-last HTTP/1.0\r\n\r\n",
        "GET /close HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /forgotten HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhellx0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n",
        "GET / HTTP/3.0\r\nHost: a\r\n\r\n",
    ];
    prop::sample::select(faults.to_vec()).prop_map(str::to_owned)
}

/// Everything the server says to `input` that comes in these pieces, without dates.
fn said(fixture: &mut Fixture, pieces: &[&[u8]]) -> String {
    let mut client = fixture.connect();
    for piece in pieces {
        fixture.send(&mut client, piece);
    }
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);
    let text = String::from_utf8(client.received.to_vec()).unwrap();
    // Whether a client waits for its 100 depends on how its bytes come.
    let text = text.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    text.split_inclusive("\r\n")
        .filter(|line| !line.starts_with("Date: "))
        .collect()
}

/// Cuts `input` after each of `lengths`, over and over.
fn cut<'i>(mut input: &'i [u8], lengths: &[usize]) -> Vec<&'i [u8]> {
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle() {
        if input.is_empty() {
            break;
        }
        let (piece, rest) = input.split_at((*length).min(input.len()));
        pieces.push(piece);
        input = rest;
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_split_of_a_stream_gives_the_same_answers(
        requests in proptest::collection::vec(request(), 0..8),
        last in last(),
        lengths in proptest::collection::vec(1_usize..60, 1..6),
    ) {
        let input = requests.concat() + &last;
        let input = input.as_bytes();
        FIXTURE.with_borrow_mut(|fixture| {
            let whole = said(fixture, &[input]);
            prop_assert_eq!(&said(fixture, &cut(input, &lengths)), &whole);
            prop_assert_eq!(&said(fixture, &cut(input, &[1])), &whole);
            prop_assert_eq!(fixture.connections_left(), 0);
            Ok(())
        })?;
    }
}

#[test]
fn a_thousand_requests_at_once_are_answered_in_order() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let requests: String = (0..1000).map(|n| get(&format!("/{n}"))).collect();
    fixture.send(&mut client, requests);
    for n in 0..1000 {
        assert_eq!(fixture.answer(&mut client).text(), format!("GET /{n} []"));
    }
    assert!(client.received.is_empty());
}

#[test]
fn a_connection_that_floods_does_not_stop_another() {
    let mut fixture = Fixture::default();
    let mut flood = fixture.connect();
    let mut client = fixture.connect();
    let requests = get("/flood").repeat(10_000);
    for n in 0..20 {
        flood.send_some(requests.as_bytes());
        client.send(get(&format!("/{n}")).as_bytes());
        fixture.turn();
        client.receive();
        let answer = client
            .take_answer("GET")
            .expect("answered in the same turn");
        assert_eq!(answer.text(), format!("GET /{n} []"));
        flood.receive();
    }
}
