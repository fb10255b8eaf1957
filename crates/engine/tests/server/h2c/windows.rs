//! Windows: nothing is sent, and nothing taken, beyond them.

use super::client::{Got, Peer, acknowledgement, data, preface, request, window};
use super::{BIG_BYTES, peer, site};
use dwell_engine::handler::Answer;
use dwell_proto::http2::ErrorCode;
use std::time::Duration;

#[test]
fn a_closed_window_holds_one_stream_alone() {
    let (running, _site) = site(|builder| builder);
    let mut peer = Peer::silent(&running);
    peer.send(preface(0)).send(request(1, "GET", "/big", true));
    peer.until(|got| matches!(got, Got::Head { stream: 1, .. }));
    peer.send(request(3, "HEAD", "/", true));
    // Nothing of the first one comes before it.
    let got = peer.until(|got| matches!(got, Got::Head { .. } | Got::Data { .. }));
    assert!(matches!(got, Got::Head { stream: 3, .. }), "{got:?}");
    peer.send(window(1, 10));
    let got = peer.until(|got| matches!(got, Got::Data { .. }));
    assert!(matches!(got, Got::Data { stream: 1, data, ends: false } if data.len() == 10));
    peer.send(window(1, 1 << 20)).send(window(0, 1 << 20));
    assert_eq!(peer.answer(1).1.len(), BIG_BYTES - 10);
}

#[test]
fn a_writer_that_finds_no_room_leaves_the_loop_alone() {
    let (running, site) = site(|builder| builder.pollers(1));
    let mut peer = Peer::silent(&running);
    peer.send(preface(0)).send(request(1, "GET", "/fill", true));
    peer.until(|got| matches!(got, Got::Head { stream: 1, .. }));
    let mut other = Peer::connect(&running);
    for number in 0..50 {
        let stream = 2 * number + 1;
        other.send(request(stream, "GET", "/", true));
        assert_eq!(other.answer(stream).0, "200");
    }
    let wakes = running.statistics().wake_ups;
    assert!(wakes < 20, "the loop has looked {wakes} times");
    // What waits comes as the windows open, all of it.
    let writer = site.writers.lock().unwrap().pop().unwrap();
    assert!(writer.finish(Vec::new()).is_ok());
    peer.send(window(1, 1 << 30)).send(window(0, 1 << 30));
    let length = peer.answer(1).1.len();
    assert!(
        length > 500_000 && length.is_multiple_of(10_000),
        "{length}"
    );
}

#[test]
fn a_client_that_takes_nothing_loses_its_stream() {
    let (running, _site) = site(|builder| builder.write_timeout(Duration::from_millis(50)));
    let mut peer = Peer::silent(&running);
    peer.send(preface(0)).send(request(1, "GET", "/big", true));
    assert_eq!(peer.reset(1), ErrorCode::CANCEL);
    peer.send(request(3, "HEAD", "/", true));
    assert_eq!(peer.answer(3).0, "200");
    assert_eq!(running.statistics().write_timeouts, 1);
}

#[test]
fn large_bodies_come_as_their_windows_open() {
    let (_running, _site, mut peer) = peer(|builder| builder);
    let body = vec![b'u'; 500_000];
    let mut all = 65_535;
    peer.send(acknowledgement());
    for (stream, method) in [(1, "POST"), (3, "PUT")] {
        // The window that the server has announced; another one is the connection's.
        let mut own = 16_384;
        peer.send(window(0, 1 << 20));
        peer.send(request(stream, method, "/", false));
        peer.send(window(stream, 1 << 20));
        let mut sent = 0;
        while sent < body.len() {
            let room = own.min(all).min(16_384);
            if room > 0 {
                let end = body.len().min(sent + room);
                peer.send(data(stream, &body[sent..end], end == body.len()));
                own -= end - sent;
                all -= end - sent;
                sent = end;
                continue;
            }
            match peer.next().expect("the connection is open") {
                Got::Window(0, more) => all += more as usize,
                Got::Window(number, more) if number == stream => own += more as usize,
                _ => {}
            }
        }
        let (status, answer) = peer.answer(stream);
        assert_eq!(status, "200");
        let expected = if method == "PUT" { 10 } else { body.len() };
        assert!(
            answer.len().abs_diff(expected) < 3,
            "{} bytes",
            answer.len()
        );
    }
}

