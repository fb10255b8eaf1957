//! Servers under TLS: connections, their ends, and what is wrong with them.

use super::harness::{App, Edge, OK, ok, read_request, read_to_end};
use crate::{UpstreamError, UpstreamOptions};
use dwell_evloop::{ClientTls, Connector, HandshakeCounts, HandshakeFailure, Roots};
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion, version};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const CERTIFICATE: &[u8] = include_bytes!("../../../tls/tests/data/certificate.pem");
const KEY: &[u8] = include_bytes!("../../../tls/tests/data/key.pem");

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

type Secure = StreamOwned<ServerConnection, TcpStream>;

fn connector(host: &str) -> Connector {
    let roots = Roots::from_pem(CERTIFICATE).unwrap();
    let settings = ClientTls::new(&roots, None, &["http/1.1"]).unwrap();
    settings.connector(host).unwrap()
}

/// An application under TLS that does as told with each connection, and a client for it.
fn app(
    version: &'static SupportedProtocolVersion,
    script: impl Fn(usize, &mut Secure) + Send + Sync + 'static,
) -> (App, Edge) {
    let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(KEY).unwrap())
        .unwrap();
    let config = Arc::new(config);
    let app = App::new(move |number, stream| {
        let server = ServerConnection::new(Arc::clone(&config)).unwrap();
        let stream = stream.try_clone().unwrap();
        script(number, &mut StreamOwned::new(server, stream));
    });
    let edge = Edge::new(secured(&app, "localhost"));
    (app, edge)
}

fn secured(app: &App, host: &str) -> UpstreamOptions {
    UpstreamOptions {
        tls: Some(connector(host)),
        ..app.options.clone()
    }
}

fn close(stream: &mut Secure) {
    stream.conn.send_close_notify();
    stream.flush().unwrap();
}

#[test]
fn requests_share_a_connection_under_tls() {
    for version in VERSIONS {
        let (app, mut edge) = app(version, |_, stream| {
            while read_request(stream).is_some() {
                stream.write_all(OK).unwrap();
            }
        });
        for tag in 0..4 {
            assert_eq!(edge.ask(tag, ["GET", "POST"][tag as usize % 2]), ok(b"ok"));
        }
        assert_eq!(app.connections(), 1);
        let handshakes = &edge.driver.upstream.handshakes;
        assert_eq!((handshakes.done(), handshakes.failed().next()), (1, None));
    }
}

/// No handshake has begun with a server that does not connect.
#[test]
fn a_refused_connection_is_no_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut edge = Edge::new(UpstreamOptions {
        tls: Some(connector("localhost")),
        ..UpstreamOptions::new(address)
    });
    assert!(matches!(edge.ask(0, "GET"), Err(UpstreamError::Connect(_))));
    assert_eq!(edge.driver.upstream.handshakes, HandshakeCounts::default());
}

#[test]
fn a_connection_that_its_server_has_closed_is_not_used_again() {
    let (app, mut edge) = app(VERSIONS[0], |_, stream| {
        read_request(stream);
        stream.write_all(OK).unwrap();
        close(stream);
        read_to_end(&mut stream.sock);
    });
    for tag in 0..3 {
        assert_eq!(edge.ask(tag, "POST"), ok(b"ok"));
        edge.turn_until(|driver| driver.upstream.connections() == 0);
    }
    assert_eq!(app.connections(), 3);
}

/// The plain bytes of a record that has only begun are none, but something was said.
#[test]
fn a_connection_with_a_begun_record_behind_the_answer_is_not_used_again() {
    const BEGUN: &[u8] = &[23, 3, 3, 0, 100, 7];
    for is_together in [true, false] {
        let (app, mut edge) = app(VERSIONS[0], move |_, stream| {
            read_request(stream);
            stream.conn.writer().write_all(OK).unwrap();
            let mut wire = Vec::new();
            while stream.conn.wants_write() {
                stream.conn.write_tls(&mut wire).unwrap();
            }
            if is_together {
                wire.extend_from_slice(BEGUN);
            }
            stream.sock.write_all(&wire).unwrap();
            if !is_together {
                stream.sock.write_all(BEGUN).unwrap();
            }
            read_to_end(&mut stream.sock);
        });
        for tag in 0..2 {
            assert_eq!(edge.ask(tag, ["GET", "POST"][tag as usize]), ok(b"ok"));
            edge.turn_until(|driver| driver.upstream.connections() == 0);
        }
        assert_eq!(app.connections(), 2);
    }
}

