//! Sessions against rustls, which is the oracle, and against one another.

use crate::content::{ALERT, DATA, HANDSHAKE};
use crate::suite::Secret;
use crate::{
    Alert, FRAGMENT_BYTES_MAX, HEADER_BYTES, Keys, RECORD_BYTES_MAX, Secrets, Session, Suite,
    TlsError, sealed_bytes,
};
use aws_lc_rs::aead::Aad;
use proptest::prelude::*;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, RootCertStore, ServerConfig,
    ServerConnection, SupportedCipherSuite, version,
};
use std::io::{Read, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex};

mod connections;
mod frozen;
mod handshakes;
mod protocols;

const CERTIFICATE: &[u8] = include_bytes!("../tests/data/certificate.pem");
const KEY: &[u8] = include_bytes!("../tests/data/key.pem");

/// Keeps the secrets that a connection logs.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<(String, Vec<u8>)>>);

impl rustls::KeyLog for Log {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let mut secrets = self.0.lock().unwrap();
        secrets.push((label.to_owned(), secret.to_vec()));
    }
}

impl Log {
    fn secret(&self, label: &str) -> Vec<u8> {
        let secrets = self.0.lock().unwrap();
        let found = secrets.iter().find(|(name, _)| name == label);
        found.unwrap().1.clone()
    }
}

