//! The phases of a run: with faults, without, and after all have left.

use crate::client::Client;
use crate::failure::{Failure, Oracle};
use crate::h2::Browsers;
use crate::options::Options;
use crate::plan::Plan;
use crate::publisher::Publisher;
use crate::redis::{RedisOptions, SWEPT};
use crate::reload::DRAIN;
use crate::report::Counts;
use crate::socket::Socket;
use crate::step::{Ask, Has, Method, Order};
use crate::streamer::READ;
use crate::world::World;
use crate::writer::Writer;
use dwell_evloop::sim::{SimStream, Trace};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first promise that was not kept.
    pub failure: Option<Failure>,
    /// The events, as numbers.
    pub trace: Trace,
    /// The faults that have struck and the states that were reached.
    pub counts: Counts,
    /// The events as lines, where they were wanted.
    pub lines: Vec<String>,
}

const SECOND: Duration = Duration::from_secs(1);
/// The time in which all is answered once nothing goes wrong any more: the longest wait, the time
/// after which a lost command of a writer is settled, and what a change may take.
const SETTLED: Duration = Duration::from_secs(20);
/// The time after which no value is left that expires.
const EXPIRED: Duration = Duration::from_secs(8);
/// The time that the calm network takes to bring a change to all that wait for it.
const TOLD: Duration = Duration::from_millis(300);
/// The time after which a connection is closed whose client is gone without a word, or has left
/// while it was sent something.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// The time within which a change comes to all that wait for it on a calm network.
fn told(options: &Options) -> Duration {
    let swept = |it: &RedisOptions| {
        if it.may_sweep() {
            SWEPT
        } else {
            Duration::ZERO
        }
    };
    let memcached = options.memcached.as_ref().map(|it| it.sweep_interval);
    let interval = memcached.or(options.redis.as_ref().map(swept));
    TOLD + interval.unwrap_or_default()
}

/// Reads of a loop that may be in progress in a simulation (`lookups/reads.rs` of the edge).
const READS_AT_ONCE: usize = 3;

/// Turns that loops need to look at keys in memcached for so long: one to ask, two for what each
/// server has to say, and as many for the statistics of those that are watched. Without cas uniques
/// every look reads all values, and those beyond the room for reads take as many more.
fn looks(world: &World, time: Duration) -> u64 {
    let options = &world.options;
    if let Some(redis) = &options.redis {
        return looks_in_redis(redis, *asked(world).end(), time) * options.loops as u64;
    }
    let Some(memcached) = &options.memcached else {
        return 0;
    };
    let sweeps = time.as_millis() / memcached.sweep_interval.as_millis() + 1;
    let statistics = u128::from(memcached.watches) * u128::from(time.as_secs());
    let loops = options.loops as u128;
    let rounds = if memcached.has_cas {
        1
    } else {
        options.keys.div_ceil(READS_AT_ONCE) as u128
    };
    ((sweeps * loops * rounds + statistics) * (2 + 2 * memcached.servers as u128)) as u64
}

/// Turns of a loop for one connection to a Redis that has nothing else to do: for each second of
/// silence one to ask for a sign of life, one that hears it, and two for deadlines that it moves.
fn probes(time: Duration) -> u64 {
    4 * (time.as_secs() + 1)
}

/// A loop asks these now and then: the servers that have keys in Redis, and a cluster for its
/// topology. A server of a cluster without keys may be asked, too.
fn asked(world: &World) -> RangeInclusive<usize> {
    let redis = world.options.redis.as_ref();
    match redis.map(|redis| &redis.cluster) {
        None => 0..=0,
        Some(None) => 1..=1,
        Some(Some(cluster)) => world.primaries() + 1..=cluster.servers + 1,
    }
}

/// Turns of a loop for what it asks of Redis in so long: for the silence of both connections of
/// each, and for each sweep.
fn looks_in_redis(redis: &RedisOptions, asked: usize, time: Duration) -> u64 {
    let interval = if redis.may_sweep() {
        SWEPT
    } else {
        redis.sweep_interval
    };
    let sweeps = time.as_millis() / interval.as_millis() + 1;
    asked as u64 * (2 * probes(time) + 3 * sweeps as u64)
}

