//! Connections that are not made, and what takes too long.

use super::super::{UpstreamError, UpstreamOptions, UpstreamRequest};
use super::harness::{App, Edge, OK, read_request, read_to_end};
use bytes::Bytes;
use dwell_evloop::{ListenOptions, bind_group};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

#[test]
fn a_refused_connect_is_told() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut edge = Edge::new(UpstreamOptions::new(address));
    let refused = UpstreamError::Connect(std::io::ErrorKind::ConnectionRefused);
    assert_eq!(edge.ask(1, "GET"), Err(refused.clone()));
    assert_eq!(
        (refused.status(), edge.driver.upstream.connections()),
        (502, 0)
    );
    assert_eq!(refused.to_string(), "cannot connect: connection refused");
}

#[test]
fn every_stage_has_its_deadline() {
    let short = Duration::from_millis(30);
    let silent = App::new(|_, stream| read_to_end(stream));
    let options = UpstreamOptions {
        header_timeout: short,
        ..silent.options.clone()
    };
    let mut edge = Edge::new(options);
    assert_eq!(edge.ask(1, "GET"), Err(UpstreamError::HeaderTimeout(short)));

    let options = UpstreamOptions {
        total_timeout: short,
        ..silent.options.clone()
    };
    let mut edge = Edge::new(options);
    assert_eq!(edge.ask(1, "GET"), Err(UpstreamError::TotalTimeout(short)));

    let stalling = App::new(|_, stream| {
        read_request(stream);
        stream.write_all(&OK[..OK.len() - 1]).unwrap();
        read_to_end(stream);
    });
    // Long enough for the head to come.
    let total = Duration::from_secs(1);
    let options = UpstreamOptions {
        header_timeout: total,
        total_timeout: total,
        ..stalling.options.clone()
    };
    let mut edge = Edge::new(options);
    assert_eq!(edge.ask(1, "GET"), Err(UpstreamError::TotalTimeout(total)));
    assert_eq!(edge.driver.upstream.connections(), 0);
}

#[test]
fn a_connect_that_hangs_is_given_up() {
    let mut options = ListenOptions::default();
    options.backlog = 0;
    let listener = bind_group(([127, 0, 0, 1], 0).into(), 1, options)
        .unwrap()
        .remove(0);
    let address = listener.address().unwrap();
    // Fill the backlog of a listener that nobody accepts from, so that the next connect waits.
    let mut waiting = Vec::new();
    let attempt = Duration::from_secs(1);
    while let Ok(stream) = TcpStream::connect_timeout(&address, attempt) {
        waiting.push(stream);
    }
    let short = Duration::from_millis(30);
    let options = UpstreamOptions {
        connect_timeout: short,
        ..UpstreamOptions::new(address)
    };
    let mut edge = Edge::new(options);
    let error = UpstreamError::ConnectTimeout(short);
    assert_eq!(error.status(), 502);
    assert_eq!(edge.ask(1, "GET"), Err(error));
}

#[test]
fn an_application_that_takes_a_request_in_sips_has_no_longer_for_it() {
    const BODY_BYTES: usize = 1 << 30;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let timeout = Duration::from_millis(30);
    let mut edge = Edge::new(UpstreamOptions {
        total_timeout: timeout,
        ..UpstreamOptions::new(listener.local_addr().unwrap())
    });
    // Never written to, so it is only address space.
    let body = Bytes::from(vec![0; BODY_BYTES]);
    edge.send_request(UpstreamRequest::new(body, 1)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut buffer, mut taken) = (vec![0; 256 << 10], 0);
    while edge.driver.events.is_empty() {
        taken += stream.read(&mut buffer).unwrap_or(0);
        assert!(taken < BODY_BYTES, "it was let go on to its end");
        edge.turn(Duration::ZERO);
    }
    let error = UpstreamError::TotalTimeout(timeout);
    assert_eq!(edge.next(), (1, Err(error)));
}
