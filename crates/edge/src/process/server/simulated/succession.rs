//! The upgrade of a simulated process: the steps of `process/upgrade`, in one thread.

use super::Simulated;
use crate::config::Config;
use crate::handoff::{HandoffSender, InheritedListener, ReadsClient, TakesTls};
use crate::process::RunError;
use crate::process::inherited::Inherited;
use crate::process::listeners::Bound;
use crate::process::server::{EdgeServer, RunOptions};
use crate::process::upgrade::{take_items, write_items};
use dwell_evloop::sim::Planted;
use dwell_evloop::{Driver, Lifecycle};
use dwell_store_server::Moment;
use std::io;

impl Simulated {
    /// Starts a successor with this configuration: it has the listening sockets and could serve.
    /// Returns false, and does nothing, where SIGUSR2 would be refused.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn begin_upgrade(&mut self, config: Config) -> Result<bool, RunError> {
        let is_ending = self.server.fleet.lifecycle() != Lifecycle::Serve;
        if is_ending || self.before.is_some() || self.next.is_some() {
            return Ok(false);
        }
        let sockets = self.come_to_rest();
        let bind = |config: &Config, loops, demo| {
            let bound = Bound::bind(config, loops, demo, Inherited::handed(sockets))?;
            Ok((None, bound))
        };
        let server = EdgeServer::start_on(config, RunOptions::default(), bind)?;
        let next = Self::of(server);
        if Planted::EarlySnapshot.is_in() {
            self.give_items(&next).map_err(RunError::Upgrade)?;
        }
        self.next = Some(Box::new(next));
        Ok(true)
    }

    /// Returns true if a successor has started and does not serve yet.
    pub fn is_upgrading(&self) -> bool {
        self.next.is_some()
    }

    /// Returns true while the loops of the process before have not ended.
    pub fn has_predecessor(&self) -> bool {
        self.before.is_some()
    }

    /// Pauses all loops between two turns, while the successor takes the items: until it serves, or
    /// the upgrade is given up.
    pub fn pause_for_upgrade(&mut self) {
        if self.next.is_some() && !self.is_paused {
            drop(self.come_to_rest());
            self.is_paused = true;
        }
    }

    /// Returns true while the loops are paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Ends the successor, and goes on.
    pub fn abort_upgrade(&mut self) {
        self.next = None;
        if self.is_paused {
            self.end_pause();
        }
    }

    /// Has the successor serve: this is that process from now on. The loops of the other one hand
    /// their connections over, and end.
    ///
    /// # Errors
    /// If the successor does not take the items.
    pub fn commit_upgrade(&mut self) -> io::Result<()> {
        self.pause_for_upgrade();
        let Some(next) = self.next.take() else {
            return Ok(());
        };
        let [from, to] = [&self.server, &next.server].map(|it| it.certificates.acceptor());
        if let Some(keys) = from.freeze_ticket_keys() {
            to.thaw_ticket_keys(&keys).map_err(io::Error::other)?;
        }
        let takes = TakesTls::of(to);
        if !Planted::EarlySnapshot.is_in() {
            self.give_items(&next)?;
        }
        if let Some(service) = &self.server.service {
            service.store().retire();
        }
        let has_items = self.server.service.is_some();
        next.server.handoff.queue.open();
        let sender = HandoffSender::new(has_items).with_tls(takes, ReadsClient::of(to), from);
        self.server.handoff.begin(sender);
        self.server.fleet.advance(Lifecycle::HandOver);
        self.end_pause();
        let before = std::mem::replace(self, *next);
        self.before = Some(Box::new(before));
        self.take_given();
        Ok(())
    }

    /// Ends the process before, if all its loops have ended.
    pub(super) fn end_before(&mut self) {
        let has_ended = |before: &mut Box<Self>| before.loops.iter().all(Option::is_none);
        if self.before.take_if(has_ended).is_some() {
            self.server.handoff.queue.close();
        }
    }

    /// Takes the connections that the process before has given.
    pub(super) fn take_given(&mut self) {
        let Some(before) = &self.before else {
            return;
        };
        let Some(sender) = before.server.handoff.sender() else {
            return;
        };
        let (fleet, queue) = (&self.server.fleet, &self.server.handoff.queue);
        while let Some(connection) = sender.take(|| before.server.fleet.wake_all()) {
            fleet.wake(queue.put(self.taken, connection));
            self.taken += 1;
        }
    }

    /// The loops go on where they have waited, at the ends of their turns.
    fn end_pause(&mut self) {
        self.is_paused = false;
        for turned in self.loops.iter_mut().flatten() {
            turned.edge.turn_end(turned.event_loop.context());
        }
    }

    /// Has every loop come to rest, and returns their listening sockets.
    fn come_to_rest(&mut self) -> Vec<InheritedListener> {
        let mut sockets = Vec::new();
        for turned in self.loops.iter_mut().flatten() {
            turned.edge.settle(turned.event_loop.context());
            sockets.extend(turned.edge.servers.sockets());
        }
        sockets
    }

    /// Gives the successor the items of the store.
    fn give_items(&self, to: &Self) -> io::Result<()> {
        let (Some(from), Some(to)) = (&self.server.service, &to.server.service) else {
            return Ok(());
        };
        let mut items = Vec::new();
        write_items(from, &mut items)?;
        take_items(&mut &items[..], to, Moment::now())
    }
}
