//! Input and output: what is kept, what is bounded, what is told.

use crate::support::{Fixture, Seen, Taking};
use dwell_engine::{StreamEnd, StreamLimits};
use dwell_evloop::{FileSlice, Stream};
use dwell_testkit::Rig;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn what_comes_is_handed_out_and_what_is_written_goes_back() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let (mut peer, _) = fixture.peer();
    peer.write_all(b"hello").unwrap();
    assert_eq!(fixture.receive(&mut peer, 5), b"hello");
    assert_eq!(
        fixture.server.app.seen,
        [
            Seen::Opened(7),
            Seen::Data(b"hello".to_vec()),
            Seen::Written(5)
        ]
    );
}

#[test]
fn what_the_app_leaves_comes_before_what_follows() {
    let mut fixture = Fixture::new(Taking::Lines, StreamLimits::default());
    let (mut peer, _) = fixture.peer();
    for piece in ["one\nt", "w", "o\n"] {
        peer.write_all(piece.as_bytes()).unwrap();
        let before = fixture.server.app.seen.len();
        fixture.until("a piece comes", |app| app.seen.len() > before);
    }
    let data: Vec<_> = ["one\nt", "tw", "two\n"]
        .map(|data| Seen::Data(data.into()))
        .into();
    assert_eq!(fixture.server.app.seen[1..], data);
}

#[test]
fn unused_input_is_bounded() {
    let limits = StreamLimits {
        input_bytes_max: 1000,
        ..StreamLimits::default()
    };
    let mut fixture = Fixture::new(Taking::Nothing, limits);
    let (mut peer, _) = fixture.peer();
    peer.write_all(&[1; 1001]).unwrap();
    fixture.until("the stream ends", |app| app.end().is_some());
    let end = fixture.server.app.end().unwrap();
    assert_eq!(end.to_string(), "unused input exceeds 1000 bytes");
    assert_eq!(fixture.server.streams.connections(), 0);
}

#[test]
fn a_paused_stream_is_not_read_until_it_is_resumed() {
    let mut fixture = Fixture::new(Taking::AndPause, StreamLimits::default());
    let (mut peer, token) = fixture.peer();
    peer.write_all(b"first").unwrap();
    fixture.until("the first comes", |app| app.received() == b"first");
    peer.write_all(b"second").unwrap();
    for _ in 0..3 {
        fixture.turn_for(Duration::ZERO);
    }
    assert_eq!(fixture.server.app.received(), b"first");
    fixture.with(token, |stream| {
        assert!(stream.is_paused());
        stream.resume();
    });
    fixture.until("the rest comes", |app| app.received() == b"firstsecond");
}

#[test]
fn a_pause_holds_back_a_peer_that_floods() {
    let mut fixture = Fixture::new(Taking::AndPause, StreamLimits::default());
    let (mut peer, _) = fixture.peer();
    peer.set_nonblocking(true).unwrap();
    let (piece, mut sent) = (vec![b'x'; 1 << 16], 0);
    // As much as the two kernel buffers take; loopback never takes 256 MB.
    while let Ok(taken) = peer.write(&piece) {
        sent += taken;
        fixture.turn_for(Duration::ZERO);
        assert!(sent < 256 << 20);
    }
    assert!(fixture.server.app.received().len() <= dwell_evloop::INPUT_BYTES);
}

#[test]
fn unused_input_is_handed_out_again_when_reading_is_resumed() {
    let mut fixture = Fixture::new(Taking::NothingAndPause, StreamLimits::default());
    let (mut peer, token) = fixture.peer();
    peer.write_all(b"kept").unwrap();
    drop(peer);
    fixture.until("it comes", |app| app.received() == b"kept");
    for _ in 0..3 {
        fixture.turn_for(Duration::ZERO);
    }
    assert_eq!(fixture.server.app.seen.len(), 2, "the end comes after it");
    fixture.server.app.taking = Taking::Echo;
    fixture.with(token, |stream| {
        stream.resume();
    });
    fixture.until("it comes again, and the end", |app| app.end().is_some());
    let seen = &fixture.server.app.seen[2..4];
    assert_eq!(seen[0], Seen::Data(b"kept".to_vec()));
    assert!(
        seen.contains(&Seen::PeerClosed) || fixture.server.app.seen.contains(&Seen::PeerClosed)
    );
}

