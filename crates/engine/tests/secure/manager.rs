//! `Manager` with both ends under TLS.

use crate::support::{CERTIFICATE, KEY, PATIENCE, ask, data, get};
use dwell_engine::manager::{Event, Manager, ManagerError, UrlError};
use dwell_engine::tls::{Tls, TlsClient, TlsError};
use dwell_engine::websocket::UpgradeOptions;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, version};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

fn tls() -> Tls {
    let builder = Tls::builder().certificate_pem(CERTIFICATE, KEY);
    builder.build().unwrap()
}

fn trusting() -> TlsClient {
    let builder = TlsClient::builder().ca_file(data("certificate.pem"));
    builder.build().unwrap()
}

/// A manager that answers, upgrades and echoes, and tells what its clients are told.
fn manager() -> (Manager, Receiver<String>) {
    let (tell, told) = channel();
    let manager = Manager::new(move |conn, event| {
        let is_client = conn.is_client();
        match event {
            Event::Connect => tell
                .send(format!("connected {}", conn.is_secure()))
                .unwrap(),
            Event::HttpMessage(message) if is_client => {
                tell.send(format!("response {}", message.body().len()))
                    .unwrap();
            }
            Event::HttpMessage(message) if message.path() == "/socket" => {
                let upgraded = conn.ws_upgrade(&message, &UpgradeOptions::default());
                upgraded.unwrap();
            }
            Event::HttpMessage(message) => {
                assert!(conn.is_secure());
                let body = [message.body(), &vec![b'x'; 900_000]].concat();
                conn.reply(200, &[], &body).unwrap();
            }
            Event::WebSocketOpen if is_client => conn.ws_text("hello").unwrap(),
            Event::WebSocketMessage { data, .. } if is_client => {
                tell.send(format!("message {}", String::from_utf8_lossy(data)))
                    .unwrap();
            }
            Event::WebSocketMessage { .. } => conn.ws_text("welcome").unwrap(),
            Event::Read { data, .. } if is_client && !data.is_empty() => {
                tell.send(format!("bytes {}", data.len())).unwrap();
            }
            Event::Read { data, .. } if !data.is_empty() => conn.send(data).unwrap(),
            Event::Error(text) if is_client => tell.send(format!("error {text}")).unwrap(),
            _ => {}
        }
    });
    (manager.unwrap(), told)
}

fn listening(manager: &mut Manager, scheme: &str) -> SocketAddr {
    let url = format!("{scheme}://127.0.0.1:0");
    let listener = manager.listen_tls(&url, &tls()).unwrap();
    let mut conn = manager.conn(listener).unwrap();
    assert!(conn.is_secure());
    conn.local_address().unwrap()
}

fn next(manager: &mut Manager, told: &Receiver<String>) -> String {
    let begun = Instant::now();
    loop {
        if let Ok(text) = told.try_recv() {
            return text;
        }
        assert!(begun.elapsed() < PATIENCE);
        manager.poll(Duration::from_millis(50)).unwrap();
    }
}

#[test]
fn requests_go_both_ways() {
    let (mut manager, told) = manager();
    let address = listening(&mut manager, "https");
    // By name: the certificate is for this one too.
    let url = format!("https://localhost:{}", address.port());
    let id = manager.connect_tls(&url, &trusting()).unwrap();
    assert_eq!(next(&mut manager, &told), "connected true");
    let body = vec![b'y'; 300_000];
    let mut conn = manager.conn(id).unwrap();
    conn.request("POST", "/", &[], &body).unwrap();
    assert_eq!(next(&mut manager, &told), "response 1200000");
    let client = thread::spawn(move || ask(address, get("/")));
    while !client.is_finished() {
        manager.poll(Duration::from_millis(10)).unwrap();
    }
    assert!(client.join().unwrap().len() > 900_000);
}

#[test]
fn web_sockets_go_both_ways() {
    let (mut manager, told) = manager();
    let address = listening(&mut manager, "wss");
    let url = format!("wss://{address}/socket");
    manager.ws_connect_tls(&url, &trusting()).unwrap();
    assert_eq!(next(&mut manager, &told), "connected true");
    assert_eq!(next(&mut manager, &told), "message welcome");
}

