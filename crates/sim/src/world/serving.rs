//! Processes beside the one that serves: its successors, the application, and memcached.

use super::{World, start};
use crate::app::App;
use crate::failure::{Failure, Oracle};
use crate::h2::SMUGGLED;
use crate::keys::Broken;
use crate::memcached::MemcachedAct;
use crate::outward::{Behind, WrongCertificate};
use crate::redis::{ClusterAct, RedisAct};
use crate::reload::{self, Reload};
use crate::upgrade::{Upgrade, UpgradeFault, UpgradeStep};
use dwell_edge::process::UpgradeNews;
use dwell_evloop::sim::SimStream;
use std::time::Duration;

impl World {
    /// Begins an upgrade, where one may begin.
    pub(super) fn begin_upgrade(&mut self, upgrade: Upgrade) {
        // Both processes have to know where servers are.
        self.look_up(None);
        let config = reload::config(&self.options, self.at, upgrade.changes, None);
        if self.edge.begin_upgrade(config) {
            self.await_frame(upgrade);
        }
    }

    /// The next step of an upgrade is that of the next frame.
    fn await_frame(&mut self, upgrade: Upgrade) {
        if let Some(frame) = self.edge.next_frame() {
            let now = self.now();
            self.hindrances.upgrades.await_frame(upgrade, frame, now);
        }
    }

    /// Has the next step of an upgrade done when its time has come.
    pub(super) fn follow_upgrade(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let upgrades = &mut self.hindrances.upgrades;
        let hands_over = self.edge.has_predecessor() && !self.edge.is_upgrading();
        if hands_over && !upgrades.hands_over(now) {
            let reason = format!("a process goes on after {:?}", upgrades.hands_over_until());
            return Err(self.failure((Oracle::Deadline, reason)));
        }
        if let Some((step, upgrade)) = upgrades.take_due(now) {
            self.step_of_upgrade(step, upgrade);
        }
        if !self.edge.has_predecessor()
            && !self.edge.is_upgrading()
            && let Some(next) = self.hindrances.upgrades.take_next()
        {
            self.counts.reach("upgrade right after another");
            self.begin_upgrade(next);
        }
        Ok(())
    }

    fn step_of_upgrade(&mut self, step: UpgradeStep, upgrade: Upgrade) {
        let now = self.now();
        let frame = self.edge.next_frame();
        self.network()
            .remark(|| format!("upgrade: {step:?} at {frame:?}"));
        // All loops have stood still up to now, or do from now on.
        self.hindrances.stand_still(now);
        if let UpgradeStep::Fault(fault) = step {
            self.counts.strike(fault.name());
        }
        let news = match step {
            UpgradeStep::Deliver => self.edge.deliver(),
            UpgradeStep::Fault(UpgradeFault::SuccessorEnds) => self.edge.lose_successor(),
            UpgradeStep::Fault(UpgradeFault::TimeOut) => self.edge.time_out_upgrade(),
            UpgradeStep::Fault(UpgradeFault::PredecessorEnds) => {
                self.cut_all();
                self.edge.lose_predecessor()
            }
        };
        match news {
            UpgradeNews::HandsOver => {
                self.counts.reach("upgrade");
                self.hindrances.changes = upgrade.changes;
                self.hindrances.upgrades.hand_over(upgrade, now);
            }
            UpgradeNews::GivenUp => self.counts.reach("upgrade given up"),
            UpgradeNews::AllGone => self.start_anew(),
            _ => self.await_frame(upgrade),
        }
    }

    /// Has every connection of a client or writer end, as those of a process that has gone.
    fn cut_all(&mut self) {
        let now = self.now();
        for client in &mut self.clients {
            client.leave(SimStream::reset);
        }
        self.intrusions.cut();
        if let Some(browsers) = &self.transports.browsers {
            browsers.leave();
        }
        for streamer in &mut self.followers.streams {
            streamer.leave(SimStream::reset, now);
        }
        for socket in &mut self.followers.sockets {
            socket.leave(SimStream::reset, &mut self.keys, now);
        }
        for publisher in &mut self.followers.publishers {
            publisher.reset(&mut self.keys, now);
        }
        for writer in &mut self.writers {
            writer.reset(&mut self.keys, now);
        }
    }

