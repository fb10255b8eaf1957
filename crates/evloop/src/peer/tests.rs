//! Peers on pairs of sockets, and on simulated networks.

use super::*;
use crate::EventLoop;
use mio::net::UnixStream;
use proptest::prelude::*;
use std::io::{Read, Write};

const TOKEN: Token = Token::new(1, 0, 0);
const PACE: WritePace = WritePace {
    rate_min: 0,
    timeout: Duration::from_secs(1),
};

fn pair() -> (Peer<usize>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Peer::new(Stream::from_unix(ours)), theirs)
}

/// Takes messages of a length and so many bytes from what there is; returns how much is used.
fn messages(input: &[u8], taken: &mut Vec<Vec<u8>>) -> usize {
    let mut used = 0;
    while let Some((&length, rest)) = input[used..].split_first() {
        let Some(message) = rest.get(..length.into()) else {
            break;
        };
        taken.push(message.to_vec());
        used += 1 + message.len();
    }
    used
}

/// Reads once and takes what is whole.
fn take(peer: &mut Peer<usize>, input: &mut Vec<u8>, room: usize, taken: &mut Vec<Vec<u8>>) {
    let noted = peer.note().copied().unwrap_or_default();
    assert_eq!(noted, peer.tail().len(), "the note is of the tail");
    let filled = peer.fill(input, room).unwrap();
    assert_eq!(filled.kept, noted);
    let used = messages(&input[..filled.bytes()], taken);
    peer.keep(&input[..filled.bytes()], used, filled.bytes() - used);
}

proptest! {
    #[test]
    fn pieces_give_what_the_whole_gives(
        sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
        pieces in prop::collection::vec(1..60_usize, 1..50),
        room in 41..100_usize,
    ) {
        let bytes: Vec<u8> = sent
            .iter()
            .flat_map(|message| [&[message.len() as u8], &message[..]].concat())
            .collect();
        for pieces in [&[1][..], &[bytes.len().max(1)], &pieces] {
            let (mut peer, mut theirs) = pair();
            let mut sizes = pieces.iter().cycle();
            let (mut rest, mut taken) = (&bytes[..], Vec::new());
            let mut input = vec![0; 64];
            while !rest.is_empty() || peer.is_unread() {
                let piece;
                (piece, rest) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                theirs.write_all(piece).unwrap();
                peer.observe(Readiness::READABLE);
                take(&mut peer, &mut input, room, &mut taken);
            }
            prop_assert_eq!(&taken, &sent);
            prop_assert!(!peer.has_tail());
        }
    }
}

#[test]
fn what_came_with_the_news_of_the_end_is_all() {
    let both = Readiness::READABLE.and(Readiness::READ_CLOSED);
    let (mut peer, mut theirs) = pair();
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
    assert!(!peer.is_unread() && !peer.is_at_end(), "nothing was told");
    theirs.write_all(b"last").unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    peer.observe(both);
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 4);
    assert!(peer.is_at_end());
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn an_end_that_nothing_announced_is_found_by_reading() {
    let (mut peer, mut theirs) = pair();
    theirs.write_all(b"last").unwrap();
    drop(theirs);
    peer.observe(Readiness::READABLE);
    assert_eq!(peer.read(&mut [0; 4]).unwrap(), 4);
    assert!(
        peer.is_unread(),
        "a full buffer says nothing of what is behind it"
    );
    assert_eq!(peer.read(&mut [0; 4]).unwrap(), 0);
    assert!(peer.is_at_end());
}

#[test]
fn an_end_that_is_read_for_itself_is_told_from_a_failure() {
    let both = Readiness::READABLE.and(Readiness::READ_CLOSED);
    for unread in [&b""[..], b"unread"] {
        let (mut peer, mut theirs) = pair();
        peer.stream.write(unread).unwrap();
        theirs.write_all(b"last").unwrap();
        // What it has not read makes a failure of its end.
        drop(theirs);
        peer.observe(both);
        assert_eq!(peer.read_to_end(&mut [0; 8]).unwrap(), 4);
        assert!(!peer.is_at_end(), "that has to be read yet");
        let end = peer.read_to_end(&mut [0; 8]);
        assert_eq!(end.is_ok_and(|read| read == 0), unread.is_empty());
        assert_eq!(peer.is_at_end(), unread.is_empty());
    }
}

#[test]
fn what_was_read_before_the_protocol_began_comes_first_however_long_it_is() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let stream = Stream::from_unix(ours);
    let input = vec![b'a'; 100];
    let mut peer = Peer::<usize>::from(Detached { stream, input });
    theirs.write_all(b"behind").unwrap();
    peer.observe(Readiness::READABLE);
    let mut input = vec![0; 64];
    let filled = peer.fill(&mut input, usize::MAX).unwrap();
    assert_eq!((filled, input.len()), (Filled { kept: 100, read: 0 }, 100));
    peer.keep(&input, 98, 2);
    let filled = peer.fill(&mut input, usize::MAX).unwrap();
    assert_eq!(filled, Filled { kept: 2, read: 6 });
    assert_eq!(&input[..8], b"aabehind");
    peer.keep(&input[..8], 0, 8);
    let detached = Detached::from(peer);
    assert_eq!(detached.input, b"aabehind");
}

#[test]
fn no_more_is_read_than_there_is_room_for() {
    let (mut peer, mut theirs) = pair();
    theirs.write_all(b"123456").unwrap();
    peer.observe(Readiness::READABLE);
    let mut input = vec![0; 64];
    assert_eq!(peer.fill(&mut input, 4).unwrap().bytes(), 4);
    peer.keep(&input[..4], 1, 3);
    assert_eq!(
        peer.fill(&mut input, 2).unwrap().read,
        0,
        "the tail is longer"
    );
    assert_eq!(peer.fill(&mut input, 4).unwrap().bytes(), 4);
    assert_eq!(&input[..4], b"2345");
    assert!(peer.is_unread());
}

