//! Which server holds a key: libmemcached's weighted ketama.

use md5::{Digest, Md5};

/// One server as the ring sees it.
///
/// Every client of the same servers must agree on all three, spelled the same way: the ring hashes
/// the host as it is written, so `localhost` and `127.0.0.1` are different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingServer<'s> {
    /// The host as the other clients of this ring write it.
    pub host: &'s str,
    /// Its port.
    pub port: u16,
    /// Its share of the keys, relative to the other servers.
    pub weight: u32,
}

/// Maps keys to servers as libmemcached does with `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`.
///
/// PHP's `OPT_LIBKETAMA_COMPATIBLE` and pylibmc's `ketama_weighted` are the same ring.
///
/// Shape: 8 bytes per point, about 160 points per server; a lookup is one MD5 and one binary
/// search, and nothing at all with a single server.
///
/// Source: libmemcached 1.0.16, `update_continuum`. A server has
/// `floor(weight / sum of weights * 40 * servers)` digests (in single precision) of
/// `host:port-index`, where the port is left out if it is 11211, and each digest gives four
/// little-endian points. A key belongs to the first point at or after the first four bytes of its
/// own MD5.
///
/// ```
/// use dwell_memcache::{Ring, RingServer};
///
/// let server = |port| RingServer { host: "127.0.0.1", port, weight: 1 };
/// let ring = Ring::new(&[server(22122), server(22123), server(22124)]);
/// assert_eq!(ring.server_of(b"key0"), 2);
/// assert_eq!(ring.server_of(b"key1"), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Ring {
    /// Sorted by value, then by server.
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    value: u32,
    server: u32,
}

impl Ring {
    /// Builds the ring of `servers`; a key's server is an index into them.
    pub fn new(servers: &[RingServer<'_>]) -> Self {
        if servers.len() < 2 {
            return Self { points: Vec::new() };
        }
        let total: u32 = servers
            .iter()
            .fold(0, |sum, server| sum.saturating_add(server.weight));
        let mut points = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            for digest_index in 0..digests(server.weight, total, servers.len()) {
                let name = point_name(*server, digest_index);
                for value in little_endian_words(&Md5::digest(name)) {
                    points.push(Point {
                        value,
                        server: index as u32,
                    });
                }
            }
        }
        points.sort_unstable();
        Self { points }
    }

    /// The index of the server that `key` belongs to.
    pub fn server_of(&self, key: &[u8]) -> usize {
        let Some(first) = self.points.first() else {
            return 0;
        };
        let [value, ..] = little_endian_words(&Md5::digest(key));
        let index = self.points.partition_point(|point| point.value < value);
        self.points.get(index).unwrap_or(first).server as usize
    }
}

/// How many digests a server contributes.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "libmemcached computes in single precision; other rounding would be another ring"
)]
fn digests(weight: u32, total: u32, servers: usize) -> u32 {
    let share = weight as f32 / total as f32;
    let digests = share * POINTS_PER_SERVER / POINTS_PER_DIGEST * servers as f32;
    (f64::from(digests) + 1e-10) as f32 as u32
}

fn point_name(server: RingServer<'_>, digest_index: u32) -> String {
    let RingServer { host, port, .. } = server;
    if port == DEFAULT_PORT {
        format!("{host}-{digest_index}")
    } else {
        format!("{host}:{port}-{digest_index}")
    }
}

fn little_endian_words(digest: &[u8]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    words
}

const POINTS_PER_SERVER: f32 = 160.0;
const POINTS_PER_DIGEST: f32 = 4.0;
const DEFAULT_PORT: u16 = 11211;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file of `tests/vectors`: the servers from its comments, then key and server.
    fn check(vectors: &str) {
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
        let ring = Ring::new(&servers);
        let keys: Vec<_> = vectors
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .collect();
        let agreed = keys
            .iter()
            .filter(|(key, server)| ring.server_of(key.as_bytes()) == server.parse().unwrap())
            .count();
        assert_eq!((agreed, keys.len()), (400, 400));
    }

    #[test]
    fn agrees_with_libmemcached_on_three_equal_servers() {
        check(include_str!("../tests/vectors/equal.tsv"));
    }

    #[test]
    fn agrees_with_libmemcached_on_weights_1_2_5() {
        check(include_str!("../tests/vectors/weighted.tsv"));
    }

    #[test]
    fn agrees_with_libmemcached_where_the_default_port_is_left_out() {
        check(include_str!("../tests/vectors/default_port.tsv"));
    }

    #[test]
    fn agrees_with_libmemcached_on_names() {
        check(include_str!("../tests/vectors/named.tsv"));
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
