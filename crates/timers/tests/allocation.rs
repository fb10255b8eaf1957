//! After warm-up, nothing about a timer allocates.
#![expect(unsafe_code, reason = "an allocator that counts")]

use dwell_timers::{Deadline, ManualClock, timeout};
use std::alloc::{GlobalAlloc, Layout, System};
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Arms, moves, fires and cancels some hundred timers of all lengths.
fn round(clock: &ManualClock, cx: &mut Context<'_>) {
    let mut idle = Deadline::new();
    for number in 0..500 {
        let length = Duration::from_millis(1 + number * 37 % 5000);
        let mut future = pin!(timeout(length, pending::<()>()));
        assert!(future.as_mut().poll(cx).is_pending());
        idle.set(length, cx.waker());
        if number % 7 == 0 {
            clock.advance(Duration::from_millis(number));
            let _ = future.as_mut().poll(cx);
        }
        assert!(idle.poll_elapsed(cx).is_pending() || number % 7 == 0);
    }
}

#[test]
fn nothing_is_allocated_after_warm_up() {
    let clock = ManualClock::install();
    let mut cx = Context::from_waker(Waker::noop());
    (0..20).for_each(|_| round(&clock, &mut cx));
    let warm = ALLOCATIONS.load(Ordering::Relaxed);
    (0..20).for_each(|_| round(&clock, &mut cx));
    // `advance` itself has a list of wakers of its own; nothing else allocates.
    let advances = 20 * 500_u64.div_ceil(7);
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - warm;
    assert!(allocated <= advances, "{allocated} in {advances} advances");
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..1000 {
        let mut future = pin!(timeout(Duration::from_secs(1), pending::<()>()));
        assert!(future.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
}
