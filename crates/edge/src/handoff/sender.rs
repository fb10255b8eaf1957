//! The sender of connections to the successor. Loops put them in a bounded queue, and one thread
//! sends them, so that no loop waits for the successor.

use super::channel::{Channel, FrameKind};
#[cfg(feature = "sim")]
use super::connections::HandedConnection;
use super::listeners::Role;
#[cfg(feature = "sim")]
use super::passed::Passed;
use super::secure::{self, ReadsClient, TakesTls};
use dwell_evloop::{Acceptor, KeptOfClient, Stream};
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections that wait to be sent, from which on a loop keeps its own. Each of several loops may
/// add as many as it has seen room for. Their memory is the one that they have had before.
const COUNT_MAX: usize = 256;
/// Longest time in which nothing of a connection gets through to the successor.
pub(crate) const SEND_STALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time in which the end of the process waits for what is still to be sent; a successor
/// that has stopped is noticed before.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(4);

/// The sender of connections to the successor.
#[derive(Debug)]
pub(crate) struct HandoffSender {
    outbox: Mutex<Outbox>,
    changed: Condvar,
    has_items: bool,
    takes_tls: bool,
    part: KeptOfClient,
}

#[derive(Debug, Default)]
struct Outbox {
    queue: VecDeque<Departure>,
    stage: Stage,
    /// A loop has more connections than there was room for.
    is_awaited: bool,
}

impl Outbox {
    /// Returns true if a loop has waited for room, and there is room now.
    fn takes_room(&mut self) -> bool {
        let has_room = self.queue.len() <= COUNT_MAX / 2;
        has_room && std::mem::take(&mut self.is_awaited)
    }
}

/// The stage of a sender, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// Connections are taken.
    #[default]
    Open,
    /// The rest is sent.
    Closing,
    /// The successor takes nothing any more: the rest is closed.
    Failing,
    /// Nothing is left.
    Closed,
}

/// A connection on its way to the successor.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) role: Role,
    /// Its memcached client is authenticated.
    pub(crate) is_trusted: bool,
    pub(crate) stream: Stream,
    /// Input that nothing has used.
    pub(crate) input: Vec<u8>,
}

impl HandoffSender {
    /// Makes a sender; nothing is sent before it [runs](Self::run).
    pub(crate) fn new(has_items: bool) -> Self {
        Self {
            outbox: Mutex::default(),
            changed: Condvar::new(),
            has_items,
            takes_tls: false,
            part: KeptOfClient::Nothing,
        }
    }

    /// The successor takes this of TLS from a process that accepts connections by `acceptor`, and
    /// reads this of clients.
    pub(crate) fn with_tls(
        mut self,
        takes: TakesTls,
        reads: ReadsClient,
        acceptor: &Acceptor,
    ) -> Self {
        self.takes_tls = takes.takes_connections(acceptor.client_authorities());
        self.part = reads.part_for(takes, acceptor.authorities());
        self
    }

    /// Returns true if the successor has taken the items of the store.
    pub(crate) fn has_items(&self) -> bool {
        self.has_items
    }

    /// Returns true if the successor takes connections of TLS 1.3.
    pub(crate) fn takes_tls(&self) -> bool {
        self.takes_tls
    }

    /// Connections that a loop may give now; `None` once the successor takes nothing any more.
    pub(crate) fn room(&self) -> Option<usize> {
        let outbox = self.lock();
        let is_open = outbox.stage == Stage::Open;
        is_open.then(|| COUNT_MAX.saturating_sub(outbox.queue.len()))
    }

    /// Has the loops woken when there is room again.
    pub(crate) fn await_room(&self) {
        self.lock().is_awaited = true;
        self.changed.notify_all();
    }

    /// Puts a connection in the queue. If the successor takes nothing any more, it is closed.
    ///
    /// Shape: never waits. To be called on the thread of its loop, whose keys of it are erased.
    pub(crate) fn give(&self, mut departure: Departure) {
        departure.stream.forget_keys();
        let mut outbox = self.lock();
        if outbox.stage == Stage::Open {
            outbox.queue.push_back(departure);
            self.changed.notify_all();
        } else {
            drop(outbox);
            departure.part();
        }
    }

