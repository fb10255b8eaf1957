use super::*;
use file::send_by_copy;
use proptest::prelude::*;
use queue::FILE_BYTES_PER_FLUSH;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

fn pair() -> (Stream, std::os::unix::net::UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (Stream::from_unix(UnixStream::from_std(ours)), theirs)
}

fn tcp_pair() -> (Stream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (Stream::from_tcp(TcpStream::from_std(ours)), theirs)
}

/// A file of this many bytes that differ from place to place.
fn file_of(bytes: u64) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&contents(0, bytes)).unwrap();
    file.into()
}

fn contents(offset: u64, length: u64) -> Vec<u8> {
    // The period is no power of two, so that a whole share more or less shows.
    let period: Vec<u8> = (0_u16..65_521)
        .map(|place| (place ^ (place >> 8)) as u8)
        .collect();
    let start = (offset % period.len() as u64) as usize;
    let mut bytes = period.repeat(length as usize / period.len() + 2);
    bytes.drain(..start);
    bytes.truncate(length as usize);
    bytes
}

/// Reads what is here, at most `bytes_max`.
fn take(peer: &mut impl Read, seen: &mut Vec<u8>, bytes_max: usize) {
    let mut buffer = vec![0; bytes_max];
    match peer.read(&mut buffer) {
        Ok(read) => seen.extend_from_slice(&buffer[..read]),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
    }
}

/// Flushes and reads in turn until nothing is left; the reader takes little at a time.
fn take_all(stream: &mut Stream, peer: &mut impl Read, bytes_max: usize) -> Vec<u8> {
    let mut seen = Vec::new();
    while stream.flush().unwrap() != Flushed::All {
        take(peer, &mut seen, bytes_max);
    }
    loop {
        let before = seen.len();
        take(peer, &mut seen, 1 << 20);
        if seen.len() == before {
            return seen;
        }
    }
}

#[test]
fn what_the_socket_refuses_is_kept_in_order() {
    let (mut stream, mut peer) = pair();
    let body = Bytes::from(vec![b'b'; 4 << 20]);
    stream.write_shared(b"head", body.clone()).unwrap();
    let tail: Vec<u8> = (0..100).collect();
    for byte in &tail {
        stream.write(&[*byte]).unwrap();
    }
    assert!(stream.queued_bytes() > tail.len());
    assert_eq!(stream.flushed(), Flushed::Blocked);
    let seen = take_all(&mut stream, &mut peer, 1 << 20);
    assert_eq!(&seen[..4], b"head");
    assert_eq!(&seen[4..4 + body.len()], &body[..]);
    assert_eq!(&seen[4 + body.len()..], tail);
    assert_eq!(stream.queued_bytes(), 0);
    assert!(
        stream.beside.queue().is_none(),
        "an empty queue owns no memory"
    );
}

#[test]
fn what_is_kept_with_a_stream_outlives_its_queue_and_ends_with_it() {
    let (mut stream, mut peer) = pair();
    let (open, next) = (Arc::new(()), Arc::new(()));
    stream.write(&vec![b'a'; 4 << 20]).unwrap();
    stream.keep(Box::new(Arc::clone(&open)));
    assert_eq!(take_all(&mut stream, &mut peer, 1 << 20).len(), 4 << 20);
    stream.write(&vec![b'b'; 4 << 20]).unwrap();
    assert_eq!(take_all(&mut stream, &mut peer, 1 << 20).len(), 4 << 20);
    assert!(stream.is_flushed());
    assert_eq!(Arc::strong_count(&open), 2);
    stream.keep(Box::new(Arc::clone(&next)));
    assert_eq!([&open, &next].map(Arc::strong_count), [1, 2]);
    drop(stream);
    assert_eq!(Arc::strong_count(&next), 1);
    // A stream without either is its socket and a pointer.
    assert_eq!(
        size_of::<Stream>(),
        size_of::<Socket>() + size_of::<usize>()
    );
}

#[test]
fn many_small_pieces_take_the_room_of_their_bytes() {
    let (mut stream, mut peer) = pair();
    stream.write(&vec![b'a'; 4 << 20]).unwrap();
    stream.flush().unwrap();
    let before = stream.queued_bytes();
    let pieces = 30_000;
    for _ in 0..pieces {
        stream
            .write_shared(b"he", Bytes::from_static(b"ad"))
            .unwrap();
    }
    assert_eq!(stream.queued_bytes(), before + 4 * pieces);
    let segments = stream.beside.queue().unwrap().segments();
    assert!(segments < 20, "{segments}");
    let seen = take_all(&mut stream, &mut peer, 1 << 20);
    assert!(seen[4 << 20..] == b"head".repeat(pieces));
}

#[test]
fn a_read_tells_whether_the_socket_may_hold_more() {
    let (mut stream, mut peer) = pair();
    let mut buffer = [0; 4];
    assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::WouldBlock);
    peer.write_all(b"abcdef").unwrap();
    assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::More(4));
    assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::Drained(2));
    drop(peer);
    assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::Closed);
}

#[test]
fn a_small_part_of_a_file_goes_out_at_once_and_lets_the_descriptor_go() {
    let (mut stream, mut peer) = tcp_pair();
    let file = file_of(1000);
    let slice = FileSlice {
        file: Arc::clone(&file),
        offset: 100,
        length: 200,
    };
    stream.write_file(b"head", slice).unwrap();
    assert_eq!(stream.flushed(), Flushed::All);
    assert_eq!(Arc::strong_count(&file), 1);
    let mut seen = vec![0; 204];
    peer.set_nonblocking(false).unwrap();
    peer.read_exact(&mut seen).unwrap();
    assert_eq!(&seen[..4], b"head");
    assert_eq!(&seen[4..], contents(100, 200));
}

