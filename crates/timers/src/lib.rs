//! Deadlines on a 10 ms tick.
//!
//! A server holds far more deadlines than ever fire: every read, write and idle connection has
//! one, and nearly all of them are moved or cancelled first. Here those two operations cost one or
//! two stores, and the rest is paid for in bulk, once per tick.
//!
//! - [`timeout`], [`sleep`] and [`interval`] are for futures on any executor. They have the shape
//!   of tokio's, and share one thread that sleeps while nothing is armed.
//! - [`Deadline`] is for objects that live long and move their deadline often: connections.
//! - [`Wheel`] is for a loop that owns its deadlines. It reads no clock and owns no thread: the
//!   loop reads the time once per turn, turns it into a [`Tick`] and drains [`Wheel::pop_due`].
//!
//! ```
//! use dwell_timers::{Tick, Wheel, ticks_ceil};
//! use std::time::Duration;
//!
//! let start = Tick::new(0);
//! let mut wheel = Wheel::new(start);
//! wheel.arm(7, start.plus(ticks_ceil(Duration::from_millis(25))));
//! assert_eq!(wheel.pop_due(start.plus(2)), None);
//! assert_eq!(wheel.pop_due(start.plus(3)), Some(7));
//! assert_eq!(wheel.pop_due(start.plus(3)), None);
//! assert!(wheel.is_empty());
//! ```
//!
//! Dropping in: the arguments are those of `tokio::time::timeout` and of pingora-timeout's, and
//! [`Elapsed`] is a [`std::error::Error`]. Tests move the time by a [`ManualClock`].
//!
//! # Promises of the shared timers
//!
//! Each with the test that keeps it, in `tests/` or beside its source. `docs/timers-guarantees.md`
//! has all of them, `docs/timers-design.md` how the timers work, and `docs/timers.md` when not to
//! use them.
//!
//! - Never early, counted from the first poll that is pending; and at most two ticks late and half
//!   a millisecond, but for the scheduler:
//!   `fires_once_not_before_its_time_and_at_most_two_ticks_after`, `deadlines_agree_with_a_list`,
//!   `lateness_lies_between_nothing_and_two_ticks`, `no_timer_of_a_thousand_is_early`.
//! - A future that is ready wins: `a_future_that_is_ready_wins_against_its_deadline`.
//! - Woken once; never after it was dropped, but for a wake on its way:
//!   `what_is_dropped_wakes_nobody_and_drops_its_waker`, `nothing_is_early_lost_or_woken_twice`,
//!   and every order of the memory model in `loom.rs`.
//! - Any executor, any thread, one after the other:
//!   `a_timer_moves_from_task_to_task_and_from_executor_to_executor`,
//!   `timers_outlive_the_thread_that_armed_them`,
//!   `a_runtime_that_is_dropped_leaves_nothing_armed`.
//! - Stopped processes and forks need no call:
//!   `a_process_that_is_stopped_and_continued_fires_nothing_early`,
//!   `a_forked_child_needs_no_call`.
//! - A waker that panics or blocks affects no other:
//!   `a_waker_that_panics_concerns_nobody_else`, `a_waker_that_blocks_is_left_behind`.
//! - Memory follows the timers armed at one time: `ten_thousand_threads_leave_nothing_behind`,
//!   `alternating_durations_do_not_leak`. No allocation after warm-up, no wake-up while nothing is
//!   armed: `nothing_is_allocated_after_warm_up`, `with_nothing_armed_nobody_wakes_up`.
//!
//! # Limitations
//!
//! These never make a timer fire early, or not at all.
//!
//! - A duration of zero: the future is polled once (`zero_polls_the_future_once`). An [`interval`]
//!   of zero panics where it is made (`an_interval_of_zero_panics_where_it_is_made`).
//! - A duration below a tick waits for one (`an_interval_below_a_tick_ticks_once_in_a_tick`).
//! - [`Duration::MAX`](std::time::Duration::MAX) and points in time far ahead neither panic nor
//!   fire (`the_longest_durations_neither_panic_nor_fire`,
//!   `points_in_time_far_ahead_neither_panic_nor_fire`).
//! - A poll after the end says the same again, if the future inside may be polled again
//!   (`a_poll_after_completion_says_the_same_again`).
//! - A future that panics leaves nothing armed once it is dropped
//!   (`a_future_that_panics_leaves_nothing_armed`).
//! - Timers may be armed, polled and dropped while a thread's locals are destroyed
//!   (`a_thread_that_ends_may_still_drop_and_arm_timers`).
//! - No thread for the sweeper: nothing fires meanwhile; each arming and each poll tries again, and
//!   the first that succeeds has all fired that is due
//!   (`timers_wait_for_a_thread_and_fire_once_there_is_one`).
//! - No memory for more slots: the process is aborted, as everywhere in Rust
//!   (`without_memory_for_a_slot_the_process_is_aborted`).
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod backoff;
mod bitmap;
mod breaker;
mod chunks;
mod elapsed;
mod prefetch;
mod random;
mod shared;
mod tick;
mod wheel;

pub use backoff::Backoff;
pub use breaker::Breaker;
pub use elapsed::Elapsed;
pub use random::Random;
pub use shared::{
    Deadline, Interval, ManualClock, Sleep, SleepUntil, Statistics, Timeout, TimeoutAt, forks,
    interval, sleep, sleep_until, statistics, timeout, timeout_at,
};
pub use tick::{TICK, TICKS_AHEAD_MAX, Tick, ticks_ceil};
pub use wheel::Wheel;

/// The examples of the pages about this crate.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/timers.md")]
    mod story {}
}
