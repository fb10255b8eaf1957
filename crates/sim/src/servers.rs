//! The servers that have the values of a run, where the process has no store.

use crate::keys::{Broken, Key};
use crate::memcached::{MemcachedAct, Servers};
use crate::options::Options;
use crate::redis::{ClusterAct, RedisAct, RedisServer};
use crate::report::Counts;
use crate::step::Order;
use dwell_evloop::sim::SimNet;
use dwell_testkit::sim::SimTls;
use std::time::Duration;

/// Servers of one kind or the other, or none.
pub(crate) struct ValueServers {
    memcached: Option<Servers>,
    redis: Option<RedisServer>,
}

impl ValueServers {
    /// The servers of a seed; those of memcached have these certificates, if any.
    pub(crate) fn new(options: &Options, tls: Option<&SimTls>) -> Self {
        let (memcached, redis) = (options.memcached.as_ref(), options.redis.as_ref());
        Self {
            memcached: memcached.map(|it| Servers::new(it, options.seed, tls)),
            redis: redis.map(|it| RedisServer::new(it, options.seed)),
        }
    }

    /// Returns true if there are some.
    pub(crate) fn are_there(&self) -> bool {
        self.memcached.is_some() || self.redis.is_some()
    }

    /// Begins or ends the faults.
    pub(crate) fn set_rough(&mut self, is_rough: bool, now: Duration) {
        if let Some(memcached) = &mut self.memcached {
            memcached.set_rough(is_rough, now);
        }
        if let Some(redis) = &mut self.redis {
            redis.set_rough(is_rough, now);
        }
    }

    /// Has a writer's command carried out, when that can be; returns true if there is a server.
    pub(crate) fn write(
        &mut self,
        key: usize,
        order: Order,
        keys: &mut [Key],
        now: Duration,
    ) -> bool {
        if let Some(memcached) = &mut self.memcached {
            memcached.write(key, order, keys, now);
        }
        if let Some(redis) = &mut self.redis {
            redis.write(key, order, keys, now);
        }
        self.are_there()
    }

    /// Drops all values of the servers that run; returns true if there is one.
    pub(crate) fn flush_all(&self, keys: &mut [Key], now: Duration) -> bool {
        if let Some(memcached) = &self.memcached {
            memcached.flush_all(keys, now);
        }
        if let Some(redis) = &self.redis {
            redis.flush_all(keys, now);
        }
        self.are_there()
    }

    /// Something befalls a memcached server; returns the name of the fault, if it strikes.
    pub(crate) fn befall_memcached(
        &mut self,
        server: usize,
        act: MemcachedAct,
        keys: &mut [Key],
        network: &SimNet,
    ) -> Option<&'static str> {
        let memcached = self.memcached.as_mut()?;
        Some(memcached.act(server, act, keys, network)?.name())
    }

    /// Something befalls a slot of a cluster; returns the name of the fault, if it strikes.
    pub(crate) fn befall_slot(
        &mut self,
        act: (usize, ClusterAct),
        keys: &mut [Key],
        now: Duration,
    ) -> Option<&'static str> {
        Some(self.redis.as_mut()?.act_on_slot(act, keys, now)?.name())
    }

    /// The servers of a cluster that have keys, or the one Redis.
    pub(crate) fn primaries(&self) -> usize {
        self.redis.as_ref().map_or(0, RedisServer::primaries)
    }

    /// Something befalls a Redis; returns the name of the fault, if it strikes.
    pub(crate) fn befall_redis(
        &mut self,
        act: (usize, RedisAct),
        keys: &mut [Key],
        network: &SimNet,
    ) -> Option<&'static str> {
        Some(self.redis.as_mut()?.act(act, keys, network)?.name())
    }

    /// Has the names of a Redis lead to where it is.
    pub(crate) fn begin_names(&self, network: &SimNet) {
        if let Some(redis) = &self.redis {
            redis.begin_names(network);
        }
    }

    /// Returns true if the edge is to look names up by then, or at all.
    pub(crate) fn is_to_look_up(&self, by: Option<Duration>) -> bool {
        self.redis
            .as_ref()
            .is_some_and(|redis| redis.is_to_look_up(by))
    }

    /// The edge has looked names up.
    pub(crate) fn has_looked_up(&mut self, now: Duration) {
        if let Some(redis) = &mut self.redis {
            redis.has_looked_up(now);
        }
    }

    /// Ends the connections of memcached; lookups may fail until then, and for a while more.
    pub(crate) fn cut_memcached(&mut self, until: Duration) {
        if let Some(memcached) = &mut self.memcached {
            memcached.cut(until);
        }
    }

    /// Reads of each key in Redis so far.
    pub(crate) fn reads(&self, keys: &[Key]) -> Vec<u64> {
        let redis = self.redis.as_ref();
        redis.map_or_else(Vec::new, |redis| redis.reads(keys))
    }

    /// The moments until which changes may be found late, and lookups may fail, for their faults.
    pub(crate) fn hindered_until(&self) -> Option<(Duration, Duration)> {
        let memcached = self.memcached.as_ref().map(|it| it.hindered_until);
        let redis = self.redis.as_ref().map(RedisServer::hindered_until);
        memcached.map(|until| (until, until)).or(redis)
    }

    /// The moment at which one of them goes on by itself.
    pub(crate) fn next_at(&self, now: Duration) -> Option<Duration> {
        let memcached = self.memcached.as_ref().and_then(|it| it.next_at(now));
        let redis = self.redis.as_ref().and_then(|it| it.next_at(now));
        memcached.or(redis)
    }

    /// Has them go on, and takes in what has become of keys.
    ///
    /// # Errors
    /// If the edge has stored what it may not.
    pub(crate) fn attend(
        &mut self,
        network: &SimNet,
        keys: &mut [Key],
        counts: &mut Counts,
    ) -> Result<(), Broken> {
        if let Some(memcached) = &mut self.memcached {
            memcached.attend(network, keys, counts)?;
        }
        if let Some(redis) = &mut self.redis {
            redis.attend(network, keys, counts)?;
        }
        Ok(())
    }
}
