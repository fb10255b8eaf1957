//! Handshakes with clients of rustls, and what they leave.

use super::{CERTIFICATE, KEY};
use crate::{
    Acceptor, Certificate, CertificateError, ClientVerification, Established, Handshake,
    HandshakeError, HandshakeFault, KeptOfClient, Keys, Roots, TicketKey, TlsError, content,
};
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, HandshakeKind, RootCertStore,
    SupportedProtocolVersion, version,
};
use std::io::{Read, Write};
use std::sync::Arc;

const OTHER_CERTIFICATE: &[u8] = include_bytes!("../../tests/data/other.pem");
const OTHER_KEY: &[u8] = include_bytes!("../../tests/data/other_key.pem");

pub(super) fn certificate() -> Certificate {
    Certificate::from_pem(CERTIFICATE, KEY).unwrap()
}

pub(super) fn config(versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for pem in [CERTIFICATE, OTHER_CERTIFICATE] {
        roots
            .add(CertificateDer::from_pem_slice(pem).unwrap())
            .unwrap();
    }
    ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

pub(super) fn client(config: &Arc<ClientConfig>, name: &'static str) -> ClientConnection {
    let name = ServerName::try_from(name).unwrap();
    ClientConnection::new(Arc::clone(config), name).unwrap()
}

pub(super) fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut wire = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut wire).unwrap();
    }
    wire
}

/// Gives the client what is sent to it; returns the data that it reads.
pub(super) fn give(
    client: &mut ClientConnection,
    mut wire: &[u8],
) -> Result<Vec<u8>, rustls::Error> {
    let mut data = Vec::new();
    while !wire.is_empty() {
        client.read_tls(&mut wire).unwrap();
        let state = client.process_new_packets()?;
        let mut part = vec![0; state.plaintext_bytes_to_read()];
        client.reader().read_exact(&mut part).unwrap();
        data.append(&mut part);
    }
    Ok(data)
}

/// Brings a handshake to its end, in pieces of this size, with `behind` glued to the client's last
/// record. Returns what it leaves, and the input that it has not used.
fn finish(
    mut handshake: Handshake,
    client: &mut ClientConnection,
    piece: usize,
    behind: &[u8],
) -> Result<(Established, Vec<u8>), HandshakeError> {
    let mut input = Vec::new();
    for _ in 0..9 {
        if !client.is_handshaking() {
            client.writer().write_all(behind).unwrap();
        }
        let wire = sent(client);
        for part in wire.chunks(piece.max(1)) {
            input.extend_from_slice(part);
            let received = handshake.receive(&input);
            let mut out = Vec::new();
            handshake.transmit(&mut out);
            // What a client finds wrong is what it sends next.
            let _ = give(client, &out);
            input.drain(..received?);
        }
        if handshake.is_done() {
            return Ok((handshake.finish()?, input));
        }
    }
    panic!("no end");
}

/// Speaks both ways over what a handshake has left.
fn speak(established: &mut Established, client: &mut ClientConnection, input: &mut [u8]) {
    let mut keys = Keys::new(2);
    let opened = established.open(&mut keys, input).unwrap();
    assert_eq!(&input[..opened.data], b"request");
    let mut out = Vec::new();
    let answer = vec![b'a'; 40_000];
    let parts: [&[u8]; 2] = [b"head", &answer];
    assert_eq!(
        established.seal(&mut keys, &parts, &mut out).unwrap(),
        40_004
    );
    assert_eq!(give(client, &out).unwrap(), parts.concat());
    client.writer().write_all(b"more").unwrap();
    client.send_close_notify();
    let mut wire = sent(client);
    let opened = established.open(&mut keys, &mut wire).unwrap();
    assert_eq!(&wire[..opened.data], b"more");
    assert!(established.is_ended());
    out.clear();
    established.close(&mut keys, &mut out).unwrap();
    let told = give(client, &out);
    assert!(told.is_ok() && client.process_new_packets().unwrap().peer_has_closed());
    established.forget(&mut keys);
    assert!(keys.is_empty());
}

