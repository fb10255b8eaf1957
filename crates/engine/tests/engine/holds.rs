//! Exchanges that are answered later, expire, or are left by their client.

use crate::support::{Client, End, Fixture, get};
use dwell_engine::Limits;
use dwell_testkit::Rig;
use std::time::{Duration, Instant};

#[test]
fn a_held_exchange_is_answered_by_its_name_and_only_once() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold"));
    let exchange = fixture.server.app.held[0].0;
    assert!(fixture.server.http.is_held(exchange));
    let address = fixture.server.http.peer_address(exchange).unwrap();
    assert_eq!(address.ip(), fixture.address.ip());
    assert!(fixture.answer_hold(0, "news"));
    assert!(!fixture.server.http.is_held(exchange));
    assert!(!fixture.answer_hold(0, "more news"));
    assert_eq!(fixture.answer(&mut client).text(), "news");
    // The name of an earlier exchange is not that of the next one on the connection.
    fixture.send(&mut client, get("/hold"));
    assert!(!fixture.answer_hold(0, "old news"));
    assert!(fixture.answer_hold(1, "new news"));
    assert_eq!(fixture.answer(&mut client).text(), "new news");
    assert!(fixture.server.app.abandoned.is_empty());
}

#[test]
fn a_late_answer_is_framed_as_its_request_asked() {
    let mut fixture = Fixture::default();
    let requests = [
        (
            "GET /hold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            Some("close"),
        ),
        ("GET /hold HTTP/1.0\r\n\r\n", Some("close")),
        (
            "GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            Some("keep-alive"),
        ),
        ("HEAD /hold HTTP/1.1\r\nHost: a\r\n\r\n", None),
    ];
    for (tag, (request, connection)) in requests.into_iter().enumerate() {
        let mut client = fixture.connect();
        fixture.send(&mut client, request);
        assert!(fixture.answer_hold(tag, "news"));
        let method = request.split(' ').next().unwrap();
        let answer = fixture.answer_to(method, &mut client);
        assert_eq!(answer.field("Connection"), connection, "{request}");
        assert_eq!(answer.field("Content-Length"), Some("4"), "{request}");
        if connection != Some("close") {
            assert_eq!(
                fixture.ask(&mut client, &get("/next")).text(),
                "GET /next []"
            );
            client.finish_sending();
        }
        assert_eq!(fixture.end(&mut client), End::InOrder, "{request}");
        assert!(client.received.is_empty(), "{request}");
        assert_eq!(fixture.connections_left(), 0, "{request}");
    }
}

#[test]
fn the_name_of_an_exchange_dies_with_its_connection() {
    let mut fixture = Fixture::default();
    fixture.server.app.gives_up = true;
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold"));
    drop(client);
    fixture.turn_until("the client is gone", |server| {
        server.http.connections() == 0
    });
    let mut next = fixture.connect();
    fixture.send(&mut next, get("/hold"));
    assert!(!fixture.answer_hold(0, "for the first"));
    assert!(fixture.answer_hold(1, "for the second"));
    assert_eq!(fixture.answer(&mut next).text(), "for the second");
}

#[test]
fn requests_behind_a_held_one_wait_their_turn() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let body = "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo";
    fixture.send(
        &mut client,
        get("/a") + &get("/hold") + &get("/hold") + body,
    );
    assert_eq!(fixture.answer(&mut client).text(), "GET /a []");
    // More comes while it is held.
    fixture.send(&mut client, "dy");
    fixture.send(&mut client, get("/c"));
    assert_eq!(fixture.server.app.seen, ["GET /a", "GET /hold"]);
    assert!(fixture.answer_hold(0, "first"));
    assert_eq!(fixture.answer(&mut client).text(), "first");
    fixture.turn_until("the second is held", |server| server.app.held.len() == 2);
    assert!(fixture.answer_hold(1, "second"));
    assert_eq!(fixture.answer(&mut client).text(), "second");
    assert_eq!(fixture.answer(&mut client).text(), "POST /b [body]");
    assert_eq!(fixture.answer(&mut client).text(), "GET /c []");
}

