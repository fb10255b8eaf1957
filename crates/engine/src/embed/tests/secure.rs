//! Clients under TLS that the host has accepted.

use super::*;
use crate::tls::Tls;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

const CERTIFICATE: &[u8] = include_bytes!("../../../../tls/tests/data/certificate.pem");
const KEY: &[u8] = include_bytes!("../../../../tls/tests/data/key.pem");

fn client(socket: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("dwell.test").unwrap();
    socket.set_read_timeout(Some(PATIENCE * 4)).unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::new(config), name).unwrap(),
        socket,
    )
}

/// An engine that serves one client, which another listener has accepted.
fn adopted(options: &Options) -> (Engine, u64, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut stream = Stream::from_descriptor(listener.accept().unwrap().0.into()).unwrap();
    let tls = Tls::builder().certificate_pem(CERTIFICATE, KEY).build();
    tls.unwrap().secure_stream(&mut stream);
    let mut engine = Engine::new(*options).unwrap();
    let name = engine.adopt(stream).unwrap();
    (engine, name, socket)
}

#[test]
fn an_adopted_client_speaks_tls_and_its_requests_say_so() {
    let (mut engine, name, socket) = adopted(&Options::default());
    let asking = thread::spawn(move || {
        let mut client = client(socket);
        let request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        client.write_all(request).unwrap();
        io::read_to_string(client).unwrap()
    });
    let mut batch = Batch::new();
    let deadline = Instant::now() + PATIENCE * 4;
    while engine.connections() > 0 {
        assert!(Instant::now() < deadline, "no end of the connection");
        engine.turn(Some(PATIENCE), &mut batch).unwrap();
        for event in batch.events() {
            let request = batch.request(event).unwrap();
            assert_eq!(event.other, name);
            let suite = request.suite_number().unwrap();
            assert!((0x1301..=0x1303).contains(&suite), "{suite:x}");
            assert_eq!(
                request.flags(),
                u32::from(suite) << 16 | request_flags::SECURE
            );
            let answer = Command {
                status: 200,
                bytes: b"sealed",
                ..Operation::Answer.on(event.handle)
            };
            engine.execute(&answer).unwrap();
        }
    }
    assert!(asking.join().unwrap().ends_with("\r\n\r\nsealed"));
}

#[test]
fn the_time_for_the_first_request_begins_behind_the_handshake() {
    let options = Options {
        first_request_timeout: Some(Duration::from_millis(50)),
        ..Options::default()
    };
    let (mut engine, _, socket) = adopted(&options);
    let mut batch = Batch::new();
    // No time passes for the engine between its turns, so this one ends by the limit of the test.
    let (sender, begins) = std::sync::mpsc::channel::<()>();
    let silent = thread::spawn(move || {
        begins.recv().unwrap();
        let mut client = client(socket);
        client.read(&mut [0; 1]).unwrap()
    });
    engine
        .turn(Some(Duration::from_millis(200)), &mut batch)
        .unwrap();
    engine.turn(Some(Duration::ZERO), &mut batch).unwrap();
    assert_eq!(
        engine.connections(),
        1,
        "the handshake has a time of its own"
    );
    sender.send(()).unwrap();
    let deadline = Instant::now() + PATIENCE * 4;
    while engine.connections() > 0 {
        assert!(
            Instant::now() < deadline,
            "the idle timeout is for connections in use"
        );
        engine
            .turn(Some(Duration::from_millis(100)), &mut batch)
            .unwrap();
    }
    assert_eq!(silent.join().unwrap(), 0, "closed in order");
}