/// Plays the plan of a seed.
pub fn play_seed(seed: u64) -> Outcome {
    play(&Plan::of(seed))
}

/// Plays a plan.
pub fn play(plan: &Plan) -> Outcome {
    play_with(plan, false)
}

/// Plays a plan, and keeps a line for each event.
pub fn record(plan: &Plan) -> Outcome {
    play_with(plan, true)
}

fn play_with(plan: &Plan, is_recorded: bool) -> Outcome {
    let mut world = World::new(&plan.options, is_recorded);
    let played = catch_unwind(AssertUnwindSafe(|| phases(&mut world, plan)));
    let result = played.unwrap_or_else(|panic| {
        let text = panic.downcast::<String>().map(|text| *text);
        let text = text.unwrap_or_else(|_| "a panic without a text".to_owned());
        Err(world.failure((Oracle::Panic, text)))
    });
    Outcome {
        failure: result.err(),
        trace: world.network().trace(),
        counts: std::mem::take(&mut world.counts),
        lines: world.network().take_record(),
    }
}

fn phases(world: &mut World, plan: &Plan) -> Result<(), Failure> {
    let at_start = world.edge.figures();
    world.set_rough(true);
    for (pause, step) in &plan.steps {
        world.pass(*pause)?;
        world.step(*step);
    }
    world.pass(SECOND)?;
    world.set_rough(false);
    settle(world)?;
    world.is_calm = true;
    compare(world)?;
    if plan.options.has_app {
        world.restart_app();
        world.pass(SECOND)?;
        compare(world)?;
    }
    tell_all(world)?;
    be_quiet(world)?;
    if plan.options.drains {
        drain(world)
    } else {
        leave(world, at_start)
    }
}

/// Without faults, everything is answered.
fn settle(world: &mut World) -> Result<(), Failure> {
    // One request at a time is sent from now on.
    let waits = world.clients.iter().map(Client::waits).max();
    let patience = SETTLED * 3 + waits.unwrap_or_default();
    let end = world.now() + patience;
    let is_idle = |world: &World| {
        let clients = world.clients.iter().all(Client::is_idle);
        let sockets = world.followers.sockets.iter().all(Socket::is_idle);
        let publishers = world.followers.publishers.iter().all(Publisher::is_idle);
        let is_quiet = world
            .transports
            .browsers
            .as_ref()
            .is_none_or(Browsers::is_quiet);
        is_quiet
            && world.intrusions.is_empty()
            && clients
            && sockets
            && publishers
            && world.writers.iter().all(Writer::is_idle)
    };
    while !is_idle(world) {
        world.pass(SECOND)?;
        if world.now() > end {
            let reason = format!("not all is answered {patience:?} after the last fault");
            return Err(world.failure((Oracle::Deadline, reason)));
        }
    }
    world.pass(EXPIRED)
}

/// The store has what the model has, as each writer sees it and as a poll does; and the application
/// answers.
fn compare(world: &mut World) -> Result<(), Failure> {
    for key in 0..world.keys.len() {
        for writer in &mut world.writers {
            writer.order(key, Order::Get);
        }
        for client in &mut world.clients {
            client.ask(get(key, Has::Nothing, Duration::ZERO));
        }
    }
    for client in &mut world.clients {
        client.ask(Ask::Elsewhere { is_post: true });
    }
    settle(world)
}

