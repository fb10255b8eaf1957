//! The beginnings of connections, and the end of the component.

use super::listener_labels;
use super::moving::Leaving;
use super::preface::HANDSHAKE_TIMEOUT;
use super::visit::{FIRST_REQUEST_TIMEOUT, Fate};
use super::{Http, Peers};
use crate::Detached;
use crate::app::{App, HttpEvent};
use crate::connection::{Connection, Phase};
use crate::limits::Limits;
use dwell_evloop::{Accepted, Acceptor, Context, Listener, Peer, Readiness, Slab, Stream, Token};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Listeners of one component.
pub(super) const LISTENERS_MAX: usize = 64;
/// Batches of accepts when listening ends; enough for a full backlog of 4096 and more.
const LAST_BATCHES_MAX: usize = 64;

impl Http {
    /// Keeps the addresses of clients, so that each is asked of the system once.
    ///
    /// Shape: 20 bytes for each connection, for an app that asks with every request.
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    ///
    /// let kinds = Kinds { listener: 0, connection: 1 };
    /// let http = Http::new(kinds, Limits::default()).keep_peers();
    /// assert_eq!(http.connections(), 0);
    /// ```
    #[must_use]
    pub fn keep_peers(mut self) -> Self {
        self.beside.peers = Some(Peers::default());
        self
    }

    /// As [`keep_peers`](Self::keep_peers), for an app that goes by the address of every client:
    /// each is kept from when it connects. Connections from elsewhere that have failed before they
    /// are adopted, so that nothing has their address any more, are closed.
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    ///
    /// let kinds = Kinds { listener: 0, connection: 1 };
    /// let http = Http::new(kinds, Limits::default()).keep_all_peers();
    /// assert_eq!(http.connections(), 0);
    /// ```
    #[must_use]
    pub fn keep_all_peers(mut self) -> Self {
        self.beside.peers = Some(Peers::of_all());
        self
    }

    /// Accepts the clients of `listener` from now on; returns its address, if it has one.
    ///
    /// # Errors
    /// When the loop cannot register it, its input buffer is not larger than a head may be, or
    /// there are 64 already.
    pub fn listen(
        &mut self,
        context: &mut Context,
        listener: Listener,
    ) -> io::Result<Option<SocketAddr>> {
        let address = listener.address();
        self.listen_as(context, listener)?;
        Ok(address)
    }