#[test]
fn bytes_go_both_ways() {
    let (mut manager, told) = manager();
    let address = listening(&mut manager, "https");
    let url = format!("tls://{address}");
    let id = manager.connect_tls(&url, &trusting()).unwrap();
    assert_eq!(next(&mut manager, &told), "connected true");
    let request = get("/");
    let mut conn = manager.conn(id).unwrap();
    conn.send(request.as_bytes()).unwrap();
    assert!(next(&mut manager, &told).starts_with("bytes "));
}

#[test]
fn a_server_that_is_not_trusted_is_named_with_the_reason() {
    let (mut manager, told) = manager();
    let address = listening(&mut manager, "https");
    let other = TlsClient::builder().ca_file(data("other.pem"));
    let url = format!("https://{address}");
    manager.connect_tls(&url, &other.build().unwrap()).unwrap();
    let error = next(&mut manager, &told);
    assert!(error.starts_with("error handshake failed: "), "{error}");
    assert!(error.contains("127.0.0.1"), "{error}");
    let misnamed = TlsClient::builder().ca_pem(CERTIFICATE);
    let misnamed = misnamed.server_name("elsewhere.test").build().unwrap();
    manager.connect_tls(&url, &misnamed).unwrap();
    let error = next(&mut manager, &told);
    assert!(error.contains("elsewhere.test"), "{error}");
}

#[test]
fn a_server_that_refuses_is_told_with_its_reason() {
    let (mut manager, told) = manager();
    for (answer, reason) in [
        (
            &[21, 3, 3, 0, 2, 2, 70][..],
            "refused: received fatal alert: ProtocolVersion",
        ),
        (&[], "connection closed by the server"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(answer).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        manager.connect_tls(&url, &trusting()).unwrap();
        let expected = format!("error handshake failed: {reason}");
        assert_eq!(next(&mut manager, &told), expected);
        server.join().unwrap();
    }
}

/// In TLS 1.3 a server refuses a client's certificate, or that there is none, behind the handshake.
#[test]
fn a_refusal_behind_the_handshake_is_told_with_its_reason() {
    let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    let provider = Arc::new(provider::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(KEY).unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        let _ = tls.complete_io(&mut stream).unwrap_err();
        while tls.wants_write() {
            tls.write_tls(&mut stream).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (mut manager, told) = manager();
    let url = format!("tls://{address}");
    manager.connect_tls(&url, &trusting()).unwrap();
    assert_eq!(next(&mut manager, &told), "connected true");
    let alert = "peer ended the connection with alert 116 (CertificateRequired)";
    let expected = format!("error tls failed: {alert}");
    assert_eq!(next(&mut manager, &told), expected);
    server.join().unwrap();
}

#[test]
fn urls_and_certificates_have_to_agree() {
    let (mut manager, _told) = manager();
    let fault = |error: ManagerError| match error {
        ManagerError::Url { fault, .. } => fault,
        other => panic!("{other}"),
    };
    let error = manager.listen("https://127.0.0.1:0").unwrap_err();
    assert_eq!(fault(error), UrlError::Tls);
    let error = manager
        .listen_tls("http://127.0.0.1:0", &tls())
        .unwrap_err();
    assert_eq!(fault(error), UrlError::Plain);
    let error = manager.listen_tls("tls://127.0.0.1:0", &tls()).unwrap_err();
    assert_eq!(fault(error), UrlError::Plain);
    let error = manager.connect_tls("http://127.0.0.1:9", &trusting());
    assert_eq!(fault(error.unwrap_err()), UrlError::Plain);
    assert!(manager.connections().is_empty());
    let missing = TlsClient::builder().ca_file(data("missing.pem")).build();
    assert!(matches!(missing, Err(TlsError::Read { .. })));
    let empty = tempfile::NamedTempFile::new().unwrap();
    fs::write(empty.path(), "nothing").unwrap();
    let nothing = TlsClient::builder().ca_file(empty.path()).build();
    let text = nothing.unwrap_err().to_string();
    assert!(text.contains("no certificate in the file"), "{text}");
    let nameless = TlsClient::builder().ca_pem(CERTIFICATE).server_name("a b");
    assert!(matches!(nameless.build(), Err(TlsError::Name(_))));
}