#[test]
fn input_behind_a_held_request_is_not_read_without_bound() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold"));
    let flood = get("/flood").repeat(1000);
    let (mut sent, mut refused) = (0, 0);
    while refused < 100 {
        let taken = client.send_some(&flood.as_bytes()[sent % flood.len()..]);
        sent += taken;
        refused += usize::from(taken == 0);
        fixture.turn();
        assert!(sent < 64 << 20, "the server reads on and on");
    }
    assert_eq!(fixture.server.app.seen, ["GET /hold"]);
    assert!(fixture.answer_hold(0, "news"));
    assert_eq!(fixture.answer(&mut client).text(), "news");
    assert_eq!(fixture.answer(&mut client).text(), "GET /flood []");
}

/// A server that keeps this much of long input behind held requests.
fn keeping(held_input_bytes_max: usize) -> Fixture {
    Fixture::new(Limits {
        held_input_bytes_max,
        ..Limits::default()
    })
}

/// Sends a request that is held, and so many bytes of others behind it.
fn hold_before(fixture: &mut Fixture, bytes: usize) -> Client {
    let mut client = fixture.connect();
    let behind = get("/behind") + &"x".repeat(bytes);
    fixture.send(&mut client, get("/hold") + &behind[..bytes]);
    client
}

/// Answers the newest hold; whether what has come behind it is served as well.
fn goes_on(fixture: &mut Fixture, tag: usize, client: &mut Client) -> bool {
    assert!(fixture.answer_hold(tag, "news"));
    let answer = fixture.answer(client);
    assert_eq!(answer.text(), "news");
    if answer.field("connection") == Some("close") {
        client.finish_sending();
        assert_eq!(fixture.end(client), End::InOrder);
        return false;
    }
    assert_eq!(fixture.answer(client).text(), "GET /behind []");
    true
}

#[test]
fn little_input_behind_a_held_request_is_always_kept() {
    let mut fixture = keeping(0);
    for (tag, (bytes, is_kept)) in [(4096, true), (4097, false)].into_iter().enumerate() {
        let mut client = hold_before(&mut fixture, bytes);
        assert_eq!(goes_on(&mut fixture, tag, &mut client), is_kept, "{bytes}");
    }
    let seen = &fixture.server.app.seen;
    assert_eq!(*seen, ["GET /hold", "GET /behind", "GET /hold"]);
}

#[test]
fn long_input_behind_held_requests_has_one_bound() {
    let mut fixture = keeping(15_000);
    let mut clients: Vec<_> = (0..4).map(|_| hold_before(&mut fixture, 5_000)).collect();
    assert!(
        !goes_on(&mut fixture, 3, &mut clients[3]),
        "there are three"
    );
    assert!(goes_on(&mut fixture, 0, &mut clients[0]));
    clients.remove(0);
    // What one has given back another may have; a client that leaves gives its part back, too.
    let mut fifth = hold_before(&mut fixture, 5_000);
    assert!(goes_on(&mut fixture, 4, &mut fifth));
    clients.remove(0).reset();
    fixture.turn_until("it is gone", |server| server.app.abandoned.len() == 1);
    let mut last: Vec<_> = (0..3).map(|_| hold_before(&mut fixture, 5_000)).collect();
    assert!(
        goes_on(&mut fixture, 6, &mut last[1]),
        "the second place is free"
    );
    assert!(!goes_on(&mut fixture, 7, &mut last[2]));
}