const SUITES: [(Suite, SupportedCipherSuite); 3] = [
    (
        Suite::Aes128Gcm,
        provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
    ),
    (
        Suite::Aes256Gcm,
        provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
    ),
    (
        Suite::ChaCha20Poly1305,
        provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
];

fn configs(suite: SupportedCipherSuite, log: &Arc<Log>) -> (ServerConfig, ClientConfig) {
    let provider = || {
        let mut provider = provider::default_provider();
        provider.cipher_suites = vec![suite];
        Arc::new(provider)
    };
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let mut server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.enable_secret_extraction = true;
    server.key_log = log.clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (server, client)
}

/// A session that rustls has begun, and the client of rustls at its other end.
struct Pair {
    keys: Keys,
    session: Session,
    client: ClientConnection,
}

impl Pair {
    fn new((suite, oracle): (Suite, SupportedCipherSuite)) -> Self {
        let log = Arc::new(Log::default());
        let (server, client) = configs(oracle, &log);
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let name = ServerName::try_from("dwell.test").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut wire = Vec::new();
        while server.is_handshaking() || client.wants_write() || server.wants_write() {
            wire.clear();
            client.write_tls(&mut wire).unwrap();
            feed(&wire, |part| server.read_tls(part));
            server.process_new_packets().unwrap();
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            feed(&wire, |part| client.read_tls(part));
            client.process_new_packets().unwrap();
        }
        let extracted = server.dangerous_extract_secrets().unwrap();
        let (receiving, sending) = (
            log.secret("CLIENT_TRAFFIC_SECRET_0"),
            log.secret("SERVER_TRAFFIC_SECRET_0"),
        );
        assert_same_iv(suite, &receiving, &extracted.rx.1);
        assert_same_iv(suite, &sending, &extracted.tx.1);
        let secrets = Secrets {
            receiving: &receiving,
            sending: &sending,
            received: extracted.rx.0,
            sent: extracted.tx.0,
        };
        assert!(secrets.sent > 0, "tickets were sent");
        Self {
            keys: Keys::new(4),
            session: Session::new(suite, secrets).unwrap(),
            client,
        }
    }

    /// The records that rustls sends for these bytes.
    fn sent_by_client(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut wire = Vec::new();
        for part in bytes.chunks(FRAGMENT_BYTES_MAX) {
            self.client.writer().write_all(part).unwrap();
            while self.client.wants_write() {
                self.client.write_tls(&mut wire).unwrap();
            }
        }
        while self.client.wants_write() {
            self.client.write_tls(&mut wire).unwrap();
        }
        wire
    }

    /// The bytes that rustls reads from these records.
    fn read_by_client(&mut self, wire: &[u8]) -> Vec<u8> {
        let mut data = Vec::new();
        let mut left = wire;
        while !left.is_empty() {
            self.client.read_tls(&mut left).unwrap();
            let state = self.client.process_new_packets().unwrap();
            let mut part = vec![0; state.plaintext_bytes_to_read()];
            self.client.reader().read_exact(&mut part).unwrap();
            data.append(&mut part);
        }
        data
    }

    fn sealed(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        let mut wire = Vec::new();
        self.session.seal(&mut self.keys, parts, &mut wire).unwrap();
        wire
    }

    fn opened(&mut self, wire: &[u8]) -> Result<Vec<u8>, TlsError> {
        opened(&mut self.session, &mut self.keys, wire)
    }
}

fn feed(wire: &[u8], mut read: impl FnMut(&mut &[u8]) -> std::io::Result<usize>) {
    let mut left = wire;
    while !left.is_empty() {
        read(&mut left).unwrap();
    }
}

fn assert_same_iv(suite: Suite, secret: &[u8], extracted: &ConnectionTrafficSecrets) {
    let (ConnectionTrafficSecrets::Aes128Gcm { iv, .. }
    | ConnectionTrafficSecrets::Aes256Gcm { iv, .. }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { iv, .. }) = extracted
    else {
        panic!("another suite");
    };
    let ours = Secret::new(suite, secret).unwrap().key(suite).unwrap();
    assert_eq!(ours.nonce(0).as_ref(), iv.as_ref());
}

/// All data of whole records.
fn opened(session: &mut Session, keys: &mut Keys, wire: &[u8]) -> Result<Vec<u8>, TlsError> {
    let mut input = wire.to_vec();
    let opened = session.open(keys, &mut input)?;
    assert_eq!(opened.used, wire.len());
    input.truncate(opened.data);
    Ok(input)
}

/// Two sessions at the ends of one connection.
fn ends(suite: Suite) -> (Keys, Session, Session) {
    let (one, two) = ([1; 48], [2; 48]);
    let (one, two) = (&one[..suite.secret_bytes()], &two[..suite.secret_bytes()]);
    (
        Keys::new(4),
        Session::new(suite, Secrets::new(one, two)).unwrap(),
        Session::new(suite, Secrets::new(two, one)).unwrap(),
    )
}

/// A record of any content, sealed by `session`.
fn record(
    session: &mut Session,
    keys: &mut Keys,
    kind: u8,
    bytes: &[u8],
    padding: usize,
) -> Vec<u8> {
    let mut body = [bytes, &[kind], &vec![0; padding]].concat();
    let length = (body.len() + 16) as u16;
    let mut wire = vec![DATA, 3, 3];
    wire.extend_from_slice(&length.to_be_bytes());
    let sequence = session.sending.sequence;
    let key = keys.of(&mut session.sending, session.suite).unwrap();
    let tag = key
        .aead
        .seal_in_place_separate_tag(key.nonce(sequence), Aad::from(&wire), &mut body)
        .unwrap();
    session.sending.sequence += 1;
    wire.extend_from_slice(&body);
    wire.extend_from_slice(tag.as_ref());
    wire
}

/// The error of a session that gets a record with this content.
fn refused(kind: u8, bytes: &[u8], padding: usize) -> TlsError {
    let (mut keys, mut ours, mut theirs) = ends(Suite::Aes128Gcm);
    let wire = record(&mut theirs, &mut keys, kind, bytes, padding);
    opened(&mut ours, &mut keys, &wire).unwrap_err()
}

const UPDATE: &[u8] = &[24, 0, 0, 1, 0];
const UPDATE_REQUESTED: &[u8] = &[24, 0, 0, 1, 1];

#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<Session>() <= 160, "{}", size_of::<Session>());
}

