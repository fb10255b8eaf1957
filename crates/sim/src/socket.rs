//! A client whose connection becomes a WebSocket. It follows keys, publishes, checks each frame
//! against the model, and comes back when the connection ends.

mod acts;
mod checks;
mod frames;
mod plan;

pub(crate) use plan::insert_steps;
pub use plan::{Act, BREACHES, Opening, SocketOptions};

use crate::client::Around;
use crate::failure::Oracle;
use crate::keys::{Broken, Key};
use crate::options::{Fault, Options, random};
use dwell_evloop::Random;
use dwell_evloop::sim::SimStream;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::time::Duration;

/// One WebSocket, with one connection at a time.
pub(crate) struct Socket {
    number: usize,
    opening: Opening,
    /// The route allows it to publish.
    publishes: bool,
    random: Random,
    stream: Option<SimStream>,
    phase: Phase,
    output: Vec<u8>,
    input: Vec<u8>,
    acts: VecDeque<Act>,
    /// Replies to messages, in the order of these.
    owed: VecDeque<Owed>,
    /// Pings that are to be answered, with the time at which each could be written.
    pings: VecDeque<(Vec<u8>, Duration)>,
    follows: Vec<Follow>,
    /// The state of each key that it has been told last, and the cursor of that.
    last: Vec<Option<(usize, String)>>,
    /// The newest state of each key that it has seen, values and deletions.
    seen: Vec<usize>,
    slow_read_until: Duration,
    slow_write_until: Duration,
    next_at: Duration,
    /// It has read so slowly that the server may let it go.
    may_be_cut: bool,
    /// The moment from which nothing hinders what it is sent.
    clear_since: Duration,
    opened_at: Duration,
    heard_at: Duration,
    barriers: u64,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The answer to the handshake is to come.
    Opening,
    Open,
    /// It has closed, and is to get a close frame with this code.
    Closing(u16),
    /// It has broken the protocol, and is to get a close frame with this code.
    Broken(u16),
    /// It has ended its sending side.
    Finished,
    /// Both have closed.
    Closed,
}

/// A reply that is owed.
struct Owed {
    reply: Reply,
    /// The moment at which the last byte of its message was written.
    sent_at: Option<Duration>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Reply {
    /// To a value: it is stored as this state of a key.
    Published(usize, usize),
    /// To a value that the route does not allow.
    Forbidden,
    /// To a name that it does not follow: all that was sent before was carried out.
    Barrier(String),
}

/// A key that it follows by a name.
struct Follow {
    key: usize,
    /// The name in its frames; none where the path names the key.
    label: Option<String>,
    has: What,
    /// The oldest state that it may be told.
    floor: usize,
    repeats: Repeats,
    /// The barrier behind the message by which it has given the key up, until that is answered.
    ends_with: Option<String>,
    since: Duration,
}

/// Frames that may tell what was told already: a client that follows a key again may get the frame
/// that was on its way, and then what there is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Repeats {
    Never,
    /// All until this barrier is answered.
    Until(String),
    Once,
}

/// The last thing that it was told of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Nothing,
    State(usize),
    /// A value of the application.
    OfApp,
}

impl Follow {
    /// Returns true if it has given the key up, and the server may not know yet.
    fn is_ending(&self) -> bool {
        self.ends_with.is_some()
    }
}

/// The time after which it comes back.
const BACK: Duration = Duration::from_millis(500);
/// The time after which nothing is left of a connection that has ended, as for writers.
const LOST: Duration = Duration::from_secs(4);
/// The time between two small reads or writes of a slow client, and the bytes of one.
const PACE: Duration = Duration::from_millis(20);
const LITTLE: usize = 64;
const SMALL_WINDOW: usize = 512;
const WINDOW: usize = 64 * 1024;

impl Socket {
    pub(crate) fn new(number: usize, options: &Options) -> Self {
        Self {
            number,
            opening: options.sockets.openings[number].clone(),
            publishes: options.sockets.publishes,
            random: random(options.seed, 7 + ((number as u64) << 4)),
            stream: None,
            phase: Phase::Closed,
            output: Vec::new(),
            input: Vec::new(),
            acts: VecDeque::new(),
            owed: VecDeque::new(),
            pings: VecDeque::new(),
            follows: Vec::new(),
            last: vec![None; options.keys],
            seen: vec![0; options.keys],
            slow_read_until: Duration::ZERO,
            slow_write_until: Duration::ZERO,
            next_at: Duration::ZERO,
            may_be_cut: false,
            clear_since: Duration::ZERO,
            opened_at: Duration::ZERO,
            heard_at: Duration::ZERO,
            barriers: 0,
        }
    }

