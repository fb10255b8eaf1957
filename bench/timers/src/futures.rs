//! `timeout()` as tasks use it: ready at once, cancelled, moved, held by the hundred thousand.

use crate::{fastest, memory, per_operation, report};
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Pending as often as it says, then ready.
struct Pending(u32);

impl Future for Pending {
    type Output = u32;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        if self.0 == 0 {
            return Poll::Ready(1);
        }
        self.0 -= 1;
        Poll::Pending
    }
}

const SECOND: Duration = Duration::from_secs(1);
const CHUNKS: u32 = 40;
const OPERATIONS: u32 = 10_000;
const HELD: u32 = 100_000;

/// A closure cannot be generic over the future it is given, so this is a macro.
macro_rules! measure_timeout {
    ($runtime:expr, $is_first:expr, $name:literal, $timeout:path) => {{
        let (runtime, is_first): (&Runtime, bool) = ($runtime, $is_first);
        runtime.block_on(async {
            tokio::spawn(async move {
                // pingora-timeout's own loop: the future is ready already.
                let mut best = f64::MAX;
                for _ in 0..CHUNKS {
                    let start = std::time::Instant::now();
                    let mut sum = 0;
                    for _ in 0..OPERATIONS {
                        sum += $timeout(SECOND, async { black_box(1_u32) })
                            .await
                            .unwrap_or(0);
                    }
                    let passed = start.elapsed().as_nanos() as f64 / f64::from(OPERATIONS);
                    assert_eq!(black_box(sum), OPERATIONS);
                    best = best.min(passed);
                }
                report($name, "ready_ns", best);
                poll_fn(|cx| {
                    let cancelled = fastest(CHUNKS, OPERATIONS, |count| {
                        for _ in 0..count {
                            let mut timeout = pin!($timeout(SECOND, Pending(9)));
                            assert!(timeout.as_mut().poll(cx).is_pending());
                        }
                    });
                    report($name, "arm_cancel_ns", cancelled);
                    let completed = fastest(CHUNKS, OPERATIONS, |count| {
                        for _ in 0..count {
                            let mut timeout = pin!($timeout(SECOND, Pending(2)));
                            assert!(timeout.as_mut().poll(cx).is_pending());
                            assert!(timeout.as_mut().poll(cx).is_pending());
                            assert!(timeout.as_mut().poll(cx).is_ready());
                        }
                    });
                    report($name, "arm_complete_ns", completed);
                    Poll::Ready(())
                })
                .await;
                let mut held = Vec::with_capacity(HELD as usize);
                memory::start();
                poll_fn(|cx| {
                    let created = per_operation(HELD, || {
                        for number in 0..u64::from(HELD) {
                            let length = Duration::from_millis(1000 + number * 7919 % 59_000);
                            let mut timeout = Box::pin($timeout(length, Pending(9)));
                            assert!(timeout.as_mut().poll(cx).is_pending());
                            held.push(timeout);
                        }
                    });
                    report($name, "hold_ns", created);
                    Poll::Ready(())
                })
                .await;
                // Until what belongs to one tick only is gone.
                std::thread::sleep(Duration::from_millis(60));
                // Later rounds find the memory of this one, where it is kept for reuse.
                if is_first {
                    report($name, "bytes", memory::live() as f64 / f64::from(HELD));
                }
                memory::stop();
                report($name, "drop_held_ns", per_operation(HELD, || held.clear()));
            })
            .await
            .expect("the task runs");
        });
        let both = Arc::new(Barrier::new(2));
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let both = Arc::clone(&both);
                runtime.spawn(async move {
                    both.wait();
                    poll_fn(|cx| {
                        Poll::Ready(fastest(CHUNKS, OPERATIONS, |count| {
                            for _ in 0..count {
                                let mut timeout = pin!($timeout(SECOND, Pending(9)));
                                assert!(timeout.as_mut().poll(cx).is_pending());
                            }
                        }))
                    })
                    .await
                })
            })
            .collect();
        let mut slower = 0_f64;
        for task in tasks {
            slower = slower.max(runtime.block_on(task).expect("the task runs"));
        }
        report($name, "arm_cancel_2_threads_ns", slower);
    }};
}