#[test]
fn output_is_bounded_and_its_end_is_told() {
    let limits = StreamLimits {
        output_bytes_max: 100_000,
        ..StreamLimits::default()
    };
    let mut fixture = Fixture::new(Taking::Echo, limits);
    let (mut peer, token) = fixture.peer();
    let piece = bytes::Bytes::from(vec![b'o'; 1 << 16]);
    let mut sent = 0;
    loop {
        let piece = piece.clone();
        let accepted = fixture
            .with(token, |stream| stream.write_shared(piece))
            .unwrap();
        if !accepted {
            break;
        }
        sent += 1 << 16;
    }
    let queued = fixture.with(token, |stream| {
        assert!(stream.is_full());
        assert!(!stream.write(b"more"));
        stream.queued_bytes()
    });
    assert!(queued.unwrap() < 100_000 + (1 << 16));
    assert_eq!(fixture.receive(&mut peer, sent).len(), sent);
    fixture.until("the queue is empty", |app| {
        app.seen.contains(&Seen::Drained)
    });
    let written: usize = fixture
        .server
        .app
        .seen
        .iter()
        .map(|seen| match seen {
            Seen::Written(size) => *size,
            _ => 0,
        })
        .sum();
    assert_eq!(written, sent);
    assert_eq!(fixture.server.app.seen.last(), Some(&Seen::Drained));
}

#[test]
fn a_stream_that_is_taken_over_brings_its_input() {
    for size in [5, 3 * dwell_evloop::INPUT_BYTES] {
        let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Stream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b" and more").unwrap();
        let input = vec![b'a'; size];
        let context = fixture.event_loop.context();
        let token = fixture
            .server
            .streams
            .adopt(context, stream, input.clone(), 9)
            .unwrap();
        let expected = [input, b" and more".to_vec()].concat();
        assert!(fixture.receive(&mut peer, expected.len()) == expected);
        assert!(fixture.server.app.received() == expected);
        assert_eq!(fixture.with(token, |stream| stream.tag()), Some(9));
    }
}

#[test]
fn a_file_that_is_queued_on_a_stream_goes_out_after_it_was_taken_over() {
    const SIZE: usize = 8 << 20;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![b'f'; SIZE]).unwrap();
    for closes in [false, true] {
        let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        connected.set_nonblocking(true).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(crate::support::PATIENCE))
            .unwrap();
        let mut stream = Stream::from_tcp(mio::net::TcpStream::from_std(connected));
        let slice = FileSlice {
            file: file.try_clone().unwrap().into(),
            offset: 0,
            length: SIZE as u64,
        };
        stream.write_file(b"head", slice).unwrap();
        assert_eq!(stream.queued_bytes(), 0);
        assert!(!stream.is_flushed());
        let context = fixture.event_loop.context();
        let streams = &mut fixture.server.streams;
        let token = streams.adopt(context, stream, Vec::new(), 9).unwrap();
        if closes {
            streams.close(context, token);
        }
        let received = fixture.receive(&mut peer, SIZE + 4);
        assert_eq!(received.len(), SIZE + 4);
        if closes {
            let end = Some(StreamEnd::Closed);
            fixture.until("it ends", |app| app.end() == end);
        } else {
            fixture.until("it is out", |app| app.seen.contains(&Seen::Drained));
        }
    }
}

#[test]
fn many_clients_are_accepted_in_one_turn() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let peers: Vec<_> = (0..50)
        .map(|_| TcpStream::connect(fixture.address).unwrap())
        .collect();
    fixture.turn_for(Duration::ZERO);
    assert_eq!(fixture.server.streams.connections(), peers.len());
}

#[test]
fn more_clients_than_there_is_room_for_are_turned_away() {
    let limits = StreamLimits {
        connections_max: 1,
        ..StreamLimits::default()
    };
    let mut fixture = Fixture::new(Taking::Echo, limits);
    let (_first, _) = fixture.peer();
    let mut second = TcpStream::connect(fixture.address).unwrap();
    // Until the listener is ready: the kernel may be late with the client.
    fixture.turn_for(crate::support::PATIENCE);
    assert_eq!(second.read(&mut [0]).unwrap(), 0);
    assert_eq!(fixture.server.streams.connections(), 1);
}