    /// Sends what is given until the sender is [closed](Self::close); `wake` wakes the loops.
    ///
    /// Shape: to be called once, on a thread of its own. If a connection does not get through, the
    /// successor is given nothing any more: that connection and those of the queue are closed, and
    /// logged by their number. Connections before it are the successor's alone.
    pub(crate) fn run(&self, mut channel: Channel, wake: impl Fn()) {
        let _end = End(self);
        let mut given = 0_usize;
        while let Some(departure) = self.next(&wake) {
            match departure.send(&mut channel, self.part) {
                Ok(()) => given += 1,
                Err(error) => {
                    let closed = self.fail() + 1;
                    tracing::error!(
                        %error, given, closed,
                        "no connection is handed over any more, those that are left end here"
                    );
                    return wake();
                }
            }
        }
        tracing::debug!(given, "connections are handed over");
    }

    /// Waits for the next connection; `None` when the queue is empty and the sender is closed.
    fn next(&self, wake: &impl Fn()) -> Option<Departure> {
        let mut outbox = self.lock();
        loop {
            if outbox.takes_room() {
                drop(outbox);
                wake();
                outbox = self.lock();
            }
            let departure = outbox.queue.pop_front();
            if departure.is_some() || outbox.stage != Stage::Open {
                return departure;
            }
            let waited = self.changed.wait(outbox);
            outbox = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the next connection of the queue for a successor in this thread, as the thread that
    /// sends does; `None` when the queue is empty.
    #[cfg(feature = "sim")]
    pub(crate) fn take(&self, wake: impl Fn()) -> Option<HandedConnection> {
        let mut outbox = self.lock();
        if outbox.takes_room() {
            wake();
        }
        let departure = outbox.queue.pop_front()?;
        drop(outbox);
        departure.pass(self.part)
    }

    fn enter(&self, stage: Stage) {
        self.lock().stage = stage;
        self.changed.notify_all();
    }

    /// Takes nothing any more, and closes the connections of the queue; returns their number.
    fn fail(&self) -> usize {
        let mut outbox = self.lock();
        outbox.stage = Stage::Failing;
        let left = std::mem::take(&mut outbox.queue);
        drop(outbox);
        let closed = left.len();
        left.into_iter().for_each(Departure::part);
        closed
    }

    /// Ends the hand-over when what was given is sent, and waits for that for four seconds at most;
    /// what is not sent by then is closed.
    pub(crate) fn close(&self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut outbox = self.lock();
        if outbox.stage == Stage::Open {
            outbox.stage = Stage::Closing;
        }
        self.changed.notify_all();
        while outbox.stage != Stage::Closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(outbox);
                let closed = self.fail();
                tracing::error!(
                    closed,
                    "connections were not handed over in time and end here"
                );
                return;
            }
            let waited = self.changed.wait_timeout(outbox, left);
            outbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Outbox> {
        // Consistent after every step.
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the thread that sends, also by a panic.
struct End<'s>(&'s HandoffSender);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // Nothing is left in the queue, unless it is a panic.
        self.0.fail();
        self.0.enter(Stage::Closed);
    }
}

impl Departure {
    /// Sends the connection; its socket is closed here.
    ///
    /// Shape: this is the only place where a session of TLS leaves the process, and it is called
    /// only after the successor has confirmed that it serves. Before it, nothing is frozen, so a
    /// failed upgrade leaves every session as it was. From the freezing on nothing can be sealed
    /// here, also if the frame does not get through: how much of it the successor has read is not
    /// known, and a record of each of the two might have the same nonce. The socket is shut down
    /// then, so that the client sees the end at once.
    fn send(mut self, channel: &mut Channel, part: KeptOfClient) -> io::Result<()> {
        let (kind, bytes);
        if self.stream.is_secure() {
            let Some(frozen) = self.stream.freeze(part) else {
                self.part();
                return Ok(());
            };
            bytes = secure::to_bytes(&frozen, &self.input);
            kind = FrameKind::SecureConnection;
        } else {
            bytes = std::mem::take(&mut self.input).into();
            kind = if self.is_trusted {
                FrameKind::TrustedConnection
            } else {
                FrameKind::Connection
            };
        }
        let descriptor = self.stream.as_fd();
        let sent = channel.send(kind, self.role as u8, &bytes, Some(descriptor));
        if sent.is_err() {
            // It fails only for a socket whose peer has gone.
            let _ = shutdown(descriptor, Shutdown::Both);
        }
        sent
    }

    /// Passes the connection on in this thread, as [`send`](Self::send) does to another process.
    #[cfg(feature = "sim")]
    fn pass(mut self, part: KeptOfClient) -> Option<HandedConnection> {
        let frozen = if self.stream.is_secure() {
            Some(self.stream.freeze(part)?)
        } else {
            None
        };
        Some(HandedConnection {
            role: self.role,
            is_trusted: self.is_trusted,
            frozen,
            input: std::mem::take(&mut self.input),
            descriptor: Passed::Stream(self.stream.take_simulated()?),
        })
    }

