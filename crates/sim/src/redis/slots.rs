//! The slots of a cluster: the server that has each, and those that move.

use super::cluster::{ClusterAct, ClusterFault, ClusterOptions, Lost};
use super::node::Node;
use crate::keys::Key;
use dwell_evloop::Random;
use dwell_testkit::sim::RedisSlots;
use std::net::SocketAddr;
use std::time::Duration;

pub(super) struct Slots {
    options: ClusterOptions,
    /// The true owners; each server knows them sooner or later.
    owners: RedisSlots,
    moves: Vec<Move>,
    takeovers: Vec<Takeover>,
    /// Servers whose slots nobody has until then.
    unserved: Vec<(Duration, usize)>,
    /// Servers that hear then what is true.
    news: Vec<(Duration, usize)>,
    random: Random,
    is_rough: bool,
}

/// A slot that moves.
struct Move {
    slot: u16,
    from: usize,
    to: usize,
    /// The moments at which its keys move, and at which that is the end of it.
    at: [Duration; 2],
    has_keys_moved: bool,
}

/// A replica that is to take over.
struct Takeover {
    from: usize,
    to: usize,
    at: Duration,
    lost: Lost,
    /// The server before has all values again, and tells so.
    is_whole: bool,
}

/// The longest time after which a server hears of what others have agreed on.
pub(super) const HEARD: Duration = Duration::from_secs(1);

impl Slots {
    /// The slots of these servers, which know of them.
    pub(super) fn new(options: &ClusterOptions, nodes: &[Node], random: Random) -> Self {
        let owners = options.slots();
        for node in nodes {
            node.process.join(node.address, options.needs_all);
            node.process.learn(&owners);
        }
        Self {
            options: options.clone(),
            owners,
            moves: Vec::new(),
            takeovers: Vec::new(),
            unserved: Vec::new(),
            news: Vec::new(),
            random,
            is_rough: false,
        }
    }

    /// The server that has a key, or where it would be written.
    pub(super) fn place(&self, key: &Key, nodes: &[Node], now: Duration) -> usize {
        let slot = RedisSlots::slot_of(&key.name);
        let is_it = |it: &&Move| it.slot == slot && !nodes[it.from].process.has(&key.name, now);
        if let Some(moved) = self.moves.iter().find(is_it) {
            return moved.to;
        }
        self.owner(slot, nodes)
    }

    fn owner(&self, slot: u16, nodes: &[Node]) -> usize {
        let owner = self.owners.owner(slot);
        let is_it = |node: &Node| Some(node.address) == owner;
        nodes.iter().position(is_it).unwrap_or_default()
    }

    /// Servers that have slots.
    pub(super) fn primaries(&self) -> usize {
        self.owners.primaries().len()
    }

    /// Begins or ends the faults; what has begun ends.
    pub(super) fn set_rough(&mut self, is_rough: bool, now: Duration) {
        self.is_rough = is_rough;
        if !is_rough {
            for it in &mut self.moves {
                it.at = it.at.map(|at| at.min(now));
            }
            let takeovers = self.takeovers.iter_mut().map(|it| &mut it.at);
            let times = self.news.iter_mut().chain(&mut self.unserved);
            for at in times.map(|(at, _)| at).chain(takeovers) {
                *at = (*at).min(now);
            }
        }
    }

    /// Returns true if this server may be written: its slots have a server.
    pub(super) fn is_served(&self, place: usize) -> bool {
        let is_it = |(_, it): &(Duration, usize)| *it == place || self.options.needs_all;
        !self.unserved.iter().any(is_it)
    }

    /// Returns true while a key may be had from nobody.
    pub(super) fn is_hindered(&self) -> bool {
        !self.unserved.is_empty() || !self.takeovers.is_empty()
    }

    /// Returns true of a server that runs, and has no part in a takeover.
    fn is_still(&self, place: usize, nodes: &[Node], now: Duration) -> bool {
        let mut takeovers = self.takeovers.iter().map(|it| [it.from, it.to]);
        nodes[place].is_running(now) && !takeovers.any(|two| two.contains(&place))
    }

    /// Returns true of a server whose slots are told to have none.
    fn is_unserved(&self, place: usize) -> bool {
        self.unserved.iter().any(|(_, it)| *it == place)
    }

