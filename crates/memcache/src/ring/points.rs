//! The rules that put points on a circle.

use md5::{Digest, Md5};
use sha1::Sha1;

use super::{RingServer, hashes};
use crate::address::DEFAULT_PORT;

/// Points on a circle, each belonging to a server.
#[derive(Clone, Debug)]
pub(super) struct Points(
    /// Sorted by value, then by server.
    Vec<Point>,
);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    value: u32,
    server: u32,
}

/// The choice between the two points around a key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    AtOrAfter,
    AtOrBefore,
}

impl Points {
    /// Source: libmemcached 1.0.16, `update_continuum`. A server has
    /// `floor(weight / sum of weights * 40 * servers)` digests (in single precision) of
    /// `host:port-index`, where the port is left out if it is 11211, and each digest gives four
    /// little-endian points.
    pub(super) fn ketama_weighted(servers: &[RingServer<'_>]) -> Self {
        let total = total_weight(servers);
        Self::of(servers, |server, add| {
            for index in 0..digests(server.weight, total, servers.len()) {
                let digest = Md5::digest(libmemcached_name(server, index));
                hashes::little_endian_words(&digest)
                    .into_iter()
                    .for_each(&mut *add);
            }
        })
    }

    /// Source: libmemcached 1.0.16, `update_continuum`: the hash of the keys on 100 names.
    pub(super) fn ketama(servers: &[RingServer<'_>]) -> Self {
        Self::of(servers, |server, add| {
            for index in 0..100 {
                let name = libmemcached_name(server, index);
                add(hashes::one_at_a_time(name.as_bytes()));
            }
        })
    }

    /// Source: dalli 4.3.3, `ring.rb`. The first four bytes of a SHA-1 are a point.
    pub(super) fn dalli(servers: &[RingServer<'_>]) -> Self {
        let total = u64::from(total_weight(servers)).max(1);
        Self::of(servers, |server, add| {
            let count = servers.len() as u64 * 160 * u64::from(server.weight) / total;
            for index in 0..count {
                let name = match server.port {
                    0 => format!("{}:{index}", server.host),
                    port => format!("{}:{port}:{index}", server.host),
                };
                let digest = Sha1::digest(name);
                add(u32::from_be_bytes([
                    digest[0], digest[1], digest[2], digest[3],
                ]));
            }
        })
    }

    fn of(
        servers: &[RingServer<'_>],
        mut values: impl FnMut(&RingServer<'_>, &mut dyn FnMut(u32)),
    ) -> Self {
        let mut points = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            let server_index = index as u32;
            values(server, &mut |value| {
                points.push(Point {
                    value,
                    server: server_index,
                });
            });
        }
        points.sort_unstable();
        Self(points)
    }

    pub(super) fn server(&self, side: Side, hash: u32) -> usize {
        let index = match side {
            Side::AtOrAfter => self.first_from(hash),
            Side::AtOrBefore => {
                let after = self.0.partition_point(|point| point.value <= hash);
                after
                    .checked_sub(1)
                    .unwrap_or(self.0.len().saturating_sub(1))
            }
        };
        let point = self.0.get(index).or(self.0.first());
        point.map_or(0, |point| point.server as usize)
    }

    /// The servers of all points, from the hash once around.
    pub(super) fn after(&self, hash: u32) -> impl Iterator<Item = usize> {
        let first = self.first_from(hash);
        let (before, from) = self.0.split_at(first);
        from.iter().chain(before).map(|point| point.server as usize)
    }

    fn first_from(&self, hash: u32) -> usize {
        self.0.partition_point(|point| point.value < hash)
    }
}

fn total_weight(servers: &[RingServer<'_>]) -> u32 {
    servers
        .iter()
        .fold(0, |sum, server| sum.saturating_add(server.weight))
}

/// Returns the number of digests that a server contributes.
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

fn libmemcached_name(server: &RingServer<'_>, index: u32) -> String {
    let RingServer { host, port, .. } = server;
    if *port == DEFAULT_PORT {
        format!("{host}-{index}")
    } else {
        format!("{host}:{port}-{index}")
    }
}

const POINTS_PER_SERVER: f32 = 160.0;
const POINTS_PER_DIGEST: f32 = 4.0;
