//! Connections that end: by their client in any phase, by a limit, or with the server.

use crate::support::{Client, End, Fixture, get};
use dwell_engine::{HttpEvent, Limits};
use dwell_evloop::Readiness;
use dwell_testkit::Rig;
use std::time::{Duration, Instant};

#[test]
fn a_client_that_ends_its_side_gets_its_answers() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    client.send((get("/a") + &get("/b")).as_bytes());
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert_eq!(client.take_answer("GET").unwrap().text(), "GET /a []");
    assert_eq!(client.take_answer("GET").unwrap().text(), "GET /b []");
    assert_eq!(fixture.connections_left(), 0);
}

#[test]
fn a_client_that_ends_its_side_gets_a_large_answer_and_then_the_end() {
    let mut fixture = Fixture::default();
    fixture.server.app.large = vec![b'l'; 20 << 20].into();
    let mut client = fixture.connect();
    client.send(get("/large").as_bytes());
    client.finish_sending();
    let answer = fixture.answer(&mut client);
    assert_eq!(answer.body.len(), 20 << 20);
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert_eq!(fixture.connections_left(), 0);
}

/// What a client has sent, by the phase its connection is in then.
fn phases() -> [(&'static str, String); 7] {
    [
        ("fresh", String::new()),
        ("idle", get("/a")),
        ("head", "GET / HTTP/1.1\r\nHo".into()),
        ("head after an answer", get("/a") + "GET"),
        (
            "body",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nb".into(),
        ),
        ("writing", get("/large") + &get("/b")),
        ("lingering", "nonsense\r\n\r\n".into()),
    ]
}

fn large_fixture() -> Fixture {
    let mut fixture = Fixture::default();
    fixture.server.app.large = vec![b'l'; 20 << 20].into();
    fixture
}

#[test]
fn the_end_of_the_stream_ends_a_connection_in_every_phase() {
    for (phase, bytes) in phases() {
        let mut fixture = large_fixture();
        let mut client = fixture.connect();
        fixture.send(&mut client, bytes);
        client.finish_sending();
        // It may take its answers first.
        assert_eq!(fixture.end(&mut client), End::InOrder, "{phase}");
        assert_eq!(fixture.connections_left(), 0, "{phase}");
        assert_eq!(fixture.event_loop.context().armed(), 0, "{phase}");
        assert!(fixture.server.app.abandoned.is_empty(), "{phase}");
    }
}

#[test]
fn a_reset_ends_a_connection_in_every_phase() {
    for (phase, bytes) in phases() {
        let mut fixture = large_fixture();
        let mut client = fixture.connect();
        fixture.send(&mut client, bytes);
        client.reset();
        fixture.turn_until(phase, |server| server.http.connections() == 0);
        assert_eq!(fixture.event_loop.context().armed(), 0, "{phase}");
        // The loop and its other clients are none the worse for it.
        let mut next = fixture.connect();
        assert_eq!(fixture.ask(&mut next, &get("/next")).text(), "GET /next []");
    }
}

#[test]
fn a_client_that_closes_while_it_is_written_to_is_forgotten() {
    let mut fixture = large_fixture();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/large"));
    drop(client);
    fixture.turn_until("the client is gone", |server| {
        server.http.connections() == 0
    });
    assert_eq!(fixture.event_loop.context().armed(), 0);
}

#[test]
fn the_last_request_of_a_connection_is_told_so() {
    let mut fixture = Fixture::new(Limits {
        requests_per_connection_max: 3,
        ..Limits::default()
    });
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/a").repeat(5));
    for connection in [None, None, Some("close")] {
        assert_eq!(fixture.answer(&mut client).field("Connection"), connection);
    }
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert_eq!(fixture.server.app.seen.len(), 3);
}

#[test]
fn a_client_in_the_middle_of_a_request_after_its_last_is_not_reset() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let answer = fixture.ask(&mut client, &(get("/last") + "GET /an"));
    assert_eq!(answer.text(), "last");
    assert_eq!(
        fixture.connections_left(),
        1,
        "it is given time to read its answer"
    );
    fixture.send(&mut client, "other HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(fixture.end(&mut client), End::InOrder);
    client.finish_sending();
    assert_eq!(fixture.connections_left(), 0);
    assert_eq!(fixture.server.app.seen, ["GET /last"]);
}

#[test]
fn readiness_that_means_nothing_changes_nothing() {
    for (phase, bytes) in phases() {
        let mut fixture = large_fixture();
        let mut client = fixture.connect();
        fixture.send(&mut client, bytes);
        for readiness in [
            Readiness::default(),
            Readiness::WRITABLE,
            Readiness::READABLE,
            Readiness::READABLE.and(Readiness::WRITABLE),
        ] {
            fixture.pretend_ready(readiness);
            fixture.turn();
        }
        assert_eq!(fixture.server.http.connections(), 1, "{phase}");
        client.finish_sending();
        assert_eq!(fixture.end(&mut client), End::InOrder, "{phase}");
    }
}

#[test]
fn an_app_is_asked_about_a_closed_peer_once_whatever_the_socket_says() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold"));
    client.finish_sending();
    fixture.turn_until("the app is asked", |server| server.app.asked == [0]);
    for _ in 0..3 {
        fixture.pretend_ready(Readiness::READABLE.and(Readiness::READ_CLOSED));
    }
    assert_eq!(fixture.server.app.asked, [0]);
    assert!(fixture.answer_hold(0, "news"));
    assert_eq!(fixture.answer(&mut client).text(), "news");
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let mut fixture = Fixture::new(Limits {
        connections_max: 2,
        ..Limits::default()
    });
    let mut first = fixture.connect();
    let mut second = fixture.connect();
    let mut third = fixture.connect();
    fixture.end(&mut third);
    assert_eq!(fixture.server.app.count(HttpEvent::Refused), 1);
    assert_eq!(fixture.ask(&mut second, &get("/")).status, 200);
    drop(second);
    fixture.turn_until("one has left", |server| server.http.connections() == 1);
    let mut fourth = fixture.connect();
    assert_eq!(fixture.ask(&mut fourth, &get("/")).status, 200);
    assert_eq!(fixture.ask(&mut first, &get("/")).status, 200);
}

