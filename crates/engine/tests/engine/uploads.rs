//! Bodies of requests: in pieces as they are granted, gathered, and left unread.

use crate::support::{End, Fixture, get, rejected};
use dwell_engine::{Budget, Limits};
use dwell_testkit::Rig;
use std::time::{Duration, Instant};

fn post(target: &str, length: usize) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}

fn chunked(target: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
}

#[test]
fn a_body_is_handed_over_as_it_comes_and_as_far_as_it_is_granted() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(
        &mut client,
        post("/upload?grant=4&once=1", 10) + "abcdefghij",
    );
    assert_eq!(server.server.app.uploaded, b"abcd");
    server.turn();
    assert_eq!(
        server.server.app.uploaded, b"abcd",
        "nothing without a grant"
    );
    server.reply(0, |reply| reply.grant(3));
    server.turn();
    assert_eq!(server.server.app.uploaded, b"abcdefg");
    server.reply(0, |reply| reply.grant(100));
    assert_eq!(server.answer(&mut client).text(), "10 bytes");
    assert_eq!(
        server.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
}

#[test]
fn a_chunked_body_is_the_same_in_any_pieces_and_brings_its_trailers() {
    let body = "3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\nX-Sum: 8\r\nHost: evil\r\n\r\n";
    let message = chunked("/upload?grant=2") + body + &get("/after");
    for step in [1, 2, 3, 7, message.len()] {
        let mut server = Fixture::default();
        let mut client = server.connect();
        for piece in message.as_bytes().chunks(step) {
            server.send(&mut client, piece);
        }
        assert_eq!(server.answer(&mut client).text(), "8 bytes", "{step}");
        assert_eq!(server.answer(&mut client).text(), "GET /after []");
        let app = &server.server.app;
        assert_eq!(app.uploaded, b"abcdefgh");
        assert_eq!(app.trailers, [("X-Sum".to_owned(), b"8".to_vec())]);
        assert_eq!(app.abandoned, [0; 0]);
    }
}

#[test]
fn an_upload_nobody_reads_stays_in_the_kernel() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(&mut client, post("/upload?grant=1000&once=1", 9_000_000));
    let piece = vec![b'x'; 100_000];
    let mut sent = 0;
    while sent < 9_000_000 {
        let taken = client.send_some(&piece[..piece.len().min(9_000_000 - sent)]);
        server.turn();
        if taken == 0 {
            break;
        }
        sent += taken;
    }
    assert!(sent < 9_000_000, "the sender is stopped");
    assert_eq!(server.server.app.uploaded.len(), 1000);
}

#[test]
fn the_client_that_waits_for_it_is_told_to_go_on_at_the_first_grant() {
    let expecting = "POST /upload?once=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\
        Expect: 100-continue\r\n\r\n";
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(&mut client, expecting);
    client.receive();
    assert!(client.received.is_empty());
    server.reply(0, |reply| reply.grant(10));
    assert_eq!(server.answer(&mut client).status, 100);
    server.send(&mut client, "abc");
    assert_eq!(server.answer(&mut client).text(), "3 bytes");
    assert_eq!(
        server.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
}

#[test]
fn an_answer_before_the_body_is_asked_for_ends_the_connection_of_a_client_that_waits() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    let request = "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\
        Expect: 100-continue\r\n\r\n";
    server.send(&mut client, request);
    assert!(server.answer_hold(0, "no"));
    let answer = server.answer(&mut client);
    assert_eq!(
        (answer.text(), answer.field("connection")),
        ("no", Some("close"))
    );
    assert_eq!(server.end(&mut client), End::InOrder);
}