#[test]
fn each_opens_what_the_other_seals() {
    for suite in SUITES {
        let mut pair = Pair::new(suite);
        for length in [
            1,
            2,
            1000,
            FRAGMENT_BYTES_MAX,
            FRAGMENT_BYTES_MAX + 1,
            70_000,
        ] {
            let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let wire = pair.sent_by_client(&data);
            assert_eq!(pair.opened(&wire).unwrap(), data);
            let (one, two) = data.split_at(length / 3);
            let wire = pair.sealed(&[one, &[], two]);
            assert_eq!(wire.len(), sealed_bytes(length));
            assert_eq!(pair.read_by_client(&wire), data);
        }
    }
}

#[test]
fn key_updates_are_followed_answered_and_made() {
    for suite in SUITES {
        let mut pair = Pair::new(suite);
        for round in 0..3 {
            pair.client.refresh_traffic_keys().unwrap();
            let wire = pair.sent_by_client(b"behind it");
            assert_eq!(pair.opened(&wire).unwrap(), b"behind it");
            assert!(pair.session.owes(), "rustls asks for ours");
            let wire = if round == 0 {
                let mut wire = Vec::new();
                pair.session.answer(&mut pair.keys, &mut wire).unwrap();
                wire
            } else {
                pair.sealed(&[b"news"])
            };
            assert!(!pair.session.owes());
            assert_eq!(
                pair.read_by_client(&wire),
                [&[], &b"news"[..]][round.min(1)]
            );
            let wire = pair.sealed(&[b"more"]);
            assert_eq!(pair.read_by_client(&wire), b"more");
        }
    }
}

#[test]
fn a_key_that_was_used_often_is_changed() {
    let mut pair = Pair::new(SUITES[0]);
    let before = pair.session.sending.sequence;
    let data = vec![7; 5 * FRAGMENT_BYTES_MAX];
    let mut wire = Vec::new();
    let limit = before + 2;
    let (session, keys) = (&mut pair.session, &mut pair.keys);
    session.seal_by(keys, &[&data], &mut wire, limit).unwrap();
    let updates = (wire.len() - sealed_bytes(data.len())) / (sealed_bytes(5));
    assert!(updates >= 1, "{updates}");
    assert_eq!(pair.read_by_client(&wire), data);
}

#[test]
fn the_end_is_told_and_heard() {
    let mut pair = Pair::new(SUITES[1]);
    let mut wire = pair.sealed(&[b"last"]);
    pair.session.close(&mut pair.keys, &mut wire).unwrap();
    let length = wire.len();
    pair.session.close(&mut pair.keys, &mut wire).unwrap();
    assert_eq!(wire.len(), length, "once");
    assert!(pair.sealed(&[b"too late"]).is_empty());
    assert_eq!(pair.read_by_client(&wire), b"last");
    let state = pair.client.process_new_packets().unwrap();
    assert!(state.peer_has_closed());
    let mut wire = pair.sent_by_client(b"bye");
    pair.client.send_close_notify();
    wire.extend(pair.sent_by_client(&[]));
    wire.extend_from_slice(b"whatever follows is ignored");
    assert!(!pair.session.is_ended());
    assert_eq!(pair.opened(&wire).unwrap(), b"bye");
    assert!(pair.session.is_ended());
}

#[test]
fn an_error_tells_the_peer_its_alert() {
    let mut pair = Pair::new(SUITES[2]);
    let mut wire = pair.sent_by_client(b"data");
    *wire.last_mut().unwrap() ^= 1;
    let error = pair.opened(&wire).unwrap_err();
    let mut wire = Vec::new();
    pair.session
        .abort(&mut pair.keys, &error, &mut wire)
        .unwrap();
    pair.client.read_tls(&mut &wire[..]).unwrap();
    let told = pair.client.process_new_packets().unwrap_err();
    let expected = rustls::AlertDescription::BadRecordMac;
    assert_eq!(told, rustls::Error::AlertReceived(expected));
    let error = TlsError::PeerAlert(40);
    let (mut keys, mut ours, _) = ends(Suite::Aes128Gcm);
    let mut wire = Vec::new();
    ours.abort(&mut keys, &error, &mut wire).unwrap();
    assert!(wire.is_empty(), "the peer has gone");
}

