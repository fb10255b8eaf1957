//! Everybody who takes part, under one roof.

use crate::peers::{AsyncMemcached, MemcacheCrate};
use crate::raw::{Raw, Watch};
use crate::{Failure, VALUE};
use dwell_memcache::{Client, ClientOptions, Exptime, ServerOptions, Timeouts};
use std::time::Duration;

/// Every contender, by name.
pub const NAMES: [&str; 15] = [
    "dwell_none",
    "dwell_kernel",
    "dwell_reaper",
    "dwell_strict",
    "dwell_ring",
    "raw_none",
    "raw_kernel",
    "raw_alarm",
    "raw_rearm",
    "raw_pollfirst",
    "raw_watchdog",
    "raw_thread",
    "memcache_ascii",
    "async_memcached",
    "async_memcached_timeout",
];

/// One of them.
pub enum Contender {
    Dwell(Client),
    Raw(Box<Raw>),
    Memcache(MemcacheCrate),
    Async(AsyncMemcached),
}

impl Contender {
    /// Makes the one of that name.
    pub fn new(name: &str, server: &str, timeout: Duration) -> Result<Self, Failure> {
        let raw = |watch| Ok(Self::Raw(Box::new(Raw::connect(server, watch, timeout)?)));
        match name {
            "dwell_none" => dwell(&[server], None, Timeouts::Kernel),
            "dwell_kernel" => dwell(&[server], Some(timeout), Timeouts::Kernel),
            "dwell_reaper" => dwell(&[server], Some(timeout), Timeouts::Reaper),
            "dwell_strict" => dwell(&[server], Some(timeout), Timeouts::Strict),
            // One server under two names, as in 2009: the ring decides at every operation.
            "dwell_ring" => {
                let other = server.replace("127.0.0.1", "localhost");
                dwell(&[server, &other], Some(timeout), Timeouts::Kernel)
            }
            "raw_none" => raw(Watch::None),
            "raw_kernel" => raw(Watch::Kernel),
            "raw_alarm" => raw(Watch::Alarm),
            "raw_rearm" => raw(Watch::Rearm),
            "raw_pollfirst" => raw(Watch::PollFirst),
            "raw_watchdog" => raw(Watch::Watchdog),
            "raw_thread" => raw(Watch::Thread),
            "memcache_ascii" => Ok(Self::Memcache(MemcacheCrate::new(server, timeout)?)),
            "async_memcached" => Ok(Self::Async(AsyncMemcached::new(server, None)?)),
            "async_memcached_timeout" => {
                Ok(Self::Async(AsyncMemcached::new(server, Some(timeout))?))
            }
            _ => Err(format!("unknown contender: {name}").into()),
        }
    }

    /// Stores the value.
    pub fn set(&mut self, key: &str) -> Result<(), Failure> {
        match self {
            Self::Dwell(client) => Ok(client.set(key, VALUE, Exptime::Never)?),
            Self::Raw(raw) => raw.set(key),
            Self::Memcache(client) => client.set(key),
            Self::Async(client) => client.set(key),
        }
    }

    /// Gets the value; fails if there is none.
    pub fn get(&mut self, key: &str) -> Result<(), Failure> {
        let found = match self {
            Self::Dwell(client) => client.get(key)?.is_some(),
            Self::Raw(raw) => raw.get(key)?,
            Self::Memcache(client) => client.get(key)?,
            Self::Async(client) => client.get(key)?,
        };
        if found { Ok(()) } else { Err("a miss".into()) }
    }
}

fn dwell(
    servers: &[&str],
    timeout: Option<Duration>,
    timeouts: Timeouts,
) -> Result<Contender, Failure> {
    let servers = servers
        .iter()
        .map(|server| server.parse::<ServerOptions>())
        .collect::<Result<Vec<_>, _>>()?;
    let options = ClientOptions {
        timeout,
        timeouts,
        ..ClientOptions::default()
    };
    Ok(Contender::Dwell(Client::new(&servers, options)?))
}
