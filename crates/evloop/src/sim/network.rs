//! The network: its clock, its sockets, and what happens on them next.

use super::calendar::{Calendar, Event};
use super::end::{End, Owner, Phase, Segment, ended};
use super::link::Link;
use super::listening::{self, Listening};
use super::trace::Trace;
use crate::{Random, Token};
use bytes::Bytes;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The name of a loop on the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SimLoop(pub(super) u32);

/// Everything that is simulated.
pub(super) struct Network {
    start: Instant,
    /// Nanoseconds since then.
    pub(super) elapsed: u64,
    pub(super) random: Random,
    pub(super) link: Link,
    pub(super) calendar: Calendar,
    /// The handle of the first of the places.
    pub(super) first: u32,
    places: Vec<Place>,
    ports: u16,
    pub(super) trace: Trace,
    /// Seconds by which the wall clock is ahead of the other.
    pub(super) wall_ahead: i64,
    /// Addresses whose connections are sealed from their beginning.
    pub(super) sealed: Vec<SocketAddr>,
    /// Addresses that nothing comes to.
    pub(super) cut_off: Vec<SocketAddr>,
    /// A line for each event, if they are kept.
    pub(super) record: Option<Vec<String>>,
}

/// The thing that a handle names; it stays when it is closed: its handle never names another.
#[derive(Debug)]
pub(super) enum Place {
    End(Box<End>),
    Listener(Listening),
    Loop(Waiting),
}

/// A loop, as the network sees it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Sockets that may be ready.
    pub(super) marked: Vec<u32>,
    pub(super) is_woken: bool,
}

/// Connections that wait for a peer or a test to accept them.
const BACKLOG: usize = 4096;
/// The time after which a connection is asked for again that found no room.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The wall clock begins here: in 2027.
const WALL_START: Duration = Duration::from_secs(1_800_000_000);
/// Ports that are given to clients, and to listeners that ask for any.
const FIRST_PORT: u16 = 40_000;

