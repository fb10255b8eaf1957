//! Time: what is too slow is ended, never early, and waiting costs nothing.

use crate::support::{Client, End, Fixture, get, rejected};
use dwell_engine::{Body, HttpEvent, Limits, Response};
use dwell_testkit::Rig;
#[cfg(feature = "sim")]
use std::io::Write;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(150);
/// Of those who are in time: longer than a busy machine halts.
const AMPLE: Duration = Duration::from_millis(600);
const LONG: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    Limits {
        header_timeout: LONG,
        body_timeout: LONG,
        idle_timeout: LONG,
        write_timeout: LONG,
        ..Limits::default()
    }
}

/// Sends one byte of `drip` after another until the connection ends.
///
/// Shape: returns how long it took from just before `first` was sent.
fn drip(fixture: &mut Fixture, client: &mut Client, first: &str, drip: &str) -> Duration {
    let begun = Instant::now();
    fixture.send(client, first);
    let mut bytes = drip.bytes().cycle();
    while client.received.is_empty() && client.end.is_none() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "dripping bytes moved the deadline"
        );
        fixture.send(client, [bytes.next().unwrap()]);
        fixture.turn_for(Duration::from_millis(5));
        client.receive();
    }
    begun.elapsed()
}

#[test]
fn a_slow_head_is_answered_408_however_it_drips() {
    let mut fixture = Fixture::new(Limits {
        header_timeout: TIMEOUT,
        ..limits()
    });
    for first in ["G", "GET / HTTP/1.1\r\nHost: a\r\nX: "] {
        let mut client = fixture.connect();
        // How the last answer was framed does not matter to this one.
        fixture.ask(&mut client, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(drip(&mut fixture, &mut client, first, "x") >= TIMEOUT);
        let answer = fixture.answer(&mut client);
        assert_eq!(
            (answer.status, answer.field("Connection")),
            (408, Some("close"))
        );
        client.finish_sending();
        assert_eq!(fixture.end(&mut client), End::InOrder);
    }
    assert_eq!(fixture.server.app.count(rejected(408)), 2);
}

#[test]
fn a_slow_body_is_answered_408_however_it_drips() {
    let mut fixture = Fixture::new(Limits {
        body_timeout: TIMEOUT,
        ..limits()
    });
    let fixed = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nb";
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (first, bytes) in [(fixed, "b"), (chunked, "1\r\nb\r\n")] {
        let mut client = fixture.connect();
        assert!(drip(&mut fixture, &mut client, first, bytes) >= TIMEOUT);
        assert_eq!(fixture.answer(&mut client).status, 408);
        client.finish_sending();
        assert_eq!(fixture.end(&mut client), End::InOrder);
    }
    assert!(fixture.server.app.seen.is_empty());
}

#[test]
fn a_slow_streamed_body_is_408_however_it_drips() {
    let mut fixture = Fixture::new(Limits {
        body_timeout: TIMEOUT,
        ..limits()
    });
    for target in [
        "/upload?grant=50000&ms=60000",
        "/gather?first=3&grant=50000&ms=60000",
    ] {
        let first =
            format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nbod");
        let mut client = fixture.connect();
        assert!(drip(&mut fixture, &mut client, &first, "b") >= TIMEOUT);
        assert_eq!(fixture.answer(&mut client).status, 408);
        client.finish_sending();
        assert_eq!(fixture.end(&mut client), End::InOrder);
    }
    assert_eq!(fixture.server.app.count(rejected(408)), 2);
    assert_eq!(fixture.server.app.abandoned, [0, 1]);
}

#[test]
fn a_body_is_cut_and_counted_behind_an_answer_that_has_begun() {
    let mut fixture = Fixture::new(Limits {
        body_timeout: TIMEOUT,
        ..limits()
    });
    let mut client = fixture.connect();
    let first = "POST /upload?grant=100 HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nb";
    fixture.send(&mut client, first);
    fixture.reply(0, |reply| {
        reply.send(&Response {
            status: 200,
            fields: &[],
            body: Body::Stream(None),
        });
    });
    fixture.end(&mut client);
    assert!(!client.received.ends_with(b"0\r\n\r\n"));
    assert_eq!(fixture.server.app.count(HttpEvent::BodyTimeout), 1);
}

#[cfg(feature = "sim")]
#[test]
fn a_body_at_the_lowest_rate_has_the_time_it_takes() {
    // The time of a network that is simulated: a busy machine takes none of it.
    let network = dwell_evloop::sim::SimNet::new(1);
    let mut fixture = Fixture::new(Limits {
        body_timeout: AMPLE,
        body_rate_min: 500,
        ..limits()
    });
    for target in [
        "/",
        "/upload?grant=100000&ms=60000",
        "/gather?grant=100000&ms=60000",
    ] {
        let mut client = network.connect(fixture.address);
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 1500\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let begun = network.elapsed();
        // A little quicker than it must be, and much longer than a body of no bytes may take.
        let pace = Duration::from_millis(190);
        for piece in 1..=15 {
            let end = begun + pace * piece;
            while network.elapsed() < end {
                fixture.turn_for(end.saturating_sub(network.elapsed()));
            }
            client.write_all(&[b'b'; 100]).unwrap();
        }
        let mut received = Vec::new();
        fixture.turn_for_client("an answer comes", || {
            assert!(client.read_all(&mut received), "the connection ended");
            (received.ends_with(b"]") || received.ends_with(b" bytes")).then_some(())
        });
        assert!(received.starts_with(b"HTTP/1.1 200 OK\r\n"), "{target}");
        assert!(network.elapsed() > begun + 4 * AMPLE);
    }
    assert_eq!(fixture.server.app.count(rejected(408)), 0);
}

#[test]
fn time_in_which_the_app_does_not_wait_is_not_the_clients() {
    let mut fixture = Fixture::new(Limits {
        body_timeout: AMPLE,
        ..limits()
    });
    let mut client = fixture.connect();
    let head = "POST /upload?grant=100 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n";
    fixture.send(&mut client, head);
    for piece in 1..=3 {
        fixture.reply(0, |reply| reply.await_body(false));
        fixture.turn_for(AMPLE * 2);
        fixture.reply(0, |reply| reply.await_body(true));
        fixture.send(&mut client, "b");
        while fixture.server.app.uploaded.len() < piece {
            fixture.turn();
        }
    }
    assert_eq!(fixture.answer(&mut client).status, 408);
    assert!(fixture.server.app.expired.is_empty());
}

#[test]
fn a_hold_has_its_timeout_while_the_app_does_not_wait() {
    let mut fixture = Fixture::new(Limits {
        body_timeout: AMPLE,
        ..limits()
    });
    let mut client = fixture.connect();
    let head =
        "POST /upload?grant=100&idle=1&ms=10 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n";
    fixture.send(&mut client, head.to_owned() + "b");
    assert_eq!(fixture.answer(&mut client).text(), "time is up");
}

#[test]
fn time_in_which_the_app_wants_nothing_is_not_the_clients() {
    let mut fixture = Fixture::new(Limits {
        body_timeout: AMPLE,
        ..limits()
    });
    let mut client = fixture.connect();
    let head = "POST /upload?once=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n";
    fixture.send(&mut client, head);
    for piece in 0..4 {
        fixture.turn_for(AMPLE / 2);
        fixture.reply(0, |reply| reply.grant(1));
        fixture.send(&mut client, "b");
        while fixture.server.app.uploaded.len() == piece {
            fixture.turn();
        }
    }
    assert_eq!(fixture.answer(&mut client).text(), "4 bytes");
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let mut fixture = Fixture::new(Limits {
        idle_timeout: TIMEOUT,
        ..limits()
    });
    let begun = Instant::now();
    let mut fresh = fixture.connect();
    assert_eq!(fixture.end(&mut fresh), End::InOrder);
    assert!(begun.elapsed() >= TIMEOUT && fresh.received.is_empty());

    let mut client = fixture.connect();
    let begun = Instant::now();
    assert_eq!(fixture.ask(&mut client, &get("/")).status, 200);
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert!(begun.elapsed() >= TIMEOUT && client.received.is_empty());
    assert_eq!(fixture.server.http.connections(), 0);
}

#[test]
fn each_answer_gives_the_connection_its_idle_time_anew() {
    let mut fixture = Fixture::new(Limits {
        idle_timeout: AMPLE,
        ..limits()
    });
    // An answer that the socket takes whole leaves nothing to write, and counts nevertheless.
    fixture.server.app.large = vec![b'l'; 20_000].into();
    let mut client = fixture.connect();
    let begun = Instant::now();
    let mut answers = 0;
    while begun.elapsed() < 2 * AMPLE {
        assert_eq!(fixture.ask(&mut client, &get("/large")).body.len(), 20_000);
        answers += 1;
        fixture.turn_for(AMPLE / 20);
    }
    assert!(answers > 3);
}

#[test]
fn a_deadline_is_for_one_request() {
    let mut fixture = Fixture::new(Limits {
        header_timeout: AMPLE,
        ..limits()
    });
    fixture.server.app.large = vec![b'l'; 20_000].into();
    let mut client = fixture.connect();
    let begun = Instant::now();
    let whole = get("/large");
    let (front, back) = whole.split_at(10);
    fixture.send(&mut client, front);
    while begun.elapsed() < 2 * AMPLE {
        // The end of one request and the beginning of the next in one piece.
        fixture.send(&mut client, format!("{back}{front}"));
        assert_eq!(fixture.answer(&mut client).status, 200);
        fixture.turn_for(AMPLE / 20);
    }
}

#[test]
fn waiting_takes_no_turns() {
    let mut fixture = Fixture::new(Limits {
        header_timeout: TIMEOUT,
        ..limits()
    });
    let mut clients: Vec<_> = (0..20).map(|_| fixture.connect()).collect();
    for client in &mut clients {
        fixture.send(client, "GET / HT");
    }
    let before = fixture.turns;
    fixture.turn_until("all are too slow", |server| {
        server.app.count(rejected(408)) == 20
    });
    let turns = fixture.turns - before;
    assert!(turns <= 20, "{turns} turns while nobody said anything");
}

#[test]
fn a_client_that_takes_nothing_is_closed_and_nobody_waits_for_it() {
    let mut fixture = Fixture::new(Limits {
        write_timeout: TIMEOUT,
        ..limits()
    });
    fixture.server.app.large = vec![b'l'; 50 << 20].into();
    let mut stuck = fixture.connect();
    let begun = Instant::now();
    fixture.send(&mut stuck, get("/large") + &get("/never"));
    let mut client = fixture.connect();
    let mut answers = 0;
    while fixture.server.app.count(HttpEvent::WriteTimeout) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(fixture.ask(&mut client, &get("/other")).status, 200);
        answers += 1;
    }
    assert!(begun.elapsed() >= TIMEOUT && answers > 10);
    assert_eq!(fixture.server.http.connections(), 1);
    assert!(!fixture.server.app.seen.contains(&"GET /never".into()));
}

