//! The options of TLS towards servers.

use crate::chance::random;

/// The servers behind the edge, of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// The application.
    App,
    /// The memcached servers.
    Memcached,
}

/// TLS towards servers in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutwardOptions {
    /// The application is spoken to under TLS.
    pub app: bool,
    /// The memcached servers are.
    pub memcached: bool,
    /// Their TLS is 1.2, not 1.3.
    pub is_tls12: bool,
    /// Times that servers show wrong certificates, at most.
    pub wrong_max: u64,
}

impl OutwardOptions {
    /// The options of a seed, if it has any.
    pub(crate) fn of(seed: u64) -> Option<Self> {
        let mut random = random(seed, 50);
        let has = random.below(4) == 0;
        let options = Self {
            app: random.below(4) > 0,
            memcached: random.below(4) > 0,
            is_tls12: random.below(4) == 0,
            wrong_max: random.below(3) * 2,
        };
        has.then_some(options)
    }
}

impl Behind {
    /// The name under which a wrong certificate of theirs is counted.
    pub fn wrong(self) -> &'static str {
        match self {
            Self::App => "wrong certificate of the application",
            Self::Memcached => "wrong certificate of memcached",
        }
    }
}
