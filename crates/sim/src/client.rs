//! A client that polls, and checks each answer against the model.

mod checks;
mod pace;
mod part;
mod reader;
mod several;
mod unlooked;

use self::part::Part;
use crate::answer::{self, Answer};
use crate::around::Around;
use crate::connection::Connection;
use crate::failure::Oracle;
use crate::keys::Broken;
use crate::patience::{APP_PATIENCE, PROMPT};
use crate::reload::DRAIN;
use crate::step::{Ask, FIXED, Has, Method};
use crate::tls::Who;
use dwell_evloop::sim::SimStream;
use pace::Pace;
use reader::Reader;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

/// One client with one connection at a time.
pub(crate) struct Client {
    reader: Reader,
    stream: Option<Connection>,
    output: Vec<u8>,
    input: Vec<u8>,
    asks: VecDeque<Ask>,
    owed: VecDeque<Owed>,
    pace: Pace,
    /// It has ended its sending side, or reads so slowly that the server may let it go.
    may_be_cut: bool,
    /// The last moment at which something hindered its answers.
    clear_since: Duration,
    /// The moment at which its connection was made, or gave an answer last.
    used_at: Duration,
    /// Requests that have a mark of their own.
    marks: u64,
}

/// An answer that is owed.
struct Owed {
    ask: Ask,
    /// The state whose cursor it has sent.
    has: Option<usize>,
    /// The oldest state that the answer may tell of.
    floor: usize,
    /// The keys of a poll of several.
    parts: Vec<Part>,
    /// The mark of the request, if it has one.
    mark: u64,
    /// The moment at which its first byte could be written.
    asked_at: Duration,
    /// The moment at which its last byte was written, or that of one behind it.
    sent_at: Option<Duration>,
}

/// The time for which an idle connection is used again: shorter than any idle timeout of the
/// server, which would close the connection while the next request is on its way.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Bytes of a small read or write.
const LITTLE: usize = 32;
/// The window of one that is not slow.
const WINDOW: usize = 64 * 1024;
/// The window of a slow reader.
const SMALL_WINDOW: usize = 512;

impl Client {
    pub(crate) fn new(number: usize, keys: usize) -> Self {
        Self {
            reader: Reader::new(number, keys),
            stream: None,
            output: Vec::new(),
            input: Vec::new(),
            asks: VecDeque::new(),
            owed: VecDeque::new(),
            pace: Pace::default(),
            may_be_cut: false,
            clear_since: Duration::ZERO,
            used_at: Duration::ZERO,
            marks: 0,
        }
    }

    pub(crate) fn ask(&mut self, ask: Ask) {
        self.asks.push_back(ask);
    }