#[test]
fn what_does_not_belong_there_is_refused_with_its_alert() {
    let many = vec![DATA; FRAGMENT_BYTES_MAX + 1];
    let cases = [
        (
            refused(DATA, &many, 0),
            TlsError::ContentTooLong(many.len()),
            22,
        ),
        (
            refused(DATA, b"data", FRAGMENT_BYTES_MAX),
            TlsError::ContentTooLong(FRAGMENT_BYTES_MAX + 4),
            22,
        ),
        (refused(0, &[], 9), TlsError::ContentType(0), 10),
        (refused(20, &[1], 0), TlsError::ContentType(20), 10),
        (refused(HANDSHAKE, &[], 0), TlsError::ContentType(22), 10),
        (refused(ALERT, &[], 0), TlsError::ContentType(21), 10),
        (refused(ALERT, &[1, 0, 0], 0), TlsError::AlertLength(3), 50),
        (
            refused(HANDSHAKE, &[4, 0, 0, 9], 0),
            TlsError::HandshakeType(4),
            10,
        ),
        (refused(HANDSHAKE, &[1], 0), TlsError::HandshakeType(1), 10),
        (
            refused(HANDSHAKE, &[24, 0, 0, 2, 0, 0], 0),
            TlsError::KeyUpdateLength(2),
            50,
        ),
        (
            refused(HANDSHAKE, &[24, 0, 0, 1, 2], 3),
            TlsError::KeyUpdateRequest(2),
            47,
        ),
        (
            refused(HANDSHAKE, &[UPDATE, UPDATE].concat(), 0),
            TlsError::KeyUpdateMixed,
            10,
        ),
    ];
    for (error, expected, alert) in cases {
        assert_eq!(error, expected);
        assert_eq!(
            error.alert().map(|alert| alert as u8),
            Some(alert),
            "{error}"
        );
        assert!(!error.to_string().is_empty());
    }
    assert_eq!(refused(ALERT, &[2, 40], 0), TlsError::PeerAlert(40));
    assert_eq!(TlsError::PeerAlert(40).alert(), None);
    assert_eq!(TlsError::Keys.alert(), Some(Alert::InternalError));
}

#[test]
fn a_header_is_refused_as_soon_as_it_is_here() {
    let (mut keys, mut ours, _) = ends(Suite::Aes256Gcm);
    for kind in [0, 20, 21, 22, 24, b'G'] {
        let error = ours.open(&mut keys, &mut [kind]).unwrap_err();
        assert_eq!(error, TlsError::RecordType(kind));
    }
    let length = RECORD_BYTES_MAX - HEADER_BYTES;
    let header = |length: usize| {
        let [high, low] = (length as u16).to_be_bytes();
        [DATA, 3, 3, high, low]
    };
    let opened = ours.open(&mut keys, &mut header(length)).unwrap();
    assert_eq!((opened.used, opened.data), (0, 0));
    let error = ours.open(&mut keys, &mut header(length + 1)).unwrap_err();
    assert_eq!(error, TlsError::RecordTooLong(length + 1));
    for short in 0..17 {
        let mut wire = [&header(short)[..], &vec![0; short]].concat();
        let error = ours.open(&mut keys, &mut wire).unwrap_err();
        assert_eq!(error, TlsError::BadRecord);
    }
    assert!(keys.len() <= 1);
}

#[test]
fn records_without_data_are_bounded() {
    let contents: [(u8, &[u8]); 3] = [(DATA, &[]), (HANDSHAKE, UPDATE), (ALERT, &[1, 90])];
    for (kind, bytes) in contents {
        let (mut keys, mut ours, mut theirs) = ends(Suite::Aes128Gcm);
        for _ in 0..2 {
            for _ in 0..32 {
                let wire = record(&mut theirs, &mut keys, kind, bytes, 1);
                assert!(opened(&mut ours, &mut keys, &wire).unwrap().is_empty());
                if kind == HANDSHAKE {
                    theirs.sending.update(&mut keys, Suite::Aes128Gcm).unwrap();
                }
            }
            let wire = record(&mut theirs, &mut keys, DATA, b"!", 0);
            assert_eq!(opened(&mut ours, &mut keys, &wire).unwrap(), b"!");
        }
        ours.without_data = 32;
        let wire = record(&mut theirs, &mut keys, kind, bytes, 0);
        let error = opened(&mut ours, &mut keys, &wire).unwrap_err();
        assert_eq!(error, TlsError::NoData(32));
    }
}