    /// Closes the connection in order.
    fn part(mut self) {
        self.stream.close_notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn channels() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + PATIENCE;
        (Channel::new(one, deadline), Channel::new(other, deadline))
    }

    /// A connection, and its client.
    fn connection(input: &[u8]) -> (Departure, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        let departure = Departure {
            role: Role::Client,
            is_trusted: false,
            stream: Stream::from_descriptor(ours.into()).unwrap(),
            input: input.to_vec(),
        };
        (departure, theirs)
    }

    /// Gives as many as there is room for.
    fn give_all(sender: &HandoffSender, left: &mut Vec<Departure>) {
        let Some(room) = sender.room() else { return };
        let count = room.min(left.len());
        left.drain(..count)
            .for_each(|departure| sender.give(departure));
        if count == room {
            sender.await_room();
        }
    }

    #[test]
    fn a_successor_that_has_stopped_holds_up_no_loop_and_loses_nobody_in_silence() {
        let (mut channel, mut receiver) = channels();
        channel.set_stall_timeout(Some(Duration::from_millis(20)));
        let sender = HandoffSender::new(true);
        // More than the socket and the queue take together.
        let (mut left, mut clients): (Vec<_>, Vec<_>) = (0..40)
            .map(|number| connection(&vec![number; 64 * 1024]))
            .unzip();
        let woken = AtomicUsize::new(0);
        thread::scope(|scope| {
            let sends = scope.spawn(|| {
                sender.run(channel, || {
                    woken.fetch_add(1, Ordering::SeqCst);
                });
            });
            // Nobody receives, and no call waits for that: this thread gives everything.
            give_all(&sender, &mut left);
            assert!(left.is_empty());
            sends.join().unwrap();
        });
        assert_eq!((sender.room(), woken.load(Ordering::SeqCst)), (None, 1));
        let (late, late_client) = connection(b"");
        sender.give(late);
        clients.push(late_client);
        // The successor goes on, and has what is whole.
        let mut given = Vec::new();
        while let Ok(frame) = receiver.receive() {
            assert_eq!(frame.bytes.len(), 64 * 1024);
            assert_eq!(usize::from(frame.bytes[0]), given.len(), "in order");
            given.push(frame.unix_stream());
        }
        assert!(!given.is_empty() && given.len() < 40);
        let (served, closed) = clients.split_at_mut(given.len());
        for (served, server) in served.iter_mut().zip(&mut given) {
            server.write_all(b"x").unwrap();
            served.read_exact(&mut [0]).unwrap();
        }
        for closed in closed {
            assert_eq!(closed.read(&mut [0]).unwrap(), 0, "it is told");
        }
        sender.close();
    }

    #[test]
    fn a_full_queue_wakes_the_loops_when_there_is_room() {
        let (channel, mut receiver) = channels();
        let sender = HandoffSender::new(false);
        let (mut left, clients): (Vec<_>, Vec<_>) =
            (0..3 * COUNT_MAX).map(|_| connection(b"GET")).unzip();
        give_all(&sender, &mut left);
        assert_eq!((sender.room(), left.len()), (Some(0), 2 * COUNT_MAX));
        let (wake, is_woken) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| sender.run(channel, move || wake.send(()).unwrap()));
            let counts = scope.spawn(move || {
                let mut count = 0;
                while let Ok(frame) = receiver.receive() {
                    assert_eq!(
                        (frame.kind, &**frame.bytes),
                        (FrameKind::Connection, &b"GET"[..])
                    );
                    assert!(frame.descriptor.is_some());
                    count += 1;
                }
                count
            });
            while !left.is_empty() {
                is_woken.recv_timeout(PATIENCE).unwrap();
                give_all(&sender, &mut left);
            }
            sender.close();
            assert_eq!(counts.join().unwrap(), clients.len());
        });
        assert_eq!(sender.room(), None);
    }

    #[test]
    fn the_end_does_not_wait_for_a_successor_that_has_gone() {
        let (channel, receiver) = channels();
        drop(receiver);
        let sender = HandoffSender::new(false);
        let (departure, mut client) = connection(b"");
        sender.give(departure);
        sender.run(channel, || {});
        assert_eq!(sender.room(), None);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        sender.close();
        let error = client.write(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_thread_that_panics_is_a_failure() {
        let (channel, _receiver) = channels();
        let sender = HandoffSender::new(false);
        sender.await_room();
        thread::scope(|scope| {
            let sends = scope.spawn(|| sender.run(channel, || panic!("as expected")));
            assert!(sends.join().is_err());
        });
        assert_eq!(sender.room(), None);
    }
}
