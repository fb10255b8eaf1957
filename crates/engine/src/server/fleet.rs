//! What the loops of one server have in common.

use super::Settings;
use super::link::{LoopLink, Message};
use super::pool::Pool;
use super::statistics::Statistics;
use dwell_evloop::Stream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How many clients a loop may be ahead of another before it hands over what it accepts, beside
/// an eighth of the other's.
const HAND_OVER_AHEAD: usize = 8;

/// All loops of a server.
#[derive(Debug)]
pub(crate) struct Fleet {
    links: Vec<Arc<LoopLink>>,
    pool: Arc<Pool>,
    max_connections: usize,
    /// Clients that have a place, wherever they are.
    admitted: AtomicUsize,
    draining: AtomicBool,
    cut_connections: AtomicUsize,
    cut_requests: AtomicUsize,
}

impl Fleet {
    pub(super) fn new(links: Vec<Arc<LoopLink>>, pool: Arc<Pool>, settings: &Settings) -> Self {
        Self {
            links,
            pool,
            max_connections: settings.max_connections,
            admitted: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            cut_connections: AtomicUsize::new(0),
            cut_requests: AtomicUsize::new(0),
        }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Takes one of the places for clients, if one is left.
    pub(super) fn admit(&self) -> bool {
        let places = &self.admitted;
        let taken = places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < self.max_connections).then_some(taken + 1)
        });
        taken.is_ok()
    }

    /// Gives places back.
    pub(super) fn release(&self, places: usize) {
        self.admitted.fetch_sub(places, Ordering::Relaxed);
    }

    /// Gives a client to the least loaded loop, if the loop `own` is well ahead of it with `open`
    /// clients; gives it back otherwise.
    pub(super) fn balance(&self, own: &LoopLink, open: usize, stream: Stream) -> Option<Stream> {
        if self.links.len() == 1 || self.is_draining() {
            return Some(stream);
        }
        let others = self
            .links
            .iter()
            .filter(|link| !std::ptr::eq(Arc::as_ptr(link), own));
        let Some(least) = others.min_by_key(|link| link.load()) else {
            return Some(stream);
        };
        let load = least.load();
        if open < load + load / 8 + HAND_OVER_AHEAD {
            return Some(stream);
        }
        least.hand_over(stream).err()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Tells every loop to end within `deadline`.
    pub(super) fn drain(&self, deadline: Duration) {
        self.draining.store(true, Ordering::Relaxed);
        for link in &self.links {
            // An inbox holds a million messages; a loop that has not read that many is lost.
            let _ = link.sender().send(Message::Drain(deadline));
        }
    }

    /// A loop has come to its deadline with so much left.
    pub(super) fn count_cut(&self, connections: usize, requests: usize) {
        self.cut_connections
            .fetch_add(connections, Ordering::Relaxed);
        self.cut_requests.fetch_add(requests, Ordering::Relaxed);
    }

    pub(super) fn cut(&self) -> (usize, usize) {
        (
            self.cut_connections.load(Ordering::Relaxed),
            self.cut_requests.load(Ordering::Relaxed),
        )
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let mut sums = Statistics {
            loops: self.links.len(),
            connections: self.admitted.load(Ordering::Relaxed),
            ..Statistics::default()
        };
        for link in &self.links {
            link.figures.add_to(&mut sums);
        }
        self.pool.add_to(&mut sums);
        sums
    }
}
