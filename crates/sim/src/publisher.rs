//! A client that stores and removes values over HTTP, of keys that nobody else writes.

use crate::answer::{self, Answer};
use crate::around::Around;
use crate::connection::Connection;
use crate::failure::Oracle;
use crate::keys::{Broken, Key};
use crate::options::Options;
use crate::reload::TOKEN;
use crate::step::Order;
use crate::tls::Who;
use dwell_evloop::sim::SimStream;
use std::collections::VecDeque;
use std::time::Duration;

/// One publisher, with one request at a time.
pub(crate) struct Publisher {
    number: usize,
    stream: Option<Connection>,
    output: Vec<u8>,
    input: Vec<u8>,
    orders: VecDeque<(usize, Order)>,
    pending: Option<Pending>,
    /// The moment from which it may connect again, after a loss.
    back_at: Duration,
    used_at: Duration,
    /// Requests so far.
    serial: u64,
    /// A server has the values, and tells what its requests have led to.
    is_remote: bool,
}

/// A request in progress.
struct Pending {
    key: usize,
    /// The states before and after it, where it is known as it is sent what they are.
    states: Option<[usize; 2]>,
    value: Option<Vec<u8>>,
    begun_at: Duration,
    /// The newest state when it was sent.
    before: usize,
    /// The last moment at which something hindered it.
    clear_since: Duration,
}

/// The time after which nothing is left of a connection that was lost, as for writers.
const LOST: Duration = Duration::from_secs(4);
/// The time in which every request has its answer, as for writers.
const REPLIED: Duration = Duration::from_secs(10);
/// The time for which an idle connection is used again.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl Publisher {
    pub(crate) fn new(number: usize, options: &Options) -> Self {
        Self {
            number,
            stream: None,
            output: Vec::new(),
            input: Vec::new(),
            orders: VecDeque::new(),
            pending: None,
            back_at: Duration::ZERO,
            used_at: Duration::ZERO,
            serial: 0,
            is_remote: options.redis.is_some(),
        }
    }

    /// Has it write a key; it reads nothing.
    pub(crate) fn order(&mut self, key: usize, order: Order) {
        if matches!(order, Order::Set { .. } | Order::Delete) {
            self.orders.push_back((key, order));
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.orders.is_empty() && self.is_clear()
    }

    /// Returns true if no request is in progress.
    pub(crate) fn is_clear(&self) -> bool {
        self.pending.is_none()
    }

    /// The moment at which it goes on by itself.
    pub(crate) fn next_at(&self) -> Duration {
        self.back_at
    }

    /// Loses its connection; what was in progress may have been done or not.
    pub(crate) fn reset(&mut self, keys: &mut [Key], now: Duration) {
        if let Some(stream) = self.stream.take() {
            stream.leave(SimStream::reset);
        }
        self.input.clear();
        self.output.clear();
        if let Some(pending) = self.pending.take() {
            self.back_at = now + LOST;
            pending.lose(&mut keys[pending.key], self.back_at);
        }
    }

    /// Sends what it may, and takes in what has come.
    pub(crate) fn attend(
        &mut self,
        around: &mut Around<'_>,
        is_paused: bool,
    ) -> Result<(), Broken> {
        let now = around.network.elapsed();
        self.go_on(around, is_paused);
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let is_open = !stream.is_readable() || stream.read_all(&mut self.input);
        if let Some(pending) = &mut self.pending {
            let hindered = around.hindered_until.max(stream.clear_since());
            pending.clear_since = pending.clear_since.max(hindered);
        }
        stream.check(now, now, self.pending.is_none())?;
        self.take_answer(around, now)?;
        if !is_open {
            return self.ended(around, now);
        }
        // What has come may let the next one begin.
        self.go_on(around, is_paused);
        match &self.pending {
            Some(pending) if now > pending.clear_since + REPLIED => {
                let name = &around.keys[pending.key].name;
                let reason = format!("no answer to a publisher of {name}");
                Err((Oracle::Deadline, reason))
            }
            _ => Ok(()),
        }
    }

    /// Begins the next request, when it may, and writes what the network takes.
    fn go_on(&mut self, around: &mut Around<'_>, is_paused: bool) {
        if self.pending.is_none() && !is_paused && !around.ending.ends {
            self.begin(around, around.network.elapsed());
        }
        if let Some(stream) = self.stream.as_mut().filter(|_| !self.output.is_empty()) {
            let written = stream.write(&self.output).unwrap_or(0);
            self.output.drain(..written);
        }
    }

    /// Begins the next request, when it may.
    fn begin(&mut self, around: &mut Around<'_>, now: Duration) {
        let Some((place, order)) = self.orders.front().copied() else {
            return;
        };
        let key = &mut around.keys[place];
        if key.is_unsure || now < self.back_at {
            return;
        }
        self.orders.pop_front();
        let (target, before) = (format!("/put/?k=k{place}"), key.newest());
        let (method, value) = match order {
            Order::Set { length, .. } if self.is_remote => {
                self.serial += 1;
                ("PUT", Some(key.published_value(self.serial, length)))
            }
            Order::Set { length, .. } => ("PUT", Some(key.next_value(length))),
            _ => ("DELETE", None),
        };
        let states = (!self.is_remote).then(|| [before, key.issue(value.clone(), 0, now)]);
        let length = match &value {
            Some(value) => format!("Content-Length: {}\r\n", value.len()),
            None => String::new(),
        };
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {TOKEN}\r\n\
             {length}\r\n"
        );
        self.output = head.into_bytes();
        self.output.extend(value.iter().flatten());
        self.pending = Some(Pending {
            key: place,
            states,
            value,
            begun_at: now,
            before,
            clear_since: now,
        });
        let number = self.number;
        around
            .network
            .remark(|| format!("publisher {number}: {method} {target} as states {states:?}"));
        if now >= self.used_at + KEEP_ALIVE {
            self.leave();
        }
        let connect = || around.connect(Who::Publisher(number));
        self.stream.get_or_insert_with(connect);
        self.used_at = now;
    }

    fn leave(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.leave(SimStream::close);
        }
        self.input.clear();
    }

    fn take_answer(&mut self, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        let taken = answer::take(&mut self.input, false);
        let Some(answer) = taken.map_err(|reason| (Oracle::OneAnswer, reason))? else {
            return Ok(());
        };
        let Some(pending) = self.pending.take() else {
            let reason = format!("an answer to no request of a publisher: {answer:?}");
            return Err((Oracle::OneAnswer, reason));
        };
        self.used_at = now;
        let key = &mut around.keys[pending.key];
        if answer.status == 503 && around.ending.hands_over {
            // The store has gone to another process.
            around
                .counts
                .reach("publish refused by a process that ends");
            self.back_at = now;
            pending.lose(key, now);
            return Ok(());
        }
        let Some([_, state]) = pending.states else {
            return pending.check_there(&answer, around, now);
        };
        around.counts.reach("publish over HTTP");
        pending.check(&answer, key, now)?;
        if let Some(cursor) = &answer.cursor {
            key.note_cursor(cursor, state)?;
        }
        key.acknowledge(state, now);
        Ok(())
    }

    /// The connection has ended: the request may have been carried out or not.
    fn ended(&mut self, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        let is_so = |is: fn(&Connection) -> bool| self.stream.as_ref().is_some_and(is);
        let is_known = is_so(Connection::is_own_end) || is_so(Connection::is_refused);
        let is_told = around.refused.is_some() && is_so(Connection::is_end_told);
        let is_excused = is_known || is_told || around.may_end() || around.is_flooded();
        if let Some(pending) = self.pending.take() {
            if !is_excused && !around.refuses_connection() {
                let name = &around.keys[pending.key].name;
                let reason = format!("the connection of a publisher of {name} ends instead");
                return Err((Oracle::OneAnswer, reason));
            }
            self.back_at = now + LOST;
            pending.lose(&mut around.keys[pending.key], self.back_at);
        }
        self.output.clear();
        self.leave();
        Ok(())
    }
}

