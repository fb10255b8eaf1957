//! WebSockets on streams (RFC 8441), in simulated time.

mod endings;
mod site;
mod windows;

use super::peer::{Peer, WIDE, data, head, request};
use dwell_engine::Limits;
use dwell_engine::websocket::{MessageKind, WebSocketOptions};
use dwell_evloop::sim::SimNet;
use dwell_proto::http2::{ErrorCode, settings};
use proptest::prelude::*;
use site::{Site, connect, message, received};
use std::time::Duration;

#[test]
fn a_socket_is_opened_and_echoes() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    let offers = [
        ("sec-websocket-protocol", "first, second"),
        ("sec-websocket-extensions", "permessage-deflate"),
        ("origin", "http://a"),
    ];
    peer.send(connect(1, "/spoken", &offers));
    site.pass(&network);
    peer.receive();
    let announced = (settings::ENABLE_CONNECT_PROTOCOL, 1);
    assert!(peer.settings.contains(&announced), "{:?}", peer.settings);
    let answer = &peer.answers[&1];
    let field = |name: &str| {
        let field = answer.fields.iter().find(|(found, _)| found == name);
        field.map(|(_, value)| value.as_str())
    };
    assert_eq!((answer.status.as_str(), answer.has_ended), ("200", false));
    assert_eq!(field("sec-websocket-protocol"), Some("second"));
    assert!(field("sec-websocket-extensions").is_some());
    assert_eq!(field("x-own"), Some("mine"));
    for none in [
        "connection",
        "upgrade",
        "sec-websocket-accept",
        "content-length",
    ] {
        assert_eq!(field(none), None, "{none}");
    }
    // A message in two frames of DATA, and two messages in one.
    let first = message(MessageKind::Text, b"hello");
    peer.send(data(1, &first[..3], false))
        .send(data(1, &first[3..], false));
    let both = [
        message(MessageKind::Text, b"one"),
        message(MessageKind::Binary, b"two"),
    ];
    peer.send(data(1, &both.concat(), false));
    site.pass(&network);
    peer.receive();
    let expected = [&b"\x81\x05hello"[..], b"\x81\x03one", b"\x82\x03two"].concat();
    assert_eq!(peer.answers[&1].body, expected);
    assert_eq!(site.server.doors.heads[0], "GET /spoken Http2");
    assert_eq!(site.server.app.peers, [true]);
}

#[test]
fn one_may_send_before_the_answer_and_other_requests_go_on() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    peer.send(connect(1, "/later", &[]));
    peer.send(data(1, &message(MessageKind::Text, b"early"), false));
    peer.send(request(3, "GET", "/", true));
    site.pass(&network);
    peer.receive();
    assert!(!peer.answers.contains_key(&1));
    assert_eq!(peer.answers[&3].status, "200");
    site.accept_later();
    site.pass(&network);
    peer.receive();
    let answer = &peer.answers[&1];
    assert_eq!(
        (answer.status.as_str(), answer.body.as_slice()),
        ("200", &b"\x81\x05early"[..])
    );
    assert!(!answer.fields.iter().any(|(name, _)| name == "upgrade"));
}

#[test]
fn what_is_no_handshake_is_refused() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    peer.send(connect(1, "/", &[("origin", "http://elsewhere")]));
    // An app that does not look at it, as it need not in HTTP/1.1.
    peer.send(connect(3, "/ignore", &[]));
    peer.send(connect(5, "/refuse", &[]));
    let version = ("sec-websocket-version", "8");
    let lines = site::lines("/", "websocket");
    peer.send(head(7, &[&lines[..], &[version]].concat(), false));
    peer.send(head(9, &site::lines("/", "connect-udp"), false));
    let plain = [(":method", "CONNECT"), (":authority", "a:80")];
    peer.send(head(11, &plain, false));
    site.pass(&network);
    peer.receive();
    let statuses: Vec<_> = peer
        .answers
        .values()
        .map(|answer| answer.status.as_str())
        .collect();
    assert_eq!(statuses, ["403", "501", "404", "426", "501", "501"]);
    // What is sent behind a refusal is dropped, and is no error.
    peer.send(data(1, b"too late", true));
    peer.send(request(13, "GET", "/", true));
    site.pass(&network);
    peer.receive();
    assert_eq!(
        (peer.answers[&13].status.as_str(), peer.go_away),
        ("200", None)
    );
    assert_eq!(site.server.sockets.connections(), 0);
}

