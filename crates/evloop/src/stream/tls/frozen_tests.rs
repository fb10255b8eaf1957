//! Streams that go on in another process, here another stream on the same socket.

use super::tests::{Client, begun, pair, read_all};
use crate::{ClientNames, Detached, Flushed, KeptOfClient, Peer, ReadOutcome, Stream};
use rustls::version;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

/// Freezes a stream and thaws it on a descriptor of its own.
fn moved(mut stream: Stream) -> Stream {
    assert!(stream.can_freeze());
    let descriptor = stream.as_fd().try_clone_to_owned().unwrap();
    let frozen = stream.freeze(KeptOfClient::Nothing).unwrap();
    assert_eq!(frozen.len(), frozen.capacity(), "no copy is left behind");
    drop(stream);
    let mut next = Stream::from_descriptor(descriptor).unwrap();
    next.thaw(&frozen).unwrap();
    assert!(next.is_secure() && !next.is_handshaking() && next.can_freeze());
    next
}

/// Both ways, with the keys of both changed.
fn talk(stream: &mut Stream, client: &mut Client) {
    client.tls.refresh_traffic_keys().unwrap();
    client.write(b"question");
    assert_eq!(read_all(stream, 4096).unwrap().0, b"question");
    stream.write(b"answer").unwrap();
    client.read.clear();
    client.receive().unwrap();
    assert_eq!(client.read, b"answer");
}

#[test]
fn a_client_notices_no_move() {
    let (mut stream, mut client) = pair(&version::TLS13);
    for _ in 0..3 {
        stream = moved(stream);
        talk(&mut stream, &mut client);
    }
    client.tls.send_close_notify();
    client.send();
    let (data, outcome) = read_all(&mut stream, 4096).unwrap();
    assert_eq!((&*data, outcome), (&b""[..], ReadOutcome::Closed));
    assert!(!moved(stream).is_cut_off(), "its end goes along");
}

#[test]
fn input_that_was_not_read_goes_along() {
    let (mut stream, mut client) = pair(&version::TLS13);
    client.write(&[b'a'; 1000]);
    let mut buffer = [0; 10];
    assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::More(10));
    assert!(stream.holds_input());
    let mut stream = moved(stream);
    assert!(stream.holds_input());
    let (data, _) = read_all(&mut stream, 333).unwrap();
    assert_eq!(data, [b'a'; 990]);
    assert!(!stream.holds_input());
    // A record in three parts, with a move between them.
    client.tls.writer().write_all(&[b'b'; 300]).unwrap();
    let mut wire = Vec::new();
    client.tls.write_tls(&mut wire).unwrap();
    for part in wire.chunks(wire.len() / 3) {
        client.socket.write_all(part).unwrap();
        let is_last = read_all(&mut stream, 4096).unwrap().0 == [b'b'; 300];
        assert_eq!(stream.has_begun_record(), !is_last);
        let peer = Peer::<()>::from(Detached {
            stream: moved(stream),
            input: Vec::new(),
        });
        assert_eq!(peer.is_unread(), !is_last, "the rest has a deadline");
        stream = peer.stream;
    }
    talk(&mut stream, &mut client);
}

