//! Streams as clients under TLS, with a server of rustls at the other end.

use super::tests::{CERTIFICATE, KEY, VERSIONS, read_all};
use crate::{ClientTls, Connector, Flushed, Handshaking, Peer, ReadOutcome, Readiness};
use crate::{Roots, Stream};
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

fn connector(host: &str) -> Connector {
    let roots = Roots::from_pem(CERTIFICATE).unwrap();
    let settings = ClientTls::new(&roots, None, &["http/1.1"]).unwrap();
    settings.connector(host).unwrap()
}

/// A server with a socket that does not wait.
struct Server<S = UnixStream> {
    tls: ServerConnection,
    socket: S,
    read: Vec<u8>,
}

impl Server {
    fn new(socket: UnixStream, version: &'static SupportedProtocolVersion) -> Self {
        socket.set_nonblocking(true).unwrap();
        Self::on(socket, version)
    }
}

impl<S: Read + Write> Server<S> {
    fn on(socket: S, version: &'static SupportedProtocolVersion) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let tls = ServerConnection::new(Arc::new(config)).unwrap();
        let read = Vec::new();
        Self { tls, socket, read }
    }

    /// Reads what has come, puts it behind what was read before, and writes what is to be sent.
    fn serve(&mut self) -> Result<(), rustls::Error> {
        while let Ok(1..) = self.tls.read_tls(&mut self.socket) {
            let state = self.tls.process_new_packets();
            self.send();
            let mut part = vec![0; state?.plaintext_bytes_to_read()];
            self.tls.reader().read_exact(&mut part).unwrap();
            self.read.append(&mut part);
        }
        Ok(())
    }

    fn send(&mut self) {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket).unwrap();
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        self.send();
    }
}

fn begun(host: &str, version: &'static SupportedProtocolVersion) -> (Stream, Server) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut stream = Stream::from_descriptor(ours.into()).unwrap();
    assert!(!stream.is_cut_off());
    stream.secure_client(&connector(host)).unwrap();
    assert!(stream.is_secure() && stream.is_handshaking() && stream.is_cut_off());
    (stream, Server::new(theirs, version))
}

fn shake<S: Read + Write>(stream: &mut Stream, server: &mut Server<S>) -> io::Result<()> {
    for _ in 0..9 {
        if stream.handshake()? == Handshaking::Done {
            return Ok(());
        }
        // What the client finds wrong is an error of the server's next.
        let _ = server.serve();
    }
    panic!("no end");
}

fn pair(version: &'static SupportedProtocolVersion) -> (Stream, Server) {
    let (mut stream, mut server) = begun("dwell.test", version);
    shake(&mut stream, &mut server).unwrap();
    (stream, server)
}

#[test]
fn a_client_speaks_both_ways_and_hears_the_end() {
    for version in VERSIONS {
        let (mut stream, mut server) = pair(version);
        stream.write(b"request").unwrap();
        server.serve().unwrap();
        assert_eq!(server.read, b"request");
        let answer: Vec<u8> = (0..100_000_u32).map(|at| (at * 7) as u8).collect();
        let mut read = Vec::new();
        for part in answer.chunks(50_000) {
            server.write(part);
            read.extend(read_all(&mut stream, 1_000).unwrap().0);
        }
        assert!(read == answer);
        assert!(stream.is_cut_off());
        server.tls.send_close_notify();
        server.send();
        assert_eq!(stream.read(&mut [0]).unwrap(), ReadOutcome::Closed);
        assert!(!stream.is_cut_off());
    }
}

#[test]
fn tickets_alone_are_nothing_to_read() {
    let (mut stream, mut server) = pair(VERSIONS[0]);
    server.serve().unwrap();
    // Room for one byte, as when an unused connection is looked at.
    assert_eq!(stream.read(&mut [0]).unwrap(), ReadOutcome::WouldBlock);
    let (ours, mut server) = begun("dwell.test", VERSIONS[0]);
    let mut peer = Peer::<()>::new(ours);
    for _ in 0..9 {
        peer.observe(Readiness::READABLE);
        assert_eq!(peer.read(&mut [0; 9]).unwrap(), 0);
        assert!(!peer.is_unread());
        server.serve().unwrap();
    }
    assert!(!peer.stream.is_handshaking());
}

#[test]
fn an_answer_that_is_cut_off_is_told_apart() {
    for version in VERSIONS {
        let (mut stream, mut server) = pair(version);
        server.serve().unwrap();
        server.write(b"half");
        drop(server);
        assert_eq!(read_all(&mut stream, 99).unwrap().0, b"half");
        assert_eq!(stream.read(&mut [0]).unwrap(), ReadOutcome::Closed);
        assert!(stream.is_cut_off());
    }
}

