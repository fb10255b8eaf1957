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
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod bitmap;
mod chunks;
mod elapsed;
mod shared;
mod tick;
mod wheel;

pub use elapsed::Elapsed;
pub use shared::{
    Deadline, Interval, ManualClock, Sleep, SleepUntil, Statistics, Timeout, TimeoutAt, interval,
    sleep, sleep_until, statistics, timeout, timeout_at,
};
pub use tick::{TICK, TICKS_AHEAD_MAX, Tick, ticks_ceil};
pub use wheel::Wheel;
