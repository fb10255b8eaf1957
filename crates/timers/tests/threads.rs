//! Threads that come and go, and how late timers are.
#![expect(
    clippy::disallowed_methods,
    reason = "what the timers do is held against the clock"
)]

use dwell_timers::{Deadline, Timeout, statistics, timeout};
use std::cell::RefCell;
use std::future::{Pending, pending};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Tells when it was woken.
struct Report {
    start: Instant,
    due: Duration,
    sender: mpsc::Sender<(Duration, Duration)>,
}

impl Wake for Report {
    fn wake(self: Arc<Self>) {
        // The other end may be gone; then nobody asks.
        let _ = self.sender.send((self.due, self.start.elapsed()));
    }
}

type Never = Pin<Box<Timeout<Pending<()>>>>;

/// Arms a timeout that reports to `sender`.
fn arm(start: Instant, length: Duration, sender: &mpsc::Sender<(Duration, Duration)>) -> Never {
    let report = Report {
        start,
        due: start.elapsed() + length,
        sender: sender.clone(),
    };
    let waker = Waker::from(Arc::new(report));
    let mut future = Box::pin(timeout(length, pending()));
    let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    future
}

#[test]
fn timers_outlive_the_thread_that_armed_them() {
    let (sender, reports) = mpsc::channel();
    let start = Instant::now();
    let held: Vec<Never> = (0..8)
        .map(|number| {
            let sender = sender.clone();
            thread::spawn(move || arm(start, Duration::from_millis(20 * number + 1), &sender))
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|thread| thread.join().expect("it arms and ends"))
        .collect();
    for _ in 0..8 {
        let (due, woken) = reports.recv().expect("eight were armed");
        assert!(woken >= due);
    }
    drop(held);
}

#[test]
fn ten_thousand_threads_leave_nothing_behind() {
    const AT_ONCE: u32 = if cfg!(miri) { 4 } else { 50 };
    const BATCHES: u32 = if cfg!(miri) { 3 } else { 200 };
    let one = |_| {
        thread::spawn(|| {
            let mut idle = Deadline::new();
            idle.set(Duration::from_secs(3600), Waker::noop());
            idle.set(Duration::from_secs(60), Waker::noop());
        })
    };
    let batch = |_| {
        let threads: Vec<_> = (0..AT_ONCE).map(one).collect();
        for thread in threads {
            thread.join().expect("it arms and ends");
        }
    };
    (0..BATCHES).for_each(batch);
    // A thread takes a page's worth of slots and gives all back; at most 50 run at once here,
    // beside those of the other tests of this file.
    let slots = statistics().slots;
    assert!(slots <= 127 * 150, "{slots} slots");
}

/// Held by a thread-local that is destroyed after the timers' own.
struct Late(RefCell<Option<Never>>);

impl Drop for Late {
    fn drop(&mut self) {
        drop(self.0.take());
        let mut another: Never = Box::pin(timeout(Duration::from_secs(60), pending()));
        let polled = another
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
}

thread_local! {
    static LATE: Late = const { Late(RefCell::new(None)) };
}

#[test]
fn a_thread_that_ends_may_still_drop_and_arm_timers() {
    for armed_first in [false, true] {
        let ends = thread::spawn(move || {
            let arm = || {
                let mut held: Never = Box::pin(timeout(Duration::from_secs(60), pending()));
                let polled = held.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
                held
            };
            // Either thread-local may be the first to be made, and so the last to be destroyed.
            let early = armed_first.then(arm);
            LATE.with(|late| late.0.replace(Some(arm())));
            drop(early);
        });
        ends.join().expect("no destructor panics");
    }
}

#[test]
fn no_timer_of_a_thousand_is_early() {
    const COUNT: usize = if cfg!(miri) { 8 } else { 1000 };
    let (sender, reports) = mpsc::channel();
    let start = Instant::now();
    let mut state = 7_u64;
    let held: Vec<Never> = (0..COUNT)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            arm(
                start,
                Duration::from_nanos(1 + (state >> 20) % 400_000_000),
                &sender,
            )
        })
        .collect();
    let mut late: Vec<Duration> = (0..COUNT)
        .map(|_| reports.recv().expect("a thousand were armed"))
        .map(|(due, woken)| woken.checked_sub(due).expect("not early"))
        .collect();
    late.sort_unstable();
    println!(
        "late by {:?}, {:?} (p50), {:?} (p99)",
        late[0],
        late[COUNT / 2],
        late[COUNT * 99 / 100]
    );
    drop(held);
}

/// Blocks the sweeper until it is let go.
struct Blocking(std::sync::Mutex<mpsc::Receiver<()>>);

impl Wake for Blocking {
    fn wake(self: Arc<Self>) {
        let gate = self.0.lock().expect("nobody panics with it");
        let _ = gate.recv();
    }
}

#[test]
fn a_waker_that_blocks_is_left_behind() {
    let (gate, blocked) = mpsc::channel::<()>();
    let waker = Waker::from(Arc::new(Blocking(std::sync::Mutex::new(blocked))));
    let mut stuck: Never = Box::pin(timeout(Duration::from_millis(1), pending()));
    assert!(
        stuck
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let (sender, reports) = mpsc::channel();
    let start = Instant::now();
    // Timers that go on being armed find out, and another sweeper takes over.
    let mut held = Vec::new();
    let (due, woken) = loop {
        held.push(arm(start, Duration::from_millis(10), &sender));
        if start.elapsed() > Duration::from_secs(2)
            && let Ok(report) = reports.try_recv()
            && report.0 > Duration::from_secs(1)
        {
            break report;
        }
        thread::sleep(Duration::from_micros(500));
    };
    assert!(woken >= due);
    assert!(statistics().sweeper_starts >= 2);
    drop(gate);
    while stuck.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
        thread::yield_now();
    }
}