#[test]
fn a_request_behind_the_handshake_is_read_and_answered() {
    for (version, is_tls13) in [(&version::TLS13, true), (&version::TLS12, false)] {
        for piece in [1, 7, 100_000] {
            let mut config = config(&[version]);
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            let mut client = client(&Arc::new(config), "dwell.test");
            let handshake = Acceptor::new(vec![certificate()], 1).begin().unwrap();
            let (mut established, mut input) =
                finish(handshake, &mut client, piece, b"request").unwrap();
            assert_eq!(client.alpn_protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(matches!(established, Established::Tls13(_)), is_tls13);
            if input.is_empty() {
                client.writer().write_all(b"request").unwrap();
                input = sent(&mut client);
            } else if piece < 100_000 {
                // What was left of the pieces comes too.
                input.extend(sent(&mut client));
            }
            speak(&mut established, &mut client, &mut input);
        }
    }
}

#[test]
fn a_client_that_comes_again_is_resumed() {
    for version in [&version::TLS13, &version::TLS12] {
        let acceptor = Acceptor::new(vec![certificate()], 1);
        let config = Arc::new(config(&[version]));
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let mut client = client(&config, "localhost");
            let handshake = acceptor.begin().unwrap();
            let (mut established, mut input) =
                finish(handshake, &mut client, 100_000, b"request").unwrap();
            if input.is_empty() {
                client.writer().write_all(b"request").unwrap();
                input = sent(&mut client);
            }
            kinds.push(client.handshake_kind());
            speak(&mut established, &mut client, &mut input);
        }
        assert_eq!(kinds[1], Some(HandshakeKind::Resumed), "{kinds:?}");
    }
}

#[test]
fn a_session_is_resumed_by_another_server_with_the_same_keys_of_tickets() {
    let key = |byte| TicketKey::from_bytes(&[byte; TicketKey::BYTES]).unwrap();
    let server = |keys: &[u8]| {
        let acceptor = Acceptor::new(vec![certificate()], 1);
        acceptor.set_ticket_keys(keys.iter().copied().map(key).collect());
        acceptor
    };
    for version in [&version::TLS13, &version::TLS12] {
        for (here, there, is_resumed) in [
            (&[1, 2][..], &[2, 1][..], true),
            (&[1, 2], &[2, 3], false),
            (&[1], &[], false),
        ] {
            let config = Arc::new(config(&[version]));
            let mut kinds = Vec::new();
            for keys in [here, there] {
                let mut client = client(&config, "localhost");
                let handshake = server(keys).begin().unwrap();
                let (mut established, mut input) =
                    finish(handshake, &mut client, 100_000, b"request").unwrap();
                if input.is_empty() {
                    client.writer().write_all(b"request").unwrap();
                    input = sent(&mut client);
                }
                speak(&mut established, &mut client, &mut input);
                kinds.push(client.handshake_kind());
            }
            let resumed = kinds[1] == Some(HandshakeKind::Resumed);
            assert_eq!(resumed, is_resumed, "{here:?} {there:?} {kinds:?}");
        }
    }
}

#[test]
fn the_name_chooses_the_certificate() {
    let other = Certificate::from_pem(OTHER_CERTIFICATE, OTHER_KEY).unwrap();
    assert_eq!(other.names(), ["*.other.test", "other.test"]);
    let acceptor = Acceptor::new(vec![certificate(), other.clone()], 1);
    let config = Arc::new(config(&[&version::TLS13]));
    let cases = [
        ("dwell.test", CERTIFICATE),
        ("localhost", CERTIFICATE),
        ("other.test", OTHER_CERTIFICATE),
        ("www.other.test", OTHER_CERTIFICATE),
    ];
    let shown = |acceptor: &Acceptor, name| {
        let mut client = client(&config, name);
        let handshake = acceptor.begin().unwrap();
        finish(handshake, &mut client, 100_000, b"").unwrap();
        client.peer_certificates().unwrap()[0].clone()
    };
    for (name, pem) in cases {
        let expected = CertificateDer::from_pem_slice(pem).unwrap();
        assert_eq!(shown(&acceptor, name), expected, "{name}");
    }
    // Names of none get the first one, whose names the client finds to be others.
    let mut stranger = client(&config, "a.b.other.test");
    let error = finish(acceptor.begin().unwrap(), &mut stranger, 100_000, b"").unwrap_err();
    assert!(matches!(error, HandshakeError::Refused(_)), "{error}");
    let clone = acceptor.clone();
    acceptor.set_certificates(vec![other]);
    let expected = CertificateDer::from_pem_slice(OTHER_CERTIFICATE).unwrap();
    assert_eq!(shown(&clone, "other.test"), expected);
}