#[test]
fn a_key_update_may_come_in_parts_but_nothing_between_them() {
    for cut in 1..5 {
        let (mut keys, mut ours, mut theirs) = ends(Suite::ChaCha20Poly1305);
        let (one, two) = UPDATE_REQUESTED.split_at(cut);
        let mut wire = record(&mut theirs, &mut keys, HANDSHAKE, one, 0);
        wire.extend(record(&mut theirs, &mut keys, HANDSHAKE, two, 0));
        theirs.sending.update(&mut keys, theirs.suite).unwrap();
        wire.extend(record(&mut theirs, &mut keys, DATA, b"after", 0));
        assert_eq!(opened(&mut ours, &mut keys, &wire).unwrap(), b"after");
        assert!(ours.owes());
        for (kind, bytes) in [(DATA, &b"between"[..]), (ALERT, &[1, 0])] {
            let (mut keys, mut ours, mut theirs) = ends(Suite::ChaCha20Poly1305);
            let mut wire = record(&mut theirs, &mut keys, HANDSHAKE, one, 0);
            wire.extend(record(&mut theirs, &mut keys, kind, bytes, 0));
            let error = opened(&mut ours, &mut keys, &wire).unwrap_err();
            assert_eq!(error, TlsError::KeyUpdateMixed);
        }
    }
}

#[test]
fn many_sessions_share_few_keys_and_leave_none() {
    let (mut keys, _, _) = ends(Suite::Aes128Gcm);
    let mut pairs: Vec<_> = (0..9)
        .map(|number| {
            let (one, two) = ([number; 32], [number + 100; 32]);
            let new = |one: &[u8], two: &[u8]| {
                Session::new(Suite::Aes128Gcm, Secrets::new(one, two)).unwrap()
            };
            (new(&one, &two), new(&two, &one))
        })
        .collect();
    for round in 0..3 {
        for (ours, theirs) in &mut pairs {
            let data = [round; 10];
            let mut wire = Vec::new();
            theirs.seal(&mut keys, &[&data], &mut wire).unwrap();
            assert_eq!(opened(ours, &mut keys, &wire).unwrap(), data);
            assert!(keys.len() <= 4);
        }
    }
    for (ours, theirs) in &mut pairs {
        ours.forget(&mut keys);
        theirs.forget(&mut keys);
    }
    assert!(keys.is_empty());
}

#[test]
fn a_session_that_changes_its_thread_meets_no_key_of_another() {
    let (mut here, mut ours, mut theirs) = ends(Suite::Aes128Gcm);
    let mut there = Keys::new(4);
    let mut wire = Vec::new();
    // The same place of the other cache has the key of another session.
    let mut other = ends(Suite::Aes256Gcm).1;
    other.seal(&mut there, &[b"other"], &mut wire).unwrap();
    wire.clear();
    theirs.seal(&mut here, &[b"one"], &mut wire).unwrap();
    theirs.seal(&mut there, &[b"two"], &mut wire).unwrap();
    assert_eq!(opened(&mut ours, &mut here, &wire).unwrap(), b"onetwo");
}

/// Pieces that together are the whole.
fn pieces(wire: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (wire.len() + 1)).collect();
    cuts.extend([0, wire.len()]);
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|ends| wire[ends[0]..ends[1]].to_vec())
        .collect()
}

/// The result of records in pieces: the data, and the error at which it ends.
fn opened_in_pieces(mut session: Session, pieces: Vec<Vec<u8>>) -> (Vec<u8>, Option<TlsError>) {
    let mut keys = Keys::new(2);
    let (mut rest, mut data) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut input = [rest, piece].concat();
        match session.open(&mut keys, &mut input) {
            Ok(opened) => {
                data.extend_from_slice(&input[..opened.data]);
                rest = input.split_off(opened.used);
                assert!(rest.len() < RECORD_BYTES_MAX);
            }
            Err(error) => return (data, Some(error)),
        }
    }
    (data, None)
}