pub(crate) fn measure(runtime: &Runtime, is_first: bool) {
    measure_timeout!(runtime, is_first, "dwell", dwell_timers::timeout);
    measure_timeout!(runtime, is_first, "pingora", pingora_timeout::timeout);
    measure_timeout!(runtime, is_first, "tokio", tokio::time::timeout);
    let task = runtime.spawn(poll_fn(|cx| {
        floor(cx);
        rearm(cx);
        Poll::Ready(())
    }));
    runtime.block_on(task).expect("the task runs");
    let _entered = runtime.enter();
    handles();
}

/// What no timer that wakes a task can do without.
fn floor(cx: &mut Context<'_>) {
    let cloned = fastest(CHUNKS, OPERATIONS, |count| {
        for _ in 0..count {
            drop(black_box(cx.waker().clone()));
        }
    });
    report("tokio", "waker_ns", cloned);
}

/// Moving the one deadline of a connection.
fn rearm(cx: &mut Context<'_>) {
    let length = Duration::from_secs(30);
    let mut deadline = dwell_timers::Deadline::new();
    deadline.set(length, cx.waker());
    let moved = fastest(CHUNKS, OPERATIONS, |count| {
        for _ in 0..count {
            black_box(&mut deadline).set(black_box(length), cx.waker());
        }
    });
    report("dwell", "rearm_ns", moved);
    // It has no such call: the old one is dropped, a new one made and polled.
    let mut timeout = Box::pin(pingora_timeout::timeout(length, Pending(9)));
    assert!(timeout.as_mut().poll(cx).is_pending());
    let moved = fastest(CHUNKS, OPERATIONS, |count| {
        for _ in 0..count {
            timeout.set(pingora_timeout::timeout(black_box(length), Pending(9)));
            assert!(timeout.as_mut().poll(cx).is_pending());
        }
    });
    report("pingora", "rearm_ns", moved);
    let mut sleep = Box::pin(tokio::time::sleep(length));
    assert!(sleep.as_mut().poll(cx).is_pending());
    let moved = fastest(CHUNKS, OPERATIONS, |count| {
        for _ in 0..count {
            let deadline = tokio::time::Instant::now() + black_box(length);
            sleep.as_mut().reset(deadline);
            assert!(sleep.as_mut().poll(cx).is_pending());
        }
    });
    report("tokio", "rearm_ns", moved);
}

/// pingora-timeout's other loops: 100,000 handles are made, then dropped. Theirs are not polled
/// and wake nobody; ours are armed.
fn handles() {
    let (mut create, mut discard) = ([f64::MAX; 3], [f64::MAX; 3]);
    for _ in 0..5 {
        let manager = pingora_timeout::timer::TimerManager::new();
        time_handles(0, &mut create, &mut discard, || {
            manager.register_timer(SECOND)
        });
        time_handles(1, &mut create, &mut discard, || tokio::time::sleep(SECOND));
        time_handles(2, &mut create, &mut discard, || {
            let mut deadline = dwell_timers::Deadline::new();
            deadline.set(SECOND, Waker::noop());
            deadline
        });
    }
    for (place, name) in ["pingora", "tokio", "dwell"].into_iter().enumerate() {
        report(name, "create_ns", create[place]);
        report(name, "drop_ns", discard[place]);
    }
}

fn time_handles<T>(
    place: usize,
    create: &mut [f64; 3],
    discard: &mut [f64; 3],
    mut make: impl FnMut() -> T,
) {
    let mut handles = Vec::with_capacity(HELD as usize);
    let created = per_operation(HELD, || handles.extend((0..HELD).map(|_| make())));
    let dropped = per_operation(HELD, || handles.clear());
    create[place] = create[place].min(created);
    discard[place] = discard[place].min(dropped);
}
