//! Sessions that are frozen and thawed at any moment.

use super::{Pair, SUITES, UPDATE_REQUESTED, ends, opened, record};
use crate::content::{DATA, HANDSHAKE};
use crate::session::Peer;
use crate::{Established, FRAGMENT_BYTES_MAX, Keys, Secrets, Session, Suite, TlsError};
use proptest::prelude::*;

/// An event of a connection.
#[derive(Clone, Debug)]
enum Step {
    /// The client sends so many bytes.
    Receive(usize),
    /// We send so many bytes.
    Send(usize),
    /// The client changes its keys and asks for ours.
    UpdateTheirs,
    /// We change our keys, as they were used too often.
    UpdateOurs,
    /// Another process goes on.
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || 1..(2 * FRAGMENT_BYTES_MAX);
    prop_oneof![
        bytes().prop_map(Step::Receive),
        bytes().prop_map(Step::Send),
        Just(Step::UpdateTheirs),
        Just(Step::UpdateOurs),
        Just(Step::Move),
        Just(Step::Move),
    ]
}

/// Moves the session to another process, which has keys of its own.
fn moved(session: Session, keys: &mut Keys) -> Session {
    let frozen = session.freeze(keys);
    *keys = Keys::new(4);
    Session::thaw(&frozen).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rustls_notices_no_move(
        suite in 0..SUITES.len(),
        steps in proptest::collection::vec(step(), 1..24),
    ) {
        let mut pair = Pair::new(SUITES[suite]);
        for (number, step) in steps.into_iter().enumerate() {
            let data = |length: usize| vec![number as u8; length];
            match step {
                Step::Receive(length) => {
                    let wire = pair.sent_by_client(&data(length));
                    prop_assert_eq!(pair.opened(&wire).unwrap(), data(length));
                }
                Step::Send(length) => {
                    let wire = pair.sealed(&[&data(length)]);
                    prop_assert_eq!(pair.read_by_client(&wire), data(length));
                }
                Step::UpdateTheirs => {
                    pair.client.refresh_traffic_keys().unwrap();
                    let wire = pair.sent_by_client(&[]);
                    prop_assert_eq!(pair.opened(&wire).unwrap(), b"");
                    prop_assert!(pair.session.owes());
                }
                Step::UpdateOurs => {
                    let (mut wire, sequence) = (Vec::new(), pair.session.sending.sequence);
                    let (session, keys) = (&mut pair.session, &mut pair.keys);
                    session.seal_by(keys, &[b"new keys"], &mut wire, sequence).unwrap();
                    prop_assert_eq!(pair.read_by_client(&wire), b"new keys");
                }
                Step::Move => {
                    let Pair { keys, session, client } = pair;
                    let mut keys = keys;
                    let session = moved(session, &mut keys);
                    pair = Pair { keys, session, client };
                }
            }
        }
    }

    #[test]
    fn no_bytes_do_harm(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..130),
        suite in 1..=3_u8,
        resembles in any::<bool>(),
    ) {
        if resembles && let Some(head) = bytes.first_chunk_mut::<10>() {
            *head = [1, 0x13, suite, head[3] % 16, head[4] % 33, head[5] % 5, 24, 0, 0, 1];
            let secrets = [64, 96, 64][usize::from(suite - 1)];
            bytes.resize(26 + secrets, 7);
        }
        match Session::thaw(&bytes) {
            Ok(session) => prop_assert_eq!(&*session.freeze(&mut Keys::new(1)), &bytes),
            Err(error) => prop_assert_eq!(error, TlsError::Frozen),
        }
    }
}

#[test]
fn all_that_is_noted_goes_along() {
    let (mut keys, mut ours, mut theirs) = ends(Suite::Aes256Gcm);
    for byte in UPDATE_REQUESTED {
        // An update in five records, with a move behind each.
        let wire = record(&mut theirs, &mut keys, HANDSHAKE, &[*byte], 0);
        assert_eq!(opened(&mut ours, &mut keys, &wire), Ok(Vec::new()));
        ours = moved(ours, &mut keys);
    }
    assert!(ours.owes());
    assert_eq!((ours.fragment_bytes, ours.without_data), (0, 5));
    assert_eq!(ours.receiving.sequence, 0, "the keys have changed");
    let mut wire = Vec::new();
    ours.close(&mut keys, &mut wire).unwrap();
    ours.is_ended = true;
    let mut ours = moved(ours, &mut keys);
    assert!(ours.is_ended() && ours.is_closed);
    let length = wire.len();
    assert_eq!(ours.seal(&mut keys, &[b"too late"], &mut wire), Ok(0));
    assert_eq!(wire.len(), length, "nothing follows the end");
}

