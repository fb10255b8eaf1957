//! The memcached servers of a run, with the writers that change their items.

use super::{MemcachedAct, MemcachedFault, MemcachedOptions, addresses};
use crate::chance::random;
use crate::failure::Oracle;
use crate::keys::{Broken, Key};
use crate::report::Counts;
use crate::step::Order;
use dwell_evloop::Random;
use dwell_evloop::sim::{SimNet, SimServer};
use dwell_memcache::{Ring, RingServer};
use dwell_testkit::sim::{MemcachedOptions as ProcessOptions, MemcachedProcess, Quirks, SimTls};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// All servers, and what is known of them.
///
/// Shape: writers change the items directly and at once, so that the states of a key are those of
/// its server at any moment. What the edge stores is taken in behind it.
pub(crate) struct Servers {
    options: MemcachedOptions,
    /// Their certificates, if they are spoken to under TLS.
    tls: Option<SimTls>,
    ring: Ring,
    all: Vec<Server>,
    random: Random,
    is_rough: bool,
    /// Until then lookups may fail, and changes may be found late.
    pub(crate) hindered_until: Duration,
}

struct Server {
    at: SocketAddr,
    process: MemcachedProcess,
    /// Its listener; none while it is down.
    place: Option<SimServer>,
    /// It starts again then.
    back_at: Duration,
    paused_until: Duration,
    /// Nothing comes to it until then; none while it is joined.
    cut_until: Option<Duration>,
    /// The edge may have connections to it that are dead, and does not know yet.
    has_dead: bool,
    /// Commands of writers that it has not read yet.
    orders: VecDeque<(usize, Order)>,
    /// Items that expire, with their states.
    expiries: Vec<(Duration, usize, usize)>,
    /// Processes so far.
    processes: u64,
}

/// The time after the end of a fault within which the edge is connected again, and has looked at
/// everything: the longest wait before an attempt, and two timeouts.
pub(crate) const RECOVERY: Duration = Duration::from_secs(3);

impl Servers {
    pub(crate) fn new(options: &MemcachedOptions, seed: u64, tls: Option<&SimTls>) -> Self {
        let ports = addresses(options).map(|at| RingServer {
            host: "127.0.0.1",
            port: at.port(),
            weight: 1,
        });
        let ring = Ring::new(&ports.collect::<Vec<_>>());
        let mut random = random(seed, 13);
        let all = addresses(options).map(|at| Server {
            at,
            process: process(options, 1, tls, &mut random),
            place: None,
            back_at: Duration::ZERO,
            paused_until: Duration::ZERO,
            cut_until: None,
            has_dead: false,
            orders: VecDeque::new(),
            expiries: Vec::new(),
            processes: 1,
        });
        Self {
            ring,
            all: all.collect(),
            options: options.clone(),
            tls: tls.cloned(),
            random,
            is_rough: false,
            hindered_until: Duration::ZERO,
        }
    }

    /// Begins or ends the faults.
    pub(crate) fn set_rough(&mut self, is_rough: bool, now: Duration) {
        self.is_rough = is_rough;
        for server in &mut self.all {
            server.process.set_quirks(quirks(&self.options, is_rough));
            if !is_rough {
                server.back_at = server.back_at.min(now);
                server.cut_until = server.cut_until.map(|until| until.min(now));
                self.hindered_until = self.hindered_until.max(now + RECOVERY);
            }
        }
    }

    /// Has the server of a key carry a writer's command out, when it can.
    pub(crate) fn write(&mut self, key: usize, order: Order, keys: &mut [Key], now: Duration) {
        let place = self.ring.server_of(keys[key].name.as_bytes());
        let server = &mut self.all[place];
        server.orders.push_back((key, order));
        server.follow(keys, now);
    }

    /// Ends their connections; lookups may fail until then, and for a while more.
    pub(crate) fn cut(&mut self, until: Duration) {
        for server in &self.all {
            server.process.reset_connections();
        }
        self.hindered_until = self.hindered_until.max(until + RECOVERY);
    }

    /// Drops all items of the servers that run.
    pub(crate) fn flush_all(&self, keys: &mut [Key], now: Duration) {
        for (place, server) in self.all.iter().enumerate() {
            if server.is_running(now) {
                server.process.flush_all();
                self.lose(place, keys, now);
            }
        }
    }

