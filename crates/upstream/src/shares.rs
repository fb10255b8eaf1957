//! The share of the connections that one client may have.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// The client of a request; those that are not known count as one.
pub type Client = Option<IpAddr>;

/// The connections that clients have requests on, by whose they are.
///
/// Shape: a client may have one more while it has at most [`TIMES`] as many as are free. So the
/// requests of one client, or of a few, that are answered late or never leave a fifth, or less of
/// a few, to all others; and each of those may have as many as the others leave.
#[derive(Debug, Default)]
pub(super) struct Shares(HashMap<Client, usize>);

impl Shares {
    /// Counts one more of a client's.
    pub(super) fn add(&mut self, client: Client) {
        *self.0.entry(client).or_default() += 1;
    }

    fn remove(&mut self, client: Client) {
        if let Entry::Occupied(mut entry) = self.0.entry(client) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    /// Returns how many a client has.
    fn of(&self, client: Client) -> usize {
        self.0.get(&client).copied().unwrap_or_default()
    }

    /// Returns true if a client may have one more of so many that are free.
    pub(super) fn allows(&self, client: Client, free: usize) -> bool {
        free > 0 && self.of(client) <= TIMES * free
    }

    /// Returns true if a client may have so many, and one more, as long as any is free.
    pub(super) fn always_allows(&self, client: Client, more: usize) -> bool {
        self.of(client) + more <= TIMES
    }
}

impl FromIterator<Client> for Shares {
    fn from_iter<I: IntoIterator<Item = Client>>(clients: I) -> Self {
        let mut shares = Self::default();
        clients.into_iter().for_each(|client| shares.add(client));
        shares
    }
}

/// Connections that count among the transfers.
///
/// Shape: clients share them as they share the others, so that one of them cannot have all.
#[derive(Debug)]
pub(super) struct Transfers {
    max: usize,
    count: usize,
    shares: Shares,
}

impl Transfers {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            count: 0,
            shares: Shares::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns true if one more of this client's may count among them.
    pub(super) fn has_room_for(&self, client: Client) -> bool {
        self.shares
            .allows(client, self.max.saturating_sub(self.count))
    }

    /// Counts one more of a client's.
    pub(super) fn begin(&mut self, client: Client) {
        self.count += 1;
        self.shares.add(client);
    }

    /// One of a client's counts no more.
    pub(super) fn end(&mut self, client: Client) {
        self.count -= 1;
        self.shares.remove(client);
    }
}

/// Returns true if each client may have one more, whatever it has of these.
pub(super) const fn are_plenty(busy: usize, free: usize) -> bool {
    free > 0 && busy <= TIMES * free
}

/// Connections that one client may have for each that is free.
const TIMES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    /// Returns how many are left when so many clients take in turns what they may.
    fn left_by(clients: u8, all: usize) -> usize {
        let (mut shares, mut free) = (Shares::default(), all);
        loop {
            let before = free;
            for number in 0..clients {
                let is_allowed = shares.allows(Some(client(number)), free);
                assert!(is_allowed || !are_plenty(all - free, free));
                if is_allowed {
                    shares.add(Some(client(number)));
                    free -= 1;
                }
            }
            if free == before {
                return free;
            }
        }
    }

    #[test]
    fn few_clients_leave_some_to_others() {
        assert_eq!(left_by(1, 256), 51);
        assert_eq!(left_by(2, 256), 28);
        assert_eq!(left_by(10, 256), 6);
        assert!(left_by(50, 256) >= 1);
        assert_eq!(left_by(1, 64), 12);
    }

    #[test]
    fn one_client_leaves_transfers_to_others_and_what_ends_leaves_no_trace() {
        let mut transfers = Transfers::new(4096);
        let (one, other) = (Some(client(1)), Some(client(2)));
        while transfers.has_room_for(one) {
            transfers.begin(one);
        }
        assert_eq!(transfers.len(), 3277);
        assert!(transfers.has_room_for(other) && transfers.has_room_for(None));
        transfers.begin(other);
        for _ in 0..3277 {
            transfers.end(one);
        }
        transfers.end(other);
        assert_eq!((transfers.len(), transfers.shares.0.len()), (0, 0));
        assert!(!Transfers::new(0).has_room_for(one));
    }

    #[test]
    fn of_few_connections_one_client_may_have_all() {
        for all in 1..=5 {
            assert_eq!(left_by(1, all), 0);
        }
        assert_eq!(left_by(1, 6), 1);
    }

    #[test]
    fn who_has_none_may_have_the_last() {
        let shares: Shares = (0..255).map(|_| Some(client(1))).collect();
        assert!(shares.allows(Some(client(2)), 1));
        assert!(!shares.allows(Some(client(1)), 1));
        assert!(!shares.allows(Some(client(2)), 0));
        let unknown: Shares = [None; 9].into_iter().collect();
        assert!(!unknown.allows(None, 2) && unknown.allows(Some(client(1)), 2));
    }
}
