//! Many keys at once.

use std::sync::Arc;

use dwell_proto::memcache::encode::request::{self, MetaLine};
use dwell_proto::memcache::{KeyError, MetaStatus, Reply};

use super::budget::Budget;
use super::cluster::{Cluster, Failed};
use super::connection::{Progress, Take};
use super::fault::Fault;
use super::key::WireKey;
use super::options::Protocol;
use super::parallel::{self, Ended, Job};
use super::value::Value;
use super::{Error, reading};

/// The result for a key of a multi-get: its item, `None`, or the error.
pub(crate) type Lookup = Result<Option<Value>, Arc<Error>>;

/// Gets many keys, from all their servers at the same time; in the order of the keys.
pub(crate) fn run(
    cluster: &Cluster,
    keys: &[&[u8]],
    with_cas: bool,
    mut budget: Budget,
) -> Vec<Lookup> {
    let (lookups, mut jobs) = prepare(cluster, keys, with_cas, &budget);
    parallel::run(cluster, &mut jobs, &mut budget);
    let outcomes = jobs.into_iter().map(Job::into_outcome);
    collect(cluster, lookups, outcomes, with_cas, &budget)
}

/// Makes the request to each server; the keys that cannot be asked have their results.
pub(super) fn prepare<'k>(
    cluster: &Cluster,
    keys: &[&'k [u8]],
    with_cas: bool,
    budget: &Budget,
) -> (Vec<Lookup>, Vec<Job<Values<'k>>>) {
    let mut lookups: Vec<Lookup> = keys.iter().map(|_| Ok(None)).collect();
    let mut groups: Vec<Vec<(usize, WireKey<'_>)>> = Vec::new();
    groups.resize_with(cluster.servers.len(), Vec::new);
    let is_meta = cluster.options.protocol == Protocol::Meta;
    for (place, key) in keys.iter().enumerate() {
        match placed(cluster, key, is_meta, budget) {
            Ok((server, key)) => groups[server].push((place, key)),
            Err(error) => lookups[place] = Err(Arc::new(error)),
        }
    }
    let mut jobs = Vec::new();
    for (server, group) in groups.into_iter().enumerate() {
        if group.is_empty() {
            continue;
        }
        let (places, keys): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let mut wire = Vec::new();
        match encode(&mut wire, &keys, is_meta, with_cas) {
            Ok(replies) => {
                let line_keys = if is_meta { keys.len() } else { LINE_KEYS_MAX };
                let take = Values::new(places, keys, replies, line_keys);
                jobs.push(Job::new(server, wire, true, take));
            }
            Err(error) => {
                let error = Arc::new(Error::from(error));
                for place in places {
                    lookups[place] = Err(Arc::clone(&error));
                }
            }
        }
    }
    (lookups, jobs)
}

/// Puts the results of the servers into the places of their keys.
pub(super) fn collect<'k>(
    cluster: &Cluster,
    mut lookups: Vec<Lookup>,
    outcomes: impl Iterator<Item = Ended<Values<'k>>>,
    with_cas: bool,
    budget: &Budget,
) -> Vec<Lookup> {
    for (server, values, result) in outcomes {
        let operation = if with_cas { "gets" } else { "get" };
        let to_error = |failed| Arc::new(cluster.error(server, operation, failed, budget));
        values.into_lookups(result.err().map(to_error).as_ref(), &mut lookups);
    }
    lookups
}

fn placed<'k>(
    cluster: &Cluster,
    key: &'k [u8],
    is_meta: bool,
    budget: &Budget,
) -> Result<(usize, WireKey<'k>), Error> {
    let wire_key = WireKey::new(key, cluster.options.keys, is_meta)?;
    let ring_key = wire_key.ring_key(key);
    if let Some(server) = cluster.server_for(&ring_key, budget) {
        return Ok((server, wire_key));
    }
    let server = cluster.ring.server_of(&ring_key);
    Err(cluster.error(server, "get", Failed::unavailable(), budget))
}