    /// Does what befalls a server; returns the fault, if it strikes.
    pub(crate) fn act(
        &mut self,
        place: usize,
        act: MemcachedAct,
        keys: &mut [Key],
        network: &SimNet,
    ) -> Option<MemcachedFault> {
        let (server, now) = (&mut self.all[place], network.elapsed());
        if !server.is_running(now) {
            return None;
        }
        let (fault, lasts) = match act {
            MemcachedAct::Evict => {
                let found = server.evict(keys, now, self.random.draw());
                return found.then_some(MemcachedFault::Eviction);
            }
            MemcachedAct::Pause(time) => {
                server.process.pause_until(now + time);
                server.paused_until = now + time;
                (MemcachedFault::Pause, time)
            }
            MemcachedAct::Reset => {
                let has_some = server.process.reset_connections();
                (has_some.then_some(MemcachedFault::Reset)?, Duration::ZERO)
            }
            MemcachedAct::CutOff(time) => {
                network.cut_off(server.at);
                server.cut_until = server.cut_until.max(Some(now + time));
                server.has_dead = true;
                (MemcachedFault::CutOff, time)
            }
            MemcachedAct::Restart { refills } => {
                let before = server.uniques(keys);
                self.start_anew(place, keys, now);
                if refills {
                    self.all[place].refill(&before, keys, now);
                }
                (MemcachedFault::Restart, Duration::ZERO)
            }
            MemcachedAct::Down(time) => {
                self.start_anew(place, keys, now);
                let server = &mut self.all[place];
                server.back_at = now + time;
                (MemcachedFault::Down, time)
            }
        };
        self.hindered_until = self.hindered_until.max(now + lasts + RECOVERY);
        Some(fault)
    }

    /// Ends the process of a server; the next one has nothing.
    fn start_anew(&mut self, place: usize, keys: &mut [Key], now: Duration) {
        let server = &mut self.all[place];
        server.place = None;
        server.processes += 1;
        let pid = if self.options.has_pids {
            server.processes
        } else {
            1
        };
        server.process = process(&self.options, pid, self.tls.as_ref(), &mut self.random);
        server
            .process
            .set_quirks(quirks(&self.options, self.is_rough));
        server.expiries.clear();
        self.lose(place, keys, now);
    }

    /// The items of a server are gone.
    fn lose(&self, place: usize, keys: &mut [Key], now: Duration) {
        let is_its = |key: &&mut Key| self.ring.server_of(key.name.as_bytes()) == place;
        for key in keys.iter_mut().filter(is_its) {
            key.becomes(None, now);
        }
    }

    /// The moment at which one of them goes on by itself.
    pub(crate) fn next_at(&self, now: Duration) -> Option<Duration> {
        let moments = self.all.iter().flat_map(|server| {
            let expiries = server.expiries.iter().map(|(at, ..)| *at);
            let ends = [server.back_at, server.paused_until];
            expiries.chain(ends).chain(server.cut_until)
        });
        moments.filter(|at| *at > now).min()
    }

    /// Has them go on: starts those that are to be there, and takes in what has become of keys.
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
        for server in &mut self.all {
            server.take_stored(keys, counts, now)?;
            if server.cut_until.is_some_and(|until| now >= until) {
                server.cut_until = None;
                network.join_at(server.at);
            }
            if server.has_dead {
                if !self.is_rough && server.cut_until.is_none() {
                    network.reset_silent_at(server.at);
                }
                // The first lookup on each of them is lost.
                server.has_dead = network.silent_at(server.at) > 0;
                self.hindered_until = self.hindered_until.max(now + RECOVERY);
            }
            if server.place.is_none() && now >= server.back_at {
                server.place = server.process.serve(network, server.at).ok();
            }
            server.expire(keys, now);
            server.follow(keys, now);
            let struck = server.process.take_struck();
            for (fault, times) in [
                (MemcachedFault::TornReplies, struck.torn),
                (MemcachedFault::LostLines, struck.lost_lines),
                (MemcachedFault::NoMemory, struck.refused),
            ] {
                (0..times).for_each(|_| counts.strike(fault.name()));
            }
        }
        Ok(())
    }
}

impl Server {
    fn is_running(&self, now: Duration) -> bool {
        self.place.is_some() && now >= self.paused_until
    }

