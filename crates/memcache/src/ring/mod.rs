//! The distribution of keys to servers.

mod hashes;
mod points;

use std::fmt;
use std::str::FromStr;

use points::{Points, Side};

/// One server as the ring sees it.
///
/// Every client of the same servers must agree on all three, spelled the same way: the ring hashes
/// the host as it is written, so `localhost` and `127.0.0.1` are different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingServer<'s> {
    /// The host as the other clients of this ring write it.
    pub host: &'s str,
    /// Its port; 0 for a unix socket, whose path is the host.
    pub port: u16,
    /// Its share of the keys, relative to the other servers.
    pub weight: u32,
}

/// The rule by which keys are given to servers: that of another client, to share its servers.
///
/// ```
/// use dwell_memcache::Distribution;
///
/// assert_eq!("ketama_weighted".parse(), Ok(Distribution::KetamaWeighted));
/// assert_eq!(Distribution::Rendezvous.to_string(), "rendezvous");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Distribution {
    /// `ketama_weighted`: libmemcached's `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`, PHP's
    /// `OPT_LIBKETAMA_COMPATIBLE`, pylibmc's `ketama_weighted`.
    #[default]
    KetamaWeighted,
    /// `ketama`: libmemcached's `MEMCACHED_DISTRIBUTION_CONSISTENT_KETAMA`; without weights.
    Ketama,
    /// `modula`: the default of libmemcached and pylibmc; without weights.
    Modula,
    /// `modula_crc`: the same with libmemcached's `crc` hash.
    ModulaCrc,
    /// `dalli`: Ruby's dalli, and memcache-client before it.
    Dalli,
    /// `rendezvous`: pymemcache's `HashClient`; without weights.
    Rendezvous,
}

impl Distribution {
    /// Every one, by its name.
    const NAMES: [(&'static str, Self); 6] = [
        ("ketama_weighted", Self::KetamaWeighted),
        ("ketama", Self::Ketama),
        ("modula", Self::Modula),
        ("modula_crc", Self::ModulaCrc),
        ("dalli", Self::Dalli),
        ("rendezvous", Self::Rendezvous),
    ];

    /// Their names, in the order of this page.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(name, _)| *name)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, this)| this == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// A name that no [`Distribution`] has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDistribution {
    name: String,
}

impl FromStr for Distribution {
    type Err = UnknownDistribution;

    fn from_str(name: &str) -> Result<Self, UnknownDistribution> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, distribution)| *distribution)
            .ok_or_else(|| UnknownDistribution {
                name: name.to_owned(),
            })
    }
}

impl fmt::Display for UnknownDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Distribution::names().collect();
        write!(
            f,
            "distribution is none of {}: {}",
            names.join(", "),
            self.name
        )
    }
}

impl std::error::Error for UnknownDistribution {}

/// Maps keys to servers as other clients do.
///
/// Shape: 8 bytes per point, about 160 points per server, for the rules that have points; a lookup
/// is one hash and one binary search, and nothing at all with a single server.
///
/// ```
/// use dwell_memcache::{Distribution, Ring, RingServer};
///
/// let server = |port| RingServer { host: "127.0.0.1", port, weight: 1 };
/// let servers = [server(22122), server(22123), server(22124)];
/// let ring = Ring::new(&servers);
/// assert_eq!(ring.server_of(b"key0"), 2);
/// assert_eq!(ring.server_of(b"key1"), 0);
/// let ring = Ring::with(Distribution::Dalli, &servers);
/// assert_eq!(ring.candidates(b"key0").len(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct Ring {
    servers: usize,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Points {
        points: Points,
        side: Side,
        hash: fn(&[u8]) -> u32,
    },
    Modula(fn(&[u8]) -> u32),
    /// The servers' names.
    Rendezvous(Vec<Vec<u8>>),
}

impl Ring {
    /// Builds the ring of [`Distribution::KetamaWeighted`]; a key's server is an index into
    /// `servers`.
    pub fn new(servers: &[RingServer<'_>]) -> Self {
        Self::with(Distribution::KetamaWeighted, servers)
    }

    /// Builds the ring of another rule.
    pub fn with(distribution: Distribution, servers: &[RingServer<'_>]) -> Self {
        let points = |points, side, hash| Rule::Points { points, side, hash };
        let rule = match distribution {
            Distribution::KetamaWeighted => points(
                Points::ketama_weighted(servers),
                Side::AtOrAfter,
                hashes::md5,
            ),
            Distribution::Ketama => points(
                Points::ketama(servers),
                Side::AtOrAfter,
                hashes::one_at_a_time,
            ),
            Distribution::Dalli => {
                points(Points::dalli(servers), Side::AtOrBefore, crc32fast::hash)
            }
            Distribution::Modula => Rule::Modula(hashes::one_at_a_time),
            Distribution::ModulaCrc => Rule::Modula(hashes::libmemcached_crc),
            Distribution::Rendezvous => {
                Rule::Rendezvous(servers.iter().map(rendezvous_name).collect())
            }
        };
        Self {
            servers: servers.len(),
            rule,
        }
    }

    /// The index of the server that `key` belongs to.
    pub fn server_of(&self, key: &[u8]) -> usize {
        if self.servers < 2 {
            return 0;
        }
        match &self.rule {
            Rule::Points { points, side, hash } => points.server(*side, hash(key)),
            Rule::Modula(hash) => hash(key) as usize % self.servers,
            Rule::Rendezvous(names) => (0..names.len())
                .max_by_key(|index| score(&names[*index], key))
                .unwrap_or(0),
        }
    }

    /// Returns every server, in the order in which they are used for `key` while those before are
    /// down.
    ///
    /// Shape: each index once, the server of the key first. Along the circle for ketama, by a new
    /// hash of the key for dalli, the next best for rendezvous, and the next index for modula.
    pub fn candidates(&self, key: &[u8]) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.servers);
        let mut add = |server| {
            if !order.contains(&server) {
                order.push(server);
            }
        };
        add(self.server_of(key));
        match &self.rule {
            _ if self.servers < 2 => {}
            Rule::Points {
                points,
                side: Side::AtOrBefore,
                hash,
            } => {
                for attempt in 0..DALLI_ATTEMPTS {
                    let mut again = attempt.to_string().into_bytes();
                    again.extend_from_slice(key);
                    add(points.server(Side::AtOrBefore, hash(&again)));
                }
            }
            Rule::Points { points, hash, .. } => points.after(hash(key)).for_each(add),
            Rule::Modula(hash) => {
                let first = hash(key) as usize % self.servers;
                (1..self.servers).for_each(|step| add((first + step) % self.servers));
            }
            Rule::Rendezvous(names) => {
                let mut by_score: Vec<_> = (0..names.len()).collect();
                by_score.sort_by_key(|index| std::cmp::Reverse(score(&names[*index], key)));
                by_score.into_iter().for_each(add);
            }
        }
        // What twenty hashes have not met.
        let missing: Vec<_> = (0..self.servers)
            .filter(|server| !order.contains(server))
            .collect();
        order.extend(missing);
        order
    }
}