#[test]
fn a_client_that_reads_slowly_but_reads_is_not_closed() {
    let mut fixture = Fixture::new(Limits {
        write_timeout: AMPLE,
        ..limits()
    });
    fixture.server.app.large = vec![b'l'; 50 << 20].into();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/large"));
    let begun = Instant::now();
    while client.received.len() < 50 << 20 {
        fixture.turn_for(AMPLE / 10);
        client.receive_at_most(4 << 20);
        assert!(client.end.is_none(), "closed after {:?}", begun.elapsed());
    }
    assert_eq!(fixture.server.app.count(HttpEvent::WriteTimeout), 0);
    assert_eq!(fixture.answer(&mut client).body.len(), 50 << 20);
}

#[test]
fn a_client_that_drips_is_closed_although_it_takes_something() {
    let mut fixture = Fixture::new(Limits {
        write_timeout: TIMEOUT,
        write_rate_min: u32::MAX,
        ..limits()
    });
    fixture.server.app.large = vec![b'l'; 50 << 20].into();
    let mut client = fixture.connect();
    // The deadline runs from the turn that writes the answer, however long that takes.
    let begun = Instant::now();
    fixture.send(&mut client, get("/large"));
    while fixture.server.app.count(HttpEvent::WriteTimeout) == 0 {
        assert!(
            client.received.len() < 50 << 20,
            "it has outlived its deadline"
        );
        fixture.turn_for(TIMEOUT / 20);
        client.receive_at_most(256 << 10);
    }
    assert!(begun.elapsed() >= TIMEOUT);
    assert_eq!(fixture.server.http.connections(), 0);
}

