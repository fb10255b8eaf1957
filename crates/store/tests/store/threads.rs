//! The store under real threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dwell_store::{ArithmeticOptions, Expiry, Notify, Store, StoreConfig, StoreOutcome, WatcherId};

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