    /// As [`listen`](Self::listen); returns the listener's name.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    /// use dwell_evloop::{Context, EventLoop, ListenOptions, Token, bind_group};
    /// use std::io;
    /// use std::net::SocketAddr;
    ///
    /// /// Moves to another port. Clients of the old one are served to the end.
    /// fn move_to(
    ///     http: &mut Http,
    ///     context: &mut Context,
    ///     old: Token,
    ///     address: SocketAddr,
    /// ) -> io::Result<Token> {
    ///     let mut new = old;
    ///     for listener in bind_group(address, 1, ListenOptions::default())? {
    ///         new = http.listen_as(context, listener)?;
    ///     }
    ///     assert!(http.unlisten(context, old));
    ///     Ok(new)
    /// }
    ///
    /// let mut event_loop = EventLoop::<()>::new()?;
    /// let mut http = Http::new(Kinds { listener: 0, connection: 1 }, Limits::default());
    /// let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    /// let first = bind_group(any, 1, ListenOptions::default())?.remove(0);
    /// let first = http.listen_as(event_loop.context(), first)?;
    /// let second = move_to(&mut http, event_loop.context(), first, any)?;
    /// assert_ne!(first, second);
    /// # Ok::<(), io::Error>(())
    /// ```
    pub fn listen_as(&mut self, context: &mut Context, listener: Listener) -> io::Result<Token> {
        let (head, input) = (self.limits.head.head_bytes_max, context.input_bytes());
        if head >= input {
            let error = format!("head of {head} bytes exceeds the input buffer: {input}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        self.listeners.listen(context, listener, ())
    }

    /// Accepts clients there under TLS from now on, or by `None` without it. False where there is
    /// no such listener.
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    /// use dwell_evloop::{Acceptor, EventLoop, ListenOptions, Token, bind_group};
    ///
    /// /// Takes the certificates of another configuration, which may have none.
    /// fn follow(http: &mut Http, listeners: &[Token], acceptor: Option<&Acceptor>) -> usize {
    ///     let mut followed = 0;
    ///     for listener in listeners {
    ///         followed += usize::from(http.secure(*listener, acceptor.cloned()));
    ///     }
    ///     followed
    /// }
    /// #
    /// # let mut event_loop = EventLoop::<()>::new()?;
    /// # let mut http = Http::new(Kinds { listener: 0, connection: 1 }, Limits::default());
    /// # let any = ([127, 0, 0, 1], 0).into();
    /// # let listener = bind_group(any, 1, ListenOptions::default())?.remove(0);
    /// # let listener = http.listen_as(event_loop.context(), listener)?;
    /// # assert_eq!(follow(&mut http, &[listener], None), 1);
    /// # assert!(http.unlisten(event_loop.context(), listener));
    /// # assert_eq!(follow(&mut http, &[listener], None), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn secure(&mut self, listener: Token, acceptor: Option<Acceptor>) -> bool {
        let listener = self.listeners.get_mut(listener);
        listener.map(|listener| listener.secure(acceptor)).is_some()
    }

    /// Labels the connections that a listener accepts from now on. They are
    /// [counted](Self::open_of) by label, and a [reply](crate::Reply::listener_label) has the label
    /// of its connection.
    ///
    /// Shape: a label stands for any number of listeners; 255 stands for none.
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    /// use dwell_evloop::{EventLoop, ListenOptions, Token, bind_group};
    ///
    /// const CLIENTS: u8 = 0;
    /// const ADMIN: u8 = 1;
    ///
    /// /// Counts the connections of each of two listeners from now on.
    /// fn label_both(http: &mut Http, [clients, admin]: [Token; 2]) {
    ///     http.label(clients, CLIENTS);
    ///     http.label(admin, ADMIN);
    /// }
    /// #
    /// # let mut event_loop = EventLoop::<()>::new()?;
    /// # let mut http = Http::new(Kinds { listener: 0, connection: 1 }, Limits::default());
    /// # let mut listen = || {
    /// #     let any = ([127, 0, 0, 1], 0).into();
    /// #     let listener = bind_group(any, 1, ListenOptions::default())?.remove(0);
    /// #     http.listen_as(event_loop.context(), listener)
    /// # };
    /// # let both = [listen()?, listen()?];
    /// # label_both(&mut http, both);
    ///
    /// // Nobody has connected yet.
    /// assert_eq!([CLIENTS, ADMIN].map(|label| http.open_of(label)), [0, 0]);
    /// assert_eq!([CLIENTS, ADMIN].map(|label| http.accepted_of(label)), [0, 0]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn label(&mut self, listener: Token, label: u8) {
        let labels = self.beside.labels.get_or_insert_default();
        labels.label(listener, label);
    }

    /// Open connections of the listeners with this [label](Self::label).
    ///
    /// Shape: a connection that has left HTTP counts no more.
    pub fn open_of(&self, label: u8) -> usize {
        let labels = self.beside.labels.as_ref();
        labels.map_or(0, |labels| labels.open(label))
    }

    /// Connections that the listeners with this [label](Self::label) have accepted.
    pub fn accepted_of(&self, label: u8) -> u64 {
        let labels = self.beside.labels.as_ref();
        labels.map_or(0, |labels| labels.accepted(label))
    }

    /// Stops listening there; the connections accepted before live on. False where there is no
    /// such listener.
    pub fn unlisten(&mut self, context: &mut Context, listener: Token) -> bool {
        if let Some(labels) = &mut self.beside.labels {
            // The next listener in its place has no label.
            labels.label(listener, listener_labels::NONE);
        }
        self.listeners.unlisten(context, listener)
    }

