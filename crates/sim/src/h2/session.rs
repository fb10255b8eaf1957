//! One connection of HTTP/2, as its client has it: it keeps to the protocol, and checks that the
//! server does.

mod receiving;

use super::fields::{Kind, Request, Writer};
use super::flow::{Cut, Flow, Sending};
use super::frames::{self, PAYLOAD_MAX, code, flag, kind, setting, size};
use super::options::Habits;
use crate::carrier::Carrier;
use crate::failure::Oracle;
use crate::keys::Broken;
use crate::patience::PROMPT;
use crate::tls::Tls;
use dwell_evloop::Random;
use dwell_evloop::sim::SimStream;
use loona_hpack::Decoder;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The windows of a connection and its streams until either side says otherwise.
const FIRST_WINDOW: i64 = 65_535;
/// So much of the window of a connection is given back at once.
const WINDOW_STEP: i64 = 16_384;
/// The window of a stream after so many frames: a client of small windows opens them, so that a
/// long answer does not take for ever.
const WIDE: i64 = 65_535;
const NARROW_FRAMES: usize = 6;
/// Bytes of padding of a frame, with its length.
const PADDING: usize = 9;
/// The time between two small reads or writes of a slow client, and the bytes of one.
const PACE: Duration = Duration::from_millis(20);
const LITTLE: usize = 256;

/// A connection and its streams.
pub(super) struct Session {
    carrier: Carrier,
    habits: Habits,
    random: Random,
    input: Vec<u8>,
    output: Vec<u8>,
    fields: Fields,
    flows: Flows,
    windows: Windows,
    owed: Owed,
    slow: Slow,
    end: End,
    /// The server has said that it takes WebSockets.
    takes_tunnels: bool,
    pub(super) reached: Vec<&'static str>,
}

/// Field blocks both ways.
struct Fields {
    writer: Writer,
    decoder: Decoder<'static>,
    /// The block that is not whole: its stream, and whether it ends that.
    block: Option<(u32, Vec<u8>, bool)>,
}

/// The streams.
struct Flows {
    open: BTreeMap<u32, Flow>,
    next: u32,
    /// Streams that this side has reset: everything that comes of them is ignored.
    forgotten: BTreeSet<u32>,
    /// Bytes of bodies that have come, and the moment of the last ones.
    came: i64,
    came_at: Duration,
}

/// Bytes of other answers that may come before the first of an answer: what the server writes at
/// once, and a turn of each stream.
const AHEAD: i64 = 80 * 1024;
const TURN: i64 = 16 * 1024;

impl Flows {
    /// So many bytes of bodies have come.
    fn note(&mut self, bytes: i64, now: Duration) {
        (self.came, self.came_at) = (self.came + bytes, now);
    }

    /// The last moment at which something came of an answer, or of others that may come before it.
    fn came_at(&self, number: u32) -> Option<Duration> {
        let flow = self.open.get(&number)?;
        let most = AHEAD + TURN * size(self.open.len());
        let is_ahead = self.came - flow.came_before <= most;
        let others_at = is_ahead.then_some(self.came_at);
        Some(flow.came_at.max(others_at.unwrap_or_default()))
    }
}

/// The windows of both sides.
struct Windows {
    /// Bytes of bodies of requests, on all streams.
    send: i64,
    /// The initial window of streams that the server gives, and the streams it lets be open.
    send_initial: i64,
    streams_max: usize,
    /// Bytes of bodies of answers, on all streams.
    receive: i64,
    /// The initial window of streams, as the server may know it.
    initial: i64,
}

/// Answers that the server owes, with the moment since when.
#[derive(Default)]
struct Owed {
    /// Acknowledgements of settings, with the initial window of these.
    settings: VecDeque<(Duration, i64)>,
    /// Answers to PING.
    pongs: VecDeque<(Duration, [u8; 8])>,
    pings: u64,
}

/// The times in which the client is slow.
#[derive(Default)]
struct Slow {
    read_until: Duration,
    write_until: Duration,
    /// The window of the connection is not opened until then.
    closed_until: Duration,
    next_at: Duration,
    /// The last moment at which something hindered answers.
    clear_since: Duration,
}

/// The way to its end.
#[derive(Clone, Copy, Default)]
struct End {
    /// The last stream that the server answers, as it has said.
    last: Option<u32>,
    /// The client begins nothing more.
    leaves: bool,
    /// Nothing comes or goes any more, as this has ended.
    over: Option<Cut>,
    /// A client has told that the server has ended it.
    is_told: bool,
}