/// Writes the request; how many ends of replies it has.
fn encode(
    wire: &mut Vec<u8>,
    keys: &[WireKey<'_>],
    is_meta: bool,
    with_cas: bool,
) -> Result<usize, KeyError> {
    if is_meta {
        for (index, key) in keys.iter().enumerate() {
            MetaLine::get(wire, key.token()?)
                .flag_if(b'b', key.is_base64())
                .flag(b'v')
                .flag(b'f')
                .flag_if(b'c', with_cas)
                .number(b'O', index)
                .flag(b'q')
                .end();
        }
        request::meta_noop(wire);
        return Ok(1);
    }
    let lines = keys.chunks(LINE_KEYS_MAX);
    let count = lines.len();
    for line in lines {
        let tokens = line
            .iter()
            .map(WireKey::token)
            .collect::<Result<Vec<_>, _>>()?;
        if with_cas {
            request::gets(wire, tokens);
        } else {
            request::get(wire, tokens);
        }
    }
    Ok(count)
}

/// Takes the items of many keys.
///
/// The server answers keys in the order they were asked and says nothing of those it does not
/// have: a reply that names a key settles that one and all before it, each line's end the rest of
/// its keys. Meta replies name it by an opaque, as memcached 1.6.18 writes some keys that came in
/// base64 as they are, line ends included.
#[derive(Debug)]
pub(super) struct Values<'k> {
    /// The index of each key among all keys of the operation.
    places: Vec<usize>,
    keys: Vec<WireKey<'k>>,
    found: Vec<Option<Value>>,
    /// The first key that is not settled.
    next: usize,
    /// Ends that are still to come.
    ends: usize,
    /// The first key behind the line whose replies come now.
    line_end: usize,
    line_keys: usize,
}

impl<'k> Values<'k> {
    fn new(places: Vec<usize>, keys: Vec<WireKey<'k>>, ends: usize, line_keys: usize) -> Self {
        Self {
            found: keys.iter().map(|_| None).collect(),
            places,
            keys,
            next: 0,
            ends,
            line_end: line_keys,
            line_keys,
        }
    }

    /// The same with keys of its own.
    pub(super) fn into_owned(self) -> Values<'static> {
        Values {
            keys: self.keys.into_iter().map(WireKey::into_owned).collect(),
            places: self.places,
            found: self.found,
            next: self.next,
            ends: self.ends,
            line_end: self.line_end,
            line_keys: self.line_keys,
        }
    }

    /// The next key of this line that reads so.
    fn index_of(&self, key: &[u8]) -> Option<usize> {
        let line_end = self.line_end.min(self.keys.len());
        let rest = self.keys.get(self.next..line_end)?;
        let offset = rest.iter().position(|asked| asked.as_bytes() == key)?;
        Some(self.next + offset)
    }

    fn end_of_line(&mut self) -> Progress {
        self.next = self.line_end.min(self.keys.len());
        self.line_end += self.line_keys;
        self.ends -= 1;
        if self.ends == 0 {
            Progress::Done
        } else {
            Progress::More
        }
    }

    fn into_lookups(self, failed: Option<&Arc<Error>>, lookups: &mut [Lookup]) {
        for (index, (place, value)) in self.places.iter().zip(self.found).enumerate() {
            lookups[*place] = match failed {
                Some(error) if index >= self.next => Err(Arc::clone(error)),
                _ => Ok(value),
            };
        }
    }
}

impl Take for Values<'_> {
    fn take(&mut self, reply: &Reply<'_>) -> Result<Progress, Fault> {
        let index = match reply {
            Reply::Value { key, .. } => self.index_of(key),
            Reply::MetaValue { flags, .. } => flags
                .number(b'O')
                .and_then(|index| usize::try_from(index).ok())
                .filter(|index| (self.next..self.keys.len()).contains(index)),
            Reply::End
            | Reply::Meta {
                status: MetaStatus::Noop,
                ..
            } => return Ok(self.end_of_line()),
            _ => None,
        };
        let value = reading::value(reply);
        let (Some(index), Ok(Some(value))) = (index, value) else {
            return Err(Fault::of_reply(reply, false));
        };
        self.found[index] = Some(value);
        self.next = index + 1;
        Ok(Progress::More)
    }
}

/// Keys on one line: enough to make lines rare, few enough for any server and proxy.
const LINE_KEYS_MAX: usize = 64;