    /// Returns true of a server to which nothing happens that takes its time.
    fn is_free(&self, place: usize, nodes: &[Node], now: Duration) -> bool {
        let mut moves = self.moves.iter().map(|it| [it.from, it.to]);
        self.is_still(place, nodes, now)
            && !self.is_unserved(place)
            && !moves.any(|two| two.contains(&place))
    }

    /// A server without slots, which may take over.
    fn replica(&self, nodes: &[Node], now: Duration) -> Option<usize> {
        let primaries = self.owners.primaries();
        let is_it = |it: &usize| !primaries.contains(&nodes[*it].address);
        let mut replicas = (0..nodes.len()).filter(is_it);
        replicas.find(|it| self.is_free(*it, nodes, now))
    }

    /// Does what befalls the slot of a key; returns the fault, if it strikes.
    pub(super) fn act(
        &mut self,
        act: ClusterAct,
        key: usize,
        keys: &mut [Key],
        nodes: &mut [Node],
        now: Duration,
    ) -> Option<ClusterFault> {
        let slot = RedisSlots::slot_of(&keys[key].name);
        let from = self.owner(slot, nodes);
        match act {
            ClusterAct::Move(_, to, _) | ClusterAct::Force(to) => {
                let moves = self.moves.iter().any(|it| it.slot == slot);
                // A server whose slots are told to be nobody's drops the keys of all of them if it
                // is told of another slot.
                let can_move =
                    |it: &usize| self.is_still(*it, nodes, now) && !self.is_unserved(*it);
                if from == to || moves || ![from, to].iter().all(can_move) {
                    return None;
                }
            }
            _ if !self.is_free(from, nodes, now) => return None,
            _ => {}
        }
        Some(match act {
            ClusterAct::Move(fault, to, [first, second]) => {
                (nodes[from].process).move_slot(slot, &nodes[to].process, true);
                self.moves.push(Move {
                    slot,
                    from,
                    to,
                    at: [now + first, now + first + second],
                    has_keys_moved: false,
                });
                fault
            }
            ClusterAct::Force(to) => {
                self.give(slot, [from, to], nodes, now);
                let lost = keys.iter_mut();
                for key in lost.filter(|it| RedisSlots::slot_of(&it.name) == slot) {
                    key.becomes(None, now);
                }
                ClusterFault::Force
            }
            ClusterAct::Failover(lost, [first, second]) => {
                let to = self.replica(nodes, now)?;
                let node = &mut nodes[from];
                node.go_down();
                node.back_at = now + first + second;
                self.takeovers.push(Takeover {
                    from,
                    to,
                    at: now + first,
                    lost,
                    is_whole: false,
                });
                ClusterFault::Failover
            }
            ClusterAct::Takeover(lost, is_whole) => {
                let to = self.replica(nodes, now)?;
                self.takeovers.push(Takeover {
                    from,
                    to,
                    at: now,
                    lost,
                    is_whole,
                });
                ClusterFault::Takeover
            }
            ClusterAct::Unserved(time) => {
                self.unserved.push((now + time, from));
                self.tell(&[from], nodes, now);
                ClusterFault::Unserved
            }
        })
    }

    /// Gives a slot to a server.
    fn give(&mut self, slot: u16, [from, to]: [usize; 2], nodes: &[Node], now: Duration) {
        self.owners.give(slot..=slot, Some(nodes[to].address));
        self.tell(&[from, to], nodes, now);
        // Its keys have moved, or are lost.
        (nodes[from].process).drop_foreign(self.options.tells_of_lost);
    }

    /// Returns true if a server may get another address.
    pub(super) fn may_move(&self, place: usize, nodes: &[Node], now: Duration) -> bool {
        self.is_free(place, nodes, now)
    }

    /// A server has another address than before; the others hear of that some time later.
    pub(super) fn has_moved(
        &mut self,
        place: usize,
        before: SocketAddr,
        nodes: &[Node],
        now: Duration,
    ) {
        (self.owners).give_all(before, Some(nodes[place].address));
        self.tell(&[place], nodes, now);
    }

