//! Clients that cause more work than they should.

use super::client::{Got, Peer, data, head, request, window};
use super::{peer, site};
use dwell_proto::http2::{ErrorCode, encode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Sends `frame` very often, and expects the end of the connection.
fn floods(opening: &[u8], frame: &[u8], code: ErrorCode) {
    let (_running, _site, mut peer) = peer(|builder| builder);
    peer.send(opening);
    for _ in 0..100 {
        peer.send(frame.repeat(100));
    }
    assert_eq!(peer.go_away(), code);
}

#[test]
fn floods_of_frames_that_ask_for_nothing() {
    let mut frame = Vec::new();
    encode::ping([7; 8], &mut frame);
    floods(&[], &frame, ErrorCode::ENHANCE_YOUR_CALM);
    frame.clear();
    encode::settings(&[], &mut frame);
    floods(&[], &frame, ErrorCode::ENHANCE_YOUR_CALM);
    // A type that is not known, and a priority.
    floods(&[], b"\0\0\0\x77\0\0\0\0\0", ErrorCode::ENHANCE_YOUR_CALM);
    let priority = b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\x01";
    floods(&[], priority, ErrorCode::ENHANCE_YOUR_CALM);
    let opening = request(1, "PUT", "/", false);
    floods(&opening, &data(1, b"", false), ErrorCode::ENHANCE_YOUR_CALM);
    let opening = request(1, "GET", "/later", true);
    floods(&opening, &window(1, 1), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn floods_on_a_stream_that_was_reset() {
    // The server is made to reset it, and what is on its way is decoded or dropped.
    let opening = [request(1, "POST", "/", false), window(1, 0)].concat();
    let trailers = head(1, &[("x", "y")], true);
    floods(&opening, &trailers, ErrorCode::ENHANCE_YOUR_CALM);
    for frame in [data(1, b"1", false), data(1, b"", true)] {
        floods(&opening, &frame, ErrorCode::ENHANCE_YOUR_CALM);
    }
}

#[test]
fn windows_that_are_opened_for_nothing() {
    for path in ["/", "/later"] {
        let opening = request(1, "GET", path, true);
        floods(&opening, &window(1, 1024), ErrorCode::ENHANCE_YOUR_CALM);
        floods(&opening, &window(0, 1024), ErrorCode::ENHANCE_YOUR_CALM);
    }
}

#[test]
fn windows_are_given_back_in_small_steps_as_late_as_it_may_be() {
    let (_running, _site, mut peer) = peer(|builder| builder);
    let streams = || (0..20).map(|number| 2 * number + 1);
    peer.send(window(0, 1 << 24));
    for stream in streams() {
        peer.send(request(stream, "GET", "/big", true));
        peer.send(window(stream, 1 << 20));
        assert_eq!(peer.answer(stream).1.len(), super::BIG_BYTES);
    }
    // All of it is out.
    for stream in streams() {
        let pair = [window(stream, 1024), window(0, 1024)].concat();
        peer.send(pair.repeat(super::BIG_BYTES / 1024));
    }
    peer.send(request(99, "GET", "/", true));
    assert_eq!(peer.answer(99).0, "200");
}

#[test]
fn rapid_resets_of_either_side() {
    let (_running, _site, mut peer) = peer(|builder| builder);
    for number in 0..300 {
        let stream = 2 * number + 1;
        peer.send(request(stream, "GET", "/later", true));
        let mut reset = Vec::new();
        encode::reset(stream, ErrorCode::CANCEL, &mut reset);
        peer.send(reset);
    }
    assert_eq!(peer.go_away(), ErrorCode::ENHANCE_YOUR_CALM);
    // The server is made to reset them.
    let (_running, _site, mut peer) = super::peer(|builder| builder);
    for number in 0..300 {
        let stream = 2 * number + 1;
        peer.send(request(stream, "GET", "/later", true));
        peer.send(window(stream, (1 << 31) - 1));
    }
    assert_eq!(peer.go_away(), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn streams_beyond_the_bound_are_refused() {
    let (_running, site, mut peer) = peer(|builder| builder);
    for number in 0..129 {
        peer.send(request(2 * number + 1, "GET", "/later", true));
    }
    assert_eq!(peer.reset(257), ErrorCode::REFUSED_STREAM);
    let mut waiting = site.waiting(128);
    waiting.pop().unwrap().abort();
    peer.until(|got| matches!(got, Got::Reset(255, _)));
    peer.send(request(259, "GET", "/", true));
    assert_eq!(peer.answer(259).0, "200");
}

/// Sends so many requests that are reset at once, and then one more; returns how that ends.
fn reset_at_once(peer: &mut Peer, count: u32, path: &str) -> Option<ErrorCode> {
    let last = 2 * count + 1;
    for number in 0..count {
        let mut pair = request(2 * number + 1, "GET", path, true);
        encode::reset(2 * number + 1, ErrorCode::CANCEL, &mut pair);
        peer.send(pair);
    }
    peer.send(request(last, "GET", "/", true));
    loop {
        match peer.next() {
            Some(Got::Reset(stream, code)) if stream == last => return Some(code),
            Some(Got::GoAway(_, code)) => return Some(code),
            Some(Got::Head { stream, .. }) if stream == last => return None,
            Some(_) => {}
            None => panic!("the connection ends without a word"),
        }
    }
}

#[test]
fn work_of_requests_that_were_reset_counts_until_it_has_ended() {
    let (running, site, mut peer) = peer(|builder| builder.workers(2));
    let slowness = Arc::clone(&site.slowness);
    let slow = slowness.lock().unwrap();
    let refused = reset_at_once(&mut peer, 128, "/slow");
    assert_eq!(refused, Some(ErrorCode::REFUSED_STREAM));
    assert_eq!(site.slow.load(Ordering::Relaxed), 128);
    drop(slow);
    // When a later job is done, one of the two workers has an earlier one at most.
    let mut other = Peer::connect(&running);
    other.send(request(1, "GET", "/slow", true));
    assert_eq!(other.answer(1).0, "200");
    peer.send(request(259, "GET", "/", true));
    assert_eq!(peer.answer(259).0, "200");
}

#[test]
fn ten_thousand_requests_that_are_reset_leave_little_work() {
    let (running, site) = site(|builder| builder.workers(2).worker_queue(100));
    let slowness = Arc::clone(&site.slowness);
    let slow = slowness.lock().unwrap();
    for _ in 0..40 {
        let mut peer = Peer::connect(&running);
        let end = reset_at_once(&mut peer, 250, "/slow");
        assert_eq!(end, Some(ErrorCode::ENHANCE_YOUR_CALM));
    }
    // Others are served meanwhile, but for what needs a worker.
    let mut other = Peer::connect(&running);
    other.send(request(1, "GET", "/", true));
    assert_eq!(other.answer(1).0, "200");
    other.send(request(3, "GET", "/slow", true));
    assert_eq!(other.answer(3).0, "503");
    let asked = site.slow.load(Ordering::Relaxed);
    assert!(asked <= 40 * 201 + 1, "{asked} requests were handed over");
    let refused = running.statistics().jobs_refused as usize;
    assert_eq!(asked - refused, 102, "two at work and a hundred that wait");
    drop(slow);
}

#[test]
fn a_block_without_an_end() {
    let timeout = Duration::from_millis(50);
    let (_running, _site, mut peer) = peer(|builder| builder.header_timeout(timeout));
    // HEADERS without END_HEADERS, behind a request that is held.
    peer.send(request(1, "GET", "/later", true));
    peer.send(b"\0\0\x01\x01\x01\0\0\0\x03\x82");
    assert_eq!(peer.go_away(), ErrorCode::ENHANCE_YOUR_CALM);
    let (_running, _site, mut peer) = super::peer(|builder| builder);
    peer.send(b"\0\0\x01\x01\x01\0\0\0\x03\x82");
    peer.send(b"\0\0\x00\x09\0\0\0\0\x03".repeat(20));
    assert_eq!(peer.go_away(), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn fields_are_counted_however_little_they_take() {
    let (_running, _site, mut peer) = peer(|builder| builder);
    // One byte each: `:method GET` is no field behind others, `accept-encoding gzip, deflate` is.
    let get = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
    ];
    let mut frame = head(1, &get, true);
    let length = frame.len() - 9 + 2000;
    frame[..3].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
    frame.extend_from_slice(&[0x90; 2000]);
    peer.send(frame);
    assert_eq!(peer.answer(1).0, "431");
}

#[test]
fn clients_that_ask_nothing_are_closed() {
    let timeout = Duration::from_millis(50);
    let (_running, _site, mut peer) = peer(|builder| builder.keep_alive_timeout(timeout));
    assert_eq!(peer.go_away(), ErrorCode::NO_ERROR);
}
