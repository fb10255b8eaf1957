//! How an answer is framed, and what an app may do wrong.

use crate::support::{Client, End, Fixture, get, rejected};
use bytes::Bytes;
use dwell_testkit::Rig;

#[test]
fn an_answer_has_date_and_length_and_the_connection_stays() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    for target in ["/a", "/b"] {
        let answer = fixture.ask(&mut client, &get(target));
        assert!(answer.head.starts_with("HTTP/1.1 200 OK\r\n"));
        let date = answer.field("Date").unwrap();
        assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
        assert_eq!(answer.text(), format!("GET {target} []"));
        assert_eq!(answer.field("Connection"), None);
    }
}

#[test]
fn answers_to_head_and_answers_without_content_have_no_body() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let answer = fixture.ask(&mut client, "HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.field("Content-Length"), Some("10"));
    let answer = fixture.ask(&mut client, "HEAD /absent HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.field("Content-Length"), Some("12345"));
    fixture.server.app.large = Bytes::from(vec![b'l'; 100_000]);
    let answer = fixture.ask(&mut client, "HEAD /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.field("Content-Length"), Some("100000"));
    for status in [204, 304] {
        let answer = fixture.ask(&mut client, &get(&format!("/status?is={status}")));
        assert_eq!(answer.status, status);
        assert_eq!(answer.field("Content-Length"), None);
    }
    // The next answer would be out of step if any of these had had a body.
    assert_eq!(
        fixture.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
    assert!(client.received.is_empty());
}

#[test]
fn connections_close_and_stay_as_the_versions_say() {
    let mut fixture = Fixture::default();
    let cases = [
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            Some("close"),
            true,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
            None,
            false,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n",
            Some("close"),
            true,
        ),
        ("GET / HTTP/1.0\r\n\r\n", Some("close"), true),
        (
            "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
            Some("keep-alive"),
            false,
        ),
        ("GET /last HTTP/1.1\r\nHost: a\r\n\r\n", Some("close"), true),
    ];
    for (request, connection, closes) in cases {
        let mut client = fixture.connect();
        let answer = fixture.ask(&mut client, request);
        assert_eq!(answer.field("Connection"), connection, "{request}");
        if closes {
            assert_eq!(fixture.end(&mut client), End::InOrder, "{request}");
            assert_eq!(fixture.connections_left(), 0);
        } else {
            assert_eq!(
                fixture.ask(&mut client, &get("/more")).status,
                200,
                "{request}"
            );
            drop(client);
            fixture.turn_until("the client is forgotten", |server| {
                server.http.connections() == 0
            });
        }
    }
}

#[test]
fn a_client_that_waits_for_it_is_told_to_continue() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    let interim = fixture.ask(&mut client, head);
    assert_eq!(interim.head, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(fixture.ask(&mut client, "body").text(), "POST /a [body]");
    // Who sends the body unasked, or begins to, is not told.
    let answer = fixture.ask(&mut client, &format!("{head}body"));
    assert_eq!(answer.text(), "POST /a [body]");
    fixture.send(&mut client, format!("{head}bo"));
    assert_eq!(fixture.ask(&mut client, "dy").text(), "POST /a [body]");
    // Without a body there is nothing to wait for, and HTTP/1.0 has no such answer.
    let without = "GET /b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(fixture.ask(&mut client, without).text(), "GET /b []");
    let older = "POST /a HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    fixture.send(&mut client, older);
    assert_eq!(fixture.ask(&mut client, "body").text(), "POST /a [body]");
}

#[test]
fn a_body_too_large_is_refused_before_it_is_asked_for() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let head =
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(fixture.ask(&mut client, head).status, 413);
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert!(fixture.server.app.seen.is_empty());
}

#[test]
fn bodies_come_in_chunks_and_with_trailers() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let request = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n";
    assert_eq!(fixture.ask(&mut client, request).text(), "POST /a [abcde]");
    assert_eq!(fixture.ask(&mut client, &get("/b")).text(), "GET /b []");
}

#[test]
fn a_value_cannot_end_its_line() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let answer = fixture.ask(&mut client, &get("/field"));
    assert_eq!(answer.field("X-Injected"), Some("a  X-Second: b"));
    assert_eq!(answer.field("X-Second"), None);
}

#[test]
fn the_first_answer_counts() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    assert_eq!(fixture.ask(&mut client, &get("/twice")).text(), "first");
    assert_eq!(
        fixture.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
}

#[test]
fn an_app_that_forgets_to_answer_costs_its_client_one_connection() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    client.send(get("/a").as_bytes());
    client.send(get("/forgotten").as_bytes());
    client.send(get("/b").as_bytes());
    assert_eq!(fixture.answer(&mut client).text(), "GET /a []");
    let answer = fixture.answer(&mut client);
    assert_eq!(
        (answer.status, answer.field("Connection")),
        (500, Some("close"))
    );
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert_eq!(fixture.server.app.seen, ["GET /a", "GET /forgotten"]);
    assert_eq!(fixture.server.app.count(rejected(500)), 1);
    // The body of an error to HEAD would be taken for the next answer.
    let mut client = fixture.connect();
    let answer = fixture.ask(&mut client, "HEAD /forgotten HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status, 500);
    client.finish_sending();
    fixture.end(&mut client);
    assert!(client.received.is_empty());
}

#[test]
fn an_app_may_close_with_and_without_an_answer() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/a") + &get("/close") + &get("/b"));
    assert_eq!(fixture.answer(&mut client).text(), "GET /a []");
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert!(client.received.is_empty());

    let mut client = fixture.connect();
    let answer = fixture.ask(&mut client, &get("/answered-and-closed"));
    assert_eq!(answer.text(), "answered");
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert_eq!(fixture.connections_left(), 0);
}

#[test]
fn an_answer_wins_over_a_hold_of_the_same_request() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let answer = fixture.ask(&mut client, &get("/answered-and-held?ms=1"));
    assert_eq!(answer.text(), "answered");
    assert_eq!(fixture.server.app.abandoned, [0]);
    assert!(!fixture.answer_hold(0, "too late"));
    assert_eq!(
        fixture.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
}

#[test]
fn what_has_come_with_a_connection_is_answered_as_it_is_accepted() {
    let mut fixture = Fixture::default();
    let mut last = Client::connect(fixture.address);
    last.send(b"GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut stays = Client::connect(fixture.address);
    stays.send((get("/stays") + "GET /be").as_bytes());
    let mut silent = Client::connect(fixture.address);
    let mut leaves = Client::connect(fixture.address);
    leaves.send(get("/detach").as_bytes());
    fixture.turn();
    last.receive();
    assert_eq!(last.take_answer("GET").unwrap().text(), "last");
    assert_eq!(last.end, Some(End::InOrder));
    stays.receive();
    assert_eq!(stays.take_answer("GET").unwrap().text(), "GET /stays []");
    assert_eq!(fixture.server.app.detached.len(), 1);
    assert_eq!(fixture.server.http.connections(), 2);
    // Of what comes later the loop tells.
    fixture.send(&mut stays, "gun HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(fixture.answer(&mut stays).text(), "GET /begun []");
    assert_eq!(fixture.ask(&mut silent, &get("/late")).status, 200);
    stays.finish_sending();
    silent.reset();
    assert_eq!(fixture.connections_left(), 0);
}
