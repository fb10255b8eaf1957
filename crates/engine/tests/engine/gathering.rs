//! Answers to many at once, gathered where the kernel sends them by one call.

use crate::support::{Client, Fixture, get, text};
use dwell_engine::SharedPiece;
use dwell_evloop::Sends;
use dwell_testkit::Rig;

fn gathering() -> Fixture {
    let mut fixture = Fixture::default();
    let context = fixture.event_loop.context();
    context.set_sends(Some(Sends::default()));
    fixture
}

/// Clients that wait for an answer, or for a piece of one.
fn waiting(fixture: &mut Fixture, requests: &[&str]) -> Vec<Client> {
    let mut clients = Vec::new();
    for request in requests {
        let mut client = fixture.connect();
        fixture.send(&mut client, request);
        clients.push(client);
    }
    clients
}

fn gather(fixture: &mut Fixture, count: usize) {
    let context = fixture.event_loop.context();
    fixture.server.http.gather(context, count);
}

fn send(fixture: &mut Fixture) {
    let context = fixture.event_loop.context();
    fixture.server.http.send_gathered(context);
}

#[test]
fn gathered_answers_are_framed_and_followed_as_others() {
    let mut fixture = gathering();
    let hold = get("/hold");
    let and_more = format!("{hold}{}", get("/more"));
    let mut requests = vec![
        "GET /hold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /hold HTTP/1.0\r\n\r\n",
        "GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        &and_more,
    ];
    requests.resize(12, &hold);
    let mut clients = waiting(&mut fixture, &requests);
    gather(&mut fixture, clients.len());
    for tag in 0..clients.len() {
        assert!(fixture.answer_hold(tag, &format!("news for {tag}")));
    }
    send(&mut fixture);
    for (tag, client) in clients.iter_mut().enumerate() {
        let answer = fixture.answer(client);
        assert_eq!(answer.text(), format!("news for {tag}"));
        let connection = ["close", "close", "keep-alive"].get(tag).copied();
        assert_eq!(answer.field("Connection"), connection, "{tag}");
    }
    assert_eq!(fixture.answer(&mut clients[3]).status, 200);
    for client in &mut clients[2..] {
        assert_eq!(fixture.ask(client, &get("/more")).status, 200);
    }
}

#[test]
fn what_a_stream_is_given_later_comes_behind_what_was_gathered() {
    let mut fixture = gathering();
    let stream = get("/stream");
    let mut clients = waiting(&mut fixture, &[stream.as_str(); 8]);
    let pieces = ["one ", "two "].map(|piece| SharedPiece::new(piece.as_bytes()));
    gather(&mut fixture, clients.len());
    for tag in 0..clients.len() {
        for piece in &pieces {
            let written = fixture.reply(tag, |reply| reply.write_piece(piece));
            assert_eq!(written, Ok(()));
        }
    }
    send(&mut fixture);
    for (tag, client) in clients.iter_mut().enumerate() {
        fixture.reply(tag, |reply| reply.finish(&[])).unwrap();
        fixture.turn_for_client("the stream ends", || {
            client.receive();
            client.received.ends_with(b"\r\n0\r\n\r\n").then_some(())
        });
        let text = String::from_utf8_lossy(&client.received);
        assert!(
            text.ends_with("\r\n\r\n4\r\none \r\n4\r\ntwo \r\n0\r\n\r\n"),
            "{text}"
        );
    }
}

#[test]
fn clients_that_are_gone_are_forgotten_and_the_others_answered() {
    let mut fixture = gathering();
    let hold = get("/hold");
    let mut clients = waiting(&mut fixture, &[hold.as_str(); 10]);
    let mut stays = clients.split_off(9);
    for client in clients {
        client.reset();
    }
    gather(&mut fixture, 10);
    for tag in 0..10 {
        let exchange = fixture.server.app.held[tag].0;
        let context = fixture.event_loop.context();
        let http = &mut fixture.server.http;
        assert!(http.answer(context, exchange, &text(200, "news")));
    }
    send(&mut fixture);
    assert_eq!(fixture.answer(&mut stays[0]).text(), "news");
    fixture.turn_until("those that left are forgotten", |server| {
        server.http.connections() == 1
    });
}

#[test]
fn a_ring_that_fails_costs_no_client_its_answer() {
    let mut fixture = Fixture::default();
    // The kernel takes no orders from a thread that has not made the ring.
    let made = std::thread::spawn(|| {
        let mut sends = Sends::default();
        sends.open();
        sends
    });
    let context = fixture.event_loop.context();
    context.set_sends(Some(made.join().unwrap()));
    let hold = get("/hold");
    let mut clients = waiting(&mut fixture, &[hold.as_str(); 12]);
    gather(&mut fixture, clients.len());
    for tag in 0..clients.len() {
        assert!(fixture.answer_hold(tag, "news"));
    }
    send(&mut fixture);
    for client in &mut clients {
        assert_eq!(fixture.answer(client).text(), "news");
        assert_eq!(fixture.ask(client, &get("/more")).status, 200);
    }
}

#[test]
fn a_connection_that_ends_among_the_gathered_has_its_answer() {
    let mut fixture = gathering();
    let hold = get("/hold");
    let mut clients = waiting(&mut fixture, &[hold.as_str(); 8]);
    gather(&mut fixture, 8);
    for tag in 0..8 {
        assert!(fixture.answer_hold(tag, "news"));
    }
    let connection = fixture.server.app.held[0].0.connection();
    let context = fixture.event_loop.context();
    assert!(!fixture.server.http.close_connection(context, connection));
    send(&mut fixture);
    for client in &mut clients {
        assert_eq!(fixture.answer(client).text(), "news");
    }
    assert_eq!(fixture.connections_left(), 7);
}
