//! Bodies on streams: what is kept of those that nobody reads, and what goes on beside them.

use super::peer::{Peer, WIDE, data, fixture, head, pass, request};
use crate::support::{Fixture, rejected};
use dwell_engine::{Budget, Limits};
use dwell_evloop::sim::SimNet;
use dwell_proto::http2::{ErrorCode, encode};
use std::time::Duration;

/// The window of a stream.
const WINDOW_BYTES: usize = 16 * 1024;
const TURN: Duration = Duration::from_millis(1);

/// A client that has taken in the settings of its server.
fn settled(network: &SimNet, fixture: &mut Fixture) -> Peer {
    let mut peer = Peer::connect(network, fixture, WIDE, WIDE);
    let mut acknowledged = Vec::new();
    encode::settings_ack(&mut acknowledged);
    peer.send(acknowledged);
    pass(network, fixture, TURN);
    peer
}

/// The head of a request on the first stream, with the length of its body.
fn announced(path: &str, length: &str) -> Vec<u8> {
    let lines = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
        ("content-length", length),
    ];
    head(1, &lines, false)
}

/// Begins a body that its app does not read, and fills the window of its stream.
fn unread(peer: &mut Peer, stream: u32) {
    peer.send(request(stream, "PUT", "/upload", false));
    peer.send(data(stream, &[b'u'; WINDOW_BYTES], false));
}

#[test]
fn a_body_that_nobody_reads_holds_up_its_own_stream_alone() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits::default());
    let kept = Budget::default();
    fixture.server.http.share_gathered(kept.clone());
    let mut peer = settled(&network, &mut fixture);
    for stream in (1..41).step_by(2) {
        unread(&mut peer, stream);
        pass(&network, &mut fixture, TURN);
    }
    peer.receive();
    // More than the window of the connection, nearly all of which was given back.
    assert_eq!((peer.go_away, kept.bytes()), (None, 20 * WINDOW_BYTES));
    assert!(peer.granted[&0] as usize >= 19 * WINDOW_BYTES);
    assert!((1..41).all(|stream| !peer.granted.contains_key(&stream)));
    peer.send(request(99, "PUT", "/upload?grant=16384", false));
    for _ in 0..40 {
        peer.send(data(99, &[b'r'; 10_000], false));
        pass(&network, &mut fixture, TURN);
    }
    assert_eq!(fixture.server.app.uploaded.len(), 400_000);
    // One that sends more than its window ends its own stream, too.
    peer.send(data(1, b"more", false));
    peer.send(data(99, b"", true));
    let answer = peer.answer(&mut fixture, 99);
    assert_eq!((answer.status.as_str(), peer.go_away), ("200", None));
    let reset = peer.answers[&1].reset;
    assert_eq!(reset, Some(ErrorCode::FLOW_CONTROL_ERROR));
    assert_eq!(kept.bytes(), 19 * WINDOW_BYTES);
}

#[test]
fn many_bodies_that_nobody_reads_are_bounded_for_all_and_give_way() {
    let network = SimNet::new(1);
    let bytes_max = 4 << 20;
    let mut fixture = fixture(Limits {
        gathered_bytes_max: bytes_max,
        ..Limits::default()
    });
    let kept = Budget::default();
    fixture.server.http.share_gathered(kept.clone());
    let mut attackers: Vec<_> = (0..20).map(|_| settled(&network, &mut fixture)).collect();
    for stream in (1..201).step_by(2) {
        for peer in &mut attackers {
            unread(peer, stream);
        }
        pass(&network, &mut fixture, TURN);
        assert!(kept.bytes() <= bytes_max, "{}", kept.bytes());
    }
    assert!(kept.bytes() > bytes_max - WINDOW_BYTES);
    // Eight times as much was sent, and what there is no room for is refused.
    let refused = fixture.server.app.count(rejected(503));
    assert_eq!(refused, 20 * 100 - kept.bytes() / WINDOW_BYTES);
    // A body that is read goes on beside them, and so do other requests.
    for (place, peer) in attackers.iter_mut().enumerate() {
        peer.send(request(201, "PUT", "/upload?grant=16384", false));
        for _ in 0..4 {
            peer.send(data(201, &[b'r'; WINDOW_BYTES], false));
            pass(&network, &mut fixture, TURN);
        }
        assert_eq!(
            fixture.server.app.uploaded.len(),
            (place + 1) * 4 * WINDOW_BYTES
        );
        peer.send(request(203, "GET", "/", true));
        assert_eq!(peer.answer(&mut fixture, 203).status, "200");
        assert_eq!(peer.go_away, None);
    }
    // Those that were left for seconds give way to what is gathered.
    pass(&network, &mut fixture, Duration::from_secs(5));
    let mut other = settled(&network, &mut fixture);
    other.send(request(1, "POST", "/", false));
    other.send(data(1, b"gathered", true));
    assert_eq!(other.answer(&mut fixture, 1).status, "200");
    assert!(kept.bytes() <= bytes_max - bytes_max / 4);
    let is_shed = |peer: &mut Peer| {
        peer.receive();
        let mut answers = peer.answers.values();
        answers.any(|answer| answer.reset == Some(ErrorCode::ENHANCE_YOUR_CALM))
    };
    assert!(is_shed(&mut attackers[0]));
    drop(attackers);
    pass(&network, &mut fixture, Duration::from_secs(1));
    assert_eq!(kept.bytes(), 0);
}

