//! The process, its clients and writers, and the time that passes for all of them.

mod serving;

use crate::app::Record;
use crate::around::{Around, Ending};
use crate::bounding::Bounding;
use crate::chance::random;
use crate::client::Client;
use crate::failure::{Failure, Oracle};
use crate::h2::{BrowserAct, PUBLISHERS};
use crate::hindrances::Hindrances;
use crate::intrusions::Intrusions;
use crate::keys::{Broken, Key};
use crate::memcached::RECOVERY;
use crate::options::{Fault, Options};
use crate::outward::{Behind, seal};
use crate::patience::PROMPT;
use crate::publisher::Publisher;
use crate::reload::{self, Reload};
use crate::report::Counts;
use crate::servers::ValueServers;
use crate::socket::{Act, Socket};
use crate::step::{Order, Step};
use crate::streamer::Streamer;
use crate::tls::Intruder;
use crate::transports::Transports;
use crate::writer::Writer;
use dwell_edge::process::Simulated;
use dwell_evloop::Random;
use dwell_evloop::sim::{Link, SimNet, SimServer, SimStream};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Everything of a run.
pub(crate) struct World {
    pub(crate) edge: Simulated,
    pub(crate) clients: Vec<Client>,
    pub(crate) followers: Followers,
    pub(crate) writers: Vec<Writer>,
    pub(crate) keys: Vec<Key>,
    pub(crate) counts: Counts,
    pub(crate) options: Options,
    /// Turns of all loops so far.
    pub(crate) turns: u64,
    /// The process has been told to end.
    pub(crate) ends: bool,
    random: Random,
    at: [SocketAddr; 2],
    hindrances: Hindrances,
    app: Option<[SimServer; 2]>,
    /// The servers that have the values, where the process has no store.
    servers: ValueServers,
    pub(crate) app_record: Rc<RefCell<Record>>,
    /// Nothing goes wrong any more, and what has is over.
    pub(crate) is_calm: bool,
    bounding: Bounding,
    /// Behind what uses it, so that it ends last.
    network: SimNet,
    /// A `flush_all` waits until no command is in progress.
    is_flush_wanted: bool,
    pub(crate) transports: Transports,
    pub(crate) intrusions: Intrusions,
}

/// Clients that are told of changes unasked.
pub(crate) struct Followers {
    pub(crate) streams: Vec<Streamer>,
    pub(crate) sockets: Vec<Socket>,
    pub(crate) publishers: Vec<Publisher>,
}

impl Followers {
    fn new(options: &Options) -> Self {
        let streams = options.streams.iter().enumerate();
        let streams = streams.map(|(number, count)| Streamer::new(number, *count, options.keys));
        let sockets =
            (0..options.sockets.openings.len()).map(|number| Socket::new(number, options));
        Self {
            streams: streams.collect(),
            sockets: sockets.collect(),
            publishers: (0..PUBLISHERS)
                .map(|number| Publisher::new(number, options))
                .collect(),
        }
    }
}

impl Followers {
    fn attend(&mut self, around: &mut Around<'_>, is_paused: bool) -> Result<(), Broken> {
        for streamer in &mut self.streams {
            streamer.attend(around)?;
        }
        for socket in &mut self.sockets {
            socket.attend(around, is_paused)?;
        }
        for publisher in &mut self.publishers {
            publisher.attend(around, is_paused)?;
        }
        Ok(())
    }
}

/// The outcome of an attempt to turn a loop.
enum Turned {
    /// One has turned.
    One,
    /// None had anything to do; the first of them has something at this time.
    None(Option<Duration>),
}

/// Turns of a run that does not come to an end.
const TURNS_MAX: u64 = 400_000;