impl Network {
    pub(super) fn new(seed: u64, first: u32) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // The first numbers of seeds that are close to one another are, too.
        (0..8).for_each(|_| {
            random.draw();
        });
        Self {
            start: Instant::now(),
            elapsed: 0,
            random,
            link: Link::default(),
            calendar: Calendar::default(),
            first,
            places: Vec::new(),
            ports: FIRST_PORT,
            trace: Trace::default(),
            wall_ahead: 0,
            sealed: Vec::new(),
            cut_off: Vec::new(),
            record: None,
        }
    }

    pub(super) fn next_handle(&self) -> u32 {
        self.first + self.places.len() as u32
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed)
    }

    pub(super) fn now(&self) -> Instant {
        self.start + self.elapsed()
    }

    pub(super) fn wall(&self) -> SystemTime {
        let start = WALL_START.as_secs().saturating_add_signed(self.wall_ahead);
        UNIX_EPOCH + Duration::from_secs(start) + self.elapsed()
    }

    pub(super) fn origin(&self) -> (Instant, SystemTime) {
        (self.start, UNIX_EPOCH + WALL_START)
    }

    pub(super) fn add_loop(&mut self) -> SimLoop {
        SimLoop(self.add(Place::Loop(Waiting::default())))
    }

    /// Closes all connections of a peer.
    pub(super) fn close_all_of(&mut self, peer: u32) {
        let all = self.first..self.next_handle();
        let ends: Vec<u32> = all
            .filter(|handle| self.peer_of(*handle) == Some(peer))
            .collect();
        for end in ends {
            self.close(end);
        }
    }

    /// The peer that has this end.
    pub(super) fn peer_of(&mut self, end: u32) -> Option<u32> {
        match self.end(end)?.owner {
            Owner::Peer(peer) => Some(peer),
            Owner::Test | Owner::Loop { .. } => None,
        }
    }

    fn add(&mut self, place: Place) -> u32 {
        let handle = self.next_handle();
        self.places.push(place);
        handle
    }

    pub(super) fn place(&mut self, handle: u32) -> Option<&mut Place> {
        let place = handle.checked_sub(self.first)?;
        self.places.get_mut(place as usize)
    }

    pub(super) fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.places.iter_mut()
    }

    /// The end with this handle, unless it is of a network that has ended.
    pub(super) fn end(&mut self, handle: u32) -> Option<&mut End> {
        match self.place(handle)? {
            Place::End(end) => Some(end),
            _ => None,
        }
    }

    fn listening(&mut self, handle: u32) -> Option<&mut Listening> {
        match self.place(handle)? {
            Place::Listener(listening) => Some(listening),
            _ => None,
        }
    }

    pub(super) fn waiting(&mut self, event_loop: u32) -> Option<&mut Waiting> {
        match self.place(event_loop)? {
            Place::Loop(waiting) => Some(waiting),
            _ => None,
        }
    }

    /// All descriptors of listeners, with their handles.
    fn all_listening(&self) -> impl Iterator<Item = (&Listening, u32)> + Clone {
        let places = self.places.iter().zip(self.first..);
        places.filter_map(|(place, handle)| match place {
            Place::Listener(one) => Some((one, handle)),
            _ => None,
        })
    }

    fn listeners_at(&self, at: SocketAddr) -> Vec<u32> {
        listening::sockets_at(self.all_listening(), at)
    }

    /// Makes another descriptor of a listener, which another loop may have.
    pub(super) fn twin(&mut self, listener: u32) -> Option<u32> {
        let twin = self.listening(listener)?.twin();
        Some(self.add(Place::Listener(twin)))
    }

    /// Has all look at a listener that have a descriptor of it.
    fn mark_twins(&mut self, listener: u32) {
        for twin in listening::twins_of(self.all_listening(), listener) {
            self.mark(twin);
        }
    }

    fn port(&mut self) -> u16 {
        self.ports = self.ports.checked_add(1).unwrap_or(FIRST_PORT);
        self.ports
    }

    /// Plans an event as soon as the link allows, or after another.
    fn plan(&mut self, not_before: u64, event: Event) -> u64 {
        let at = (self.elapsed + self.latency()).max(not_before);
        self.plan_at(at, event);
        at
    }

    fn plan_at(&mut self, at: u64, event: Event) {
        let tie = if self.link.is_shuffled {
            self.random.draw()
        } else {
            0
        };
        self.calendar.plan(at, tie, event);
    }

    fn latency(&mut self) -> u64 {
        let nanos = |time: &Duration| time.as_nanos() as u64;
        let (least, most) = (
            nanos(self.link.latency.start()),
            nanos(self.link.latency.end()),
        );
        least + self.random.below(most.saturating_sub(least) + 1)
    }

    /// Makes both ends of a connection to an address, and has it asked for.
    pub(super) fn connect(&mut self, to: SocketAddr, writes_early: bool) -> u32 {
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()));
        let (window, is_sealed) = (self.link.window_bytes, self.sealed.contains(&to));
        let client = self.next_handle();
        let mut near = Box::new(End::new(client + 1, [from, to], window));
        (near.writes_early, near.is_sealed) = (writes_early, is_sealed);
        self.add(Place::End(near));
        let mut far = Box::new(End::new(client, [to, from], window));
        far.is_sealed = is_sealed;
        let server = self.add(Place::End(far));
        let at = self.plan(0, Event::Asked { client });
        if let Some(end) = self.end(server) {
            end.incoming.last_arrival = at;
        }
        self.note("connect", client, u64::from(to.port()));
        client
    }

    /// Listens at an address, beside others only if it shares it: each client then comes to one
    /// of them, as the seed chooses.
    pub(super) fn listen(
        &mut self,
        mut at: SocketAddr,
        backlog: Option<usize>,
        owner: Owner,
        shares: bool,
    ) -> io::Result<(u32, SocketAddr)> {
        while at.port() == 0 {
            let candidate = SocketAddr::new(at.ip(), self.port());
            if self.listeners_at(candidate).is_empty() {
                at = candidate;
            }
        }
        if !shares && !self.listeners_at(at).is_empty() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let listening = Listening::new(at, backlog.unwrap_or(BACKLOG), owner);
        let handle = self.add(Place::Listener(listening));
        Ok((handle, at))
    }

    pub(super) fn accept(&mut self, listener: u32) -> io::Result<(u32, SocketAddr)> {
        let has_no_descriptors = self.link.has_no_descriptors;
        let listening = self.listening(listener).ok_or_else(ended)?;
        if has_no_descriptors && listening.has_some() {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let end = listening.take();
        let end = end.ok_or(io::ErrorKind::WouldBlock)?;
        let remote = self.end(end).ok_or_else(ended)?.remote;
        self.note("accept", end, 0);
        Ok((end, remote))
    }

    /// Has news of a socket told to a loop from now on, beginning with what is the case already.
    pub(super) fn register(&mut self, handle: u32, event_loop: SimLoop, token: Token) {
        let owner = Owner::Loop {
            event_loop: event_loop.0,
            token,
        };
        self.set_owner(handle, owner);
        self.mark(handle);
    }

    pub(super) fn set_owner(&mut self, handle: u32, to: Owner) {
        match self.place(handle) {
            Some(Place::End(end)) => end.owner = to,
            Some(Place::Listener(listening)) => listening.owner = to,
            Some(Place::Loop(_)) | None => {}
        }
    }

    /// Has the party that owns a socket look at it.
    pub(super) fn mark(&mut self, handle: u32) {
        let (owner, is_marked) = match self.place(handle) {
            Some(Place::End(end)) => (end.owner, &mut end.is_marked),
            Some(Place::Listener(listening)) => (listening.owner, &mut listening.is_marked),
            Some(Place::Loop(_)) | None => return,
        };
        if std::mem::replace(is_marked, true) {
            return;
        }
        match owner {
            Owner::Loop { event_loop, .. } => {
                if let Some(waiting) = self.waiting(event_loop) {
                    waiting.marked.push(handle);
                }
            }
            Owner::Peer(_) => {
                self.plan(0, Event::Serve { end: handle });
            }
            Owner::Test => self.unmark(handle),
        }
    }

    pub(super) fn unmark(&mut self, handle: u32) {
        match self.place(handle) {
            Some(Place::End(end)) => end.is_marked = false,
            Some(Place::Listener(listening)) => listening.is_marked = false,
            Some(Place::Loop(_)) | None => {}
        }
    }

    /// Writes what the window allows of these parts, and perhaps less.
    pub(super) fn write(&mut self, handle: u32, parts: &[&[u8]]) -> io::Result<usize> {
        let end = self.end(handle).ok_or_else(ended)?;
        let (other, is_open) = (end.other, end.phase == Phase::Open || end.writes_early);
        let is_of_loop = matches!(end.owner, Owner::Loop { .. });
        let is_sealed = end.is_sealed;
        match end.phase {
            Phase::Failed(io::ErrorKind::ConnectionRefused) => {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Phase::Failed(_) => return Err(io::ErrorKind::BrokenPipe.into()),
            _ if end.has_finished => return Err(io::ErrorKind::BrokenPipe.into()),
            _ if !is_open => return Err(io::ErrorKind::WouldBlock.into()),
            Phase::Connecting | Phase::Open => {}
        }
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        let room = self.end(other).map_or(0, |other| other.incoming.room());
        let taken = if is_of_loop {
            self.taken(offered.min(room))
        } else {
            offered.min(room)
        };
        if taken < offered {
            if let Some(end) = self.end(handle) {
                end.is_refused = true;
            }
            if taken < room {
                self.plan(0, Event::Room { end: handle });
            }
        }
        if taken == 0 && offered > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut bytes = Vec::with_capacity(taken);
        for part in parts {
            let length = part.len().min(taken - bytes.len());
            bytes.extend_from_slice(&part[..length]);
        }
        self.note("write", handle, taken as u64);
        if !is_sealed {
            self.trace.note_bytes(&bytes);
        }
        self.send_bytes(other, bytes.into());
        Ok(taken)
    }

    /// Number of bytes that a write takes of those for which there is room.
    fn taken(&mut self, room: usize) -> usize {
        let one_in = self.link.refuses_one_in;
        if one_in > 0 && self.random.below(one_in) == 0 {
            return self.random.below(room as u64) as usize;
        }
        room
    }

    fn send_bytes(&mut self, to: u32, mut bytes: Bytes) {
        let most = self.link.segment_bytes_max as u64;
        while most > 0 && !bytes.is_empty() {
            let length = (1 + self.random.below(most)) as usize;
            let segment = bytes.split_to(length.min(bytes.len()));
            self.send(to, Segment::Bytes(segment));
        }
        if !bytes.is_empty() {
            self.send(to, Segment::Bytes(bytes));
        }
    }

    /// Sends a segment to an end, behind all that is on its way.
    fn send(&mut self, to: u32, segment: Segment) {
        let Some(end) = self.end(to) else {
            return;
        };
        end.incoming.send(segment);
        let not_before = end.incoming.last_arrival;
        let at = self.plan(not_before, Event::Arrives { end: to });
        if let Some(end) = self.end(to) {
            end.incoming.last_arrival = at;
        }
    }

    pub(super) fn read(&mut self, handle: u32, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.end(handle).ok_or_else(ended)?;
        let read = end.read(buffer);
        let (other, has_room) = (end.other, end.incoming.has_much_room());
        if let Ok(read) = read {
            self.note("read", handle, read as u64);
        }
        if has_room
            && let Some(writer) = self.end(other)
            && writer.is_refused
        {
            writer.is_refused = false;
            self.plan(0, Event::Room { end: other });
        }
        read
    }

    /// Ends the sending side.
    pub(super) fn finish(&mut self, handle: u32) -> io::Result<()> {
        let end = self.end(handle).ok_or_else(ended)?;
        if end.phase != Phase::Open && !end.writes_early {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if !std::mem::replace(&mut end.has_finished, true) {
            let other = end.other;
            self.send(other, Segment::Finish);
        }
        Ok(())
    }

    /// Closes a socket as the system does: with a reset where bytes were not read.
    pub(super) fn close(&mut self, handle: u32) {
        match self.place(handle) {
            Some(Place::End(end)) => {
                if std::mem::replace(&mut end.is_closed, true) {
                    return;
                }
                let resets = end.resets || end.incoming.has_unread();
                let (other, is_new) = (end.other, !end.has_finished);
                end.owner = Owner::Test;
                if resets {
                    self.send(other, Segment::Reset);
                } else if is_new {
                    self.send(other, Segment::Finish);
                }
            }
            Some(Place::Listener(listening)) => {
                for end in listening.close() {
                    self.reset(end);
                }
            }
            Some(Place::Loop(_)) | None => return,
        }
        self.note("close", handle, 0);
    }

    /// Closes an end with a reset.
    fn reset(&mut self, handle: u32) {
        if let Some(end) = self.end(handle) {
            end.resets = true;
        }
        self.close(handle);
    }

    pub(super) fn wake(&mut self, SimLoop(event_loop): SimLoop) {
        self.plan(0, Event::Wake { event_loop });
    }

    /// Has the peer of an end called when so much time has passed.
    pub(super) fn serve_after(&mut self, end: u32, time: Duration) {
        let at = self.elapsed + time.as_nanos() as u64;
        self.plan_at(at, Event::Serve { end });
    }

    /// Carries an event out.
    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Asked { client } => self.asked(client),
            Event::Answered { client, is_open } => {
                if is_open {
                    self.open(client);
                } else if let Some(end) = self.end(client) {
                    end.phase = Phase::Failed(io::ErrorKind::ConnectionRefused);
                }
                self.mark(client);
            }
            Event::Arrives { end } => self.arrives(end),
            Event::Room { end } => self.has_room(end),
            Event::Wake { event_loop } => {
                if let Some(waiting) = self.waiting(event_loop) {
                    waiting.is_woken = true;
                }
            }
            Event::Serve { end } => self.unmark(end),
        }
    }

    /// A writer that was refused is told of room, unless the window has become smaller since.
    fn has_room(&mut self, handle: u32) {
        let other = self.end(handle).map(|end| end.other);
        let room = other.and_then(|other| self.end(other));
        match (room.map(|other| other.incoming.room()), self.end(handle)) {
            (Some(0), Some(end)) => end.is_refused = true,
            _ => self.mark(handle),
        }
    }

    /// A connection is asked for: the listener takes it, has no room for it, or is not there.
    fn asked(&mut self, client: u32) {
        let Some(end) = self.end(client).filter(|end| !end.is_silenced) else {
            return;
        };
        let (to, server) = (end.remote, end.other);
        if self.cut_off.contains(&to) {
            return;
        }
        let listeners = self.listeners_at(to);
        let chosen = self.random.below(listeners.len() as u64) as usize;
        let listener = listeners.get(chosen).copied();
        let Some(listening) = listener.and_then(|at| self.listening(at)) else {
            if let Some(server) = self.end(server) {
                server.is_closed = true;
            }
            let is_open = false;
            self.plan(0, Event::Answered { client, is_open });
            return;
        };
        if listening.is_full() {
            let at = self.elapsed + ASK_AGAIN.as_nanos() as u64;
            return self.plan_at(at, Event::Asked { client });
        }
        let owner = listening.owner;
        if let Owner::Peer(_) = owner {
            self.set_owner(server, owner);
        } else {
            listening.put(server);
        }
        self.open(server);
        let is_open = true;
        self.plan(0, Event::Answered { client, is_open });
        self.mark(server);
        if let Some(listener) = listener {
            self.mark_twins(listener);
        }
    }

    /// The connection is there for this end, and what has come before it can be read.
    fn open(&mut self, handle: u32) {
        let Some(end) = self.end(handle) else {
            return;
        };
        end.phase = Phase::Open;
        let early = std::mem::take(&mut end.incoming.early);
        for _ in 0..early {
            self.plan_at(self.elapsed, Event::Arrives { end: handle });
        }
    }

    fn arrives(&mut self, handle: u32) {
        let Some(end) = self.end(handle) else {
            return;
        };
        if end.phase == Phase::Connecting && !end.is_closed {
            // It was sent before the connection is there, and comes behind it.
            end.incoming.early += 1;
            return;
        }
        let Some(segment) = end.incoming.take_segment() else {
            return;
        };
        if end.is_silenced {
            return;
        }
        match segment {
            Segment::Bytes(_) if end.is_closed => {
                // It is read no more, which the other end is told once.
                let (other, is_told) = (end.other, std::mem::replace(&mut end.resets, true));
                if !is_told {
                    self.send(other, Segment::Reset);
                }
                return;
            }
            Segment::Bytes(bytes) => end.incoming.receive(bytes),
            Segment::Finish => end.incoming.has_ended = true,
            Segment::Reset if matches!(end.phase, Phase::Failed(_)) => {}
            Segment::Reset => end.phase = Phase::Failed(io::ErrorKind::ConnectionReset),
        }
        self.mark(handle);
    }
}