    /// Has it do something; returns the fault that strikes it, if it is one.
    pub(crate) fn act(&mut self, act: Act, keys: &mut [Key], now: Duration) -> Option<Fault> {
        let leaves = |has_left: bool, fault| has_left.then_some(fault);
        match act {
            Act::Reset => leaves(self.leave(SimStream::reset, keys, now), Fault::Reset),
            Act::Leave => leaves(self.leave(SimStream::close, keys, now), Fault::Leave),
            Act::Silence => leaves(self.leave(SimStream::silence, keys, now), Fault::Silence),
            Act::HalfClose => leaves(self.half_close(now), Fault::HalfClose),
            Act::SlowRead(time) => leaves(self.slow_read(now + time), Fault::SlowRead),
            Act::SlowWrite(time) => {
                self.slow_write_until = now + time;
                Some(Fault::SlowWrite)
            }
            act => {
                self.acts.push_back(act);
                None
            }
        }
    }

    /// Returns true if it owes no message and is owed no reply.
    pub(crate) fn is_idle(&self) -> bool {
        let is_there = self.phase == Phase::Open;
        is_there && self.acts.is_empty() && self.owed.is_empty() && self.pings.is_empty()
    }

    /// Returns true if no value of it is under way.
    pub(crate) fn is_clear(&self) -> bool {
        let is_value = |owed: &Owed| matches!(owed.reply, Reply::Published(..));
        !self.owed.iter().any(is_value)
    }

    /// The keys that it follows, with the states that it was told last.
    pub(crate) fn told(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        let told = |follow: &Follow| match follow.has {
            What::State(state) => (follow.key, Some(state)),
            What::Nothing | What::OfApp => (follow.key, None),
        };
        self.follows.iter().filter(|one| !one.is_ending()).map(told)
    }

    /// Returns true if it has a connection.
    pub(crate) fn is_there(&self) -> bool {
        self.stream.is_some()
    }

    pub(crate) fn next_at(&self) -> Duration {
        self.next_at
    }

    /// Leaves, and comes back later with what it has.
    pub(crate) fn leave(
        &mut self,
        leave: impl FnOnce(&SimStream),
        keys: &mut [Key],
        now: Duration,
    ) -> bool {
        let Some(stream) = self.stream.take() else {
            return false;
        };
        leave(&stream);
        self.input.clear();
        self.output.clear();
        self.pings.clear();
        self.follows.clear();
        for owed in std::mem::take(&mut self.owed) {
            if let Reply::Published(key, _) = owed.reply {
                keys[key].lose(now + LOST);
            }
        }
        self.phase = Phase::Closed;
        self.next_at = now + BACK;
        true
    }

    fn half_close(&mut self, now: Duration) -> bool {
        let is_open = self.phase == Phase::Open && self.output.is_empty();
        let finish = |stream: &SimStream| stream.shutdown_write().is_ok();
        let has = is_open && self.stream.as_ref().is_some_and(finish);
        if has {
            (self.phase, self.clear_since) = (Phase::Finished, now);
        }
        has
    }

    fn slow_read(&mut self, until: Duration) -> bool {
        let Some(stream) = &self.stream else {
            return false;
        };
        stream.set_window(SMALL_WINDOW);
        self.slow_read_until = until;
        self.may_be_cut = true;
        true
    }

    /// Sends what it may, takes in what has come, and checks that nothing is late.
    pub(crate) fn attend(
        &mut self,
        around: &mut Around<'_>,
        is_paused: bool,
    ) -> Result<(), Broken> {
        let now = around.network.elapsed();
        if self.stream.is_none() {
            if now < self.next_at || around.ends {
                return Ok(());
            }
            self.connect(around, now);
        }
        self.send_acts(around, is_paused, now);
        let is_slow = now < self.slow_read_until.max(self.slow_write_until);
        let is_paced = is_slow && now < self.next_at;
        self.write(now, is_paced);
        let is_open = self.read(now, is_paced);
        if is_slow && !is_paced {
            self.next_at = now + PACE;
        }
        let hindrances = [
            around.hindered_until,
            self.slow_read_until,
            self.slow_write_until,
        ];
        self.clear_since = hindrances.into_iter().fold(self.clear_since, Duration::max);
        self.take_input(around, now)?;
        if !is_open {
            return self.ended(around, now);
        }
        self.check_patience(around, now)
    }

