//! The operations of a client for event loops that are not this crate's.

use std::sync::Arc;
use std::time::Duration;

use dwell_proto::memcache::{ArithmeticMode, StoreVerb};

use super::client::Prepared;
use super::cluster::Failed;
use super::exchange::{Exchange, Replies};
use super::operation::{exchanges, outcomes};
use super::operations::store;
use super::parallel::Job;
use super::request::{Request, Response};
use super::servers::{self, PerServer, Question, Stats};
use super::value::{Exptime, StoreOptions, Value};
use super::{Client, Error, MetaGet, MetaItem, Operation, multi_get, pipeline, raw};
use crate::StoreOutcome;

/// The operations of a [`Client`], without its I/O.
///
/// Shape: each method prepares an [`Operation`], whose [`Exchange`]s the caller carries out on
/// connections of its own: requests are written, replies read, keys placed and servers ejected as
/// by the client itself. The operation's time begins with the call. The caller keeps the time and
/// interrupts what takes too long.
///
/// ```
/// use dwell_memcache::{Carried, Client};
///
/// let client = Client::for_servers(&["127.0.0.1:11211"])?;
/// let (mut exchanges, finish) = Carried::of(&client).get(b"greeting")?.into_parts();
/// assert_eq!(exchanges[0].request(), b"get greeting\r\n");
/// exchanges[0].receive(b"VALUE greeting 0 5\r\nhello\r\nEND\r\n");
/// assert!(exchanges[0].is_over());
/// assert_eq!(finish(exchanges)?.map(|value| value.data), Some(b"hello".to_vec()));
/// # Ok::<(), dwell_memcache::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    client: &'a Client,
}

/// An operation of one exchange.
type One<T> = Operation<Result<T, Error>>;

impl<'a> Carried<'a> {
    /// The operations of a client, for a caller that carries their bytes.
    pub const fn of(client: &'a Client) -> Self {
        Self { client }
    }
}

