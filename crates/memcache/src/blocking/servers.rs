//! Operations on every server at once.

use std::sync::Arc;
use std::time::Duration;

use dwell_proto::memcache::encode::request;
use dwell_proto::memcache::{Key, Reply};

use super::cluster::Failed;
use super::connection::{Progress, Take};
use super::fault::Fault;
use super::parallel::{self, Job};
use super::{Client, Error};

/// The results of all servers with their addresses, in the order in which they were given.
pub type PerServer<T> = Vec<(Arc<str>, Result<T, Error>)>;

impl Client {
    /// The version of each server.
    pub fn version(&self) -> PerServer<String> {
        let mut wire = Vec::new();
        request::version(&mut wire);
        self.ask_all(
            "version",
            &wire,
            |reply, version: &mut String| match reply {
                Reply::Version(text) => {
                    *version = String::from_utf8_lossy(text).into_owned();
                    Some(Progress::Done)
                }
                _ => None,
            },
        )
    }

    /// The statistics of each server, in general or about `argument` (`items`, `slabs` and so on),
    /// by name in the order the server gives them.
    ///
    /// # Errors
    /// When the argument cannot be sent.
    pub fn stats(&self, argument: Option<&str>) -> Result<PerServer<Vec<(String, String)>>, Error> {
        let argument = argument.map(|text| Key::new(text.as_bytes())).transpose()?;
        let mut wire = Vec::new();
        request::stats(&mut wire, argument);
        Ok(
            self.ask_all("stats", &wire, |reply, stats: &mut Vec<_>| match reply {
                Reply::Stat { name, value } if stats.len() < STATS_MAX => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    stats.push((text(name), text(value)));
                    Some(Progress::More)
                }
                Reply::End | Reply::Reset => Some(Progress::Done),
                _ => None,
            }),
        )
    }

    /// Makes every server forget all items, so long from now; in whole seconds.
    pub fn flush_all(&self, delay: Duration) -> PerServer<()> {
        let mut wire = Vec::new();
        match i64::try_from(delay.as_secs()) {
            Ok(seconds @ 1..) => request::flush_all_after(&mut wire, seconds),
            _ => request::flush_all(&mut wire, false),
        }
        self.ask_all("flush_all", &wire, |reply, (): &mut ()| match reply {
            Reply::Ok => Some(Progress::Done),
            _ => None,
        })
    }

    /// Sends the same request to every server, ejected or not. `read` takes a reply, or returns
    /// that it does not fit.
    fn ask_all<T: Default>(
        &self,
        operation: &'static str,
        wire: &[u8],
        read: impl Fn(&Reply<'_>, &mut T) -> Option<Progress>,
    ) -> PerServer<T> {
        let cluster = self.cluster();
        let mut budget = self.budget();
        let mut jobs: Vec<_> = (0..cluster.servers.len())
            .map(|server| {
                let take = Collect {
                    read: &read,
                    collected: T::default(),
                };
                Job::new(server, wire.to_vec(), true, take)
            })
            .collect();
        parallel::run(cluster, &mut jobs, &mut budget);
        jobs.into_iter()
            .map(|job| {
                let (server, take, result) = job.into_outcome();
                let to_error = |failed: Failed| cluster.error(server, operation, failed, &budget);
                let name = Arc::clone(&cluster.servers[server].name);
                (name, result.map(|()| take.collected).map_err(to_error))
            })
            .collect()
    }
}

/// Takes replies until one is the last.
#[derive(Debug)]
struct Collect<'r, T, R> {
    read: &'r R,
    collected: T,
}

impl<T, R: Fn(&Reply<'_>, &mut T) -> Option<Progress>> Take for Collect<'_, T, R> {
    fn take(&mut self, reply: &Reply<'_>) -> Result<Progress, Fault> {
        let progress = (self.read)(reply, &mut self.collected);
        progress.ok_or_else(|| Fault::of_reply(reply, true))
    }
}

/// More lines of statistics than this are no answer; memcached has a few hundred.
const STATS_MAX: usize = 1 << 16;
