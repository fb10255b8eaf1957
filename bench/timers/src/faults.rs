//! What must be zero.

use crate::report;
use std::future::{Future, pending};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Whether a timeout of 50 ms ends within six seconds.
fn fires(timeout: impl Future) -> bool {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut timeout = std::pin::pin!(timeout);
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        if timeout.as_mut().poll(&mut cx).is_ready() {
            return true;
        }
        std::thread::park_timeout(Duration::from_secs(6));
    }
    false
}

const LENGTH: Duration = Duration::from_millis(50);

/// Has a child that was forked wait for one timeout.
fn is_dead_in_child(wait: impl FnOnce() -> bool) -> u8 {
    // SAFETY: the child uses nothing of the parent's but its memory, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let fired = wait();
        // SAFETY: ends the process without running what the parent has to run.
        unsafe { libc::_exit(i32::from(!fired)) };
    }
    let mut status = 0;
    // SAFETY: the child's status is written to a place of the right type.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    u8::from(!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0))
}

pub(crate) fn dead_after_fork() {
    assert!(fires(dwell_timers::timeout(LENGTH, pending::<()>())));
    let dead = is_dead_in_child(|| fires(dwell_timers::timeout(LENGTH, pending::<()>())));
    report("dwell", "dead_after_fork", dead);
    assert!(fires(pingora_timeout::timeout(LENGTH, pending::<()>())));
    // With the calls its documentation asks for.
    pingora_timeout::fast_timeout::pause_for_fork();
    let dead = is_dead_in_child(|| {
        pingora_timeout::fast_timeout::unpause();
        fires(pingora_timeout::timeout(LENGTH, pending::<()>()))
    });
    pingora_timeout::fast_timeout::unpause();
    report("pingora", "dead_after_fork", dead);
}

/// Timers made and dropped by the hundred thousand must not need more slots each time.
pub(crate) fn leaked_on_cancel() {
    let mut cx = Context::from_waker(Waker::noop());
    let mut hold = || {
        let held: Vec<_> = (0..100_000)
            .map(|_| {
                let mut timeout = Box::pin(dwell_timers::timeout(
                    Duration::from_secs(3600),
                    pending::<()>(),
                ));
                assert!(timeout.as_mut().poll(&mut cx).is_pending());
                timeout
            })
            .collect();
        drop(held);
    };
    hold();
    let before = dwell_timers::statistics().slots;
    (0..10).for_each(|_| hold());
    report(
        "dwell",
        "leaked_on_cancel",
        dwell_timers::statistics().slots - before,
    );
}

pub(crate) fn extra_threads() {
    report(
        "dwell",
        "extra_threads",
        dwell_timers::statistics().sweeper_starts - 1,
    );
    // A wheel has none to start: this is the number of threads its module names.
    report("wheel", "extra_threads", 0);
}