impl Session {
    pub(super) fn new(carrier: Carrier, habits: Habits, mut random: Random) -> Self {
        let now = carrier.elapsed();
        let initial = habits.window;
        let name = match carrier.tls() {
            Some(_) => "connection of HTTP/2 under TLS",
            None => "connection of HTTP/2",
        };
        let uses_table = random.below(2) == 0;
        let mut session = Self {
            carrier,
            habits,
            random,
            input: Vec::new(),
            output: frames::PREFACE.to_vec(),
            fields: Fields {
                writer: Writer::new(uses_table),
                decoder: Decoder::new(),
                block: None,
            },
            flows: Flows {
                open: BTreeMap::new(),
                next: 1,
                forgotten: BTreeSet::new(),
                came: 0,
                came_at: now,
            },
            windows: Windows {
                send: FIRST_WINDOW,
                send_initial: FIRST_WINDOW,
                streams_max: usize::MAX,
                receive: FIRST_WINDOW,
                initial: FIRST_WINDOW,
            },
            owed: Owed::default(),
            slow: Slow {
                clear_since: now,
                ..Slow::default()
            },
            end: End::default(),
            takes_tunnels: false,
            reached: vec![name],
        };
        session.offer_window(initial);
        // No request has begun before the server knows it.
        session.windows.initial = initial;
        session
    }

    /// Begins a request; gives it back where none may begin any more.
    pub(super) fn begin(&mut self, request: Request, window: i64) -> Result<u32, Request> {
        if !self.may_begin() {
            return Err(request);
        }
        let number = self.flows.next;
        self.flows.next += 2;
        let block = self.fields.writer.block(&request, &mut self.random);
        let ends = request.body.is_empty() && request.kind != Kind::Tunnel;
        self.write_block(number, &block, ends);
        let windows = [self.windows.send_initial, self.windows.initial];
        let now = self.carrier.elapsed();
        let mut flow = Flow::new(request.kind, request.body, windows, now);
        flow.wanted = self.wanted(window, 0);
        flow.came_before = self.flows.came;
        self.flows.open.insert(number, flow);
        Ok(number)
    }

    /// Returns true if requests may begin.
    pub(super) fn may_begin(&self) -> bool {
        !self.is_ending() && self.flows.open.len() < self.windows.streams_max
    }

    /// Returns true if WebSockets may begin, or never will: the server has said that it takes them.
    pub(super) fn takes_tunnels(&self) -> bool {
        self.takes_tunnels || self.is_ending()
    }

    /// Returns true if no request may begin any more.
    pub(super) fn is_ending(&self) -> bool {
        self.end.over.is_some() || self.end.leaves || self.end.last.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.over.is_some()
    }

    /// Returns true if its client has ended it.
    pub(super) fn is_own_end(&self) -> bool {
        self.end.over == Some(Cut::Given)
    }

    /// Returns true for the first that asks, as one connection has ended for all of its clients.
    pub(super) fn tells_end(&mut self) -> bool {
        !std::mem::replace(&mut self.end.is_told, true)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.flows.open.is_empty()
    }

    pub(super) fn flow(&mut self, number: u32) -> Option<&mut Flow> {
        self.flows.open.get_mut(&number)
    }

    /// A client keeps so much of a window open.
    pub(super) fn want(&mut self, number: u32, window: i64) {
        if let Some(flow) = self.flows.open.get(&number) {
            let wanted = self.wanted(window, flow.frames);
            if let Some(flow) = self.flows.open.get_mut(&number) {
                flow.wanted = wanted;
            }
        }
    }

    /// The window of a stream of so many frames whose client would keep so much open.
    fn wanted(&self, window: i64, frames: usize) -> i64 {
        let own = if frames < NARROW_FRAMES && self.habits.window > 0 {
            self.habits.window
        } else {
            WIDE
        };
        window.min(own)
    }

    /// A client has done with a stream: one that goes on is reset.
    pub(super) fn forget(&mut self, number: u32) {
        let Some(flow) = self.flows.open.remove(&number) else {
            return;
        };
        let is_open = !flow.is_over() || flow.is_tunnel() && flow.sending != Sending::Sent;
        if is_open && self.end.over.is_none() {
            let output = &mut self.output;
            frames::write_number(kind::RST_STREAM, number, code::CANCEL, output);
            self.flows.forgotten.insert(number);
        }
    }

