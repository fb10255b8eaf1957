//! Signals that end a server, in a process of their own: they concern all of it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "server/support.rs"]
#[expect(dead_code, reason = "these clients need less of it")]
mod support;

use dwell_engine::handler::{Answer, Exchange, Responder};
use dwell_engine::{Request, Running, ServerBuilder};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::raise;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Client, End, PATIENCE, get, serve, until};

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(600);

/// A server with a client that is idle and one that waits for its answer.
fn occupied(
    options: impl FnOnce(ServerBuilder) -> ServerBuilder,
) -> (Running, Client, Client, Receiver<Responder>) {
    let (to, responders) = channel();
    let to = Mutex::new(to);
    let handler =
        move |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| match request.head.path {
            "/" => exchange.text(200, "at once"),
            _ => to.lock().unwrap().send(exchange.responder()).unwrap(),
        };
    let running = serve(|all| options(all).answer_timeout(PATIENCE), handler);
    let (mut idle, mut waiting) = (Client::connect(&running), Client::connect(&running));
    assert_eq!(idle.get("/").status, 200);
    waiting.send(get("/later"));
    until(&running, |figures| figures.in_flight == 1);
    (running, idle, waiting, responders)
}

#[test]
fn a_signal_ends_in_order_a_second_at_once_and_only_where_that_is_asked_for() {
    // The process handles both itself, so neither ever has its default action.
    let handled = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&handled)).unwrap();
    signal_hook::flag::register(SIGINT, Arc::clone(&handled)).unwrap();

    let (running, mut idle, mut waiting, responders) = occupied(|options| options);
    raise(SIGTERM).unwrap();
    assert!(handled.load(Ordering::SeqCst));
    let responder = responders.recv().unwrap();
    responder.send(Answer::text(200, "left alone")).unwrap();
    assert_eq!(waiting.answer().field("connection"), None);
    assert_eq!(idle.get("/").status, 200);
    drop(running);

    for signal in [SIGTERM, SIGINT] {
        let (running, mut idle, mut waiting, responders) =
            occupied(|options| options.shutdown_on_signals(LONG));
        raise(signal).unwrap();
        assert_eq!(idle.end(), End::InOrder);
        let responder = responders.recv().unwrap();
        responder.send(Answer::text(200, "the last")).unwrap();
        assert_eq!(waiting.answer().field("connection"), Some("close"));
        waiting.finish_sending();
        let shutdown = running.wait();
        assert_eq!((shutdown.cut_connections, shutdown.cut_requests), (0, 0));
    }

    // Whichever loop the clients are on: the one that hears signals stays as long as any.
    for _ in 0..10 {
        let (running, mut idle, mut waiting, _responders) =
            occupied(|options| options.pollers(2).shutdown_on_signals(LONG));
        raise(SIGINT).unwrap();
        assert_eq!(idle.end(), End::InOrder);
        raise(SIGTERM).unwrap();
        let shutdown = running.wait();
        assert_eq!((shutdown.cut_connections, shutdown.cut_requests), (1, 1));
        assert!(waiting.try_answer_to("GET").is_err());
    }
}