#[test]
fn what_is_left_of_a_body_is_dropped_up_to_a_bound() {
    let limits = Limits {
        unread_body_bytes_max: 1000,
        ..Limits::default()
    };
    for chunk in [1, 40, 2000] {
        let mut server = Fixture::new(limits);
        let mut client = server.connect();
        server.send(&mut client, post("/early", 900));
        assert_eq!(server.answer(&mut client).text(), "POST /early []");
        let rest = "x".repeat(900) + &get("/next");
        for piece in rest.as_bytes().chunks(chunk) {
            server.send(&mut client, piece);
        }
        assert_eq!(server.answer(&mut client).text(), "GET /next []");
        assert_eq!(server.server.app.seen, ["POST /early", "GET /next"]);
    }
    let mut server = Fixture::new(limits);
    let mut client = server.connect();
    server.send(&mut client, post("/early", 1001));
    let answer = server.answer(&mut client);
    assert_eq!(
        answer.field("connection"),
        Some("close"),
        "known to be too much"
    );
    assert_eq!(server.end(&mut client), End::InOrder);

    let mut client = server.connect();
    server.send(&mut client, chunked("/early"));
    assert_eq!(server.answer(&mut client).field("connection"), None);
    server.send(&mut client, format!("7d0\r\n{}\r\n", "x".repeat(2000)));
    assert_eq!(server.end(&mut client), End::InOrder);
}

#[test]
fn the_beginning_of_a_body_is_gathered_and_the_rest_follows() {
    for size in [1, 9, 10] {
        // What is no longer than that comes whole.
        let mut server = Fixture::default();
        let mut client = server.connect();
        server.send(&mut client, post("/gather?first=10", size));
        assert!(server.server.app.seen.is_empty());
        let body = "abcdefghij"[..size].to_owned();
        for byte in body.bytes() {
            assert!(server.server.app.seen.is_empty());
            server.send(&mut client, [byte]);
        }
        let answer = server.answer(&mut client);
        assert_eq!(answer.text(), format!("POST /gather?first=10 [{body}]"));
        assert!(server.server.app.gathered.is_empty());
    }
    // In one piece, and byte by byte; framed by its length, and by chunks.
    for (head, body) in [
        (post("/gather?grant=100", 30), "abc".repeat(10)),
        (
            chunked("/gather?grant=100"),
            "3\r\nabc\r\n".repeat(10) + "0\r\n\r\n",
        ),
    ] {
        for pieces in [1, body.len()] {
            let mut server = Fixture::default();
            let mut client = server.connect();
            server.send(&mut client, head.clone());
            for piece in body.as_bytes().chunks(body.len().div_ceil(pieces)) {
                server.send(&mut client, piece);
            }
            assert_eq!(server.answer(&mut client).text(), "30 bytes");
            let app = &server.server.app;
            assert_eq!(app.uploaded, "abc".repeat(10).as_bytes());
            let is_all_at_once = pieces == 1 && head.contains("Length");
            assert!(is_all_at_once || app.gathered == [10], "{:?}", app.gathered);
            server.send(&mut client, get("/next"));
            assert_eq!(server.answer(&mut client).text(), "GET /next []");
        }
    }
}

#[test]
fn a_client_that_asks_before_its_body_is_told_to_send_what_is_gathered() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    let head =
        post("/gather?grant=100", 20).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    server.send(&mut client, head);
    assert!(server.server.app.seen.is_empty());
    assert_eq!(server.answer(&mut client).status, 100);
    server.send(&mut client, "abcdefghijklmnopqrst");
    assert_eq!(server.answer(&mut client).text(), "20 bytes");
}

#[test]
fn bodies_that_are_gathered_have_a_bound_together() {
    let mut server = Fixture::new(Limits {
        gathered_bytes_max: 10_000,
        ..Limits::default()
    });
    let gathered = Budget::default();
    server.server.http.share_gathered(gathered.clone());
    let mut first = server.connect();
    server.send(&mut first, post("/", 9000) + &"b".repeat(8000));
    assert!((8000..9000).contains(&gathered.bytes()));
    let mut second = server.connect();
    server.send(
        &mut second,
        chunked("/gather?first=9000") + "7d0\r\n" + &"b".repeat(2000),
    );
    assert_eq!(server.answer(&mut second).status, 503);
    assert_eq!(server.server.app.count(rejected(503)), 1);
    assert!((8000..9000).contains(&gathered.bytes()));
    server.send(&mut first, "b".repeat(1000));
    assert_eq!(server.answer(&mut first).status, 200);
    assert_eq!(gathered.bytes(), 0);
    let mut third = server.connect();
    server.send(&mut third, post("/", 9000) + &"b".repeat(8000));
    drop(third);
    server.turn();
    server.turn();
    assert_eq!(gathered.bytes(), 0);
}

