//! Deadlines on a 10 ms tick: a loop-local lazy timing wheel.
//!
//! A server holds far more deadlines than ever fire: every read, write and idle connection has
//! one, and nearly all of them are moved or cancelled first. [`Wheel`] makes those two operations
//! one store each and pays for the rest in bulk, once per tick.
//!
//! The wheel reads no clock and owns no thread. Whoever owns it reads the time once per turn,
//! turns it into a [`Tick`] and drains [`Wheel::pop_due`].
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
#![forbid(unsafe_code)]

mod bitmap;
mod chunks;
mod tick;
mod wheel;

pub use tick::{TICK, TICKS_AHEAD_MAX, Tick, ticks_ceil};
pub use wheel::Wheel;
