//! Handshakes with servers of rustls, and what they leave.

use super::{CERTIFICATE, KEY, bytes, ends, opened, pieces, record};
use crate::content::{DATA, HANDSHAKE};
use crate::session::Peer;
use crate::{
    Certificate, CertificateError, ClientTls, Connector, Established, HandshakeError, Keys, Roots,
    Suite, TlsError,
};
use proptest::prelude::*;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, SupportedCipherSuite, SupportedProtocolVersion,
    version,
};
use std::io::{Read, Write};
use std::sync::Arc;

const OTHER_CERTIFICATE: &[u8] = include_bytes!("../../tests/data/other.pem");
const OTHER_KEY: &[u8] = include_bytes!("../../tests/data/other_key.pem");
const EXPIRED: &[u8] = include_bytes!("../../tests/data/expired.pem");
/// A self-signed certificate of an authority for `pinned.test`, as many tools make them.
const PINNED: &[u8] = include_bytes!("../../tests/data/pinned.pem");
const PINNED_KEY: &[u8] = include_bytes!("../../tests/data/pinned_key.pem");
const PINNED_EXPIRED: &[u8] = include_bytes!("../../tests/data/pinned_expired.pem");
/// A certificate for `issued.test` and the key of `OTHER_CERTIFICATE`, issued with the key of
/// `CERTIFICATE`, which is not that of an authority.
const ISSUED: &[u8] = include_bytes!("../../tests/data/issued.pem");

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

/// A server that asks for the certificate of `client`, if there is one.
fn server_of(
    suites: &[SupportedCipherSuite],
    versions: &[&'static SupportedProtocolVersion],
    (certificate, key): (&[u8], &[u8]),
    client: Option<&[u8]>,
) -> ServerConfig {
    let mut provider = provider::default_provider();
    if !suites.is_empty() {
        provider.cipher_suites = suites.to_vec();
    }
    let provider = Arc::new(provider);
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap();
    let config = match client {
        None => config.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_slice(pem).unwrap())
                .unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            config.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
    let mut config = config
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key).unwrap())
        .unwrap();
    config.ticketer = provider::Ticketer::new().unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

fn server(versions: &[&'static SupportedProtocolVersion]) -> Arc<ServerConfig> {
    Arc::new(server_of(&[], versions, (CERTIFICATE, KEY), None))
}

fn connector(roots: &[u8], host: &str) -> Connector {
    let roots = Roots::from_pem(roots).unwrap();
    let settings = ClientTls::new(&roots, None, &["http/1.1"]).unwrap();
    settings.connector(host).unwrap()
}

fn sent(server: &mut ServerConnection) -> Vec<u8> {
    let mut wire = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut wire).unwrap();
    }
    wire
}

fn give(server: &mut ServerConnection, mut wire: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut data = Vec::new();
    while !wire.is_empty() {
        server.read_tls(&mut wire).unwrap();
        let state = server.process_new_packets()?;
        let mut part = vec![0; state.plaintext_bytes_to_read()];
        server.reader().read_exact(&mut part).unwrap();
        data.append(&mut part);
    }
    Ok(data)
}

/// The rest of a handshake, the server at its other end, and input that was not used.
type Begun = (Established, ServerConnection, Vec<u8>);

/// Brings a handshake to its end, in pieces of this size.
fn finish(
    connector: &Connector,
    config: &Arc<ServerConfig>,
    piece: usize,
) -> Result<Begun, HandshakeError> {
    let mut server = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut handshake = connector.begin().unwrap();
    let mut input = Vec::new();
    for _ in 0..9 {
        let mut out = Vec::new();
        handshake.transmit(&mut out);
        // What a server finds wrong is what it sends next.
        let _ = give(&mut server, &out);
        if handshake.is_done() {
            return Ok((handshake.finish()?, server, input));
        }
        let wire = sent(&mut server);
        for part in wire.chunks(piece) {
            input.extend_from_slice(part);
            let received = handshake.receive(&input);
            if let Err(error) = received {
                let mut out = Vec::new();
                handshake.transmit(&mut out);
                assert!(give(&mut server, &out).is_err(), "the server is told");
                return Err(error);
            }
            input.drain(..received?);
        }
    }
    panic!("no end");
}

