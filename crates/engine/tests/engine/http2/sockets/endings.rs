//! The ends of streams that are WebSockets, from either side, and their deadlines.

use super::super::peer::{Peer, WIDE, data, head, request, reset};
use super::site::{Site, connect, message};
use dwell_engine::Limits;
use dwell_engine::websocket::{CloseCode, EndCause, MessageKind, WebSocketOptions};
use dwell_evloop::sim::SimNet;
use dwell_proto::http2::ErrorCode;
use dwell_proto::websocket::encode;
use std::io::ErrorKind;
use std::time::Duration;

fn close_frame() -> Vec<u8> {
    let mut out = Vec::new();
    encode::close(&mut out, Some(CloseCode::NORMAL), "", Some([1, 2, 3, 4]));
    out
}

fn opened(network: &SimNet) -> (Site, Peer) {
    let mut site = Site::new();
    let mut peer = Peer::opened(network, site.address, WIDE, WIDE);
    peer.send(connect(1, "/", &[])).send(connect(3, "/", &[]));
    site.pass(network);
    peer.receive();
    assert_eq!(site.server.sockets.connections(), 2);
    (site, peer)
}

/// The second socket of the connection still answers.
fn is_alive(network: &SimNet, site: &mut Site, peer: &mut Peer) {
    peer.send(data(3, &message(MessageKind::Text, b"hello"), false));
    site.pass(network);
    peer.receive();
    assert_eq!(peer.answers[&3].body, b"\x81\x05hello");
    assert_eq!((peer.go_away, peer.answers[&3].has_ended), (None, false));
}

#[test]
fn a_client_closes_in_order() {
    let network = SimNet::new(1);
    let (mut site, mut peer) = opened(&network);
    peer.send(data(1, &close_frame(), true));
    site.pass(&network);
    peer.receive();
    assert_eq!(site.server.app.ends, [EndCause::Peer]);
    let answer = &peer.answers[&1];
    assert_eq!(answer.body, b"\x88\x02\x03\xe8");
    assert_eq!((answer.has_ended, answer.reset), (true, None));
    is_alive(&network, &mut site, &mut peer);
}

#[test]
fn a_client_that_closes_and_does_not_end_its_side_is_told_that_it_need_not() {
    let network = SimNet::new(1);
    let (mut site, mut peer) = opened(&network);
    peer.send(data(1, &close_frame(), false));
    site.pass_for(&network, Duration::from_secs(15));
    peer.receive();
    assert_eq!(site.server.app.ends, [EndCause::Peer]);
    let answer = &peer.answers[&1];
    assert_eq!(
        (answer.has_ended, answer.reset),
        (true, Some(ErrorCode::NO_ERROR))
    );
    is_alive(&network, &mut site, &mut peer);
}

#[test]
fn a_client_resets_or_ends_without_a_word() {
    let network = SimNet::new(1);
    let (mut site, mut peer) = opened(&network);
    peer.send(reset(1));
    site.pass(&network);
    let failed = EndCause::Failed(ErrorKind::ConnectionReset);
    assert_eq!(site.server.app.ends, [failed]);
    is_alive(&network, &mut site, &mut peer);
    peer.send(data(3, b"", true));
    site.pass(&network);
    peer.receive();
    assert_eq!(site.server.app.ends, [failed, EndCause::Lost]);
    assert!(peer.answers[&3].has_ended);
    // The connection goes on.
    peer.send(request(5, "GET", "/", true));
    site.pass(&network);
    peer.receive();
    assert_eq!(peer.answers[&5].status, "200");
}

#[test]
fn a_reset_ends_what_is_being_written() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, 30_000, WIDE);
    peer.send(connect(1, "/", &[])).send(connect(3, "/", &[]));
    site.pass(&network);
    site.on(0, |socket| socket.binary(&vec![b'l'; 500_000]))
        .unwrap();
    site.pass(&network);
    peer.send(reset(1));
    site.pass(&network);
    assert_eq!(site.server.sockets.connections(), 1);
    peer.receive();
    assert_eq!(peer.answers[&1].body.len(), 30_000);
    is_alive(&network, &mut site, &mut peer);
}