#[test]
fn a_body_that_is_gathered_does_not_stay_young_by_dripping() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits {
        gathered_bytes_max: 10_000,
        // An eighth of it is what a body has in any case.
        body_timeout: Duration::from_secs(16),
        ..Limits::default()
    });
    let mut slow = settled(&network, &mut fixture);
    slow.send(announced("/", "9000"));
    slow.send(data(1, &[b's'; 8900], false));
    for _ in 0..3 {
        pass(&network, &mut fixture, Duration::from_secs(1));
        slow.send(data(1, b"s", false));
    }
    let mut other = settled(&network, &mut fixture);
    pass(&network, &mut fixture, TURN);
    other.send(request(1, "POST", "/", false));
    other.send(data(1, &[b'o'; 1000], true));
    assert_eq!(other.answer(&mut fixture, 1).status, "200");
    assert_eq!(slow.answer(&mut fixture, 1).status, "503");
}

#[test]
fn a_body_of_which_the_beginning_is_gathered_is_handed_over_whole() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits::default());
    let mut peer = settled(&network, &mut fixture);
    peer.send(announced("/gather?first=7&grant=50", "20"));
    // All that was announced comes at once, and its end by itself.
    peer.send(data(1, b"twenty bytes of text", false));
    pass(&network, &mut fixture, TURN);
    peer.send(data(1, b"", true));
    assert_eq!(peer.answer(&mut fixture, 1).body, b"20 bytes");
    assert_eq!(fixture.server.app.uploaded, b"twenty bytes of text");
}

#[test]
fn what_comes_ahead_of_a_reader_is_counted_until_it_waits() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits::default());
    let kept = Budget::default();
    fixture.server.http.share_gathered(kept.clone());
    let mut peer = settled(&network, &mut fixture);
    peer.send(request(
        1,
        "PUT",
        "/upload?grant=50000&once=1&idle=1",
        false,
    ));
    pass(&network, &mut fixture, TURN);
    // The first bytes are waited for, and no others until their reader waits again.
    for come in [10_000, 20_000, 30_000] {
        peer.send(data(1, &[b'a'; 10_000], false));
        pass(&network, &mut fixture, TURN);
        assert_eq!(fixture.server.app.uploaded.len(), 10_000);
        assert_eq!(kept.bytes(), come - 10_000);
    }
    fixture.reply(0, |reply| reply.await_body(true));
    pass(&network, &mut fixture, TURN);
    assert_eq!(
        (fixture.server.app.uploaded.len(), kept.bytes()),
        (30_000, 0)
    );
    // The client may send what was granted, and the window behind it.
    for _ in 0..3 {
        peer.send(data(1, &[b'a'; 12_000], false));
    }
    pass(&network, &mut fixture, TURN);
    peer.receive();
    assert_eq!((peer.answers.len(), kept.bytes()), (0, 36_000));
    peer.send(data(1, &[b'a'; 400], false));
    let answer = peer.answer(&mut fixture, 1);
    assert_eq!(
        (answer.reset, kept.bytes()),
        (Some(ErrorCode::FLOW_CONTROL_ERROR), 0)
    );
}
