//! Clients that do not read: what they can make the server keep is bounded.

use crate::support::{Client, End, Fixture, get};
use dwell_engine::{Body, Limits, Response};
use dwell_testkit::Rig;

/// Turns until `seen_min` requests have come and the server has nothing more to do.
fn settle(fixture: &mut Fixture, seen_min: usize) {
    fixture.turn_until("the requests have come", |server| {
        server.app.seen.len() >= seen_min
    });
    let mut before = usize::MAX;
    while fixture.server.app.seen.len() != before {
        before = fixture.server.app.seen.len();
        for _ in 0..10 {
            fixture.turn();
        }
    }
}

#[test]
fn requests_of_a_client_that_does_not_read_are_not_served() {
    // Answers that are queued by reference, and answers that are copied.
    for size in [100_000, 10_000] {
        let mut fixture = Fixture::default();
        fixture.server.app.large = vec![b'l'; size].into();
        let mut client = fixture.accept(Client::connect_narrow(fixture.address));
        fixture.send(&mut client, get("/large").repeat(1000));
        settle(&mut fixture, 1);
        let served = fixture.server.app.seen.len();
        // What the kernel's buffers took, and a little more.
        let bytes = served * size;
        assert!((1..6 << 20).contains(&bytes), "{bytes} bytes for nobody");
        for _ in 0..1000 {
            assert_eq!(fixture.answer(&mut client).body.len(), size);
        }
        assert_eq!(fixture.server.app.seen.len(), 1000);
        assert_eq!(
            fixture.ask(&mut client, &get("/next")).text(),
            "GET /next []"
        );
    }
}

#[test]
fn small_answers_are_bounded_as_well() {
    let mut fixture = Fixture::new(Limits {
        requests_per_connection_max: u32::MAX,
        ..Limits::default()
    });
    let mut client = fixture.connect();
    let requests = get("/small").repeat(1000);
    let (mut sent, mut refused) = (0, 0);
    while refused < 100 {
        let taken = client.send_some(&requests.as_bytes()[sent % requests.len()..]);
        sent += taken;
        refused += usize::from(taken == 0);
        fixture.turn();
        assert!(sent < 256 << 20, "the server reads on and on");
    }
    settle(&mut fixture, 1);
    let served = fixture.server.app.seen.len();
    let asked = sent / get("/small").len();
    assert!(served < asked, "{served} of {asked} answered into nothing");
    for _ in 0..asked {
        assert_eq!(fixture.answer(&mut client).text(), "GET /small []");
    }
}

#[test]
fn an_answer_in_parts_is_whole_and_what_follows_is_served() {
    let mut fixture = Fixture::default();
    let body: Vec<u8> = (0..20 << 20).map(|n: u32| (n / 7) as u8).collect();
    fixture.server.app.large = body.clone().into();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/a") + &get("/large") + &get("/b"));
    // A request of which only a part is here when the socket is full.
    fixture.send(
        &mut client,
        "POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo",
    );
    settle(&mut fixture, 2);
    assert_eq!(fixture.server.app.seen, ["GET /a", "GET /large"]);
    assert_eq!(fixture.answer(&mut client).text(), "GET /a []");
    assert!(fixture.answer(&mut client).body == body);
    assert_eq!(fixture.answer(&mut client).text(), "GET /b []");
    assert_eq!(fixture.ask(&mut client, "dy").text(), "POST /c [body]");
}

#[test]
fn a_hold_behind_queued_output_is_answered_after_it() {
    let mut fixture = Fixture::default();
    fixture.server.app.large = vec![b'l'; 20 << 20].into();
    let mut client = fixture.connect();
    // Held while the answer before it is on its way, and answered before that has left.
    fixture.send(&mut client, get("/hold") + &get("/large") + &get("/hold"));
    assert!(fixture.answer_hold(0, "first"));
    settle(&mut fixture, 2);
    assert_eq!(
        fixture.server.app.held.len(),
        1,
        "nothing is held while the socket is full"
    );
    assert_eq!(fixture.answer(&mut client).text(), "first");
    assert_eq!(fixture.answer(&mut client).body.len(), 20 << 20);
    fixture.turn_until("the second is held", |server| server.app.held.len() == 2);
    assert!(fixture.answer_hold(1, "second"));
    assert_eq!(fixture.answer(&mut client).text(), "second");
}

#[test]
fn what_follows_a_large_late_answer_waits_until_it_is_taken() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/hold") + &get("/next"));
    let large = Response {
        status: 200,
        fields: &[],
        body: Body::Shared(vec![b'l'; 20 << 20].into()),
    };
    let exchange = fixture.server.app.held[0].0;
    let context = fixture.event_loop.context();
    assert!(fixture.server.http.answer(context, exchange, &large));
    settle(&mut fixture, 1);
    assert_eq!(fixture.server.app.seen, ["GET /hold"]);
    assert_eq!(fixture.answer(&mut client).body.len(), 20 << 20);
    assert_eq!(fixture.answer(&mut client).text(), "GET /next []");
}

/// Sends pairs of an answer of 10 kB and a hold, which is answered, until the socket is full or
/// there were so many holds; returns how many there were.
fn fill(fixture: &mut Fixture, client: &mut Client, holds_max: usize) -> usize {
    loop {
        fixture.send(client, get("/large") + &get("/hold"));
        fixture.turn();
        let holds = fixture.server.app.held.len();
        let newest = fixture
            .server
            .app
            .held
            .last()
            .map(|(exchange, _)| *exchange);
        let is_held = newest.is_some_and(|exchange| fixture.server.http.is_held(exchange));
        if !is_held || holds == holds_max {
            return holds;
        }
        assert!(fixture.answer_hold(holds - 1, "held"));
    }
}