#[test]
fn malformed_requests_end_their_streams() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    let whole = site::lines("/", "websocket");
    let without = |name: &str| -> Vec<_> {
        let lines = whole.iter().copied();
        lines.filter(|(other, _)| *other != name).collect()
    };
    let mut wrong = vec![without(":scheme"), without(":path"), without(":authority")];
    let mut get = whole.to_vec();
    get[0] = (":method", "GET");
    wrong.push(get);
    wrong.push([&whole[..], &[(":protocol", "websocket")]].concat());
    wrong.push([&whole[..], &[("connection", "upgrade")]].concat());
    wrong.push([&whole[..], &[("upgrade", "websocket")]].concat());
    wrong.push([&whole[..], &[("content-length", "5")]].concat());
    for (place, lines) in wrong.iter().enumerate() {
        let stream = 2 * place as u32 + 1;
        peer.send(head(stream, lines, false));
        site.pass(&network);
        peer.receive();
        let reset = peer.answers[&stream].reset;
        assert_eq!(reset, Some(ErrorCode::PROTOCOL_ERROR), "{lines:?}");
    }
    assert_eq!((site.server.doors.heads.len(), peer.go_away), (0, None));
}

#[test]
fn a_server_that_does_not_take_it_announces_nothing() {
    let network = SimNet::new(1);
    let mut site = Site::without_connect();
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    peer.send(connect(1, "/", &[]));
    site.pass(&network);
    peer.receive();
    assert_eq!(peer.answers[&1].status, "501");
    assert!(
        !peer
            .settings
            .contains(&(settings::ENABLE_CONNECT_PROTOCOL, 1))
    );
}

#[test]
fn an_app_that_counts_sockets_as_connections_bounds_them_as_such() {
    let network = SimNet::new(1);
    let limits = Limits {
        connections_max: 1,
        ..Limits::default()
    };
    let mut site = Site::with(limits, WebSocketOptions::default());
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    peer.send(connect(1, "/", &[]));
    site.pass(&network);
    site.server.doors.counts = true;
    peer.send(connect(3, "/", &[]));
    peer.send(request(5, "GET", "/", true));
    site.pass(&network);
    peer.receive();
    let statuses = peer.answers.values().map(|answer| answer.status.as_str());
    assert_eq!(statuses.collect::<Vec<_>>(), ["200", "503", "200"]);
    assert_eq!(site.server.sockets.connections(), 1);
}

#[test]
fn the_bound_of_sockets_is_exact_within_a_turn_and_counts_those_that_are_decided_later() {
    let network = SimNet::new(1);
    let limits = Limits {
        connections_max: 4,
        ..Limits::default()
    };
    let mut site = Site::with(limits, WebSocketOptions::default());
    site.server.doors.counts = true;
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    site.pass(&network);
    // In one read: the connection and three sockets are all that may be.
    let ask = |paths: &[&str], from: u32| {
        let asked = paths.iter().zip((from..).step_by(2));
        asked
            .flat_map(|(path, stream)| connect(stream, path, &[]))
            .collect::<Vec<u8>>()
    };
    peer.send(ask(&["/", "/later", "/refuse", "/", "/", "/later"], 1));
    site.pass(&network);
    peer.receive();
    let statuses = |peer: &Peer| {
        let all = peer.answers.iter();
        all.map(|(stream, answer)| (*stream, answer.status.clone()))
            .collect::<Vec<_>>()
    };
    let expected = [(1, "200"), (5, "404"), (7, "200"), (9, "503"), (11, "503")];
    let expected = expected.map(|(stream, status)| (stream, status.to_owned()));
    assert_eq!(statuses(&peer), expected);
    // One that its client gives up before it is decided makes room, and so does one that is told
    // of; a driver that counts says so.
    peer.send(super::peer::reset(3));
    site.server.http.counted_left();
    site.server.http.set_limits(Limits {
        connections_max: 2,
        ..limits
    });
    site.pass(&network);
    peer.send(ask(&["/", "/"], 13));
    site.pass(&network);
    peer.receive();
    let last: Vec<_> = statuses(&peer).into_iter().skip(5).collect();
    assert_eq!(last, [(13, "200".to_owned()), (15, "503".to_owned())]);
    assert_eq!(site.server.sockets.connections(), 3);
}

