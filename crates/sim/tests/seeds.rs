//! Seeds that every build plays, and bugs that they must find.
#![cfg(feature = "sim")]

use dwell_sim::{
    Attack, Behind, ClusterFault, Counts, Fault, MemcachedFault, Plan, Planted, RedisFault,
    TlsFault, UpgradeFault, plant, play, play_seed, record, shrink,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Seeds that are played.
const SEEDS: usize = 480;
/// Seeds beyond them that have found a fault, and what it was. One whose plan is another one now,
/// as what seeds draw has changed, finds nothing any more: it is replaced or taken out.
const FOUND_A_FAULT: &[(u64, &str)] = &[
    (
        200_781,
        "a key that a redirection alone had moved was not swept where Redis announced nothing",
    ),
    (
        9_000_165,
        "with Redis, a key had a feed that had left, until the process ended",
    ),
    (
        7_323_108,
        "with Redis, a WebSocket whose own read had failed was not told what others had been told",
    ),
    (
        4_019_453,
        "no WebSocket was told that what TLS had said by itself was out",
    ),
    (
        54,
        "with memcached, a poll of several keys waited beyond the bound until all were looked up",
    ),
    (
        4_347_388,
        "with memcached, changes beyond the room for lookups were told at later sweeps, or never",
    ),
    (4_325_219, "the same, of a WebSocket that takes keys up"),
    (
        4_402_401,
        "a stream that the application began was not told what memcached had had meanwhile",
    ),
    (
        6_003_464,
        "with memcached, a stream without room for its lookup was not told what there was",
    ),
    (
        5_300_129,
        "the simulator took a lookup that had failed, for several keys by HEAD, for a miss",
    ),
    (
        7_041_370,
        "the simulator did not know that a server taken away by a reload ends what it has",
    ),
    (
        6_070_665,
        "no metric counted a request of HTTP/2 for which there was no record to forward it",
    ),
    (
        7_076_030,
        "the simulator took a value beyond the rate for one that may be stored all the same",
    ),
    (
        7_084_638,
        "the simulator took an answer for late that came behind others on a slow connection",
    ),
    (
        7_123_042,
        "the simulator asked for more updates of keys than rustls takes without data",
    ),
    (
        6_294_018,
        "with Redis, a late reply on the one connection was told over a newer one on the other",
    ),
    (
        6_312_938,
        "with Redis, a late reply of a sweep was told over what was read for the announcement",
    ),
    (
        7_238_456,
        "the simulator went back to a value that a read had ruled out, where another was refused",
    ),
    (
        6_226_223,
        "the simulator took the reply to one value for memcached for that to another of its key",
    ),
    (
        6_364_328,
        "the simulator asked for updates of keys in a row, without data to send between them",
    ),
    (
        6_376_512,
        "the simulator expected an answer that the application owes longer than a drain lasts",
    ),
    (
        6_403_618,
        "with HTTP/2, half a field block had its time anew whenever the server had to write",
    ),
    (
        6_623_886,
        "with memcached, a WebSocket was told of a read that was older than its subscription",
    ),
    (
        7_247_845,
        "the simulator did not know that a stream of several keys reads them at its heartbeat",
    ),
    (
        9_157_918,
        "with a cluster, requests for a key that was refused put its waits off by half a minute",
    ),
    (
        9_117_985,
        "with a cluster, a late reply armed the lifetime of a key that had moved away and gone",
    ),
    (
        9_160_314,
        "the simulator did not know that lookups may fail behind a takeover that takes no time",
    ),
];
/// Seeds within which each planted bug is found.
const FOUND: u64 = 1_000;
/// The first seed that finds a bug, where it is a late one: it is tried before the others, which
/// saves the time of those that do not. `make sim-planted` counts them anew.
const FINDS: &[(Planted, u64)] = &[
    (Planted::MissDrain, 62),
    (Planted::StaleCursor, 83),
    (Planted::WrongMember, 25),
    (Planted::RepeatPost, 119),
    (Planted::TrustSince, 188),
    (Planted::ForgetBound, 43),
    (Planted::FillReplaces, 157),
    (Planted::UseTimedOut, 793),
    (Planted::EarlySnapshot, 48),
    (Planted::EarlyResume, 48),
    (Planted::ForgetInput, 38),
    (Planted::TrustNeighbour, 91),
    (Planted::OwnWindowAlone, 243),
    (Planted::ForgetStream, 31),
    (Planted::ForgetNewest, 233),
    (Planted::ForgetFlush, 714),
    (Planted::ForgetLifetime, 259),
    (Planted::KeepAnswer, 2_060),
    (Planted::ForgetMoved, 41),
    (Planted::ParkOnAsk, 1_674),
];

/// States that these seeds reach.
const STATES: &[&str] = &[
    "GOAWAY of the server",
    "TLS 1.2",
    "TLS 1.3",
    "WebSocket",
    "WebSocket on a stream",
    "all left",
    "answer of the application",
    "answer on a stream",
    "answer stored",
    "answer to no poll",
    "close frame",
    "connection of HTTP/2",
    "connection of HTTP/2 under TLS",
    "cursors of several keys",
    "delete",
    "delete event",
    "deletion frame",
    "drained",
    "end without close_notify",
    "event",
    "event of several keys",
    "event of several keys, of the application",
    "event stream",
    "flush_all",
    "frame of the application",
    "get of nothing",
    "get with a value",
    "key update",
    "key update of the server",
    "key update with a request",
    "memcached does not answer",
    "no such key",
    "ping",
    "pong",
    "publish",
    "publish in memcached",
    "publish over HTTP",
    "publish over the rate",
    "publish refused by a process that ends",
    "publish without a server",
    "publish without an answer",
    "publish without memcached",
    "publish without memory",
    "records by hand",
    "refused WebSocket on a stream",
    "refused by a process that ends",
    "refused certificate",
    "refused connection",
    "refused key",
    "refused publish",
    "refused wait",
    "reset of the server",
    "resumed session",
    "set",
    "several keys unchanged",
    "several keys with the application",
    "several keys without memcached",
    "several keys without the application",
    "several keys, one gone",
    "stale value",
    "start after all have gone",
    "unchanged",
    "upgrade",
    "upgrade given up",
    "upgrade right after another",
    "value",
    "value frame",
    "values of several keys",
    "wait ended",
];

#[test]
fn no_fault_that_a_seed_has_found_is_back() {
    for (seed, fault) in FOUND_A_FAULT {
        if let Some(failure) = play_seed(*seed).failure {
            panic!("seed {seed}: {failure}; {fault}");
        }
    }
}

/// Calls `act` with each index below `count`. Each of two threads takes the next one: these tests
/// take long, and what they plant and simulate is of their thread.
fn on_two_threads(count: usize, act: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let act_on_each = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            act(index);
        }
    };
    thread::scope(|scope| {
        scope.spawn(act_on_each);
        act_on_each();
    });
}

