//! The other clients in Rust.

use crate::{Failure, VALUE};
use async_memcached::AsciiProtocol;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The crate `memcache`, with its text protocol.
pub struct MemcacheCrate(memcache::Client);

impl MemcacheCrate {
    pub fn new(server: &str, timeout: Duration) -> Result<Self, Failure> {
        let timeout = timeout.as_secs_f64();
        let url = format!("memcache://{server}?timeout={timeout}&protocol=ascii&tcp_nodelay=true");
        Ok(Self(memcache::connect(url)?))
    }

    pub fn set(&mut self, key: &str) -> Result<(), Failure> {
        Ok(self.0.set(key, VALUE, 0)?)
    }

    pub fn get(&mut self, key: &str) -> Result<bool, Failure> {
        Ok(self.0.get::<Vec<u8>>(key)?.is_some())
    }
}

/// The crate `async-memcached` on a runtime of one thread, as it is or under tokio's `timeout`.
pub struct AsyncMemcached {
    runtime: Runtime,
    client: async_memcached::Client,
    timeout: Option<Duration>,
}

impl AsyncMemcached {
    pub fn new(server: &str, timeout: Option<Duration>) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = runtime.block_on(async_memcached::Client::new(format!("tcp://{server}")))?;
        Ok(Self {
            runtime,
            client,
            timeout,
        })
    }

    pub fn set(&mut self, key: &str) -> Result<(), Failure> {
        let Self {
            runtime,
            client,
            timeout,
        } = self;
        let set = client.set(key, VALUE, None, None);
        match timeout {
            None => Ok(runtime.block_on(set)?),
            Some(timeout) => {
                let timeout = *timeout;
                Ok(runtime.block_on(async { tokio::time::timeout(timeout, set).await })??)
            }
        }
    }

    pub fn get(&mut self, key: &str) -> Result<bool, Failure> {
        let Self {
            runtime,
            client,
            timeout,
        } = self;
        let get = client.get(key);
        let found = match timeout {
            None => runtime.block_on(get)?,
            Some(timeout) => {
                let timeout = *timeout;
                runtime.block_on(async { tokio::time::timeout(timeout, get).await })??
            }
        };
        Ok(found.is_some())
    }
}
