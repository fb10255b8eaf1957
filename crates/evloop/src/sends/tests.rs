use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Streams with tokens, and their other ends.
fn streams(count: u32) -> Vec<(Token, Stream, UnixStream)> {
    let pair = |index| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let stream = Stream::from_descriptor(ours.into()).unwrap();
        (Token::new(1, 0, index), stream, theirs)
    };
    (0..count).map(pair).collect()
}

/// Sends that a kernel without `io_uring` lets nobody test.
fn ready() -> Option<Sends> {
    let mut sends = Sends::default();
    assert_eq!(sends.open(), Sends::probe().is_ok());
    sends.open().then_some(sends)
}

fn send(sends: &mut Sends, streams: &[(Token, Stream, UnixStream)]) {
    let find = |of| streams.iter().find(|(token, _, _)| *token == of);
    sends.send(|of| find(of).map(|(_, stream, _)| stream));
}

fn fill(stream: &UnixStream) -> usize {
    let mut filled = 0;
    while let Ok(written) = (&*stream).write(&[0; 4096]) {
        filled += written;
    }
    filled
}

#[test]
fn each_stream_gets_its_own_bytes_also_beyond_one_call() {
    let Some(mut sends) = ready() else { return };
    let mut streams = streams(3 * SENDS_MAX as u32 / 2);
    for round in 0..3 {
        for (token, _, _) in &streams {
            let text = format!("{round} for {}", token.index());
            sends.push(*token, text.as_bytes());
        }
        assert!(sends.is_full());
        send(&mut sends, &streams);
        assert!(sends.outcomes().all(|(_, sent)| sent == Sent::Whole));
        sends.clear();
        assert!(sends.is_empty());
        for (token, _, theirs) in &mut streams {
            let mut read = [0; 64];
            let length = theirs.read(&mut read).unwrap();
            let text = format!("{round} for {}", token.index());
            assert_eq!(&read[..length], text.as_bytes());
        }
    }
}

#[test]
fn a_full_socket_a_closed_one_and_one_that_is_gone_leave_the_others_alone() {
    let Some(mut sends) = ready() else { return };
    let mut streams = streams(4);
    let full = streams[1].1.descriptor(false).unwrap();
    let full = UnixStream::from(full.try_clone_to_owned().unwrap());
    fill(&full);
    let (closed, _) = UnixStream::pair().unwrap();
    streams[2].2 = closed;
    for (token, _, _) in &streams {
        sends.push(*token, b"news");
    }
    sends.push(Token::new(1, 0, 9), b"for nobody");
    send(&mut sends, &streams);
    let outcomes: Vec<_> = sends.outcomes().map(|(_, sent)| sent).collect();
    let expected = [
        Sent::Whole,
        Sent::Rest(b"news"),
        Sent::Failed,
        Sent::Whole,
        Sent::Failed,
    ];
    assert_eq!(outcomes, expected);
    let mut read = [0; 64];
    assert_eq!(streams[3].2.read(&mut read).unwrap(), 4);
}

#[test]
fn what_a_socket_has_no_room_for_is_told() {
    let Some(mut sends) = ready() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    let mut stream = Stream::from_descriptor(ours.into()).unwrap();
    let token = Token::new(1, 0, 0);
    let part = vec![7; 1 << 20];
    let (mut sent, mut rest) = (0, Vec::new());
    while rest.is_empty() {
        sends.push(token, &part);
        sends.send(|_| Some(&stream));
        sent += part.len();
        if let Some((_, Sent::Rest(left))) = sends.outcomes().next() {
            rest = left.to_vec();
        }
        sends.clear();
    }
    stream.queue_rest(&rest);
    assert_eq!(stream.queued_bytes(), rest.len());
    let reader = std::thread::spawn(move || {
        let mut read = vec![0; sent];
        theirs.read_exact(&mut read).unwrap();
        read
    });
    while stream.flush().unwrap() != crate::Flushed::All {
        std::thread::yield_now();
    }
    assert!(reader.join().unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn what_a_ring_refuses_is_sent_all_the_same() {
    // The kernel takes no orders from a thread that has not made the ring.
    let made = std::thread::spawn(ready).join().unwrap();
    let Some(mut sends) = made else { return };
    let mut streams = streams(SENDS_MAX as u32 + 10);
    let full = UnixStream::from(
        streams[1]
            .1
            .descriptor(false)
            .unwrap()
            .try_clone_to_owned()
            .unwrap(),
    );
    fill(&full);
    // What is gathered behind the failure goes the same way.
    for round in ["one", "two"] {
        for (token, _, _) in &streams {
            sends.push(*token, round.as_bytes());
        }
        send(&mut sends, &streams);
        for (token, sent) in sends.outcomes() {
            let is_full = token.index() == 1;
            let expected = [Sent::Whole, Sent::Rest(round.as_bytes())][usize::from(is_full)];
            assert_eq!(sent, expected, "{token:?}");
        }
        sends.clear();
        for (_, _, theirs) in streams.iter_mut().skip(2) {
            let mut read = [0; 64];
            let length = theirs.read(&mut read).unwrap();
            assert_eq!(&read[..length], round.as_bytes());
        }
    }
    // The next that are gathered have a ring of this thread.
    sends.begin(1);
    assert!(sends.is_of(1));
    sends.push(streams[0].0, b"three");
    send(&mut sends, &streams);
    assert!(sends.outcomes().all(|(_, sent)| sent == Sent::Whole));
    assert!(matches!(sends.state, State::Ready(_)));
}

#[test]
fn only_an_error_that_stays_is_for_ever() {
    for (code, is_passing) in [
        (libc::EMFILE, true),
        (libc::ENOMEM, true),
        (libc::EAGAIN, true),
        (libc::EPERM, false),
        (libc::ENOSYS, false),
        (libc::EINVAL, false),
    ] {
        let state = State::after(&io::Error::from_raw_os_error(code));
        assert_eq!(matches!(state, State::New), is_passing, "{code}");
    }
}

#[test]
fn where_the_kernel_refuses_nothing_is_taken() {
    let mut sends = Sends {
        state: State::Refused,
        ..Sends::default()
    };
    assert!(!sends.open());
}

#[test]
fn the_memory_of_a_burst_goes_with_it() {
    let mut sends = Sends::default();
    for index in 0..SENDS_MAX as u32 {
        sends.push(Token::new(1, 0, index), &[b'n'; Sends::BYTES_MAX]);
    }
    assert!(sends.is_full() && sends.bytes.capacity() > BYTES_KEPT);
    sends.clear();
    assert!(sends.is_empty());
    let kept = sends.bytes.capacity();
    assert!(kept <= BYTES_KEPT, "{kept}");
}