#[test]
fn a_client_may_move_within_a_ticket() {
    let (mut keys, mut server, mut client) = ends(Suite::Aes128Gcm);
    client.peer = Peer::Server;
    let ticket = [&[4, 0, 0, 40][..], &[7; 40]].concat();
    for part in ticket.chunks(9) {
        let wire = record(&mut server, &mut keys, HANDSHAKE, part, 0);
        assert_eq!(opened(&mut client, &mut keys, &wire), Ok(Vec::new()));
        client = moved(client, &mut keys);
    }
    let wire = record(&mut server, &mut keys, DATA, b"behind it", 0);
    assert_eq!(opened(&mut client, &mut keys, &wire).unwrap(), b"behind it");
}

#[test]
fn a_frozen_session_has_one_form_and_its_keys_are_gone() {
    for (suite, bytes) in [(Suite::ChaCha20Poly1305, 90), (Suite::Aes256Gcm, 122)] {
        let (mut keys, mut ours, _) = ends(suite);
        let mut wire = Vec::new();
        ours.seal(&mut keys, &[b"data"], &mut wire).unwrap();
        assert_eq!(keys.len(), 1);
        let frozen = ours.freeze(&mut keys);
        assert!(keys.is_empty());
        assert_eq!((frozen.len(), frozen.capacity()), (bytes, bytes));
    }
}

#[test]
fn no_secret_stays_where_a_session_was() {
    let (mut keys, mut ours, mut theirs) = ends(Suite::Aes256Gcm);
    let mut wire = Vec::new();
    ours.seal(&mut keys, &[b"data"], &mut wire).unwrap();
    let mut input = Vec::new();
    theirs
        .seal(&mut keys, &[b"for the other"], &mut input)
        .unwrap();
    theirs.forget(&mut keys);
    let mut established = Established::Tls13(ours);
    assert!(established.freeze(&mut keys).is_some() && keys.is_empty());
    let Established::Tls13(left) = &established else {
        panic!("{established:?}");
    };
    for direction in [&left.receiving, &left.sending] {
        assert_eq!(direction.secret.bytes(left.suite), [0; 48]);
    }
    let length = wire.len();
    assert_eq!(established.seal(&mut keys, &[b"more"], &mut wire), Ok(0));
    assert_eq!(wire.len(), length, "nothing is sealed by what is left");
    let opened = established.open(&mut keys, &mut input).unwrap();
    assert_eq!((opened.data, keys.len()), (0, 0), "and nothing is opened");
    assert!(established.freeze(&mut keys).is_none(), "it goes once");
}

#[test]
fn bytes_that_cannot_be_right_are_refused() {
    let secret = [9; 32];
    let session = Session::new(Suite::Aes128Gcm, Secrets::new(&secret, &secret)).unwrap();
    let good = session.freeze(&mut Keys::new(1)).to_vec();
    assert!(Session::thaw(&good).is_ok());
    for end in 0..good.len() {
        assert!(Session::thaw(&good[..end]).is_err(), "{end} bytes");
    }
    assert!(Session::thaw(&[&good[..], &[0]].concat()).is_err());
    for (place, byte, what) in [
        (0, 2, "another version"),
        (2, 4, "a suite that is not ours"),
        (2, 2, "a suite with longer secrets"),
        (3, 16, "a flag that nobody knows"),
        (4, 33, "more records without data than are allowed"),
        (5, 1, "a message of no type"),
        (5, 5, "more of a message's head than there is"),
    ] {
        let mut bytes = good.clone();
        bytes[place] = byte;
        assert_eq!(
            Session::thaw(&bytes).unwrap_err(),
            TlsError::Frozen,
            "{what}"
        );
    }
    for (peer, fragment) in [
        (0, [4, 0, 0, 9]),
        (1, [4, 0, 0, 0]),
        (1, [4, 3, 0, 0]),
        (0, [24, 0, 0, 2]),
    ] {
        let mut bytes = good.clone();
        bytes[3] = peer;
        bytes[5] = 4;
        bytes[6..10].copy_from_slice(&fragment);
        assert!(Session::thaw(&bytes).is_err(), "{peer} {fragment:?}");
    }
}
