//! The Redis of a run, or its cluster, with the writers that change its keys.

use super::cluster::{ClusterAct, ClusterFault, address};
use super::moves::Moves;
use super::node::{Node, Old};
use super::options::name_of;
use super::slots::{HEARD, Slots};
use super::{Kept, RedisAct, RedisFault, RedisOptions};
use crate::chance::random;
use crate::failure::Oracle;
use crate::keys::{Broken, Key};
use crate::memcached::RECOVERY;
use crate::report::Counts;
use crate::step::Order;
use dwell_evloop::Random;
use dwell_evloop::sim::SimNet;
use dwell_testkit::sim::{RedisProcess, RedisQuirks};
use std::collections::VecDeque;
use std::time::Duration;

/// The server, or those of a cluster, and what is known of them.
///
/// Shape: writers change the keys directly and at once, and what comes over connections is taken in
/// behind it, so that the states of a key are those of the server at any moment.
pub(crate) struct RedisServer {
    options: RedisOptions,
    nodes: Vec<Node>,
    /// The slots, if it is a cluster.
    slots: Option<Slots>,
    moves: Moves,
    /// Until then lookups may fail, and changes may be found late.
    fails_until: Duration,
    /// Until then changes that nobody was told of may be found late.
    silent_until: Duration,
    /// Commands of writers that it has not carried out yet.
    orders: VecDeque<(usize, Order)>,
    /// Values that end, with their states.
    expiries: Vec<(Duration, usize, usize)>,
    random: Random,
    is_rough: bool,
}

/// The time after which the cycle finds the end of a lifetime, at most.
const CYCLE: Duration = Duration::from_millis(250);
/// The same of a server that has too much to do: longer than a client waits for a change.
const LATE_CYCLE: Duration = Duration::from_secs(8);

impl RedisServer {
    pub(crate) fn new(options: &RedisOptions, seed: u64) -> Self {
        let mut random = random(seed, 62);
        let mut nodes = vec![Node::new(address(0), process(options, &mut random))];
        let slots = options.cluster.as_ref().map(|cluster| {
            let mut own = crate::chance::random(seed, 66);
            for at in cluster.addresses().skip(1) {
                let process = nodes[0].process.beside(own.draw());
                set_up(&process, options);
                nodes.push(Node::new(at, process));
            }
            Slots::new(cluster, &nodes, own)
        });
        Self {
            options: options.clone(),
            nodes,
            slots,
            moves: Moves::default(),
            fails_until: Duration::ZERO,
            silent_until: Duration::ZERO,
            orders: VecDeque::new(),
            expiries: Vec::new(),
            random,
            is_rough: false,
        }
    }

    /// Begins or ends the faults.
    pub(crate) fn set_rough(&mut self, is_rough: bool, now: Duration) {
        self.is_rough = is_rough;
        self.set_quirks();
        if let Some(slots) = &mut self.slots {
            slots.set_rough(is_rough, now);
        }
        if !is_rough {
            self.nodes.iter_mut().for_each(|node| node.calm(now));
            self.fails_until = self.fails_until.max(now + RECOVERY);
        }
    }

    fn set_quirks(&self) {
        let is_on = |fault| self.is_rough && self.options.has(fault);
        let one_in = |fault, one_in| if is_on(fault) { one_in } else { 0 };
        for node in &self.nodes {
            node.process.set_quirks(RedisQuirks {
                tears_one_in: one_in(RedisFault::TornReplies, 4),
                lacks_memory_one_in: one_in(RedisFault::NoMemory, 3),
                drops_late: if is_on(RedisFault::LateExpiry) {
                    LATE_CYCLE
                } else {
                    CYCLE
                },
            });
        }
    }

    /// The moments until which changes may be found late, and lookups may fail.
    pub(crate) fn hindered_until(&self) -> (Duration, Duration) {
        (self.fails_until.max(self.silent_until), self.fails_until)
    }