    /// Carries out the commands of writers, while it runs.
    fn follow(&mut self, keys: &mut [Key], now: Duration) {
        while self.is_running(now)
            && let Some((key, order)) = self.orders.pop_front()
        {
            let model = &mut keys[key];
            match order {
                Order::Set { length, seconds } => {
                    let value = model.next_value(length);
                    self.process.set(&model.name, &value);
                    let state = model.becomes(Some(value), now);
                    if seconds > 0 {
                        let life = Duration::from_secs(u64::from(seconds));
                        self.expiries.push((now + life, key, state));
                    }
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

    /// Drops the items whose time is over, unless they were stored again.
    fn expire(&mut self, keys: &mut [Key], now: Duration) {
        let process = &self.process;
        self.expiries.retain(|(at, key, state)| {
            let model = &mut keys[*key];
            let is_due = now >= *at;
            if is_due && model.newest() == *state {
                process.expire(&model.name);
                model.becomes(None, now);
            }
            !is_due
        });
    }

    /// Drops one of its items; returns true if it has some.
    fn evict(&self, keys: &mut [Key], now: Duration, chosen: u64) -> bool {
        let is_there = |key: &&mut Key| self.process.cas_of(&key.name).is_some();
        let mut there: Vec<_> = keys.iter_mut().filter(is_there).collect();
        if there.is_empty() {
            return false;
        }
        let place = chosen % there.len() as u64;
        let key = &mut *there[place as usize];
        self.process.evict(&key.name);
        key.becomes(None, now);
        true
    }

    /// The keys that it has, in the order of their cas uniques.
    fn uniques(&self, keys: &[Key]) -> Vec<(u64, usize)> {
        let keys = keys.iter().enumerate();
        let unique = |(place, key): (usize, &Key)| Some((self.process.cas_of(&key.name)?, place));
        let mut uniques: Vec<_> = keys.filter_map(unique).collect();
        uniques.sort_unstable();
        uniques
    }

    /// Stores the next value of each key with the cas unique that it had: others have stored as
    /// much as before.
    fn refill(&self, uniques: &[(u64, usize)], keys: &mut [Key], now: Duration) {
        for (unique, place) in uniques {
            let key = &mut keys[*place];
            let value = key.next_value(20);
            self.process.count_to(unique.saturating_sub(1));
            self.process.set(&key.name, &value);
            key.becomes(Some(value), now);
        }
    }

    /// Takes in what the edge has stored: values of WebSockets, and answers of the application
    /// where there was nothing.
    fn take_stored(
        &self,
        keys: &mut [Key],
        counts: &mut Counts,
        now: Duration,
    ) -> Result<(), Broken> {
        for stored in self.process.take_stored() {
            let key = keys.iter_mut().find(|key| key.name == stored.key);
            let published = key.and_then(|key| {
                let Some(value) = &stored.value else {
                    key.becomes(None, now);
                    return Some(Ok(()));
                };
                key.store_published(value, now)
            });
            if let Some(published) = published {
                published?;
                continue;
            }
            counts.reach("answer stored");
            let key = keys.iter_mut().find(|key| key.name == stored.key);
            let value = stored.value.unwrap_or_default();
            let text = String::from_utf8_lossy(&value).into_owned();
            let is_its = text.split('@').next() == Some(&stored.key);
            let Some(key) = key.filter(|_| is_its && !stored.replaces) else {
                let reason = format!("the edge stores {text:?} as {}", stored.key);
                return Err((Oracle::Map, reason));
            };
            key.becomes(Some(value), now);
        }
        Ok(())
    }
}

fn process(
    options: &MemcachedOptions,
    pid: u64,
    tls: Option<&SimTls>,
    random: &mut Random,
) -> MemcachedProcess {
    let process = MemcachedProcess::new(ProcessOptions {
        pid,
        has_cas: options.has_cas,
        tells_deletions: options.tells_deletions,
        seed: random.draw(),
    });
    if let Some(tls) = tls {
        process.set_tls(tls.clone());
    }
    process
}

fn quirks(options: &MemcachedOptions, is_rough: bool) -> Quirks {
    let one_in = |fault, one_in| {
        if is_rough && options.has(fault) {
            one_in
        } else {
            0
        }
    };
    Quirks {
        tears_one_in: one_in(MemcachedFault::TornReplies, 4),
        loses_lines_one_in: one_in(MemcachedFault::LostLines, 3),
        lacks_memory_one_in: one_in(MemcachedFault::NoMemory, 3),
    }
}
