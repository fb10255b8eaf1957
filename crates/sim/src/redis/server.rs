//! The Redis of a run, with the writers that change its keys.

use super::options::address;
use super::{Kept, RedisAct, RedisFault, RedisOptions};
use crate::chance::random;
use crate::failure::Oracle;
use crate::keys::{Broken, Key};
use crate::memcached::RECOVERY;
use crate::report::Counts;
use crate::step::Order;
use dwell_evloop::Random;
use dwell_evloop::sim::{SimNet, SimServer};
use dwell_testkit::sim::{RedisProcess, RedisQuirks};
use std::collections::VecDeque;
use std::time::Duration;

/// The server, and what is known of it.
///
/// Shape: writers change the keys directly and at once, and what comes over connections is taken in
/// behind it, so that the states of a key are those of the server at any moment.
pub(crate) struct RedisServer {
    options: RedisOptions,
    process: RedisProcess,
    /// Its listener; none while it is down.
    place: Option<SimServer>,
    times: Times,
    /// Commands of writers that it has not carried out yet.
    orders: VecDeque<(usize, Order)>,
    /// Values that end, with their states.
    expiries: Vec<(Duration, usize, usize)>,
    /// The edge may have connections to it that are dead, and does not know yet.
    has_dead: bool,
    random: Random,
    is_rough: bool,
}

/// The moments at which its faults end.
#[derive(Default)]
struct Times {
    /// It starts again.
    back_at: Duration,
    /// It answers again.
    answers_at: Duration,
    /// It takes writes again.
    writes_at: Duration,
    /// Nothing comes to it until then; none while it is joined.
    cut_until: Option<Duration>,
    /// Until then lookups may fail, and changes may be found late.
    hindered_until: Duration,
    /// Until then changes that nobody was told of may be found late.
    silent_until: Duration,
}

/// The time after which the cycle finds the end of a lifetime, at most.
const CYCLE: Duration = Duration::from_millis(250);
/// The same of a server that has too much to do: longer than a client waits for a change.
const LATE_CYCLE: Duration = Duration::from_secs(8);

impl RedisServer {
    pub(crate) fn new(options: &RedisOptions, seed: u64) -> Self {
        let mut random = random(seed, 62);
        Self {
            process: process(options, &mut random),
            options: options.clone(),
            place: None,
            times: Times::default(),
            orders: VecDeque::new(),
            expiries: Vec::new(),
            has_dead: false,
            random,
            is_rough: false,
        }
    }

    /// Begins or ends the faults.
    pub(crate) fn set_rough(&mut self, is_rough: bool, now: Duration) {
        self.is_rough = is_rough;
        self.set_quirks();
        if !is_rough {
            self.times.back_at = self.times.back_at.min(now);
            self.times.cut_until = self.times.cut_until.map(|until| until.min(now));
            self.times.hindered_until = self.times.hindered_until.max(now + RECOVERY);
        }
    }

    fn set_quirks(&self) {
        let is_on = |fault| self.is_rough && self.options.has(fault);
        let one_in = |fault, one_in| if is_on(fault) { one_in } else { 0 };
        self.process.set_quirks(RedisQuirks {
            tears_one_in: one_in(RedisFault::TornReplies, 4),
            lacks_memory_one_in: one_in(RedisFault::NoMemory, 3),
            drops_late: if is_on(RedisFault::LateExpiry) {
                LATE_CYCLE
            } else {
                CYCLE
            },
        });
    }

    /// The moments until which changes may be found late, and lookups may fail.
    pub(crate) fn hindered_until(&self) -> (Duration, Duration) {
        let fails_until = self.times.hindered_until;
        (fails_until.max(self.times.silent_until), fails_until)
    }

    fn is_running(&self, now: Duration) -> bool {
        self.place.is_some() && now >= self.times.answers_at
    }

    /// Has a writer's command carried out, when that can be.
    pub(crate) fn write(&mut self, key: usize, order: Order, keys: &mut [Key], now: Duration) {
        self.orders.push_back((key, order));
        self.follow(keys, now);
    }

    /// Drops all values, if it runs.
    pub(crate) fn flush_all(&self, keys: &mut [Key], now: Duration) {
        if self.is_running(now) {
            self.process.flush_all();
            lose(keys, now);
        }
    }

    /// Reads of each key so far.
    pub(crate) fn reads(&self, keys: &[Key]) -> Vec<u64> {
        let reads = keys.iter().map(|key| self.process.reads(&key.name));
        reads.collect()
    }

