//! Processes beside the one that serves: its successors, the application, and memcached.

use super::World;
use crate::app::App;
use crate::failure::{Failure, Oracle};
use crate::keys::Broken;
use crate::memcached::MemcachedAct;
use crate::outward::{Behind, WrongCertificate};
use crate::redis::RedisAct;
use crate::reload;
use crate::upgrade::{Upgrade, UpgradeStep};

impl World {
    /// Starts a successor, where one may start.
    pub(super) fn begin_upgrade(&mut self, upgrade: Upgrade) {
        let config = reload::config(&self.options, self.at, upgrade.changes, None);
        if self.edge.begin_upgrade(config).is_ok_and(|begins| begins) {
            self.hindrances.upgrades.begin(upgrade, self.now());
        }
    }

    /// Has the successor serve, or end, when its time has come.
    pub(super) fn follow_upgrade(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let upgrades = &mut self.hindrances.upgrades;
        if self.edge.has_predecessor() && !upgrades.hands_over(now) {
            let reason = format!("a process goes on after {:?}", upgrades.hands_over_until());
            return Err(self.failure((Oracle::Deadline, reason)));
        }
        let step = upgrades.take_due(now);
        if step.is_some() {
            // All loops have stood still up to now, or do from now on.
            self.hindrances.stand_still(now);
        }
        match step {
            Some(UpgradeStep::Pause) => self.edge.pause_for_upgrade(),
            Some(UpgradeStep::Serve) => {
                self.network()
                    .remark(|| "another process serves".to_owned());
                self.counts.reach("upgrade");
                let committed = self.edge.commit_upgrade();
                committed.map_err(|error| self.failure((Oracle::Panic, error.to_string())))?;
            }
            Some(UpgradeStep::End) => {
                self.counts.reach("upgrade given up");
                self.edge.abort_upgrade();
            }
            None => {}
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

    /// Something befalls the Redis.
    pub(super) fn befall_redis(&mut self, act: RedisAct) {
        let now = self.now();
        if let Some(name) = self.servers.befall_redis(act, &mut self.keys, now) {
            self.counts.strike(name);
        }
    }

    /// Has servers show a wrong certificate for a while, to connections that are made anew.
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
        self.hindrances.outward.check(&mut self.counts)
    }
}
