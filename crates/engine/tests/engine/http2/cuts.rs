//! Any cut of the bytes gives the same requests, the same bodies and the same end.

use super::peer::{Peer, WIDE, data, fixture, head, pass, request, reset, window};
use dwell_engine::{Budget, Limits};
use dwell_evloop::sim::SimNet;
use dwell_proto::http2::{ErrorCode, PREFACE, encode, settings};
use proptest::prelude::*;
use std::time::Duration;

/// One thing that a client sends.
#[derive(Clone, Debug)]
enum Act {
    /// A request on the next stream, and whether its end comes with its head.
    Request(&'static str, &'static str, bool),
    /// A part of a body, behind so much padding.
    Data(u32, usize, Option<u8>, bool),
    Trailers(u32),
    Reset(u32),
    Window(u32, u32),
    Settings(u32),
    Acknowledge,
    Ping,
    /// Any frame of the connection, or of a stream that has not begun.
    Frame(u8, u8, u32, Vec<u8>),
}

/// All that the app and the client have noticed.
#[derive(PartialEq, Debug)]
struct Seen {
    requests: Vec<String>,
    uploaded: Vec<u8>,
    gathered: Vec<usize>,
    trailers: Vec<(String, Vec<u8>)>,
    abandoned: Vec<u64>,
    go_away: Option<ErrorCode>,
    answers: Vec<(u32, String, Vec<u8>)>,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let path = prop::sample::select(vec![
        "/",
        "/hold",
        "/pieces",
        "/stream",
        "/upload?grant=9",
        "/gather?first=7&grant=50",
        "/refuse",
        "/forgotten",
        "no path",
    ]);
    let method = prop::sample::select(vec!["GET", "POST", "HEAD"]);
    let stream = || (0..5_u32).prop_map(|place| 2 * place + 1);
    let padding = prop::option::of(any::<u8>());
    let any_stream = prop::sample::select(vec![0, 100, 101]);
    let act = prop_oneof![
        8 => (method, path, any::<bool>()).prop_map(|(m, p, ends)| Act::Request(m, p, ends)),
        8 => (stream(), 0..3000_usize, padding, prop::bool::weighted(0.3))
            .prop_map(|(stream, length, pad, ends)| Act::Data(stream, length, pad, ends)),
        2 => stream().prop_map(Act::Trailers),
        1 => stream().prop_map(Act::Reset),
        2 => (0..6_u32, 0..2000_u32).prop_map(|(stream, more)| Act::Window(stream, more)),
        1 => (0..100_u32).prop_map(Act::Settings),
        1 => Just(Act::Acknowledge),
        1 => Just(Act::Ping),
        1 => (0..12_u8, any::<u8>(), any_stream, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(kind, flags, stream, payload)| Act::Frame(kind, flags, stream, payload)),
    ];
    prop::collection::vec(act, 1..25)
}

