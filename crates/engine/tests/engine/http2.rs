//! Connections of HTTP/2, in simulated time.

mod cuts;
mod held;
mod peer;
mod sockets;
mod uploads;

use crate::support::{Fixture, Server, rejected};
use bytes::Bytes;
use dwell_engine::{Budget, CodeCounts, HttpEvent, Limits};
use dwell_evloop::Token;
use dwell_evloop::sim::SimNet;
use dwell_proto::http2::{ErrorCode, encode};
use dwell_testkit::Rig;
use peer::{Peer, WIDE, data, fixture, head, pass, request, reset, window};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(3600);

fn limits() -> Limits {
    Limits {
        header_timeout: LONG,
        body_timeout: LONG,
        idle_timeout: LONG,
        write_timeout: LONG,
        ..Limits::default()
    }
}

#[test]
fn the_time_of_an_idle_connection_begins_with_its_last_answer() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits {
        idle_timeout: TIMEOUT,
        ..limits()
    });
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    for stream in [1, 3, 5, 7] {
        peer.send(request(stream, "GET", "/", true));
        assert_eq!(peer.answer(&mut fixture, stream).status, "200");
        pass(&network, &mut fixture, TIMEOUT * 3 / 4);
        peer.receive();
        assert_eq!(peer.go_away, None, "behind stream {stream}");
    }
    pass(&network, &mut fixture, TIMEOUT);
    peer.receive();
    assert_eq!(peer.go_away, Some(ErrorCode::NO_ERROR));
}

#[test]
fn each_field_block_has_a_time_of_its_own() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits {
        header_timeout: TIMEOUT,
        ..limits()
    });
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    let mut rest = Vec::new();
    for stream in [1, 3, 5] {
        // One block ends and the next one begins in the same turn, so that one is always open.
        let whole = request(stream, "GET", "/", true);
        let (begun, left) = whole.split_at(whole.len() - 1);
        rest.extend_from_slice(begun);
        peer.send(std::mem::replace(&mut rest, left.to_vec()));
        pass(&network, &mut fixture, TIMEOUT * 3 / 4);
        assert!(peer.receive(), "the block of stream {stream} is cut off");
    }
    assert!(peer.has_all_of(3), "{:?}", peer.answers);
    // More bytes of the same block give it no more time.
    pass(&network, &mut fixture, TIMEOUT / 2);
    peer.receive();
    assert_eq!(peer.go_away, Some(ErrorCode::ENHANCE_YOUR_CALM));
}

#[test]
fn a_reader_that_takes_a_turn_at_a_time_has_all_the_time_it_takes() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits {
        write_timeout: TIMEOUT,
        ..limits()
    });
    fixture.server.app.large = Bytes::from(vec![b'l'; 250_000]);
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    peer.socket.set_window(100_000);
    let streams = (1..16).step_by(2);
    for stream in streams.clone() {
        peer.send(request(stream, "GET", "/large", true));
    }
    let begun = network.elapsed();
    let is_out = |peer: &Peer| streams.clone().all(|stream| peer.has_all_of(stream));
    while !is_out(&peer) {
        pass(&network, &mut fixture, TIMEOUT / 5);
        // What waits goes out, and what is written at once behind it waits in its place.
        assert!(peer.receive_little(64 * 1024), "it is cut off");
    }
    assert!(network.elapsed() > begun + 5 * TIMEOUT);
    // One that takes nothing more is cut off.
    peer.send(request(17, "GET", "/large", true));
    pass(&network, &mut fixture, 3 * TIMEOUT);
    assert_eq!(fixture.server.app.count(HttpEvent::WriteTimeout), 1);
}

#[test]
fn a_piece_for_a_closed_window_has_the_time_of_a_write() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits {
        write_timeout: TIMEOUT,
        ..limits()
    });
    let mut peer = Peer::connect(&network, &fixture, 0, WIDE);
    for (tag, stream) in [(0, 1), (1, 3)] {
        // Their heads are out before there is anything for the window.
        peer.send(request(stream, "GET", "/stream", true));
        pass(&network, &mut fixture, TIMEOUT);
        peer.receive();
        assert_eq!(peer.answers[&stream].status, "200");
        fixture.reply(tag, |reply| reply.write(b"piece").unwrap());
    }
    assert_eq!(peer.answers[&1].reset, None);
    // The second one is complete, and is not waited for any longer than the other.
    fixture.reply(1, |reply| reply.finish(&[]).unwrap());
    for stream in [1, 3] {
        let answer = peer.answer(&mut fixture, stream);
        assert_eq!(answer.reset, Some(ErrorCode::CANCEL), "stream {stream}");
    }
    assert_eq!(fixture.server.app.abandoned, [0]);
}

