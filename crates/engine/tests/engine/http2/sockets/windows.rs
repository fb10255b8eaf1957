//! Windows of streams that are WebSockets: room for what is written, credit for what is read.

use super::super::peer::{Peer, WIDE, data, window};
use super::site::{Site, connect, message};
use dwell_engine::websocket::{EndCause, MessageKind, WebSocketOptions, WebSocketSendError};
use dwell_engine::{Budget, Limits};
use dwell_evloop::sim::SimNet;
use dwell_proto::http2::{ErrorCode, encode};
use std::time::Duration;

#[test]
fn a_closed_window_holds_back_what_is_written() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, 0, WIDE);
    peer.send(connect(1, "/", &[]));
    site.pass(&network);
    site.on(0, |socket| socket.text("news")).unwrap();
    site.pass(&network);
    peer.receive();
    assert_eq!(
        (
            peer.answers[&1].status.as_str(),
            peer.answers[&1].body.len()
        ),
        ("200", 0)
    );
    // It waits where it waits for a socket, so nothing is framed for the window.
    assert_eq!(site.on(0, |socket| socket.queued_bytes()), 6);
    peer.send(window(1, 4));
    site.pass(&network);
    peer.receive();
    assert_eq!(peer.answers[&1].body, b"\x81\x04ne");
    peer.send(window(1, 100));
    site.pass(&network);
    peer.receive();
    assert_eq!(peer.answers[&1].body, b"\x81\x04news");
    assert_eq!(site.on(0, |socket| socket.queued_bytes()), 0);
}

#[test]
fn sockets_share_the_window_of_a_connection_in_turns() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, WIDE, 65_535);
    for stream in [1, 3, 5] {
        peer.send(connect(stream, "/", &[]));
    }
    site.pass(&network);
    for place in 0..3 {
        site.on(place, |socket| socket.binary(&vec![b'l'; 200_000]))
            .unwrap();
    }
    for _ in 0..9 {
        site.pass(&network);
        peer.send(window(0, 16 * 1024));
    }
    site.pass(&network);
    peer.receive();
    let came = [1, 3, 5].map(|stream| peer.answers[&stream].body.len());
    assert_eq!(came.iter().sum::<usize>(), 65_535 + 9 * 16 * 1024);
    // No one is more than a turn ahead, though windows cut turns in two.
    let (most, least) = (came.iter().max().unwrap(), came.iter().min().unwrap());
    assert!(most - least <= 16 * 1024 + 8, "{came:?}");
}

#[test]
fn a_slow_reader_is_held_in_bytes_and_in_time() {
    let network = SimNet::new(1);
    let options = WebSocketOptions {
        output_bytes_max: 50_000,
        write_timeout: Duration::from_secs(10),
        ..WebSocketOptions::default()
    };
    let mut site = Site::with(Limits::default(), options);
    let mut peer = Peer::opened(&network, site.address, 1000, WIDE);
    peer.send(connect(1, "/", &[]));
    site.pass(&network);
    let mut sent = 0;
    let refused = loop {
        match site.on(0, |socket| socket.binary(&[b'n'; 900])) {
            Ok(()) => sent += 900,
            Err(error) => break error,
        }
        site.pass_for(&network, Duration::from_millis(1));
    };
    assert!(
        matches!(refused, WebSocketSendError::Full { .. }),
        "{refused}"
    );
    assert!((50_000..53_000).contains(&sent), "{sent}");
    peer.receive();
    assert_eq!(peer.answers[&1].body.len(), 1000);
    // A client that takes enough is waited for, and one that takes nothing is not.
    for _ in 0..3 {
        site.pass_for(&network, Duration::from_secs(6));
        peer.send(window(1, 6_000));
    }
    site.pass(&network);
    assert_eq!(site.server.app.ends, []);
    site.pass_for(&network, Duration::from_secs(30));
    peer.receive();
    assert_eq!(site.server.app.ends, [EndCause::WriteTimeout]);
    assert_eq!(peer.answers[&1].reset, Some(ErrorCode::CANCEL));
    assert_eq!(peer.answers[&1].body.len(), 19_000);
}

#[test]
fn a_connection_that_takes_nothing_ends_its_sockets() {
    let network = SimNet::new(1);
    let limits = Limits {
        write_timeout: Duration::from_secs(10),
        ..Limits::default()
    };
    let mut site = Site::with(limits, WebSocketOptions::default());
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    peer.send(connect(1, "/", &[])).send(connect(3, "/", &[]));
    site.pass(&network);
    peer.receive();
    peer.socket.set_window(10_000);
    for place in [0, 1] {
        site.on(place, |socket| socket.binary(&vec![b'l'; 100_000]))
            .unwrap();
    }
    site.pass_for(&network, Duration::from_secs(25));
    let reset = EndCause::Failed(std::io::ErrorKind::ConnectionReset);
    assert_eq!(site.server.app.ends, [reset, reset]);
    assert_eq!(site.server.http.connections(), 0);
}