/// Speaks both ways over what a handshake has left, with the tickets that come first.
fn speak(begun: &mut Begun) {
    let (established, server, input) = begun;
    let mut keys = Keys::new(2);
    let mut out = Vec::new();
    let request = vec![b'r'; 40_000];
    let parts: [&[u8]; 2] = [b"head", &request];
    let sealed = established.seal(&mut keys, &parts, &mut out).unwrap();
    assert_eq!(sealed, 40_004);
    assert!(give(server, &out).unwrap() == parts.concat());
    server.writer().write_all(b"answer").unwrap();
    input.extend(sent(server));
    let opened = established.open(&mut keys, input).unwrap();
    assert_eq!(
        (&input[..opened.data], opened.used),
        (&b"answer"[..], input.len())
    );
    server.send_close_notify();
    let mut wire = sent(server);
    established.open(&mut keys, &mut wire).unwrap();
    assert!(established.is_ended());
    out.clear();
    established.close(&mut keys, &mut out).unwrap();
    assert!(give(server, &out).is_ok());
    assert!(server.process_new_packets().unwrap().peer_has_closed());
}

#[test]
fn an_answer_is_read_behind_the_tickets_of_its_server() {
    for (version, is_tls13) in [(VERSIONS[0], true), (VERSIONS[1], false)] {
        for piece in [1, 7, 100_000] {
            let connector = connector(CERTIFICATE, "dwell.test");
            let mut begun = finish(&connector, &server(&[version]), piece).unwrap();
            assert_eq!(begun.1.alpn_protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(begun.1.server_name(), Some("dwell.test"));
            assert_eq!(matches!(begun.0, Established::Tls13(_)), is_tls13);
            speak(&mut begun);
        }
    }
}

#[test]
fn all_suites_are_taken() {
    for suite in super::SUITES {
        let config = server_of(&[suite.1], &[&version::TLS13], (CERTIFICATE, KEY), None);
        let connector = connector(CERTIFICATE, "localhost");
        let mut begun = finish(&connector, &Arc::new(config), 100_000).unwrap();
        assert!(matches!(&begun.0, Established::Tls13(session) if session.suite() == suite.0));
        speak(&mut begun);
    }
}

#[test]
fn an_address_is_a_name_too() {
    let connector = connector(CERTIFICATE, "127.0.0.1");
    let mut begun = finish(&connector, &server(&VERSIONS), 100_000).unwrap();
    assert_eq!(begun.1.server_name(), None);
    speak(&mut begun);
    let roots = Roots::from_pem(CERTIFICATE).unwrap();
    let settings = ClientTls::new(&roots, None, &[]).unwrap();
    assert!(settings.connector("::1").is_ok());
    for wrong in ["", "[::1]", "a b", "host:443", "-.test"] {
        let error = settings.connector(wrong).unwrap_err();
        let expected = format!("neither a host name nor an address: {wrong}");
        assert_eq!(error.to_string(), expected);
    }
}

/// The reason for which a server is refused.
fn refused(connector: &Connector, certificate: &[u8], key: &[u8]) -> String {
    let config = server_of(&[], &VERSIONS, (certificate, key), None);
    let error = finish(connector, &Arc::new(config), 100_000).unwrap_err();
    assert!(
        matches!(error, HandshakeError::Certificate { .. }),
        "{error:?}"
    );
    error.to_string()
}

#[test]
fn a_certificate_is_refused_with_host_and_reason() {
    assert_eq!(
        refused(&connector(CERTIFICATE, "elsewhere.test"), CERTIFICATE, KEY),
        "certificate of elsewhere.test is refused: it is for other names: \
         dwell.test, localhost, 127.0.0.1"
    );
    let all = [CERTIFICATE, EXPIRED, PINNED, PINNED_EXPIRED].concat();
    let expired = refused(&connector(&all, "dwell.test"), EXPIRED, KEY);
    let begin = "certificate of dwell.test is refused: it has expired ";
    assert!(expired.starts_with(begin), "{expired}");
    assert!(expired.ends_with(" days ago"), "{expired}");
    for (certificate, key, host) in [
        (OTHER_CERTIFICATE, OTHER_KEY, "other.test"),
        (PINNED, PINNED_KEY, "pinned.test"),
    ] {
        let expected =
            format!("certificate of {host} is refused: it is self-signed and not trusted");
        assert_eq!(
            refused(&connector(CERTIFICATE, host), certificate, key),
            expected
        );
    }
}

#[test]
fn a_self_signed_certificate_of_an_authority_is_trusted_for_its_names() {
    let config = Arc::new(server_of(&[], &VERSIONS, (PINNED, PINNED_KEY), None));
    let mut begun = finish(&connector(PINNED, "pinned.test"), &config, 100_000).unwrap();
    speak(&mut begun);
    let wrong = refused(&connector(PINNED, "dwell.test"), PINNED, PINNED_KEY);
    assert!(
        wrong.contains("it is for other names: pinned.test"),
        "{wrong}"
    );
    let roots = [PINNED, PINNED_EXPIRED].concat();
    let expired = refused(
        &connector(&roots, "pinned.test"),
        PINNED_EXPIRED,
        PINNED_KEY,
    );
    assert!(expired.contains("it has expired"), "{expired}");
}

#[test]
fn a_certificate_of_a_server_is_trusted_for_that_server_alone() {
    let config = Arc::new(server_of(&[], &VERSIONS, (ISSUED, OTHER_KEY), None));
    let mut begun = finish(&connector(ISSUED, "issued.test"), &config, 100_000).unwrap();
    speak(&mut begun);
    let wrong = refused(&connector(ISSUED, "dwell.test"), ISSUED, OTHER_KEY);
    assert!(
        wrong.contains("it is for other names: issued.test"),
        "{wrong}"
    );
    // The key of a server vouches for no other one.
    assert_eq!(
        refused(&connector(CERTIFICATE, "issued.test"), ISSUED, OTHER_KEY),
        "certificate of issued.test is refused: its issuer is not trusted"
    );
}

#[test]
fn a_server_that_asks_is_shown_a_certificate() {
    let config = server_of(&[], &VERSIONS, (CERTIFICATE, KEY), Some(OTHER_CERTIFICATE));
    let config = Arc::new(config);
    let roots = Roots::from_pem(CERTIFICATE).unwrap();
    let identity = Certificate::from_pem(OTHER_CERTIFICATE, OTHER_KEY).unwrap();
    let settings = ClientTls::new(&roots, Some(&identity), &[]).unwrap();
    let connector = settings.connector("dwell.test").unwrap();
    let mut begun = finish(&connector, &config, 100_000).unwrap();
    let shown = begun.1.peer_certificates().unwrap()[0].clone();
    assert_eq!(
        shown,
        CertificateDer::from_pem_slice(OTHER_CERTIFICATE).unwrap()
    );
    speak(&mut begun);
    // Without one, the server gives up behind the handshake: TLS 1.3 tells the client no earlier.
    let connector = self::connector(CERTIFICATE, "dwell.test");
    let (mut established, mut server, _) = finish(&connector, &config, 100_000).unwrap();
    let mut alert = sent(&mut server);
    let error = established.open(&mut Keys::new(2), &mut alert).unwrap_err();
    assert_eq!(error, TlsError::PeerAlert(116), "certificate_required");
}

#[test]
fn a_server_that_does_not_speak_tls_or_refuses_at_once_is_told_apart() {
    let connector = connector(CERTIFICATE, "dwell.test");
    let refused = |input: &[u8]| connector.begin().unwrap().receive(input).unwrap_err();
    for plain in [&b"HTTP/1.1 400 Bad Request"[..], b"ERROR\r\n", b"\0"] {
        let error = refused(plain);
        let host = "dwell.test".into();
        assert_eq!(error, HandshakeError::ServerNotTls(host));
        assert_eq!(error.to_string(), "dwell.test does not speak TLS");
    }
    let alert = rustls::AlertDescription::HandshakeFailure;
    let expected = HandshakeError::Refused(rustls::Error::AlertReceived(alert));
    assert_eq!(refused(&[21, 3, 3, 0, 2, 2, 40]), expected);
    let mut config = server_of(&[], &VERSIONS, (CERTIFICATE, KEY), None);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let error = finish(&connector, &Arc::new(config), 100_000).unwrap_err();
    let alert = rustls::AlertDescription::NoApplicationProtocol;
    let expected = HandshakeError::Refused(rustls::Error::AlertReceived(alert));
    assert_eq!(error, expected);
}

#[test]
fn what_is_trusted_is_a_certificate_at_least() {
    for pem in [
        &b""[..],
        KEY,
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let error = Roots::from_pem(pem).unwrap_err();
        assert!(matches!(error, CertificateError::Certificate(_)), "{error}");
    }
}

/// A session ticket's message with a ticket of so many bytes.
fn ticket(bytes: usize) -> Vec<u8> {
    let [_, length @ ..] = ((bytes + 13) as u32).to_be_bytes();
    [&[4][..], &length, &vec![7; bytes + 13]].concat()
}

#[test]
fn a_ticket_is_for_clients_and_has_a_length() {
    let (mut keys, mut ours, mut theirs) = ends(Suite::Aes128Gcm);
    let wire = record(&mut theirs, &mut keys, HANDSHAKE, &ticket(9), 0);
    let error = opened(&mut ours, &mut keys, &wire).unwrap_err();
    assert_eq!(error, TlsError::HandshakeType(4), "from a client");
    for (length, error) in [
        ([0, 0, 13], TlsError::TicketLength(13)),
        ([2, 1, 10], TlsError::TicketLength(131_338)),
    ] {
        let (mut keys, mut ours, mut theirs) = ends(Suite::Aes128Gcm);
        ours.peer = Peer::Server;
        let message = [&[4][..], &length].concat();
        let wire = record(&mut theirs, &mut keys, HANDSHAKE, &message, 0);
        assert_eq!(opened(&mut ours, &mut keys, &wire).unwrap_err(), error);
        assert_eq!(error.alert().map(|alert| alert as u8), Some(50), "{error}");
    }
    // One after the other without data in between are bounded.
    let (mut keys, mut ours, mut theirs) = ends(Suite::Aes128Gcm);
    ours.peer = Peer::Server;
    let error = (0..99).find_map(|_| {
        let wire = record(&mut theirs, &mut keys, HANDSHAKE, &ticket(9), 0);
        opened(&mut ours, &mut keys, &wire).err()
    });
    assert_eq!(error, Some(TlsError::NoData(32)));
}

/// The messages that a server may send behind the handshake, some in one record.
fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let tickets = proptest::collection::vec((1..700_usize).prop_map(ticket), 1..3);
    let end = prop_oneof![Just(vec![]), Just(vec![24, 0, 0, 1, 0])];
    let one = (tickets, end).prop_map(|(tickets, end)| [tickets.concat(), end].concat());
    proptest::collection::vec(one, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn tickets_are_passed_over_wherever_records_and_reads_cut_them(
        messages in messages(),
        data in bytes(1..50),
        record_cuts in proptest::collection::vec(any::<usize>(), 0..6),
        cuts in proptest::collection::vec(any::<usize>(), 0..9),
    ) {
        let (mut keys, mut ours, mut theirs) = ends(Suite::Aes256Gcm);
        ours.peer = Peer::Server;
        let mut wire = Vec::new();
        for message in &messages {
            // A key update is in one record with what is before it, or in one of its own.
            for part in pieces(message, &record_cuts).iter().filter(|part| !part.is_empty()) {
                wire.extend(record(&mut theirs, &mut keys, HANDSHAKE, part, 0));
            }
            if message.ends_with(&[24, 0, 0, 1, 0]) {
                theirs.sending.update(&mut keys, Suite::Aes256Gcm).unwrap();
            }
            wire.extend(record(&mut theirs, &mut keys, DATA, &data, 0));
        }
        let (mut rest, mut read) = (Vec::new(), Vec::new());
        for piece in pieces(&wire, &cuts) {
            let mut input = [rest, piece].concat();
            let opened = ours.open(&mut keys, &mut input).unwrap();
            read.extend_from_slice(&input[..opened.data]);
            rest = input.split_off(opened.used);
        }
        prop_assert_eq!(read, data.repeat(messages.len()));
        prop_assert!(rest.is_empty());
    }
}
