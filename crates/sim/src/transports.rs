//! The ways in which clients reach the edge.

use crate::carrier::Carrier;
use crate::connection::Connection;
use crate::h2::{BrowserAct, Browsers, Dial};
use crate::keys::Broken;
use crate::options::Options;
use crate::reload;
use crate::report::Counts;
use crate::tls::{Side, Who};
use dwell_evloop::sim::SimNet;
use std::net::SocketAddr;
use std::time::Duration;

/// The clients' side of TLS and of HTTP/2.
pub(crate) struct Transports {
    /// TLS, if the edge listens under it.
    pub(crate) side: Option<Side>,
    /// The connections of HTTP/2, if some clients speak that.
    pub(crate) browsers: Option<Browsers>,
}

impl Transports {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            side: Side::new(options, reload::SECURE.into()),
            browsers: Browsers::new(options),
        }
    }

    /// Reads what has come on all connections of HTTP/2, and checks it.
    pub(crate) fn attend(
        &self,
        hindered_until: Duration,
        counts: &mut Counts,
    ) -> Result<(), Broken> {
        let browsers = self.browsers.as_ref();
        browsers.map_or(Ok(()), |browsers| browsers.attend(hindered_until, counts))
    }

    /// Writes what is to be written on them.
    pub(crate) fn flush(&self) {
        if let Some(browsers) = &self.browsers {
            browsers.flush();
        }
    }

    /// Begins the connection of a client, under TLS or not, or a place on one of HTTP/2.
    pub(crate) fn connect(&self, who: Who, network: &SimNet, to: SocketAddr) -> Connection {
        let dial = self.dial(network, to);
        let side = self.side.as_ref().filter(|side| side.has(who));
        let browsers = self.browsers.as_ref().filter(|browsers| browsers.has(who));
        let is_shared = |browsers: &&Browsers| side.is_none() || browsers.is_secure(who, &dial);
        if let Some(browsers) = browsers.filter(is_shared) {
            return Connection::streams(browsers.connect(who, &dial));
        }
        Connection::own(match side {
            Some(side) => side.connect(network, false),
            None => Carrier::Plain(network.connect(to)),
        })
    }

    /// Has something befall a connection of HTTP/2; returns false if there is none.
    pub(crate) fn browse(
        &self,
        act: (usize, BrowserAct),
        network: &SimNet,
        to: SocketAddr,
    ) -> bool {
        let browsers = self.browsers.as_ref();
        browsers.is_some_and(|browsers| browsers.act(act, &self.dial(network, to)))
    }

    fn dial<'a>(&'a self, network: &'a SimNet, to: SocketAddr) -> Dial<'a> {
        let side = self.side.as_ref();
        Dial { network, to, side }
    }
}