#[test]
fn what_is_no_handshake_is_refused() {
    let acceptor = Acceptor::new(vec![certificate()], 9);
    let refused = |input: &[u8]| acceptor.begin().unwrap().receive(input).unwrap_err();
    for plain in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x80\x2e\x01",
        b"\0",
        b"\x17\x02\x03",
    ] {
        assert!(Handshake::is_due(plain));
        assert_eq!(refused(plain), HandshakeError::NotTls);
    }
    let error = refused(&[22, 3, 1, 0x41, 1]);
    assert_eq!(
        error,
        HandshakeError::Record(TlsError::RecordTooLong(0x4101))
    );
    let nonsense = refused(&[22, 3, 1, 0, 4, 9, 9, 9, 9]);
    assert!(matches!(nonsense, HandshakeError::Refused(_)), "{nonsense}");
    let mut config = config(&[&version::TLS13]);
    config.alpn_protocols = vec![b"spdy/1".to_vec()];
    let mut client = client(&Arc::new(config), "dwell.test");
    let error = finish(acceptor.begin().unwrap(), &mut client, 100_000, b"").unwrap_err();
    let expected = HandshakeError::Refused(rustls::Error::NoApplicationProtocol);
    assert_eq!(error, expected);
    assert!(!error.to_string().is_empty());
}

#[test]
fn a_handshake_is_bounded_in_bytes() {
    let acceptor = Acceptor::new(vec![certificate()], 2);
    assert_eq!(acceptor.clone().handshakes_max(), 2);
    let mut handshake = acceptor.begin().unwrap();
    // The beginning of a client's message of 60,000 bytes, and then one of 60,000 more, and so on.
    let record = [&[22, 3, 1, 0x40, 0][..], &vec![1; 0x4000]].concat();
    let error = (0..9).find_map(|_| handshake.receive(&record).err());
    assert!(error.is_some());
    let unfinished = acceptor.begin().unwrap().finish().unwrap_err();
    let expected = rustls::Error::HandshakeNotComplete;
    assert_eq!(unfinished, HandshakeError::Refused(expected));
}

#[test]
fn a_handshake_is_due_with_its_first_record() {
    let config = Arc::new(config(&[&version::TLS13]));
    let hello = sent(&mut client(&config, "dwell.test"));
    for length in 0..hello.len() {
        assert!(!Handshake::is_due(&hello[..length]), "{length}");
    }
    assert!(Handshake::is_due(&hello));
    assert!(!Handshake::is_due(&[content::DATA]));
    assert!(Handshake::is_due(&[content::DATA, 3]));
    // A long one is not waited for to its end.
    let long = [&[22, 3, 1, 0x40, 0][..], &[1; 0x4000]].concat();
    assert!(!Handshake::is_due(&long[..4095]));
    assert!(Handshake::is_due(&long[..4096]));
}

/// The output to a client when this comes first, or behind the hello of a version.
fn answer_to(behind: Option<&'static SupportedProtocolVersion>, fault: &[u8]) -> rustls::Error {
    let config = Arc::new(config(&[behind.unwrap_or(&version::TLS13)]));
    let mut client = client(&config, "dwell.test");
    let mut handshake = Acceptor::new(vec![certificate()], 1).begin().unwrap();
    let hello = sent(&mut client);
    let mut out = Vec::new();
    if behind.is_some() {
        assert_eq!(handshake.receive(&hello).unwrap(), hello.len());
        handshake.transmit(&mut out);
        give(&mut client, &out).unwrap();
        out.clear();
    }
    let error = handshake.receive(fault).unwrap_err();
    assert_eq!(error.fault(), HandshakeFault::Protocol, "{error}");
    handshake.transmit(&mut out);
    give(&mut client, &out).unwrap_err()
}

