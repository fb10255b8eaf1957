//! Timers: callbacks that are due at a time.

use super::hub::Message;
use super::{Scope, Waker};
use dwell_evloop::{Context, Readiness, Token};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The function that a timer calls.
pub(super) type Callback = Box<dyn FnMut(&mut Scope<'_>) + Send>;

/// A timer of the manager's.
pub(super) struct TimerEntry {
    /// Taken out while it runs.
    pub(super) callback: Option<Callback>,
    /// The instant at which it is due.
    pub(super) due: Instant,
    /// After which it is due again.
    pub(super) interval: Option<Duration>,
    pub(super) is_active: Arc<AtomicBool>,
}

impl TimerEntry {
    /// Sets the next time of one that repeats: on its grid, which a late turn does not move.
    /// Times that have passed meanwhile are left out. False where it does not repeat.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        let Some(interval) = self.interval else {
            return false;
        };
        self.due += interval;
        if self.due <= now {
            let behind = now.duration_since(self.due).as_nanos();
            let skipped = behind / interval.as_nanos().max(1) + 1;
            self.due += interval.saturating_mul(u32::try_from(skipped).unwrap_or(u32::MAX));
        }
        true
    }

    /// Sets the deadline; one that is due by now is delivered in the next turn.
    pub(super) fn arm(&self, context: &mut Context, token: Token) {
        let left = self.due.saturating_duration_since(context.now());
        if left.is_zero() {
            context.again(token, Readiness::default());
        } else {
            context.arm(token, left);
        }
    }
}

/// A timer that was set, to cancel it; dropping it does not.
///
/// ```
/// use dwell_engine::manager::{Manager, Timer};
/// use std::time::Duration;
///
/// let mut manager = Manager::new(|_, _| {})?;
/// let timer: Timer = manager.timer(Duration::from_secs(1), true, |_| println!("tick"))?;
/// assert!(timer.is_active());
/// timer.cancel();
/// assert!(!timer.is_active());
/// # Ok::<(), dwell_engine::manager::ManagerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Timer {
    pub(super) token: Token,
    pub(super) is_active: Arc<AtomicBool>,
    pub(super) waker: Waker,
}

impl Timer {
    /// Ends the timer, from any thread; on the manager's own no call of it follows, on others none
    /// that does not run already.
    pub fn cancel(&self) {
        if self.is_active.swap(false, Ordering::AcqRel) {
            // Only frees its memory; a manager that is gone has done so.
            let _ = self.waker.send(Message::ForgetTimer(self.token));
        }
    }

    /// Returns true if it will call again.
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_timer_keeps_its_grid_and_leaves_out_what_has_passed() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut entry = TimerEntry {
            callback: None,
            due: start + ms(20),
            interval: Some(ms(20)),
            is_active: Arc::default(),
        };
        assert!(entry.advance(start + ms(25)));
        assert_eq!(entry.due, start + ms(40));
        assert!(entry.advance(start + ms(95)));
        assert_eq!(entry.due, start + ms(100));
        assert!(entry.advance(start + ms(100)));
        assert_eq!(entry.due, start + ms(120));
        entry.interval = None;
        assert!(!entry.advance(start));
    }
}
