//! A closure as an app, alone on its loop.

use crate::support::get;
use dwell_engine::{Body, HttpDriver, Limits, Outcome, Reply, Request, Response};
use dwell_evloop::{Context, EventLoop};
use dwell_testkit::{ask, beside};
use std::time::Duration;

/// Holds every request for one tick; `/stream` with an answer that is open.
fn hold(_: &mut Context, request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
    if request.head.path == "/stream" {
        reply.send(&Response {
            status: 200,
            fields: &[],
            body: Body::Stream(None),
        });
    }
    Outcome::Held {
        tag: 0,
        timeout: Some(Duration::from_millis(10)),
    }
}

/// All that a client reads until the server closes.
fn answer_of(request: &str) -> String {
    let mut event_loop = EventLoop::new().unwrap();
    let mut driver = HttpDriver::new(Limits::default(), hold);
    let any = ([127, 0, 0, 1], 0).into();
    let address = driver.listen(event_loop.context(), any).unwrap();
    assert_ne!(address.port(), 0);
    beside(
        || ask(address, request),
        || {
            let patience = Duration::from_millis(10);
            event_loop.turn(&mut driver, Some(patience)).unwrap();
        },
    )
}

#[test]
fn what_it_holds_for_too_long_gets_503() {
    let answer = answer_of("GET / HTTP/1.0\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
        "{answer}"
    );
}

#[test]
fn a_streaming_answer_that_it_holds_for_too_long_is_cut_off() {
    let answer = answer_of(&get("/stream"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
}
