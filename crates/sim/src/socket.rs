//! A client whose connection becomes a WebSocket. It follows keys, publishes, checks each frame
//! against the model, and comes back when the connection ends.

mod acts;
mod following;
mod frames;
mod options;
mod plan;

use following::{Follow, Following, Repeats, What};
use frames::{Frame, Told};
pub use options::{Act, BREACHES, Opening, SocketOptions};
pub(crate) use plan::socket_steps;

use crate::around::Around;
use crate::chance::random;
use crate::connection::Connection;
use crate::failure::Oracle;
use crate::handshake::{ACCEPTED, HANDSHAKE};
use crate::keys::{Broken, Key};
use crate::line::Line;
use crate::options::{Fault, Options};
use crate::patience::PROMPT;
use crate::tls::Who;
use dwell_evloop::Random;
use dwell_evloop::sim::SimStream;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

/// One WebSocket, with one connection at a time.
pub(crate) struct Socket {
    number: usize,
    opening: Opening,
    publishing: Publishing,
    random: Random,
    line: Line,
    phase: Phase,
    acts: VecDeque<Act>,
    /// Replies to messages, in the order of these.
    owed: VecDeque<Owed>,
    /// Pings that are to be answered, with the time at which each could be written.
    pings: VecDeque<(Vec<u8>, Duration)>,
    keys: Following,
    opened_at: Duration,
    heard_at: Duration,
    barriers: u64,
}

/// The values that it publishes.
struct Publishing {
    /// The route allows it to publish.
    is_allowed: bool,
    /// Its values go to memcached.
    is_remote: bool,
    /// Connections so far.
    connections: u64,
    /// Its values may be beyond a rate, of which the reply overtakes those to values for memcached
    /// before, and does not tell which it is of: each waits for the reply to the one before.
    is_limited: bool,
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
    /// To a value of a key for memcached, which may be stored when it has come there: it is none of
    /// the states yet.
    Sent(usize, Vec<u8>),
    /// To a value that the route does not allow.
    Forbidden,
    /// To a name that it does not follow: all that was sent before was carried out.
    Barrier(String),
}

/// The time after which it comes back.
const BACK: Duration = Duration::from_millis(500);
/// The time after which nothing is left of a connection that has ended, as for writers.
const LOST: Duration = Duration::from_secs(4);

