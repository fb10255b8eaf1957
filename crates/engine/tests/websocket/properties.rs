//! Whatever the pieces, what arrives is what was sent.

use crate::support::{Answer, Fixture, PATIENCE};
use dwell_engine::Detached;
use dwell_engine::websocket::{
    Delivery, MessageKind, MessageLimits, Negotiated, Opcode, Role, WebSocketOptions,
};
use dwell_evloop::Stream;
use dwell_proto::websocket::{
    DeflateOptions, DeflateParameters, Deflater, Event, FrameHeader, Inflater, MessageDecoder,
    encode,
};
use dwell_testkit::Rig;
use proptest::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A message, and the places where it is parted into fragments.
#[derive(Clone, Debug)]
struct Sent {
    kind: MessageKind,
    payload: Vec<u8>,
    cuts: Vec<prop::sample::Index>,
    /// A ping stands between the fragments.
    is_interrupted: bool,
}

fn messages() -> impl Strategy<Value = Vec<Sent>> {
    let payload = prop_oneof![
        "[a-zκ ]{0,300}".prop_map(|text| (MessageKind::Text, text.into_bytes())),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| (MessageKind::Binary, bytes)),
        (any::<u8>(), 0..200_000_usize)
            .prop_map(|(byte, size)| (MessageKind::Binary, vec![byte; size])),
    ];
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..5);
    let sent =
        (payload, cuts, any::<bool>()).prop_map(|((kind, payload), cuts, is_interrupted)| Sent {
            kind,
            payload,
            cuts,
            is_interrupted,
        });
    prop::collection::vec(sent, 1..8)
}

/// The messages as the peer writes them.
fn stream(messages: &[Sent], role: Role, mut deflater: Option<Deflater>) -> Vec<u8> {
    let mut out = Vec::new();
    let mask = (role == Role::Client).then_some([9, 8, 7, 6]);
    for message in messages {
        let compressed = deflater
            .as_mut()
            .and_then(|deflater| deflater.deflate(&message.payload))
            .map(<[u8]>::to_vec);
        let is_compressed = compressed.is_some();
        let data = compressed.unwrap_or_else(|| message.payload.clone());
        let cuts = message.cuts.iter().map(|cut| cut.index(data.len() + 1));
        let mut cuts: Vec<_> = cuts.chain([0, data.len()]).collect();
        cuts.sort_unstable();
        let last = cuts.len() - 2;
        for (index, ends) in cuts.windows(2).enumerate() {
            let header = FrameHeader {
                fin: index == last,
                compressed: is_compressed && index == 0,
                opcode: if index == 0 {
                    message.kind.opcode()
                } else {
                    Opcode::Continuation
                },
                mask,
                payload_len: 0,
            };
            encode::frame(&mut out, header, &data[ends[0]..ends[1]]);
            if message.is_interrupted {
                encode::ping(&mut out, b"between", mask);
            }
        }
    }
    out
}

/// A peer of ours in this role, on a real socket.
fn connect(
    fixture: &mut Fixture,
    role: Role,
    deflate: Option<DeflateParameters>,
    delivery: Delivery,
) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    peer.set_nonblocking(true).unwrap();
    let detached = Detached {
        stream,
        input: Vec::new(),
    };
    let negotiated = Negotiated {
        role,
        deflate,
        delivery,
    };
    let (context, sockets) = (fixture.event_loop.context(), &mut fixture.server.sockets);
    sockets.adopt(context, detached, negotiated, 42).unwrap();
    peer
}

/// What the peer reads, message by message.
struct Reader {
    decoder: MessageDecoder,
    inflater: Inflater,
    rest: Vec<u8>,
    read: Vec<(MessageKind, Vec<u8>)>,
    pongs: usize,
}

impl Reader {
    fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let mut used = 0;
        let limits = MessageLimits::default();
        loop {
            let input = &mut self.rest[used..];
            let step = self
                .decoder
                .decode(input, &limits, &mut self.inflater)
                .unwrap();
            used += step.consumed;
            match step.event {
                Some(Event::Message(message)) => {
                    self.read.push((message.kind, message.payload.into_owned()));
                }
                Some(Event::Pong(payload)) => {
                    assert_eq!(payload, b"between");
                    self.pongs += 1;
                }
                Some(other) => panic!("{other:?}"),
                None => break,
            }
        }
        self.rest.drain(..used);
    }
}

