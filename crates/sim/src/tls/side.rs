//! The state that all clients under TLS of a run share.

use super::config::{Reached, config};
use super::{Habits, Tls};
use crate::carrier::Carrier;
use crate::chance::random;
use crate::options::Options;
use dwell_evloop::Random;
use dwell_evloop::sim::{SimNet, SimStream};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs as provider;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// The clients' side of TLS: configurations, and the tickets in them.
pub(crate) struct Side {
    at: SocketAddr,
    /// Configurations of HTTP/1.1, and of clients that prefer HTTP/2.
    configs: [[Arc<ClientConfig>; SUITES]; 2],
    random: RefCell<Random>,
    habits: Habits,
    clients: u64,
    pub(crate) reached: Reached,
}

/// Cipher suites that clients offer, one each.
const SUITES: usize = 4;

/// A client that may be under TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Client(usize),
    Stream(usize),
    Socket(usize),
    Publisher(usize),
}

impl Who {
    /// The number among its kind.
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Client(number)
            | Self::Stream(number)
            | Self::Socket(number)
            | Self::Publisher(number) => number,
        }
    }
}

impl Side {
    pub(crate) fn new(options: &Options, at: SocketAddr) -> Option<Self> {
        let tls = options.tls.as_ref()?;
        let suites = [
            provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
            provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
            provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            provider::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ];
        Some(Self {
            at,
            configs: [false, true].map(|is_http2| suites.map(|suite| config(suite, is_http2))),
            random: RefCell::new(random(options.seed, 41)),
            habits: tls.habits,
            clients: tls.clients,
            reached: Reached::default(),
        })
    }

    /// The address under TLS.
    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Returns true if this client is under TLS.
    pub(crate) fn has(&self, who: Who) -> bool {
        let place = match who {
            Who::Client(number) => number,
            Who::Stream(number) => 20 + number,
            Who::Socket(number) => 40 + number,
            Who::Publisher(number) => 60 + number,
        };
        (self.clients >> (place % 64)) & 1 == 1
    }

    /// Begins a connection under TLS, which may be one of HTTP/2.
    pub(crate) fn connect(&self, network: &SimNet, is_http2: bool) -> Carrier {
        let stream = network.connect(self.at);
        let mut random = self.random.borrow_mut();
        // TLS 1.2 is the last one, and rare.
        let place = random.below(2 * SUITES as u64 - 1) as usize / 2;
        let config = &self.configs[usize::from(is_http2)][place];
        let tls = self.begin(config, self.habits, random.draw(), &stream);
        Carrier::secure(stream, tls)
    }

    /// Begins a connection under TLS 1.3 whose records are made by hand.
    pub(crate) fn intrude(&self, stream: &SimStream, flips_finished: bool) -> Tls {
        let mut random = self.random.borrow_mut();
        let habits = Habits {
            is_own: true,
            flips_finished,
            ..Habits::default()
        };
        let place = random.below(SUITES as u64 - 1) as usize;
        self.begin(&self.configs[0][place], habits, random.draw(), stream)
    }

    fn begin(
        &self,
        config: &Arc<ClientConfig>,
        habits: Habits,
        seed: u64,
        stream: &SimStream,
    ) -> Tls {
        stream.seal();
        let reached = Rc::clone(&self.reached);
        Tls::new(
            Arc::clone(config),
            habits,
            random(seed, 42),
            (reached, stream.elapsed()),
        )
    }
}