#[test]
fn a_client_may_send_more_only_as_it_is_read() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    site.server.app.pauses = true;
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    let mut acknowledged = Vec::new();
    encode::settings_ack(&mut acknowledged);
    peer.send(acknowledged).send(connect(1, "/", &[]));
    peer.send(data(
        1,
        &message(MessageKind::Text, b"and now it pauses"),
        false,
    ));
    site.pass(&network);
    let large = message(MessageKind::Binary, &[b'l'; 15_000]);
    peer.send(data(1, &large, false));
    site.pass(&network);
    peer.receive();
    assert_eq!((site.server.app.messages, peer.granted.get(&1)), (1, None));
    site.server.app.pauses = false;
    site.on(0, |socket| {
        socket.resume();
    });
    site.pass(&network);
    peer.receive();
    assert_eq!(site.server.app.messages, 2);
    let granted = peer.granted[&1];
    assert!((15_000..15_100).contains(&granted), "{granted}");
    // More than was granted is an error of the stream, and of the stream alone.
    site.server.app.pauses = true;
    peer.send(connect(3, "/", &[]));
    peer.send(data(1, &message(MessageKind::Text, b"pause"), false));
    site.pass(&network);
    for _ in 0..2 {
        peer.send(data(1, &large, false));
    }
    site.pass(&network);
    peer.receive();
    assert_eq!(peer.answers[&1].reset, Some(ErrorCode::FLOW_CONTROL_ERROR));
    assert_eq!(
        (peer.answers[&3].status.as_str(), peer.go_away),
        ("200", None)
    );
    // What nobody reads any more goes back to the window of the connection.
    for stream in (5..65).step_by(2) {
        peer.send(connect(stream, "/refuse", &[]));
        peer.send(data(stream, &large, false));
        site.pass(&network);
    }
    peer.receive();
    assert_eq!(peer.go_away, None);
}

/// Opens sockets that pause, and sends so many bytes on each.
fn open_paused(network: &SimNet, site: &mut Site, peer: &mut Peer, streams: &[u32], bytes: usize) {
    site.server.app.pauses = true;
    for stream in streams {
        peer.send(connect(*stream, "/", &[]));
        peer.send(data(*stream, &message(MessageKind::Text, b"pause"), false));
    }
    site.pass(network);
    let large = message(MessageKind::Binary, &vec![b'l'; bytes]);
    for stream in streams {
        peer.send(data(*stream, &large, false));
    }
    site.pass(network);
    site.server.app.pauses = false;
}

#[test]
fn an_owner_that_does_not_read_holds_up_its_own_stream_alone() {
    let network = SimNet::new(1);
    let mut site = Site::new();
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    let mut acknowledged = Vec::new();
    encode::settings_ack(&mut acknowledged);
    peer.send(acknowledged);
    site.pass(&network);
    let paused: Vec<u32> = (0..20).map(|place| 2 * place + 1).collect();
    open_paused(&network, &mut site, &mut peer, &paused, 15_000);
    peer.receive();
    // More than the window of the connection, nearly all of which was given back.
    assert_eq!(peer.go_away, None);
    let given_back = peer.granted[&0];
    assert!(given_back >= 256 * 1024 - 65_535 + 270_000, "{given_back}");
    // Another one goes on.
    peer.send(connect(99, "/", &[]));
    for _ in 0..40 {
        peer.send(data(
            99,
            &message(MessageKind::Binary, &[b'l'; 10_000]),
            false,
        ));
        site.pass(&network);
    }
    peer.receive();
    assert_eq!((peer.answers[&99].reset, peer.go_away), (None, None));
    assert!(peer.answers[&99].body.len() > 400_000);
}

#[test]
fn what_no_owner_reads_is_bounded_for_all_and_the_oldest_gives_way() {
    let network = SimNet::new(1);
    let limits = Limits {
        gathered_bytes_max: 100_000,
        ..Limits::default()
    };
    let mut site = Site::with(limits, WebSocketOptions::default());
    let budget = Budget::default();
    site.server.http.share_gathered(budget.clone());
    let mut peer = Peer::opened(&network, site.address, WIDE, WIDE);
    let streams: Vec<u32> = (0..7).map(|place| 2 * place + 1).collect();
    open_paused(&network, &mut site, &mut peer, &streams, 15_000);
    peer.receive();
    let resets: Vec<_> = peer.answers.values().map(|answer| answer.reset).collect();
    let calm = Some(ErrorCode::ENHANCE_YOUR_CALM);
    assert_eq!(resets, [None, None, None, None, None, None, calm]);
    let kept = 6 * (15_000 + 8);
    assert_eq!(budget.bytes(), kept);
    // What is read is not kept, and what its client gives up neither.
    site.on(0, |socket| {
        socket.resume();
    });
    peer.send(super::super::peer::reset(3));
    site.pass(&network);
    assert_eq!(budget.bytes(), kept - 2 * (15_000 + 8));
    // Those that keep the most time give way, once there is little left.
    site.pass_for(&network, Duration::from_secs(6));
    open_paused(&network, &mut site, &mut peer, &[21, 23], 15_000);
    peer.send(window(0, 1));
    site.pass(&network);
    peer.receive();
    assert_eq!(peer.answers[&5].reset, calm);
    assert_eq!(
        (peer.answers[&21].reset, peer.answers[&23].reset),
        (None, None)
    );
    peer.socket.close();
    site.pass(&network);
    assert_eq!(budget.bytes(), 0);
}
