//! One operation on one key: what is sent, and what its replies mean.

use dwell_proto::memcache::encode::request::{self, MetaLine};
use dwell_proto::memcache::{
    ArithmeticMode, ErrorKind, KeyError, MetaSetMode, MetaStatus, Reply, StoreVerb,
};

use super::connection::{Progress, Take};
use super::fault::Fault;
use super::key::WireKey;
use super::meta::{
    MetaArithmetic, MetaCounted, MetaDelete, MetaDeleted, MetaGet, MetaItem, MetaSet, MetaStored,
};
use super::options::Protocol;
use super::reading;
use super::value::Value;
use crate::StoreOutcome;

/// An operation on one key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'r> {
    Get {
        with_cas: bool,
    },
    GetAndTouch {
        exptime: i64,
        with_cas: bool,
    },
    Store {
        verb: StoreVerb,
        value: &'r [u8],
        flags: u32,
        exptime: i64,
    },
    Delete,
    Arithmetic {
        mode: ArithmeticMode,
        delta: u64,
    },
    Touch {
        exptime: i64,
    },
    MetaGet(MetaGet),
    MetaSet {
        value: &'r [u8],
        options: MetaSet,
    },
    MetaDelete(MetaDelete),
    MetaArithmetic(MetaArithmetic),
    MetaDebug,
}

/// The result of an operation of a [`Pipeline`](super::Pipeline).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// The item of a get; `None` if the key has no item.
    Value(Option<Value>),
    /// The outcome of a store.
    Stored(StoreOutcome),
    /// True if an item was deleted.
    Deleted(bool),
    /// The new number; `None` if there is no such item.
    Number(Option<u64>),
    /// True if an item was touched.
    Touched(bool),
    /// The item of a meta get; `None` if the key has no item.
    MetaItem(Option<MetaItem>),
    /// The result of a meta set.
    MetaStored(MetaStored),
    /// The result of a meta delete.
    MetaDeleted(MetaDeleted),
    /// The result of a meta arithmetic.
    MetaCounted(MetaCounted),
    /// The attributes of an item, by name; `None` if the key has no item.
    MetaDebug(Option<Vec<(String, String)>>),
}

impl Response {
    /// Returns its kind in a word, for errors about an unexpected one.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Stored(outcome) => match outcome {
                StoreOutcome::Stored => "stored",
                StoreOutcome::NotStored => "not stored",
                StoreOutcome::Exists => "exists",
                StoreOutcome::NotFound => "not found",
            },
            Self::MetaItem(None) | Self::Value(None) | Self::Number(None) => "nothing",
            _ => "something else",
        }
    }
}