    /// Stops listening as [`unlisten`](Self::unlisten) does, but first accepts the clients that
    /// have connected by now.
    ///
    /// ```
    /// use dwell_engine::{App, Http};
    /// use dwell_evloop::{Context, Token};
    ///
    /// /// This address is not listened on any more.
    /// fn leave<A: App>(http: &mut Http, context: &mut Context, listener: Token, app: &mut A) {
    ///     assert!(http.retire(context, listener, app));
    ///     assert!(!http.retire(context, listener, app), "there is none any more");
    /// }
    /// #
    /// # use dwell_evloop::{ListenOptions, bind_group};
    /// # let (mut event_loop, mut driver, _) = dwell_testkit::hello();
    /// # let any = ([127, 0, 0, 1], 0).into();
    /// # let listener = bind_group(any, 1, ListenOptions::default())?.remove(0);
    /// # let address = listener.address().expect("it is no unix socket");
    /// # let listener = driver.http.listen_as(event_loop.context(), listener)?;
    /// # let client = std::net::TcpStream::connect(address)?;
    /// # leave(&mut driver.http, event_loop.context(), listener, &mut driver.app);
    /// # assert_eq!(driver.http.connections(), 1, "it has come in time");
    /// # drop(client);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn retire<A: App>(&mut self, context: &mut Context, listener: Token, app: &mut A) -> bool {
        for _ in 0..LAST_BATCHES_MAX {
            if self.accept(context, listener, app) {
                break;
            }
        }
        self.unlisten(context, listener)
    }

    /// Stops listening and lets every connection end with its next answer.
    ///
    /// Shape: clients that the kernel has connected already are still accepted. A connection
    /// between two requests is closed, unless the next one has come; one without a first request
    /// has a second for it. Held exchanges are the app's to answer. No connection
    /// [leaves](Self::hand_over) for another process any more.
    ///
    /// ```
    /// use dwell_engine::{App, Http};
    /// use dwell_evloop::Context;
    ///
    /// /// What a driver does when it is told to end, and when its patience is over.
    /// fn end<A: App>(http: &mut Http, context: &mut Context, app: &mut A, is_late: bool) {
    ///     if is_late {
    ///         http.close_all(context, app);
    ///     } else {
    ///         http.drain(context, app);
    ///     }
    ///     if http.connections() == 0 {
    ///         context.stop();
    ///     }
    /// }
    /// #
    /// # let (mut event_loop, mut driver, address) = dwell_testkit::hello();
    /// # let client = std::net::TcpStream::connect(address)?;
    /// # end(&mut driver.http, event_loop.context(), &mut driver.app, false);
    /// # assert_eq!(driver.http.connections(), 1, "it has come in time, and may ask");
    /// # end(&mut driver.http, event_loop.context(), &mut driver.app, true);
    /// # assert!(event_loop.context().is_stopped());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn drain<A: App>(&mut self, context: &mut Context, app: &mut A) {
        // The clients that are still accepted are answered at once, and for the last time.
        self.draining = true;
        self.leaving = Leaving::No;
        for token in self.listeners.tokens() {
            self.retire(context, token, app);
        }
        self.drain_by(context, app, |_| true);
    }

    /// Lets those connections end with their next answer.
    pub(super) fn drain_by<A: App>(
        &mut self,
        context: &mut Context,
        app: &mut A,
        ends: impl Fn(&Connection) -> bool,
    ) {
        let is_one = |token: &Token| self.connections.get(*token).is_some_and(&ends);
        let connections: Vec<_> = self.connections.tokens().filter(is_one).collect();
        for token in connections {
            if self.is_http2(token) {
                self.drain_http2(context, token, app);
                continue;
            }
            let visit = self.visit(context, token, app);
            let fate = visit.map(|mut visit| visit.drain());
            self.settle(context, token, fate, app);
        }
    }

    /// Accepts a batch. Returns true when no other client can be accepted now.
    ///
    /// Shape: a client without TLS has often sent its first request already, so it is read before
    /// the socket is registered with the loop, which is not needed for a connection that ends with
    /// its first answer. Input that comes later is reported when the socket is registered.
    pub(super) fn accept<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        app: &mut A,
    ) -> bool {
        let mut unread = std::mem::take(&mut self.unread);
        let connections = &mut self.connections;
        let mut peers = self.beside.peers.as_mut();
        let mut labels = self.beside.labels.as_mut();
        let idle_timeout = self.limits.idle_timeout;
        let accept = |context: &mut Context, stream, address| {
            let open = connections.len();
            let Some(stream) = app.accepted(context, stream, open) else {
                return;
            };
            let mut connection = Connection::new(Peer::new(stream));
            let has_header = app.expects_proxy_header(&connection.peer.stream);
            if has_header {
                connection.exchange.phase = Phase::Preface;
            }
            let is_read_now = connection.exchange.phase == Phase::Idle;
            let admitted = if is_read_now {
                place(context, connections, connection, idle_timeout)
            } else {
                admit(context, connections, connection, idle_timeout)
            };
            if let Some((connection, _)) = &admitted {
                if let Some(labels) = &mut labels {
                    labels.accept(*connection, token);
                }
                // That of a balancer is not the client's.
                if let Some(peers) = peers.as_mut().filter(|_| !has_header) {
                    peers.accepted(*connection, address);
                }
                if is_read_now {
                    unread.push(*connection);
                }
            }
            announce(context, admitted, Some(token), app);
        };
        let accepted = self.listeners.accept(context, token, accept);
        if matches!(accepted, Accepted::Exhausted(_)) {
            app.event(HttpEvent::Exhausted);
        }
        for connection in unread.drain(..) {
            self.begin(context, connection, app);
        }
        self.unread = unread;
        !matches!(accepted, Accepted::More)
    }

    /// Reads what has come with a connection, and has the loop report the rest.
    fn begin<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        self.ready(context, token, Readiness::READABLE, app);
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        if register(context, connection, token).is_err() {
            self.settle(context, token, Some(Fate::Close), app);
        }
    }

    /// Serves a client that another listener has accepted.
    ///
    /// ```
    /// use dwell_engine::{App, Http};
    /// use dwell_evloop::{Context, Stream};
    ///
    /// /// Takes a client that another loop has accepted and sent in a message.
    /// fn message<A: App>(http: &mut Http, context: &mut Context, client: Stream, app: &mut A) {
    ///     http.adopt(context, client, app);
    /// }
    /// #
    /// # let (mut event_loop, mut driver, _) = dwell_testkit::hello();
    /// # let (detached, mut client) = dwell_testkit::detached();
    /// # message(&mut driver.http, event_loop.context(), detached.stream, &mut driver.app);
    /// # std::io::Write::write_all(&mut client, b"GET / HTTP/1.0\r\n\r\n")?;
    /// # while driver.http.connections() > 0 {
    /// #     event_loop.turn(&mut driver, None)?;
    /// # }
    /// # let answer = std::io::read_to_string(client)?;
    /// # assert!(answer.ends_with("hello\n"), "{answer}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn adopt<A: App>(&mut self, context: &mut Context, stream: Stream, app: &mut A) {
        let detached = Detached {
            stream,
            input: Vec::new(),
        };
        self.adopt_detached(context, detached, app);
    }
}