    /// Returns true if it owes no request and is owed no answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.asks.is_empty() && self.owed.is_empty()
    }

    /// The time that all its requests may wait, one after another.
    pub(crate) fn waits(&self) -> Duration {
        let owed = self.owed.iter().map(|owed| &owed.ask);
        let waits = self.asks.iter().chain(owed).map(|ask| match ask {
            Ask::Poll { wait, .. } | Ask::Several { wait, .. } => *wait,
            Ask::Fixed(_) | Ask::Elsewhere { .. } => Duration::ZERO,
        });
        waits.sum()
    }

    /// Returns true if an answer is owed to it.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.owed.is_empty()
    }

    /// The state of a key that it has read last.
    pub(crate) fn read_last(&self, key: usize) -> Option<usize> {
        self.reader.has[key].as_ref().map(|(state, _)| *state)
    }

    /// The moment at which it goes on by itself.
    pub(crate) fn next_at(&self, now: Duration) -> Option<Duration> {
        self.pace.next_at(now)
    }

    /// Leaves, and gives up what it is owed; `leave` is the way of that.
    pub(crate) fn leave(&mut self, leave: impl FnOnce(&SimStream)) -> bool {
        let Some(stream) = self.stream.take() else {
            return false;
        };
        stream.leave(leave);
        self.output.clear();
        self.input.clear();
        self.owed.clear();
        self.may_be_cut = false;
        true
    }

    /// Ends its sending side; polls that wait are given up by that.
    pub(crate) fn half_close(&mut self) -> bool {
        let finish = |stream: &mut Connection| stream.shutdown_write().is_ok();
        let has = self.output.is_empty() && self.stream.as_mut().is_some_and(finish);
        self.may_be_cut |= has;
        has
    }

    /// Reads little until then.
    pub(crate) fn slow_read(&mut self, until: Duration) -> bool {
        let Some(stream) = &self.stream else {
            return false;
        };
        stream.set_window(SMALL_WINDOW);
        self.pace.slow_read(until);
        true
    }

    /// Writes little until then.
    pub(crate) fn slow_write(&mut self, until: Duration) {
        self.pace.slow_write(until);
    }

    /// Sends what it may, takes in what has come, and checks that nothing is late.
    pub(crate) fn attend(&mut self, around: &mut Around<'_>) -> Result<(), Broken> {
        let now = around.network.elapsed();
        self.connect(around);
        self.send_asks(around, now);
        let is_paced = self.pace.is_paced(now);
        self.write(now, is_paced);
        let is_open = self.read(now, is_paced);
        self.pace.go_on(now);
        let of_stream = self.stream.as_ref().map(Connection::clear_since);
        let hindered_until = around.hindered_until.max(self.pace.slow_until());
        let hindered_until = hindered_until.max(of_stream.unwrap_or_default());
        self.clear_since = self.clear_since.max(hindered_until);
        if let Some(stream) = &self.stream {
            let is_read = self.owed.is_empty() && self.output.is_empty();
            stream.check(now, self.clear_since, is_read)?;
        }
        self.take_answers(around, now)?;
        if !is_open {
            self.ended(around, now)?;
        } else if self.may_be_cut && self.owed.is_empty() {
            self.leave(SimStream::close);
        }
        self.check_patience(around, now)
    }

    fn connect(&mut self, around: &Around<'_>) {
        let now = around.network.elapsed();
        let is_stale = self.owed.is_empty() && now >= self.used_at + KEEP_ALIVE;
        if is_stale && !self.asks.is_empty() {
            self.leave(SimStream::close);
        }
        if self.stream.is_none() && !self.asks.is_empty() && !around.ending.ends {
            self.stream = Some(around.connect(Who::Client(self.reader.number)));
            self.used_at = now;
        }
    }

    fn send_asks(&mut self, around: &mut Around<'_>, now: Duration) {
        // Streams are answered in any order.
        let has_streams = self.stream.as_ref().is_some_and(Connection::has_streams);
        let most = if has_streams { 1 } else { around.pipeline };
        while self.owed.len() < most
            && !self.may_be_cut
            && self.stream.is_some()
            && let Some(ask) = self.asks.pop_front()
        {
            let parts = match ask {
                Ask::Several { several, has, .. } => self.reader.parts(several, has, around.keys),
                _ => Vec::new(),
            };
            let (text, has) = self.request(&ask, &parts);
            let floor = match ask {
                Ask::Poll { key, .. } => around.keys[key].floor(),
                Ask::Several { .. } | Ask::Fixed(_) | Ask::Elsewhere { .. } => 0,
            };
            let number = self.reader.number;
            around
                .network
                .remark(|| format!("client {number} asks {ask:?} has {has:?}"));
            self.output.extend_from_slice(text.as_bytes());
            self.owed.push_back(Owed {
                ask,
                has,
                floor,
                parts,
                mark: self.marks,
                asked_at: now,
                sent_at: None,
            });
            self.clear_since = now;
        }
    }

    /// The text of a request that is no poll.
    fn other_request(&mut self, ask: &Ask) -> String {
        let number = self.reader.number;
        let line = match ask {
            Ask::Fixed(place) => FIXED[*place].0.to_owned(),
            Ask::Elsewhere { is_post } => {
                self.marks += 1;
                let (method, mark) = (if *is_post { "POST" } else { "GET" }, self.marks);
                let length = if *is_post {
                    "\r\nContent-Length: 0"
                } else {
                    ""
                };
                return format!(
                    "{method} /elsewhere?id={number}-{mark} HTTP/1.1\r\nHost: edge{length}\r\n\r\n"
                );
            }
            Ask::Poll { .. } | Ask::Several { .. } => String::new(),
        };
        format!("{line} HTTP/1.1\r\nHost: edge\r\n\r\n")
    }

    /// The text of a request, and the state whose cursor is in it.
    fn request(&mut self, ask: &Ask, parts: &[Part]) -> (String, Option<usize>) {
        if let Ask::Several {
            several,
            method,
            has,
            wait,
        } = *ask
        {
            let how = (several.is_long, method, has, wait);
            return (self.reader.several_request(parts, how), None);
        }
        let Ask::Poll {
            key,
            method,
            has,
            wait,
        } = *ask
        else {
            return (self.other_request(ask), None);
        };
        let (mut query, mut fields) = (format!("/poll/k{key}"), self.reader.identity());
        // The answer to a request with a parameter that is not in its key is never stored.
        let mut mark = '?';
        if !self.reader.number.is_multiple_of(3) {
            query.push_str("?x=1");
            mark = '&';
        }
        let known = self.reader.has[key].as_ref();
        // Writing to a string does not fail.
        let _ = match (has, known) {
            (Has::Garbage, _) => write!(query, "{mark}since=nonsense"),
            (Has::Tag, Some((_, cursor))) if method != Method::Post => {
                write!(fields, "If-None-Match: \"{cursor}\"\r\n")
            }
            (Has::Since | Has::Tag, Some((_, cursor))) => write!(query, "{mark}since={cursor}"),
            _ => Ok(()),
        };
        if !wait.is_zero() {
            let mark = if query.contains('?') { '&' } else { '?' };
            let _ = if has == Has::Tag && wait.subsec_millis() == 0 {
                write!(fields, "Prefer: wait={}\r\n", wait.as_secs())
            } else {
                write!(query, "{mark}wait={}ms", wait.as_millis())
            };
        }
        let (name, body) = match method {
            Method::Get => ("GET", ""),
            Method::Head => ("HEAD", ""),
            Method::Post => {
                fields.push_str("Content-Length: 3\r\n");
                ("POST", "a=1")
            }
        };
        let text = format!("{name} {query} HTTP/1.1\r\nHost: edge\r\n{fields}\r\n{body}");
        let sends = matches!(has, Has::Since | Has::Tag);
        (text, known.filter(|_| sends).map(|(state, _)| *state))
    }

    fn write(&mut self, now: Duration, is_paced: bool) {
        let is_slow = self.pace.is_slow_writer(now);
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
    }

    /// Reads what has come; returns false at the end of the connection.
    fn read(&mut self, now: Duration, is_paced: bool) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|it| it.is_readable()) else {
            return true;
        };
        if !self.pace.is_slow_reader(now) {
            stream.set_window(WINDOW);
            return stream.read_all(&mut self.input);
        }
        // One that reads so little may be cut off.
        self.may_be_cut = true;
        if is_paced {
            return true;
        }
        stream.read_little(&mut self.input, LITTLE)
    }

    fn take_answers(&mut self, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        while !self.input.is_empty() {
            let Some(first) = self.owed.front() else {
                let text = String::from_utf8_lossy(&self.input).into_owned();
                let reason = format!(
                    "client {} is sent what it did not ask: {text:?}",
                    self.reader.number
                );
                return Err((Oracle::OneAnswer, reason));
            };
            let is_head = first.is_head();
            let taken = answer::take(&mut self.input, is_head);
            let taken = taken.map_err(|reason| (Oracle::OneAnswer, reason))?;
            let Some(answer) = taken else {
                return Ok(());
            };
            let Some(owed) = self.owed.pop_front() else {
                return Ok(());
            };
            let number = self.reader.number;
            around.network.remark(|| {
                let Answer { status, cursor, .. } = &answer;
                format!(
                    "client {number} gets {status} {cursor:?} for {:?}",
                    owed.ask
                )
            });
            self.clear_since = now;
            self.used_at = now;
            self.may_be_cut |= answer.closes;
            self.check(&owed, &answer, around, now)
                .map_err(|(oracle, reason)| {
                    let Answer { status, cursor, .. } = &answer;
                    let ask = owed.ask;
                    (
                        oracle,
                        format!("client {number}, {ask:?}: {status} {cursor:?}: {reason}"),
                    )
                })?;
        }
        Ok(())
    }

    /// The server has closed the connection.
    fn ended(&mut self, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        let is_so = |is: fn(&Connection) -> bool| self.stream.as_ref().is_some_and(is);
        if is_so(Connection::is_own_end) {
            self.leave(SimStream::close);
            return Ok(());
        }
        let stays_behind = around.ending.hands_over && is_so(Connection::stays_behind);
        let is_refused = is_so(Connection::is_refused);
        if is_refused || stays_behind || around.is_flooded() && is_so(Connection::is_unconfirmed) {
            // Its handshake has given way to another one, or its request has crossed the end of a
            // connection that does not go over to a successor: it asks again. Where a bound may be
            // why, it would be told so again and again.
            let asks = self.owed.drain(..).rev().map(|owed| owed.ask);
            let asks = asks.filter(|_| is_refused || around.refused.is_none());
            asks.for_each(|ask| self.asks.push_front(ask));
            self.leave(SimStream::close);
            return Ok(());
        }
        let waits = !self.owed.is_empty() || !self.input.is_empty();
        // Where bounds may be why, the end of a connection that is shared is told once.
        let is_told = around.refused.is_some() && is_so(Connection::is_end_told);
        // Where the application cuts an answer short, that is told by the end of the connection.
        let first = self.owed.front().map(|owed| owed.ask);
        let is_cut = matches!(first, Some(Ask::Elsewhere { .. })) && around.app.is_some();
        let has_stalled = around.may_end() && is_so(Connection::has_stalled);
        if has_stalled {
            around
                .counts
                .reach("answer behind a closed window at an end");
        }
        let may_be_cut = self.may_be_cut || has_stalled || is_told;
        // The application may be slower than a process that another one follows has time.
        let sent_at = self.owed.front().and_then(|owed| owed.sent_at);
        let is_over_time = sent_at.is_some_and(|at| now.saturating_sub(at) >= DRAIN);
        let has_outlived = is_over_time && around.ending.hands_over && around.app.is_some();
        let is_excused = may_be_cut || around.ending.ends || is_cut && !around.is_calm;
        if waits && !is_excused && !has_outlived && !around.refuses_connection() {
            let reason = format!("client {}: its connection ends instead", self.reader.number);
            return Err((Oracle::OneAnswer, reason));
        }
        self.leave(SimStream::close);
        Ok(())
    }

    /// Checks that the answer which is owed first is not late.
    fn check_patience(&self, around: &Around<'_>, now: Duration) -> Result<(), Broken> {
        let Some(owed) = self.owed.front() else {
            return Ok(());
        };
        let Some(sent_at) = owed.sent_at.filter(|_| !self.may_be_cut) else {
            return Ok(());
        };
        let from = sent_at.max(self.clear_since);
        let (wait, key) = match owed.ask {
            Ask::Poll { wait, key, .. } => (wait, Some(key)),
            Ask::Several { wait, .. } => (wait, None),
            Ask::Fixed(_) | Ask::Elsewhere { .. } => (Duration::ZERO, None),
        };
        // The application is asked twice at most, and one may wait for the other.
        let of_app = around.app.map_or(Duration::ZERO, |_| APP_PATIENCE);
        // A wait is up to a sixteenth longer.
        if now > from + wait + wait / 16 + PROMPT + of_app {
            let reason = format!("client {}: no answer to {:?}", self.reader.number, owed.ask);
            return Err((Oracle::Deadline, reason));
        }
        let has_garbage = matches!(
            owed.ask,
            Ask::Poll {
                has: Has::Garbage,
                ..
            }
        );
        let news = key.filter(|_| !has_garbage && !wait.is_zero());
        let news = news.and_then(|key| {
            let model = &around.keys[key];
            // What the application is asked for is not waited for.
            let waits = around.app.is_none() || model.has_stayed(owed.floor);
            let news = model.is_news_since(owed.has, around.keeps_waiting);
            let (state, since) = news.filter(|_| waits)?;
            Some((state, since, PROMPT))
        });
        let waits_for_several = !owed.parts.is_empty() && !wait.is_zero();
        let news = match news {
            None if waits_for_several => owed.news(around),
            news => news,
        };
        match news {
            Some((state, since, patience)) if now > from.max(since) + patience => {
                let has = owed.has;
                let reason = format!(
                    "client {} waits with {has:?} and is not told of {state}: {:?}",
                    self.reader.number, owed.ask
                );
                Err((Oracle::Newest, reason))
            }
            _ => Ok(()),
        }
    }
}
