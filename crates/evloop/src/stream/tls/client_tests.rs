//! Streams as clients under TLS, with a server of rustls at the other end.

use super::tests::{CERTIFICATE, KEY, VERSIONS, read_all};
use crate::{ClientTls, Connector, Flushed, Handshaking, Peer, ReadOutcome, Readiness};
use crate::{Roots, Stream};
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

fn connector(host: &str) -> Connector {
    let roots = Roots::from_pem(CERTIFICATE).unwrap();
    let settings = ClientTls::new(&roots, None, &["http/1.1"]).unwrap();
    settings.connector(host).unwrap()
}

/// A server with a socket that does not wait.
struct Server {
    tls: ServerConnection,
    socket: UnixStream,
    read: Vec<u8>,
}

impl Server {
    fn new(socket: UnixStream, version: &'static SupportedProtocolVersion) -> Self {
        socket.set_nonblocking(true).unwrap();
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

fn shake(stream: &mut Stream, server: &mut Server) -> io::Result<()> {
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
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
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