#[test]
fn a_closed_window_has_ten_seconds_and_less_where_the_server_ends() {
    let network = SimNet::new(1);
    let mut fixture = fixture(limits());
    fixture.server.app.large = Bytes::from(vec![b'l'; 60_000]);
    let mut peer = Peer::connect(&network, &fixture, 1000, WIDE);
    peer.send(request(1, "GET", "/large", true));
    for _ in 0..5 {
        // Six thousand bytes in nine seconds are enough.
        pass(&network, &mut fixture, Duration::from_secs(9));
        peer.send(window(1, 6000));
    }
    pass(&network, &mut fixture, Duration::from_secs(9));
    peer.send(window(1, 4000));
    pass(&network, &mut fixture, Duration::from_secs(9));
    peer.receive();
    assert_eq!(
        peer.answers[&1].reset,
        Some(ErrorCode::CANCEL),
        "4000 are not"
    );
    assert_eq!(fixture.server.app.count(HttpEvent::WriteTimeout), 1);
    for stream in [3, 5] {
        peer.send(request(stream, "GET", "/large", true));
    }
    pass(&network, &mut fixture, Duration::from_secs(5));
    let begun = network.elapsed();
    let Fixture {
        server, event_loop, ..
    } = &mut fixture;
    server.http.drain(event_loop.context(), &mut server.app);
    peer.send(window(5, 60_000));
    let answer = peer.answer(&mut fixture, 3);
    assert_eq!(answer.reset, Some(ErrorCode::CANCEL));
    fixture.turn_for_client("the connection ends", || (!peer.receive()).then_some(()));
    assert!(network.elapsed() < begun + Duration::from_secs(5));
    assert_eq!(peer.answers[&5].body.len(), 60_000);
    assert_eq!(peer.go_away, Some(ErrorCode::NO_ERROR));
}

#[test]
fn what_comes_behind_a_hand_over_is_for_the_process_that_follows() {
    let network = SimNet::new(1);
    let mut fixture = fixture(limits());
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    peer.send(request(1, "GET", "/", true));
    assert_eq!(peer.answer(&mut fixture, 1).status, "200");
    let Fixture {
        server, event_loop, ..
    } = &mut fixture;
    let context = event_loop.context();
    let app = &mut server.app;
    server
        .http
        .hand_over(context, app, true, usize::MAX, |_, _| {});
    peer.send(request(3, "GET", "/", true));
    fixture.turn_for_client("the connection ends", || (!peer.receive()).then_some(()));
    assert_eq!(peer.go_away, Some(ErrorCode::NO_ERROR));
    assert!(!peer.answers.contains_key(&3), "{:?}", peer.answers);
}

#[test]
fn a_client_whose_output_waits_reads_at_its_end_why_it_was_closed() {
    let network = SimNet::new(1);
    let mut fixture = fixture(limits());
    fixture.server.app.large = Bytes::from(vec![b'l'; 500_000]);
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    let mut streams = (1..).step_by(2);
    for stream in streams.by_ref().take(100) {
        peer.send(request(stream, "GET", "/hold", true))
            .send(reset(stream));
    }
    for stream in streams.by_ref().take(110) {
        peer.send(request(stream, "GET", "/hold?ms=1000&then=close", true));
    }
    peer.send(request(streams.next().unwrap(), "GET", "/large", true));
    peer.socket.set_window(50_000);
    // The last of the resets is one too many, and the socket takes nothing then.
    pass(&network, &mut fixture, Duration::from_secs(2));
    fixture.turn_for_client("the connection ends", || (!peer.receive()).then_some(()));
    assert_eq!(peer.go_away, Some(ErrorCode::ENHANCE_YOUR_CALM));
}

#[test]
fn streams_share_a_narrow_connection_in_turns() {
    let network = SimNet::new(1);
    let mut fixture = fixture(limits());
    fixture.server.app.large = Bytes::from(vec![b'l'; 500_000]);
    let mut peer = Peer::connect(&network, &fixture, WIDE, 65_535);
    for stream in [1, 3, 5] {
        peer.send(request(stream, "GET", "/large", true));
    }
    for _ in 0..9 {
        pass(&network, &mut fixture, Duration::from_millis(10));
        peer.send(window(0, 16 * 1024));
    }
    pass(&network, &mut fixture, Duration::from_millis(10));
    peer.receive();
    for stream in [1, 3, 5] {
        let came = peer.answers[&stream].body.len();
        assert!(came >= 60_000, "stream {stream}: {came} bytes");
    }
}