#[test]
fn an_answer_of_unknown_length_has_an_end_that_is_told() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
    for version in VERSIONS {
        let (_app, mut edge) = app(version, |number, stream| {
            read_request(stream);
            stream.write_all(HEAD).unwrap();
            stream.write_all(b"body").unwrap();
            stream.flush().unwrap();
            if number == 0 {
                close(stream);
            }
        });
        assert_eq!(edge.ask(0, "POST"), ok(b"body"));
        assert_eq!(edge.ask(1, "POST"), Err(UpstreamError::Closed));
    }
    // The end of one whose length is known need not be told.
    let (_app, mut edge) = app(VERSIONS[0], |_, stream| {
        read_request(stream);
        stream.write_all(OK).unwrap();
    });
    assert_eq!(edge.ask(0, "POST"), ok(b"ok"));
}

#[test]
fn an_end_that_comes_with_the_handshake_is_noticed() {
    let (app, _) = app(VERSIONS[1], |_, stream| {
        let Secure { conn, sock } = stream;
        while conn.is_handshaking() {
            while conn.wants_write() {
                conn.write_tls(sock).unwrap();
            }
            conn.read_tls(sock).unwrap();
            conn.process_new_packets().unwrap();
        }
        // The server's last message and an answer of more than a record go at once, with the end.
        let answer = [b"HTTP/1.1 200 OK\r\n\r\n", &vec![b'x'; 20_000][..]].concat();
        conn.writer().write_all(&answer).unwrap();
        let mut wire = Vec::new();
        while conn.wants_write() {
            conn.write_tls(&mut wire).unwrap();
        }
        sock.write_all(&wire).unwrap();
        sock.shutdown(Shutdown::Write).unwrap();
        read_to_end(sock);
    });
    let mut edge = Edge::new(UpstreamOptions {
        total_timeout: Duration::from_secs(3),
        ..secured(&app, "localhost")
    });
    assert_eq!(edge.ask(0, "POST"), Err(UpstreamError::Closed));
}

#[test]
fn a_server_whose_certificate_is_for_others_is_told_nothing() {
    let (app, _) = app(VERSIONS[0], |_, stream| {
        assert_eq!(read_request(stream), None);
    });
    let mut edge = Edge::new(secured(&app, "app.test"));
    let error = edge.ask(0, "GET").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no TLS handshake: certificate of app.test is refused: \
         it is for other names: dwell.test, localhost, 127.0.0.1"
    );
    assert_eq!(error.status(), 502);
}

#[test]
fn a_handshake_that_goes_wrong_has_its_reason() {
    let reason = |app: &App| {
        Edge::new(secured(app, "localhost"))
            .ask(0, "GET")
            .unwrap_err()
    };
    let plain = App::new(|_, stream| {
        let mut hello = [0; 16];
        assert!(stream.read(&mut hello).unwrap() > 0);
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        read_to_end(stream);
    });
    let expected = UpstreamError::Handshake("localhost does not speak TLS".into());
    assert_eq!(reason(&plain), expected);
    let closing = App::new(|_, stream| {
        let mut header = [0; 5];
        stream.read_exact(&mut header).unwrap();
        let length = u16::from_be_bytes([header[3], header[4]]);
        let mut hello = vec![0; usize::from(length)];
        stream.read_exact(&mut hello).unwrap();
    });
    let expected = UpstreamError::Handshake("connection closed by the server".into());
    assert_eq!(reason(&closing), expected);
    let breaking = App::new(|_, stream| {
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        // Its end comes with the beginning of a record.
        stream.write_all(&[22, 3, 3, 0, 100, 2]).unwrap();
    });
    assert_eq!(reason(&breaking), expected);
    let refusing = App::new(|_, stream| {
        stream.write_all(&[21, 3, 3, 0, 2, 2, 70]).unwrap();
        read_to_end(stream);
    });
    let expected = "no TLS handshake: refused: received fatal alert: ProtocolVersion";
    assert_eq!(reason(&refusing).to_string(), expected);
}

#[test]
fn a_handshake_is_within_the_time_to_connect() {
    let silent = App::new(|_, stream| read_to_end(stream));
    let connect_timeout = Duration::from_millis(50);
    let mut edge = Edge::new(UpstreamOptions {
        connect_timeout,
        ..secured(&silent, "localhost")
    });
    let expected = UpstreamError::ConnectTimeout(connect_timeout);
    assert_eq!(edge.ask(0, "GET"), Err(expected));
    let late: Vec<_> = edge.driver.upstream.handshakes.failed().collect();
    assert_eq!(late, [(HandshakeFailure::Late, 1)]);
}

#[test]
fn a_record_that_was_altered_is_the_reason() {
    let (_app, mut edge) = app(VERSIONS[0], |_, stream| {
        read_request(stream);
        let record = [&[23, 3, 3, 0, 32][..], &[7; 32]].concat();
        stream.sock.write_all(&record).unwrap();
        read_to_end(&mut stream.sock);
    });
    let expected = UpstreamError::Tls("record cannot be decrypted".into());
    assert_eq!(edge.ask(0, "POST"), Err(expected));
}
