//! Processes that are forked.
#![cfg(unix)]
#![expect(unsafe_code, reason = "`fork` is not in the standard library")]
#![expect(
    clippy::disallowed_methods,
    reason = "the timers of a process run in real time"
)]

use dwell_timers::{forks, timeout};
use std::ffi::c_int;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait(mut future: Pin<&mut impl Future>) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    while future
        .as_mut()
        .poll(&mut Context::from_waker(&waker))
        .is_pending()
    {
        thread::park();
    }
}

/// Runs `work` in a child; whether it said yes. A child that hangs hangs the test.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `work` and ends by `_exit`; it touches nothing of this test's but
    // what `work` owns.
    let child = unsafe { fork() };
    assert!(child >= 0);
    if child == 0 {
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the process, and only that.
        unsafe { _exit(c_int::from(!said.unwrap_or(false))) };
    }
    let mut status = 0;
    // SAFETY: the status is written to a place of the right type.
    let waited = unsafe { waitpid(child, &raw mut status, 0) };
    waited == child && status == 0
}

const LENGTH: Duration = Duration::from_millis(30);

#[test]
fn a_forked_child_needs_no_call() {
    let is_over = Arc::new(AtomicBool::new(false));
    // Others arm and cancel all the while, so that a fork finds locks in use.
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let mut future = pin!(timeout(LENGTH, pending::<()>()));
                    let mut cx = Context::from_waker(Waker::noop());
                    assert!(future.as_mut().poll(&mut cx).is_pending());
                }
            })
        })
        .collect();
    wait(pin!(timeout(LENGTH, pending::<()>())));
    for _ in 0..10 {
        // Armed in the child.
        assert!(in_child(|| {
            let start = Instant::now();
            wait(pin!(timeout(LENGTH, pending::<()>())));
            start.elapsed() >= LENGTH
        }));
        // Armed before, polled in the child.
        let start = Instant::now();
        let mut armed = pin!(timeout(LENGTH, pending::<()>()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(armed.as_mut().poll(&mut cx).is_pending());
        assert!(in_child(|| {
            wait(armed.as_mut());
            start.elapsed() >= LENGTH
        }));
        // And in the parent all goes on.
        wait(armed);
        assert!(start.elapsed() >= LENGTH);
    }
    is_over.store(true, Ordering::SeqCst);
    for thread in busy {
        thread.join().expect("it only arms and cancels");
    }
}

#[test]
fn a_child_knows_that_it_is_one() {
    let before = forks();
    assert!(in_child(move || forks() == before + 1));
    assert_eq!(forks(), before);
}
