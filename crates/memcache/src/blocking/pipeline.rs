//! Operations that go out together.

use std::collections::VecDeque;
use std::sync::Arc;

use dwell_proto::memcache::{ArithmeticMode, Reply, StoreVerb};

use super::budget::Budget;
use super::client::check_length;
use super::cluster::{Cluster, Failed};
use super::connection::{Progress, Take};
use super::fault::Fault;
use super::key::WireKey;
use super::meta::{MetaArithmetic, MetaDelete, MetaGet, MetaSet};
use super::operations::store;
use super::parallel::{self, Ended, Job};
use super::request::{Answer, Request, Response};
use super::value::{Exptime, StoreOptions};
use super::{Client, Error};

/// Operations that are sent together, to each server in one go, and answered together.
///
/// Shape: [`Pipeline::run`] gives one result per operation, in the order they were added; those of
/// one key are done in that order. All share one timeout. An error line is the result of its own
/// operation; whatever else fails takes the operations with it that its server had not answered.
///
/// ```no_run
/// use dwell_memcache::{Client, Response, StoreOptions};
///
/// let client = Client::for_servers(&["127.0.0.1:11211"])?;
/// let mut pipeline = client.pipeline();
/// pipeline.set(b"a", b"1", StoreOptions::default()).incr(b"a", 1).get(b"b");
/// let results = pipeline.run();
/// assert_eq!(results[1].as_ref().ok(), Some(&Response::Number(Some(2))));
/// # Ok::<(), dwell_memcache::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is sent before `run`"]
pub struct Pipeline<'a> {
    client: &'a Client,
    steps: Vec<(&'a [u8], Request<'a>)>,
}

impl<'a> Pipeline<'a> {
    pub(crate) const fn new(client: &'a Client) -> Self {
        Self {
            client,
            steps: Vec::new(),
        }
    }

    /// The item of `key`.
    pub fn get(&mut self, key: &'a [u8]) -> &mut Self {
        self.add_step(key, Request::Get { with_cas: false })
    }

    /// The item of `key`, with its cas unique.
    pub fn gets(&mut self, key: &'a [u8]) -> &mut Self {
        self.add_step(key, Request::Get { with_cas: true })
    }

    /// Stores a value.
    pub fn set(&mut self, key: &'a [u8], value: &'a [u8], options: StoreOptions) -> &mut Self {
        self.add_step(key, store(StoreVerb::Set, value, options))
    }

    /// Stores a value by `verb`: `add`, `replace`, `append`, `prepend` or `cas`.
    pub fn store(
        &mut self,
        verb: StoreVerb,
        key: &'a [u8],
        value: &'a [u8],
        options: StoreOptions,
    ) -> &mut Self {
        self.add_step(key, store(verb, value, options))
    }

    /// Deletes an item.
    pub fn delete(&mut self, key: &'a [u8]) -> &mut Self {
        self.add_step(key, Request::Delete)
    }

    /// Counts an item up.
    pub fn incr(&mut self, key: &'a [u8], delta: u64) -> &mut Self {
        let mode = ArithmeticMode::Increment;
        self.add_step(key, Request::Arithmetic { mode, delta })
    }

    /// Counts an item down.
    pub fn decr(&mut self, key: &'a [u8], delta: u64) -> &mut Self {
        let mode = ArithmeticMode::Decrement;
        self.add_step(key, Request::Arithmetic { mode, delta })
    }

    /// Sets an item's exptime.
    pub fn touch(&mut self, key: &'a [u8], exptime: Exptime) -> &mut Self {
        let exptime = exptime.on_wire();
        self.add_step(key, Request::Touch { exptime })
    }

    /// `mg`.
    pub fn meta_get(&mut self, key: &'a [u8], options: MetaGet) -> &mut Self {
        self.add_step(key, Request::MetaGet(options))
    }

    /// `ms`.
    pub fn meta_set(&mut self, key: &'a [u8], value: &'a [u8], options: MetaSet) -> &mut Self {
        self.add_step(key, Request::MetaSet { value, options })
    }

    /// `md`.
    pub fn meta_delete(&mut self, key: &'a [u8], options: MetaDelete) -> &mut Self {
        self.add_step(key, Request::MetaDelete(options))
    }

    /// `ma`.
    pub fn meta_arithmetic(&mut self, key: &'a [u8], options: MetaArithmetic) -> &mut Self {
        self.add_step(key, Request::MetaArithmetic(options))
    }

    fn add_step(&mut self, key: &'a [u8], request: Request<'a>) -> &mut Self {
        self.steps.push((key, request));
        self
    }

    /// Sends them and waits for the answers.
    pub fn run(self) -> Vec<Result<Response, Arc<Error>>> {
        let cluster = self.client.cluster();
        let mut budget = self.client.budget();
        let (results, mut jobs) = prepare(cluster, &self.steps, &budget);
        parallel::run(cluster, &mut jobs, &mut budget);
        let outcomes = jobs.into_iter().map(Job::into_outcome);
        collect(cluster, results, outcomes, &budget)
    }
}