#[test]
fn a_slow_reader_gets_a_large_file_between_what_was_written_around_it() {
    let (mut stream, mut peer) = tcp_pair();
    let length = 24 << 20;
    let file = file_of(length);
    let slice = FileSlice {
        file: Arc::clone(&file),
        offset: 0,
        length,
    };
    stream.write_file(b"head", slice).unwrap();
    assert_eq!(stream.flushed(), Flushed::More, "a share was sent");
    assert_eq!(
        stream.queued_file_bytes(),
        length - FILE_BYTES_PER_FLUSH,
        "and no more than that"
    );
    assert_eq!(stream.queued_bytes(), 0, "a file takes no memory");
    stream.write(b"tail").unwrap();
    assert_eq!(stream.flushed(), Flushed::More);
    while stream.flush().unwrap() == Flushed::More {}
    assert_eq!(stream.flushed(), Flushed::Blocked);
    assert!(!stream.is_flushed());
    let seen = take_all(&mut stream, &mut peer, 100_000);
    assert_eq!(Arc::strong_count(&file), 1);
    assert_eq!(&seen[..4], b"head");
    assert!(seen[4..seen.len() - 4] == contents(0, length)[..]);
    assert_eq!(&seen[seen.len() - 4..], b"tail");
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_fails_the_stream() {
    let (mut stream, mut peer) = tcp_pair();
    let length = 24 << 20;
    let file = file_of(length);
    let slice = FileSlice {
        file: Arc::clone(&file),
        offset: 0,
        length,
    };
    stream.write_file(b"head", slice).unwrap();
    // Shorter than what is sent already.
    file.set_len(1000).unwrap();
    let missing_bytes = stream.queued_file_bytes();
    let mut seen = Vec::new();
    let error = loop {
        match stream.flush() {
            Ok(Flushed::All) => panic!("bytes that are not there were sent"),
            Ok(_) => take(&mut peer, &mut seen, 1 << 20),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    let cause = error.get_ref().unwrap().downcast_ref::<FileTruncated>();
    assert_eq!(cause, Some(&FileTruncated { missing_bytes }));
}

#[test]
fn a_slice_beyond_the_end_of_its_file_fails_at_once() {
    let (mut stream, _peer) = pair();
    let slice = FileSlice {
        file: file_of(10),
        offset: 10,
        length: 1,
    };
    let error = stream.write_file(b"head", slice).unwrap_err();
    assert_eq!(
        error.to_string(),
        "file ends 1 bytes before what is sent of it"
    );
}

#[test]
fn what_the_system_cannot_send_by_itself_is_copied() {
    let (stream, mut peer) = pair();
    let slice = FileSlice {
        file: file_of(300_000),
        offset: 1000,
        length: 250_000,
    };
    let sent = send_by_copy(&stream.socket, &slice, 250_000).unwrap();
    assert!((1..250_000).contains(&sent), "one piece at a time: {sent}");
    let mut seen = Vec::new();
    take(&mut peer, &mut seen, 250_000);
    assert_eq!(seen, contents(1000, sent as u64));
    let beyond = FileSlice {
        offset: 300_000,
        ..slice
    };
    assert_eq!(send_by_copy(&stream.socket, &beyond, 1).unwrap(), 0);
}

#[test]
fn an_empty_slice_is_only_its_head() {
    let (mut stream, mut peer) = pair();
    let slice = FileSlice {
        file: file_of(10),
        offset: 3,
        length: 0,
    };
    stream.write_file(b"head", slice).unwrap();
    assert!(stream.is_flushed());
    assert_eq!(take_all(&mut stream, &mut peer, 100), b"head");
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Shared(usize),
    File { head: usize, part: (u64, u64) },
    Flush,
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    // Small pieces are gathered where large ones are not.
    let size = || prop_oneof![0_usize..300, 0_usize..300_000];
    prop_oneof![
        size().prop_map(Step::Write),
        size().prop_map(Step::Shared),
        (0_usize..2000, (0_u64..1 << 20, 0_u64..1 << 20))
            .prop_map(|(head, part)| Step::File { head, part }),
        Just(Step::Flush),
        (1_usize..400_000).prop_map(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_peer_reads_what_was_written_in_its_order(
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let (mut stream, mut peer) = tcp_pair();
        let file = file_of(2 << 20);
        let (mut expected, mut seen) = (Vec::new(), Vec::new());
        for (number, step) in steps.into_iter().enumerate() {
            let bytes = |size| vec![number as u8; size];
            match step {
                Step::Write(size) => {
                    stream.write(&bytes(size)).unwrap();
                    expected.extend(bytes(size));
                }
                Step::Shared(size) => {
                    stream.write_shared(b"shared", bytes(size).into()).unwrap();
                    expected.extend(b"shared");
                    expected.extend(bytes(size));
                }
                Step::File { head, part: (offset, length) } => {
                    let file = Arc::clone(&file);
                    let slice = FileSlice { file, offset, length };
                    stream.write_file(&bytes(head), slice).unwrap();
                    expected.extend(bytes(head));
                    expected.extend(contents(offset, length));
                }
                Step::Flush => {
                    let flushed = stream.flush().unwrap();
                    prop_assert_eq!(flushed, stream.flushed());
                    prop_assert_eq!(flushed == Flushed::All, stream.is_flushed());
                }
                Step::Read(size) => take(&mut peer, &mut seen, size),
            }
        }
        while stream.flush().unwrap() != Flushed::All {
            take(&mut peer, &mut seen, 1 << 20);
        }
        peer.set_nonblocking(false).unwrap();
        drop(stream);
        peer.read_to_end(&mut seen).unwrap();
        prop_assert!(seen == expected);
    }
}
