//! Operations on every server at once.

use std::sync::Arc;
use std::time::Duration;

use dwell_proto::memcache::encode::request;
use dwell_proto::memcache::{Key, Reply};

use super::budget::Budget;
use super::cluster::{Cluster, Failed};
use super::connection::{Progress, Take};
use super::fault::Fault;
use super::parallel::{self, Ended, Job};
use super::{Client, Error, raw};

/// The results of all servers with their addresses, in the order in which they were given.
pub type PerServer<T> = Vec<(Arc<str>, Result<T, Error>)>;

/// The statistics of one server by name, in its order.
pub type Stats = Vec<(String, String)>;

impl Client {
    /// Sends a command line to every server; returns each one's reply up to `end_token`.
    ///
    /// Shape: the client adds the end of the line. The reply comes without the token, and has at
    /// most [`value_bytes_max`](super::ClientOptions::value_bytes_max) bytes and 4096 more. An
    /// error line is an error, whatever the token is. The command is never sent twice.
    ///
    /// # Errors
    /// When the command or the token is empty.
    pub fn raw_command(
        &self,
        command: &[u8],
        end_token: &[u8],
    ) -> Result<PerServer<Vec<u8>>, Error> {
        let cluster = self.cluster();
        let mut budget = self.budget();
        let mut jobs = raw::jobs(self, command, end_token)?;
        parallel::run(cluster, &mut jobs, &mut budget);
        let outcomes = jobs.into_iter().map(Job::into_outcome);
        Ok(collect(cluster, raw::OPERATION, outcomes, &budget))
    }

    /// The version of each server.
    pub fn version(&self) -> PerServer<String> {
        self.ask_all(&version())
    }

    /// The statistics of each server, in general or about `argument` (`items`, `slabs` and so on),
    /// by name in the order the server gives them.
    ///
    /// # Errors
    /// When the argument cannot be sent.
    pub fn stats(&self, argument: Option<&str>) -> Result<PerServer<Stats>, Error> {
        Ok(self.ask_all(&stats(argument)?))
    }

    /// Makes every server forget all items after this delay, in whole seconds.
    pub fn flush_all(&self, delay: Duration) -> PerServer<()> {
        self.ask_all(&flush_all(delay))
    }

    /// Sends the same request to every server, ejected or not.
    fn ask_all<T: Default>(&self, question: &Question<T>) -> PerServer<T> {
        let cluster = self.cluster();
        let mut budget = self.budget();
        let mut jobs = question.jobs(cluster.servers.len());
        parallel::run(cluster, &mut jobs, &mut budget);
        let outcomes = jobs.into_iter().map(Job::into_outcome);
        collect(cluster, question.operation, outcomes, &budget)
    }
}

/// A request that is the same for every server, and the reader of its replies.
#[derive(Debug)]
pub(super) struct Question<T> {
    pub(super) operation: &'static str,
    wire: Vec<u8>,
    read: Read<T>,
}

/// Takes a reply, or returns that it does not fit.
type Read<T> = fn(&Reply<'_>, &mut T) -> Option<Progress>;

impl<T: Default> Question<T> {
    pub(super) fn jobs(&self, servers: usize) -> Vec<Job<Collect<T>>> {
        let job = |server| {
            let take = Collect {
                read: self.read,
                collected: T::default(),
            };
            Job::new(server, self.wire.clone(), true, take)
        };
        (0..servers).map(job).collect()
    }
}

pub(super) fn version() -> Question<String> {
    let mut wire = Vec::new();
    request::version(&mut wire);
    Question {
        operation: "version",
        wire,
        read: |reply, version| match reply {
            Reply::Version(text) => {
                *version = String::from_utf8_lossy(text).into_owned();
                Some(Progress::Done)
            }
            _ => None,
        },
    }
}

pub(super) fn stats(argument: Option<&str>) -> Result<Question<Stats>, Error> {
    let argument = argument.map(|text| Key::new(text.as_bytes())).transpose()?;
    let mut wire = Vec::new();
    request::stats(&mut wire, argument);
    Ok(Question {
        operation: "stats",
        wire,
        read: |reply, stats| match reply {
            Reply::Stat { name, value } if stats.len() < STATS_MAX => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                stats.push((text(name), text(value)));
                Some(Progress::More)
            }
            Reply::End | Reply::Reset => Some(Progress::Done),
            _ => None,
        },
    })
}

pub(super) fn flush_all(delay: Duration) -> Question<()> {
    let mut wire = Vec::new();
    match i64::try_from(delay.as_secs()) {
        Ok(seconds @ 1..) => request::flush_all_after(&mut wire, seconds),
        _ => request::flush_all(&mut wire, false),
    }
    Question {
        operation: "flush_all",
        wire,
        read: |reply, ()| match reply {
            Reply::Ok => Some(Progress::Done),
            _ => None,
        },
    }
}

/// Returns what each server has told.
pub(super) fn collect<T, C: Collected<T>>(
    cluster: &Cluster,
    operation: &'static str,
    outcomes: impl Iterator<Item = Ended<C>>,
    budget: &Budget,
) -> PerServer<T> {
    let told = |(server, take, result): Ended<C>| {
        let to_error = |failed: Failed| cluster.error(server, operation, failed, budget);
        let name = Arc::clone(&cluster.servers[server].name);
        (
            name,
            result.map(|()| take.into_collected()).map_err(to_error),
        )
    };
    outcomes.map(told).collect()
}

/// A receiver of the replies of one server.
pub(super) trait Collected<T> {
    /// Returns what was in them.
    fn into_collected(self) -> T;
}

/// Takes replies until one is the last.
#[derive(Debug)]
pub(super) struct Collect<T> {
    read: Read<T>,
    collected: T,
}

impl<T> Collected<T> for Collect<T> {
    fn into_collected(self) -> T {
        self.collected
    }
}

impl<T> Take for Collect<T> {
    fn take(&mut self, reply: &Reply<'_>) -> Result<Progress, Fault> {
        let progress = (self.read)(reply, &mut self.collected);
        progress.ok_or_else(|| Fault::of_reply(reply, true))
    }
}

/// More lines of statistics than this are no answer; memcached has a few hundred.
const STATS_MAX: usize = 1 << 16;