    /// Does what befalls it; returns the fault, if it strikes.
    pub(crate) fn act(
        &mut self,
        act: RedisAct,
        keys: &mut [Key],
        network: &SimNet,
    ) -> Option<RedisFault> {
        let now = network.elapsed();
        if !self.is_running(now) {
            return None;
        }
        let (fault, lasts) = match act {
            RedisAct::Restart(kept, down, loading) => {
                self.restart(kept, keys, now);
                self.times.back_at = now + down;
                self.times.answers_at = now + down + loading;
                self.process.load_until(now + down + loading);
                (RedisFault::Restart, down + loading)
            }
            RedisAct::Pause(time) => {
                self.process.pause_until(now + time);
                self.times.answers_at = now + time;
                (RedisFault::Pause, time)
            }
            RedisAct::Kill => {
                let has_some = self.process.close_all();
                (has_some.then_some(RedisFault::Kill)?, Duration::ZERO)
            }
            RedisAct::CutOff => {
                let has_some = self.process.cut_tracking();
                (has_some.then_some(RedisFault::CutOff)?, Duration::ZERO)
            }
            RedisAct::Unreachable(time) => {
                network.cut_off(address());
                self.times.cut_until = self.times.cut_until.max(Some(now + time));
                self.has_dead = true;
                (RedisFault::Unreachable, time)
            }
            RedisAct::Untracked(time) => {
                self.process.refuse_tracking_until(now + time);
                self.process.close_all();
                (RedisFault::Untracked, time)
            }
            RedisAct::ReadOnly(time) => {
                self.process.refuse_writes_until(now + time);
                self.times.writes_at = now + time;
                (RedisFault::ReadOnly, time)
            }
            RedisAct::SmallTable(most, time) => {
                self.process.bound_table_until(most, now + time);
                // It counts when a key is pushed out.
                return None;
            }
            RedisAct::Swap => {
                self.swap(keys, now);
                // The next sweep finds it.
                let found = now + self.options.sweep_interval + RECOVERY;
                self.times.silent_until = self.times.silent_until.max(found);
                return Some(RedisFault::Swap);
            }
            RedisAct::Evict | RedisAct::List | RedisAct::Touch => {
                return self.befall_one(act, keys, now);
            }
        };
        self.times.hindered_until = self.times.hindered_until.max(now + lasts + RECOVERY);
        Some(fault)
    }

    /// Has it end, and have so much when it is back.
    fn restart(&mut self, kept: Kept, keys: &mut [Key], now: Duration) {
        self.process.close_all();
        self.place = None;
        match kept {
            Kept::Nothing => {
                self.process = process(&self.options, &mut self.random);
                self.set_quirks();
                self.expiries.clear();
                lose(keys, now);
            }
            Kept::Values => {}
            Kept::Next => self.swap(keys, now),
        }
    }

    /// Gives each key that has a value the next one, of which nobody is told.
    fn swap(&mut self, keys: &mut [Key], now: Duration) {
        let mut values = Vec::new();
        for key in keys.iter_mut().filter(|key| key.has_value()) {
            let value = key.next_value(20);
            values.push((key.name.clone(), value.clone()));
            key.becomes(Some(value), now);
        }
        self.expiries.clear();
        self.process.swap(values);
    }

    /// Something befalls one of the keys that have a value.
    fn befall_one(&mut self, act: RedisAct, keys: &mut [Key], now: Duration) -> Option<RedisFault> {
        let mut there: Vec<_> = keys.iter_mut().filter(|key| key.has_value()).collect();
        let place = self.random.below(there.len() as u64) as usize;
        let key = there.get_mut(place)?;
        Some(match act {
            RedisAct::Evict => {
                self.process.delete(&key.name);
                key.becomes(None, now);
                RedisFault::Eviction
            }
            RedisAct::List => {
                self.process.set_list(&key.name);
                key.becomes(None, now);
                RedisFault::List
            }
            _ => {
                self.process.touch(&key.name);
                RedisFault::Touch
            }
        })
    }

    /// The moment at which it goes on by itself.
    pub(crate) fn next_at(&self, now: Duration) -> Option<Duration> {
        let expiries = self.expiries.iter().map(|(at, ..)| *at);
        let times = &self.times;
        let moments = expiries.chain(self.process.drops()).chain([
            times.back_at,
            times.answers_at,
            times.writes_at,
            times.cut_until.unwrap_or_default(),
        ]);
        moments.filter(|at| *at > now).min()
    }

