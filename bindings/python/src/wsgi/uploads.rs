//! Bodies on their way: what is kept of them before a worker is taken, and how many workers wait
//! for the rest.

use dwell_evloop::Token;
use std::collections::VecDeque;

/// The bodies of one loop that are not complete.
///
/// Shape: a body is gathered up to a bound before a worker has its request. Of the bodies that are
/// longer, so many are handed over at once that half of the workers are left for other requests.
#[derive(Debug)]
pub(super) struct Uploads {
    body_bytes_max: u64,
    bytes_max: u64,
    /// Bytes that are kept, or were granted.
    bytes: u64,
    /// Requests that a worker has, or will, while their body still comes.
    running: usize,
    /// Requests that wait until there are fewer of those.
    waiting: VecDeque<Token>,
}

/// The part of one exchange in it.
#[derive(Debug, Default)]
pub(super) struct Share {
    asked: u64,
    came: u64,
    /// Nothing is gathered of it.
    is_direct: bool,
    is_running: bool,
}

/// Bytes that are granted at once.
const WINDOW: u64 = 64 * 1024;

impl Uploads {
    /// Keeps `body_bytes_max` of each body, and `bytes_max` of all together.
    pub(super) fn new(body_bytes_max: u64, bytes_max: u64) -> Self {
        Self {
            body_bytes_max,
            bytes_max,
            bytes: 0,
            running: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Takes room for more of a body, and returns the bytes to grant; `None` when no more is
    /// gathered of it.
    ///
    /// Shape: 0 while what was asked for is still to come.
    pub(super) fn more(&mut self, share: &mut Share) -> Option<u64> {
        if share.is_direct || share.came >= self.body_bytes_max {
            return None;
        }
        if share.asked - share.came > WINDOW / 2 {
            return Some(0);
        }
        let wanted = WINDOW.min(self.body_bytes_max.saturating_sub(share.asked));
        if wanted == 0 {
            return Some(0);
        }
        if self.bytes + wanted > self.bytes_max {
            return None;
        }
        self.bytes += wanted;
        share.asked += wanted;
        Some(wanted)
    }

    /// Gives one of `workers` to a request whose body is not complete; false where it has to wait.
    pub(super) fn begin(&mut self, token: Token, share: &mut Share, workers: usize) -> bool {
        let may_run = self.has_room(workers);
        if may_run {
            self.run(share);
        } else {
            self.waiting.push_back(token);
        }
        may_run
    }

    /// Counts a request that has a worker while its body still comes.
    pub(super) fn run(&mut self, share: &mut Share) {
        self.running += 1;
        share.is_running = true;
    }

    fn has_room(&self, workers: usize) -> bool {
        self.running < (workers / 2).max(1)
    }

    /// The body is complete: its worker waits for it no more.
    pub(super) fn complete(&mut self, share: &mut Share) {
        self.running -= usize::from(std::mem::take(&mut share.is_running));
    }

    /// The exchange is over.
    pub(super) fn end(&mut self, mut share: Share) {
        self.complete(&mut share);
        self.bytes -= share.asked;
    }

    /// Requests that wait, or have waited and are gone.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Forgets those that are gone.
    pub(super) fn retain(&mut self, is_here: impl FnMut(&Token) -> bool) {
        self.waiting.retain(is_here);
    }

    /// Takes the request that has waited longest, if another one may have a worker.
    pub(super) fn next(&mut self, workers: usize) -> Option<Token> {
        if self.has_room(workers) {
            self.waiting.pop_front()
        } else {
            None
        }
    }
}

impl Share {
    /// Makes the share of a body that the app reads itself.
    pub(super) fn direct() -> Self {
        Self {
            is_direct: true,
            ..Self::default()
        }
    }

    /// Counts bytes that came.
    pub(super) fn add(&mut self, bytes: usize) {
        self.came += bytes as u64;
    }
}