/// Returns the name that pymemcache hashes for a server. Source: pymemcache 4.0.0,
/// `client/hash.py`.
fn rendezvous_name(server: &RingServer<'_>) -> Vec<u8> {
    match server.port {
        0 => server.host.into(),
        port => format!("{}:{port}", server.host).into_bytes(),
    }
}

/// The highest wins; where two are equal, the greater name.
///
/// Source: pymemcache 4.0.0, `client/rendezvous.py`.
fn score<'n>(name: &'n [u8], key: &[u8]) -> (u32, &'n [u8]) {
    let mut text = Vec::with_capacity(name.len() + 1 + key.len());
    text.extend_from_slice(name);
    text.push(b'-');
    text.extend_from_slice(key);
    (hashes::murmur3(&text), name)
}

/// Source: dalli 4.3.3, `ring.rb`.
const DALLI_ATTEMPTS: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file of `tests/vectors`: the servers from its comments, then key and server.
    fn check(vectors: &str) {
        check_with(Distribution::KetamaWeighted, vectors);
    }

    fn check_with(distribution: Distribution, vectors: &str) {
        let servers: Vec<RingServer<'_>> = vectors
            .lines()
            .filter_map(|line| line.strip_prefix("# server "))
            .map(|line| {
                let mut words = line.split_whitespace().skip(1);
                RingServer {
                    host: words.next().unwrap(),
                    port: words.next().unwrap().parse().unwrap(),
                    weight: words.next().unwrap().parse().unwrap(),
                }
            })
            .collect();
        let ring = Ring::with(distribution, &servers);
        let keys: Vec<_> = vectors
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .collect();
        let agreed = keys
            .iter()
            .filter(|(key, server)| {
                let server: usize = server.parse().unwrap();
                ring.server_of(key.as_bytes()) == server
            })
            .count();
        assert_eq!((agreed, keys.len()), (400, 400));
    }

    #[test]
    fn agrees_with_libmemcached_on_three_equal_servers() {
        check(include_str!("../../tests/vectors/equal.tsv"));
    }

    #[test]
    fn agrees_with_libmemcached_on_weights_1_2_5() {
        check(include_str!("../../tests/vectors/weighted.tsv"));
    }

    #[test]
    fn agrees_with_libmemcached_where_the_default_port_is_left_out() {
        check(include_str!("../../tests/vectors/default_port.tsv"));
    }

    #[test]
    fn agrees_with_libmemcached_on_names() {
        check(include_str!("../../tests/vectors/named.tsv"));
    }

    #[test]
    fn agrees_with_dalli() {
        let vectors = include_str!("../../tests/vectors/dalli_equal.tsv");
        check_with(Distribution::Dalli, vectors);
        let vectors = include_str!("../../tests/vectors/dalli_weighted.tsv");
        check_with(Distribution::Dalli, vectors);
    }

    #[test]
    fn every_server_is_a_candidate_once_and_the_keys_own_the_first() {
        let servers: Vec<_> = (0..5)
            .map(|index| RingServer {
                host: "cache",
                port: 22_122 + index,
                weight: u32::from(index) + 1,
            })
            .collect();
        for count in 1..=servers.len() {
            for name in Distribution::names() {
                let ring = Ring::with(name.parse().unwrap(), &servers[..count]);
                for key in 0..200_u32 {
                    let key = key.to_le_bytes();
                    let mut candidates = ring.candidates(&key);
                    assert_eq!(candidates[0], ring.server_of(&key), "{name}");
                    candidates.sort_unstable();
                    assert!(candidates.into_iter().eq(0..count), "{name}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_name_is_told_from_the_known() {
        let error = "ketema".parse::<Distribution>().unwrap_err().to_string();
        assert!(error.ends_with("dalli, rendezvous: ketema"), "{error}");
    }

    #[test]
    fn one_server_has_every_key() {
        let ring = Ring::new(&[RingServer {
            host: "cache",
            port: 11211,
            weight: 3,
        }]);
        assert_eq!(ring.server_of(b"anything"), 0);
    }
}
