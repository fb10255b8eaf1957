//! The store under real threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dwell_store::{
    ArithmeticOptions, Expiry, Notify, Store, StoreConfig, StoreMode, StoreOptions, StoreOutcome,
    WatcherId,
};

use crate::{NOW, stored, value, watcher};

/// Longer than any machine is busy; only a lost wake-up takes this long.
const GUARD: Duration = Duration::from_secs(30);

/// The inbox of each watcher.
struct Inboxes(Vec<Mutex<Sender<Vec<u8>>>>);

impl Notify for Inboxes {
    fn changed(&self, watcher: WatcherId, key: &[u8]) {
        let inbox = self.0[usize::from(watcher.index())].lock().unwrap();
        // A loop that has ended no longer cares.
        drop(inbox.send(key.to_vec()));
    }
}

fn with_inboxes(count: usize) -> (Arc<Store>, Vec<Receiver<Vec<u8>>>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
    let inboxes = Inboxes(senders.into_iter().map(Mutex::new).collect());
    (
        Arc::new(Store::new(&StoreConfig::default(), Box::new(inboxes))),
        receivers,
    )
}

/// Waits on one key until it holds `last`, as a loop does.
fn wait_for(store: &Store, key: &[u8], id: WatcherId, inbox: &Receiver<Vec<u8>>, last: &[u8]) {
    let mut item = store.watch(key, id, NOW);
    while item.is_none_or(|item| &*item.value != last) {
        assert_eq!(
            inbox.recv_timeout(GUARD).unwrap(),
            key,
            "a wake-up was lost"
        );
        item = store.reread(key, id, NOW);
    }
    store.unwatch(key, id);
    while inbox.try_recv().is_ok() {}
}

#[test]
fn every_waiter_sees_the_last_write() {
    const ROUNDS: usize = 200;
    let (store, inboxes) = with_inboxes(2);
    thread::scope(|scope| {
        let (ready, started) = channel();
        for (index, inbox) in (0_u8..).zip(inboxes) {
            let (store, ready) = (&store, ready.clone());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let key = format!("key-{round}");
                    ready.send(()).unwrap();
                    wait_for(store, key.as_bytes(), watcher(index), &inbox, b"last");
                }
            });
        }
        for round in 0..ROUNDS {
            let key = format!("key-{round}");
            started.recv_timeout(GUARD).unwrap();
            started.recv_timeout(GUARD).unwrap();
            let write = |value: &[u8]| store.set(key.as_bytes(), 0, Expiry::NEVER, value, NOW);
            thread::scope(|writers| {
                for _ in 0..2 {
                    writers.spawn(|| {
                        for _ in 0..20 {
                            stored(write(b"other"));
                        }
                    });
                }
            });
            stored(write(b"last"));
        }
    });
    assert_eq!(store.statistics().watched_keys, 0);
}

#[test]
fn increments_from_many_threads_all_count() {
    let (store, _) = with_inboxes(0);
    store.set(b"n", 0, Expiry::NEVER, b"0", NOW);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    store.arithmetic(b"n", &ArithmeticOptions::default(), NOW);
                }
            });
        }
    });
    assert_eq!(value(&store, b"n").unwrap(), b"4000");
}

#[test]
fn a_flush_is_one_moment_for_all_keys() {
    let (store, _) = with_inboxes(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                store.flush_all(0, NOW);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut round = 0_u32;
            while !done.load(Ordering::Acquire) {
                // The second key is written after the first: no flush may keep the first alone.
                let first = format!("first-{round}");
                let second = format!("second-{round}");
                let set = |key: &str| store.set(key.as_bytes(), 0, Expiry::NEVER, b"v", NOW);
                assert!(matches!(set(&first), StoreOutcome::Stored { .. }));
                assert!(matches!(set(&second), StoreOutcome::Stored { .. }));
                let second_lives = store.get(second.as_bytes(), NOW).is_some();
                let first_lives = store.get(first.as_bytes(), NOW).is_some();
                // Read in the other order, so a flush in between can only take the first.
                assert!(
                    second_lives || !first_lives,
                    "a flush passed between the keys"
                );
                round += 1;
            }
        });
    });
}

/// Every command from several threads on values of all sizes, while another looks at the bound.
#[test]
fn a_soak_never_exceeds_its_bound() {
    const BYTES_MAX: usize = 2 << 20;
    const THREADS: u64 = 3;
    const COMMANDS: u64 = 20_000;
    let config = StoreConfig {
        bytes_max: BYTES_MAX,
        item_bytes_max: 64 << 10,
        shards: 4,
        ..StoreConfig::default()
    };
    let store = Store::new(&config, Box::new(()));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (1..=THREADS)
            .map(|seed| {
                let store = &store;
                scope.spawn(move || {
                    let mut random = seed;
                    for count in 0..COMMANDS {
                        // xorshift64.
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        soak_step(store, random, NOW + (count / 1000) as u32);
                    }
                })
            })
            .collect();
        let watched = scope.spawn(|| {
            let mut largest = 0;
            while !is_over.load(Ordering::Relaxed) {
                largest = largest.max(store.statistics().bytes);
            }
            largest
        });
        for worker in workers {
            worker.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        let largest = watched.join().unwrap();
        assert!(largest <= BYTES_MAX as u64, "{largest}");
        assert!(
            largest > BYTES_MAX as u64 / 2,
            "the bound was never near: {largest}"
        );
    });
    assert!(store.statistics().evictions > 1000);
}

/// One command, chosen by the bits of a number.
fn soak_step(store: &Store, random: u64, now: u32) {
    let key = (random >> 8 & 0xfff).to_string();
    let key = key.as_bytes();
    // Most values are small, a few have up to 32 KiB.
    let size = (random >> 24 & 0x7fff) >> (random >> 40 & 0xf);
    let bytes = vec![b'1'; size as usize];
    match random % 16 {
        0..8 => drop(store.set(key, 0, Expiry::at(now + 5), &bytes, now)),
        8 => {
            let options = StoreOptions {
                mode: StoreMode::Append,
                ..StoreOptions::default()
            };
            store.store(key, &bytes[..bytes.len().min(500)], &options, now);
        }
        9 => drop(store.arithmetic(key, &ArithmeticOptions::default(), now)),
        10 => drop(store.delete(key, now)),
        11 => drop(store.touch(key, Expiry::at(now + 1), now)),
        12 => drop(store.sweep(now, 100)),
        13 if random.is_multiple_of(4096) => store.flush_all(0, now),
        _ => drop(store.get(key, now)),
    }
}

#[test]
fn a_bound_that_others_fill_is_lowered_all_the_same() {
    let config = StoreConfig {
        bytes_max: 8 << 20,
        shards: 1,
        ..StoreConfig::default()
    };
    let store = Store::new(&config, Box::new(()));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2_u32 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                for number in 0.. {
                    let key = (number << 1 | thread).to_be_bytes();
                    let value = vec![7; number as usize % 300];
                    let outcome = store.set(&key, 0, Expiry::NEVER, &value, NOW);
                    assert!(matches!(outcome, StoreOutcome::Stored { .. }));
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                }
            });
        }
        for round in 0..40 {
            let bytes_max = [8 << 20, 64 << 10, 1 << 20][round % 3];
            store.set_bytes_max(bytes_max, NOW);
            let counted = store.statistics();
            assert_eq!(counted.limit_maxbytes, bytes_max as u64);
            assert!(counted.bytes <= bytes_max as u64);
        }
        done.store(true, Ordering::Release);
    });
}
