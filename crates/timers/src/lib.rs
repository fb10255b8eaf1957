//! Deadlines on a 10 ms tick.
//!
//! A server holds far more deadlines than ever fire: every read, write and idle connection has
//! one, and nearly all of them are moved or cancelled first. Here those two operations cost one or
//! two stores, and the rest is paid for in bulk, once per tick.
//!
//! - [`timeout`], [`sleep`] and [`interval`] are for futures on any executor. They have the shape
//!   of tokio's, and share one thread that sleeps while nothing is armed.
//! - [`Deadline`] is for objects that live long and move their deadline often: connections.
//! - [`Wheel`] is for a loop that owns its deadlines. It reads no clock and owns no thread: whoever
//!   owns it reads the time once per turn, turns it into a [`Tick`] and drains [`Wheel::pop_due`].
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
//! # Promises of the shared timers
//!
//! Each with the test in `tests/` that keeps it; `docs/timers.md` has the whole list, and when not
//! to use them.
//!
//! - Never early, and at most two ticks late but for the scheduler:
//!   `fires_once_not_before_its_time_and_at_most_two_ticks_after`, `deadlines_agree_with_a_list`.
//! - A future that is ready wins: `a_future_that_is_ready_wins_against_its_deadline`.
//! - Zero polls once, the longest duration neither fires nor panics:
//!   `zero_polls_the_future_once`, `the_longest_durations_neither_panic_nor_fire`.
//! - Woken once; never after it was dropped, but for a wake on its way:
//!   `what_is_dropped_wakes_nobody_and_drops_its_waker`, `nothing_is_early_lost_or_woken_twice`,
//!   and every order of the memory model in `loom.rs`.
//! - Stopped processes, forks and ends of threads need no call:
//!   `a_process_that_is_stopped_and_continued_fires_nothing_early`,
//!   `a_forked_child_needs_no_call`, `timers_outlive_the_thread_that_armed_them`.
//! - A waker that panics or blocks concerns nobody else:
//!   `a_waker_that_panics_concerns_nobody_else`, `a_waker_that_blocks_is_left_behind`.
//! - No allocation after warm-up, no wake-up while nothing is armed:
//!   `nothing_is_allocated_after_warm_up`, `with_nothing_armed_nobody_wakes_up`.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod bitmap;
mod chunks;
mod elapsed;
mod prefetch;
mod shared;
mod tick;
mod wheel;

pub use elapsed::Elapsed;
pub use shared::{
    Deadline, Interval, ManualClock, Sleep, SleepUntil, Statistics, Timeout, TimeoutAt, forks,
    interval, sleep, sleep_until, statistics, timeout, timeout_at,
};
pub use tick::{TICK, TICKS_AHEAD_MAX, Tick, ticks_ceil};
pub use wheel::Wheel;
