//! Deliveries to loops and peers: the waits of all, and the calls between them.

use super::calendar::Event;
use super::current::with;
use super::end::{Owner, ended};
use super::network::{Network, Place, SimLoop};
use super::peer;
use crate::{Readiness, Token};
use std::io;
use std::time::Duration;

impl SimLoop {
    /// A new loop on the network of this thread, where that is simulated.
    pub(crate) fn on_this_thread() -> Option<Self> {
        with(Network::add_loop)
    }

    /// Waits for news of the loop, at most for so long, and takes them; true if more are left.
    pub(crate) fn wait(
        self,
        timeout: Option<Duration>,
        news: &mut Vec<(Token, Readiness)>,
    ) -> io::Result<bool> {
        let until = with(|network| {
            network.elapsed += TURN_NANOS;
            timeout.map(|timeout| network.elapsed + timeout.as_nanos() as u64)
        });
        run(Some(self), until.ok_or_else(ended)?);
        with(|network| network.take_news(self, news)).ok_or_else(ended)
    }

    /// Returns true if a wait of the loop would end at once.
    pub(crate) fn is_due(self) -> bool {
        with(|network| network.has_news(self)).unwrap_or_default()
    }

    /// Ends the wait of the loop.
    pub(crate) fn wake(self) {
        with(|network| network.wake(self));
    }
}

/// The act that follows a step.
enum Step {
    /// Call the peer that has this end.
    Serve(u32),
    Again,
    Done,
}

/// The time a turn takes: a loop that never waits gets on in time all the same.
const TURN_NANOS: u64 = 10_000;
/// Events that one turn takes.
const EVENTS_PER_TURN: usize = 1024;

impl Network {
    /// Takes in what has happened to a place.
    pub(super) fn note(&mut self, what: &str, handle: u32, number: u64) {
        let mut kind = [0; 8];
        kind[..what.len()].copy_from_slice(what.as_bytes());
        let handle = u64::from(handle - self.first);
        let entry = [self.elapsed, u64::from_le_bytes(kind), handle, number];
        self.trace.note(entry);
        self.remark(|| format!("  net {what} {handle} {number}"));
    }

    /// Keeps a line, if lines are kept.
    pub(super) fn remark(&mut self, line: impl FnOnce() -> String) {
        let seconds = self.elapsed().as_secs_f64();
        if let Some(record) = &mut self.record {
            record.push(format!("{seconds:12.6} {}", line()));
        }
    }

    /// Carries out what is due, until a loop has something or its time is over.
    fn step(&mut self, event_loop: Option<SimLoop>, until: Option<u64>) -> Step {
        while let Some(event) = self.calendar.take_due(self.elapsed) {
            self.happen(event);
            if let Event::Serve { end } = event {
                return Step::Serve(end);
            }
        }
        if event_loop.is_some_and(|event_loop| self.has_news(event_loop)) {
            return Step::Done;
        }
        match (self.calendar.next_at(), until) {
            (Some(next), until) if until.is_none_or(|until| next <= until) => {
                self.elapsed = next;
                Step::Again
            }
            (_, Some(until)) => {
                self.elapsed = self.elapsed.max(until);
                Step::Done
            }
            (_, None) => panic!("a simulated loop waits for ever: nothing is going to happen"),
        }
    }

    /// True if a wait of the loop ends now. What is marked and not ready (any more) ends none.
    fn has_news(&mut self, SimLoop(event_loop): SimLoop) -> bool {
        let Some(waiting) = self.waiting(event_loop) else {
            return true;
        };
        if waiting.is_woken {
            return true;
        }
        let marked = std::mem::take(&mut waiting.marked);
        let (ready, idle): (Vec<u32>, Vec<u32>) = marked
            .into_iter()
            .partition(|handle| self.told(SimLoop(event_loop), *handle).is_some());
        for handle in idle {
            self.unmark(handle);
        }
        let has_news = !ready.is_empty();
        if let Some(waiting) = self.waiting(event_loop) {
            waiting.marked = ready;
        }
        has_news
    }

    /// The news of a socket for a loop; `None` if there are none.
    fn told(&mut self, SimLoop(of): SimLoop, handle: u32) -> Option<(Token, Readiness)> {
        let (owner, readiness) = match self.place(handle)? {
            Place::End(end) if end.is_closed => return None,
            Place::End(end) => {
                let (owner, other) = (end.owner, end.other);
                let room = self.end(other).map_or(0, |other| other.incoming.room());
                (owner, self.end(handle)?.readiness(room))
            }
            Place::Listener(one) if !one.has_some() => return None,
            Place::Listener(one) => (one.owner, Readiness::READABLE),
            Place::Loop(_) => return None,
        };
        let Owner::Loop { event_loop, token } = owner else {
            return None;
        };
        let is_told = event_loop == of && readiness != Readiness::default();
        is_told.then_some((token, readiness))
    }

    /// Has no loop told of a socket any more. What its loop has not been told yet is for the next
    /// one that has it.
    pub(super) fn deregister(&mut self, handle: u32) {
        let owner = match self.place(handle) {
            Some(Place::End(end)) => end.owner,
            Some(Place::Listener(listening)) => listening.owner,
            Some(Place::Loop(_)) | None => return,
        };
        if let Owner::Loop { event_loop, .. } = owner
            && let Some(waiting) = self.waiting(event_loop)
        {
            waiting.marked.retain(|marked| *marked != handle);
            self.unmark(handle);
        }
        self.set_owner(handle, Owner::Test);
    }

    /// Takes what a loop is told now, in an order that the seed chooses; true if more is left.
    fn take_news(&mut self, event_loop: SimLoop, news: &mut Vec<(Token, Readiness)>) -> bool {
        let Some(waiting) = self.waiting(event_loop.0) else {
            return false;
        };
        waiting.is_woken = false;
        let mut marked = std::mem::take(&mut waiting.marked);
        let shuffled = if self.link.is_shuffled {
            marked.len()
        } else {
            0
        };
        for place in (1..shuffled).rev() {
            marked.swap(place, self.random.below(place as u64 + 1) as usize);
        }
        let left = marked.split_off(marked.len().min(EVENTS_PER_TURN));
        let has_more = !left.is_empty();
        if let Some(waiting) = self.waiting(event_loop.0) {
            waiting.marked = left;
        }
        for handle in marked {
            self.unmark(handle);
            if let Some((token, readiness)) = self.told(event_loop, handle) {
                self.note("ready", handle, readiness.bits());
                news.push((token, readiness));
            }
        }
        has_more
    }
}

/// Lets so much time pass.
pub(super) fn pass(time: Duration) {
    let until = with(|network| network.elapsed + time.as_nanos() as u64);
    run(None, until);
}

/// Takes steps, and calls peers between them: a peer uses the network itself.
fn run(event_loop: Option<SimLoop>, until: Option<u64>) {
    loop {
        match with(|network| network.step(event_loop, until)) {
            Some(Step::Again) => {}
            Some(Step::Serve(end)) => peer::serve(end),
            Some(Step::Done) | None => return,
        }
    }
}