#[test]
fn a_hold_outlives_the_output_before_it() {
    let run = |holds_max| {
        let mut fixture = Fixture::default();
        fixture.server.app.large = vec![b'l'; 10_000].into();
        let mut client = fixture.connect();
        let holds = fill(&mut fixture, &mut client, holds_max);
        (fixture, client, holds)
    };
    let (_, _, holds_until_full) = run(usize::MAX);
    // At the hold with which the socket was full, and around it in case the kernel counts
    // differently this time.
    for holds_max in holds_until_full - 1..=holds_until_full + 1 {
        let (mut fixture, mut client, holds) = run(holds_max);
        if holds < holds_max {
            continue;
        }
        for _ in 0..holds - 1 {
            assert_eq!(fixture.answer(&mut client).body.len(), 10_000);
            assert_eq!(fixture.answer(&mut client).text(), "held");
        }
        assert_eq!(fixture.answer(&mut client).body.len(), 10_000);
        assert!(fixture.answer_hold(holds - 1, "the last"), "still held");
        assert_eq!(fixture.answer(&mut client).text(), "the last");
        assert_eq!(
            fixture.ask(&mut client, &get("/next")).text(),
            "GET /next []"
        );
    }
}

#[test]
fn a_large_last_answer_arrives_whole_before_the_end() {
    let mut fixture = Fixture::default();
    fixture.server.app.large = vec![b'l'; 5 << 20].into();
    let mut client = fixture.accept(Client::connect_narrow(fixture.address));
    let request = "GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    // What is sent behind the last request must not reset the answer away.
    fixture.send(&mut client, request.to_owned() + &get("/unanswered"));
    while client.received.len() < (5 << 20) - 300_000 {
        client.receive_at_most(1 << 16);
        fixture.turn();
    }
    // The server has given everything to its kernel, which still has some of it.
    let junk = get("/unanswered").repeat(10_000);
    assert!(client.send_some(junk.as_bytes()) > 100_000);
    client.finish_sending();
    for _ in 0..20 {
        fixture.turn();
    }
    assert_eq!(fixture.answer(&mut client).body.len(), 5 << 20);
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert_eq!(fixture.server.app.seen, ["GET /large"]);
}

/// Has a request held behind an answer that the socket refuses in part; `rest` ends the requests
/// like it that are answered before. Returns how many those are.
fn hold_behind_queue(fixture: &mut Fixture, client: &mut Client, hold: &str, rest: &str) -> usize {
    fixture.server.app.large = vec![b'l'; 10_000].into();
    for tag in 0.. {
        fixture.send(client, get("/large") + hold);
        let connection = fixture.server.app.held[tag].0.connection();
        if fixture.server.http.queued_bytes(connection) > 0 {
            return tag;
        }
        assert!(fixture.answer_hold(tag, "held"));
        while fixture.server.http.queued_bytes(connection) > 0 {
            client.receive_at_most(1);
            fixture.turn();
        }
        fixture.send(client, rest);
    }
    unreachable!("the socket takes everything")
}

#[test]
fn a_body_that_comes_with_the_room_for_an_answer_before_it_is_read() {
    let mut fixture = Fixture::default();
    let mut client = fixture.accept(Client::connect_narrow(fixture.address));
    let upload = "POST /upload?grant=9 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n";
    let before = hold_behind_queue(&mut fixture, &mut client, upload, "body");
    // One readiness tells of both.
    client.receive();
    fixture.send(&mut client, "last");
    for _ in 0..before {
        assert_eq!(fixture.answer(&mut client).body.len(), 10_000);
        assert_eq!(fixture.answer(&mut client).text(), "held");
    }
    assert_eq!(fixture.answer(&mut client).body.len(), 10_000);
    assert_eq!(fixture.answer(&mut client).text(), "4 bytes");
}

#[test]
fn a_hold_that_is_given_up_leaves_the_answers_before_it_alone() {
    let mut fixture = Fixture::default();
    fixture.server.app.gives_up = true;
    let mut client = fixture.accept(Client::connect_narrow(fixture.address));
    let before = hold_behind_queue(&mut fixture, &mut client, &get("/hold"), "");
    client.finish_sending();
    fixture.turn_until("the hold is given up", |server| {
        server.app.abandoned == [before as u64]
    });
    for _ in 0..before {
        assert_eq!(fixture.answer(&mut client).body.len(), 10_000);
        assert_eq!(fixture.answer(&mut client).text(), "held");
    }
    assert_eq!(fixture.answer(&mut client).body.len(), 10_000);
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert!(client.received.is_empty());
    assert_eq!(fixture.server.app.abandoned.len(), 1);
}

#[test]
fn a_bound_below_what_one_callback_writes_holds_nobody_up() {
    let limits = Limits {
        output_bytes_max: 10,
        ..Limits::default()
    };
    let mut fixture = Fixture::new(limits);
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/stream"));
    // The socket takes it all, so nobody would tell of room.
    fixture.reply(0, |reply| {
        for _ in 0..100 {
            reply.write(b"a piece").unwrap();
        }
    });
}

#[test]
fn a_client_that_asks_for_much_at_once_leaves_the_turn_to_others() {
    let mut fixture = Fixture::default();
    fixture.server.app.large = vec![b'l'; 400 << 10].into();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/large").repeat(20));
    let mut answered = 0;
    while fixture.server.app.seen.len() < 20 {
        fixture.turn_for(std::time::Duration::from_millis(20));
        let seen = fixture.server.app.seen.len();
        // Half a MiB a visit, with the answer by which it is reached, and two visits at most.
        assert!(seen - answered <= 4, "{} in one turn", seen - answered);
        answered = seen;
        client.receive();
    }
    for _ in 0..20 {
        assert_eq!(fixture.answer(&mut client).body.len(), 400 << 10);
    }
}
