//! Options of publishing, authentication and access.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// `[publish]`: values stored and removed over HTTP.
#[derive(Clone, PartialEq)]
pub struct PublishConfig {
    /// Tokens of publishers. Without any, and without a file, HTTP publishing is off.
    pub token: Vec<String>,
    /// A file with more tokens, one per line.
    pub token_file: Option<PathBuf>,
    /// Names in the certificates of clients that need no token.
    pub clients: Vec<PublisherName>,
    /// Largest value. Units: bytes. Above it: 413.
    pub value_bytes_max: u64,
}

impl PublishConfig {
    /// Returns true if there are tokens, a file with tokens, or clients that need none.
    pub fn is_on(&self) -> bool {
        !self.token.is_empty() || self.token_file.is_some() || !self.clients.is_empty()
    }
}

impl fmt::Debug for PublishConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishConfig")
            .field("token", &format_args!("{} tokens", self.token.len()))
            .field("token_file", &self.token_file)
            .field("clients", &self.clients)
            .field("value_bytes_max", &self.value_bytes_max)
            .finish()
    }
}

impl Default for PublishConfig {
    fn default() -> Self {
        Self {
            token: Vec::new(),
            token_file: None,
            clients: Vec::new(),
            value_bytes_max: 1 << 20,
        }
    }
}

/// A name in the certificate of a publisher: `cn:NAME` or `san:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublisherName {
    /// The common name of its subject.
    CommonName(String),
    /// One of its alternative names.
    AlternativeName(String),
}

impl FromStr for PublisherName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text.split_once(':').ok_or("not cn:NAME or san:NAME")?;
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err("a name is text, and not empty");
        }
        match kind {
            "cn" => Ok(Self::CommonName(name.to_owned())),
            "san" if name.contains('*') => Err("a wildcard is no name: name each publisher"),
            "san" => Ok(Self::AlternativeName(name.to_owned())),
            _ => Err("not cn:NAME or san:NAME"),
        }
    }
}

impl fmt::Display for PublisherName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommonName(name) => write!(f, "cn:{name}"),
            Self::AlternativeName(name) => write!(f, "san:{name}"),
        }
    }
}

/// `[jwt]`: verification of tokens on routes with `jwt = true`.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtConfig {
    /// The secret of HS256, HS384 and HS512.
    pub secret_file: Option<PathBuf>,
    /// Public keys as PEM.
    pub public_key_file: Option<PathBuf>,
    /// A JWK set.
    pub jwks_file: Option<PathBuf>,
    /// Accepted issuers; any, if empty.
    pub issuer: Vec<String>,
    /// Accepted audiences; any, if empty.
    pub audience: Vec<String>,
    /// Largest accepted difference between clocks.
    pub leeway: Duration,
    /// Tokens without an expiry are refused.
    pub expiry_required: bool,
    /// Name of the query parameter with a token.
    pub query_parameter: Option<String>,
    /// Name of the cookie with a token.
    pub cookie: Option<String>,
}

impl Default for JwtConfig {
    fn default() -> Self {
        Self {
            secret_file: None,
            public_key_file: None,
            jwks_file: None,
            issuer: Vec::new(),
            audience: Vec::new(),
            leeway: Duration::ZERO,
            expiry_required: true,
            query_parameter: None,
            cookie: None,
        }
    }
}

impl JwtConfig {
    /// Returns true if there are keys.
    pub fn is_on(&self) -> bool {
        let files = [&self.secret_file, &self.public_key_file, &self.jwks_file];
        files.iter().any(|file| file.is_some())
    }
}

/// Access options of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteAccess {
    /// Values of the route's keys can be stored and removed over HTTP.
    pub publish: bool,
    /// Origins whose pages may read responses; `*` is any.
    pub cors_origins: Vec<String>,
    /// Pages of these origins may send cookies.
    pub cors_credentials: bool,
    /// Time for which a browser may cache a preflight response.
    pub cors_max_age: Duration,
    /// Rate of one client address.
    pub rate_per_address: Option<Rate>,
    /// Rate of requests for one key.
    pub rate_per_key: Option<Rate>,
    /// Rate at which one client address, or one WebSocket, stores and removes values.
    pub rate_per_publisher: Option<Rate>,
    /// A token is required.
    pub jwt: bool,
    /// Path at which the application decides on access.
    pub auth: Option<String>,
    /// Time for which its decision is cached.
    pub auth_time: Duration,
}