#[test]
fn a_flush_tells_what_was_taken_and_when_it_is_enough() {
    let mut event_loop = EventLoop::<()>::new().unwrap();
    let context = event_loop.context();
    let (mut peer, mut theirs) = pair();
    peer.stream.write(&vec![b'x'; 4 << 20]).unwrap();
    let refused = peer.unsent();
    assert!(refused > 0);
    let pace = WritePace {
        rate_min: u32::MAX,
        ..PACE
    };
    let mut room = vec![0; 64 * 1024];
    let (mut taken, mut is_done) = (0, false);
    while !is_done {
        while theirs.read(&mut room).is_ok_and(|read| read > 0) {}
        let progress = peer.flush(context, TOKEN, pace).unwrap();
        taken += progress.sent;
        is_done = progress.left == Flushed::All;
        // An empty queue has taken enough, whatever that was.
        assert_eq!(progress.is_enough, is_done);
    }
    assert_eq!((taken, peer.unsent()), (refused, 0));
    assert_eq!(peer.flush(context, TOKEN, PACE).unwrap().sent, 0);
}

#[test]
fn a_peer_that_may_still_send_is_read_from_until_it_ends() {
    let mut event_loop = EventLoop::<()>::new().unwrap();
    let context = event_loop.context();
    let (mut peer, _theirs) = pair();
    assert!(!peer.linger(context, TOKEN), "nothing can be unread");
    let (mut peer, mut theirs) = pair();
    theirs.write_all(b"unwanted").unwrap();
    peer.observe(Readiness::READABLE);
    assert!(peer.linger(context, TOKEN) && context.is_armed(TOKEN));
    assert!(!peer.is_unread() && !peer.is_at_end());
    let mut end = [0; 1];
    assert_eq!(theirs.read(&mut end).unwrap(), 0);
    theirs.write_all(&[0; 1000]).unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    peer.observe(Readiness::READABLE.and(Readiness::READ_CLOSED));
    assert!(!peer.discard(context, TOKEN));
}

#[test]
fn a_peer_costs_its_socket_a_pointer_and_two_marks() {
    assert!(size_of::<Peer>() <= size_of::<Stream>() + 2 * size_of::<usize>());
}

#[cfg(feature = "sim")]
mod on_a_network {
    use super::*;
    use crate::sim::{Link, SimNet};
    use crate::{Driver, ListenOptions, Listener, bind_group};

    /// Takes messages from one client, and sends each back.
    struct Host {
        listener: Listener,
        peer: Option<Peer<usize>>,
        taken: Vec<Vec<u8>>,
    }

    impl Driver for Host {
        type Message = ();

        fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
            if token.kind() == 0 {
                let peer = &mut self.peer;
                self.listener
                    .accept_batch(context, token, |context, stream, _| {
                        let peer = peer.insert(Peer::new(stream));
                        context.register(&mut peer.stream, TOKEN).unwrap();
                    });
                return;
            }
            let Some(peer) = &mut self.peer else { return };
            peer.observe(readiness);
            if readiness.is_writable() {
                peer.flush(context, TOKEN, PACE).unwrap();
            }
            let mut input = context.take_input();
            let before = self.taken.len();
            while peer.is_unread() {
                take(peer, &mut input, usize::MAX, &mut self.taken);
            }
            context.return_input(input);
            for message in &self.taken[before..] {
                peer.stream.write(message).unwrap();
            }
            let is_over = peer.is_at_end() && peer.stream.is_flushed();
            if is_over && !peer.linger(context, TOKEN) {
                self.peer = None;
            }
        }

        fn expired(&mut self, _: &mut Context, _: Token) {}

        fn message(&mut self, _: &mut Context, (): ()) {}
    }

    #[test]
    fn a_rough_network_changes_nothing_of_what_is_taken_and_sent() {
        for seed in 0..20 {
            let network = SimNet::new(seed);
            network.set_link(Link::rough());
            let mut event_loop = EventLoop::new().unwrap();
            let any = ([127, 0, 0, 1], 0).into();
            let mut listener = bind_group(any, 1, ListenOptions::default())
                .unwrap()
                .remove(0);
            let address = listener.address().unwrap();
            let listening = Token::new(0, 0, 0);
            listener.register(event_loop.context(), listening).unwrap();
            let mut host = Host {
                listener,
                peer: None,
                taken: Vec::new(),
            };
            let sent: Vec<Vec<u8>> = (0..200_u8)
                .map(|length| vec![length; length.into()])
                .collect();
            let bytes: Vec<u8> = sent
                .iter()
                .flat_map(|message| [&[message.len() as u8], &message[..]].concat())
                .collect();
            let mut client = network.connect(address);
            let (mut written, mut received) = (0, Vec::new());
            for _ in 0..10_000 {
                written += client.write(&bytes[written..]).unwrap_or(0);
                if written == bytes.len() {
                    client.shutdown_write().unwrap();
                }
                client.read_all(&mut received);
                if client.has_ended() {
                    break;
                }
                event_loop
                    .turn(&mut host, Some(Duration::from_secs(1)))
                    .unwrap();
            }
            assert!(client.has_ended() && host.peer.is_none(), "seed {seed}");
            assert_eq!(host.taken, sent, "seed {seed}");
            assert_eq!(received, sent.concat(), "seed {seed}");
        }
    }
}