impl World {
    pub(crate) fn new(options: &Options, is_recorded: bool) -> Self {
        let network = SimNet::new(options.seed);
        if is_recorded {
            network.begin_record();
        }
        seal(&network, options, reload::APPS.map(SocketAddr::from));
        let at = [8080, 11211].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let hindrances = Hindrances::new(options);
        let servers = ValueServers::new(options, hindrances.outward.of(Behind::Memcached));
        servers.begin_names(&network);
        let edge = start(options, at);
        let clients = (0..options.clients).map(|number| Client::new(number, options.keys));
        // What is in servers is changed there.
        let writers = options.writers.iter().filter(|_| !servers.are_there());
        let writers = writers.copied();
        Self {
            edge,
            clients: clients.collect(),
            followers: Followers::new(options),
            writers: writers.map(Writer::new).collect(),
            keys: (0..options.keys).map(Key::new).collect(),
            counts: Counts::default(),
            options: options.clone(),
            turns: 0,
            ends: false,
            random: random(options.seed, 3),
            at,
            hindrances,
            app: None,
            servers,
            app_record: Record::new(options),
            is_calm: false,
            bounding: Bounding::new(options.bounds),
            network,
            is_flush_wanted: false,
            transports: Transports::new(options),
            intrusions: Intrusions::default(),
        }
    }

    pub(crate) fn network(&self) -> &SimNet {
        &self.network
    }

    pub(crate) fn now(&self) -> Duration {
        self.network.elapsed()
    }

    /// Begins or ends the faults of the whole run.
    pub(crate) fn set_rough(&mut self, is_rough: bool) {
        if is_rough {
            self.hindrances.begin();
        } else {
            self.hindrances.end(self.now());
            self.lift_bounds();
        }
        self.app_record.borrow_mut().is_calm = !is_rough;
        let now = self.now();
        self.servers.set_rough(is_rough, now);
        self.follow_app();
        self.follow_link();
    }

    /// Ends the bounds, which clients may hear of for a while.
    fn lift_bounds(&mut self) {
        if self.bounding.lift(self.now() + PROMPT) {
            // Nothing in it can be missing.
            self.reload(Reload::default());
        }
    }

    /// Sets the link by what is the case.
    fn follow_link(&self) {
        let mut link = Link::default();
        link.latency = Duration::ZERO..=Duration::from_micros(200);
        link.is_shuffled = true;
        if self.hindrances.is_rough() {
            let has = |fault| self.options.has(fault);
            if has(Fault::Split) {
                link.segment_bytes_max = 40;
            }
            if has(Fault::Refuse) {
                link.refuses_one_in = 3;
                link.window_bytes = 8 * 1024;
            }
            if has(Fault::Delay) {
                link.latency = Duration::ZERO..=Duration::from_millis(200);
            }
            link.has_no_descriptors = self.hindrances.is_short(self.now());
        }
        self.network.set_link(link);
    }

    /// Does one step of the plan.
    pub(crate) fn step(&mut self, step: Step) {
        self.network.remark(|| format!("step {step:?}"));
        let now = self.now();
        let name = match step {
            Step::Ask(client, ask) => return self.clients[client].ask(ask),
            Step::Write(key, order) => return self.write(key, order),
            Step::Socket(socket, act) => {
                self.followers.sockets[socket].act(act, &mut self.keys, now)
            }
            Step::Intrude(fault, intrusion, count) => {
                self.intrusions.add(fault, intrusion, count, now);
                return self.counts.strike(fault.name());
            }
            Step::Browser(place, act) => return self.browse(place, act),
            Step::Flush => return self.drop_all(),
            Step::Memcached(server, act) => return self.befall(server, act),
            Step::Redis(server, act) => return self.befall_redis(server, act),
            Step::Slot(key, act) => return self.befall_slot(key, act),
            Step::Reset(client) => self.leave(client, SimStream::reset).then_some(Fault::Reset),
            Step::Leave(client) => self.leave(client, SimStream::close).then_some(Fault::Leave),
            Step::Silence(client) => {
                let leaves = self.leave(client, SimStream::silence);
                leaves.then_some(Fault::Silence)
            }
            Step::HalfClose(client) => self.clients[client]
                .half_close()
                .then_some(Fault::HalfClose),
            Step::SlowRead(client, time) => {
                let is_slow = match client.checked_sub(self.clients.len()) {
                    Some(streamer) => self.followers.streams[streamer].slow_read(now + time),
                    None => self.clients[client].slow_read(now + time),
                };
                is_slow.then_some(Fault::SlowRead)
            }
            Step::SlowWrite(client, time) => {
                self.clients[client].slow_write(now + time);
                Some(Fault::SlowWrite)
            }
            Step::NoDescriptors(time) => {
                self.hindrances.run_short(now + time);
                self.follow_link();
                Some(Fault::NoDescriptors)
            }
            Step::Stall(index, time) => {
                self.hindrances.stall(index, now + time);
                Some(Fault::Stall)
            }
            Step::Wall(seconds) => {
                self.network.set_wall(seconds);
                Some(Fault::Wall)
            }
            Step::WriterReset(writer) => {
                let writer = self.writers.get_mut(writer);
                writer.map(|writer| {
                    writer.reset(&mut self.keys, now);
                    Fault::WriterReset
                })
            }
            Step::Reload(changes) => self.reload(changes).then_some(Fault::Reload),
            Step::Upgrade(upgrade) => return self.begin_upgrade(upgrade),
            Step::Certificate(wrong) => return self.show_wrong(wrong),
            Step::AppDown(time) => {
                self.app = None;
                self.hindrances.lose_app(now + time);
                Some(Fault::AppDown)
            }
        };
        if let Some(fault) = name {
            self.counts.strike(fault.name());
        }
    }