#[test]
fn every_fault_is_told_by_its_alert() {
    let told = |alert| rustls::Error::AlertReceived(alert);
    let [unexpected, overflow, undecodable] = [
        told(AlertDescription::UnexpectedMessage),
        told(AlertDescription::RecordOverflow),
        told(AlertDescription::DecodeError),
    ];
    let both = [Some(&version::TLS13), Some(&version::TLS12)];
    for behind in both.into_iter().chain([None]) {
        let too_long = answer_to(behind, &[22, 3, 3, 0x41, 1]);
        assert_eq!(too_long, overflow, "{behind:?}");
    }
    for behind in both {
        let garbage = answer_to(behind, &[99, 3, 3, 0, 1, 0]);
        assert_eq!(garbage, unexpected, "{behind:?}");
    }
    for kind in [20, content::ALERT, content::DATA] {
        assert_eq!(answer_to(None, &[kind, 3, 3, 0, 2, 1, 1]), unexpected);
    }
    // A hello of 150 KiB, and an endless row of records that are empty.
    let message = [&[1, 2, 0x58, 0][..], &vec![0; 150 << 10]].concat();
    let records = message.chunks(0x4000).map(|part| {
        let header = [22, 3, 1, (part.len() >> 8) as u8, part.len() as u8];
        [&header[..], part].concat()
    });
    let records: Vec<Vec<u8>> = records.collect();
    assert_eq!(answer_to(None, &records.concat()), undecodable);
}

#[test]
fn what_was_agreed_on_is_known() {
    for version in [&version::TLS13, &version::TLS12] {
        let acceptor = Acceptor::new(vec![certificate()], 1);
        let config = Arc::new(config(&[version]));
        let kinds = [(); 2].map(|()| {
            let mut client = client(&config, "localhost");
            let mut handshake = acceptor.begin().unwrap();
            for _ in 0..9 {
                let input = sent(&mut client);
                handshake.receive(&input).unwrap();
                let mut out = Vec::new();
                handshake.transmit(&mut out);
                give(&mut client, &out).unwrap();
            }
            assert!(handshake.is_done());
            (handshake.is_tls13(), handshake.is_resumed())
        });
        let is_tls13 = *version == version::TLS13;
        assert_eq!(kinds, [(is_tls13, false), (is_tls13, true)]);
    }
}

#[test]
fn a_certificate_that_is_of_no_use_is_refused() {
    let refused = |chain, key| Certificate::from_pem(chain, key).unwrap_err();
    assert_eq!(refused(CERTIFICATE, OTHER_KEY), CertificateError::Mismatch);
    for (chain, key) in [(KEY, KEY), (&b""[..], KEY)] {
        let error = refused(chain, key);
        assert!(matches!(error, CertificateError::Certificate(_)), "{error}");
    }
    for key in [
        CERTIFICATE,
        b"",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ] {
        let error = refused(CERTIFICATE, key);
        assert!(matches!(error, CertificateError::Key(_)), "{error}");
    }
}

fn verifying(roots: &Roots, is_required: bool) -> Acceptor {
    let clients = ClientVerification {
        roots,
        is_required,
        keeps: KeptOfClient::Nothing,
    };
    Acceptor::verifying(Vec::new(), 1, clients).unwrap()
}

#[test]
fn authorities_are_told_apart_whatever_their_order() {
    let (one, other) = (CERTIFICATE, OTHER_CERTIFICATE);
    let digest = |pem: &[u8]| {
        let roots = Roots::from_pem(pem).unwrap();
        verifying(&roots, true).client_authorities().unwrap()
    };
    assert_eq!(Acceptor::new(Vec::new(), 1).client_authorities(), None);
    // Some clients of such an acceptor were verified by nobody.
    let optional = verifying(&Roots::from_pem(one).unwrap(), false);
    assert_eq!(optional.client_authorities(), None);
    assert_eq!(optional.authorities(), Some(digest(one)));
    assert_eq!(Acceptor::new(Vec::new(), 1).authorities(), None);
    let [first, second] = [digest(one), digest(other)];
    assert_ne!(first, second);
    assert_eq!(digest(&[b"# a comment\n", one].concat()), first);
    assert_eq!(
        digest(&[one, one].concat()),
        first,
        "one that is named twice"
    );
    let both = digest(&[one, other].concat());
    assert_eq!(digest(&[other, one].concat()), both);
    assert!(both != first && both != second);
}