/// Results by the places of the operations.
pub(super) type Results = Vec<Result<Response, Arc<Error>>>;

/// Makes the request to each server; what cannot be sent has its result.
pub(super) fn prepare<'s>(
    cluster: &Cluster,
    steps: &'s [(&'s [u8], Request<'s>)],
    budget: &Budget,
) -> (Results, Vec<Job<Answers<'s>>>) {
    let mut groups: Vec<Group<'_>> = Vec::new();
    groups.resize_with(cluster.servers.len(), Group::default);
    let mut results = Vec::with_capacity(steps.len());
    for (place, (key, request)) in steps.iter().enumerate() {
        let added = add(&mut groups, cluster, place, key, request, budget);
        // Whatever was added is settled by `collect`, one way or the other.
        results.push(added.map(|()| Response::Value(None)).map_err(Arc::new));
    }
    let jobs = groups
        .into_iter()
        .enumerate()
        .filter(|(_, group)| !group.answers.waiting.is_empty())
        .map(|(server, group)| {
            let is_repeatable = !group.has_unrepeatable;
            Job::new(server, group.wire, is_repeatable, group.answers)
        })
        .collect();
    (results, jobs)
}

/// Puts the results of the servers into the places of their operations.
pub(super) fn collect<'s>(
    cluster: &Cluster,
    mut results: Results,
    outcomes: impl Iterator<Item = Ended<Answers<'s>>>,
    budget: &Budget,
) -> Results {
    for (server, answers, result) in outcomes {
        let error = |failed, operation| Arc::new(cluster.error(server, operation, failed, budget));
        for (place, answered) in answers.settled {
            results[place] = answered.map_err(|(operation, fault)| {
                let written = true;
                error(Failed { fault, written }, operation)
            });
        }
        if let Err(failed) = result {
            let failed = error(failed, "pipeline");
            for (place, _) in answers.waiting {
                results[place] = Err(Arc::clone(&failed));
            }
        }
    }
    results
}

/// Adds an operation to what its server is sent.
fn add<'s>(
    groups: &mut [Group<'s>],
    cluster: &Cluster,
    place: usize,
    key: &'s [u8],
    request: &'s Request<'s>,
    budget: &Budget,
) -> Result<(), Error> {
    let options = &cluster.options;
    let (protocol, opaque) = (options.protocol, place as u32);
    check_length(request, options.value_bytes_max)?;
    let wire_key = WireKey::new(key, options.keys, request.is_meta(protocol))?;
    let ring_key = wire_key.ring_key(key);
    let Some(server) = cluster.server_for(&ring_key, budget) else {
        let server = cluster.ring.server_of(&ring_key);
        return Err(cluster.error(server, request.operation(), Failed::unavailable(), budget));
    };
    let group = &mut groups[server];
    request.encode(&mut group.wire, &wire_key, protocol, opaque)?;
    group.has_unrepeatable |= !request.is_repeatable();
    let answer = Answer::new(request, wire_key, protocol, opaque);
    group.answers.waiting.push_back((place, answer));
    Ok(())
}

/// The requests to one server.
#[derive(Debug, Default)]
struct Group<'s> {
    wire: Vec<u8>,
    has_unrepeatable: bool,
    answers: Answers<'s>,
}

/// The name of an operation that failed alone, and why.
type Refused = (&'static str, Fault);

/// Takes the replies of one operation after the other.
#[derive(Debug, Default)]
pub(super) struct Answers<'s> {
    waiting: VecDeque<(usize, Answer<'s>)>,
    /// The outcomes of operations, with their places.
    settled: Vec<(usize, Result<Response, Refused>)>,
}

impl Answers<'_> {
    /// The same with keys of its own.
    pub(super) fn into_owned(self) -> Answers<'static> {
        let owned = |(place, answer): (usize, Answer<'_>)| (place, answer.into_owned());
        Answers {
            waiting: self.waiting.into_iter().map(owned).collect(),
            settled: self.settled,
        }
    }
}

impl Take for Answers<'_> {
    fn take(&mut self, reply: &Reply<'_>) -> Result<Progress, Fault> {
        let Some((_, answer)) = self.waiting.front_mut() else {
            return Err(Fault::of_reply(reply, false));
        };
        let answered = match answer.take(reply) {
            Ok(Progress::More) => return Ok(Progress::More),
            Ok(Progress::Done) => None,
            // An error line in step ends its own operation and nothing else.
            Err(fault) if fault.is_in_step() => Some(fault),
            Err(fault) => return Err(fault),
        };
        if let Some((place, answer)) = self.waiting.pop_front() {
            let operation = answer.operation();
            let settled = match (answered, answer.into_response()) {
                (None, Some(response)) => Ok(response),
                (Some(fault), _) => Err((operation, fault)),
                (None, None) => Err((operation, Fault::Unexpected(String::new()))),
            };
            self.settled.push((place, settled));
        }
        Ok(if self.waiting.is_empty() {
            Progress::Done
        } else {
            Progress::More
        })
    }
}