    /// Has something befall a connection of HTTP/2.
    fn browse(&mut self, place: usize, act: BrowserAct) {
        let befalls = (self.transports).browse((place, act), &self.network, self.at[0]);
        if befalls {
            self.counts.strike(act.name());
        }
    }

    /// Has the configuration read again, which does not change until a successor serves.
    fn reload(&mut self, changes: Reload) -> bool {
        let bounds = self.bounding.bounds();
        let config = reload::config(&self.options, self.at, changes, bounds);
        let is_taken = !self.edge.is_upgrading() && self.edge.reload(config).is_ok();
        if is_taken {
            self.hindrances.changes = changes;
            self.servers.has_looked_up(self.now());
        }
        is_taken
    }

    /// Returns true if servers have the values.
    pub(crate) fn has_servers(&self) -> bool {
        self.servers.are_there()
    }

    /// The servers of a cluster that have keys, or the one Redis, if there is one.
    pub(crate) fn primaries(&self) -> usize {
        self.servers.primaries()
    }

    /// Reads of each key in Redis so far.
    pub(crate) fn reads(&self) -> Vec<u64> {
        self.servers.reads(&self.keys)
    }

    /// Has all items dropped, at once or when no command is in progress.
    fn drop_all(&mut self) {
        let now = self.now();
        let is_done = self.servers.flush_all(&mut self.keys, now);
        self.is_flush_wanted |= !is_done;
    }

    /// Has the one writer of a key write it: a client of the store, or a WebSocket.
    pub(crate) fn write(&mut self, key: usize, order: Order) {
        let now = self.now();
        let publisher = self.options.sockets.publishers[key];
        match (publisher, order) {
            (Some(socket), Order::Set { length, .. }) => {
                let act = Act::Publish { key, length };
                self.followers.sockets[socket].act(act, &mut self.keys, now);
            }
            // It stores values, and nothing else.
            (Some(_), _) => {}
            (None, order) => {
                if let Some(publisher) = self.options.publisher(key) {
                    return self.followers.publishers[publisher].order(key, order);
                }
                if self.servers.write(key, order, &mut self.keys, now) {
                    return;
                }
                let writer = key % self.writers.len();
                self.writers[writer].order(key, order);
            }
        }
    }

    /// Has a client leave, or one that follows a stream.
    fn leave(&mut self, client: usize, leave: impl FnOnce(&SimStream)) -> bool {
        let now = self.now();
        match client.checked_sub(self.clients.len()) {
            Some(streamer) => self.followers.streams[streamer].leave(leave, now),
            None => self.clients[client].leave(leave),
        }
    }

