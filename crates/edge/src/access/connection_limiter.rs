//! Open connections of clients, counted by address, and the requests in progress on those of
//! HTTP/2.

use super::{counted_as, is_trusted};
use crate::config::Network;
use crate::log::LogThrottle;
use dwell_evloop::Stream;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;

/// Open connections of all loops, by client address.
///
/// Shape: empty while there is no bound. An address is present while it has a counted connection. A
/// connection gives its place back when its socket is closed, in whichever component that happens.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimiter {
    shards: [Mutex<HashMap<IpAddr, usize>>; SHARDS],
    /// Keyed, so that clients cannot choose addresses of one shard.
    hasher: RandomState,
    refused: LogThrottle,
}

/// The places of one connection, given back by being dropped.
#[derive(Debug)]
struct CountedConnection {
    connections: Arc<ConnectionLimiter>,
    address: IpAddr,
    places: usize,
}

impl ConnectionLimiter {
    /// Counts a connection; returns false if its address has `max` of them already.
    ///
    /// Shape: connections of trusted proxies are not counted, since each carries many clients. Nor
    /// are connections over unix sockets and those that have failed already.
    pub(crate) fn admit(
        self: &Arc<Self>,
        stream: &mut Stream,
        max: usize,
        trusted: &[Network],
    ) -> bool {
        let peer = stream.peer_address().ok().flatten();
        let Some(address) = peer.filter(|_| !is_trusted(peer, trusted)) else {
            return true;
        };
        let address = counted_as(address.ip().to_canonical());
        let place = self.take(address, max);
        let is_admitted = place.is_some();
        if let Some(place) = place {
            stream.keep(Box::new(place));
        } else {
            self.log_refused(address, max);
        }
        is_admitted
    }

    /// Counts the requests in progress on a connection that was admitted; returns false, and counts
    /// no more than before, if its address has `max` places already.
    ///
    /// Shape: a connection has a place as long as it is open, which its first request uses. Each
    /// further one takes a place of its own, so that it makes no difference for a client how many
    /// connections its requests are on.
    pub(crate) fn count_requests(stream: &mut Stream, open: usize, max: usize) -> bool {
        let kept = stream.kept().and_then(|kept| kept.downcast_mut());
        kept.is_none_or(|counted: &mut CountedConnection| counted.resize(open.max(1), max))
    }

    fn take(self: &Arc<Self>, address: IpAddr, max: usize) -> Option<CountedConnection> {
        self.grow(address, 1, max).then(|| CountedConnection {
            connections: Arc::clone(self),
            address,
            places: 1,
        })
    }

    fn grow(&self, address: IpAddr, more: usize, max: usize) -> bool {
        let mut shard = self
            .shard(address)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = shard.get(&address).copied().unwrap_or_default();
        let is_within = count.saturating_add(more) <= max;
        if is_within {
            shard.insert(address, count + more);
        }
        is_within
    }

    fn give_back(&self, address: IpAddr, places: usize) {
        let mut shard = self
            .shard(address)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = shard.get_mut(&address) {
            *count -= places;
            if *count == 0 {
                shard.remove(&address);
            }
        }
        if shard.is_empty() {
            *shard = HashMap::new();
        }
    }

    fn shard(&self, address: IpAddr) -> &Mutex<HashMap<IpAddr, usize>> {
        &self.shards[self.hasher.hash_one(address) as usize % SHARDS]
    }

    /// Logs, at most every ten seconds, the address that was refused last.
    fn log_refused(&self, address: IpAddr, limit: usize) {
        if let Some(count) = self.refused.note(dwell_evloop::now()) {
            tracing::warn!(
                %address,
                limit,
                count,
                "connections or requests were refused: limits.connections_per_address is reached"
            );
        }
    }
}