/// Returns how long a client that this component has not accepted itself may take for its first
/// request.
pub(super) fn first_timeout(draining: bool, limits: &Limits) -> Duration {
    if draining {
        FIRST_REQUEST_TIMEOUT
    } else {
        limits.idle_timeout
    }
}

/// Calls the app for a client that was admitted, or refused.
pub(super) fn announce<A: App>(
    context: &mut Context,
    admitted: Option<(Token, &Stream)>,
    listener: Option<Token>,
    app: &mut A,
) {
    match admitted {
        Some((connection, stream)) => {
            app.event(HttpEvent::Accepted);
            app.opened(context, connection, stream, listener);
        }
        None => app.event(HttpEvent::Refused),
    }
}

/// Gives a client its place in the table, if there is one left, and registers it with the loop.
pub(super) fn admit<'c>(
    context: &mut Context,
    connections: &'c mut Slab<Connection>,
    connection: Connection,
    idle_timeout: Duration,
) -> Option<(Token, &'c Stream)> {
    let (token, _) = place(context, connections, connection, idle_timeout)?;
    let registered = register(context, connections.get_mut(token)?, token);
    if registered.is_err() {
        context.disarm(token);
        connections.remove(token);
        return None;
    }
    Some((token, &connections.get(token)?.peer.stream))
}

/// Gives a client its place in the table, if there is one left.
fn place<'c>(
    context: &mut Context,
    connections: &'c mut Slab<Connection>,
    connection: Connection,
    idle_timeout: Duration,
) -> Option<(Token, &'c Stream)> {
    let timeout = match connection.exchange.phase {
        Phase::Preface | Phase::Handshake => HANDSHAKE_TIMEOUT,
        _ => idle_timeout,
    };
    let token = connections.insert(connection).ok()?;
    context.arm(token, timeout);
    Some((token, &connections.get(token)?.peer.stream))
}

/// Has the loop report the readiness of a connection from now on, and what is there already.
fn register(context: &mut Context, connection: &mut Connection, token: Token) -> io::Result<()> {
    context.register(&mut connection.peer.stream, token)?;
    connection.is_registered = true;
    Ok(())
}