#[test]
fn a_connection_whose_input_was_given_up_does_not_leave() {
    let mut fixture = keeping(0);
    let client = hold_before(&mut fixture, 5_000);
    let exchange = fixture.server.app.held[0].0;
    let context = fixture.event_loop.context();
    assert!(fixture.server.http.detach(context, exchange).is_none());
    fixture.turn();
    assert_eq!(fixture.server.app.abandoned, [0]);
    assert_eq!(fixture.connections_left(), 0);
    drop(client);
    // Nor does it where the app lets it leave of its own accord.
    let mut client = fixture.connect();
    fixture.send(
        &mut client,
        get("/hold?ms=10&then=detach") + &"x".repeat(5000),
    );
    fixture.turn_until("it is closed", |server| server.http.connections() == 0);
    assert_eq!(fixture.server.app.abandoned, [0, 1]);
    assert!(fixture.server.app.detached.is_empty());
}

#[test]
fn a_body_that_waits_behind_a_held_request_is_not_given_up() {
    let mut fixture = keeping(0);
    let mut client = fixture.connect();
    let head = "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n";
    fixture.send(&mut client, head.to_owned() + &"x".repeat(50_000));
    fixture.turn();
    fixture.reply(0, |reply| reply.grant(50_000));
    assert_eq!(fixture.answer(&mut client).text(), "50000 bytes");
}

#[test]
fn a_hold_that_expires_is_answered_held_on_or_closed() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let begun = Instant::now();
    assert_eq!(
        fixture.ask(&mut client, &get("/hold?ms=30")).text(),
        "time is up"
    );
    let (tag, at) = fixture.server.app.expired[0];
    assert_eq!(tag, 0);
    assert!(at.duration_since(begun) >= Duration::from_millis(30));

    fixture.send(&mut client, get("/hold?ms=10&then=hold"));
    fixture.turn_until("the second hold expires", |server| {
        server.app.expired.len() == 2
    });
    assert!(fixture.answer_hold(1, "after all"));
    assert_eq!(fixture.answer(&mut client).text(), "after all");

    fixture.send(&mut client, get("/hold?ms=10&then=forget"));
    let answer = fixture.answer(&mut client);
    assert_eq!(
        (answer.status, answer.field("Connection")),
        (500, Some("close"))
    );
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);

    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold?ms=10&then=close"));
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert!(client.received.is_empty());
    assert!(
        fixture.server.app.abandoned.is_empty(),
        "the app has ended each itself"
    );
}

#[test]
fn an_expired_hold_that_is_answered_and_held_is_answered() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let answer = fixture.ask(&mut client, &get("/hold?ms=10&then=both"));
    assert_eq!(answer.text(), "both");
    assert_eq!(fixture.server.app.abandoned, [0]);
    assert!(!fixture.answer_hold(0, "too late"));
    assert_eq!(
        fixture.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
}

#[test]
fn a_hold_that_goes_on_for_a_client_that_ended_its_side_is_asked_about_again() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold?ms=30&then=hold"));
    client.finish_sending();
    fixture.turn_until("the hold expires", |server| !server.app.expired.is_empty());
    assert_eq!(fixture.server.app.asked, [0, 0]);
    assert!(fixture.answer_hold(0, "news"));
    assert_eq!(fixture.answer(&mut client).text(), "news");
}

#[test]
fn an_expired_hold_goes_on_with_what_came_behind_it() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold?ms=10") + &get("/next"));
    assert_eq!(fixture.answer(&mut client).text(), "time is up");
    assert_eq!(fixture.answer(&mut client).text(), "GET /next []");
}

#[test]
fn a_hold_can_be_changed() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold"));
    let exchange = fixture.server.app.held[0].0;
    let context = fixture.event_loop.context();
    let timeout = Some(Duration::from_millis(10));
    assert!(fixture.server.http.hold(context, exchange, 0, timeout));
    assert_eq!(fixture.answer(&mut client).text(), "time is up");
    let context = fixture.event_loop.context();
    assert!(!fixture.server.http.hold(context, exchange, 0, timeout));
}

#[test]
fn a_client_that_ends_its_side_is_asked_about_once_and_given_up() {
    let mut fixture = Fixture::default();
    fixture.server.app.gives_up = true;
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold"));
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert_eq!(fixture.server.app.asked, [0]);
    assert_eq!(fixture.server.app.abandoned, [0]);
    assert!(!fixture.answer_hold(0, "too late"));

    // The request and the end of the stream in one piece.
    let mut client = fixture.connect();
    client.send(get("/hold").as_bytes());
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert_eq!(fixture.server.app.asked, [0, 1]);
    assert_eq!(fixture.server.app.abandoned, [0, 1]);
}