#[test]
fn no_seed_breaks_a_promise() {
    let all = Mutex::new(Counts::default());
    on_two_threads(SEEDS, |seed| {
        let outcome = play_seed(seed as u64);
        if let Some(failure) = outcome.failure {
            panic!("seed {seed}: {failure}; `make sim SEED={seed}` shows it");
        }
        all.lock().unwrap().add(&outcome.counts);
    });
    let counts = all.into_inner().unwrap();
    check_faults(&counts);
    let reached: Vec<_> = counts.states.keys().copied().collect();
    assert_eq!(reached, STATES);
}

/// Checks that every kind of fault has struck.
fn check_faults(counts: &Counts) {
    let of_the_whole_run = [Fault::Split, Fault::Refuse, Fault::Delay, Fault::Pipeline];
    for fault in Fault::ALL {
        let has_struck = counts.faults.contains_key(fault.name());
        assert!(has_struck || of_the_whole_run.contains(&fault), "{fault:?}");
    }
    let of_memcached = MemcachedFault::ALL.map(MemcachedFault::name);
    for name in of_memcached
        .into_iter()
        .chain(RedisFault::ALL.map(RedisFault::name))
        .chain(ClusterFault::ALL.map(ClusterFault::name))
        .chain(TlsFault::ALL.map(TlsFault::name))
        .chain(Attack::ALL.map(Attack::name))
        .chain(UpgradeFault::ALL.map(UpgradeFault::name))
        .chain([Behind::App, Behind::Memcached].map(Behind::wrong))
    {
        assert!(counts.faults.contains_key(name), "{name}");
    }
}

#[test]
fn a_seed_gives_the_same_events_again() {
    for seed in 0..40 {
        assert_eq!(play_seed(seed).trace, play_seed(seed).trace, "seed {seed}");
    }
    assert_ne!(play_seed(1).trace, play_seed(2).trace);
}

#[test]
fn every_planted_bug_is_found() {
    on_two_threads(Planted::ALL.len(), |index| {
        let bug = Planted::ALL[index];
        plant(Some(bug));
        let late = FINDS.iter().filter(|(found, _)| *found == bug);
        let mut seeds = late.map(|(_, seed)| *seed).chain(0..FOUND);
        let found = seeds.find(|seed| play_seed(*seed).failure.is_some());
        plant(None);
        assert!(found.is_some(), "{bug:?} is not found in {FOUND} seeds");
    });
}

#[test]
fn a_failure_is_had_with_fewer_steps_and_shown() {
    plant(Some(Planted::WrongTimeout));
    let failing = |seed| Some((Plan::of(seed), play_seed(seed).failure?));
    let (plan, failure) = (0..FOUND).find_map(failing).unwrap();
    let (fewer, found) = shrink(&plan, &failure);
    let shown = record(&fewer);
    plant(None);
    assert_eq!(found.oracle, failure.oracle);
    assert_eq!(shown.failure.as_ref(), Some(&found));
    assert!(fewer.steps.len() < 5, "{:?}", fewer.steps);
    assert!(shown.lines.iter().any(|line| line.contains("FAILURE")));
    assert!(shown.lines.iter().any(|line| line.contains(" asks ")));
    assert_eq!(play(&fewer).failure, None, "without the bug");
}
