//! One exchange without I/O: its caller carries the bytes.

use std::io;

use dwell_proto::memcache::{Reply, ReplyLimits, ResponseDecoder};

use super::Client;
use super::budget::Budget;
use super::cluster::Failed;
use super::connection::{Progress, Take, Taken, take_replies};
use super::fault::Fault;
use super::multi_get::Values;
use super::parallel::Ended;
use super::pipeline::Answers;
use super::raw::Raw;
use super::request::Answer;
use super::servers::{Collect, Stats};

/// One request to one server, and the replies to it.
///
/// Shape: until [`is_over`](Self::is_over), send [`request`](Self::request) to
/// [`server`](Self::server) on a connection that no other exchange uses, and pass on what comes by
/// [`receive`](Self::receive), or what went wrong by [`interrupt`](Self::interrupt). Either may
/// begin it again, perhaps with another server. When it is over, the connection may carry another
/// exchange if [`keeps_connection`](Self::keeps_connection), and has to be closed otherwise.
#[derive(Debug)]
pub struct Exchange {
    client: Client,
    server: usize,
    /// The key, where another server may be asked.
    ring_key: Option<Vec<u8>>,
    wire: Vec<u8>,
    is_repeatable: bool,
    replies: Replies,
    decoder: ResponseDecoder,
    /// The beginning of a reply whose end has not come yet.
    rest: Vec<u8>,
    has_received: bool,
    budget: Budget,
    result: Option<Result<(), Failed>>,
}

/// The end of a connection before its exchange was over.
#[derive(Debug)]
#[non_exhaustive]
pub enum Interruption {
    /// The time was over.
    Timeout,
    /// The peer ended the connection; `is_used` if it had carried an exchange before this one.
    Closed {
        /// The connection had carried an exchange before.
        is_used: bool,
    },
    /// The host's name has no address, or the lookup failed.
    Resolve(String),
    /// The connection could not be made.
    Connect(io::Error),
    /// TLS of the connection failed.
    #[cfg(feature = "tls")]
    Tls(super::SecureFault),
}

