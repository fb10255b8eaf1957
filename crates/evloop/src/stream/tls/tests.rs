//! Streams under TLS with a client of rustls at the other end.

use crate::{
    Acceptor, Agreed, FileSlice, Flushed, HandshakeFailure, Handshaking, Peer, ReadOutcome,
};
use crate::{Detached, EventLoop, Readiness, Stream, Token, WritePace};
use bytes::Bytes;
use dwell_tls::Certificate;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion,
    version,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

pub(super) const CERTIFICATE: &[u8] = include_bytes!("../../../../tls/tests/data/certificate.pem");
pub(super) const KEY: &[u8] = include_bytes!("../../../../tls/tests/data/key.pem");

fn acceptor() -> Acceptor {
    Acceptor::new(vec![Certificate::from_pem(CERTIFICATE, KEY).unwrap()], 2)
}

/// A client with a socket that does not wait.
pub(super) struct Client {
    pub(super) tls: ClientConnection,
    pub(super) socket: UnixStream,
    pub(super) read: Vec<u8>,
}

impl Client {
    fn new(socket: UnixStream, version: &'static SupportedProtocolVersion) -> Self {
        socket.set_nonblocking(true).unwrap();
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        roots.add(certificate).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("dwell.test").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let read = Vec::new();
        Self { tls, socket, read }
    }

    /// Writes what is to be sent.
    pub(super) fn send(&mut self) {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket).unwrap();
        }
    }

    /// Reads what has come, and puts it behind what was read before.
    pub(super) fn receive(&mut self) -> Result<(), rustls::Error> {
        loop {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => panic!("{error}"),
            }
            let state = self.tls.process_new_packets()?;
            let mut part = vec![0; state.plaintext_bytes_to_read()];
            self.tls.reader().read_exact(&mut part).unwrap();
            self.read.append(&mut part);
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        self.send();
    }
}

/// A stream whose handshake is to come, and its client.
pub(super) fn begun(version: &'static SupportedProtocolVersion) -> (Stream, Client) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut stream = Stream::from_descriptor(ours.into()).unwrap();
    assert!(!stream.is_secure());
    stream.secure(&acceptor());
    assert!(stream.is_secure() && stream.is_handshaking());
    (stream, Client::new(theirs, version))
}

/// A stream whose handshake is over, and its client.
pub(super) fn pair(version: &'static SupportedProtocolVersion) -> (Stream, Client) {
    let (mut stream, mut client) = begun(version);
    for _ in 0..9 {
        client.send();
        if stream.handshake().unwrap() == Handshaking::Done && !client.tls.is_handshaking() {
            client.receive().unwrap();
            return (stream, client);
        }
        client.receive().unwrap();
    }
    panic!("no end");
}

/// All that can be read now, by a buffer of this size.
pub(super) fn read_all(stream: &mut Stream, size: usize) -> io::Result<(Vec<u8>, ReadOutcome)> {
    let (mut data, mut buffer) = (Vec::new(), vec![0; size]);
    loop {
        match stream.read(&mut buffer)? {
            ReadOutcome::More(read) => data.extend_from_slice(&buffer[..read]),
            ReadOutcome::Drained(read) => {
                data.extend_from_slice(&buffer[..read]);
                return Ok((data, ReadOutcome::Drained(read)));
            }
            other => return Ok((data, other)),
        }
    }
}

pub(super) const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

#[test]
fn an_idle_stream_under_tls_is_small() {
    assert!(
        size_of::<super::Tls>() <= 176,
        "{}",
        size_of::<super::Tls>()
    );
}

#[test]
fn data_is_read_whatever_the_size_of_the_buffer() {
    for version in VERSIONS {
        let (mut stream, mut client) = pair(version);
        for size in [1, 100, 16_384, 100_000] {
            let data: Vec<u8> = (0..50_000_u32).map(|at| (at * 7) as u8).collect();
            for part in data.chunks(25_000) {
                client.write(part);
            }
            let (read, end) = read_all(&mut stream, size).unwrap();
            assert!(read == data, "{} of {}", read.len(), data.len());
            // Where less is left than the buffer takes, the last read says that it was the last.
            assert!(matches!(
                end,
                ReadOutcome::Drained(_) | ReadOutcome::WouldBlock
            ));
            let again = stream.read(&mut [0; 9]).unwrap();
            assert_eq!(again, ReadOutcome::WouldBlock);
        }
    }
}