impl Request<'_> {
    /// The operation's name, as errors give it.
    pub(crate) const fn operation(&self) -> &'static str {
        match self {
            Self::Get { with_cas: false } => "get",
            Self::Get { with_cas: true } => "gets",
            Self::GetAndTouch { .. } => "gat",
            Self::Store { verb, .. } => match verb {
                StoreVerb::Set => "set",
                StoreVerb::Add => "add",
                StoreVerb::Replace => "replace",
                StoreVerb::Append => "append",
                StoreVerb::Prepend => "prepend",
                StoreVerb::Cas(_) => "cas",
            },
            Self::Delete => "delete",
            Self::Arithmetic { mode, .. } => match mode {
                ArithmeticMode::Increment => "incr",
                ArithmeticMode::Decrement => "decr",
            },
            Self::Touch { .. } => "touch",
            Self::MetaGet(_) => "mg",
            Self::MetaSet { .. } => "ms",
            Self::MetaDelete(_) => "md",
            Self::MetaArithmetic(_) => "ma",
            Self::MetaDebug => "me",
        }
    }

    /// Returns true if doing it twice has the same effect as once.
    pub(crate) const fn is_repeatable(&self) -> bool {
        match self {
            Self::Get { .. }
            | Self::GetAndTouch { .. }
            | Self::Delete
            | Self::Touch { .. }
            | Self::MetaDebug => true,
            Self::Store { verb, .. } => matches!(verb, StoreVerb::Set),
            // A client that wins a lease and does not learn it keeps all others waiting.
            Self::MetaGet(options) => options.vivify.is_none() && options.recache.is_none(),
            Self::MetaSet { options, .. } => {
                matches!(options.mode, MetaSetMode::Set) && options.cas_unique.is_none()
            }
            Self::MetaDelete(options) => options.cas_unique.is_none(),
            Self::Arithmetic { .. } | Self::MetaArithmetic(_) => false,
        }
    }

    /// The value that follows its line.
    pub(crate) const fn data(&self) -> Option<&[u8]> {
        match self {
            Self::Store { value, .. } | Self::MetaSet { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The same request with an empty value in place of its own.
    const fn without_data(self) -> Request<'static> {
        match self {
            Request::Store {
                verb,
                flags,
                exptime,
                ..
            } => Request::Store {
                verb,
                value: &[],
                flags,
                exptime,
            },
            Request::MetaSet { options, .. } => Request::MetaSet {
                value: &[],
                options,
            },
            Request::Get { with_cas } => Request::Get { with_cas },
            Request::GetAndTouch { exptime, with_cas } => {
                Request::GetAndTouch { exptime, with_cas }
            }
            Request::Delete => Request::Delete,
            Request::Arithmetic { mode, delta } => Request::Arithmetic { mode, delta },
            Request::Touch { exptime } => Request::Touch { exptime },
            Request::MetaGet(options) => Request::MetaGet(options),
            Request::MetaDelete(options) => Request::MetaDelete(options),
            Request::MetaArithmetic(options) => Request::MetaArithmetic(options),
            Request::MetaDebug => Request::MetaDebug,
        }
    }

    /// Returns true if it is sent as a meta command.
    pub(crate) const fn is_meta(&self, protocol: Protocol) -> bool {
        matches!(protocol, Protocol::Meta)
            || matches!(
                self,
                Self::MetaGet(_)
                    | Self::MetaSet { .. }
                    | Self::MetaDelete(_)
                    | Self::MetaArithmetic(_)
                    | Self::MetaDebug
            )
    }

    /// Writes it; `opaque` is what a meta command's answer will carry.
    pub(crate) fn encode(
        &self,
        out: &mut Vec<u8>,
        key: &WireKey<'_>,
        protocol: Protocol,
        opaque: u32,
    ) -> Result<(), KeyError> {
        if self.is_meta(protocol) {
            self.encode_meta(out, key, opaque)
        } else {
            self.encode_text(out, key)
        }
    }

    fn encode_text(&self, out: &mut Vec<u8>, key: &WireKey<'_>) -> Result<(), KeyError> {
        let key = key.token()?;
        match *self {
            Self::Get { with_cas: false } => request::get(out, [key]),
            Self::Get { with_cas: true } => request::gets(out, [key]),
            Self::GetAndTouch { exptime, with_cas } => {
                if with_cas {
                    request::gats(out, exptime, [key]);
                } else {
                    request::gat(out, exptime, [key]);
                }
            }
            Self::Store {
                verb,
                value,
                flags,
                exptime,
            } => {
                let options = request::StoreOptions {
                    flags,
                    exptime,
                    noreply: false,
                };
                request::store(out, verb, key, options, value);
            }
            Self::Delete => request::delete(out, key, false),
            Self::Arithmetic { mode, delta } => match mode {
                ArithmeticMode::Increment => request::incr(out, key, delta, false),
                ArithmeticMode::Decrement => request::decr(out, key, delta, false),
            },
            Self::Touch { exptime } => request::touch(out, key, exptime, false),
            _ => {}
        }
        Ok(())
    }

    fn encode_meta(
        &self,
        out: &mut Vec<u8>,
        key: &WireKey<'_>,
        opaque: u32,
    ) -> Result<(), KeyError> {
        let token = key.token()?;
        let (line, data) = match self {
            Self::Get { with_cas } => {
                let line = MetaLine::get(out, token).flag(b'v').flag(b'f');
                (line.flag_if(b'c', *with_cas), None)
            }
            Self::GetAndTouch { exptime, with_cas } => {
                let line = MetaLine::get(out, token).flag(b'v').flag(b'f');
                let line = line.flag_if(b'c', *with_cas);
                (line.number(b'T', *exptime), None)
            }
            Self::Store {
                verb,
                value,
                flags,
                exptime,
            } => {
                let line = MetaLine::set(out, token, value.len())
                    .number(b'F', *flags)
                    .number(b'T', *exptime);
                let line = match verb {
                    StoreVerb::Set => line,
                    StoreVerb::Add => line.mode(b'E'),
                    StoreVerb::Replace => line.mode(b'R'),
                    StoreVerb::Append => line.mode(b'A'),
                    StoreVerb::Prepend => line.mode(b'P'),
                    StoreVerb::Cas(cas_unique) => line.number(b'C', *cas_unique),
                };
                (line, Some(*value))
            }
            Self::Delete => (MetaLine::delete(out, token), None),
            Self::Arithmetic { mode, delta } => {
                let options = MetaArithmetic {
                    mode: *mode,
                    delta: *delta,
                    ..MetaArithmetic::default()
                };
                (options.write(MetaLine::arithmetic(out, token)), None)
            }
            Self::Touch { exptime } => (MetaLine::get(out, token).number(b'T', *exptime), None),
            Self::MetaGet(options) => (options.write(MetaLine::get(out, token)), None),
            Self::MetaSet { value, options } => {
                let line = MetaLine::set(out, token, value.len());
                (options.write(line), Some(*value))
            }
            Self::MetaDelete(options) => (options.write(MetaLine::delete(out, token)), None),
            Self::MetaArithmetic(options) => {
                (options.write(MetaLine::arithmetic(out, token)), None)
            }
            Self::MetaDebug => {
                MetaLine::debug(out, token)
                    .flag_if(b'b', key.is_base64())
                    .end();
                return Ok(());
            }
        };
        let line = line.flag_if(b'b', key.is_base64()).number(b'O', opaque);
        match data {
            Some(value) => line.end_with_value(value),
            None => line.end(),
        }
        Ok(())
    }
}

/// Takes the replies to one request.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    request: Request<'a>,
    key: WireKey<'a>,
    /// The opaque expected in the reply to a meta command; `None` for a text command.
    opaque: Option<u32>,
    response: Option<Response>,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(
        request: &Request<'a>,
        key: WireKey<'a>,
        protocol: Protocol,
        opaque: u32,
    ) -> Self {
        Self {
            request: *request,
            key,
            opaque: request.is_meta(protocol).then_some(opaque),
            response: None,
        }
    }

    pub(crate) const fn operation(&self) -> &'static str {
        self.request.operation()
    }

    /// The same without the value, which only the request has to have, and with a key of its own.
    pub(crate) fn into_owned(self) -> Answer<'static> {
        Answer {
            request: self.request.without_data(),
            key: self.key.into_owned(),
            opaque: self.opaque,
            response: self.response,
        }
    }

    /// Forgets what has been received.
    pub(crate) fn begin_again(&mut self) {
        self.response = None;
    }

    pub(crate) fn into_response(self) -> Option<Response> {
        self.response
    }

    /// Returns true if a reply is of the request's protocol, and carries its opaque.
    fn is_ours(&self, reply: &Reply<'_>) -> bool {
        let (flags, must_tell) = match reply {
            Reply::MetaValue { flags, .. } => (flags, true),
            // Some servers send no flags where there is no item.
            Reply::Meta { flags, status } => (flags, *status == MetaStatus::Header),
            Reply::MetaDebug { .. } | Reply::Error { .. } => return true,
            _ => return self.opaque.is_none(),
        };
        match (self.opaque, flags.opaque()) {
            (Some(sent), Some(came)) => came == itoa::Buffer::new().format(sent).as_bytes(),
            (Some(_), None) => !must_tell,
            (None, _) => false,
        }
    }

    /// Returns true if the next reply after this error line will be to the next request.
    ///
    /// A server that does not take a command that brings data may take the data for a command.
    fn stays_in_step(&self, reply: &Reply<'_>) -> bool {
        let is_refused_data = self.request.data().is_some()
            && !matches!(
                reply,
                Reply::Error {
                    kind: ErrorKind::ServerError,
                    ..
                }
            );
        self.response.is_none() && !is_refused_data
    }

    fn respond(&self, reply: &Reply<'_>) -> Result<Response, reading::Foreign> {
        use reading as read;

        match self.request {
            Request::Get { .. } | Request::GetAndTouch { .. } => {
                read::value(reply).map(Response::Value)
            }
            Request::Store { .. } => read::stored(reply).map(Response::Stored),
            Request::Delete => read::deleted(reply).map(Response::Deleted),
            Request::Arithmetic { .. } => read::number(reply).map(Response::Number),
            Request::Touch { .. } => read::touched(reply).map(Response::Touched),
            Request::MetaGet(_) => read::meta_item(reply).map(Response::MetaItem),
            Request::MetaSet { .. } => read::meta_stored(reply).map(Response::MetaStored),
            Request::MetaDelete(_) => read::meta_deleted(reply).map(Response::MetaDeleted),
            Request::MetaArithmetic(_) => read::meta_counted(reply).map(Response::MetaCounted),
            Request::MetaDebug => read::meta_debug(reply).map(Response::MetaDebug),
        }
    }
}

impl Take for Answer<'_> {
    fn take(&mut self, reply: &Reply<'_>) -> Result<Progress, Fault> {
        let unexpected = || Fault::of_reply(reply, self.stays_in_step(reply));
        match reply {
            // A text get shows its item and then an end.
            Reply::Value { key, .. } => {
                let is_first = self.response.is_none();
                if !is_first || *key != self.key.as_bytes() {
                    return Err(unexpected());
                }
            }
            Reply::End if self.response.is_some() => return Ok(Progress::Done),
            _ if self.response.is_some() || !self.is_ours(reply) => return Err(unexpected()),
            _ => {}
        }
        let response = self.respond(reply).map_err(|_| unexpected())?;
        self.response = Some(response);
        Ok(match reply {
            Reply::Value { .. } => Progress::More,
            _ => Progress::Done,
        })
    }
}

#[cfg(test)]
mod tests;