#[test]
fn a_client_may_give_back_every_piece_at_once() {
    let network = SimNet::new(1);
    let mut fixture = fixture(limits());
    let mut peer = Peer::connect(&network, &fixture, 65_535, 65_535);
    peer.send(request(1, "GET", "/stream", true));
    pass(&network, &mut fixture, Duration::from_millis(1));
    for _ in 0..500 {
        fixture.reply(0, |reply| reply.write(b"piece").unwrap());
        pass(&network, &mut fixture, Duration::from_millis(1));
        peer.send(window(0, 5)).send(window(1, 5));
    }
    fixture.reply(0, |reply| reply.finish(&[]).unwrap());
    assert_eq!(peer.answer(&mut fixture, 1).body, b"piece".repeat(500));
    assert_eq!(peer.go_away, None);
}

#[test]
fn trailer_fields_that_wait_are_counted_with_the_bodies_of_all() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits {
        gathered_bytes_max: 20_000,
        ..limits()
    });
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    let long = "t".repeat(6_000);
    for stream in [1, 3, 5, 7] {
        // The app wants nothing of the body.
        peer.send(request(stream, "POST", "/upload?grant=0", false));
        peer.send(data(stream, b"b", false));
        peer.send(head(stream, &[("x", &long)], true));
    }
    assert_eq!(peer.answer(&mut fixture, 7).status, "503");
    // What goes gives its part back.
    peer.send(reset(1));
    peer.send(request(9, "POST", "/upload?grant=10", false));
    peer.send(data(9, b"b", false));
    peer.send(head(9, &[("x", &long)], true));
    assert_eq!(peer.answer(&mut fixture, 9).status, "200");
    assert!(!peer.answers.contains_key(&3));
}

#[test]
fn field_blocks_without_an_end_are_counted_with_the_bodies_of_all() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits {
        gathered_bytes_max: 100_000,
        ..limits()
    });
    let gathered = Budget::default();
    fixture.server.http.share_gathered(gathered.clone());
    // A field of 16,000 bytes, of which the last ones do not come.
    let mut block = head(1, &[(":method", "GET"), ("x", &"x".repeat(12_000))], true);
    let length = block.len() - 9 - 10;
    block.truncate(length + 9);
    block[..3].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
    block[4] &= !4;
    let mut peers: Vec<_> = (0..12)
        .map(|_| {
            let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
            peer.send(&block);
            peer
        })
        .collect();
    pass(&network, &mut fixture, Duration::from_millis(1));
    assert!(gathered.bytes() > 50_000, "{} bytes", gathered.bytes());
    assert!(gathered.bytes() <= 100_000);
    let refused = peers.iter_mut().filter_map(|peer| {
        peer.receive();
        peer.go_away
    });
    let refused: Vec<_> = refused.collect();
    assert!((1..12).contains(&refused.len()), "{refused:?}");
    assert_eq!(refused[0], ErrorCode::ENHANCE_YOUR_CALM);
    drop(peers);
    assert_eq!(fixture.connections_left(), 0);
    assert_eq!(gathered.bytes(), 0);
}

#[test]
fn requests_behind_the_end_are_few() {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits {
        requests_per_connection_max: 2,
        ..limits()
    });
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    peer.send(request(1, "GET", "/hold", true));
    peer.send(request(3, "GET", "/", true));
    // The client has had the time to read that the connection ends.
    pass(&network, &mut fixture, TIMEOUT);
    peer.receive();
    assert_eq!(peer.go_away, Some(ErrorCode::NO_ERROR));
    for number in 0..1000 {
        peer.send(request(5 + 2 * number, "GET", "/", true));
    }
    pass(&network, &mut fixture, TIMEOUT);
    peer.receive();
    assert_eq!(peer.go_away, Some(ErrorCode::ENHANCE_YOUR_CALM));
    assert_eq!(fixture.server.app.seen.len(), 2);
    assert_eq!(fixture.server.app.abandoned, [0]);
}

