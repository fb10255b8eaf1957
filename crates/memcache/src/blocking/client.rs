//! The client and its operations on one key.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::budget::Budget;
use super::cluster::{Cluster, Failed, Outgoing};
use super::key::WireKey;
use super::options::{ClientOptions, ServerOptions};
use super::parallel::Ended;
use super::request::{Answer, Request, Response};
use super::{Error, Pipeline, ServerStatus};

/// A client of one or more memcached servers, for any number of threads.
///
/// Every operation returns within its timeout, whatever the servers do: the name lookup, the
/// connection, the request, the whole of the answer and a second attempt are in it. That costs
/// nothing: an operation with a timeout is two system calls, one send and one receive, as it is
/// without.
///
/// * A key that the server does not have is `None` or `false`, never an error; an [`Error`] has the
///   place, the side at fault, and whether the server may have acted.
/// * After a timeout, a malformed reply or any other doubt the connection is closed. No operation
///   ever reads the reply to another.
/// * Only an operation that can be repeated without effect is ever sent twice, and only if a
///   connection from the pool turns out to have ended while it was idle.
/// * It is cheap to clone, and works on in a child process after `fork`, on connections of its own.
///
/// ```no_run
/// use dwell_memcache::Client;
/// use std::time::Duration;
///
/// let client = Client::for_servers(&["cache-1:11211", "cache-2:11211"])?;
/// client.set("greeting", "hello", Duration::from_secs(60))?;
/// let value = client.get("greeting")?;
/// assert_eq!(value.map(|value| value.data), Some(b"hello".to_vec()));
/// # Ok::<(), dwell_memcache::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    cluster: Arc<Cluster>,
    timeout: Option<Duration>,
}

impl Client {
    /// Makes a client of servers written as [`ServerOptions`], with default options.
    ///
    /// Shape: makes no connection yet.
    ///
    /// # Errors
    /// When there is no server, or one cannot be read.
    pub fn for_servers(servers: &[&str]) -> Result<Self, Error> {
        let servers = servers
            .iter()
            .map(|text| text.parse())
            .collect::<Result<Vec<ServerOptions>, _>>()?;
        Self::new(&servers, ClientOptions::default())
    }

    /// Makes a client.
    ///
    /// # Errors
    /// When there is no server, or a weight or option is 0.
    pub fn new(servers: &[ServerOptions], options: ClientOptions) -> Result<Self, Error> {
        Ok(Self {
            timeout: options.timeout,
            cluster: Arc::new(Cluster::new(servers, options)?),
        })
    }

    /// The same client, with another timeout for what is done through it.
    ///
    /// Shape: connections are shared. With [`Timeouts::Kernel`](super::Timeouts::Kernel) it is one
    /// more system call where a connection changes from one timeout to another.
    #[must_use]
    pub fn with_timeout(&self, timeout: Option<Duration>) -> Self {
        Self {
            cluster: Arc::clone(&self.cluster),
            timeout,
        }
    }

    /// Several operations, sent together and answered together.
    pub fn pipeline(&self) -> Pipeline<'_> {
        Pipeline::new(self)
    }

    /// The index of the server that `key` belongs to.
    pub fn server_of(&self, key: impl AsRef<[u8]>) -> usize {
        self.cluster.ring.server_of(key.as_ref())
    }

    /// Every server as it stands now, in the order they were given.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        let status = |server: &super::server::Server| server.status(&self.cluster.options);
        self.cluster.servers.iter().map(status).collect()
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget::start(self.timeout)
    }

    /// Does an operation on one key; `pick` takes what it is about out of the response.
    pub(crate) fn run<R>(
        &self,
        key: &[u8],
        request: &Request<'_>,
        pick: impl FnOnce(Response) -> Option<R>,
    ) -> Result<R, Error> {
        let Prepared {
            wire,
            ring_key,
            mut answer,
        } = self.prepare(key, request)?;
        let outgoing = Outgoing {
            wire: &wire,
            is_repeatable: request.is_repeatable(),
        };
        let mut budget = self.budget();
        let ended = match self.ask(&ring_key, outgoing, &mut budget, &mut answer) {
            Ok(server) => (server, answer, Ok(())),
            Err((server, failed)) => (server, answer, Err(failed)),
        };
        self.picked(ended, &budget, pick)
    }

    /// Writes an operation on one key.
    pub(super) fn prepare<'r>(
        &self,
        key: &'r [u8],
        request: &Request<'r>,
    ) -> Result<Prepared<'r>, Error> {
        let ClientOptions {
            protocol,
            value_bytes_max,
            keys,
            ..
        } = self.cluster.options;
        check_length(request, value_bytes_max)?;
        let wire_key = WireKey::new(key, keys, request.is_meta(protocol))?;
        let mut wire = Vec::new();
        request.encode(&mut wire, &wire_key, protocol, OPAQUE)?;
        Ok(Prepared {
            wire,
            ring_key: wire_key.ring_key(key),
            answer: Answer::new(request, wire_key, protocol, OPAQUE),
        })
    }

    /// Takes out of the response what the operation is about.
    pub(super) fn picked<R>(
        &self,
        (server, answer, result): Ended<Answer<'_>>,
        budget: &Budget,
        pick: impl FnOnce(Response) -> Option<R>,
    ) -> Result<R, Error> {
        let operation = answer.operation();
        let error = |failed| self.cluster.error(server, operation, failed, budget);
        result.map_err(error)?;
        let Some(response) = answer.into_response() else {
            return Err(error(Failed::unexpected(String::new())));
        };
        let name = response.name();
        pick(response).ok_or_else(|| error(Failed::unexpected(name.to_owned())))
    }

    /// Asks the server of a key, or the next one; which it was.
    fn ask(
        &self,
        ring_key: &[u8],
        outgoing: Outgoing<'_>,
        budget: &mut Budget,
        answer: &mut Answer<'_>,
    ) -> Result<usize, (usize, Failed)> {
        let cluster = &self.cluster;
        let Some(mut server) = cluster.server_for(ring_key, budget) else {
            let server = cluster.ring.server_of(ring_key);
            return Err((server, Failed::unavailable()));
        };
        loop {
            let Err(failed) = cluster.exchange(server, outgoing, budget, answer) else {
                return Ok(server);
            };
            // Another server is asked only where this one has surely not acted, or may act again.
            let may_move = failed.fault.is_server_down()
                && (outgoing.is_repeatable || !failed.written)
                && budget.rest().is_ok();
            match cluster.next_for(ring_key, server, budget) {
                Some(next) if may_move => {
                    budget.has_begun();
                    answer.begin_again();
                    server = next;
                }
                _ => return Err((server, failed)),
            }
        }
    }
}

/// An operation on one key, written.
#[derive(Debug)]
pub(super) struct Prepared<'r> {
    pub(super) wire: Vec<u8>,
    /// The bytes that a ring hashes.
    pub(super) ring_key: Cow<'r, [u8]>,
    pub(super) answer: Answer<'r>,
}

pub(crate) fn check_length(request: &Request<'_>, limit: usize) -> Result<(), Error> {
    match request.data().map(<[u8]>::len) {
        Some(length) if length > limit => Err(Error::ValueTooLarge { limit, length }),
        _ => Ok(()),
    }
}

/// The opaque of the reply to a single meta command. A connection has one operation at a time, and
/// one that fails is the last: the opaque only proves that the reply is to a command of ours.
const OPAQUE: u32 = 1;