    /// Starts a process after all have gone.
    fn start_anew(&mut self) {
        self.counts.reach("start after all have gone");
        self.hindrances.changes = Reload::default();
        self.edge = start(&self.options, self.at);
    }

    /// Has the application there when it is to be.
    pub(super) fn follow_app(&mut self) {
        if self.options.has_app && self.app.is_none() && self.hindrances.has_app(self.now()) {
            let tls = self.hindrances.outward.of(Behind::App);
            let serve = |at| {
                let app = App::new(&self.app_record, tls);
                self.network.serve(at, app).ok()
            };
            let [first, second] = reload::APPS.map(|at| serve(at.into()));
            self.app = first.zip(second).map(|(first, second)| [first, second]);
        }
    }

    /// Ends the application and starts it again: its connections end, while none is in use.
    pub(crate) fn restart_app(&mut self) {
        self.app = None;
        self.follow_app();
    }

    /// Something befalls a memcached server.
    pub(super) fn befall(&mut self, server: usize, act: MemcachedAct) {
        let (keys, network) = (&mut self.keys, &self.network);
        let fault = self.servers.befall_memcached(server, act, keys, network);
        if let Some(name) = fault {
            self.counts.strike(name);
        }
    }

    /// Has the process look the names of servers up, if it is to do so by then, or at all.
    pub(super) fn look_up(&mut self, by: Option<Duration>) {
        if self.servers.is_to_look_up(by) {
            self.reload(self.hindrances.changes);
        }
    }

    /// Something befalls the Redis, or a server of its cluster.
    pub(super) fn befall_redis(&mut self, server: usize, act: RedisAct) {
        // The process before would not look the name up again.
        let is_one = !self.edge.is_upgrading() && !self.edge.has_predecessor();
        if matches!(act, RedisAct::Move(..)) && !is_one {
            return;
        }
        let (keys, network) = (&mut self.keys, &self.network);
        if let Some(name) = self.servers.befall_redis((server, act), keys, network) {
            self.counts.strike(name);
        }
    }

    /// Something befalls the slot of a key in a cluster.
    pub(super) fn befall_slot(&mut self, key: usize, act: ClusterAct) {
        let now = self.now();
        if let Some(name) = self.servers.befall_slot((key, act), &mut self.keys, now) {
            self.counts.strike(name);
        }
    }

    /// Has servers show a wrong certificate for a while, to connections that are made again.
    pub(super) fn show_wrong(&mut self, wrong: WrongCertificate) {
        let now = self.now();
        if !self.hindrances.outward.begin(wrong, now) {
            return;
        }
        match wrong.by {
            Behind::App => self.restart_app(),
            Behind::Memcached => self.servers.cut_memcached(now + wrong.time),
        }
        self.counts.strike(wrong.by.wrong());
    }

    /// Counts the faults of the application, and checks that no POST has come twice, and nothing to
    /// a server with a wrong certificate.
    pub(super) fn check_servers(&mut self) -> Result<(), Broken> {
        let mut app = self.app_record.borrow_mut();
        for fault in std::mem::take(&mut app.struck) {
            self.counts.strike(fault.name());
        }
        let repeated = app.repeated().map(|id| {
            let reason = format!("the POST {id} has come twice");
            (Oracle::OneRequest, reason)
        });
        repeated.map_or(Ok(()), Err)?;
        if app.has_come(SMUGGLED) {
            let reason = "the application has got a request within another one".to_owned();
            return Err((Oracle::OneRequest, reason));
        }
        self.hindrances.outward.check(&mut self.counts)
    }
}