/// Records as a peer may send them: type, content, padding.
fn records() -> impl Strategy<Value = Vec<(u8, Vec<u8>, usize)>> {
    let data = (Just(DATA), bytes(0..300));
    let update = (
        Just(HANDSHAKE),
        prop_oneof![Just(UPDATE.to_vec()), Just(UPDATE_REQUESTED.to_vec())],
    );
    let one = prop_oneof![4 => data, 1 => update];
    let padded = (one, 0..20_usize).prop_map(|((kind, bytes), padding)| (kind, bytes, padding));
    proptest::collection::vec(padded, 1..12)
}

fn wire_of(theirs: &mut Session, records: &[(u8, Vec<u8>, usize)]) -> Vec<u8> {
    let mut keys = Keys::new(2);
    let mut wire = Vec::new();
    for (kind, bytes, padding) in records {
        wire.extend(record(theirs, &mut keys, *kind, bytes, *padding));
        if *kind == HANDSHAKE {
            theirs.sending.update(&mut keys, theirs.suite).unwrap();
        }
    }
    wire
}

fn bytes(lengths: Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), lengths)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_byte_at_a_time_equals_the_whole(records in records(), suite in 0..3_usize) {
        let suite = SUITES[suite].0;
        let (_, _, mut theirs) = ends(suite);
        let wire = wire_of(&mut theirs, &records);
        let data: Vec<u8> = records.iter()
            .filter(|(kind, _, _)| *kind == DATA)
            .flat_map(|(_, bytes, _)| bytes.clone())
            .collect();
        let whole = opened_in_pieces(ends(suite).1, vec![wire.clone()]);
        prop_assert_eq!(&whole, &(data, None));
        let bytes = wire.chunks(1).map(<[u8]>::to_vec).collect();
        prop_assert_eq!(&opened_in_pieces(ends(suite).1, bytes), &whole);
    }

    #[test]
    fn any_cuts_equal_the_whole(
        records in records(),
        cuts in proptest::collection::vec(any::<usize>(), 0..9),
    ) {
        let (_, _, mut theirs) = ends(Suite::Aes256Gcm);
        let wire = wire_of(&mut theirs, &records);
        let whole = opened_in_pieces(ends(Suite::Aes256Gcm).1, vec![wire.clone()]);
        let cut = opened_in_pieces(ends(Suite::Aes256Gcm).1, pieces(&wire, &cuts));
        prop_assert_eq!(cut, whole);
    }

    #[test]
    fn any_flipped_bit_is_refused(records in records(), at in any::<usize>(), bit in 0..8_u8) {
        let (_, _, mut theirs) = ends(Suite::Aes128Gcm);
        let mut wire = wire_of(&mut theirs, &records);
        let at = at % wire.len();
        wire[at] ^= 1 << bit;
        let mut session = ends(Suite::Aes128Gcm).1;
        let mut keys = Keys::new(2);
        // A longer length may wait for more; nothing that was changed is ever opened.
        if let Ok(opened) = session.open(&mut keys, &mut wire) {
            prop_assert!(opened.used <= at);
        }
    }

    #[test]
    fn rustls_reads_what_is_written_in_any_parts(
        parts in proptest::collection::vec(bytes(0..9000), 0..6),
    ) {
        let mut pair = Pair::new(SUITES[2]);
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let wire = pair.sealed(&parts);
        prop_assert_eq!(pair.read_by_client(&wire), parts.concat());
    }

    #[test]
    fn nonsense_is_no_panic(mut wire in bytes(0..400)) {
        let mut session = ends(Suite::ChaCha20Poly1305).1;
        let _ = session.open(&mut Keys::new(1), &mut wire);
        prop_assert_eq!(session.receiving.sequence, 0);
    }
}
