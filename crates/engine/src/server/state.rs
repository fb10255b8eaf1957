//! State that the loops of one server share.

use super::Settings;
use super::ending::Ending;
use super::link::{LoopLink, Message};
use super::pool::Pool;
use super::statistics::Statistics;
use dwell_evloop::{Fleet, Lifecycle, Sender, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Clients that a loop may have more than another before it hands over those it accepts, besides an
/// eighth of the other's.
const HAND_OVER_AHEAD: usize = 8;

/// State that the loops of one server share.
#[derive(Debug)]
pub(crate) struct ServerState {
    loops: Fleet<Message>,
    links: Vec<Arc<LoopLink>>,
    pool: Arc<Pool>,
    max_connections: usize,
    /// Clients that have a place, wherever they are.
    admitted: AtomicUsize,
    ending: Ending,
    cut_connections: AtomicUsize,
    cut_requests: AtomicUsize,
    /// Handlers on threads of their own that have panicked.
    panics: AtomicU64,
}

impl ServerState {
    pub(super) fn new(links: Vec<Arc<LoopLink>>, pool: Arc<Pool>, settings: &Settings) -> Self {
        let inboxes = links.iter().map(|link| Sender::clone(link.sender()));
        Self {
            loops: Fleet::new(inboxes.collect()),
            links,
            pool,
            max_connections: settings.max_connections,
            admitted: AtomicUsize::new(0),
            ending: Ending::default(),
            cut_connections: AtomicUsize::new(0),
            cut_requests: AtomicUsize::new(0),
            panics: AtomicU64::new(0),
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
        let ahead = (load / 8).saturating_add(HAND_OVER_AHEAD);
        if open < load.saturating_add(ahead) {
            return Some(stream);
        }
        least.hand_over(stream, || self.is_draining()).err()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.loops.lifecycle() >= Lifecycle::Drain
    }

    /// Ends every loop within `deadline`, or within one that was given before and is nearer.
    pub(super) fn drain(&self, deadline: Duration) {
        self.ending.set(Instant::now(), deadline);
        self.loops.advance(Lifecycle::Drain);
    }

    /// The latest time at which the server ends, if it does.
    pub(super) fn deadline(&self) -> Option<Instant> {
        // Set before the loops drain, so a loop that drains finds it.
        self.is_draining().then(|| self.ending.deadline()).flatten()
    }

    /// Loops that have not ended.
    pub(super) fn running(&self) -> usize {
        self.loops.running()
    }

    /// A loop has ended: the first one, which hears the signals, may wait for that.
    pub(super) fn count_end(&self) {
        self.loops.count_end();
    }

    /// A handler on a thread of its own has panicked.
    pub(super) fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
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
            panics: self.panics.load(Ordering::Relaxed),
            ..Statistics::default()
        };
        for link in &self.links {
            link.figures.add_to(&mut sums);
        }
        self.pool.add_to(&mut sums);
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::Message;
    use super::super::builder::ServerBuilder;
    use super::*;
    use dwell_evloop::EventLoop;

    fn server(loops: &[EventLoop<Message>]) -> ServerState {
        let settings = ServerBuilder::default().settings;
        let link = |each: &EventLoop<Message>| Arc::new(LoopLink::new(each.sender(), &settings));
        let pool = Arc::new(Pool::new(1, 1));
        ServerState::new(loops.iter().map(link).collect(), pool, &settings)
    }

    fn stream() -> Stream {
        Stream::from_unix(mio::net::UnixStream::pair().unwrap().0)
    }

    #[test]
    fn clients_go_to_the_least_loaded_loop_that_is_there() {
        let loops: Vec<_> = (0..3).map(|_| EventLoop::new().unwrap()).collect();
        let server = server(&loops);
        let [own, other, third] = server.links.as_slice() else {
            unreachable!("three loops");
        };
        third.set_connections(1);
        assert!(server.balance(own, 7, stream()).is_some(), "not that much");
        assert!(server.balance(own, 8, stream()).is_none());
        assert_eq!((other.load(), other.is_awaited()), (1, true));
        other.leave();
        assert!(server.balance(own, 9, stream()).is_none());
        assert_eq!((third.load(), third.is_awaited()), (2, true));
        third.leave();
        assert!(server.balance(own, 1_000_000, stream()).is_some());
    }

    #[test]
    fn nobody_is_handed_over_while_the_server_ends() {
        let loops: Vec<_> = (0..2).map(|_| EventLoop::new().unwrap()).collect();
        let server = server(&loops);
        let other = &server.links[1];
        // It ends between the choice of a loop and the announcement.
        let kept = other.hand_over(stream(), || {
            server.drain(Duration::ZERO);
            assert!(other.is_awaited(), "the other loop waits for who may come");
            server.is_draining()
        });
        assert!(kept.is_err());
        assert!(!other.is_awaited());
        assert!(server.balance(&server.links[0], 100, stream()).is_some());
    }
}