#[test]
fn a_request_that_comes_with_the_handshake_is_the_first_data() {
    let (mut stream, mut client) = begun(&version::TLS13);
    client.send();
    assert_eq!(stream.handshake().unwrap(), Handshaking::Pending);
    client.receive().unwrap();
    client.write(b"at once");
    assert_eq!(
        stream.handshake().unwrap(),
        Handshaking::Agreed(Agreed {
            is_tls13: true,
            is_resumed: false,
            is_http2: false,
        })
    );
    let (read, _) = read_all(&mut stream, 99).unwrap();
    assert_eq!(read, b"at once");
}

#[test]
fn a_reader_that_knows_nothing_of_tls_has_the_handshake_done() {
    let (stream, mut client) = begun(&version::TLS13);
    let mut peer = Peer::<()>::new(stream);
    let mut read = Vec::new();
    for _ in 0..9 {
        client.send();
        peer.observe(Readiness::READABLE);
        let mut buffer = [0; 16];
        let count = peer.read(&mut buffer).unwrap();
        read.extend_from_slice(&buffer[..count]);
        client.receive().unwrap();
        if !client.tls.is_handshaking() && read.is_empty() {
            client.write(b"hello");
        }
    }
    assert_eq!(read, b"hello");
}

/// Lets the client read until the stream has sent all.
fn drain(stream: &mut Stream, client: &mut Client) {
    for _ in 0..10_000 {
        client.receive().unwrap();
        if stream.flush().unwrap() == Flushed::All {
            client.receive().unwrap();
            return;
        }
    }
    panic!("it does not end");
}

#[test]
fn what_the_socket_refuses_is_sealed_when_its_turn_comes() {
    for version in VERSIONS {
        let (mut stream, mut client) = pair(version);
        let body: Bytes = (0..3_000_000_u32).map(|at| (at * 3) as u8).collect();
        let mut expected = Vec::new();
        for round in 0..3 {
            let head = [b'0' + round; 40];
            stream.write_shared(&head, body.clone()).unwrap();
            stream.write(b"small").unwrap();
            expected.extend_from_slice(&head);
            expected.extend_from_slice(&body);
            expected.extend_from_slice(b"small");
        }
        assert_eq!(stream.flushed(), Flushed::Blocked);
        // Little of it is kept sealed: the rest refers to the one body.
        assert!(stream.queued_bytes() > 8_000_000);
        drain(&mut stream, &mut client);
        assert_eq!(stream.queued_bytes(), 0);
        assert!(client.read == expected);
        assert!(stream.is_secure(), "the queue has gone, and nothing else");
        client.write(b"next");
        assert_eq!(read_all(&mut stream, 9).unwrap().0, b"next");
    }
}

