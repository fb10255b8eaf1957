//! A client of the store, which writes some of the keys.

use crate::failure::Oracle;
use crate::keys::{Broken, Key};
use crate::options::Protocol;
use crate::report::Counts;
use crate::step::Order;
use crate::wire::{self, Command, Reply};
use dwell_evloop::sim::{SimNet, SimStream};
use std::collections::VecDeque;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// One connection to the store, and the commands that go over it.
pub(crate) struct Writer {
    protocol: Protocol,
    stream: Option<SimStream>,
    output: Vec<u8>,
    input: Vec<u8>,
    orders: VecDeque<(usize, Order)>,
    pending: VecDeque<Pending>,
    /// The moment from which it may connect again, after a loss.
    back_at: Duration,
}

/// A command in progress.
struct Pending {
    what: What,
    sent_at: Duration,
    /// It tells what has become of a command that was lost.
    settles: bool,
}

#[derive(Clone, Copy)]
enum What {
    Set(usize, usize),
    /// With the states before and after it.
    Delete(usize, [usize; 2]),
    Get(usize, usize),
    Flush,
}

/// Commands that are sent before their replies: one for each key, and some.
const PENDING_MAX: usize = 8;
/// The time after which nothing is left of a connection that was reset: longer than any delay, any
/// stall and any shortage of descriptors.
const LOST: Duration = Duration::from_secs(4);
/// The time in which every command has its reply: the longest value takes many round trips of the
/// longest delay, and a connection may wait for a descriptor first.
const REPLIED: Duration = Duration::from_secs(10);