#[test]
fn a_last_answer_is_not_waited_for_without_end() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.send(&mut client, "nonsense\r\n\r\n");
    let begun = Instant::now();
    // The client keeps its side open and says more and more.
    while fixture.server.http.connections() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        client.send_some(b"more nonsense");
        fixture.turn_for(Duration::from_millis(20));
    }
    assert!(begun.elapsed() >= Duration::from_secs(2));
    client.receive();
    assert_eq!(client.take_answer("GET").unwrap().status, 400);
}

#[test]
fn a_stream_that_nobody_reads_ends_however_often_the_app_writes() {
    let mut fixture = Fixture::new(Limits {
        write_timeout: TIMEOUT,
        ..limits()
    });
    // By writing, by a longer hold, by a shorter one, and by one without end.
    for (tag, timeout) in [None, Some(LONG), Some(TIMEOUT / 10), None]
        .into_iter()
        .enumerate()
    {
        let mut client = fixture.accept(Client::connect_narrow(fixture.address));
        fixture.send(&mut client, get("/stream"));
        let begun = Instant::now();
        fixture.reply(tag, |reply| reply.write(&vec![b'x'; 8_000_000]).unwrap());
        let exchange = fixture.server.app.held[tag].0;
        while fixture.server.http.is_held(exchange) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{timeout:?}");
            // It is full, and stays so.
            assert!(
                fixture
                    .reply(tag, |reply| reply.write(b"heartbeat"))
                    .is_err()
            );
            if tag > 0 {
                let context = fixture.event_loop.context();
                let http = &mut fixture.server.http;
                assert!(http.hold(context, exchange, tag as u64, timeout));
            }
            fixture.turn_for(TIMEOUT / 10);
        }
        assert!(begun.elapsed() >= TIMEOUT, "{timeout:?}");
        assert_eq!(fixture.server.app.count(HttpEvent::WriteTimeout), tag + 1);
        assert_eq!(fixture.server.app.abandoned.len(), tag + 1);
    }
}

#[test]
fn a_body_that_is_granted_later_has_its_deadline() {
    let mut fixture = Fixture::new(Limits {
        body_timeout: TIMEOUT,
        ..limits()
    });
    let mut client = fixture.connect();
    let upload = "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n";
    fixture.send(&mut client, upload);
    fixture.reply(0, |reply| reply.grant(4));
    assert_eq!(fixture.answer(&mut client).status, 408);
    assert_eq!(fixture.server.app.abandoned, [0]);

    // All that ever comes is here already, and it is not enough.
    let mut client = fixture.connect();
    client.send((upload.to_owned() + "ab").as_bytes());
    client.finish_sending();
    fixture.turn();
    fixture.reply(1, |reply| reply.grant(2));
    fixture.turn();
    let exchange = fixture.server.app.held[1].0;
    if fixture.server.http.is_held(exchange) {
        fixture.reply(1, |reply| reply.grant(2));
    }
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert!(
        client.received.is_empty(),
        "no time passed that 408 is said"
    );
}
