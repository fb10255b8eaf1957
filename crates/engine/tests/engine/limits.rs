//! What the component refuses to be made with, and what it counts.

use crate::support::{Fixture, get, rejected};
use dwell_engine::{Http, HttpEvent, Kinds, Limits};
use dwell_evloop::INPUT_BYTES;
use dwell_proto::http1::HeadLimits;

#[test]
#[should_panic(expected = "a head must fit the input buffer")]
fn a_head_must_fit_the_input_buffer() {
    let kinds = Kinds {
        listener: 1,
        connection: 2,
    };
    let head = HeadLimits {
        head_bytes_max: INPUT_BYTES,
        ..HeadLimits::default()
    };
    let limits = Limits {
        head,
        ..Limits::default()
    };
    let _ = Http::new(kinds, limits);
}

#[test]
fn a_head_as_large_as_allowed_is_served_in_any_pieces() {
    let head = HeadLimits {
        head_bytes_max: INPUT_BYTES - 1,
        ..HeadLimits::default()
    };
    let mut fixture = Fixture::new(Limits {
        head,
        ..Limits::default()
    });
    let start = "GET /a HTTP/1.1\r\nHost: a\r\nX: ";
    let padding = head.head_bytes_max - start.len() - "\r\n\r\n".len();
    let largest = format!("{start}{}\r\n\r\n", "x".repeat(padding));
    let mut client = fixture.connect();
    assert_eq!(fixture.ask(&mut client, &largest).text(), "GET /a []");
    let (front, back) = largest.split_at(40_000);
    fixture.send(&mut client, front);
    assert_eq!(
        fixture
            .ask(&mut client, &(back.to_owned() + &get("/b")))
            .text(),
        "GET /a []"
    );
    assert_eq!(fixture.answer(&mut client).text(), "GET /b []");
    let larger = largest.replace("X: x", "X: xx");
    assert_eq!(fixture.ask(&mut client, &larger).status, 431);
}

#[test]
fn what_happens_is_told() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    fixture.ask(&mut client, &get("/"));
    fixture.ask(&mut client, "nonsense\r\n\r\n");
    assert_eq!(
        fixture.server.app.events,
        [HttpEvent::Accepted, rejected(400)]
    );
}