    /// Tells servers which one has which slot: these at once, the others some time later.
    fn tell(&mut self, at_once: &[usize], nodes: &[Node], now: Duration) {
        let known = self.known(nodes);
        for (place, node) in nodes.iter().enumerate() {
            if at_once.contains(&place) || !self.is_rough {
                node.process.learn(&known);
            } else {
                self.news.push((now + self.random.spread(HEARD), place));
            }
        }
    }

    /// The slots as they are, as far as one server has each.
    fn known(&self, nodes: &[Node]) -> RedisSlots {
        let mut known = self.owners.clone();
        for (_, place) in &self.unserved {
            known.give_all(nodes[*place].address, None);
        }
        known
    }

    /// Has a replica take over, with what it has of the last writes.
    fn take_over(&mut self, it: &Takeover, keys: &mut [Key], nodes: &[Node], now: Duration) {
        let own = (0..keys.len()).filter(|key| self.place(&keys[*key], nodes, now) == it.from);
        let own: Vec<_> = own.collect();
        let [from, to] = [it.from, it.to].map(|place| &nodes[place]);
        to.process.copy(&from.process);
        for key in own {
            let key = &mut keys[key];
            if it.lost == Lost::Some && key.has_value() && self.random.below(2) == 0 {
                if self.random.below(2) == 0 {
                    let value = key.next_value(20);
                    to.process.set(&key.name, &value, None);
                    key.becomes(Some(value), now);
                } else {
                    to.process.delete(&key.name);
                    key.becomes(None, now);
                }
            }
        }
        self.owners.give_all(from.address, Some(to.address));
        self.tell(&[it.from, it.to], nodes, now);
        if it.is_whole {
            from.process.flush_all();
        } else {
            from.process.swap(Vec::new());
        }
    }

    /// The moments at which something goes on.
    pub(super) fn moments(&self) -> impl Iterator<Item = Duration> {
        let moves = self.moves.iter().flat_map(|it| it.at);
        let takeovers = self.takeovers.iter().map(|it| it.at);
        let times = self.news.iter().chain(&self.unserved).map(|(at, _)| *at);
        moves.chain(takeovers).chain(times)
    }

    /// Has servers hear what is due, and goes on with slots that move or have no server.
    pub(super) fn follow(&mut self, keys: &mut [Key], nodes: &[Node], now: Duration) {
        let known = self.known(nodes);
        self.news.retain(|(at, node)| {
            if *at <= now {
                nodes[*node].process.learn(&known);
            }
            *at > now
        });
        let before = self.unserved.len();
        self.unserved.retain(|(until, _)| *until > now);
        if self.unserved.len() < before {
            // A change is one more for those who compare.
            let owner = self.owners.owner(0);
            self.owners.give(0..=0, owner);
            self.tell(&[], nodes, now);
        }
        let is_due = |it: &mut Takeover| it.at <= now && nodes[it.to].is_running(now);
        for takeover in self.takeovers.extract_if(.., is_due).collect::<Vec<_>>() {
            self.take_over(&takeover, keys, nodes, now);
        }
        let mut ended = Vec::new();
        self.moves.retain_mut(|it| {
            let are_there = [it.from, it.to].iter().all(|it| nodes[*it].is_running(now));
            if are_there {
                it.go_on(keys, nodes, now);
            }
            let is_ended = are_there && now >= it.at[1];
            if is_ended {
                ended.push((it.slot, [it.from, it.to]));
            }
            !is_ended
        });
        for (slot, ends) in ended {
            let [from, to] = ends.map(|it| &nodes[it].process);
            from.move_slot(slot, to, false);
            self.give(slot, ends, nodes, now);
        }
    }
}

impl Move {
    /// Moves its keys, when their time has come.
    fn go_on(&mut self, keys: &[Key], nodes: &[Node], now: Duration) {
        if self.has_keys_moved || now < self.at[0] {
            return;
        }
        self.has_keys_moved = true;
        let [from, to] = [self.from, self.to].map(|it| &nodes[it].process);
        let of_slot = |key: &&Key| RedisSlots::slot_of(&key.name) == self.slot;
        for key in keys.iter().filter(of_slot) {
            from.migrate(&key.name, to, now);
        }
    }
}
