//! How many of the connections one client may have.

use std::collections::HashMap;
use std::net::IpAddr;

/// The connections that clients have requests on, by whose they are.
///
/// Shape: a client may have one more while it has at most [`TIMES`] as many as are free. So the
/// requests of one client, or of a few, that are answered late or never leave a fifth, or less of
/// a few, to all others; and each of those may have as many as the others leave.
#[derive(Debug, Default)]
pub(super) struct Shares(HashMap<Option<IpAddr>, usize>);

impl Shares {
    /// Counts one more of a client's.
    pub(super) fn add(&mut self, client: Option<IpAddr>) {
        *self.0.entry(client).or_default() += 1;
    }

    /// Whether a client may have one more of so many that are free.
    pub(super) fn allows(&self, client: Option<IpAddr>, free: usize) -> bool {
        let own = self.0.get(&client).copied().unwrap_or_default();
        free > 0 && own <= TIMES * free
    }
}

impl FromIterator<Option<IpAddr>> for Shares {
    fn from_iter<I: IntoIterator<Item = Option<IpAddr>>>(clients: I) -> Self {
        let mut shares = Self::default();
        clients.into_iter().for_each(|client| shares.add(client));
        shares
    }
}

/// Whether each client may have one more, whatever it has of these.
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

    /// How many are left when so many clients take in turns what they may.
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