    /// Servers that have slots, or the only one.
    pub(crate) fn primaries(&self) -> usize {
        self.slots.as_ref().map_or(1, Slots::primaries)
    }

    /// The server that has a key, or where it would be written.
    fn place(&self, key: &Key, now: Duration) -> usize {
        let slots = self.slots.as_ref();
        slots.map_or(0, |slots| slots.place(key, &self.nodes, now))
    }

    /// The keys of a server.
    fn keys_of(&self, node: usize, keys: &[Key], now: Duration) -> Vec<usize> {
        let is_its = |key: &usize| self.place(&keys[*key], now) == node;
        (0..keys.len()).filter(is_its).collect()
    }

    /// Has a writer's command carried out, when that can be.
    pub(crate) fn write(&mut self, key: usize, order: Order, keys: &mut [Key], now: Duration) {
        self.orders.push_back((key, order));
        self.follow(keys, now);
    }

    /// Drops all values of what runs.
    pub(crate) fn flush_all(&self, keys: &mut [Key], now: Duration) {
        for (place, node) in self.nodes.iter().enumerate() {
            if node.is_running(now) {
                let lost = self.keys_of(place, keys, now);
                node.process.flush_all();
                lose(&lost, keys, now);
            }
        }
    }

    /// Reads of each key so far.
    pub(crate) fn reads(&self, keys: &[Key]) -> Vec<u64> {
        let of = |key: &Key| {
            self.nodes
                .iter()
                .map(|it| it.process.reads(&key.name))
                .sum()
        };
        keys.iter().map(of).collect()
    }

    /// Does what befalls the slot of a key; returns the fault, if it strikes.
    pub(crate) fn act_on_slot(
        &mut self,
        (key, act): (usize, ClusterAct),
        keys: &mut [Key],
        now: Duration,
    ) -> Option<ClusterFault> {
        let slots = self.slots.as_mut()?;
        slots.act(act, key, keys, &mut self.nodes, now)
    }

    /// Does what befalls a server; returns the fault, if it strikes.
    pub(crate) fn act(
        &mut self,
        (place, act): (usize, RedisAct),
        keys: &mut [Key],
        network: &SimNet,
    ) -> Option<RedisFault> {
        let now = network.elapsed();
        let is_cluster = self.slots.is_some();
        let node = &mut self.nodes[place];
        if !node.is_running(now) {
            return None;
        }
        if let RedisAct::Move(old, pause) = act {
            return self.move_server(place, (old, pause), network);
        }
        let (fault, lasts) = match act {
            RedisAct::Restart(kept, down, loading) => {
                self.restart(place, kept, keys, now);
                let node = &mut self.nodes[place];
                node.back_at = now + down;
                node.answers_at = now + down + loading;
                node.process.load_until(now + down + loading);
                (RedisFault::Restart, down + loading)
            }
            RedisAct::Pause(time) => {
                node.process.pause_until(now + time);
                node.answers_at = now + time;
                (RedisFault::Pause, time)
            }
            RedisAct::Kill => {
                let has_some = node.process.close_all();
                (has_some.then_some(RedisFault::Kill)?, Duration::ZERO)
            }
            RedisAct::CutOff => {
                let has_some = node.process.cut_tracking();
                (has_some.then_some(RedisFault::CutOff)?, Duration::ZERO)
            }
            RedisAct::Unreachable(time) => {
                node.cut_off(network, now + time);
                (RedisFault::Unreachable, time)
            }
            RedisAct::Untracked(time) => {
                node.process.refuse_tracking_until(now + time);
                node.process.close_all();
                (RedisFault::Untracked, time)
            }
            // A cluster has one database, and its replicas redirect writes.
            RedisAct::ReadOnly(_) | RedisAct::Swap if is_cluster => return None,
            RedisAct::ReadOnly(time) => {
                node.process.refuse_writes_until(now + time);
                node.writes_at = now + time;
                (RedisFault::ReadOnly, time)
            }
            RedisAct::SmallTable(most, time) => {
                node.process.bound_table_until(most, now + time);
                // It counts when a key is pushed out.
                return None;
            }
            RedisAct::Swap => {
                self.swap(place, keys, now);
                // The next sweep finds it.
                let found = now + self.options.sweep_interval + RECOVERY;
                self.silent_until = self.silent_until.max(found);
                return Some(RedisFault::Swap);
            }
            RedisAct::Evict | RedisAct::List | RedisAct::Touch | RedisAct::Move(..) => {
                return self.befall_one(place, act, keys, now);
            }
        };
        self.fails_until = self.fails_until.max(now + lasts + RECOVERY);
        Some(fault)
    }

