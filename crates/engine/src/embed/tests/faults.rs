//! What goes wrong, or comes at a bad time.

use super::*;

pub(super) const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";

/// A pair whose client speaks WebSocket, and the name of the connection.
fn web_socket() -> (Pair, u64) {
    let (mut pair, handle) = Pair::with_request(HANDSHAKE);
    pair.order(&Command {
        flags: upgrade_flags::PLAIN,
        bytes: HANDSHAKE.as_bytes(),
        ..Operation::Upgrade.on(handle)
    });
    let handle = pair.wait_for(EventKind::WebSocketOpened).handle;
    pair.read_until("\r\n\r\n");
    (pair, handle)
}

/// Another client of the same engine that waits for its answer.
fn another(pair: &mut Pair) -> (TcpStream, u64) {
    let address = pair.client.peer_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(GET.as_bytes()).unwrap();
    (client, pair.wait_for(EventKind::Request).handle)
}

#[test]
fn who_leaves_and_is_not_taken_is_closed_even_if_every_turn_has_news() {
    let (mut pair, handle) = Pair::with_request(GET);
    let (_client, busy) = another(&mut pair);
    pair.order(&Operation::Detach.on(handle));
    pair.write(busy, write_flags::NOTIFY, b"HTTP/1.1 200 OK\r\n\r\n");
    pair.turn(PATIENCE);
    assert_eq!(pair.wait_for(EventKind::Detached).handle, handle);
    pair.write(busy, write_flags::NOTIFY, b"more");
    pair.turn(PATIENCE);
    assert!(pair.engine.take_detached(handle).is_none());
    assert_eq!(pair.read_until(""), "");
}

#[test]
fn every_order_among_others_that_cannot_be_carried_out_ends_its_connection() {
    let (mut pair, handle) = Pair::with_request(HANDSHAKE);
    let mut commands = Commands::new();
    commands.push(&Command {
        bytes: b"no head at all",
        ..Operation::Upgrade.on(handle)
    });
    assert_eq!(pair.engine.submit(commands.as_bytes()), Ok(0));
    assert_eq!(pair.wait_for(EventKind::Gone).handle, handle);
    assert_eq!(pair.engine.connections(), 0);
}

#[test]
fn a_reason_that_is_no_text_does_not_stop_the_orders_of_others() {
    let (mut pair, handle) = Pair::with_request(GET);
    let mut commands = Commands::new();
    commands.push(&Command {
        status: 1000,
        bytes: b"no##text",
        ..Operation::Close.on(4 << 56)
    });
    commands.push(&Command {
        status: 200,
        bytes: b"whole",
        ..Operation::Answer.on(handle)
    });
    let mut bytes = commands.as_bytes().to_vec();
    let place = bytes.windows(2).position(|pair| pair == b"##").unwrap();
    bytes[place] = 0xff;
    let read: Vec<_> = Commands::iter(&bytes).map(Result::unwrap).collect();
    assert_eq!(read[0].text(), "no");
    assert_eq!(pair.engine.submit(&bytes), Ok(1));
    assert!(pair.read_until("whole").ends_with("whole"));
}

#[test]
fn that_a_client_sends_no_more_is_told_once() {
    let (mut pair, handle) = Pair::with_request(GET);
    pair.client.shutdown(std::net::Shutdown::Write).unwrap();
    pair.wait_for(EventKind::PeerClosed);
    // Too much for the socket, so that the exchange goes on by a callback.
    let piece = vec![b'x'; 8 << 20];
    pair.write(handle, write_flags::NOTIFY, &piece);
    let mut reader = pair.client.try_clone().unwrap();
    let taken = std::thread::spawn(move || {
        let mut taken = vec![0; 8 << 20];
        reader.read_exact(&mut taken).unwrap();
    });
    pair.wait_for(EventKind::Writable);
    taken.join().unwrap();
    pair.turn(Duration::from_millis(1));
    let again = EventKind::PeerClosed as u32;
    assert!(pair.seen.iter().all(|(event, _)| event.kind != again));
}

#[test]
fn whoever_floods_waits_for_the_next_turn_unless_the_host_has_other_wishes() {
    let (mut pair, handle) = web_socket();
    pair.engine.hub.state.batch_bytes_max = 3;
    // Two messages that come at once.
    pair.send(b"\x82\x84\0\0\0\0full\x82\x84\0\0\0\0more");
    assert_eq!(pair.wait_for_bytes(EventKind::WebSocketMessage).1, b"full");
    assert!(pair.seen.is_empty(), "{:?}", pair.seen);
    assert_eq!(pair.engine.wait_max(), Some(Duration::ZERO));
    pair.order(&Operation::Pause.on(handle));
    pair.turn(Duration::from_millis(1));
    assert!(pair.seen.is_empty(), "{:?}", pair.seen);
    pair.order(&Operation::Resume.on(handle));
    assert_eq!(pair.wait_for_bytes(EventKind::WebSocketMessage).1, b"more");
}

