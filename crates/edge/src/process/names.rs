//! The addresses of the servers that a configuration names, resolved at the start and again at each
//! reload.

use super::error::RunError;
use super::lookups::LookupTime;
use crate::config::PeerAddress;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Finds the addresses of a host, the preferred one first.
pub(super) type Resolver = fn(&PeerAddress) -> io::Result<Vec<SocketAddr>>;

/// The address of each name, as it was found last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses(HashMap<PeerAddress, SocketAddr>);

/// Looks names up, each of them once.
///
/// Shape: a lookup at the start takes as long as the resolver of the system does. One at a reload
/// ends in time. An address in use stays while the name still has it, or when the name cannot be
/// looked up.
#[derive(Debug)]
pub(super) struct Names {
    resolver: Resolver,
    before: Addresses,
    found: Addresses,
    /// Absent at the start.
    time: Option<LookupTime>,
    kept: Vec<RunError>,
}

/// The time for all lookups of a reload.
const RELOAD_LIMIT: Duration = Duration::from_secs(30);

impl Names {
    /// Lookups at a start.
    pub(super) fn at_start() -> Self {
        Self {
            resolver: PeerAddress::resolve_all,
            before: Addresses::default(),
            found: Addresses::default(),
            time: None,
            kept: Vec::new(),
        }
    }

    /// Lookups at a reload, after those that found `before`.
    pub(super) fn again(before: Addresses, resolver: Resolver) -> Self {
        Self {
            resolver,
            before,
            time: Some(LookupTime::new(RELOAD_LIMIT)),
            ..Self::at_start()
        }
    }

    /// The address of a server, which `option` names.
    ///
    /// # Errors
    /// [`RunError::Resolve`] for a name that has no address, and has had none.
    pub(super) fn resolve(
        &mut self,
        name: &PeerAddress,
        option: &'static str,
    ) -> Result<SocketAddr, RunError> {
        if let Some(address) = name.literal() {
            return Ok(address);
        }
        #[cfg(feature = "sim")]
        if let Some(ip) = dwell_evloop::sim::address_of(&name.host) {
            return Ok(SocketAddr::new(ip, name.port));
        }
        if let Some(address) = self.found.0.get(name) {
            return Ok(*address);
        }
        let before = self.before.0.get(name).copied();
        let address = match (self.look_up(name, option), before) {
            (Ok(addresses), Some(before)) if addresses.contains(&before) => before,
            (Ok(addresses), _) => addresses[0],
            (Err(error), Some(before)) => {
                self.kept.push(error);
                before
            }
            (Err(error), None) => return Err(error),
        };
        self.found.0.insert(name.clone(), address);
        Ok(address)
    }

    /// The addresses of a name; at least one.
    fn look_up(
        &self,
        name: &PeerAddress,
        option: &'static str,
    ) -> Result<Vec<SocketAddr>, RunError> {
        let (resolver, of_lookup) = (self.resolver, name.clone());
        let look_up = move || {
            let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
            let found = resolver(&of_lookup);
            let found = found.and_then(|found| match found.as_slice() {
                [] => Err(none()),
                _ => Ok(found),
            });
            found.map_err(|source| RunError::Resolve {
                name: of_lookup.to_string(),
                option,
                source,
            })
        };
        match &self.time {
            Some(time) => time.look_up((name.to_string(), option), look_up),
            None => look_up(),
        }
    }

    /// Returns true if every name that was looked up has the address that it had before.
    pub(super) fn is_as_before(&self) -> bool {
        let mut found = self.found.0.iter();
        found.all(|(name, address)| self.before.0.get(name) == Some(address))
    }

    /// Logs the names that have another address now, and those that keep theirs because no lookup
    /// has found one; returns all addresses.
    pub(super) fn finish(self) -> Addresses {
        for (name, now) in &self.found.0 {
            let before = self.before.0.get(name);
            if let Some(before) = before.filter(|before| *before != now) {
                tracing::info!(%name, %before, address = %now, "a server has another address");
            }
        }
        for error in &self.kept {
            tracing::warn!("the address before stays: {error}");
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> PeerAddress {
        text.parse().unwrap()
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    const ONE: Resolver = |_| Ok(vec![address("10.0.0.1:80"), address("10.0.0.2:80")]);
    const TURNED: Resolver = |_| Ok(vec![address("10.0.0.2:80"), address("10.0.0.1:80")]);
    const OTHER: Resolver = |_| Ok(vec![address("10.0.0.3:80")]);
    const EMPTY: Resolver = |_| Ok(Vec::new());
    const NONE: Resolver = |_| Err(io::Error::other("no server answers"));

    /// The address of `app:80` by lookups after one another, and the names that were kept.
    fn after(resolvers: &[Resolver]) -> Result<(SocketAddr, usize), RunError> {
        let mut before = Addresses::default();
        let mut last = None;
        for resolver in resolvers {
            let mut names = Names::again(before, *resolver);
            let found = names.resolve(&name("app:80"), "--upstream")?;
            assert_eq!(names.resolve(&name("app:80"), "--upstream").unwrap(), found);
            last = Some((found, names.kept.len()));
            before = names.finish();
        }
        Ok(last.unwrap())
    }

    #[test]
    fn a_name_with_another_address_has_that_one_from_then_on() {
        assert_eq!(after(&[ONE]).unwrap(), (address("10.0.0.1:80"), 0));
        assert_eq!(after(&[ONE, OTHER]).unwrap(), (address("10.0.0.3:80"), 0));
        assert_eq!(
            after(&[ONE, OTHER, TURNED]).unwrap(),
            (address("10.0.0.2:80"), 0)
        );
    }

    #[test]
    fn an_address_that_the_name_still_has_stays_whatever_their_order() {
        assert_eq!(after(&[ONE, TURNED]).unwrap(), (address("10.0.0.1:80"), 0));
    }

    #[test]
    fn a_name_that_cannot_be_looked_up_keeps_its_address_and_needs_one() {
        let kept = after(&[ONE, NONE, NONE]).unwrap();
        assert_eq!(kept, (address("10.0.0.1:80"), 1), "told once");
        let error = after(&[NONE]).unwrap_err().to_string();
        let told = "cannot resolve app:80 (--upstream): no server answers";
        assert_eq!(error, told);
        assert!(after(&[EMPTY]).is_err(), "a name without an address");
    }

    #[test]
    fn names_are_as_before_while_none_has_another_address() {
        let mut first = Names::again(Addresses::default(), ONE);
        first.resolve(&name("app:80"), "--upstream").unwrap();
        assert!(!first.is_as_before(), "it had none");
        let before = first.finish();
        let resolvers: [(Resolver, bool); 3] = [(TURNED, true), (NONE, true), (OTHER, false)];
        for (resolver, is_as_before) in resolvers {
            let mut names = Names::again(before.clone(), resolver);
            names.resolve(&name("app:80"), "--upstream").unwrap();
            assert_eq!(names.is_as_before(), is_as_before);
        }
    }

    #[test]
    fn numbers_are_not_looked_up() {
        let mut names = Names::again(Addresses::default(), NONE);
        let found = names.resolve(&name("[::1]:2"), "--upstream").unwrap();
        assert_eq!(found, address("[::1]:2"));
        assert_eq!(names.finish(), Addresses::default());
    }
}
