//! Stores that are answered only when they fail.

use std::sync::Arc;

use dwell_proto::memcache::encode::request::{self, MetaLine};
use dwell_proto::memcache::{MetaStatus, Reply};

use super::cluster::Failed;
use super::connection::{Progress, Take};
use super::fault::Fault;
use super::key::WireKey;
use super::parallel::{self, Job};
use super::value::StoreOptions;
use super::{Client, Error};

impl Client {
    /// Stores many values without an answer for each, and still misses no error.
    ///
    /// Shape: one result per item, in their order. The stores are quiet `ms` commands, to which the
    /// server replies only when they fail. A no-op follows them; the reply to it confirms that all
    /// of them are done. A failure that names its item is that item's. An error line names none, so
    /// every item of that server gets it as its result.
    ///
    /// Text commands have `noreply` for this, with which the server keeps errors to itself. That
    /// is why it is not offered.
    pub fn set_quietly(
        &self,
        items: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
        options: impl Into<StoreOptions>,
    ) -> Vec<Result<(), Arc<Error>>> {
        let (cluster, options) = (self.cluster(), options.into());
        let mut budget = self.budget();
        let mut groups: Vec<(Vec<u8>, Vec<usize>)> = Vec::new();
        groups.resize_with(cluster.servers.len(), Default::default);
        let mut results = Vec::with_capacity(items.len());
        for (place, (key, value)) in items.iter().enumerate() {
            let (key, value) = (key.as_ref(), value.as_ref());
            let added = (|| {
                let limit = cluster.options.value_bytes_max;
                let length = value.len();
                if length > limit {
                    return Err(Error::ValueTooLarge { limit, length });
                }
                let wire_key = WireKey::new(key, cluster.options.keys, true)?;
                let ring_key = wire_key.ring_key(key);
                let Some(server) = cluster.server_for(&ring_key, &budget) else {
                    let server = cluster.ring.server_of(&ring_key);
                    return Err(cluster.error(server, "ms", Failed::unavailable(), &budget));
                };
                let (wire, places) = &mut groups[server];
                MetaLine::set(wire, wire_key.token()?, length)
                    .flag_if(b'b', wire_key.is_base64())
                    .number(b'F', options.flags)
                    .number(b'T', options.exptime.on_wire())
                    .number(b'O', place)
                    .flag(b'q')
                    .end_with_value(value);
                places.push(place);
                Ok(())
            })();
            results.push(added.map_err(Arc::new));
        }
        let mut jobs: Vec<_> = groups
            .into_iter()
            .enumerate()
            .filter(|(_, (_, places))| !places.is_empty())
            .map(|(server, (mut wire, places))| {
                request::meta_noop(&mut wire);
                let failures = Failures {
                    places,
                    named: Vec::new(),
                    line: None,
                };
                Job::new(server, wire, true, failures)
            })
            .collect();
        parallel::run(cluster, &mut jobs, &mut budget);
        for job in jobs {
            let (server, failures, result) = job.into_outcome();
            let error = |fault, written| {
                Arc::new(cluster.error(server, "ms", Failed { fault, written }, &budget))
            };
            let of_all = match (result, failures.line) {
                (Err(failed), _) => Some(error(failed.fault, failed.written)),
                (Ok(()), Some(line)) => Some(error(line, true)),
                (Ok(()), None) => None,
            };
            for place in failures.places {
                if let Some(error) = &of_all {
                    results[place] = Err(Arc::clone(error));
                }
            }
            for (place, reply) in failures.named {
                results[place] = Err(error(Fault::Unexpected(reply), true));
            }
        }
        results
    }
}

/// Takes the failures of quiet stores until the no-op is answered.
#[derive(Debug)]
struct Failures {
    /// The items that were sent, by their place, in order.
    places: Vec<usize>,
    /// The items that were not stored, with the status of the server.
    named: Vec<(usize, String)>,
    /// The first error line.
    line: Option<Fault>,
}

impl Take for Failures {
    fn take(&mut self, reply: &Reply<'_>) -> Result<Progress, Fault> {
        match reply {
            Reply::Meta {
                status: MetaStatus::Noop,
                ..
            } => return Ok(Progress::Done),
            Reply::Meta { status, flags } => {
                let place = flags.number(b'O').and_then(|place| place.try_into().ok());
                let is_new = self.named.len() < self.places.len();
                match place.filter(|place| self.places.binary_search(place).is_ok()) {
                    Some(place) if is_new => self.named.push((place, format!("{status:?}"))),
                    _ => return Err(Fault::of_reply(reply, false)),
                }
            }
            Reply::Error {
                kind: dwell_proto::memcache::ErrorKind::ServerError,
                ..
            } => {
                // The server has read past the data: the next replies are to the next stores.
                self.line.get_or_insert(Fault::of_reply(reply, true));
            }
            _ => return Err(Fault::of_reply(reply, false)),
        }
        Ok(Progress::More)
    }
}