/// Each client waits, each key changes, and each client is told at once.
fn tell_all(world: &mut World) -> Result<(), Failure> {
    let keys = world.keys.len();
    // Those who follow streams are all there.
    world.pass(SECOND * 2)?;
    if world.options.has_app {
        // A key without a value is asked for elsewhere; nothing waits for it.
        change_all(world);
        world.pass(SECOND * 2)?;
    }
    for (number, client) in world.clients.iter_mut().enumerate() {
        let key = number % keys;
        if world.options.has_app {
            client.ask(get(key, Has::Nothing, Duration::ZERO));
        }
        client.ask(get(key, Has::Since, SECOND * 30));
    }
    world.pass(told(&world.options))?;
    if let Some(number) = world.clients.iter().position(|client| !client.is_waiting()) {
        let reason = format!("client {number} does not wait for the last change");
        return Err(world.failure((Oracle::Newest, reason)));
    }
    let reads = (world.now(), world.reads());
    change_all(world);
    world.pass(told(&world.options))?;
    check_reads(world, &reads)?;
    for (number, client) in world.clients.iter().enumerate() {
        let key = number % keys;
        let (has, newest) = (client.read_last(key), world.keys[key].newest());
        if client.is_waiting() || has != Some(newest) {
            let reason = format!("client {number} has {has:?} of key {key}, not {newest}");
            return Err(world.failure((Oracle::Newest, reason)));
        }
    }
    for (number, streamer) in world.followers.streams.iter().enumerate() {
        for (key, has) in streamer.told() {
            let newest = world.keys[key].newest();
            if has != Some(newest) {
                let reason = format!("stream {number} has {has:?} of key {key}, not {newest}");
                return Err(world.failure((Oracle::Newest, reason)));
            }
        }
    }
    for (number, socket) in world.followers.sockets.iter().enumerate() {
        for (key, has) in socket.told() {
            let newest = world.keys[key].newest();
            if has != Some(newest) {
                let reason = format!("socket {number} has {has:?} of key {key}, not {newest}");
                return Err(world.failure((Oracle::Newest, reason)));
            }
        }
    }
    Ok(())
}

/// A change is read once by each loop in which somebody waits for it, by a sweep, with each sign of
/// life of a stream that names several keys, and where a WebSocket has room again.
fn check_reads(world: &mut World, (since, before): &(Duration, Vec<u64>)) -> Result<(), Failure> {
    let Some(redis) = &world.options.redis else {
        return Ok(());
    };
    let sweeps = if redis.may_sweep() { 4 } else { 1 };
    let most = (1 + sweeps) * world.options.loops as u64;
    let counts = world.reads().into_iter().zip(before);
    let counts: Vec<_> = counts.map(|(now, before)| now - before).collect();
    if counts.iter().any(|count| *count > most) {
        // A sign of life may be on its way whose reads have come.
        world.pass(READ)?;
    }
    for (key, count) in counts.into_iter().enumerate() {
        let streams = world.followers.streams.iter();
        let beats: Result<usize, _> = streams.map(|it| it.reads_since(key, *since)).sum();
        let beats = beats.map_err(|broken| world.failure(broken))?;
        let sockets = world.followers.sockets.iter();
        let again: usize = sockets.map(|it| it.reads_again(key)).sum();
        if count > most + (beats + again) as u64 {
            let reason = format!(
                "key {key} is read {count} times for one change, {beats} times for streams, and \
                 at most {again} times for sockets"
            );
            return Err(world.failure((Oracle::Bounds, reason)));
        }
    }
    Ok(())
}

/// Each key gets a new value.
fn change_all(world: &mut World) {
    for key in 0..world.keys.len() {
        let order = Order::Set {
            length: 10,
            seconds: 0,
        };
        world.write(key, order);
    }
}

/// A loop to which nothing happens turns a few times a second at most: deadlines, and what expires.
fn be_quiet(world: &mut World) -> Result<(), Failure> {
    world.pass(SECOND * 2)?;
    let before = world.turns;
    world.pass(SECOND * 10)?;
    let (turns, loops) = (world.turns - before, world.options.loops as u64);
    if turns > loops * 40 + looks(world, SECOND * 10) {
        let reason = format!("{turns} turns of {loops} loops in 10 quiet seconds");
        return Err(world.failure((Oracle::Silence, reason)));
    }
    Ok(())
}