#[test]
fn a_client_that_ends_its_side_may_still_be_waited_for() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    client.send((get("/hold") + &get("/hold") + &get("/last-one")).as_bytes());
    client.finish_sending();
    fixture.turn_until("the app is asked", |server| !server.app.asked.is_empty());
    for _ in 0..5 {
        fixture.turn();
    }
    assert_eq!(fixture.server.app.asked, [0], "asked once for each hold");
    assert!(fixture.answer_hold(0, "first"));
    fixture.turn_until("the second is asked about", |server| {
        server.app.asked.len() == 2
    });
    // A hold that changes its meaning is a new question.
    let exchange = fixture.server.app.held[1].0;
    let context = fixture.event_loop.context();
    assert!(fixture.server.http.hold(context, exchange, 1, None));
    fixture.turn_until("the change is asked about", |server| {
        server.app.asked.len() == 3
    });
    assert!(fixture.answer_hold(1, "second"));
    assert_eq!(fixture.end(&mut client), End::InOrder);
    for text in ["first", "second", "GET /last-one []"] {
        assert_eq!(client.take_answer("GET").unwrap().text(), text);
    }
    assert_eq!(fixture.server.app.asked, [0, 1, 1]);
    assert!(fixture.server.app.abandoned.is_empty());
}

#[test]
fn a_reset_abandons_a_hold_once() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold?ms=5000") + &get("/behind"));
    client.reset();
    fixture.turn_until("the hold is abandoned", |server| {
        !server.app.abandoned.is_empty()
    });
    assert_eq!(fixture.server.app.abandoned, [0]);
    assert_eq!(fixture.connections_left(), 0);
    assert_eq!(
        fixture.event_loop.context().armed(),
        0,
        "no deadline is left behind"
    );
    assert!(!fixture.answer_hold(0, "nobody"));
}

#[test]
fn closing_all_abandons_what_is_held_and_nothing_else() {
    let mut fixture = Fixture::default();
    let mut holding = fixture.connect();
    let mut idle = fixture.connect();
    fixture.send(&mut holding, get("/hold"));
    let context = fixture.event_loop.context();
    fixture
        .server
        .http
        .close_all(context, &mut fixture.server.app);
    assert_eq!(fixture.server.app.abandoned, [0]);
    assert_eq!(fixture.connections_left(), 0);
    assert_eq!(fixture.end(&mut holding), End::InOrder);
    assert_eq!(fixture.end(&mut idle), End::InOrder);
}

/// How many descriptors this process may have.
fn descriptors_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .and_then(|line| line.split_whitespace().nth(3)?.parse().ok())
        .unwrap_or(1024)
}

#[test]
fn ten_thousand_held_exchanges_are_answered() {
    // Both ends of each connection are here, and other tests need some.
    let count = ((descriptors_max().saturating_sub(600)) / 2).min(10_000);
    let mut fixture = Fixture::default();
    let mut clients: Vec<Client> = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = Client::connect(fixture.address);
        client.send(get("/hold?ms=60000").as_bytes());
        clients.push(client);
        fixture.turn();
    }
    fixture.turn_until("all are held", |server| server.app.held.len() == count);
    let before = fixture.turns;
    fixture.turn();
    fixture.turn_for(Duration::from_millis(100));
    assert!(
        fixture.turns - before <= 2,
        "nobody wakes a loop of waiting clients"
    );
    for tag in 0..count {
        assert!(fixture.answer_hold(tag, "news"));
    }
    for client in &mut clients {
        assert_eq!(fixture.answer(client).text(), "news");
    }
    assert_eq!(fixture.server.http.connections(), count);
    assert!(fixture.server.app.expired.is_empty());
}
