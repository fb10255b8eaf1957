//! No thread is to be had. Alone in its process: the limit concerns all of it.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
#![expect(unsafe_code, reason = "limits are not in the standard library")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "what the timers do is held against the clock"
)]

use dwell_timers::{Deadline, Elapsed, sleep, statistics, timeout};
use std::ffi::c_int;
use std::future::pending;
use std::pin::pin;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// `struct rlimit` of 64-bit Linux.
#[repr(C)]
#[derive(Clone, Copy)]
struct Limit {
    soft: u64,
    hard: u64,
}

/// `RLIMIT_AS`: the bytes of address space.
const ADDRESS_SPACE: c_int = 9;

unsafe extern "C" {
    fn getrlimit(resource: c_int, limit: *mut Limit) -> c_int;
    fn setrlimit(resource: c_int, limit: *const Limit) -> c_int;
}

fn limit() -> Limit {
    let mut limit = Limit { soft: 0, hard: 0 };
    // SAFETY: the limit is written to a place of the right type.
    assert_eq!(unsafe { getrlimit(ADDRESS_SPACE, &raw mut limit) }, 0);
    limit
}

fn set_limit(limit: Limit) {
    // SAFETY: the limit is read from a place of the right type.
    assert_eq!(unsafe { setrlimit(ADDRESS_SPACE, &raw const limit) }, 0);
}

/// Bytes of address space in use.
fn in_use() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

/// Sends its number when it is woken.
struct Report(Mutex<mpsc::Sender<u32>>, u32);

impl Wake for Report {
    fn wake(self: Arc<Self>) {
        // The other end may be gone; then nobody asks.
        let _ = self.0.lock().unwrap().send(self.1);
    }
}

const LENGTH: Duration = Duration::from_millis(20);

#[test]
fn timers_wait_for_a_thread_and_fire_once_there_is_one() {
    let (sender, reports) = mpsc::channel();
    let waker = |number| Waker::from(Arc::new(Report(Mutex::new(sender.clone()), number)));
    let before = limit();
    // Room for what the timers themselves need, but not for a thread's stack of 2 MB.
    set_limit(Limit {
        soft: in_use() + (1 << 20),
        hard: before.hard,
    });
    assert!(thread::Builder::new().spawn(|| ()).is_err());
    let start = Instant::now();
    let mut polled = pin!(timeout(LENGTH, pending::<()>()));
    let polled_waker = waker(1);
    let mut cx = Context::from_waker(&polled_waker);
    let mut left_alone = Deadline::new();
    left_alone.set(LENGTH, &waker(2));
    let mut cancelled = Box::pin(sleep(LENGTH));
    assert!(cancelled.as_mut().poll(&mut cx).is_pending());
    while start.elapsed() < 3 * LENGTH {
        assert!(polled.as_mut().poll(&mut cx).is_pending());
        left_alone.set(LENGTH, &waker(2));
    }
    drop(cancelled);
    assert_eq!(statistics().sweeper_starts, 0);
    assert!(reports.try_recv().is_err());
    set_limit(before);
    // One poll of any timer gets a thread, and it fires all that are due.
    assert!(polled.as_mut().poll(&mut cx).is_pending());
    let mut woken = [reports.recv().unwrap(), reports.recv().unwrap()];
    woken.sort_unstable();
    assert_eq!(woken, [1, 2]);
    assert_eq!(polled.as_mut().poll(&mut cx), Poll::Ready(Err(Elapsed)));
    assert!(left_alone.poll_elapsed(&cx).is_ready());
    assert_eq!(statistics().sweeper_starts, 1);
}