impl Pending {
    /// It is lost; a read tells what has become of it, unless the server does.
    fn lose(&self, key: &mut Key, sure_at: Duration) {
        if self.states.is_some() {
            key.lose(sure_at);
        }
    }

    /// Checks the answer to a request that the server with the values has carried out, or not.
    fn check_there(
        &self,
        answer: &Answer,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let may_fail = around
            .fails_until
            .is_some_and(|until| self.begun_at <= until);
        let has_no_room = answer.status == 507 && !around.is_calm;
        if has_no_room || may_fail && [502, 503, 504, 507].contains(&answer.status) {
            around.counts.reach("publish without a server");
            return Ok(());
        }
        around.counts.reach("publish over HTTP");
        let key = &mut around.keys[self.key];
        let wrong = |what: &str| {
            let reason = format!("a publisher of {} gets {}: {what}", key.name, answer.status);
            Err((Oracle::Map, reason))
        };
        let Some(value) = &self.value else {
            let has_gone = key.saw_nothing(self.before, 0, now).is_ok();
            return match answer.status {
                204 | 404 if has_gone => Ok(()),
                _ => wrong("it is there"),
            };
        };
        let Some(place) = key.place_of_published(value) else {
            return wrong("it is not there");
        };
        match answer.status {
            204 => {}
            201 if key.state(place - 1).value.is_none() => {}
            _ => return wrong("there was another value, or another status was due"),
        }
        match &answer.cursor {
            Some(cursor) => key.note_cursor(cursor, place),
            None => Ok(()),
        }
    }

    /// Checks that the answer tells what was there before.
    fn check(&self, answer: &Answer, key: &Key, now: Duration) -> Result<(), Broken> {
        let was_there = match (self.value.is_none(), answer.status) {
            (_, 204) => true,
            (false, 201) | (true, 404) => false,
            (_, status) => {
                let reason = format!("a publisher of {} gets {status}", key.name);
                return Err((Oracle::OneAnswer, reason));
            }
        };
        let before = self.before;
        let is_right = match key.state(before).value {
            Some(_) => was_there || key.may_be_gone(before, now),
            None => !was_there,
        };
        let wrong = || {
            let reason = format!("a publisher of {} finds it: {was_there}", key.name);
            (Oracle::Map, reason)
        };
        is_right.then_some(()).ok_or_else(wrong)
    }
}