fn bytes_of(acts: &[Act]) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    encode::settings(&[(settings::INITIAL_WINDOW_SIZE, WIDE)], &mut out);
    let mut next = 1;
    // A frame behind the end of a stream means another thing once its answer is out.
    let mut ended = Vec::new();
    for act in acts {
        match act {
            Act::Data(stream, ..) | Act::Trailers(stream) | Act::Reset(stream)
                if ended.contains(stream) => {}
            Act::Request(method, path, ends) => {
                // The app reads a body there.
                let ends = *ends && !path.starts_with("/upload");
                out.extend(request(next, method, path, ends));
                ended.extend(ends.then_some(next));
                next += 2;
            }
            Act::Data(stream, length, None, ends) => {
                ended.extend(ends.then_some(*stream));
                out.extend(data(*stream, &vec![b'd'; *length], *ends));
            }
            Act::Data(stream, length, Some(padding), ends) => {
                ended.extend(ends.then_some(*stream));
                let mut payload = vec![*padding];
                payload.resize(1 + length, b'p');
                payload.resize(payload.len() + usize::from(*padding), 0);
                out.extend(frame(0, 8 | u8::from(*ends), *stream, &payload));
            }
            Act::Trailers(stream) => {
                ended.push(*stream);
                out.extend(head(*stream, &[("x", "y")], true));
            }
            Act::Reset(stream) => {
                ended.push(*stream);
                out.extend(reset(*stream));
            }
            Act::Window(stream, more) => out.extend(window(*stream, *more)),
            Act::Settings(size) => {
                encode::settings(&[(settings::INITIAL_WINDOW_SIZE, WIDE - size)], &mut out);
            }
            Act::Acknowledge => encode::settings_ack(&mut out),
            Act::Ping => encode::ping([7; 8], &mut out),
            Act::Frame(kind, flags, stream, payload) => {
                out.extend(frame(*kind, *flags, *stream, payload));
            }
        }
    }
    out
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Sends the bytes in pieces that end there, each of which the server sees by itself.
fn seen(bytes: &[u8], ends: &[usize], resets: &[u32]) -> Seen {
    let network = SimNet::new(1);
    let mut fixture = fixture(Limits::default());
    let kept = Budget::default();
    fixture.server.http.share_gathered(kept.clone());
    let mut peer = Peer::silent(&network, &fixture);
    let mut begin = 0;
    for end in ends.iter().copied().chain([bytes.len()]) {
        peer.send(&bytes[begin..end]);
        begin = end;
        pass(&network, &mut fixture, Duration::from_micros(10));
    }
    pass(&network, &mut fixture, Duration::from_millis(1));
    peer.receive();
    let app = &mut fixture.server.app;
    app.abandoned.sort_unstable();
    // The client may have given up an answer before or behind it, and with the connection all.
    let answers = std::mem::take(&mut peer.answers).into_iter();
    let whole = answers.filter(|(stream, answer)| {
        // An answer that came before the end of its request ends by a reset, too.
        let is_whole = matches!(answer.reset, None | Some(ErrorCode::NO_ERROR));
        peer.go_away.is_none() && is_whole && !resets.contains(stream)
    });
    let seen = Seen {
        requests: std::mem::take(&mut app.seen),
        uploaded: std::mem::take(&mut app.uploaded),
        gathered: std::mem::take(&mut app.gathered),
        trailers: std::mem::take(&mut app.trailers),
        abandoned: std::mem::take(&mut app.abandoned),
        go_away: peer.go_away,
        answers: whole
            .map(|(stream, answer)| (stream, answer.status, answer.body))
            .collect(),
    };
    // Nothing stays of a client that leaves, and the app is told once of each answer it owes.
    peer.socket.close();
    pass(&network, &mut fixture, Duration::from_secs(10));
    let app = &mut fixture.server.app;
    app.abandoned.extend(&seen.abandoned);
    app.abandoned.sort_unstable();
    let told = app.abandoned.len();
    app.abandoned.dedup();
    assert_eq!((app.abandoned.len(), kept.bytes()), (told, 0));
    assert_eq!(fixture.server.http.connections(), 0);
    seen
}

proptest! {
    #[test]
    fn any_cut_of_the_bytes_gives_the_same(
        acts in acts(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
        every in prop::option::weighted(0.1, 1..9_usize),
    ) {
        let bytes = bytes_of(&acts);
        let mut ends: Vec<_> = match every {
            Some(step) => (0..bytes.len().min(3000)).step_by(step).collect(),
            None => cuts.iter().map(|cut| cut.index(bytes.len())).collect(),
        };
        ends.sort_unstable();
        let resets: Vec<_> = acts
            .iter()
            .filter_map(|act| match act {
                Act::Reset(stream) | Act::Frame(3, _, stream, _) => Some(*stream),
                _ => None,
            })
            .collect();
        prop_assert_eq!(seen(&bytes, &[], &resets), seen(&bytes, &ends, &resets));
    }
}