#[test]
fn old_bodies_make_room_for_others() {
    let mut server = Fixture::new(Limits {
        gathered_bytes_max: 10_000,
        // An eighth of it is what a body has in any case.
        body_timeout: Duration::from_secs(16),
        ..Limits::default()
    });
    let gathered = Budget::default();
    server.server.http.share_gathered(gathered.clone());
    let mut slow = server.connect();
    server.send(&mut slow, post("/", 9600) + &"b".repeat(9500));
    let begun = Instant::now();
    let mut young = server.connect();
    server.send(&mut young, post("/", 2000) + &"b".repeat(1000));
    assert_eq!(server.answer(&mut young).status, 503);
    assert!(begun.elapsed() < Duration::from_secs(2), "too late to tell");
    while begun.elapsed() < Duration::from_secs(2) {
        server.turn_for(Duration::from_millis(100));
    }
    let mut client = server.connect();
    server.send(&mut client, post("/", 2000) + &"b".repeat(1000));
    assert_eq!(server.answer(&mut slow).status, 503);
    server.send(&mut client, "b".repeat(1000));
    assert_eq!(server.answer(&mut client).status, 200);
    assert_eq!(gathered.bytes(), 0);
}

#[test]
fn an_answer_in_the_middle_of_a_body_is_an_answer() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(
        &mut client,
        post("/upload?grant=4&enough=6", 10) + "abcdefg",
    );
    assert_eq!(server.answer(&mut client).text(), "enough");
    server.send(&mut client, "hij".to_owned() + &get("/next"));
    assert_eq!(server.answer(&mut client).text(), "GET /next []");
}

#[test]
fn a_broken_streamed_body_is_refused_and_the_app_told() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(
        &mut client,
        chunked("/upload?grant=100") + "3\r\nabc\r\nnot a size\r\n",
    );
    assert_eq!(server.answer(&mut client).status, 400);
    assert_eq!(server.server.app.abandoned, [0]);
    assert_eq!(server.end(&mut client), End::InOrder);

    let mut client = server.connect();
    server.send(&mut client, post("/upload?grant=100", 10) + "abc");
    client.finish_sending();
    assert_eq!(server.end(&mut client), End::InOrder);
    assert_eq!(server.server.app.abandoned, [0, 1]);

    let mut client = server.connect();
    server.send(&mut client, post("/upload", 10_000_001));
    assert_eq!(server.answer(&mut client).status, 413);
    let mut client = server.connect();
    server.send(&mut client, post("/refuse", 10));
    assert_eq!(server.answer(&mut client).status, 403);
    assert_eq!(server.server.app.seen.len(), 2);
}

#[test]
fn a_client_that_sends_its_body_too_slowly_gets_408() {
    let limits = Limits {
        body_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let mut server = Fixture::new(limits);
    let mut client = server.connect();
    server.send(&mut client, post("/upload?grant=100&ms=10", 10) + "abc");
    assert_eq!(server.answer(&mut client).status, 408);
    assert_eq!(server.server.app.abandoned, [0]);
    assert!(
        server.server.app.expired.is_empty(),
        "the client is late, not the app"
    );

    let mut client = server.connect();
    server.send(
        &mut client,
        post("/upload?grant=3&once=1&ms=80", 10) + "abc",
    );
    assert_eq!(server.answer(&mut client).text(), "time is up");
}

#[test]
fn a_body_whose_sender_has_ended_its_side_is_read_to_its_end() {
    let mut server = Fixture::default();
    server.server.app.gives_up = true;
    let mut client = server.connect();
    client.send((post("/upload", 6) + "abcdef").as_bytes());
    client.finish_sending();
    server.turn();
    server.turn();
    assert!(server.server.app.asked.is_empty());
    server.reply(0, |reply| reply.grant(6));
    assert_eq!(server.answer(&mut client).text(), "6 bytes");
    assert_eq!(server.end(&mut client), End::InOrder);
}
