//! Answers under TLS that are left to the sends of a turn.

use super::tests::{Client, pair, read_all};
use crate::{Flushed, KeptOfClient, Sends, Sent, Stream, Token};
use rustls::version;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

const TOKEN: Token = Token::new(1, 0, 0);

/// Sends what is gathered, and queues what the socket refuses of it. Returns true if it has taken
/// everything.
fn send(sends: &mut Sends, stream: &mut Stream) -> bool {
    sends.open();
    sends.send(|_| Some(&*stream));
    let mut rest = Vec::new();
    for (_, sent) in sends.outcomes() {
        match sent {
            Sent::Whole => {}
            Sent::Rest(left) => rest.extend_from_slice(left),
            Sent::Failed => panic!("it has failed"),
        }
    }
    sends.clear();
    if !rest.is_empty() {
        stream.queue_rest(&rest);
    }
    rest.is_empty()
}

/// Fills the socket with a record for the client, as far as it goes; returns what was written.
fn fill(stream: &mut Stream) -> Vec<u8> {
    let mut written = Vec::new();
    while stream.is_flushed() {
        let part = vec![written.len() as u8; 30_000];
        stream.write(&part).unwrap();
        written.extend(part);
    }
    written
}

fn drain(stream: &mut Stream, client: &mut Client) {
    while stream.flush().unwrap() != Flushed::All {
        client.receive().unwrap();
    }
    client.receive().unwrap();
}

#[test]
fn what_is_left_to_sends_is_read_in_the_order_of_sealing() {
    let (mut stream, mut client) = pair(&version::TLS13);
    let mut sends = Sends::default();
    let mut expected = Vec::new();
    for round in 0..200_usize {
        let data = vec![round as u8; 1 + (round * 37) % Sends::BYTES_MAX];
        if round % 3 == 0 {
            stream.write(&data).unwrap();
        } else {
            assert!(stream.leave_to(&mut sends, TOKEN, &data));
            assert!(send(&mut sends, &mut stream));
        }
        expected.extend_from_slice(&data);
        client.receive().unwrap();
    }
    stream.close_notify();
    client.receive().unwrap();
    assert!(client.read == expected);
    assert!(!stream.leave_to(&mut sends, TOKEN, b"late"));
    assert!(sends.is_empty());
}

#[test]
fn what_a_full_socket_refuses_of_records_is_not_sealed_again() {
    let (mut stream, mut client) = pair(&version::TLS13);
    let mut sends = Sends::default();
    // The socket is filled beneath the queue, by records that were left to the sends.
    let mut expected = Vec::new();
    loop {
        let data = vec![expected.len() as u8; Sends::BYTES_MAX];
        assert!(stream.leave_to(&mut sends, TOKEN, &data));
        expected.extend_from_slice(&data);
        if !send(&mut sends, &mut stream) {
            break;
        }
    }
    assert!(!stream.is_flushed());
    assert!(!stream.leave_to(&mut sends, TOKEN, b"waits"));
    stream.write(b"behind it").unwrap();
    expected.extend_from_slice(b"behind it");
    drain(&mut stream, &mut client);
    assert!(client.read == expected);
}

#[test]
fn an_update_of_keys_changes_those_of_what_is_left_behind_it() {
    let (mut stream, mut client) = pair(&version::TLS13);
    let mut sends = Sends::default();
    let written = fill(&mut stream);
    // While output waits, the answer to an update waits too.
    client.tls.refresh_traffic_keys().unwrap();
    client.write(b"question");
    assert_eq!(read_all(&mut stream, 99).unwrap().0, b"question");
    drain(&mut stream, &mut client);
    for answer in [&b"answer"[..], b" and more"] {
        assert!(stream.leave_to(&mut sends, TOKEN, answer));
        assert!(send(&mut sends, &mut stream));
    }
    client.receive().unwrap();
    assert!(client.read == [&written[..], b"answer and more"].concat());
}

#[test]
fn one_that_freezes_behind_what_was_left_goes_on_elsewhere() {
    let (mut stream, mut client) = pair(&version::TLS13);
    let mut sends = Sends::default();
    assert!(stream.leave_to(&mut sends, TOKEN, b"here,"));
    let frozen = stream.freeze(KeptOfClient::Nothing).unwrap();
    assert!(send(&mut sends, &mut stream));
    let socket = stream.as_fd().try_clone_to_owned().unwrap();
    let mut other = Stream::from_descriptor(socket).unwrap();
    other.thaw(&frozen).unwrap();
    assert!(other.leave_to(&mut sends, TOKEN, b" there,"));
    assert!(send(&mut sends, &mut other));
    other.write(b" everywhere").unwrap();
    client.receive().unwrap();
    assert_eq!(client.read, b"here, there, everywhere");
    assert!(!stream.leave_to(&mut sends, TOKEN, b"no nonce twice"));
}

#[test]
fn tls_1_2_and_a_handshake_leave_nothing() {
    let mut sends = Sends::default();
    let (mut stream, _client) = pair(&version::TLS12);
    assert!(!stream.leave_to(&mut sends, TOKEN, b"news"));
    let (mut stream, _client) = super::tests::begun(&version::TLS13);
    assert!(!stream.leave_to(&mut sends, TOKEN, b"news"));
    assert!(sends.is_empty());
}

#[test]
fn a_connection_that_has_gone_fails_by_its_send() {
    let (mut stream, mut client) = pair(&version::TLS13);
    let (other, _) = UnixStream::pair().unwrap();
    client.socket = other;
    client.socket.flush().unwrap();
    let mut sends = Sends::default();
    assert!(stream.leave_to(&mut sends, TOKEN, b"news"));
    sends.open();
    sends.send(|_| Some(&stream));
    assert!(sends.outcomes().all(|(_, sent)| sent == Sent::Failed));
}

#[test]
fn bytes_that_are_not_sealed_never_go_around_tls() {
    let (stream, mut client) = pair(&version::TLS13);
    for has_ring in [true, false] {
        let mut sends = Sends::default();
        if has_ring {
            sends.open();
        }
        sends.push(TOKEN, b"in the open");
        sends.send(|_| Some(&stream));
        assert!(sends.outcomes().all(|(_, sent)| sent == Sent::Failed));
    }
    let mut read = [0; 16];
    let nothing = std::io::Read::read(&mut client.socket, &mut read);
    assert!(nothing.is_err(), "{read:?}");
}