#[test]
fn a_connection_carries_a_hundred_and_twenty_eight() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    let streams = (0..128).map(|place| 2 * place + 1);
    for stream in streams.clone() {
        peer.send(connect(stream, "/", &[]));
    }
    peer.send(connect(257, "/", &[]));
    site.pass(&network);
    assert_eq!(site.server.sockets.connections(), 128);
    for stream in streams.clone() {
        let text = format!("from {stream:3}");
        peer.send(data(
            stream,
            &message(MessageKind::Text, text.as_bytes()),
            false,
        ));
    }
    site.pass(&network);
    peer.receive();
    for stream in streams {
        let expected = format!("\u{8}from {stream:3}");
        assert_eq!(&peer.answers[&stream].body[1..], expected.as_bytes());
    }
    assert_eq!(peer.answers[&257].reset, Some(ErrorCode::REFUSED_STREAM));
    // One that is gone makes room for another.
    peer.send(super::peer::reset(1))
        .send(connect(259, "/", &[]));
    site.pass(&network);
    peer.receive();
    assert_eq!(peer.answers[&259].status, "200");
    peer.socket.close();
    site.pass(&network);
    assert_eq!(site.server.sockets.connections(), 0);
    assert_eq!(site.server.http.connections(), 0);
}

/// Sends these bytes in pieces that end there; returns what came back on each stream.
fn echoed(bytes: &[u8], ends: &[usize]) -> Vec<(u32, Vec<u8>, bool)> {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    let mut begin = 0;
    for end in ends.iter().copied().chain([bytes.len()]) {
        peer.send(&bytes[begin..end]);
        begin = end;
        site.pass_for(&network, Duration::from_micros(10));
    }
    site.pass(&network);
    peer.receive();
    let answers = peer.answers.iter();
    answers
        .map(|(stream, answer)| (*stream, received(&answer.body), answer.has_ended))
        .collect()
}

/// Messages, each on one of three sockets.
fn messages() -> impl Strategy<Value = Vec<(u32, Vec<u8>)>> {
    let payload = prop::collection::vec(any::<u8>(), 0..400);
    prop::collection::vec((0..3_u32, payload), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_cut_of_the_bytes_gives_the_same(
        sent in messages(),
        sizes in prop::collection::vec(1..200_usize, 1..8),
        ends: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let mut bytes = Vec::new();
        let mut expected = vec![Vec::new(); 3];
        for stream in [1, 3, 5] {
            bytes.extend(connect(stream, "/plain", &[]));
        }
        let mut sizes = sizes.iter().cycle();
        for (place, payload) in &sent {
            expected[*place as usize].extend(payload);
            let frame = message(MessageKind::Binary, payload);
            let mut rest = frame.as_slice();
            while !rest.is_empty() {
                let size = *sizes.next().unwrap();
                let (piece, others) = rest.split_at(size.min(rest.len()));
                bytes.extend(data(2 * place + 1, piece, false));
                rest = others;
            }
        }
        if ends {
            bytes.extend(data(3, b"", true));
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        for ends_at in [&[][..], &cuts] {
            let came = echoed(&bytes, ends_at);
            for ((stream, body, has_ended), expected) in came.iter().zip(&expected) {
                prop_assert_eq!(body, expected, "stream {}", stream);
                prop_assert_eq!(*has_ended, ends && *stream == 3);
            }
            prop_assert_eq!(came.len(), 3);
        }
    }
}