impl CountedConnection {
    /// Has so many places from now on; false where it cannot have more.
    fn resize(&mut self, places: usize, max: usize) -> bool {
        if places > self.places {
            let more = places - self.places;
            if !self.connections.grow(self.address, more, max) {
                self.connections.log_refused(self.address, max);
                return false;
            }
        } else if places < self.places {
            self.connections
                .give_back(self.address, self.places - places);
        }
        self.places = places;
        true
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.connections.give_back(self.address, self.places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn open(connections: &ConnectionLimiter) -> usize {
        let shards = connections.shards.iter();
        shards
            .map(|shard| shard.lock().unwrap().values().sum::<usize>())
            .sum()
    }

    fn addresses(connections: &ConnectionLimiter) -> usize {
        let shards = connections.shards.iter();
        shards.map(|shard| shard.lock().unwrap().len()).sum()
    }

    /// A connection as it was accepted, and its client.
    fn accepted() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        (Stream::from_descriptor(socket.into()).unwrap(), client)
    }

    #[test]
    fn an_address_has_so_many_places_and_gets_each_back() {
        let connections = Arc::new(ConnectionLimiter::default());
        let [first, second] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        let places: Vec<_> = (0..3).map_while(|_| connections.take(first, 3)).collect();
        assert_eq!(places.len(), 3);
        assert!(connections.take(first, 3).is_none());
        assert!(connections.take(second, 3).is_some());
        drop(places);
        assert_eq!((open(&connections), addresses(&connections)), (0, 0));
        // A bound that was lowered lets nobody in until there are fewer.
        let places: Vec<_> = (0..3).map_while(|_| connections.take(first, 3)).collect();
        assert!(connections.take(first, 2).is_none());
        drop(places);
        assert!(connections.take(first, 2).is_some());
    }

    #[test]
    fn a_place_goes_where_its_connection_goes_and_ends_with_it() {
        let connections = Arc::new(ConnectionLimiter::default());
        let (mut stream, _client) = accepted();
        assert!(connections.admit(&mut stream, 1, &[]));
        let (mut another, _its_client) = accepted();
        assert!(!connections.admit(&mut another, 1, &[]));
        drop(another);
        assert_eq!(open(&connections), 1);
        let moved = Some(stream);
        assert_eq!(open(&connections), 1);
        drop(moved);
        assert_eq!(open(&connections), 0);
    }

    #[test]
    fn requests_beyond_the_first_of_a_connection_take_places_too() {
        let connections = Arc::new(ConnectionLimiter::default());
        let (mut stream, _client) = accepted();
        assert!(connections.admit(&mut stream, 4, &[]));
        let (mut other, _its_client) = accepted();
        assert!(connections.admit(&mut other, 4, &[]));
        let count = ConnectionLimiter::count_requests;
        for (requests, places) in [(0, 2), (1, 2), (2, 3), (3, 4)] {
            assert!(count(&mut stream, requests, 4));
            assert_eq!(open(&connections), places);
        }
        assert!(!count(&mut stream, 4, 4) && count(&mut other, 1, 4));
        assert_eq!(open(&connections), 4);
        // A bound that was lowered takes nothing away that is there.
        assert!(!count(&mut other, 2, 2) && count(&mut stream, 2, 2));
        assert_eq!(open(&connections), 3);
        drop(stream);
        assert!(count(&mut other, 4, 4));
        drop(other);
        assert_eq!((open(&connections), addresses(&connections)), (0, 0));
        let (mut uncounted, _) = accepted();
        assert!(count(&mut uncounted, 100, 1));
    }

    #[test]
    fn connections_of_trusted_proxies_are_not_counted() {
        let connections = Arc::new(ConnectionLimiter::default());
        let trusted = ["127.0.0.0/8".parse().unwrap()];
        let many: Vec<_> = (0..3).map(|_| accepted()).collect();
        for (mut stream, _client) in many {
            assert!(connections.admit(&mut stream, 1, &trusted));
            assert_eq!(open(&connections), 0);
        }
    }

    #[test]
    fn loops_count_together() {
        let connections = Arc::new(ConnectionLimiter::default());
        let address = "2001:db8::".parse().unwrap();
        let taken = std::thread::scope(|scope| {
            let loops = (0..4).map(|_| {
                scope.spawn(|| {
                    let places = (0..1000).map_while(|_| connections.take(address, 1500));
                    places.collect::<Vec<_>>()
                })
            });
            let loops: Vec<_> = loops.collect();
            let taken = loops.into_iter().flat_map(|each| each.join().unwrap());
            taken.collect::<Vec<_>>()
        });
        assert_eq!((taken.len(), open(&connections)), (1500, 1500));
        drop(taken);
        assert_eq!(addresses(&connections), 0);
    }
}
