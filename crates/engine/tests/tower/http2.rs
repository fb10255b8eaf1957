//! An axum `Router` whose clients speak HTTP/2: calls that are shaped as those of gRPC.

use crate::grpc::{call, end, message, router, talk, talk_in_vain};
use crate::h2::{Peer, data};
use crate::support::{serve, until};
use dwell_engine::Running;
use dwell_engine::handler::tower::service;
use dwell_proto::http2::{ErrorCode, encode};

fn running() -> (Running, Peer) {
    let running = serve(|options| options.h2c(true), service(router()));
    let peer = Peer::connect(&running);
    (running, peer)
}

#[test]
fn a_call_goes_both_ways_at_once_and_ends_with_its_status() {
    let (running, mut peer) = running();
    talk(&mut peer, 1);
    talk_in_vain(&mut peer, 3);
    talk(&mut peer, 5);
    until(&running, |figures| figures.in_flight == 0);
}

#[test]
fn calls_of_one_connection_do_not_wait_for_one_another() {
    let (running, mut peer) = running();
    let held: Vec<u32> = (0..20).map(|number| 2 * number + 1).collect();
    for stream in &held {
        peer.send(call(*stream, "/test.Echo/Talk"));
        peer.send(data(*stream, &message("hello"), false));
    }
    until(&running, |figures| figures.in_flight == held.len());
    talk(&mut peer, 101);
    // The last ones end first.
    for stream in held.iter().rev() {
        peer.send(data(*stream, b"", true));
        assert_eq!(end(&mut peer, *stream).0.as_deref(), Some("0"));
    }
    until(&running, |figures| figures.in_flight == 0);
}

#[test]
fn a_client_that_gives_up_a_call_has_its_future_dropped() {
    let (running, mut peer) = running();
    for stream in [1, 3] {
        peer.send(call(stream, "/test.Echo/Never"));
        peer.send(data(stream, &message("hello"), true));
    }
    until(&running, |figures| figures.in_flight == 2);
    let mut reset = Vec::new();
    encode::reset(1, ErrorCode::CANCEL, &mut reset);
    peer.send(reset);
    until(&running, |figures| figures.in_flight == 1);
    talk(&mut peer, 5);
    drop(peer);
    until(&running, |figures| {
        figures.in_flight == 0 && figures.connections == 0
    });
}