impl Carried<'_> {
    /// As [`Client::get`], and with `with_cas` as [`Client::gets`].
    ///
    /// # Errors
    /// When nothing can be asked: the key cannot be sent, or its server is ejected.
    pub fn value(self, key: &[u8], with_cas: bool) -> Result<One<Option<Value>>, Error> {
        self.item(key, &Request::Get { with_cas })
    }

    /// As [`Client::get`].
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn get(self, key: &[u8]) -> Result<One<Option<Value>>, Error> {
        self.value(key, false)
    }

    /// As [`Client::get_and_touch`].
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn get_and_touch(self, key: &[u8], exptime: Exptime) -> Result<One<Option<Value>>, Error> {
        let request = Request::GetAndTouch {
            exptime: exptime.on_wire(),
            with_cas: false,
        };
        self.item(key, &request)
    }

    /// As [`Client::meta_get`].
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn meta_get(self, key: &[u8], options: MetaGet) -> Result<One<Option<MetaItem>>, Error> {
        self.one(key, &Request::MetaGet(options), |response| match response {
            Response::MetaItem(item) => Some(item),
            _ => None,
        })
    }

    /// Stores a value by `verb`: `set`, `add`, `replace`, `append`, `prepend` or `cas`.
    ///
    /// # Errors
    /// As [`value`](Self::value), or when the value is too large.
    pub fn store(
        self,
        verb: StoreVerb,
        key: &[u8],
        value: &[u8],
        options: StoreOptions,
    ) -> Result<One<StoreOutcome>, Error> {
        let is_set = matches!(verb, StoreVerb::Set);
        self.one(
            key,
            &store(verb, value, options),
            move |response| match response {
                Response::Stored(outcome) if !is_set || outcome == StoreOutcome::Stored => {
                    Some(outcome)
                }
                _ => None,
            },
        )
    }

    /// As [`Client::delete`].
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn delete(self, key: &[u8]) -> Result<One<bool>, Error> {
        self.one(key, &Request::Delete, |response| match response {
            Response::Deleted(deleted) => Some(deleted),
            _ => None,
        })
    }

    /// As [`Client::incr`] or [`Client::decr`].
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn arithmetic(
        self,
        mode: ArithmeticMode,
        key: &[u8],
        delta: u64,
    ) -> Result<One<Option<u64>>, Error> {
        let request = Request::Arithmetic { mode, delta };
        self.one(key, &request, |response| match response {
            Response::Number(number) => Some(number),
            _ => None,
        })
    }

    /// As [`Client::touch`].
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn touch(self, key: &[u8], exptime: Exptime) -> Result<One<bool>, Error> {
        let exptime = exptime.on_wire();
        self.one(
            key,
            &Request::Touch { exptime },
            |response| match response {
                Response::Touched(touched) => Some(touched),
                _ => None,
            },
        )
    }

    /// As [`Client::get_multi`], and with `with_cas` as [`Client::gets_multi`].
    pub fn values(
        self,
        keys: &[&[u8]],
        with_cas: bool,
    ) -> Operation<Vec<Result<Option<Value>, Arc<Error>>>> {
        let client = self.client.clone();
        let budget = client.budget();
        let (lookups, jobs) = multi_get::prepare(client.cluster(), keys, with_cas, &budget);
        let exchanges = exchanges(&client, budget, jobs, |values| {
            Replies::Values(values.into_owned())
        });
        Operation::new(exchanges, move |exchanges| {
            let ended = outcomes(exchanges, |replies| match replies {
                Replies::Values(values) => Some(values),
                _ => None,
            });
            multi_get::collect(client.cluster(), lookups, ended, with_cas, &budget)
        })
    }

    /// Stores many values, in one request to each server.
    pub fn set_many(
        self,
        items: &[(&[u8], &[u8], StoreOptions)],
    ) -> Operation<Vec<Result<Response, Arc<Error>>>> {
        let steps: Vec<_> = items
            .iter()
            .map(|(key, value, options)| (*key, store(StoreVerb::Set, value, *options)))
            .collect();
        self.each(&steps)
    }

    /// Deletes many items, in one request to each server.
    pub fn delete_many(self, keys: &[&[u8]]) -> Operation<Vec<Result<Response, Arc<Error>>>> {
        let steps: Vec<_> = keys.iter().map(|key| (*key, Request::Delete)).collect();
        self.each(&steps)
    }

    /// As [`Client::version`].
    pub fn version(self) -> Operation<PerServer<String>> {
        self.all(
            &servers::version(),
            Replies::Version,
            |replies| match replies {
                Replies::Version(take) => Some(take),
                _ => None,
            },
        )
    }

    /// As [`Client::stats`].
    ///
    /// # Errors
    /// When the argument cannot be sent.
    pub fn stats(self, argument: Option<&str>) -> Result<Operation<PerServer<Stats>>, Error> {
        let question = servers::stats(argument)?;
        Ok(
            self.all(&question, Replies::Stats, |replies| match replies {
                Replies::Stats(take) => Some(take),
                _ => None,
            }),
        )
    }

    /// As [`Client::flush_all`].
    pub fn flush_all(self, delay: Duration) -> Operation<PerServer<()>> {
        let question = servers::flush_all(delay);
        self.all(&question, Replies::Flushed, |replies| match replies {
            Replies::Flushed(take) => Some(take),
            _ => None,
        })
    }

    /// As [`Client::raw_command`].
    ///
    /// # Errors
    /// When the command or the token is empty.
    pub fn raw_command(
        self,
        command: &[u8],
        end_token: &[u8],
    ) -> Result<Operation<PerServer<Vec<u8>>>, Error> {
        let client = self.client.clone();
        let budget = client.budget();
        let jobs = raw::jobs(&client, command, end_token)?;
        let exchanges = exchanges(&client, budget, jobs, Replies::Raw);
        Ok(Operation::new(exchanges, move |exchanges| {
            let ended = outcomes(exchanges, |replies| match replies {
                Replies::Raw(take) => Some(take),
                _ => None,
            });
            servers::collect(client.cluster(), raw::OPERATION, ended, &budget)
        }))
    }

    /// Notes that an attempt to connect to a server has failed.
    pub fn could_not_connect(self, server: usize) {
        let cluster = self.client.cluster();
        if let Some(server) = cluster.servers.get(server) {
            server.failed(&cluster.options);
        }
    }

    /// Begins TLS of a connection to a server; `None` if the client has none.
    ///
    /// # Errors
    /// When the system's cryptography fails.
    ///
    /// ```no_run
    /// # use dwell_memcache::{Carried, Client};
    /// # use std::io::{Read, Write};
    /// # fn read_with(client: &Client, mut socket: std::net::TcpStream)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let mut secured = Carried::of(client).secure(0).expect("a client with TLS")?;
    /// let mut input = [0; 4096];
    /// while !secured.is_ready() {
    ///     socket.write_all(&secured.transmit())?;
    ///     let count = socket.read(&mut input)?;
    ///     secured.receive(&input[..count])?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn secure(self, server: usize) -> Option<Result<super::Secured, super::SecureFault>> {
        let server = self.client.cluster().servers.get(server)?;
        server.connector().map(super::Secured::begin)
    }

    /// Prepares an operation that gets an item.
    fn item(self, key: &[u8], request: &Request<'_>) -> Result<One<Option<Value>>, Error> {
        self.one(key, request, |response| match response {
            Response::Value(value) => Some(value),
            _ => None,
        })
    }

    /// Prepares an operation on one key.
    fn one<T: 'static>(
        self,
        key: &[u8],
        request: &Request<'_>,
        pick: impl FnOnce(Response) -> Option<T> + Send + Sync + 'static,
    ) -> Result<One<T>, Error> {
        let client = self.client.clone();
        let budget = client.budget();
        let Prepared {
            wire,
            ring_key,
            answer,
        } = client.prepare(key, request)?;
        let Some(server) = client.cluster().server_for(&ring_key, &budget) else {
            let server = client.cluster().ring.server_of(&ring_key);
            let failed = Failed::unavailable();
            return Err(client
                .cluster()
                .error(server, request.operation(), failed, &budget));
        };
        let moves = client.cluster().options.failover;
        let ring_key = moves.then(|| ring_key.into_owned());
        let request = (server, wire, request.is_repeatable());
        let replies = Replies::One(answer.into_owned());
        let exchange = Exchange::new(&client, budget, request, ring_key, replies);
        Ok(Operation::new(vec![exchange], move |exchanges| {
            let mut ended = outcomes(exchanges, |replies| match replies {
                Replies::One(answer) => Some(answer),
                _ => None,
            });
            match ended.next() {
                Some(ended) => client.picked(ended, &budget, pick),
                None => Err(Error::NoServers),
            }
        }))
    }

    /// Prepares operations that go together.
    fn each(self, steps: &[(&[u8], Request<'_>)]) -> Operation<pipeline::Results> {
        let client = self.client.clone();
        let budget = client.budget();
        let (results, jobs) = pipeline::prepare(client.cluster(), steps, &budget);
        let exchanges = exchanges(&client, budget, jobs, |answers| {
            Replies::Each(answers.into_owned())
        });
        Operation::new(exchanges, move |exchanges| {
            let ended = outcomes(exchanges, |replies| match replies {
                Replies::Each(answers) => Some(answers),
                _ => None,
            });
            pipeline::collect(client.cluster(), results, ended, &budget)
        })
    }

    /// Prepares the same question for every server.
    fn all<T: Default + 'static>(
        self,
        question: &Question<T>,
        own: fn(servers::Collect<T>) -> Replies,
        pick: fn(Replies) -> Option<servers::Collect<T>>,
    ) -> Operation<PerServer<T>> {
        let client = self.client.clone();
        let budget = client.budget();
        let operation = question.operation;
        let jobs: Vec<Job<_>> = question.jobs(client.cluster().servers.len());
        let exchanges = exchanges(&client, budget, jobs, own);
        Operation::new(exchanges, move |exchanges| {
            let ended = outcomes(exchanges, pick);
            servers::collect(client.cluster(), operation, ended, &budget)
        })
    }
}