    /// Has the names lead to where the servers are.
    pub(crate) fn begin_names(&self, network: &SimNet) {
        for (place, node) in self.nodes.iter().enumerate() {
            network.name(&name_of(place), node.address.ip());
        }
    }

    /// Returns true if the edge is to look the names up by then, or at all.
    pub(crate) fn is_to_look_up(&self, by: Option<Duration>) -> bool {
        self.moves.is_to_look_up(by)
    }

    /// The edge has looked the names up.
    pub(crate) fn has_looked_up(&mut self, now: Duration) {
        if self.moves.end() {
            self.fails_until = self.fails_until.max(now + RECOVERY);
        }
    }

    /// Gives a server another address; returns the fault, if it strikes.
    fn move_server(
        &mut self,
        place: usize,
        (old, pause): (Old, Duration),
        network: &SimNet,
    ) -> Option<RedisFault> {
        let now = network.elapsed();
        let slots = self.slots.as_ref();
        let is_free = slots.is_none_or(|it| it.may_move(place, &self.nodes, now));
        let node = &mut self.nodes[place];
        if !is_free || !node.may_move(now) {
            return None;
        }
        // One that moves on while it serves at the address before ends what it has there.
        let is_clear = !node.is_beside() && self.slots.is_none();
        let before = node.move_away(network, (old, pause));
        self.begin_names(network);
        if let Some(slots) = &mut self.slots {
            slots.has_moved(place, before, &self.nodes, now);
            self.fails_until = self.fails_until.max(now + HEARD + RECOVERY);
        }
        let loses = !is_clear || !matches!(old, Old::Serves(_));
        self.moves.begin(now + pause, loses);
        Some(RedisFault::Moved)
    }

    /// Has it end, and have so much when it is back.
    fn restart(&mut self, place: usize, kept: Kept, keys: &mut [Key], now: Duration) {
        let own = self.keys_of(place, keys, now);
        let node = &mut self.nodes[place];
        node.go_down();
        match kept {
            Kept::Nothing => {
                if self.slots.is_some() {
                    node.process.swap(Vec::new());
                } else {
                    node.process = process(&self.options, &mut self.random);
                }
                self.set_quirks();
                self.expiries.retain(|(_, key, _)| !own.contains(key));
                lose(&own, keys, now);
            }
            Kept::Values => {}
            Kept::Next => self.swap(place, keys, now),
        }
    }

    /// Gives each key that has a value the next one, of which nobody is told.
    fn swap(&mut self, place: usize, keys: &mut [Key], now: Duration) {
        let own = self.keys_of(place, keys, now);
        let mut values = Vec::new();
        for key in &own {
            let key = &mut keys[*key];
            if key.has_value() {
                let value = key.next_value(20);
                values.push((key.name.clone(), value.clone()));
                key.becomes(Some(value), now);
            }
        }
        self.expiries.retain(|(_, key, _)| !own.contains(key));
        self.nodes[place].process.swap(values);
    }