impl Socket {
    pub(crate) fn new(number: usize, options: &Options) -> Self {
        Self {
            number,
            opening: options.sockets.openings[number].clone(),
            publishing: Publishing {
                is_allowed: options.sockets.publishes,
                is_remote: options.memcached.is_some(),
                connections: 0,
                is_limited: options.bounds.is_some_and(|it| it.limits_publishers),
            },
            random: random(options.seed, 7 + ((number as u64) << 4)),
            line: Line::default(),
            phase: Phase::Closed,
            acts: VecDeque::new(),
            owed: VecDeque::new(),
            pings: VecDeque::new(),
            keys: Following::new(options.keys),
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
            Act::SlowRead(time) => leaves(self.line.slow_read(now + time), Fault::SlowRead),
            Act::SlowWrite(time) => leaves(self.line.slow_write(now + time), Fault::SlowWrite),
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

    /// Returns true if no value of it is in progress.
    pub(crate) fn is_clear(&self) -> bool {
        let is_value = |owed: &Owed| matches!(owed.reply, Reply::Published(..));
        !self.owed.iter().any(is_value)
    }

    /// The keys that it follows, with the states that it was told last.
    pub(crate) fn told(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        self.keys.told()
    }

    /// Reads of a key at most, after one change of each key, that are for all keys of a connection:
    /// each frame may close the window of a stream, and where it opens, all keys are read.
    pub(crate) fn reads_again(&self, key: usize) -> usize {
        let stream = self.line.stream.as_ref();
        let has_window = stream.is_some_and(Connection::has_streams);
        let follows = self.told().any(|(followed, _)| followed == key);
        if has_window && follows {
            self.told().count()
        } else {
            0
        }
    }

    /// Returns true if it has a connection.
    pub(crate) fn is_there(&self) -> bool {
        self.line.stream.is_some()
    }

    pub(crate) fn next_at(&self) -> Duration {
        self.line.next_at
    }

    /// Leaves, and comes back later with what it has.
    pub(crate) fn leave(
        &mut self,
        leave: impl FnOnce(&SimStream),
        keys: &mut [Key],
        now: Duration,
    ) -> bool {
        if !self.line.leave(leave, now + BACK) {
            return false;
        }
        self.pings.clear();
        self.keys.clear();
        for owed in std::mem::take(&mut self.owed) {
            if let Reply::Published(key, _) = owed.reply {
                keys[key].lose(now + LOST);
            }
        }
        self.phase = Phase::Closed;
        true
    }

    fn half_close(&mut self, now: Duration) -> bool {
        let has = self.phase == Phase::Open && self.line.finish();
        if has {
            (self.phase, self.line.clear_since) = (Phase::Finished, now);
        }
        has
    }

    /// Sends what it may, takes in what has come, and checks that nothing is late.
    pub(crate) fn attend(
        &mut self,
        around: &mut Around<'_>,
        is_paused: bool,
    ) -> Result<(), Broken> {
        let now = around.network.elapsed();
        if self.line.stream.is_none() {
            if now < self.line.next_at || around.ending.ends {
                return Ok(());
            }
            self.connect(around, now);
        }
        self.send_acts(around, is_paused, now);
        let is_open = self.line.exchange(now, around.hindered_until);
        if let Some(stream) = &self.line.stream {
            let is_read = self.is_idle() && self.line.output.is_empty();
            let checked = stream.check(now, self.line.clear_since, is_read);
            checked.map_err(|(oracle, reason)| (oracle, self.named(&reason)))?;
        }
        if self.line.output.is_empty() {
            for owed in self.owed.iter_mut().filter(|owed| owed.sent_at.is_none()) {
                owed.sent_at = Some(now);
            }
        }
        self.take_input(around, now)?;
        if !is_open {
            return self.ended(around, now);
        }
        self.check_patience(around, now)
    }

    fn connect(&mut self, around: &mut Around<'_>, now: Duration) {
        let stream = around.connect(Who::Socket(self.number));
        self.line.open(stream, now);
        self.phase = Phase::Opening;
        self.publishing.connections += 1;
        (self.opened_at, self.heard_at) = (now, now);
        let mut target = self.opening.path();
        // Writing to a string does not fail.
        let named = match self.opening.clone() {
            Opening::Path(key) => {
                if let Some((_, cursor)) = &self.keys.last[key] {
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
                let cursor =
                    |key: &usize| self.keys.last[*key].as_ref().map(|(_, cursor)| &**cursor);
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
            has: self.keys.last[key]
                .as_ref()
                .map_or(What::Nothing, |(state, _)| What::State(*state)),
            floor: around.keys[key].floor(),
            repeats: Repeats::Never,
            ends_with: None,
            since: now,
            is_refused: false,
        };
        self.keys.follows = named.into_iter().map(follow).collect();
        let number = self.number;
        around
            .network
            .remark(|| format!("socket {number} opens {target}"));
        let text = format!("GET {target} HTTP/1.1\r\nHost: edge\r\n{HANDSHAKE}\r\n");
        self.line.output.extend_from_slice(text.as_bytes());
    }

    fn take_input(&mut self, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        if self.phase == Phase::Opening && !self.take_head(around, now)? {
            return Ok(());
        }
        loop {
            let taken = frames::take(&mut self.line.input);
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
        let Some(end) = self
            .line
            .input
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
        else {
            return Ok(false);
        };
        let head = String::from_utf8_lossy(&self.line.input[..end]).into_owned();
        self.line.input.drain(..end + 4);
        let is_accepted = head.starts_with("HTTP/1.1 101 ") && head.contains(ACCEPTED);
        if !is_accepted {
            let is_busy = head.starts_with("HTTP/1.1 503 ");
            let is_stream = self
                .line
                .stream
                .as_ref()
                .is_some_and(Connection::has_streams);
            let refuses = if is_stream {
                Around::refuses_stream
            } else {
                Around::refuses_request
            };
            if is_busy && (around.may_end() || refuses(around)) {
                self.leave(SimStream::close, around.keys, now);
                return Ok(false);
            }
            let line = head.lines().next().unwrap_or_default();
            let reason = self.named(&format!("the handshake gets {line:?}"));
            return Err((Oracle::OneAnswer, reason));
        }
        let is_stream = self
            .line
            .stream
            .as_ref()
            .is_some_and(Connection::has_streams);
        around.counts.reach(if is_stream {
            "WebSocket on a stream"
        } else {
            "WebSocket"
        });
        self.phase = Phase::Open;
        self.heard_at = now;
        self.line.clear_since = now;
        Ok(true)
    }

    /// The server has closed the connection.
    fn ended(&mut self, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        let is_over = matches!(self.phase, Phase::Closed | Phase::Finished);
        let is_so = |is: fn(&Connection) -> bool| self.line.stream.as_ref().is_some_and(is);
        let gives_way = around.is_flooded() && is_so(Connection::is_unconfirmed);
        // Of a connection that is shared: its client has ended it, its request has crossed the end,
        // another one has told of that, or its windows have held up what a process that ends owes.
        let is_shared_end = is_so(Connection::is_own_end)
            || is_so(Connection::is_refused)
            || around.refused.is_some() && is_so(Connection::is_end_told)
            || around.may_end() && is_so(Connection::has_stalled);
        let may_be_cut = self.line.may_be_cut || gives_way || is_shared_end;
        if !is_over && !may_be_cut && !around.refuses_connection() {
            let reason = format!("its connection ends while it is {:?}", self.phase);
            return Err((Oracle::OneAnswer, self.named(&reason)));
        }
        self.leave(SimStream::close, around.keys, now);
        Ok(())
    }

    fn frame(
        &mut self,
        frame: &Frame,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        // A ping is answered until a close frame comes (RFC 6455, section 5.5.2).
        if self.phase == Phase::Closed && frame.opcode != frames::PONG {
            let (opcode, text) = (frame.opcode, String::from_utf8_lossy(&frame.payload));
            let what = format!("frame {opcode} {text:.60?} behind the close frame");
            return Err(unasked(what));
        }
        match frame.opcode {
            frames::TEXT => {
                let text = std::str::from_utf8(&frame.payload);
                let text = text.map_err(|_| unasked("a text that is not UTF-8"))?;
                let (number, start) = (self.number, text.get(..80).unwrap_or(text));
                around
                    .network
                    .remark(|| format!("socket {number} is told {start}"));
                let told = Told::parse(text);
                let told = told.ok_or_else(|| unasked(format!("the frame {start:?}")))?;
                self.told_frame(&told, around, now)
            }
            frames::PING => {
                around.counts.reach("ping");
                if self.phase == Phase::Open {
                    let (output, random) = (&mut self.line.output, &mut self.random);
                    frames::write(output, frames::PONG, &frame.payload, random);
                }
                Ok(())
            }
            frames::PONG => {
                around.counts.reach("pong");
                let sent = self
                    .pings
                    .iter()
                    .position(|(ping, _)| *ping == frame.payload);
                let place = sent.ok_or_else(|| unasked("a pong without its ping"))?;
                self.pings.drain(..=place);
                Ok(())
            }
            _ => self.close_frame(&frame.payload, around, now),
        }
    }

    fn close_frame(
        &mut self,
        payload: &[u8],
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let code = payload.first_chunk().copied().map(u16::from_be_bytes);
        let is_old = now >= self.opened_at + LIFETIME;
        let is_right = match self.phase {
            // What it has sent may not have come when the server closes.
            Phase::Closing(expected) | Phase::Broken(expected) if code == Some(expected) => true,
            Phase::Open | Phase::Closing(_) | Phase::Broken(_) => {
                code == Some(1001) && (around.may_end() || is_old)
            }
            _ => true,
        };
        if !is_right {
            let phase = self.phase;
            return Err(unasked(format!("{phase:?} is closed with {code:?}")));
        }
        around.counts.reach("close frame");
        if matches!(self.phase, Phase::Open | Phase::Broken(_)) {
            let (output, random) = (&mut self.line.output, &mut self.random);
            frames::write(output, frames::CLOSE, payload, random);
        }
        self.phase = Phase::Closed;
        self.line.clear_since = now;
        Ok(())
    }

    /// Checks that nothing is late.
    fn check_patience(&self, around: &Around<'_>, now: Duration) -> Result<(), Broken> {
        let late = |what: String| Err((Oracle::Deadline, self.named(&what)));
        let is_late = |since: Duration| now > since.max(self.line.clear_since) + PROMPT;
        if !self.line.output.is_empty() {
            return Ok(());
        }
        match self.phase {
            Phase::Opening if is_late(self.opened_at) => {
                return late("no answer to the handshake".to_owned());
            }
            Phase::Closing(_) | Phase::Broken(_) | Phase::Finished | Phase::Closed
                if is_late(Duration::ZERO) =>
            {
                return late(format!("no end of a connection that is {:?}", self.phase));
            }
            Phase::Open => {}
            _ => return Ok(()),
        }
        if let Some(owed) = self.owed.front()
            && is_late(owed.sent_at.unwrap_or(now))
        {
            return late(format!("no reply: {:?}", owed.reply));
        }
        if let Some((_, at)) = self.pings.front()
            && is_late(*at)
        {
            return late("no pong".to_owned());
        }
        if is_late(self.heard_at.max(self.line.clear_since) + HEARTBEAT) {
            return late("no ping".to_owned());
        }
        let checked = self.keys.check_news(self.line.clear_since, around, now);
        checked.map_err(|(oracle, reason)| (oracle, self.named(&reason)))
    }

    fn named(&self, reason: &str) -> String {
        format!("socket {}: {reason}", self.number)
    }
}

fn unasked(reason: impl Into<String>) -> Broken {
    (Oracle::OneAnswer, reason.into())
}

/// The shortest life of a connection that the server ends by its age.
const LIFETIME: Duration = Duration::from_secs(90);
/// The longest time after which a connection is sent a ping on which nothing comes or goes.
const HEARTBEAT: Duration = Duration::from_secs(25);