impl Writer {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            stream: None,
            output: Vec::new(),
            input: Vec::new(),
            orders: VecDeque::new(),
            pending: VecDeque::new(),
            back_at: Duration::ZERO,
        }
    }

    pub(crate) fn order(&mut self, key: usize, order: Order) {
        self.orders.push_back((key, order));
    }

    /// Returns true if nothing is in progress or to be done.
    pub(crate) fn is_idle(&self) -> bool {
        self.orders.is_empty() && self.is_clear()
    }

    /// Reads what has become of a key's lost command, unless it is about to.
    pub(crate) fn look(&mut self, key: usize) {
        let is_about = self.orders.contains(&(key, Order::Look));
        if !is_about && !self.is_reading(key) {
            self.order(key, Order::Look);
        }
    }

    /// Returns true if no command is in progress.
    pub(crate) fn is_clear(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns true if a `flush_all` of it is in progress.
    pub(crate) fn is_flushing(&self) -> bool {
        let is_flush = |pending: &Pending| matches!(pending.what, What::Flush);
        self.pending.iter().any(is_flush)
    }

    /// The moment at which it goes on by itself.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        (self.stream.is_none() && !self.orders.is_empty()).then_some(self.back_at)
    }

    /// Leaves, and stays away.
    pub(crate) fn leave(&mut self) {
        self.stream = None;
    }

    /// Loses its connection; what was in progress may have been done or not.
    pub(crate) fn reset(&mut self, keys: &mut [Key], now: Duration) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        stream.reset();
        self.back_at = now + LOST;
        self.output.clear();
        self.input.clear();
        for pending in std::mem::take(&mut self.pending) {
            match pending.what {
                What::Set(key, _) | What::Delete(key, ..) => keys[key].lose(self.back_at),
                What::Flush => keys.iter_mut().for_each(|key| key.lose(self.back_at)),
                What::Get(..) => {}
            }
        }
    }

    /// Sends `flush_all`; no writer has a command in progress.
    pub(crate) fn flush_all(&mut self, keys: &mut [Key], now: Duration) {
        for key in keys.iter_mut() {
            key.issue(None, 0, now);
        }
        self.send(&Command::Flush, What::Flush, false, now);
    }

    fn send(&mut self, command: &Command<'_>, what: What, settles: bool, now: Duration) {
        wire::encode(self.protocol, command, &mut self.output);
        self.pending.push_back(Pending {
            what,
            sent_at: now,
            settles,
        });
    }

    /// Sends what it may, and takes in what has come.
    pub(crate) fn attend(
        &mut self,
        (network, store): (&SimNet, SocketAddr),
        keys: &mut [Key],
        [is_paused, may_be_cut]: [bool; 2],
        counts: &mut Counts,
    ) -> Result<(), Broken> {
        let now = network.elapsed();
        if self.stream.is_none() {
            let wants = !self.orders.is_empty() || !self.output.is_empty();
            if !wants || now < self.back_at {
                return Ok(());
            }
            self.stream = Some(network.connect(store));
        }
        if !is_paused {
            self.send_orders(keys, now);
        }
        if let Some(stream) = &mut self.stream {
            if !self.output.is_empty() {
                let written = stream.write(&self.output).unwrap_or(0);
                self.output.drain(..written);
            }
            if stream.is_readable() && !stream.read_all(&mut self.input) {
                if may_be_cut {
                    // What was under way is read again later, as after a reset.
                    self.reset(keys, now);
                    return Ok(());
                }
                let reason = "the store has closed the connection of a writer".to_owned();
                return Err((Oracle::OneAnswer, reason));
            }
        }
        while let Some(reply) =
            wire::decode(self.protocol, &mut self.input).map_err(|reason| (Oracle::Map, reason))?
        {
            let Some(pending) = self.pending.pop_front() else {
                let reason = format!("a reply without a command: {reply:?}");
                return Err((Oracle::OneAnswer, reason));
            };
            check(&pending, reply, keys, now, counts)?;
        }
        match self.pending.front() {
            Some(first) if now > first.sent_at.max(self.back_at) + REPLIED => {
                let reason = format!("no reply to a command of {:.6?}", first.sent_at);
                Err((Oracle::Deadline, reason))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if it reads what has become of a key.
    fn is_reading(&self, place: usize) -> bool {
        let reads = |pending: &Pending| matches!(pending.what, What::Get(key, _) if key == place);
        self.pending.iter().any(reads)
    }

    fn send_orders(&mut self, keys: &mut [Key], now: Duration) {
        while self.pending.len() < PENDING_MAX
            && let Some((place, order)) = self.orders.pop_front()
        {
            let key = &mut keys[place];
            let (name, was_unsure) = (key.name.clone(), key.is_unsure);
            match order {
                // What has become of a lost command is looked at first.
                _ if was_unsure => {
                    self.orders.push_front((place, order));
                    if now < key.sure_at || self.is_reading(place) {
                        return;
                    }
                    let what = What::Get(place, key.floor());
                    self.send(&Command::Get(&name), what, true, now);
                    return;
                }
                Order::Set { length, seconds } => {
                    let value = key.next_value(length);
                    let state = key.issue(Some(value.clone()), seconds, now);
                    let command = Command::Set(&name, &value, seconds);
                    self.send(&command, What::Set(place, state), false, now);
                }
                Order::Delete => {
                    let states = [key.newest(), key.issue(None, 0, now)];
                    let what = What::Delete(place, states);
                    self.send(&Command::Delete(&name), what, false, now);
                }
                Order::Look => {}
                Order::Get => {
                    let what = What::Get(place, key.newest());
                    self.send(&Command::Get(&name), what, false, now);
                }
            }
        }
    }
}

/// Checks the reply to a command against the model.
fn check(
    pending: &Pending,
    reply: Reply,
    keys: &mut [Key],
    now: Duration,
    counts: &mut Counts,
) -> Result<(), Broken> {
    match (pending.what, reply) {
        (What::Set(key, state), Reply::Done) => {
            counts.reach("set");
            keys[key].acknowledge(state, now);
        }
        (What::Delete(key, [before, after]), reply @ (Reply::Done | Reply::NotFound)) => {
            counts.reach("delete");
            let was_there = reply == Reply::Done;
            let key = &mut keys[key];
            let is_right = match key.state(before).value {
                Some(_) => was_there || key.may_be_gone(before, now),
                None => !was_there,
            };
            key.acknowledge(after, now);
            if !is_right {
                let reason = format!("a delete of {} finds it: {was_there}", key.name);
                return Err((Oracle::Map, reason));
            }
        }
        (What::Get(key, state), Reply::Value(value)) => {
            counts.reach("get with a value");
            let key = &mut keys[key];
            let place = key.place_of(&value)?;
            if pending.settles {
                key.saw_value(place, key.floor(), 0, now)?;
                key.resolve(place, now);
            } else if place != state {
                let reason = format!("get {} gives state {place} instead of {state}", key.name);
                return Err((Oracle::Map, reason));
            }
        }
        (What::Get(key, state), Reply::NotFound) => {
            counts.reach("get of nothing");
            let key = &mut keys[key];
            if pending.settles {
                key.resolve_nothing(now)?;
            } else if !key.may_be_gone(state, now) {
                let reason = format!("get {} gives nothing instead of {state}", key.name);
                return Err((Oracle::Map, reason));
            }
        }
        (What::Flush, Reply::Done) => {
            counts.reach("flush_all");
            for key in keys {
                let newest = key.newest();
                key.acknowledge(newest, now);
            }
        }
        (_, reply) => {
            return Err((
                Oracle::Map,
                format!("a reply of another command: {reply:?}"),
            ));
        }
    }
    Ok(())
}