impl Default for RouteAccess {
    fn default() -> Self {
        Self {
            publish: false,
            cors_origins: Vec::new(),
            cors_credentials: false,
            cors_max_age: Duration::from_secs(600),
            rate_per_address: None,
            rate_per_key: None,
            rate_per_publisher: None,
            jwt: false,
            auth: None,
            auth_time: Duration::from_secs(10),
        }
    }
}

impl RouteAccess {
    /// Returns true if requests are counted.
    pub fn is_limited(&self) -> bool {
        [
            self.rate_per_address,
            self.rate_per_key,
            self.rate_per_publisher,
        ]
        .iter()
        .any(Option::is_some)
    }

    /// Returns true if a request is checked, or granted anything, before it is served.
    pub fn is_guarded(&self) -> bool {
        let is_limited = self.rate_per_address.is_some() || self.rate_per_key.is_some();
        self.jwt || self.auth.is_some() || is_limited || !self.cors_origins.is_empty()
    }
}

/// A number of requests in a time: `20/s`, `100/10s`, `600/m`.
///
/// Shape: after a pause, as many may come at once. They become available again evenly over the
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Requests; at least 1.
    pub count: u32,
    /// The time.
    pub per: Duration,
}

/// Highest rate with distinct times between requests. Units: requests per second.
const PER_SECOND_MAX: f64 = 10_000.0;

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (count, per) = text.split_once('/').ok_or("a rate is NUMBER/TIME")?;
        let count = count.parse().ok().filter(|count| *count > 0);
        let count: u32 = count.ok_or("a rate begins with a whole number above 0")?;
        let with_one = format!("1{per}");
        let per = if per.starts_with(|first: char| first.is_ascii_digit()) {
            per
        } else {
            &with_one
        };
        let per = super::duration(per).map_err(|_| "a rate ends with a time")?;
        if per.is_zero() || per > Duration::from_secs(86_400) {
            return Err("the time of a rate is at most a day");
        }
        if f64::from(count) / per.as_secs_f64() > PER_SECOND_MAX {
            return Err("a rate is at most 10000/s");
        }
        Ok(Self { count, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, super::show_duration(self.per))
    }
}

/// A network: addresses with a common prefix, perhaps a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Returns true if the network has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => same_bits(
                u32::from(own).into(),
                u32::from(other).into(),
                32,
                self.bits,
            ),
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                same_bits(own.into(), other.into(), 128, self.bits)
            }
            _ => false,
        }
    }
}

fn same_bits(one: u128, other: u128, width: u32, bits: u8) -> bool {
    let ignored = width - u32::from(bits);
    (one ^ other).checked_shr(ignored).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "not an address or ADDRESS/BITS";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| WRONG)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| WRONG))?;
        if bits > most {
            return Err(WRONG);
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Checks that a token can be sent in a header field, and is long enough not to be guessed.
///
/// # Errors
/// The fault of the token, as text.
///
/// Source: RFC 6750 section 2.1, `b64token`.
pub(crate) fn check_token(token: &[u8]) -> Result<(), &'static str> {
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Err("a token has 16 to 256 characters");
    }
    if !token.iter().all(is_of_token) {
        return Err("a token has letters, digits and -._~+/= only");
    }
    Ok(())
}

const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_in_a_time() {
        let rate = |text: &str| text.parse::<Rate>();
        let of = |count, seconds| {
            let per = Duration::from_secs(seconds);
            Ok(Rate { count, per })
        };
        assert_eq!(rate("20/s"), of(20, 1));
        assert_eq!(rate("100/10s"), of(100, 10));
        assert_eq!(rate("600/m"), of(600, 60));
        for wrong in [
            "", "20", "0/s", "-1/s", "20/", "20/x", "1/0s", "20000/s", "1/2d",
        ] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(rate("600/m").unwrap().to_string(), "600/1m");
    }

    #[test]
    fn a_publisher_has_a_name_of_a_kind() {
        let name = |text: &str| text.parse::<PublisherName>();
        for text in ["cn:alice", "cn:a:b *", "san:a.example", "san:spiffe://a/b"] {
            assert_eq!(name(text).unwrap().to_string(), text);
        }
        for wrong in [
            "", "alice", "cn:", "san:", "san:*.a", "ou:a", "cn:a\0", "CN:a",
        ] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_network_has_addresses() {
        let has = |network: &str, address: &str| {
            let network: Network = network.parse().unwrap();
            network.contains(address.parse().unwrap())
        };
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("127.0.0.1", "127.0.0.1") && !has("127.0.0.1", "127.0.0.2"));
        assert!(has("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "2001:db8::1"));
        for wrong in [
            "",
            "10.0.0.0/33",
            "::/129",
            "a/8",
            "10.0.0/8",
            "10.0.0.0/-1",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