fn drain(fixture: &mut Fixture) {
    let context = fixture.event_loop.context();
    fixture.server.http.drain(context, &mut fixture.server.app);
}

#[test]
fn a_drain_ends_every_connection_with_its_next_answer() {
    let mut fixture = large_fixture();
    let mut idle = fixture.connect();
    assert_eq!(fixture.ask(&mut idle, &get("/")).status, 200);
    let mut holding = fixture.connect();
    fixture.send(&mut holding, get("/hold"));
    let mut head = fixture.connect();
    fixture.send(&mut head, "GET /slow HTTP/1.1\r\n");
    let mut writing = fixture.connect();
    fixture.send(&mut writing, get("/large") + &get("/after"));
    let mut unheard = fixture.connect();
    assert_eq!(fixture.ask(&mut unheard, &get("/")).status, 200);
    unheard.send((get("/unheard") + &get("/too-late")).as_bytes());

    drain(&mut fixture);
    assert_eq!(fixture.end(&mut idle), End::InOrder);
    let answer = fixture.answer(&mut unheard);
    assert_eq!(answer.text(), "GET /unheard []");
    assert_eq!(answer.field("Connection"), Some("close"));
    assert!(fixture.answer_hold(0, "shutting down"));
    let answer = fixture.answer(&mut holding);
    assert_eq!(answer.field("Connection"), Some("close"));
    assert_eq!(fixture.end(&mut holding), End::InOrder);
    let answer = fixture.ask(&mut head, "Host: a\r\n\r\n");
    assert_eq!(
        (answer.text(), answer.field("Connection")),
        ("GET /slow []", Some("close"))
    );
    assert_eq!(fixture.answer(&mut writing).body.len(), 20 << 20);
    let answer = fixture.answer(&mut writing);
    assert_eq!(
        (answer.text(), answer.field("Connection")),
        ("GET /after []", Some("close"))
    );
    unheard.finish_sending();
    fixture.turn_until("all have ended", |server| server.http.connections() == 0);
    assert_eq!(fixture.event_loop.context().armed(), 0);
}

#[test]
fn a_drain_gives_a_slow_head_no_more_time() {
    let mut fixture = Fixture::new(Limits {
        header_timeout: Duration::from_millis(150),
        ..Limits::default()
    });
    let mut client = fixture.connect();
    fixture.send(&mut client, "GET /slow HTTP/1.1\r\n");
    let begun = Instant::now();
    while client.received.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it goes on");
        drain(&mut fixture);
        fixture.turn_for(Duration::from_millis(5));
        client.receive();
    }
    assert_eq!(fixture.answer(&mut client).status, 408);
}

#[test]
fn a_drain_serves_who_has_connected_already() {
    let mut fixture = Fixture::default();
    // In the kernel's queue: with a request, with one on the way, and with none ever.
    let mut asking = Client::connect(fixture.address);
    asking.send(get("/a").as_bytes());
    let mut about_to_ask = Client::connect(fixture.address);
    let mut silent = Client::connect(fixture.address);
    drain(&mut fixture);
    let answer = fixture.answer(&mut asking);
    assert_eq!(
        (answer.text(), answer.field("Connection")),
        ("GET /a []", Some("close"))
    );
    let answer = fixture.ask(&mut about_to_ask, &get("/b"));
    assert_eq!(
        (answer.text(), answer.field("Connection")),
        ("GET /b []", Some("close"))
    );
    assert_eq!(fixture.end(&mut silent), End::InOrder);
    assert_eq!(fixture.connections_left(), 0);
    assert!(
        std::net::TcpStream::connect(fixture.address).is_err(),
        "nobody listens"
    );
}

#[test]
fn a_client_that_fails_while_it_is_written_to_is_told_of_once() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/stream"));
    client.reset();
    let exchange = fixture.server.app.held[0].0;
    fixture.reply(0, |reply| reply.write(b"for nobody").unwrap());
    fixture.reply(0, |reply| reply.write(b"for nobody").unwrap());
    fixture.turn();
    assert!(!fixture.server.http.is_held(exchange));
    assert_eq!(fixture.server.app.abandoned, [0]);
    assert_eq!(fixture.connections_left(), 0);
}

#[test]
fn a_connection_ends_behind_an_answer_that_is_read_differently() {
    let switching = "HTTP/1.1 101 Switching Protocols";
    for (request, start) in [
        ("/status?is=101", switching),
        ("/absent", "HTTP/1.1 200 OK"),
    ] {
        let mut fixture = Fixture::default();
        let mut client = fixture.connect();
        fixture.send(&mut client, get(request) + &get("/smuggled"));
        client.finish_sending();
        assert_eq!(fixture.end(&mut client), End::InOrder);
        let received = String::from_utf8_lossy(&client.received).into_owned();
        assert!(received.starts_with(start), "{received}");
        assert_eq!(fixture.server.app.seen, [format!("GET {request}")]);
    }
}