#[test]
fn a_server_is_refused_in_words() {
    let (mut stream, mut server) = begun("elsewhere.test", VERSIONS[0]);
    let error = shake(&mut stream, &mut server).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let text = error.to_string();
    assert!(
        text.starts_with("certificate of elsewhere.test is refused: "),
        "{text}"
    );
    let alert = rustls::AlertDescription::BadCertificate;
    assert_eq!(
        server.serve().unwrap_err(),
        rustls::Error::AlertReceived(alert)
    );
    assert!(stream.read(&mut [0]).is_err(), "it stays failed");
    let (mut stream, mut server) = begun("dwell.test", VERSIONS[0]);
    stream.handshake().unwrap();
    server
        .socket
        .write_all(b"HTTP/1.1 400 Bad Request\r\n")
        .unwrap();
    let error = stream.handshake().unwrap_err();
    assert_eq!(error.to_string(), "dwell.test does not speak TLS");
    assert!(stream.is_secure(), "nothing goes around TLS");
    let (mut stream, mut server) = begun("dwell.test", VERSIONS[0]);
    stream.handshake().unwrap();
    assert!(server.socket.read(&mut [0; 16_384]).unwrap() > 0);
    drop(server);
    let error = stream.handshake().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_connection_is_made_under_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut stream = Stream::connect(address).unwrap();
    stream.secure_client(&connector("127.0.0.1")).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    while stream.connect_error().unwrap().is_some() {}
    assert_eq!(stream.handshake().unwrap(), Handshaking::Pending);
    let (theirs, mut ours) = UnixStream::pair().unwrap();
    let mut server = Server::new(theirs, VERSIONS[0]);
    let mut hello = [0; 16_384];
    let read = socket.read(&mut hello).unwrap();
    ours.write_all(&hello[..read]).unwrap();
    server.serve().unwrap();
    let flight = ours.read(&mut hello).unwrap();
    socket.write_all(&hello[..flight]).unwrap();
    while stream.handshake().unwrap() == Handshaking::Pending {}
    assert_eq!(stream.flush().unwrap(), Flushed::All);
}

/// The first bytes are out when the connection turns out to have ended: whether it may be sent
/// again is for the writer to judge, who would take an error for "nothing was sent".
#[test]
fn a_write_that_fails_behind_its_first_bytes_is_an_error_of_the_next_flush() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut stream = Stream::from_descriptor(ours.into()).unwrap();
    stream.secure_client(&connector("dwell.test")).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut server = Server::on(theirs, VERSIONS[0]);
    shake(&mut stream, &mut server).unwrap();
    server.serve().unwrap();
    // It answers the first bytes by a reset.
    drop(server);
    stream
        .write_shared(&[], vec![b'x'; 300_000].into())
        .unwrap();
    assert!(stream.queued_bytes() > 200_000);
    let failed = (0..9).find_map(|_| stream.flush().err());
    assert!(failed.is_some());
}

/// The lengths of the records that the socket has.
fn lengths(socket: &mut UnixStream) -> Vec<usize> {
    let mut wire = vec![0; 1 << 20];
    let read = socket.read(&mut wire).unwrap();
    let (mut left, mut lengths) = (&wire[..read], Vec::new());
    while let [_, _, _, high, low, ..] = *left {
        let length = usize::from(u16::from_be_bytes([high, low]));
        // The type of the content, and the tag.
        lengths.push(length - 17);
        left = &left[5 + length..];
    }
    lengths
}

#[test]
fn the_last_byte_of_several_records_may_have_one_of_its_own() {
    let (mut stream, mut server) = pair(VERSIONS[0]);
    server.serve().unwrap();
    stream.write(&vec![b'x'; 20_000]).unwrap();
    assert_eq!(lengths(&mut server.socket), [16_384, 3_616]);
    stream.end_writes_alone();
    stream.write(&[b'x'; 16_384]).unwrap();
    assert_eq!(lengths(&mut server.socket), [16_384]);
    stream.write(&vec![b'x'; 20_000]).unwrap();
    assert_eq!(lengths(&mut server.socket), [16_384, 3_615, 1]);
    // A step of a longer write begins anywhere.
    let bytes = vec![b'x'; 65_536 + 9];
    stream
        .write_shared(&bytes[..65_535], bytes[65_535..].to_vec().into())
        .unwrap();
    let steps = [16_384, 16_384, 16_384, 16_383, 1, 8, 1];
    assert_eq!(lengths(&mut server.socket), steps);
    // So does what was refused.
    let mut written = 0;
    while stream.is_flushed() {
        stream.write(&[b'x'; 10_000]).unwrap();
        written += 10_000;
    }
    stream.write(&[b'x'; 10]).unwrap();
    let mut read = Vec::new();
    while read.iter().sum::<usize>() < written + 10 {
        stream.flush().unwrap();
        read.extend(lengths(&mut server.socket));
    }
    assert_eq!(read[read.len() - 2..], [9, 1]);
}
