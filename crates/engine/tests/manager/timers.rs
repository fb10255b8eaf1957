//! Timers: when they fire, how often, and that waits end for them.

use crate::support::{Fixture, PATIENCE};
use dwell_engine::manager::Manager;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

fn quiet() -> Manager {
    Manager::new(|_, _| {}).unwrap()
}

/// A callback that counts its calls.
fn counter() -> (
    Arc<AtomicUsize>,
    impl FnMut(&mut dwell_engine::manager::Scope<'_>) + Send,
) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    (count, move |_: &mut dwell_engine::manager::Scope<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
    })
}

#[test]
fn a_timer_ends_a_long_wait_and_is_on_time() {
    let mut manager = quiet();
    let (count, callback) = counter();
    let begun = Instant::now();
    let delay = Duration::from_millis(20);
    let timer = manager.timer(delay, false, callback).unwrap();
    assert!(timer.is_active());
    while count.load(Ordering::Relaxed) == 0 {
        assert!(begun.elapsed() < PATIENCE);
        manager.poll(LONG).unwrap();
    }
    let waited = begun.elapsed();
    assert!(waited >= delay, "early: {waited:?}");
    // The poll would take all of its time.
    assert!(waited < LONG / 2, "late: {waited:?}");
    assert!(!timer.is_active());
    manager.poll(Duration::from_millis(30)).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_timer_of_zero_is_due_in_the_next_poll() {
    let mut manager = quiet();
    let (count, callback) = counter();
    manager.timer(Duration::ZERO, false, callback).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 0);
    manager.poll(Duration::ZERO).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_repeating_timer_keeps_its_pace() {
    let mut manager = quiet();
    let (count, callback) = counter();
    let begun = Instant::now();
    let timer = manager
        .timer(Duration::from_millis(30), true, callback)
        .unwrap();
    while count.load(Ordering::Relaxed) < 10 {
        assert!(begun.elapsed() < PATIENCE);
        manager.poll(LONG).unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_millis(300));
    timer.cancel();
    timer.cancel();
    assert!(!timer.is_active());
    manager.poll(Duration::from_millis(50)).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 10);
    assert_eq!(manager.wait_max().unwrap(), None, "nothing is armed");
}

#[test]
fn a_timer_is_cancelled_from_another_thread_and_from_itself() {
    let mut manager = quiet();
    let (count, callback) = counter();
    let timer = manager
        .timer(Duration::from_millis(10), true, callback)
        .unwrap();
    let cancelling = timer.clone();
    std::thread::spawn(move || cancelling.cancel())
        .join()
        .unwrap();
    manager.poll(Duration::from_millis(50)).unwrap();
    manager.poll(Duration::from_millis(50)).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 0);

    let own = Arc::new(std::sync::Mutex::new(None::<dwell_engine::manager::Timer>));
    let (handle, (count, mut callback)) = (Arc::clone(&own), counter());
    let timer = manager.timer(Duration::ZERO, true, move |scope| {
        callback(scope);
        handle.lock().unwrap().as_ref().unwrap().cancel();
    });
    *own.lock().unwrap() = Some(timer.unwrap());
    for _ in 0..3 {
        manager.poll(Duration::from_millis(30)).unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn ten_thousand_timers_end_and_leave_nothing() {
    let mut manager = quiet();
    let fired = Arc::new(AtomicUsize::new(0));
    for index in 0..10_000_u64 {
        let fired = Arc::clone(&fired);
        let delay = Duration::from_millis(index % 50);
        manager
            .timer(delay, false, move |_| {
                fired.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
    }
    let begun = Instant::now();
    while fired.load(Ordering::Relaxed) < 10_000 {
        assert!(begun.elapsed() < PATIENCE);
        manager.poll(LONG).unwrap();
    }
    assert_eq!(manager.wait_max().unwrap(), None);
    // Each closure held a count of it.
    assert_eq!(Arc::strong_count(&fired), 1);
}

#[test]
fn the_longest_delays_neither_fire_nor_panic() {
    let mut manager = quiet();
    for (delay, repeat) in [(Duration::MAX, false), (Duration::MAX, true)] {
        let timer = manager.timer(delay, repeat, |_| panic!("before its time"));
        assert!(timer.unwrap().is_active());
    }
    manager.poll(Duration::from_millis(20)).unwrap();
    assert_eq!(manager.panics(), 0);
}

#[test]
fn a_timer_reaches_every_connection() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let (mut client, id) = fixture.client();
    let timer = fixture.manager.timer(Duration::ZERO, false, move |scope| {
        scope.conn(id).unwrap().send(b"on time").unwrap();
        scope.timer(Duration::ZERO, false, move |scope| {
            scope.conn(id).unwrap().close();
        });
    });
    timer.unwrap();
    assert_eq!(fixture.rest(&mut client), "on time");
}

#[test]
fn a_timer_that_panics_is_counted() {
    let mut manager = quiet();
    let timer = manager
        .timer(Duration::ZERO, false, |_| panic!("as the test wants it"))
        .unwrap();
    manager.poll(Duration::ZERO).unwrap();
    assert_eq!(manager.panics(), 1);
    assert!(!timer.is_active());
}