#[test]
fn figures_tell_what_connections_do_and_have_done() {
    let network = SimNet::new(1);
    let mut fixture = fixture(limits());
    fixture.server.app.streams_max = Some(3);
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    for stream in [1, 3, 5] {
        peer.send(request(stream, "GET", "/hold", true));
    }
    peer.send(request(7, "GET", "/", true)).send(reset(1));
    // An increment of nothing.
    peer.send(window(3, 0));
    let mut go_away = Vec::new();
    encode::go_away(0, ErrorCode(0x77), &mut go_away);
    peer.send(go_away);
    pass(&network, &mut fixture, Duration::from_millis(1));
    let figures = fixture.server.http.http2_figures().unwrap();
    assert_eq!((figures.connections, figures.streams_open), (1, 1));
    assert_eq!((figures.streams, figures.refused.app), (4, 1));
    let of = |counts: &CodeCounts, code: ErrorCode| {
        (counts.by_number()[code.0 as usize], counts.total())
    };
    assert_eq!(of(&figures.resets_received, ErrorCode::CANCEL), (1, 1));
    assert_eq!(of(&figures.resets_sent, ErrorCode::PROTOCOL_ERROR), (1, 1));
    assert_eq!(figures.go_aways_received.by_number().last(), Some(&1));
    assert_eq!(figures.go_aways_sent.total(), 0);
    // Streams that end with their connection are open no longer.
    let mut ping = Vec::new();
    encode::ping([0; 8], &mut ping);
    peer.send(ping.repeat(200));
    pass(&network, &mut fixture, Duration::from_millis(1));
    let figures = fixture.server.http.http2_figures().unwrap();
    assert_eq!((figures.connections, figures.streams_open), (0, 0));
    assert_eq!(
        of(&figures.go_aways_sent, ErrorCode::ENHANCE_YOUR_CALM),
        (1, 1)
    );
}

#[test]
fn a_stream_has_the_label_of_its_connection() {
    let network = SimNet::new(1);
    let mut fixture = fixture(limits());
    let listener = Token::new(Server::KINDS.listener, 0, 0);
    fixture.server.http.label(listener, 5);
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    peer.send(request(1, "GET", "/hold", true));
    pass(&network, &mut fixture, Duration::from_millis(1));
    let exchange = fixture.server.app.held[0].0;
    assert_eq!(fixture.server.http.listener_label(exchange), Some(5));
    let replied = fixture.reply(0, |reply| {
        reply.text(200, "held");
        reply.listener_label()
    });
    assert_eq!(replied, Some(5));
    assert_eq!(peer.answer(&mut fixture, 1).status, "200");
    fixture.server.app.streams_max = Some(0);
    peer.send(request(3, "GET", "/", true));
    assert_eq!(peer.answer(&mut fixture, 3).status, "429");
    let rejected = HttpEvent::Rejected {
        status: 429,
        listener: Some(5),
    };
    assert_eq!(fixture.server.app.count(rejected), 1);
}

#[test]
fn the_app_bounds_the_requests_of_a_connection() {
    let network = SimNet::new(1);
    let mut fixture = fixture(limits());
    fixture.server.app.streams_max = Some(2);
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    for stream in [1, 3] {
        peer.send(request(stream, "GET", "/hold", true));
    }
    for stream in [5, 7] {
        peer.send(request(stream, "POST", "/", false));
        assert_eq!(peer.answer(&mut fixture, stream).status, "429");
    }
    assert_eq!(fixture.server.app.count(rejected(429)), 2);
    assert_eq!(fixture.server.app.seen.len(), 2);
    // One that is answered, expires or is reset makes room for another.
    fixture.reply(0, |reply| reply.text(200, "answered"));
    assert_eq!(peer.answer(&mut fixture, 1).status, "200");
    peer.send(request(9, "GET", "/hold?ms=10", true));
    assert_eq!(peer.answer(&mut fixture, 9).status, "200");
    peer.send(reset(3));
    pass(&network, &mut fixture, Duration::from_millis(1));
    peer.send(request(11, "GET", "/hold", true));
    peer.send(request(13, "GET", "/", true));
    assert_eq!(peer.answer(&mut fixture, 13).status, "200");
    let told = std::mem::take(&mut fixture.server.app.streams);
    assert_eq!(told, [1, 2, 3, 2, 3, 2, 1, 2, 1, 0, 1, 2, 1]);
}

#[test]
fn the_beginning_of_a_body_is_as_long_as_the_app_wants_it() {
    let network = SimNet::new(1);
    let mut fixture = fixture(limits());
    let mut peer = Peer::connect(&network, &fixture, WIDE, WIDE);
    let post = |stream, length| {
        let lines = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", "/gather?first=7&grant=50"),
        ];
        head(stream, &[&lines[..], length].concat(), false)
    };
    // The end comes with the last byte, or behind it.
    peer.send(post(1, &[])).send(data(1, b"all here", true));
    assert_eq!(peer.answer(&mut fixture, 1).body, b"8 bytes");
    assert_eq!(fixture.server.app.gathered, [7]);
    peer.send(post(3, &[("content-length", "6")]));
    peer.send(data(3, b"no mor", false))
        .send(data(3, b"", true));
    let answer = peer.answer(&mut fixture, 3);
    assert!(answer.body.ends_with(b"[no mor]"), "{answer:?}");
    assert_eq!(fixture.server.app.gathered, [7]);
}