/// The receivers of replies, by kind of operation.
#[derive(Debug)]
pub(super) enum Replies {
    One(Answer<'static>),
    Values(Values<'static>),
    Each(Answers<'static>),
    Version(Collect<String>),
    Stats(Collect<Stats>),
    Flushed(Collect<()>),
    Raw(Raw),
}

impl Exchange {
    pub(super) fn new(
        client: &Client,
        budget: Budget,
        (server, wire, is_repeatable): (usize, Vec<u8>, bool),
        ring_key: Option<Vec<u8>>,
        replies: Replies,
    ) -> Self {
        Self {
            client: client.clone(),
            server,
            ring_key,
            wire,
            is_repeatable,
            replies,
            decoder: decoder(client),
            rest: Vec::new(),
            has_received: false,
            budget,
            result: None,
        }
    }

    /// The index of the server to be asked.
    pub const fn server(&self) -> usize {
        self.server
    }

    /// The bytes of the request.
    pub fn request(&self) -> &[u8] {
        &self.wire
    }

    /// Returns true if nothing more is to be sent or received.
    pub const fn is_over(&self) -> bool {
        self.result.is_some()
    }

    /// Returns true if the connection is in step: the next reply on it is to the next request.
    pub const fn keeps_connection(&self) -> bool {
        match &self.result {
            Some(Ok(())) => true,
            Some(Err(failed)) => failed.fault.is_in_step(),
            None => false,
        }
    }

    /// Takes bytes that the server has sent.
    ///
    /// Shape: after it, close the connection unless the exchange goes on or keeps it. A fault may
    /// have begun the exchange again, with another server: then [`request`](Self::request) has to
    /// be sent there.
    ///
    /// Returns true if more bytes are to come on this connection.
    pub fn receive(&mut self, bytes: &[u8]) -> bool {
        self.has_received = true;
        let (used, result) = if self.rest.is_empty() {
            take_replies(&mut self.replies, &mut self.decoder, bytes)
        } else {
            self.rest.extend_from_slice(bytes);
            take_replies(&mut self.replies, &mut self.decoder, &self.rest)
        };
        match result {
            Ok(Progress::More) => {
                if self.rest.is_empty() {
                    self.rest.extend_from_slice(&bytes[used..]);
                } else {
                    self.rest.drain(..used);
                }
                true
            }
            Ok(Progress::Done) => {
                let cluster = self.client.cluster();
                cluster.servers[self.server].answered(&cluster.options);
                self.result = Some(Ok(()));
                false
            }
            Err(fault) => {
                self.end(fault, true);
                false
            }
        }
    }

    /// Takes what went wrong with the connection, or with making one; close it.
    ///
    /// Shape: `written` if any byte of the request may have been sent. If asking again cannot do it
    /// twice, the exchange is not over, but to be begun again.
    pub fn interrupt(&mut self, interruption: Interruption, written: bool) {
        let fault = match interruption {
            Interruption::Timeout => Fault::Timeout,
            Interruption::Resolve(reason) => Fault::Resolve(reason),
            Interruption::Connect(error) => Fault::Connect(error),
            #[cfg(feature = "tls")]
            Interruption::Tls(fault) => fault.into_fault(),
            Interruption::Closed { is_used } => {
                // It had ended while it was idle.
                if is_used && !self.has_received && (self.is_repeatable || !written) {
                    return;
                }
                Fault::Closed
            }
        };
        self.end(fault, written);
    }

    /// Ends it with a fault, or moves on to the next server of its key.
    fn end(&mut self, fault: Fault, written: bool) {
        let cluster = self.client.cluster();
        // An attempt to connect counts once, however many exchanges have waited for it.
        let is_attempt = matches!(fault, Fault::Connect(_) | Fault::Resolve(_));
        if fault.is_server_down() && !is_attempt && written {
            cluster.servers[self.server].failed(&cluster.options);
        }
        let may_move = fault.is_server_down()
            && !matches!(fault, Fault::Timeout)
            && (self.is_repeatable || !written)
            && self.budget.rest().is_ok();
        let ring_key = self.ring_key.as_ref().filter(|_| may_move);
        let next = ring_key.and_then(|key| cluster.next_for(key, self.server, &self.budget));
        let (Some(server), Replies::One(answer)) = (next, &mut self.replies) else {
            self.result = Some(Err(Failed { fault, written }));
            return;
        };
        self.server = server;
        answer.begin_again();
        self.decoder = decoder(&self.client);
        self.rest.clear();
        self.has_received = false;
    }

    /// Returns its outcome; one that was never over has timed out.
    pub(super) fn into_outcome(self) -> Ended<Replies> {
        let never = || {
            Err(Failed {
                fault: Fault::Timeout,
                written: false,
            })
        };
        (self.server, self.replies, self.result.unwrap_or_else(never))
    }
}

fn decoder(client: &Client) -> ResponseDecoder {
    ResponseDecoder::new(ReplyLimits {
        value_bytes_max: client.cluster().options.value_bytes_max,
        ..ReplyLimits::default()
    })
}

impl Take for Replies {
    fn take(&mut self, reply: &Reply<'_>) -> Result<Progress, Fault> {
        match self {
            Self::One(take) => take.take(reply),
            Self::Values(take) => take.take(reply),
            Self::Each(take) => take.take(reply),
            Self::Version(take) => take.take(reply),
            Self::Stats(take) => take.take(reply),
            Self::Flushed(take) => take.take(reply),
            Self::Raw(take) => take.take(reply),
        }
    }

    fn read(
        &mut self,
        decoder: &mut ResponseDecoder,
        input: &[u8],
    ) -> Result<Option<Taken>, Fault> {
        if let Self::Raw(raw) = self {
            return raw.read(decoder, input);
        }
        let reply = decoder.decode(input)?;
        Ok(reply.map(|(used, reply)| (used, self.take(&reply))))
    }
}