    /// Lets so much time pass with all that happens in it.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let until = self.now() + time;
        loop {
            self.hindrances.outward.follow(self.now());
            self.follow_app();
            self.look_up(Some(self.now()));
            self.follow_upgrade()?;
            self.attend().map_err(|broken| self.failure(broken))?;
            let next = match self.turn_one()? {
                Turned::One => continue,
                Turned::None(next) => next,
            };
            self.check_bounds().map_err(|broken| self.failure(broken))?;
            let now = self.now();
            if now >= until {
                return Ok(());
            }
            let next = self
                .next_at(now, next)
                .map_or(until, |next| next.min(until));
            // What is due now comes before time passes.
            self.network.pass(next.saturating_sub(now));
            if self.hindrances.end_shortage(next) {
                self.follow_link();
            }
        }
    }

    pub(crate) fn failure(&self, (oracle, reason): Broken) -> Failure {
        let at = self.now();
        self.network
            .remark(|| format!("FAILURE {oracle:?}: {reason}"));
        Failure { oracle, at, reason }
    }

    /// Turns one of the loops that have something to do, if there is one.
    fn turn_one(&mut self) -> Result<Turned, Failure> {
        let now = self.now();
        let (mut due, mut next) = (Vec::new(), None::<Duration>);
        for index in 0..self.edge.loops() {
            let stalled_until = self.hindrances.stalled_until(index);
            let Some(wait) = self.edge.due_in(index) else {
                continue;
            };
            let at = (now + wait).max(stalled_until);
            if at <= now {
                due.push(index);
            }
            next = Some(next.map_or(at, |next| next.min(at)));
        }
        if due.is_empty() {
            return Ok(Turned::None(next));
        }
        let chosen = due[self.random.below(due.len() as u64) as usize];
        self.turns += 1;
        if self.turns > TURNS_MAX {
            let reason = format!("{TURNS_MAX} turns and no end");
            return Err(self.failure((Oracle::Silence, reason)));
        }
        self.network.remark(|| format!("turn of loop {chosen}"));
        let turned = self.edge.turn(chosen);
        turned.map_err(|error| self.failure((Oracle::Panic, error.to_string())))?;
        let load = self.edge.load(chosen);
        let checked = self.bounding.check_load(load, &self.options);
        checked.map_err(|broken| self.failure(broken))?;
        Ok(Turned::One)
    }

    /// Checks what is bounded for all loops together, and that refusals are counted.
    fn check_bounds(&mut self) -> Result<(), Broken> {
        let clear = (self.now(), self.hindrances.until());
        let queued_bytes = self.edge.queued_bytes();
        self.bounding.check_queued(queued_bytes, clear)?;
        if self.options.bounds.is_some() && !self.ends {
            self.bounding.check_refusals(self.edge.refusals())?;
        }
        Ok(())
    }

    /// The time of the next thing that happens, where the loops have something to do at
    /// `of_loops`.
    fn next_at(&self, now: Duration, of_loops: Option<Duration>) -> Option<Duration> {
        let mut next = self.network.next_event();
        let mut earlier = |at: Duration| next = Some(next.map_or(at, |next| next.min(at)));
        of_loops.into_iter().for_each(&mut earlier);
        // One step of an upgrade may come at the time of the one before.
        let upgrade = self.hindrances.upgrades.due_at();
        upgrade.into_iter().for_each(&mut earlier);
        let clients = self.clients.iter().filter_map(|client| client.next_at(now));
        let writers = self.writers.iter().filter_map(Writer::next_at);
        let streamers = self.followers.streams.iter().map(Streamer::next_at);
        let sockets = self.followers.sockets.iter().map(Socket::next_at);
        let publishers = self.followers.publishers.iter().map(Publisher::next_at);
        let keys = self.keys.iter().filter(|key| key.is_unsure);
        let keys = keys.map(|key| key.sure_at);
        let browsers = self
            .transports
            .browsers
            .iter()
            .filter_map(|it| it.next_at(now));
        let later = clients
            .chain(browsers)
            .chain(streamers)
            .chain(sockets)
            .chain(publishers)
            .chain(writers)
            .chain(keys)
            .chain(self.servers.next_at(now))
            .chain(self.hindrances.ends());
        later.filter(|at| *at > now).for_each(earlier);
        next.map(|next| next.max(now))
    }

    /// Has clients and writers do what they can.
    fn attend(&mut self) -> Result<(), Broken> {
        (self.servers).attend(&self.network, &mut self.keys, &mut self.counts)?;
        if self.edge.is_paused() {
            self.hindrances.stand_still(self.now());
        }
        let (hindered_until, fails_until) = self.hindrances();
        let pipeline = if self.hindrances.is_rough() && self.options.has(Fault::Pipeline) {
            4
        } else {
            1
        };
        let now = self.now();
        let may_refuse = self.bounding.may_refuse(now);
        let mut around = Around {
            network: &self.network,
            edge: self.at[0],
            keys: &mut self.keys,
            counts: &mut self.counts,
            keeps_waiting: self.options.keeps_waiting,
            pipeline,
            hindered_until,
            fails_until,
            ending: Ending {
                ends: self.ends,
                hands_over: self.hindrances.upgrades.hands_over(now),
            },
            app: self.options.has_app.then_some(&*self.app_record),
            is_calm: self.is_calm,
            refused: self.bounding.refused(now),
            transports: &self.transports,
            refuses_writes: self.options.has(Fault::Refuse),
            flooded_until: self.intrusions.flooded_until(),
        };
        self.transports.attend(hindered_until, around.counts)?;
        for client in &mut self.clients {
            client.attend(&mut around)?;
        }
        let is_paused = self.is_flush_wanted || self.writers.iter().any(Writer::is_flushing);
        self.followers.attend(&mut around, is_paused)?;
        self.transports.flush();
        if let Some(side) = &self.transports.side {
            let begin = |intrusion| Intruder::new(intrusion, side, &around);
            let attend = |intruder: &mut Intruder| intruder.attend(&around);
            self.intrusions.attend(begin, attend)?;
            for name in side.reached.take() {
                around.counts.reach(name);
            }
        }
        self.check_servers()?;
        if self.ends {
            return Ok(());
        }
        self.look();
        for writer in &mut self.writers {
            let at = (&self.network, self.at[1]);
            writer.attend(
                at,
                &mut self.keys,
                [is_paused, may_refuse],
                &mut self.counts,
            )?;
        }
        self.flush();
        Ok(())
    }

    /// Until when something hinders clients, and lookups in servers may fail.
    fn hindrances(&self) -> (Duration, Option<Duration>) {
        let Some((late_until, fails_until)) = self.servers.hindered_until() else {
            return (self.hindrances.until(), None);
        };
        // A lookup has half a second, and what a loop needs for it may take longer.
        let is_slow = self.hindrances.is_rough() && self.options.has(Fault::Delay);
        let own = if is_slow {
            self.now()
        } else {
            self.hindrances.until()
        };
        let own = if own.is_zero() { own } else { own + RECOVERY };
        (own.max(late_until), Some(own.max(fails_until)))
    }

    /// Has a client of the store read what has become of values of WebSockets that were lost.
    fn look(&mut self) {
        let now = self.now();
        for (number, key) in self.keys.iter().enumerate() {
            let is_of_socket = self.options.sockets.publishers[number].is_some();
            let is_published = is_of_socket || self.options.publisher(number).is_some();
            if is_published && key.is_unsure && now >= key.sure_at {
                self.writers[0].look(number);
            }
        }
    }

    /// Sends `flush_all` where that is wanted, when nothing is in progress.
    fn flush(&mut self) {
        let is_clear = self.writers.iter().all(Writer::is_clear)
            && self.followers.sockets.iter().all(Socket::is_clear)
            && self.followers.publishers.iter().all(Publisher::is_clear);
        if !self.is_flush_wanted || !is_clear {
            return;
        }
        self.is_flush_wanted = false;
        let now = self.now();
        // With a command that was lost, what comes after what could not be told.
        if self.keys.iter().all(|key| !key.is_unsure) {
            self.writers[0].flush_all(&mut self.keys, now);
        }
    }
}

fn start(options: &Options, at: [SocketAddr; 2]) -> Simulated {
    let config = reload::config(options, at, Reload::default(), options.bounds);
    Simulated::start(config).unwrap_or_else(|error| panic!("the edge does not start: {error}"))
}
