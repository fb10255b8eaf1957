//! The servers of one loop: drain, output accounts and hand-over apply to all of them.

use super::TokenEvent;
use super::app::Front;
use super::settings::{Settings, http_limits};
use super::tokens::kind;
use crate::config::Config;
use crate::handoff::{
    Departure, HandedConnection, HandoffSender, InheritedListener, ListenAddress, Passed, Role,
};
use crate::ops::admin::Admin;
use crate::proxy::Tunnels;
use dwell_engine::websocket::WebSockets;
use dwell_engine::{Detached, Http};
use dwell_evloop::{Context, Listener, LoopOutput, Readiness, Token};
use dwell_store_server::StoreServer;
use std::io;
use std::net::SocketAddr;

/// Components of a loop that have listeners or connections of clients.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) http: Http,
    pub(crate) websockets: WebSockets,
    pub(crate) tunnels: Tunnels,
    /// The listener for operators, on the first loop.
    pub(crate) admin: Option<Admin>,
    /// The embedded store's server, where it has listeners.
    pub(crate) store: Option<StoreServer>,
    /// The clients' listeners, by configured address.
    pub(crate) listening: Vec<(SocketAddr, Token)>,
    /// Connections of clients that have left HTTP, as counted in the limits of `http`.
    pub(crate) elsewhere: usize,
}

/// The address that a listener of clients has, and true if it is one of `tls.listen`.
pub(crate) fn shown_address(
    config: &Config,
    configured: SocketAddr,
    listener: &Listener,
) -> (SocketAddr, bool) {
    let is_secure = config.tls.listen.contains(&configured);
    (listener.address().unwrap_or(configured), is_secure)
}

impl Servers {
    /// Passes an event to the component that owns `token`.
    pub(super) fn token_event(
        &mut self,
        context: &mut Context,
        token: Token,
        what: TokenEvent,
        front: &mut Front,
    ) {
        match what {
            TokenEvent::Ready(readiness) => self.ready(context, token, readiness, front),
            TokenEvent::Expired => self.expired(context, token, front),
        }
    }

    fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        front: &mut Front,
    ) {
        match token.kind() {
            kind::CLIENT | kind::CLIENT_LISTENER | kind::CLIENT_STREAM => {
                self.http.ready(context, token, readiness, front);
            }
            kind::WEBSOCKET => {
                let messages = &mut front.polls.messages();
                self.websockets.ready(context, token, readiness, messages);
            }
            kind::TUNNEL => self.tunnels.ready(context, token, readiness),
            kind::STORE | kind::STORE_LISTENER => {
                if let Some(store) = &mut self.store {
                    store.ready(context, token, readiness);
                }
            }
            _ => {
                if let Some(admin) = &mut self.admin {
                    admin.ready(context, token, readiness);
                }
            }
        }
    }

    fn expired(&mut self, context: &mut Context, token: Token, front: &mut Front) {
        match token.kind() {
            kind::CLIENT | kind::CLIENT_LISTENER | kind::CLIENT_STREAM => {
                self.http.expired(context, token, front);
            }
            kind::WEBSOCKET => {
                let messages = &mut front.polls.messages();
                self.websockets.expired(context, token, messages);
            }
            kind::TUNNEL => self.tunnels.expired(context, token),
            kind::STORE | kind::STORE_LISTENER => {
                if let Some(store) = &mut self.store {
                    store.expired(context, token);
                }
            }
            _ => {
                if let Some(admin) = &mut self.admin {
                    admin.expired(context, token);
                }
            }
        }
    }

    /// Gives each component an account of its output.
    pub(crate) fn account(&mut self, account: impl Fn() -> LoopOutput) {
        self.http.account(account());
        self.websockets.account(account());
        if let Some(store) = &mut self.store {
            store.account(account());
        }
    }

    /// The number of connections of clients.
    pub(super) fn connections(&self) -> usize {
        self.http.connections() + self.elsewhere
    }

    /// Counts the connections that have left HTTP; returns true if their number has changed, and
    /// with it the limit for HTTP.
    pub(super) fn count_elsewhere(&mut self) -> bool {
        self.http.counted_left();
        let elsewhere = self.websockets.connections() + self.tunnels.len();
        std::mem::replace(&mut self.elsewhere, elsewhere) != elsewhere
    }

    /// Applies the limits of `config`, of which each of `loops` loops has a share.
    pub(super) fn limit(&mut self, config: &Config, loops: usize) {
        self.http
            .set_limits(http_limits(config, loops, self.elsewhere));
    }

    /// Closes listeners that are no longer configured, and opens the new ones of the loop `index`.
    pub(super) fn listen_as_configured(
        &mut self,
        context: &mut Context,
        front: &mut Front,
        settings: &Settings,
        index: usize,
    ) {
        let config = &settings.config;
        let listening = std::mem::take(&mut self.listening);
        let (stays, goes): (Vec<_>, Vec<_>) = listening.into_iter().partition(|(address, _)| {
            config.server.listen.contains(address) || config.tls.listen.contains(address)
        });
        for (_, listener) in goes {
            self.http.retire(context, listener, front);
        }
        self.listening = stays;
        let acceptor_at = |address: &SocketAddr| {
            let is_secure = config.tls.listen.contains(address);
            settings.acceptor.clone().filter(|_| is_secure)
        };
        for (address, listener) in &self.listening {
            self.http.secure(*listener, acceptor_at(address));
        }
        for (address, mut listener) in settings.take_listeners(index) {
            listener.secure(acceptor_at(&address));
            let (shown, is_secure) = shown_address(config, address, &listener);
            match self.http.listen_as(context, listener) {
                Ok(token) => {
                    front.name_listener(&mut self.http, token, shown, is_secure);
                    self.listening.push((address, token));
                }
                Err(error) => tracing::error!(%address, %error, "cannot listen"),
            }
        }
    }

    /// True if no client is left.
    pub(super) fn is_left(&self) -> bool {
        let connections = self.http.connections() + self.websockets.connections();
        connections == 0
            && self.tunnels.len() == 0
            && self.store.as_ref().is_none_or(StoreServer::is_left)
    }

    /// True if a memcached client has requested a shutdown.
    pub(super) fn is_shutdown_asked(&self) -> bool {
        let store = self.store.as_ref();
        store.is_some_and(StoreServer::is_shutdown_asked)
    }

    /// Closes the listeners, and closes connections as they become idle.
    pub(super) fn drain(&mut self, context: &mut Context, front: &mut Front) {
        self.http.drain(context, front);
        if let Some(store) = &mut self.store {
            store.drain(context);
        }
        if let Some(admin) = &mut self.admin {
            admin.drain();
        }
    }

    /// Closes all connections.
    pub(super) fn close_all(&mut self, context: &mut Context, front: &mut Front) {
        self.http.close_all(context, front);
        self.tunnels.close_all(context);
        self.websockets
            .close_all(context, &mut front.polls.messages());
        if let Some(store) = &mut self.store {
            store.close_all(context);
        }
    }

    /// Ends the connections and streams of these clients; returns the number of open ones.
    pub(super) fn cut_off(
        &mut self,
        context: &mut Context,
        front: &mut Front,
        tokens: &[Token],
    ) -> usize {
        let mut count = 0;
        for token in tokens {
            let is_cut = match token.kind() {
                kind::CLIENT | kind::CLIENT_STREAM => self.http.cut(context, *token, front),
                kind::WEBSOCKET => {
                    let messages = &mut front.polls.messages();
                    self.websockets.cut(context, *token, messages)
                }
                kind::STORE => {
                    let store = self.store.as_mut();
                    store.is_some_and(|store| store.cut(context, *token))
                }
                _ => false,
            };
            count += usize::from(is_cut);
        }
        count
    }

    /// Duplicates the descriptors of all listening sockets. If the system does not duplicate one,
    /// it is left out, and its address closed.
    pub(crate) fn sockets(&self) -> Vec<InheritedListener> {
        let of = |role, listener: &Listener| {
            let descriptor = Passed::of(listener).ok()?;
            let address = ListenAddress::of(listener).ok()?;
            Some(InheritedListener {
                role,
                address,
                owns_file: listener.path().is_some(),
                descriptor,
            })
        };
        let clients = self.http.listeners();
        let admin = self.admin.iter().flat_map(Admin::listeners);
        let store = self.store.iter().flat_map(StoreServer::listeners);
        let clients = clients.filter_map(|listener| of(Role::Client, listener));
        let admin = admin.filter_map(|listener| of(Role::Admin, listener));
        let store = store.filter_map(|listener| of(Role::Store, listener));
        clients.chain(admin).chain(store).collect()
    }

    /// Hands idle connections over, as many as there is room for on the way.
    pub(super) fn hand_over(
        &mut self,
        context: &mut Context,
        front: &mut Front,
        sender: &HandoffSender,
        room: usize,
    ) {
        let give = |role, Detached { stream, input }| {
            sender.give(Departure {
                role,
                is_trusted: false,
                stream,
                input,
            });
        };
        let takes_tls = sender.takes_tls();
        let leave = |_: &mut Context, detached| give(Role::Client, detached);
        let mut given = self.http.hand_over(context, front, takes_tls, room, leave);
        if let Some(admin) = &mut self.admin {
            let leave = |detached| give(Role::Admin, detached);
            given += admin.hand_over(context, room - given, leave);
        }
        if let Some(store) = &mut self.store {
            store.hand_over(context);
            for left in store.take_leaving(context, room - given) {
                given += 1;
                sender.give(Departure {
                    role: Role::Store,
                    is_trusted: left.is_trusted,
                    stream: left.stream,
                    input: left.input,
                });
            }
        }
        if given == room {
            sender.await_room();
        }
    }

    /// Ends the connections that the successor does not take, as in a drain.
    pub(super) fn keep_from_successor(&mut self, context: &mut Context, front: &mut Front) {
        self.drain(context, front);
        if let Some(admin) = &mut self.admin {
            admin.end(context);
        }
    }

    /// Serves the connections from the predecessor.
    pub(super) fn adopt(
        &mut self,
        context: &mut Context,
        front: &mut Front,
        connections: Vec<HandedConnection>,
    ) {
        for connection in connections {
            if let Err(error) = self.adopt_one(context, front, connection) {
                tracing::warn!(%error, "a connection that was handed over is lost");
            }
        }
    }

    fn adopt_one(
        &mut self,
        context: &mut Context,
        front: &mut Front,
        connection: HandedConnection,
    ) -> io::Result<()> {
        let mut stream = connection.descriptor.into_stream()?;
        if let Some(frozen) = connection.frozen {
            stream.thaw(&frozen)?;
        }
        let input = connection.input;
        #[cfg(feature = "sim")]
        let input = if dwell_evloop::sim::Planted::ForgetInput.is_in() {
            Vec::new()
        } else {
            input
        };
        match (connection.role, &mut self.admin, &mut self.store) {
            (Role::Client, _, _) => {
                front.admission.count_adopted(&mut stream);
                let detached = Detached { stream, input };
                self.http.adopt_detached(context, detached, front);
            }
            (Role::Admin, Some(admin), _) => admin.adopt(context, Detached { stream, input }),
            (Role::Store, _, Some(store)) => {
                store.adopt(context, stream, input, connection.is_trusted);
            }
            _ => return Err(io::Error::other("no listener of its kind is left")),
        }
        Ok(())
    }
}
