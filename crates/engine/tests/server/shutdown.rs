//! How a server ends.

use crate::support::{Client, End, get, serve, until};
use dwell_engine::Request;
use dwell_engine::handler::{Answer, Exchange, Responder};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Answers `/` at once and hands over what else is asked.
fn hand_out(
    to: Sender<Responder>,
) -> impl Fn(&Request<'_>, &mut Exchange<'_, '_>) + Send + Sync + 'static {
    let to = Arc::new(Mutex::new(to));
    move |request, exchange| match request.head.path {
        "/" => exchange.text(200, "at once"),
        _ => to.lock().unwrap().send(exchange.responder()).unwrap(),
    }
}

#[test]
fn idle_clients_go_at_once_and_what_is_in_flight_is_finished() {
    let (to, responders) = channel();
    let running = serve(|options| options.pollers(2), hand_out(to));
    let address = running.addresses()[0];
    let mut idle: Vec<_> = (0..20).map(|_| Client::connect(&running)).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").status, 200);
    }
    let mut waiting = Client::connect(&running);
    waiting.send(get("/later"));
    let responder = responders.recv().unwrap();
    let begun = Instant::now();
    let ending = std::thread::spawn(move || running.shutdown(Duration::from_secs(60)));
    for client in &mut idle {
        assert_eq!(client.end(), End::InOrder);
    }
    assert!(
        TcpStream::connect(address).is_err(),
        "nobody listens any more"
    );
    responder.send(Answer::text(200, "the last one")).unwrap();
    let answer = waiting.answer();
    assert_eq!(
        (answer.text(), answer.field("connection")),
        ("the last one", Some("close"))
    );
    waiting.finish_sending();
    let shutdown = ending.join().unwrap();
    assert_eq!((shutdown.cut_connections, shutdown.cut_requests), (0, 0));
    assert_eq!(shutdown.failed_loops, 0);
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "the deadline was not waited for"
    );
}

#[test]
fn what_is_left_at_the_deadline_is_cut_off_and_told() {
    let (to, responders) = channel();
    let running = serve(|options| options, hand_out(to));
    let mut waiting: Vec<_> = (0..3).map(|_| Client::connect(&running)).collect();
    let mut kept = Vec::new();
    for client in &mut waiting {
        client.send(get("/never"));
        kept.push(responders.recv().unwrap());
    }
    until(&running, |figures| figures.in_flight == 3);
    let shutdown = running.shutdown(Duration::from_millis(100));
    assert_eq!((shutdown.cut_connections, shutdown.cut_requests), (3, 3));
    for client in &mut waiting {
        assert!(client.try_answer_to("GET").is_err());
    }
    for responder in kept {
        assert!(responder.is_cancelled());
        assert!(
            responder.send(Answer::new(200)).is_err(),
            "a stale handle does nothing"
        );
    }
}

/// A long-poll and a stream of events without news; either ends when the server does.
fn wait_for_the_end(request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    let streams = request.head.path == "/events";
    assert!(!exchange.is_draining());
    exchange.spawn(move |responder| async move {
        if streams {
            let mut writer = responder.stream(Answer::new(200), None).unwrap();
            writer.try_write("data: hello\n\n").unwrap();
            writer.draining().await;
            assert!(writer.is_draining());
            writer.finish(Vec::new()).unwrap();
        } else {
            responder.draining().await;
            assert!(responder.is_draining());
            responder.send(Answer::text(200, "no news")).unwrap();
        }
    });
}

#[test]
fn those_who_wait_for_news_hear_of_the_end() {
    let running = serve(|options| options, wait_for_the_end);
    let mut poll = Client::connect(&running);
    poll.send(get("/poll"));
    let mut events = Client::connect(&running);
    events.send(get("/events"));
    until(&running, |figures| figures.in_flight == 2);
    let begun = Instant::now();
    let shutdown = running.shutdown(Duration::from_secs(60));
    assert_eq!((shutdown.cut_connections, shutdown.cut_requests), (0, 0));
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(poll.answer().text(), "no news");
    assert_eq!(events.answer().text(), "data: hello\n\n");
}

#[test]
fn who_waits_on_a_thread_can_ask_for_the_end() {
    let (to, responders) = channel();
    let running = serve(|options| options, hand_out(to));
    let mut waiting = Client::connect(&running);
    waiting.send(get("/later"));
    let responder = responders.recv().unwrap();
    let thread = std::thread::spawn(move || {
        while !responder.is_draining() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        responder.send(Answer::text(200, "no news")).unwrap();
    });
    let shutdown = running.shutdown(Duration::from_secs(60));
    assert_eq!(shutdown.cut_requests, 0);
    assert_eq!(waiting.answer().text(), "no news");
    thread.join().unwrap();
}

#[test]
fn a_server_that_is_dropped_ends() {
    let running = serve(
        |options| options,
        |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
            exchange.text(200, "hello");
        },
    );
    let mut client = Client::connect(&running);
    assert_eq!(client.get("/").status, 200);
    drop(running);
    client.end();
}
