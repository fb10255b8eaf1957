//! Requests and their answers.

use super::client::{Got, Peer, data, head, preface, request};
use super::{peer, site};
use crate::support::Client;
use dwell_engine::handler::Responder;
use dwell_proto::http2::{ErrorCode, encode};
use std::time::Duration;

#[test]
fn both_versions_share_a_port() {
    let (running, _site, mut peer) = peer(|builder| builder);
    peer.send(request(1, "GET", "/one", true));
    assert_eq!(peer.answer(1), ("200".into(), b"/one\n".to_vec()));
    // A head that begins as the preface does.
    let mut client = Client::connect(&running);
    client.send("PROPFIND / HTTP/1.1\r\n\r\n");
    assert_eq!(client.answer().status, 400);
}

#[test]
fn without_the_option_the_preface_is_a_bad_request() {
    let running = crate::support::serve(|builder| builder, super::Site::default());
    let mut client = Client::connect(&running);
    client.send(preface(65_535));
    assert!(client.answer().status >= 400);
}

#[test]
fn answers_come_in_any_order_and_at_any_time() {
    let (_running, site, mut peer) = peer(|builder| builder);
    for stream in [1, 3, 5] {
        peer.send(request(stream, "GET", "/later", true));
    }
    let mut waiting = site.waiting(3);
    peer.send(request(7, "GET", "/now", true));
    assert_eq!(peer.answer(7).1, b"/now\n");
    for stream in [5, 3, 1] {
        let answer = dwell_engine::handler::Answer::text(200, "late");
        waiting.pop().unwrap().send(answer).unwrap();
        assert_eq!(peer.answer(stream).1, b"late");
    }
}

#[test]
fn a_thread_is_refused_a_stream_also_where_it_is_asked_for_at_once() {
    let (running, _site, mut peer) = peer(|builder| builder);
    let lines = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/thread"),
    ];
    peer.send(head(1, &lines, false));
    assert_eq!(peer.answer(1).0, "501");
    peer.send(request(3, "GET", "/", true));
    assert_eq!(peer.answer(3).0, "200");
    assert_eq!(running.statistics().panics, 0);
}

#[test]
fn a_stream_that_is_reset_cancels_its_exchange_alone() {
    let (_running, site, mut peer) = peer(|builder| builder);
    peer.send(request(1, "GET", "/later", true));
    peer.send(request(3, "GET", "/later", true));
    let waiting = site.waiting(2);
    let mut reset = Vec::new();
    encode::reset(1, ErrorCode::CANCEL, &mut reset);
    peer.send(reset).send(request(5, "GET", "/", true));
    peer.answer(5);
    assert_eq!(
        [true, false],
        [waiting[0].is_cancelled(), waiting[1].is_cancelled()]
    );
}

#[test]
fn a_connection_that_ends_cancels_all_of_its_exchanges() {
    let (running, site, mut peer) = peer(|builder| builder);
    peer.send(request(1, "GET", "/later", true));
    peer.send(request(3, "GET", "/later", true));
    let waiting = site.waiting(2);
    drop(peer);
    crate::support::until(&running, |_| waiting.iter().all(Responder::is_cancelled));
    drop(waiting);
}

#[test]
fn heads_and_streaming_answers() {
    let (_running, _site, mut peer) = peer(|builder| builder);
    peer.send(request(1, "HEAD", "/big", true));
    let got = peer.until(|got| matches!(got, Got::Head { .. }));
    let Got::Head { lines, ends, .. } = got else {
        panic!("it is a head")
    };
    assert!(ends && lines.contains(&("content-length".into(), "100000".into())));
    peer.send(request(3, "GET", "/stream", true));
    assert_eq!(peer.answer(3), ("200".into(), b"one two".to_vec()));
}

#[test]
fn trailer_fields_of_both_sides() {
    let (_running, _site, mut peer) = peer(|builder| builder);
    peer.send(request(1, "PUT", "/", false))
        .send(data(1, b"12345", false));
    peer.send(head(1, &[("digest", "x"), ("host", "evil")], true));
    assert_eq!(peer.answer(1).1, b"Ok(5) 1");
    peer.send(request(3, "GET", "/stream", true));
    let is_end = |got: &Got| {
        matches!(
            got,
            Got::Head {
                stream: 3,
                ends: true,
                ..
            }
        )
    };
    let Got::Head { lines, .. } = peer.until(is_end) else {
        panic!("it is a head")
    };
    assert_eq!(lines, [("x-end".into(), "1".into())]);
}

