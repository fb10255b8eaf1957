//! Connections that leave for another process, and those that have come from one.

use super::Http;
use super::accept::{admit, announce, first_timeout};
use super::visit::Fate;
use crate::Detached;
use crate::app::App;
use crate::connection::{Connection, Phase};
use dwell_evloop::{Context, Listener, Peer, Readiness, Stream, Token};

/// The connections that go on in another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    No,
    /// Connections without TLS.
    Plain,
    /// Connections of TLS 1.3, too.
    All,
}

impl Leaving {
    /// Returns true if the connection goes on there, at the latest when its answer is out.
    pub(super) fn takes(self, stream: &Stream) -> bool {
        match self {
            Self::No => false,
            Self::Plain => stream.can_move(),
            Self::All => stream.can_move() || stream.can_freeze(),
        }
    }
}

impl Http {
    /// The listeners, so that their sockets can be given to another process.
    ///
    /// ```
    /// use dwell_engine::{HttpDriver, Limits, Outcome, Reply, Request};
    /// use dwell_evloop::{Context, EventLoop, Listener};
    ///
    /// let app = |_: &mut Context, _: &Request<'_>, _: &mut Reply<'_>| Outcome::Answered;
    /// let mut event_loop = EventLoop::<()>::new()?;
    /// let mut driver = HttpDriver::new(Limits::default(), app);
    /// let address = driver.listen(event_loop.context(), ([127, 0, 0, 1], 0).into())?;
    /// let addresses: Vec<_> = driver.http.listeners().map(Listener::address).collect();
    /// assert_eq!(addresses, [Some(address)]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter()
    }

    /// Stops listening without accepting more clients, and lets every connection leave that is
    /// between two requests, with the received part of the next one.
    ///
    /// Shape: bytes that were not read stay in the socket, and no request is begun here any more. A
    /// process that has the listening sockets, too, accepts the clients that the kernel has
    /// connected. Called again at the ends of later turns, it lets those connections go whose
    /// responses have been sent meanwhile. At most `count_max` go with each call, and the others
    /// wait for the next one; returns how many have gone. If the other process takes no more of
    /// them, [`drain`](Self::drain) ends the others. Held exchanges are the app's to answer.
    /// `takes_tls` says that the process takes connections of TLS 1.3, whose stream is to be
    /// [frozen](dwell_evloop::Stream::freeze) for it. Other connections under TLS cannot leave,
    /// because their keys stay here, nor can those whose client is known by whole certificates or
    /// by the PROXY protocol: they end with their next answer, as in [`drain`](Self::drain).
    ///
    /// ```
    /// use dwell_engine::{App, Detached, Http};
    /// use dwell_evloop::Context;
    ///
    /// /// All that can go on elsewhere.
    /// fn leave<A: App>(http: &mut Http, context: &mut Context, app: &mut A) -> Vec<Detached> {
    ///     let mut leaving = Vec::new();
    ///     let leave = |_: &mut Context, detached| leaving.push(detached);
    ///     http.hand_over(context, app, true, usize::MAX, leave);
    ///     leaving
    /// }
    /// #
    /// # use std::io::{Read, Write};
    /// # let (mut first_loop, mut first, address) = dwell_testkit::hello();
    /// # let (mut second_loop, mut second, _) = dwell_testkit::hello();
    /// # let mut client = std::net::TcpStream::connect(address)?;
    /// # client.write_all(b"GET / HTTP/1.1\r\n")?;
    /// # while first.http.connections() == 0 {
    /// #     first_loop.turn(&mut first, None)?;
    /// # }
    /// # for detached in leave(&mut first.http, first_loop.context(), &mut first.app) {
    /// #     second.http.adopt_detached(second_loop.context(), detached, &mut second.app);
    /// # }
    /// # assert_eq!((first.http.connections(), second.http.connections()), (0, 1));
    /// # client.write_all(b"Host: a\r\nConnection: close\r\n\r\n")?;
    /// # while second.http.connections() > 0 {
    /// #     second_loop.turn(&mut second, None)?;
    /// # }
    /// # let answer = std::io::read_to_string(client)?;
    /// # assert!(answer.ends_with("hello\n"), "{answer}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn hand_over<A: App>(
        &mut self,
        context: &mut Context,
        app: &mut A,
        takes_tls: bool,
        count_max: usize,
        mut leave: impl FnMut(&mut Context, Detached),
    ) -> usize {
        let kinds = if takes_tls {
            Leaving::All
        } else {
            Leaving::Plain
        };
        let begins = std::mem::replace(&mut self.leaving, kinds) == Leaving::No;
        self.listeners.unlisten_all(context);
        if begins {
            self.drain_by(context, app, |connection| {
                connection.exchange.phase == Phase::Http2 || !kinds.takes(&connection.peer.stream)
            });
        }
        let can_leave = |token: &Token| {
            let connection = self.connections.get(*token);
            connection.is_some_and(|connection| can_leave(connection, kinds))
        };
        let leaving = self.connections.tokens().filter(can_leave);
        let leaving: Vec<_> = leaving.take(count_max).collect();
        let mut count = 0;
        for token in leaving {
            if let Some(connection) = self.forget(context, token) {
                let detached = super::unregistered(context, connection);
                leave(context, detached);
                app.closed(context, token);
                count += 1;
            }
        }
        count
    }

    /// Serves a client that has left another server, with what of its next request had come there.
    pub fn adopt_detached<A: App>(
        &mut self,
        context: &mut Context,
        detached: Detached,
        app: &mut A,
    ) {
        let timeout = first_timeout(self.draining, &self.limits);
        let peer = Peer::from(detached);
        let has_input = peer.has_tail() || peer.is_unread();
        let connection = Connection::new(peer);
        let admitted = admit(context, &mut self.connections, connection, timeout);
        let peers = self.beside.peers.as_mut();
        let has_failed = peers
            .zip(admitted)
            .is_some_and(|(peers, (token, stream))| !peers.adopted(token, stream));
        let token = admitted.map(|(token, _)| token);
        announce(context, admitted, None, app);
        if let (Some(token), true) = (token, has_failed) {
            // Its request could not be told from one of another client.
            self.settle(context, token, Some(Fate::Close), app);
        } else if let (Some(token), true) = (token, has_input) {
            context.again(token, Readiness::default());
        }
    }
}

/// Returns true if a connection owes nothing, and is owed nothing but a request.
fn can_leave(connection: &Connection, kinds: Leaving) -> bool {
    matches!(connection.exchange.phase, Phase::Idle | Phase::Head)
        && kinds.takes(&connection.peer.stream)
        && connection.peer.stream.is_flushed()
        && connection.incoming.is_none()
        && !connection.finished
}