#[test]
fn a_connection_that_is_lost_ends_all_its_sockets() {
    let network = SimNet::new(1);
    let (mut site, peer) = opened(&network);
    peer.socket.reset();
    site.pass(&network);
    let failed = EndCause::Failed(ErrorKind::ConnectionReset);
    assert_eq!(site.server.app.ends, [failed, failed]);
    assert_eq!(site.server.http.connections(), 0);
}

#[test]
fn a_server_aborts_by_cancel() {
    let network = SimNet::new(1);
    let (mut site, mut peer) = opened(&network);
    site.on(0, |socket| {
        socket.text("not sent any more").unwrap();
        socket.abort();
    });
    site.pass(&network);
    peer.receive();
    assert_eq!(peer.answers[&1].reset, Some(ErrorCode::CANCEL));
    assert_eq!(site.server.app.ends, [EndCause::Aborted]);
    is_alive(&network, &mut site, &mut peer);
}

#[test]
fn a_server_that_ends_says_1001_and_goes_away() {
    let network = SimNet::new(1);
    let (mut site, mut peer) = opened(&network);
    let context = site.event_loop.context();
    site.server.http.drain(context, &mut site.server.doors);
    site.server
        .sockets
        .drain(context, CloseCode::GOING_AWAY, "");
    site.pass(&network);
    peer.receive();
    for stream in [1, 3] {
        assert_eq!(peer.answers[&stream].body, b"\x88\x02\x03\xe9");
        peer.send(data(stream, &close_frame(), true));
    }
    assert_eq!(peer.go_away, Some(ErrorCode::NO_ERROR));
    site.pass_for(&network, Duration::from_secs(5));
    assert_eq!(site.server.app.ends, [EndCause::Closed, EndCause::Closed]);
    assert!(peer.answers.values().all(|answer| answer.reset.is_none()));
    peer.receive();
    assert!(peer.answers[&1].has_ended && peer.answers[&3].has_ended);
    assert_eq!(site.server.http.connections(), 0);
}

#[test]
fn each_socket_has_its_own_deadlines() {
    let network = SimNet::new(1);
    let options = WebSocketOptions {
        ping_interval: Some(Duration::from_secs(10)),
        pong_timeout: Duration::from_secs(5),
        ..WebSocketOptions::default()
    };
    let limits = Limits {
        idle_timeout: Duration::from_secs(8),
        ..Limits::default()
    };
    let mut site = Site::with(limits, options);
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    peer.send(connect(1, "/", &[]));
    site.pass(&network);
    peer.send(connect(3, "/", &[]));
    for _ in 0..8 {
        site.pass_for(&network, Duration::from_secs(4));
        // Only the second one shows that it lives.
        peer.send(data(3, &message(MessageKind::Text, b""), false));
    }
    peer.receive();
    assert_eq!(peer.answers[&1].body, b"\x89\0", "it was asked once");
    assert!(peer.answers[&1].has_ended || peer.answers[&1].reset.is_some());
    assert_eq!(site.server.app.ends, [EndCause::PongTimeout]);
    assert_eq!(
        peer.answers[&3].body,
        [0x81, 0].repeat(8)[..peer.answers[&3].body.len()]
    );
    assert_eq!(peer.go_away, None, "a connection with a socket is not idle");
    peer.send(data(3, &close_frame(), true));
    site.pass_for(&network, Duration::from_secs(9));
    peer.receive();
    assert_eq!(peer.go_away, Some(ErrorCode::NO_ERROR));
}

#[test]
fn a_field_block_on_a_socket_ends_its_stream_alone() {
    let network = SimNet::new(1);
    let (mut site, mut peer) = opened(&network);
    let trailers = |stream| head(stream, &[("x-trailer", "1")], true);
    peer.send(trailers(1));
    // Also before the answer.
    peer.send(connect(5, "/later", &[])).send(trailers(5));
    site.pass(&network);
    peer.receive();
    let failed = EndCause::Failed(ErrorKind::ConnectionReset);
    assert_eq!(site.server.app.ends, [failed]);
    for stream in [1, 5] {
        let reset = peer.answers[&stream].reset;
        assert_eq!(reset, Some(ErrorCode::PROTOCOL_ERROR), "{stream}");
    }
    is_alive(&network, &mut site, &mut peer);
}