    /// Something befalls one of the keys that have a value.
    fn befall_one(
        &mut self,
        place: usize,
        act: RedisAct,
        keys: &mut [Key],
        now: Duration,
    ) -> Option<RedisFault> {
        let own = self.keys_of(place, keys, now);
        let there = own.into_iter().filter(|key| keys[*key].has_value());
        let there: Vec<_> = there.collect();
        let chosen = self.random.below(there.len() as u64) as usize;
        let key = &mut keys[*there.get(chosen)?];
        let process = &self.nodes[place].process;
        Some(match act {
            RedisAct::Evict => {
                process.delete(&key.name);
                key.becomes(None, now);
                RedisFault::Eviction
            }
            RedisAct::List => {
                process.set_list(&key.name);
                key.becomes(None, now);
                RedisFault::List
            }
            _ => {
                process.touch(&key.name);
                RedisFault::Touch
            }
        })
    }

    /// The moment at which it goes on by itself.
    pub(crate) fn next_at(&self, now: Duration) -> Option<Duration> {
        let expiries = self.expiries.iter().map(|(at, ..)| *at);
        let nodes = self.nodes.iter().flat_map(Node::moments);
        let slots = self.slots.iter().flat_map(Slots::moments);
        let moments = expiries
            .chain(nodes)
            .chain(slots)
            .chain(self.moves.moment());
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
        for node in &mut self.nodes {
            if node.join(network, self.is_rough) {
                self.fails_until = self.fails_until.max(now + RECOVERY);
            }
            node.start(network);
        }
        self.expire(keys, now);
        for node in self.nodes.iter().filter(|node| node.is_running(now)) {
            node.process.drop_due(now);
        }
        if let Some(slots) = &mut self.slots {
            // A takeover may begin and end in this moment.
            let was_hindered = slots.is_hindered();
            slots.follow(keys, &self.nodes, now);
            if was_hindered || slots.is_hindered() {
                self.fails_until = self.fails_until.max(now + RECOVERY);
            }
        }
        if self.moves.is_hindered() {
            self.fails_until = self.fails_until.max(now + RECOVERY);
        }
        self.follow(keys, now);
        for node in &self.nodes {
            let struck = node.process.take_struck();
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
        }
        Ok(())
    }

    /// Carries out the commands of writers whose keys can be written.
    fn follow(&mut self, keys: &mut [Key], now: Duration) {
        for (key, order) in std::mem::take(&mut self.orders) {
            let place = self.place(&keys[key], now);
            // Those for a key stay in their order.
            let is_behind = self.orders.iter().any(|(waits, _)| *waits == key);
            let slots = self.slots.as_ref();
            let is_served = slots.is_none_or(|slots| slots.is_served(place));
            if is_behind || !is_served || !self.nodes[place].takes_writes(now) {
                self.orders.push_back((key, order));
                continue;
            }
            let (model, process) = (&mut keys[key], &self.nodes[place].process);
            match order {
                Order::Set { length, seconds } => {
                    let value = model.next_value(length);
                    let life = Duration::from_secs(u64::from(seconds));
                    let ends = (seconds > 0).then_some(now + life);
                    process.set(&model.name, &value, ends);
                    let state = model.becomes(Some(value), now);
                    self.expiries.extend(ends.map(|ends| (ends, key, state)));
                }
                Order::Delete => {
                    process.delete(&model.name);
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
        for change in self.nodes[0].process.take_changes() {
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

/// These keys are gone.
fn lose(lost: &[usize], keys: &mut [Key], now: Duration) {
    for key in lost {
        keys[*key].becomes(None, now);
    }
}

fn process(options: &RedisOptions, random: &mut Random) -> RedisProcess {
    let process = RedisProcess::new(options.password(), random.draw());
    set_up(&process, options);
    process
}

fn set_up(process: &RedisProcess, options: &RedisOptions) {
    if options.has(RedisFault::TooOld) {
        process.be_old();
    }
    if options.refuses_tracking {
        process.refuse_tracking_until(Duration::MAX);
    }
}