#[test]
fn bodies_whose_readers_have_left_hold_up_no_other() {
    const WINDOW: usize = 16_384;
    let (_running, site, mut peer) = peer(|builder| builder.max_body_bytes(1 << 20));
    peer.send(acknowledgement());
    for stream in (1..41).step_by(2) {
        peer.send(request(stream, "PUT", "/left", false));
        peer.until(|got| matches!(got, Got::Window(number, _) if *number == stream));
        for _ in 0..5 {
            peer.send(data(stream, &[b'l'; WINDOW], false));
        }
    }
    // Six times the window of the connection, of which nearly all is given back.
    peer.send(request(41, "PUT", "/", false));
    peer.send(data(41, &[b'r'; WINDOW], true));
    let (status, text) = peer.answer(41);
    assert_eq!((status.as_str(), &text[..]), ("200", &b"Ok(16384) 0"[..]));
    for (place, (mut body, responder)) in site.bodies.lock().unwrap().drain(..).enumerate() {
        let stream = 2 * place as u32 + 1;
        peer.send(data(stream, b"", true));
        let whole = body.read_all(1 << 20).map(|bytes| bytes.len());
        assert_eq!(whole, Ok(5 * WINDOW));
        responder.send(Answer::text(200, "read")).unwrap();
        assert_eq!(peer.answer(stream).1, b"read");
    }
}

#[test]
fn what_goes_beyond_a_window_is_refused() {
    let (running, site) = site(|builder| builder);
    let mut peer = Peer::connect(&running);
    peer.send(acknowledgement());
    peer.send(request(1, "PUT", "/later", false));
    peer.send(data(1, &[0; 16_384], false));
    let waiting = site.waiting(1);
    peer.send(data(1, &[0; 1], false));
    assert_eq!(peer.reset(1), ErrorCode::FLOW_CONTROL_ERROR);
    peer.send(request(3, "GET", "/", true));
    assert_eq!(peer.answer(3).0, "200");
    assert!(waiting[0].is_cancelled());
}

#[test]
fn a_client_that_does_not_know_the_settings_sends_a_first_window() {
    for (method, later) in [("POST", "/"), ("PUT", "/"), ("PUT", "/later")] {
        let (running, site) = site(|builder| builder);
        let mut peer = Peer::connect(&running);
        peer.send(request(1, method, later, false));
        peer.send(window(0, 1 << 20)).send(window(1, 1 << 20));
        for size in [16_384, 16_384, 16_384, 16_383] {
            peer.send(data(1, &vec![b'u'; size], false));
        }
        if later == "/later" {
            let waiting = site.waiting(1);
            // All that it could send is here, and it knows now that it was too much.
            peer.send(acknowledgement()).send(data(1, b"u", true));
            assert_eq!(peer.reset(1), ErrorCode::FLOW_CONTROL_ERROR);
            assert!(waiting[0].is_cancelled());
            continue;
        }
        peer.send(acknowledgement());
        // What it has sent too much is in the first increment.
        let mut window = 16_384 - 65_535;
        while window <= 0 {
            let got = peer.until(|got| matches!(got, Got::Window(1, _)));
            let Got::Window(_, more) = got else { continue };
            window += more.cast_signed();
        }
        peer.send(data(1, b"u", true));
        assert_eq!(peer.answer(1).0, "200");
    }
}

#[test]
fn no_refusal_of_a_head_has_a_body() {
    let (_running, _site, mut peer) = peer(|builder| builder);
    let long = format!("/{}", "x".repeat(10_000));
    let longer = format!("/{}", "x".repeat(40_000));
    for (stream, method, path, expected) in [
        (1, "HEAD", &long, "414"),
        (3, "GET", &long, "414"),
        (5, "HEAD", &longer, "431"),
        (7, "GET", &longer, "431"),
    ] {
        peer.send(request(stream, method, path, true));
        let (status, body) = peer.answer(stream);
        let got = (status.as_str(), body.is_empty());
        assert_eq!(got, (expected, method == "HEAD"));
    }
}