    /// The scheme of its requests.
    pub(super) fn scheme(&self) -> &'static str {
        self.carrier.tls().map_or("http", |_| "https")
    }

    /// Returns true if the server may have given up its handshake.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.carrier.tls().is_some_and(Tls::is_unconfirmed)
    }

    /// The last moment at which something has hindered the answer of this stream.
    pub(super) fn clear_since(&self, number: Option<u32>) -> Duration {
        let came_at = number.and_then(|number| self.flows.came_at(number));
        self.slow.clear_since.max(came_at.unwrap_or_default())
    }

    /// The moment at which it goes on by itself.
    pub(super) fn next_at(&self, now: Duration) -> Option<Duration> {
        let Slow {
            read_until,
            write_until,
            closed_until,
            next_at,
            ..
        } = self.slow;
        let is_slow = now < read_until.max(write_until);
        let next = is_slow.then_some(next_at);
        let opens = (now < closed_until).then_some(closed_until);
        next.into_iter()
            .chain(opens)
            .min()
            .filter(|_| self.end.over.is_none())
    }

    pub(super) fn slow_read(&mut self, until: Duration) {
        self.slow.read_until = until;
    }

    pub(super) fn slow_write(&mut self, until: Duration) {
        self.slow.write_until = until;
    }

    /// Does not open the window of the connection until then.
    pub(super) fn close_window(&mut self, until: Duration) {
        self.slow.closed_until = until;
    }

    /// Says another initial window.
    pub(super) fn offer_window(&mut self, initial: i64) {
        frames::write_setting(
            setting::INITIAL_WINDOW_SIZE,
            u32::try_from(initial).unwrap_or(0),
            &mut self.output,
        );
        let more = initial - self.newest_initial();
        self.habits.window = initial;
        self.owed
            .settings
            .push_back((self.carrier.elapsed(), initial));
        // A larger window may be used before it is acknowledged.
        if more > 0 {
            self.resize(more);
        }
    }

    /// The initial window that was said last.
    fn newest_initial(&self) -> i64 {
        let said = self.owed.settings.back().map(|(_, initial)| *initial);
        said.unwrap_or(self.windows.initial)
    }

    fn resize(&mut self, more: i64) {
        self.windows.initial += more;
        for flow in self.flows.open.values_mut() {
            flow.window += more;
        }
    }

    pub(super) fn ping(&mut self) {
        self.owed.pings += 1;
        let data = self.owed.pings.to_be_bytes();
        frames::write(kind::PING, 0, 0, &data, &mut self.output);
        self.owed.pongs.push_back((self.carrier.elapsed(), data));
    }

    /// Says that nothing more begins; the connection ends when all is answered.
    pub(super) fn go_away(&mut self) {
        if !self.end.leaves {
            self.end.leaves = true;
            frames::write(kind::GOAWAY, 0, 0, &[0; 8], &mut self.output);
        }
    }

    /// Ends its sending side, which ends the connection.
    pub(super) fn half_close(&mut self) {
        let _ = self.carrier.shutdown_write();
        self.own_end();
    }

    /// Ends the connection in this way.
    pub(super) fn leave(&mut self, leave: impl FnOnce(&SimStream)) {
        if self.end.over.is_none() {
            self.flush_now();
            self.carrier.leave(leave);
            self.own_end();
        }
    }

    fn own_end(&mut self) {
        self.close(Cut::Given);
    }

    fn close(&mut self, cut: Cut) {
        self.end.over.get_or_insert(cut);
        for flow in self.flows.open.values_mut() {
            flow.end(cut);
        }
    }

    /// Reads what has come, and checks it.
    pub(super) fn attend(&mut self, hindered_until: Duration) -> Result<(), Broken> {
        if self.end.over.is_some() {
            return Ok(());
        }
        let now = self.carrier.elapsed();
        let slow = &mut self.slow;
        let hindrances = [slow.read_until, slow.closed_until, slow.write_until];
        let hindered = hindrances.into_iter().fold(hindered_until, Duration::max);
        slow.clear_since = slow.clear_since.max(hindered);
        let was_shaking = self.carrier.is_shaking();
        let is_open = self.read(now);
        if self.carrier.has_pending() || was_shaking && !self.carrier.is_shaking() {
            self.slow.clear_since = now;
        }
        let is_read = self.output.is_empty() && self.flows.open.is_empty();
        self.carrier.check(now, self.slow.clear_since, is_read)?;
        self.take_frames(now)
            .map_err(|reason| (Oracle::Frame, reason))?;
        if !is_open {
            self.close(Cut::Ended);
            return Ok(());
        }
        if self.end.leaves && self.flows.open.is_empty() && self.output.is_empty() {
            self.leave(SimStream::close);
            return Ok(());
        }
        self.check_patience(now)
    }

    /// Reads what has come; returns false at the end of the connection.
    fn read(&mut self, now: Duration) -> bool {
        if !self.carrier.is_readable() {
            return true;
        }
        if now >= self.slow.read_until {
            return self.carrier.read_all(&mut self.input);
        }
        if now < self.slow.next_at {
            return true;
        }
        self.slow.next_at = now + PACE;
        self.carrier.read_little(&mut self.input, LITTLE)
    }

    fn check_patience(&self, now: Duration) -> Result<(), Broken> {
        let settings = self.owed.settings.front().map(|(at, _)| *at);
        let pong = self.owed.pongs.front().map(|(at, _)| *at);
        for (name, since) in [("settings", settings), ("a ping", pong)] {
            let is_late = |since: Duration| now > since.max(self.slow.clear_since) + PROMPT;
            if since.is_some_and(is_late) {
                let reason = format!("no answer to {name}");
                return Err((Oracle::Deadline, reason));
            }
        }
        Ok(())
    }

    /// Writes what is to be written.
    pub(super) fn flush(&mut self) {
        if self.end.over.is_some() {
            return;
        }
        let now = self.carrier.elapsed();
        self.open_windows(now);
        self.upload();
        let is_slow = now < self.slow.write_until;
        if is_slow && now < self.slow.next_at {
            return;
        }
        if is_slow {
            self.slow.next_at = now + PACE;
            let length = self.output.len().min(LITTLE);
            let written = self.carrier.write(&self.output[..length]).unwrap_or(0);
            self.output.drain(..written);
        } else {
            self.flush_now();
        }
        // A handshake takes no longer for what is to follow it.
        if !self.output.is_empty() && !self.carrier.is_shaking() {
            self.slow.clear_since = now;
        }
    }

    fn flush_now(&mut self) {
        if !self.output.is_empty() {
            let written = self.carrier.write(&self.output).unwrap_or(0);
            self.output.drain(..written);
        }
    }

    fn open_windows(&mut self, now: Duration) {
        for (number, flow) in &mut self.flows.open {
            if let Some(increment) = flow.increment() {
                let output = &mut self.output;
                frames::write_number(kind::WINDOW_UPDATE, *number, increment, output);
            }
        }
        let missing = FIRST_WINDOW - self.windows.receive;
        if missing >= WINDOW_STEP && now >= self.slow.closed_until {
            self.windows.receive += missing;
            let output = &mut self.output;
            frames::write_number(
                kind::WINDOW_UPDATE,
                0,
                u32::try_from(missing).unwrap_or(0),
                output,
            );
        }
    }

    /// Sends of the bodies what the windows have room for.
    fn upload(&mut self) {
        for (number, flow) in &mut self.flows.open {
            while flow.is_uploading() {
                let room = self.windows.send.min(flow.send_window);
                let room = usize::try_from(room).unwrap_or(0).min(PAYLOAD_MAX);
                let pads = self.habits.pads && room > PADDING;
                let most = if pads { room - PADDING } else { room };
                let length = flow.upload.len().min(most);
                if length == 0 && !flow.upload.is_empty() {
                    break;
                }
                let mut payload: Vec<u8> = flow.upload.drain(..length).collect();
                let mut flags = 0;
                if pads {
                    payload.insert(0, PADDING as u8 - 1);
                    payload.extend_from_slice(&[0; PADDING - 1]);
                    flags = flag::PADDED;
                }
                // The end is a frame of its own now and then.
                let is_out = flow.upload.is_empty();
                let is_fed = flow.sending == Sending::Fed;
                if is_out && !is_fed && (length == 0 || self.random.below(2) == 0) {
                    flags |= flag::END_STREAM;
                    flow.sending = Sending::Sent;
                }
                flow.send_window -= size(payload.len());
                self.windows.send -= size(payload.len());
                frames::write(kind::DATA, flags, *number, &payload, &mut self.output);
            }
        }
    }

    /// Writes a field block, in several frames as its habits are.
    fn write_block(&mut self, number: u32, block: &[u8], ends: bool) {
        let most = if self.habits.splits {
            block.len() / (1 + self.random.below(8) as usize) + 1
        } else {
            block.len()
        };
        let mut parts = block.chunks(most.max(1)).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, 0);
        if ends {
            flags = flag::END_STREAM;
        }
        while let Some(part) = parts.next() {
            let mut payload = part.to_vec();
            if kind == kind::HEADERS && self.habits.pads {
                payload.splice(0..0, [4, 0, 0, 0, 0, 15]);
                payload.extend_from_slice(&[0; 4]);
                flags |= flag::PADDED | flag::PRIORITY;
            }
            if parts.peek().is_none() {
                flags |= flag::END_HEADERS;
            }
            frames::write(kind, flags, number, &payload, &mut self.output);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }
}
