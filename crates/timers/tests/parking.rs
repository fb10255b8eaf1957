//! With nothing armed the sweeper does nothing. Alone in its process: the figures are its own.
#![expect(
    clippy::disallowed_methods,
    reason = "the sweeper's thread runs in real time"
)]

use dwell_timers::{Deadline, statistics, timeout};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a timeout on the calling thread; it must not end early.
fn wait(length: Duration) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let start = Instant::now();
    let mut future = pin!(timeout(length, pending::<()>()));
    while future
        .as_mut()
        .poll(&mut Context::from_waker(&waker))
        .is_pending()
    {
        thread::park();
    }
    assert!(start.elapsed() >= length);
}

/// Waits until the sweeper stands still. If it never did, this would not end.
fn await_parked() -> u64 {
    loop {
        let before = statistics().sweeper_turns;
        thread::sleep(Duration::from_millis(400));
        if statistics().sweeper_turns == before {
            return before;
        }
    }
}

#[test]
fn with_nothing_armed_nobody_wakes_up() {
    assert_eq!(
        statistics().sweeper_starts,
        0,
        "no thread before the first timer"
    );
    wait(Duration::from_millis(15));
    // Cancelled long before its time, which must not keep the sweeper up until then.
    let mut hour = pin!(timeout(Duration::from_secs(3600), pending::<()>()));
    let polled = hour.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    hour.set(timeout(Duration::ZERO, pending()));
    let turns = await_parked();
    let mut idle = Deadline::new();
    idle.set(Duration::from_secs(3600), Waker::noop());
    idle.clear();
    wait(Duration::from_millis(15));
    assert!(statistics().sweeper_turns > turns);
    await_parked();
    assert_eq!(statistics().sweeper_starts, 1);
}
