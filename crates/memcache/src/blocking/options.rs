//! Options of a client.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Error, Tls};
use crate::{AddressError, Distribution, ServerAddress};

/// One memcached server of a [`Client`](super::Client).
///
/// Shape: written as its address, with `=WEIGHT` behind it if the weight is not 1.
///
/// ```
/// use dwell_memcache::ServerOptions;
///
/// let server: ServerOptions = "cache-1:11211=2".parse()?;
/// assert_eq!((server.address.host(), server.weight), ("cache-1", 2));
/// # Ok::<(), dwell_memcache::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The address on which it listens.
    pub address: ServerAddress,
    /// Its share of the keys, relative to the other servers; at least 1.
    pub weight: u32,
}

impl From<ServerAddress> for ServerOptions {
    fn from(address: ServerAddress) -> Self {
        Self { address, weight: 1 }
    }
}

impl FromStr for ServerOptions {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.rsplit_once('=') {
            Some((address, weight)) => Ok(Self {
                address: address.parse()?,
                weight: weight
                    .parse()
                    .map_err(|_| AddressError::new(text, "an address and a weight"))?,
            }),
            None => text.parse::<ServerAddress>().map(Self::from),
        }
    }
}

/// The means by which the time of an operation is limited. All of them limit the whole of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Timeouts {
    /// The kernel, with a timeout that is set once per connection.
    ///
    /// Two system calls per operation. Another timeout than the connection had before is one more.
    #[default]
    Kernel,
    /// A thread that shuts overdue connections down, one for the whole process.
    ///
    /// Two system calls per operation, whatever its timeout. Late by up to 20 ms.
    Reaper,
    /// `poll` before every receive.
    ///
    /// Three system calls per operation. For systems whose kernel does not keep its timeouts.
    Strict,
}

/// The protocol of the plain operations. The meta commands are there with either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// `get`, `set` and so on: every server and proxy supports it.
    #[default]
    Text,
    /// `mg`, `ms` and so on, from memcached 1.6 on: every reply names its request, and keys may be
    /// any bytes.
    Meta,
}

/// The treatment of a key that the protocol does not allow: longer than 250 bytes, or with a space
/// or control character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyPolicy {
    /// It is refused.
    #[default]
    Refuse,
    /// It is sent in base64, which meta commands allow; up to 187 bytes. Refused in text commands.
    Base64,
    /// Its SHA-256 in hexadecimal digits takes its place, behind `sha256:`.
    Hash,
}

/// Bounds of a [`Client`](super::Client), and how it behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// From the call of an operation to its return, whatever happens in between: the lookup of a
    /// name, connecting, another attempt. `None` waits for ever. Default: 500 ms.
    pub timeout: Option<Duration>,
    /// The part of that time for a connection attempt, with the lookup and the handshake of TLS.
    /// Default: 250 ms.
    pub connect_timeout: Duration,
    /// The means by which these are enforced. Default: [`Timeouts::Kernel`].
    pub timeouts: Timeouts,
    /// TLS towards the servers, with the feature `tls`. Default: plaintext.
    pub tls: Option<Tls>,
    /// Default: [`Protocol::Text`].
    pub protocol: Protocol,
    /// Default: [`KeyPolicy::Refuse`].
    pub keys: KeyPolicy,
    /// The distribution of keys to servers. Default: [`Distribution::KetamaWeighted`].
    pub distribution: Distribution,
    /// Sends the keys of a server that is down to the next one. Default: off.
    ///
    /// Values written there stay there when the server comes back.
    pub failover: bool,
    /// Failures in a row after which a server is left alone for a while. Default: 3.
    pub failures_max: u32,
    /// The longest first while; every further failure in a row doubles it. Default: 50 ms.
    pub retry_delay_min: Duration,
    /// The longest while. Default: 2 s.
    pub retry_delay_max: Duration,
    /// Idle connections kept for each server; what is more is closed. Default: 8.
    pub idle_connections_max: usize,
    /// A connection that was idle for longer is closed instead of used. Default: 10 minutes.
    pub idle_timeout: Duration,
    /// The largest value to be stored or taken from a server. Units: bytes. Default: 1 MiB.
    pub value_bytes_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: Some(Duration::from_millis(500)),
            connect_timeout: Duration::from_millis(250),
            timeouts: Timeouts::default(),
            tls: None,
            protocol: Protocol::default(),
            keys: KeyPolicy::default(),
            distribution: Distribution::default(),
            failover: false,
            failures_max: 3,
            retry_delay_min: Duration::from_millis(50),
            retry_delay_max: Duration::from_secs(2),
            idle_connections_max: 8,
            idle_timeout: Duration::from_secs(600),
            value_bytes_max: 1 << 20,
        }
    }
}

impl ClientOptions {
    /// Refuses what could never work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let zero = [
            ("timeout", self.timeout == Some(Duration::ZERO)),
            ("connect_timeout", self.connect_timeout.is_zero()),
            ("failures_max", self.failures_max == 0),
            ("retry_delay_min", self.retry_delay_min.is_zero()),
            ("retry_delay_max", self.retry_delay_max.is_zero()),
            ("value_bytes_max", self.value_bytes_max == 0),
        ];
        match zero.iter().find(|(_, is_zero)| *is_zero) {
            Some((name, _)) => Err(Error::ZeroOption { name }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Timeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Reaper => "reaper",
            Self::Strict => "strict",
        })
    }
}