    fn connect(&mut self, around: &mut Around<'_>, now: Duration) {
        self.stream = Some(around.network.connect(around.edge));
        self.phase = Phase::Opening;
        self.may_be_cut = false;
        (self.slow_read_until, self.slow_write_until) = (Duration::ZERO, Duration::ZERO);
        (self.opened_at, self.clear_since) = (now, now);
        self.heard_at = now;
        let mut target = self.opening.path();
        // Writing to a string does not fail.
        let named = match self.opening.clone() {
            Opening::Path(key) => {
                if let Some((_, cursor)) = &self.last[key] {
                    let _ = write!(target, "?since={cursor}");
                }
                vec![(key, None)]
            }
            Opening::Named { keys, .. } => {
                let labels = keys.iter().map(|key| self.opening.label(*key));
                let named: Vec<_> = keys.iter().copied().zip(labels).collect();
                for (place, (_, label)) in named.iter().enumerate() {
                    let mark = if place == 0 { '?' } else { '&' };
                    let _ = write!(target, "{mark}k={}", label.as_deref().unwrap_or_default());
                }
                let cursor = |key: &usize| self.last[*key].as_ref().map(|(_, cursor)| &**cursor);
                let cursors: Vec<_> = keys.iter().map(cursor).collect();
                if cursors.iter().any(Option::is_some) {
                    let cursors: Vec<_> =
                        cursors.into_iter().map(Option::unwrap_or_default).collect();
                    let _ = write!(target, "&since={}", cursors.join("."));
                }
                named
            }
        };
        let follow = |(key, label): (usize, Option<String>)| Follow {
            key,
            label,
            has: self.last[key]
                .as_ref()
                .map_or(What::Nothing, |(state, _)| What::State(*state)),
            floor: around.keys[key].floor(),
            repeats: Repeats::Never,
            ends_with: None,
            since: now,
        };
        self.follows = named.into_iter().map(follow).collect();
        let number = self.number;
        around
            .network
            .remark(|| format!("socket {number} opens {target}"));
        let text = format!("GET {target} HTTP/1.1\r\nHost: edge\r\n{HANDSHAKE}\r\n");
        self.output.extend_from_slice(text.as_bytes());
    }

    fn write(&mut self, now: Duration, is_paced: bool) {
        let is_slow = now < self.slow_write_until;
        let Some(stream) = self.stream.as_mut().filter(|_| !self.output.is_empty()) else {
            return;
        };
        if is_slow && is_paced {
            return;
        }
        let most = if is_slow { LITTLE } else { usize::MAX };
        let length = self.output.len().min(most);
        let written = stream.write(&self.output[..length]).unwrap_or(0);
        self.output.drain(..written);
        if self.output.is_empty() {
            for owed in self.owed.iter_mut().filter(|owed| owed.sent_at.is_none()) {
                owed.sent_at = Some(now);
            }
        }
        self.clear_since = now;
    }

    /// Reads what has come; returns false at the end of the connection.
    fn read(&mut self, now: Duration, is_paced: bool) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|it| it.is_readable()) else {
            return true;
        };
        if now >= self.slow_read_until {
            stream.set_window(WINDOW);
            return stream.read_all(&mut self.input);
        }
        if is_paced {
            return true;
        }
        let mut buffer = [0; LITTLE];
        match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                self.input.extend_from_slice(&buffer[..read]);
                true
            }
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }

    fn take_input(&mut self, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        if self.phase == Phase::Opening && !self.take_head(around, now)? {
            return Ok(());
        }
        loop {
            let taken = frames::take(&mut self.input);
            let taken = taken.map_err(|reason| (Oracle::OneAnswer, self.named(&reason)))?;
            let Some(frame) = taken else {
                return Ok(());
            };
            self.heard_at = now;
            self.frame(&frame, around, now)
                .map_err(|(oracle, reason)| (oracle, self.named(&reason)))?;
        }
    }

    /// Takes the answer to the handshake; returns true once it is whole.
    fn take_head(&mut self, around: &mut Around<'_>, now: Duration) -> Result<bool, Broken> {
        let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(false);
        };
        let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
        self.input.drain(..end + 4);
        let is_accepted = head.starts_with("HTTP/1.1 101 ") && head.contains(ACCEPTED);
        if !is_accepted {
            let is_excused = around.ends && head.starts_with("HTTP/1.1 503 ");
            let line = head.lines().next().unwrap_or_default();
            let reason = self.named(&format!("the handshake gets {line:?}"));
            self.phase = Phase::Closed;
            return if is_excused {
                Ok(false)
            } else {
                Err((Oracle::OneAnswer, reason))
            };
        }
        around.counts.reach("WebSocket");
        self.phase = Phase::Open;
        self.heard_at = now;
        self.clear_since = now;
        Ok(true)
    }

    /// The server has closed the connection.
    fn ended(&mut self, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        let is_over = matches!(self.phase, Phase::Closed | Phase::Finished);
        if !is_over && !self.may_be_cut {
            let reason = format!("its connection ends while it is {:?}", self.phase);
            return Err((Oracle::OneAnswer, self.named(&reason)));
        }
        self.leave(SimStream::close, around.keys, now);
        Ok(())
    }

    fn named(&self, reason: &str) -> String {
        format!("socket {}: {reason}", self.number)
    }
}

/// The fields of the handshake, and that of its answer.
const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