#[test]
fn files_are_sealed_in_pieces() {
    use std::io::Seek;
    let (mut stream, mut client) = pair(&version::TLS13);
    let data: Vec<u8> = (0..2_500_000_u32).map(|at| (at * 11) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data).unwrap();
    file.rewind().unwrap();
    let slice = FileSlice {
        file: Arc::new(file),
        offset: 1_000,
        length: 2_400_000,
    };
    stream.write_file(b"head", slice.clone()).unwrap();
    stream.write(b"behind").unwrap();
    drain(&mut stream, &mut client);
    let expected = [b"head", &data[1_000..2_401_000], b"behind"].concat();
    assert!(client.read == expected, "{}", client.read.len());
    let beyond = FileSlice {
        offset: 2_499_999,
        ..slice
    };
    let mut failed = stream.write_file(b"", beyond).err();
    for _ in 0..9 {
        failed = failed.or_else(|| stream.flush().err());
    }
    assert_eq!(failed.unwrap().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_key_update_is_answered_at_once_or_behind_what_waits() {
    let (mut stream, mut client) = pair(&version::TLS13);
    client.tls.refresh_traffic_keys().unwrap();
    client.write(b"one");
    assert_eq!(read_all(&mut stream, 99).unwrap().0, b"one");
    stream.write(b"two").unwrap();
    client.receive().unwrap();
    assert_eq!(client.read, b"two");
    // Now the socket is full, and what waits was sealed by the old key in part.
    let much = vec![b'm'; 1_000_000];
    stream.write(&much).unwrap();
    assert_eq!(stream.flushed(), Flushed::Blocked);
    client.tls.refresh_traffic_keys().unwrap();
    client.write(b"three");
    assert_eq!(read_all(&mut stream, 99).unwrap().0, b"three");
    stream.write(b"end").unwrap();
    drain(&mut stream, &mut client);
    assert!(client.read == [b"two", &much[..], b"end"].concat());
    // An update comes alone, with no data before or behind it.
    client.tls.refresh_traffic_keys().unwrap();
    client.send();
    assert_eq!(stream.read(&mut [0; 9]).unwrap(), ReadOutcome::WouldBlock);
    client.receive().unwrap();
    stream.write(b"!").unwrap();
    client.receive().unwrap();
    assert!(client.read.ends_with(b"end!"));
}

#[test]
fn the_end_is_told_both_ways() {
    for version in VERSIONS {
        let (mut stream, mut client) = pair(version);
        stream.write(b"last").unwrap();
        stream.shutdown_write().unwrap();
        assert_eq!(
            stream.write(b"late").unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
        client.receive().unwrap();
        assert_eq!(client.read, b"last");
        assert!(client.tls.process_new_packets().unwrap().peer_has_closed());
        client.tls.writer().write_all(b"bye").unwrap();
        client.tls.send_close_notify();
        client.send();
        let (read, end) = read_all(&mut stream, 99).unwrap();
        assert_eq!((&read[..], end), (&b"bye"[..], ReadOutcome::Closed));
    }
}

#[test]
fn a_client_that_just_leaves_has_ended() {
    let (mut stream, mut client) = pair(&version::TLS13);
    client.write(b"half");
    drop(client);
    let (read, end) = read_all(&mut stream, 99).unwrap();
    assert_eq!((&read[..], end), (&b"half"[..], ReadOutcome::Drained(4)));
    assert_eq!(stream.read(&mut [0]).unwrap(), ReadOutcome::Closed);
    let (mut stream, client) = begun(&version::TLS13);
    drop(client);
    let error = stream.handshake().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn an_altered_record_ends_the_connection_with_an_alert() {
    for (version, alert) in [
        (&version::TLS13, AlertDescription::BadRecordMac),
        (&version::TLS12, AlertDescription::BadRecordMac),
    ] {
        let (mut stream, mut client) = pair(version);
        client.tls.writer().write_all(b"data").unwrap();
        let mut wire = Vec::new();
        client.tls.write_tls(&mut wire).unwrap();
        *wire.last_mut().unwrap() ^= 1;
        client.socket.write_all(&wire).unwrap();
        let error = stream.read(&mut [0; 99]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let told = client.receive().unwrap_err();
        assert_eq!(told, rustls::Error::AlertReceived(alert));
        assert!(stream.read(&mut [0; 99]).is_err(), "it stays failed");
    }
}

#[test]
fn an_altered_record_behind_the_handshake_has_an_alert_too() {
    let (mut stream, mut client) = begun(&version::TLS13);
    client.send();
    assert_eq!(stream.handshake().unwrap(), Handshaking::Pending);
    client.receive().unwrap();
    client.tls.writer().write_all(b"data").unwrap();
    let mut wire = Vec::new();
    while client.tls.wants_write() {
        client.tls.write_tls(&mut wire).unwrap();
    }
    *wire.last_mut().unwrap() ^= 1;
    client.socket.write_all(&wire).unwrap();
    let error = stream.handshake().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let told = client.receive().unwrap_err();
    let alert = AlertDescription::BadRecordMac;
    assert_eq!(told, rustls::Error::AlertReceived(alert));
}

#[test]
fn an_alert_does_not_go_into_a_record_that_waits() {
    let (mut stream, mut client) = pair(&version::TLS13);
    stream.write(&vec![b'm'; 1_000_000]).unwrap();
    assert_eq!(stream.flushed(), Flushed::Blocked);
    let mut buffer = vec![0; 1_000_000];
    while client.socket.read(&mut buffer).is_ok() {}
    client.socket.write_all(&[23, 3, 3, 0xff, 0xff]).unwrap();
    assert!(stream.read(&mut [0; 99]).is_err());
    let next = client.socket.read(&mut buffer).unwrap_err();
    assert_eq!(next.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_client_without_tls_is_told_apart() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut stream = Stream::from_descriptor(ours.into()).unwrap();
    stream.secure(&acceptor());
    theirs.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(stream.handshake().unwrap(), Handshaking::Plain);
    assert!(!stream.is_secure());
    stream.write(b"plain").unwrap();
    let mut answer = [0; 5];
    theirs.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"plain");
}

#[test]
fn nothing_goes_around_tls() {
    let (mut stream, _client) = begun(&version::TLS13);
    assert_eq!(
        stream.write(b"early").unwrap_err().kind(),
        ErrorKind::NotConnected
    );
    let (stream, _client) = pair(&version::TLS13);
    assert!(stream.descriptor(false).is_none());
    let error = stream.into_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_handshake_counts_from_its_first_record_on() {
    let (mut stream, mut client) = begun(&version::TLS13);
    assert_eq!(stream.handshake().unwrap(), Handshaking::Pending);
    assert_eq!(stream.handshakes_max(), None);
    let mut hello = Vec::new();
    client.tls.write_tls(&mut hello).unwrap();
    let (begin, end) = hello.split_at(hello.len() - 1);
    for (part, at_once) in [(begin, None), (end, Some(2))] {
        client.socket.write_all(part).unwrap();
        assert_eq!(stream.handshake().unwrap(), Handshaking::Pending);
        assert_eq!(stream.handshakes_max(), at_once);
    }
    let (stream, _client) = pair(&version::TLS13);
    assert_eq!(stream.handshakes_max(), None);
}

#[test]
fn a_handshake_that_fails_names_its_reason() {
    let failure = |sent: &[u8]| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut stream = Stream::from_descriptor(ours.into()).unwrap();
        stream.secure(&acceptor());
        theirs.write_all(sent).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        let error = loop {
            if let Err(error) = stream.handshake() {
                break error;
            }
        };
        assert!(stream.handshake().is_err() || stream.read(&mut [0]).is_err());
        let mut answer = Vec::new();
        drop(stream);
        theirs.read_to_end(&mut answer).unwrap();
        (HandshakeFailure::of(&error), answer)
    };
    let closed = (HandshakeFailure::Closed, vec![]);
    assert_eq!(failure(b""), closed);
    assert_eq!(failure(&[22, 3, 1, 0, 100, 1]), closed);
    let (reason, answer) = failure(&[22, 3, 1, 0x41, 1]);
    assert_eq!(reason, HandshakeFailure::Protocol);
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 22], "record_overflow");
    let (reason, answer) = failure(&[22, 3, 1, 0, 4, 9, 9, 9, 9]);
    assert_eq!((reason, answer[5]), (HandshakeFailure::Protocol, 2));
}

#[test]
fn an_end_that_is_told_with_the_last_bytes_ends_a_handshake() {
    for bytes in [1, 40] {
        let (stream, mut client) = begun(&version::TLS13);
        let mut hello = Vec::new();
        client.tls.write_tls(&mut hello).unwrap();
        client.socket.write_all(&hello[..bytes]).unwrap();
        let mut peer = Peer::<()>::new(stream);
        peer.observe(Readiness::READABLE);
        assert_eq!(peer.handshake().unwrap(), Handshaking::Pending);
        client.socket.write_all(&hello[bytes..60]).unwrap();
        client.socket.shutdown(Shutdown::Write).unwrap();
        peer.observe(Readiness::READABLE.and(Readiness::READ_CLOSED));
        let error = peer.handshake().unwrap_err();
        assert_eq!(HandshakeFailure::of(&error), HandshakeFailure::Closed);
    }
}

#[test]
fn a_fault_glued_behind_the_handshake_is_told_by_an_alert() {
    let (mut stream, mut client) = begun(&version::TLS13);
    client.send();
    assert_eq!(stream.handshake().unwrap(), Handshaking::Pending);
    client.receive().unwrap();
    let mut finished = Vec::new();
    client.tls.write_tls(&mut finished).unwrap();
    finished.extend([23, 3, 3, 0, 17]);
    finished.extend([0; 17]);
    client.socket.write_all(&finished).unwrap();
    let error = stream.handshake().unwrap_err();
    assert_eq!(HandshakeFailure::of(&error), HandshakeFailure::Protocol);
    let expected = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
    assert_eq!(client.receive().unwrap_err(), expected);
}

#[test]
fn what_is_kept_behind_a_handshake_is_about_a_record() {
    let (mut stream, mut client) = begun(&version::TLS13);
    client.send();
    stream.handshake().unwrap();
    client.receive().unwrap();
    client.write(&vec![b'd'; 60_000]);
    while !matches!(stream.handshake().unwrap(), Handshaking::Agreed(_)) {}
    let kept = stream.beside.tls().and_then(|(tls, _)| tls.unread.as_ref());
    let kept = kept.map_or(0, |unread| unread.record.len() + unread.data.len());
    assert!(kept <= dwell_tls::RECORD_BYTES_MAX, "{kept}");
    assert_eq!(read_all(&mut stream, 99).unwrap().0.len(), 60_000);
}

#[test]
fn what_the_socket_takes_is_counted_in_its_own_bytes() {
    let (mut stream, mut client) = pair(&version::TLS13);
    stream.write(&vec![b'x'; 500_000]).unwrap();
    let mut event_loop = EventLoop::<()>::new().unwrap();
    let mut peer = Peer::<()>::new(stream);
    let pace = WritePace {
        rate_min: 0,
        timeout: Duration::from_secs(1),
    };
    let mut wire = vec![0; 1 << 20];
    // What was written before is read first.
    let mut read = client.socket.read(&mut wire).unwrap();
    for _ in 0..1000 {
        let context = event_loop.context();
        let progress = peer.flush(context, Token::new(0, 0, 0), pace).unwrap();
        if progress.left == Flushed::All && progress.sent == 0 {
            assert!(read > 500_000);
            return;
        }
        let came = client.socket.read(&mut wire).unwrap();
        assert_eq!(came as u64, progress.sent);
        read += came;
    }
    panic!("no end");
}

#[test]
fn what_tls_has_read_is_read_by_the_next_owner() {
    let (mut stream, mut client) = pair(&version::TLS13);
    client.write(b"two words");
    let mut buffer = [0; 3];
    assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::More(3));
    let peer = Peer::<()>::new(stream);
    let mut next = Peer::<()>::from(Detached::from(peer));
    assert!(next.is_unread());
    let mut rest = [0; 9];
    assert_eq!(next.read(&mut rest).unwrap(), 6);
    assert_eq!(&rest[..6], b" words");
    // The end was read with the last record.
    client.tls.writer().write_all(b"bye").unwrap();
    client.tls.send_close_notify();
    client.send();
    next.set_unread();
    assert_eq!(next.read(&mut rest).unwrap(), 3);
    let mut last = Peer::<()>::from(Detached::from(next));
    assert_eq!(last.read(&mut rest).unwrap(), 0);
    assert!(last.has_ended());
}