#[test]
fn a_stream_that_takes_no_more_is_not_closed_by_the_piece_it_refuses() {
    let mut options = Options::default();
    options.streams.output_bytes_max = 1024;
    let mut pair = Pair::new(&options);
    pair.send(GET.as_bytes());
    let handle = pair.wait_for(EventKind::Request).handle;
    pair.order(&Operation::Detach.on(handle));
    pair.wait_for(EventKind::Detached);
    let detached = pair.engine.take_detached(handle).unwrap();
    let handle = pair.engine.adopt_stream(detached).unwrap();
    let piece = vec![b'x'; 16 << 20];
    pair.write(handle, 0, &piece);
    let last = Command {
        flags: write_flags::FINISH,
        bytes: b"last",
        ..Operation::Write.on(handle)
    };
    assert_eq!(pair.engine.execute(&last), Err(CommandError::Full));
    let mut reader = pair.client.try_clone().unwrap();
    let taken = std::thread::spawn(move || {
        let mut taken = vec![0; 16 << 20];
        reader.read_exact(&mut taken).unwrap();
    });
    pair.wait_for(EventKind::Writable);
    taken.join().unwrap();
    pair.order(&last);
    assert_eq!(pair.read_until(""), "last");
}

#[test]
fn a_mark_is_told_when_the_message_is_out_that_bears_it() {
    let (mut pair, handle) = web_socket();
    let message = |mark, payload| Command {
        argument: mark,
        bytes: payload,
        ..Operation::Send.on(handle)
    };
    // The socket takes it at once.
    pair.order(&message(7, b"short"));
    assert_eq!(pair.wait_for(EventKind::Writable).detail, 7);
    // What nobody asked about is told without a mark, or not at all.
    pair.order(&message(0, b"short"));
    let long = vec![0; 8 << 20];
    pair.order(&message(8, &long));
    pair.turn(Duration::from_millis(1));
    assert!(pair.seen.is_empty(), "{:?}", pair.seen);
    let mut reader = pair.client.try_clone().unwrap();
    let taken = std::thread::spawn(move || {
        // Two frames of 7 bytes, and one whose header has 10.
        let mut taken = vec![0; 24 + (8 << 20)];
        reader.read_exact(&mut taken).unwrap();
    });
    let told = pair.wait_for(EventKind::Writable);
    assert_eq!((told.handle, told.detail), (handle, 8));
    taken.join().unwrap();
}

#[test]
fn nothing_is_kept_of_a_mark_whose_connection_ends() {
    let (mut pair, handle) = web_socket();
    let long = vec![0; 8 << 20];
    pair.order(&Command {
        argument: 9,
        bytes: &long,
        ..Operation::Send.on(handle)
    });
    assert!(pair.engine.hub.state.marks_anything());
    pair.order(&Operation::Abort.on(handle));
    pair.wait_for(EventKind::WebSocketClosed);
    assert!(!pair.engine.hub.state.marks_anything());
    assert!(pair.seen.is_empty(), "{:?}", pair.seen);
}

#[test]
fn an_answer_that_was_begun_is_no_handshake() {
    let (mut pair, handle) = Pair::with_request(HANDSHAKE);
    pair.write(handle, 0, b"HTTP/1.1 200 OK\r\n");
    let upgrade = Command {
        bytes: HANDSHAKE.as_bytes(),
        ..Operation::Upgrade.on(handle)
    };
    assert_eq!(pair.engine.execute(&upgrade), Err(CommandError::Misplaced));
    pair.write(handle, write_flags::FINISH | write_flags::CLOSE, b"\r\n");
    assert_eq!(pair.read_until(""), "HTTP/1.1 200 OK\r\n\r\n");
}

#[test]
fn orders_between_turns_make_the_next_one_due() {
    let (mut pair, handle) = Pair::with_request(GET);
    while pair.engine.wait_max() == Some(Duration::ZERO) {
        pair.turn(Duration::ZERO);
    }
    pair.write(handle, write_flags::NOTIFY, b"HTTP/1.1 200 OK\r\n");
    assert_eq!(pair.engine.wait_max(), Some(Duration::ZERO));
    pair.turn(PATIENCE);
    pair.wait_for(EventKind::Writable);
    pair.engine.close_all();
    assert_eq!(pair.engine.wait_max(), Some(Duration::ZERO));
    assert_eq!(pair.wait_for(EventKind::Gone).handle, handle);
}

#[test]
fn a_name_of_one_kind_is_none_of_another() {
    let (mut pair, handle) = Pair::with_request(GET);
    let place = handle & (u64::MAX >> 8);
    for other in (0..=6).filter(|other| *other != kind::EXCHANGE) {
        let handle = u64::from(other) << 56 | place;
        let orders = [
            Operation::Detach.on(handle),
            Command {
                argument: 1,
                ..Operation::Grant.on(handle)
            },
            Operation::Pause.on(handle),
        ];
        for order in &orders {
            let result = pair.engine.execute(order);
            assert_eq!(result, Err(CommandError::Stale), "{order:?}");
        }
    }
    pair.write(
        handle,
        write_flags::FINISH | write_flags::CLOSE,
        b"still here",
    );
    assert_eq!(pair.read_until(""), "still here");
}