#[test]
fn nothing_is_read_or_sealed_by_what_was_frozen() {
    let (mut stream, mut client) = pair(&version::TLS13);
    stream.write(b"before").unwrap();
    client.receive().unwrap();
    let frozen = stream.freeze(KeptOfClient::Nothing).unwrap();
    assert!(stream.is_secure() && !stream.can_freeze());
    assert!(
        stream.freeze(KeptOfClient::Nothing).is_none(),
        "it goes away once"
    );
    assert_eq!(
        stream.write(b"again").unwrap_err().kind(),
        ErrorKind::NotConnected
    );
    client.write(b"question");
    let mut buffer = [0; 100];
    let error = stream.read(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    stream.close_notify();
    // What the client reads next is from the stream that was thawed alone.
    let descriptor = stream.as_fd().try_clone_to_owned().unwrap();
    drop(stream);
    let mut next = Stream::from_descriptor(descriptor).unwrap();
    next.thaw(&frozen).unwrap();
    assert_eq!(read_all(&mut next, 100).unwrap().0, b"question");
    next.write(b", after").unwrap();
    client.receive().unwrap();
    assert_eq!(client.read, b"before, after");
}

#[test]
fn what_cannot_move_stays_as_it_is() {
    let (mut stream, mut client) = begun(&version::TLS13);
    assert!(!stream.can_freeze() && stream.freeze(KeptOfClient::Nothing).is_none());
    client.send();
    stream.handshake().unwrap();
    assert!(stream.is_handshaking() && stream.freeze(KeptOfClient::Nothing).is_none());
    let (mut stream, mut client) = pair(&version::TLS12);
    assert!(!stream.can_freeze() && stream.freeze(KeptOfClient::Nothing).is_none());
    stream.write(b"goes on").unwrap();
    client.receive().unwrap();
    assert_eq!(client.read, b"goes on");
    let (mut stream, mut client) = pair(&version::TLS13);
    stream.write(&vec![b'x'; 4 << 20]).unwrap();
    assert_eq!(stream.flushed(), Flushed::Blocked);
    assert!(stream.can_freeze() && stream.freeze(KeptOfClient::Nothing).is_none());
    while stream.flush().unwrap() != Flushed::All {
        client.receive().unwrap();
    }
    let mut stream = moved(stream);
    client.receive().unwrap();
    talk(&mut stream, &mut client);
    stream.close_notify();
    assert!(!stream.can_freeze() && stream.freeze(KeptOfClient::Nothing).is_none());
    let (mut stream, _client) = pair(&version::TLS13);
    stream.set_peer_address(([192, 0, 2, 1], 56324).into());
    assert!(!stream.can_freeze() && stream.freeze(KeptOfClient::Nothing).is_none());
}

#[test]
fn the_names_of_a_client_go_along_where_they_may() {
    let (mut stream, mut client) = pair(&version::TLS13);
    assert!(stream.client_names().is_none(), "they are not kept");
    let frozen = stream.freeze(KeptOfClient::Names).unwrap();
    assert_eq!(
        frozen[0], 1,
        "without names the format is the one before them"
    );
    let descriptor = stream.as_fd().try_clone_to_owned().unwrap();
    let names = ClientNames::named(Some("alice"), &[]);
    let length = (names.as_bytes().len() as u32).to_be_bytes();
    let whole = [
        &[2][..],
        &frozen[1..9],
        &length,
        names.as_bytes(),
        &frozen[9..],
    ]
    .concat();
    let mut next = Stream::from_descriptor(descriptor).unwrap();
    for end in 1..whole.len() {
        assert!(next.thaw(&whole[..end]).is_err(), "{end}");
    }
    next.thaw(&whole).unwrap();
    assert_eq!(next.client_names(), Some(&names));
    assert!(next.can_freeze());
    talk(&mut next, &mut client);
    let again = next.freeze(KeptOfClient::Names).unwrap();
    assert_eq!((again[0], again.len()), (2, again.capacity()));
    let descriptor = next.as_fd().try_clone_to_owned().unwrap();
    let mut next = Stream::from_descriptor(descriptor).unwrap();
    next.thaw(&again).unwrap();
    assert_eq!(next.client_names(), Some(&names));
    let next = moved(next);
    assert!(next.client_names().is_none(), "they may not");
}

#[test]
fn a_certificate_goes_along_where_it_may_and_else_the_names_alone() {
    let names = ClientNames::named(Some("alice"), &[]);
    let der = [7_u8; 300];
    let element = [&[5, 1, 44][..], &der].concat();
    let kept = [names.as_bytes(), &element].concat();
    for (part, certificate) in [
        (KeptOfClient::Certificate, Some(&der[..])),
        (KeptOfClient::Names, None),
    ] {
        let (mut stream, mut client) = pair(&version::TLS13);
        let frozen = stream.freeze(KeptOfClient::Nothing).unwrap();
        let length = (kept.len() as u32).to_be_bytes();
        let whole = [&[2][..], &frozen[1..9], &length, &kept, &frozen[9..]].concat();
        let thawed = |stream: &Stream, frozen: &[u8]| {
            let descriptor = stream.as_fd().try_clone_to_owned().unwrap();
            let mut next = Stream::from_descriptor(descriptor).unwrap();
            next.thaw(frozen).unwrap();
            next
        };
        let mut next = thawed(&stream, &whole);
        let again = next.freeze(part).unwrap();
        let mut last = thawed(&next, &again);
        let known = last.client_names().unwrap();
        assert_eq!(known.common_name(), Some("alice"));
        assert_eq!(known.certificate(), certificate);
        talk(&mut last, &mut client);
    }
}

#[test]
fn frozen_bytes_that_cannot_be_right_are_refused() {
    let (mut stream, mut client) = pair(&version::TLS13);
    client.write(b"abc");
    let mut buffer = [0; 1];
    assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::More(1));
    let good = stream.freeze(KeptOfClient::Nothing).unwrap().to_vec();
    let error = stream.thaw(&good).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::InvalidInput,
        "it has TLS, of no use"
    );
    let refused = |bytes: &[u8]| {
        let (ours, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut stream = Stream::from_descriptor(ours.into()).unwrap();
        let error = stream.thaw(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(!stream.is_secure());
    };
    for end in 0..good.len() {
        refused(&good[..end]);
    }
    refused(&[&good[..], &[0]].concat());
    let longer = |place: usize, bytes: usize, session: &[u8]| {
        let mut head = vec![1, 0, 0, 0, 0, 0, 0, 0, 0];
        head[place..place + 4].copy_from_slice(&(bytes as u32).to_be_bytes());
        [&head[..], &vec![0; bytes], session].concat()
    };
    let session = &good[11..];
    let (ours, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut stream = Stream::from_descriptor(ours.into()).unwrap();
    stream.thaw(&longer(1, 16_645, session)).unwrap();
    refused(&longer(1, 16_646, session));
    refused(&longer(5, 65_537, session));
    refused(&[&[2][..], &good[1..]].concat());
    refused(&[&[3][..], &good[1..]].concat());
}