/// The number of deadlines among the figures of a process.
fn deadlines<'f>(figures: &'f mut [(&'static str, usize)]) -> Option<&'f mut usize> {
    let mut all = figures.iter_mut();
    let found = all.find(|(name, _)| *name == "deadlines");
    found.map(|(_, number)| number)
}

/// All leave; nothing is left of them, and the loops do nothing but to probe a Redis.
fn leave(world: &mut World, mut at_start: Vec<(&'static str, usize)>) -> Result<(), Failure> {
    for key in 0..world.keys.len() {
        if let Some(writer) = key.checked_rem(world.writers.len()) {
            world.writers[writer].order(key, Order::Delete);
        }
    }
    world.pass(SECOND)?;
    for (number, client) in world.clients.iter_mut().enumerate() {
        client.leave([SimStream::close, SimStream::reset][number % 2]);
    }
    if let Some(browsers) = &world.transports.browsers {
        browsers.leave();
    }
    world.followers.streams.clear();
    world.followers.sockets.clear();
    world.followers.publishers.clear();
    for writer in &mut world.writers {
        writer.leave();
    }
    world.pass(FORGOTTEN)?;
    let mut figures = world.edge.figures();
    if world.has_servers() {
        // The loops connect to servers, and all are connected in the end. A connection to Redis has
        // the deadline at which its server is asked for a sign of life, and a cluster has another
        // one for its topology.
        let (asked, loops) = (asked(world), world.options.loops);
        let (least, most) = (asked.start() * loops, asked.end() * loops);
        if deadlines(&mut figures).is_some_and(|it| *it < least) {
            // While a server is asked for the topology, that has no deadline.
            world.pass(READ)?;
            figures = world.edge.figures();
        }
        if let Some(number) = deadlines(&mut figures)
            && let Some(expected) = deadlines(&mut at_start)
        {
            *expected = (*number).clamp(least, most);
        }
    }
    if figures != at_start {
        let changed = figures
            .iter()
            .zip(&at_start)
            .filter(|(now, then)| now != then);
        let changed: Vec<_> = changed.collect();
        let reason = format!("all have left, and this is left (now, at the start): {changed:?}");
        return Err(world.failure((Oracle::Accounting, reason)));
    }
    let before = world.turns;
    world.pass(SECOND * 60)?;
    let turns = world.turns - before;
    let most = probes(SECOND * 60) * (asked(world).end() * world.options.loops) as u64;
    if turns > most {
        let reason = format!("{turns} turns in a minute without clients");
        return Err(world.failure((Oracle::Silence, reason)));
    }
    world.counts.reach("all left");
    Ok(())
}

/// The process ends while all wait: every client gets an answer or the end of its connection, and
/// every loop ends in time.
fn drain(world: &mut World) -> Result<(), Failure> {
    let keys = world.keys.len();
    for (number, client) in world.clients.iter_mut().enumerate() {
        client.ask(get(number % keys, Has::Since, SECOND * 30));
    }
    world.pass(told(&world.options))?;
    world.ends = true;
    let signalled = world.edge.signal(SIGTERM);
    signalled.map_err(|error| world.failure((Oracle::Panic, error.to_string())))?;
    world.pass(DRAIN + SECOND)?;
    if let Some(number) = world.clients.iter().position(Client::is_waiting) {
        let reason = format!("client {number} still waits for a process that has ended");
        return Err(world.failure((Oracle::Deadline, reason)));
    }
    if let Some(number) = world.followers.sockets.iter().position(Socket::is_there) {
        let reason = format!("socket {number} is connected to a process that has ended");
        return Err(world.failure((Oracle::Deadline, reason)));
    }
    if let Some(index) = (0..world.edge.loops()).find(|index| !world.edge.has_ended(*index)) {
        let reason = format!("loop {index} goes on after the time of the drain");
        return Err(world.failure((Oracle::Deadline, reason)));
    }
    world.counts.reach("drained");
    Ok(())
}

/// The signal that ends a process in order.
const SIGTERM: i32 = 15;

fn get(key: usize, has: Has, wait: Duration) -> Ask {
    Ask::Poll {
        key,
        method: Method::Get,
        has,
        wait,
    }
}