    /// Has it go on: starts it when it is to be there, and takes in what has become of keys.
    ///
    /// # Errors
    /// If the edge has stored what it may not.
    pub(crate) fn attend(
        &mut self,
        network: &SimNet,
        keys: &mut [Key],
        counts: &mut Counts,
    ) -> Result<(), Broken> {
        let now = network.elapsed();
        self.take_changes(keys, counts, now)?;
        self.join(network, now);
        if self.place.is_none() && now >= self.times.back_at {
            self.place = self.process.serve(network, address()).ok();
        }
        self.expire(keys, now);
        if self.is_running(now) {
            self.process.drop_due(now);
        }
        self.follow(keys, now);
        let struck = self.process.take_struck();
        let late = struck.dropped * u64::from(self.options.has(RedisFault::LateExpiry));
        for (fault, times) in [
            (RedisFault::TornReplies, struck.torn),
            (RedisFault::NoMemory, struck.refused),
            (RedisFault::LateExpiry, late),
            (RedisFault::SmallTable, struck.pushed_out),
            (RedisFault::TooOld, struck.not_greeted),
        ] {
            (0..times).for_each(|_| counts.strike(fault.name()));
        }
        Ok(())
    }

    /// Has it within reach again when its time is over; the connections that it had stay dead.
    fn join(&mut self, network: &SimNet, now: Duration) {
        let times = &mut self.times;
        if times.cut_until.is_some_and(|until| now >= until) {
            times.cut_until = None;
            network.join_at(address());
        }
        if self.has_dead {
            if !self.is_rough && times.cut_until.is_none() {
                network.reset_silent_at(address());
            }
            self.has_dead = network.silent_at(address()) > 0;
            times.hindered_until = times.hindered_until.max(now + RECOVERY);
        }
    }

    /// Carries out the commands of writers, while it takes writes.
    fn follow(&mut self, keys: &mut [Key], now: Duration) {
        while self.is_running(now)
            && now >= self.times.writes_at
            && let Some((key, order)) = self.orders.pop_front()
        {
            let model = &mut keys[key];
            match order {
                Order::Set { length, seconds } => {
                    let value = model.next_value(length);
                    let life = Duration::from_secs(u64::from(seconds));
                    let ends = (seconds > 0).then_some(now + life);
                    self.process.set(&model.name, &value, ends);
                    let state = model.becomes(Some(value), now);
                    self.expiries.extend(ends.map(|ends| (ends, key, state)));
                }
                Order::Delete => {
                    self.process.delete(&model.name);
                    model.becomes(None, now);
                }
                // A read of the model would tell what is known.
                Order::Get | Order::Look => {}
            }
        }
    }

    /// The values whose time is over are gone for all that read, unless they were stored again.
    fn expire(&mut self, keys: &mut [Key], now: Duration) {
        self.expiries.retain(|(at, key, state)| {
            let model = &mut keys[*key];
            let is_due = now >= *at;
            if is_due && model.newest() == *state {
                model.becomes(None, now);
            }
            !is_due
        });
    }

    /// Takes in what the edge has changed: values of publishers, and answers of the application
    /// where there was nothing.
    fn take_changes(
        &mut self,
        keys: &mut [Key],
        counts: &mut Counts,
        now: Duration,
    ) -> Result<(), Broken> {
        for change in self.process.take_changes() {
            let place = keys.iter().position(|key| key.name == change.key);
            let value = change.value.as_deref().map(String::from_utf8_lossy);
            let value = value.map(std::borrow::Cow::into_owned);
            let is_its = value
                .as_deref()
                .is_none_or(|value| value.split(['@', '#']).next() == Some(&change.key));
            let Some(place) = place.filter(|_| is_its) else {
                let reason = format!("the edge stores {value:?} as {}", change.key);
                return Err((Oracle::Map, reason));
            };
            let key = &mut keys[place];
            let is_answer = value.is_some_and(|value| value.contains('@'));
            if is_answer {
                counts.reach("answer stored");
                if key.has_value() {
                    let reason = format!("an answer is stored over a value of {}", key.name);
                    return Err((Oracle::Map, reason));
                }
            } else if change
                .value
                .as_deref()
                .is_some_and(|it| key.place_of_published(it).is_some())
            {
                let reason = format!("a value of {} is stored twice", key.name);
                return Err((Oracle::OneRequest, reason));
            }
            let state = key.becomes(change.value, now);
            let ends = change.ends.map(|ends| (ends, place, state));
            self.expiries.extend(ends);
        }
        Ok(())
    }
}

/// Everything is gone.
fn lose(keys: &mut [Key], now: Duration) {
    for key in keys.iter_mut() {
        key.becomes(None, now);
    }
}

fn process(options: &RedisOptions, random: &mut Random) -> RedisProcess {
    let process = RedisProcess::new(options.password(), random.draw());
    if options.has(RedisFault::TooOld) {
        process.be_old();
    }
    if options.refuses_tracking {
        process.refuse_tracking_until(Duration::MAX);
    }
    process
}
