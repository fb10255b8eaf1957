//! The same futures under tokio, under smol and on a bare thread.
#![cfg(not(any(loom, miri)))]
#![expect(
    clippy::disallowed_methods,
    reason = "what the timers do is held against the clock"
)]

use dwell_timers::{
    Deadline, Elapsed, Timeout, interval, sleep, sleep_until, statistics, timeout, timeout_at,
};
use std::future::{Pending, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

const LENGTH: Duration = Duration::from_millis(25);

type Never = Pin<Box<Timeout<Pending<()>>>>;

fn never(length: Duration) -> Never {
    Box::pin(timeout(length, pending()))
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("a runtime, without a clock of its own")
}

/// Every kind of timer, held against the clock.
async fn all_kinds() {
    let start = Instant::now();
    assert_eq!(timeout(LENGTH, async { 7 }).await, Ok(7));
    assert_eq!(timeout(LENGTH, pending::<()>()).await, Err(Elapsed));
    assert!(start.elapsed() >= LENGTH);
    sleep(LENGTH).await;
    assert!(start.elapsed() >= 2 * LENGTH);
    sleep_until(start + 3 * LENGTH).await;
    assert!(start.elapsed() >= 3 * LENGTH);
    let end = start + 4 * LENGTH;
    assert_eq!(timeout_at(end, pending::<()>()).await, Err(Elapsed));
    assert!(Instant::now() >= end);
    let mut ticks = interval(LENGTH);
    let begun = Instant::now();
    for _ in 0..3 {
        ticks.tick().await;
    }
    assert!(begun.elapsed() >= 2 * LENGTH);
    moved_three_times().await;
}

/// A deadline that is moved before it has elapsed fires for the last move only.
async fn moved_three_times() {
    let mut idle = Deadline::new();
    let mut moves = 0;
    let mut last = Instant::now();
    let mut pause = pin!(sleep(LENGTH));
    poll_fn(|cx| {
        if moves == 0 || (moves < 3 && pause.as_mut().poll(cx).is_ready()) {
            pause.set(sleep(LENGTH));
            last = Instant::now();
            idle.set(2 * LENGTH, cx.waker());
            moves += 1;
            assert!(pause.as_mut().poll(cx).is_pending());
        }
        idle.poll_elapsed(cx)
    })
    .await;
    assert!(last.elapsed() >= 2 * LENGTH);
}

/// The timer that is lost in the first branch goes on in the next turn of the loop.
async fn selected_again_and_again() {
    let start = Instant::now();
    let mut whole = pin!(sleep(4 * LENGTH));
    let mut turns = 0;
    loop {
        tokio::select! {
            () = &mut whole => break,
            () = sleep(LENGTH / 2) => turns += 1,
        }
    }
    assert!(start.elapsed() >= 4 * LENGTH && turns > 0);
    let mut whole = pin!(sleep(4 * LENGTH));
    while !smol::future::or(
        async {
            whole.as_mut().await;
            true
        },
        async {
            sleep(LENGTH / 2).await;
            false
        },
    )
    .await
    {}
    assert!(start.elapsed() >= 8 * LENGTH);
}

/// Polls once, so that the timer is armed with the waker of the calling task.
async fn armed(mut future: Never) -> Never {
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    future
}

#[test]
fn every_kind_works_under_tokio() {
    let runtime = tokio_runtime();
    runtime.block_on(all_kinds());
    runtime
        .block_on(runtime.spawn(all_kinds()))
        .expect("the task does not panic");
    let single = tokio::runtime::Builder::new_current_thread().build();
    single.expect("a runtime").block_on(all_kinds());
}

#[test]
fn every_kind_works_under_smol_and_on_a_bare_thread() {
    smol::block_on(all_kinds());
    smol::block_on(smol::spawn(all_kinds()));
}

#[test]
fn selecting_polls_with_the_wakers_of_the_moment() {
    tokio_runtime().block_on(selected_again_and_again());
    smol::block_on(selected_again_and_again());
}

#[test]
fn a_timer_moves_from_task_to_task_and_from_executor_to_executor() {
    let runtime = tokio_runtime();
    let start = Instant::now();
    let first = runtime.block_on(async { tokio::spawn(armed(never(4 * LENGTH))).await });
    let second = smol::block_on(smol::spawn(armed(first.expect("the task does not panic"))));
    // The tasks whose wakers it had are over; only the last waker counts.
    let elapsed = runtime.block_on(async { tokio::spawn(second).await });
    assert_eq!(elapsed.expect("the task does not panic"), Err(Elapsed));
    assert!(start.elapsed() >= 4 * LENGTH);
}

#[test]
fn a_thousand_tasks_each_wait_their_time() {
    let runtime = tokio_runtime();
    let tasks: Vec<_> = (0..1000_u64)
        .map(|number| {
            runtime.spawn(async move {
                let length = Duration::from_micros(1 + number * 7919 % 200_000);
                let start = Instant::now();
                sleep(length).await;
                start.elapsed() >= length
            })
        })
        .collect();
    for task in tasks {
        assert!(runtime.block_on(task).expect("the task does not panic"));
    }
}

#[test]
fn a_runtime_that_is_dropped_leaves_nothing_armed() {
    const TASKS: usize = 500;
    let owner = Arc::new(());
    let mut slots = 0;
    for round in 0..20 {
        let runtime = tokio_runtime();
        let executor = smol::Executor::new();
        for _ in 0..TASKS {
            let (ours, theirs) = (Arc::clone(&owner), Arc::clone(&owner));
            runtime.spawn(async move {
                sleep(Duration::from_secs(3600)).await;
                drop(ours);
            });
            let task = executor.spawn(async move {
                sleep(Duration::from_secs(3600)).await;
                drop(theirs);
            });
            task.detach();
        }
        while executor.try_tick() {}
        runtime.block_on(async { tokio::spawn(sleep(LENGTH)).await.expect("no panic") });
        drop((runtime, executor));
        assert_eq!(Arc::strong_count(&owner), 1, "a task was leaked");
        // The first rounds find out how many slots the threads of all tests here keep.
        if round == 5 {
            slots = statistics().slots;
        }
    }
    let grown = statistics().slots - slots;
    assert!(grown <= 2 * TASKS, "{grown} slots in fifteen rounds");
}