fn check(messages: &[Sent], pieces: &[usize], is_server: bool, window: Option<(bool, u8)>) {
    let (ours, theirs) = if is_server {
        (Role::Server, Role::Client)
    } else {
        (Role::Client, Role::Server)
    };
    let agreed = window.map(|(afresh, bits)| DeflateParameters {
        server_no_context_takeover: afresh,
        client_no_context_takeover: afresh,
        server_max_window_bits: Some(bits),
        client_max_window_bits: Some(bits),
    });
    let options = DeflateOptions {
        message_bytes_min: 0,
        ..DeflateOptions::default()
    };
    let deflater = window.and_then(|(afresh, bits)| {
        if afresh {
            Deflater::new(&options, bits)
        } else {
            Deflater::with_context_takeover(&options, bits)
        }
    });
    let options = WebSocketOptions {
        deflate: options,
        // Small, so that backpressure is met on the way.
        output_bytes_max: 10_000,
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Echo, options);
    let mut peer = connect(&mut fixture, ours, agreed, Delivery::Messages);
    let bytes = stream(messages, theirs, deflater);
    let is_afresh = window.is_none_or(|(afresh, _)| afresh);
    let mut reader = Reader {
        decoder: MessageDecoder::new(theirs, window.is_some()),
        inflater: if is_afresh {
            Inflater::new()
        } else {
            Inflater::with_context_takeover()
        },
        rest: Vec::new(),
        read: Vec::new(),
        pongs: 0,
    };
    let (mut start, mut piece) = (0, pieces.iter().cycle());
    let (begun, mut buffer) = (Instant::now(), vec![0; 70_000]);
    while reader.read.len() < messages.len() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", fixture.server.app.end());
        let end = bytes.len().min(start + piece.next().unwrap_or(&1));
        match peer.write(&bytes[start..end]) {
            Ok(written) => start += written,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        fixture.turn_for(Duration::ZERO);
        let room = *piece.next().unwrap_or(&1);
        match peer.read(&mut buffer[..room]) {
            Ok(read) => reader.push(&buffer[..read]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    let sent = messages
        .iter()
        .map(|message| (message.kind, message.payload.clone()));
    assert!(reader.read == sent.collect::<Vec<_>>());
    assert_eq!(fixture.server.app.refused, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_echo_is_what_was_sent(
        messages in messages(),
        pieces in prop::collection::vec(prop_oneof![1..200_usize, 1_000..70_000_usize], 1..20),
        is_server: bool,
        window in proptest::option::of((any::<bool>(), 9..=15_u8)),
    ) {
        check(&messages, &pieces, is_server, window);
    }

    #[test]
    fn garbage_ends_the_connection_and_nothing_else(
        messages in messages(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        is_server: bool,
        in_frames: bool,
        is_compressed: bool,
    ) {
        let (ours, theirs) = if is_server {
            (Role::Server, Role::Client)
        } else {
            (Role::Client, Role::Server)
        };
        let mut bytes = stream(&messages, theirs, None);
        for (place, byte) in damage {
            // Near the front, so that what is damaged is often a header.
            let place = place.index(bytes.len().min(50));
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len()).max(1));
        let agreed = is_compressed.then_some(DeflateParameters {
            server_no_context_takeover: true,
            client_no_context_takeover: true,
            server_max_window_bits: None,
            client_max_window_bits: None,
        });
        let mut fixture = Fixture::new(Answer::Echo, WebSocketOptions::default());
        let delivery = if in_frames { Delivery::Frames } else { Delivery::Messages };
        let mut peer = connect(&mut fixture, ours, agreed, delivery);
        let (mut start, mut buffer) = (0, vec![0; 70_000]);
        while start < bytes.len() {
            match peer.write(&bytes[start..]) {
                Ok(written) => start += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // It was refused in the middle.
                Err(_) => break,
            }
            fixture.turn_for(Duration::ZERO);
            let _ = peer.read(&mut buffer);
        }
        drop(peer);
        let end = fixture.until_end();
        // Only a close frame that came whole has a code.
        prop_assert!(end.code != 1006 || !end.is_clean);
        prop_assert_eq!(fixture.server.sockets.connections(), 0);
    }
}