#[test]
fn requests_that_are_wrong_end_their_stream_alone() {
    let (_running, _site, mut peer) = peer(|builder| builder.max_body_bytes(1000));
    let get = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
    ];
    let long = "a".repeat(17_000);
    let with = |name, value| [&get[..], &[(name, value)]].concat();
    for (stream, field) in [
        (1, ("Upper", "a")),
        (3, ("connection", "close")),
        (5, ("transfer-encoding", "chunked")),
        (7, ("content-length", "5")),
        (9, (":path", "/twice")),
        (11, ("x", "a\r\nhost: b")),
    ] {
        peer.send(head(stream, &with(field.0, field.1), true));
        assert_eq!(peer.reset(stream), ErrorCode::PROTOCOL_ERROR, "{field:?}");
    }
    // More, or less, than was announced.
    for (stream, bytes) in [(13, &b"123456"[..]), (15, b"1234")] {
        peer.send(head(stream, &with("content-length", "5"), false));
        peer.send(data(stream, bytes, true));
        assert_eq!(peer.reset(stream), ErrorCode::PROTOCOL_ERROR);
    }
    peer.send(head(17, &with("content-length", "1001"), false));
    assert_eq!(peer.answer(17).0, "413");
    peer.send(head(19, &get, false))
        .send(data(19, &[0; 1001], false));
    assert_eq!(peer.answer(19).0, "413");
    peer.send(head(21, &with("x", &long), true));
    assert_eq!(peer.answer(21).0, "431");
    peer.send(head(23, &with("content-length", "5"), false))
        .send(data(23, b"12345", true));
    assert_eq!(peer.answer(23), ("200".into(), b"12345".to_vec()));
}

#[test]
fn a_server_that_ends_says_so_twice_and_answers_what_has_begun() {
    let (running, site, mut peer) = peer(|builder| builder);
    peer.send(request(1, "GET", "/later", true));
    let waiting = site.waiting(1).pop().unwrap();
    let ending = std::thread::spawn(move || running.shutdown(Duration::from_secs(20)));
    let first = peer.until(|got| matches!(got, Got::GoAway(..)));
    assert_eq!(first, Got::GoAway(u32::MAX >> 1, ErrorCode::NO_ERROR));
    let Got::Ping(bytes) = peer.until(|got| matches!(got, Got::Ping(_))) else {
        panic!("it is a ping")
    };
    // It was on its way.
    peer.send(request(3, "GET", "/now", true));
    assert_eq!(peer.answer(3).1, b"/now\n");
    let mut pong = Vec::new();
    encode::pong(bytes, &mut pong);
    peer.send(pong);
    let last = peer.until(|got| matches!(got, Got::GoAway(..)));
    assert_eq!(last, Got::GoAway(3, ErrorCode::NO_ERROR));
    // Neither a request that comes too late nor its body disturbs the others.
    peer.send(request(5, "POST", "/", false));
    peer.send(data(5, b"late", true));
    waiting
        .send(dwell_engine::handler::Answer::text(200, "late"))
        .unwrap();
    assert_eq!(peer.answer(1).1, b"late");
    while let Some(got) = peer.next() {
        assert!(!matches!(got, Got::Head { .. }), "{got:?}");
    }
    assert_eq!(ending.join().unwrap().cut_requests, 0);
}

#[test]
fn a_connection_has_so_many_requests() {
    let (_running, _site, mut peer) = peer(|builder| builder.max_requests_per_connection(2));
    peer.send(request(1, "GET", "/", true))
        .send(request(3, "GET", "/", true));
    peer.answer(1);
    peer.answer(3);
    let Got::Ping(bytes) = peer.until(|got| matches!(got, Got::Ping(_))) else {
        panic!("it is a ping")
    };
    let mut pong = Vec::new();
    encode::pong(bytes, &mut pong);
    peer.send(pong);
    assert_eq!(peer.go_away(), ErrorCode::NO_ERROR);
}

#[test]
fn pieces_of_any_size_give_the_same_answers() {
    let (running, _site) = site(|builder| builder);
    let mut input = preface(65_535);
    input.extend(request(1, "GET", "/one", true));
    input.extend(request(3, "POST", "/", false));
    input.extend(data(3, b"hello ", false));
    input.extend(data(3, b"there", true));
    input.extend(request(5, "PUT", "/", false));
    input.extend(data(5, &[b'x'; 300], false));
    input.extend(head(5, &[("x", "y")], true));
    for step in [1, 2, 7, 9, 24, 25, 64, input.len()] {
        let mut peer = Peer::silent(&running);
        for piece in input.chunks(step) {
            peer.send(piece);
        }
        assert_eq!(peer.answer(1).1, b"/one\n", "{step}");
        assert_eq!(peer.answer(3).1, b"hello there", "{step}");
        assert_eq!(peer.answer(5).1, b"Ok(300) 1", "{step}");
    }
}
