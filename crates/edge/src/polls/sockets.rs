//! WebSockets on poll routes: how a poll becomes one, and what it is told.
//!
//! A WebSocket is feeds like those of an event stream. Its keys are read when the turn ends, so
//! that a frame is encoded once for all who follow a key by the same name, and a client
//! that has not taken what it was sent is sent the newest when it has.

use super::answers::Found;
use super::ask::{Admitted, Ask, KEYS_MAX};
use super::budget::{Budget, Now};
use super::cursors;
use super::delivery::Delivery;
use super::follow::{NamedKey, stays_below};
use super::lookups::Lookups;
use super::poll_error::PollError;
use super::refusals::Refusal;
use super::tables::{Feed, News, Sink, SocketSet};
use super::waiters::Waiters;
use crate::config::{RouteConfig, Routes, Rules, check_key};
use crate::cursor::{Condition, Cursor};
use crate::ids::{FeedId, SetId, StreamId};
use crate::metrics::{ConnectionRefusal, LoopMetrics, PollOutcome, StreamEnd};
use crate::responder::Responder;
use dwell_engine::websocket::{
    Broadcast, CloseCode, Negotiated, OriginPolicy, UpgradeOptions, WebSocketRef, WebSockets,
    upgrade,
};
use dwell_engine::{Body, Detached, Response};
use dwell_evloop::{Context, Id, Token};
use dwell_timers::Tick;
use std::sync::Arc;

/// The subprotocol whose frames these are.
const SUBPROTOCOL: &str = "dwell.v1";

/// Frames by the name that a key has in them.
pub(super) type Frames = Vec<(Option<Box<str>>, Arc<Broadcast>)>;

/// WebSockets, with the parts of the loop that they touch: no request to the application is among
/// them, and nothing that decides on access.
pub(crate) struct Sockets<'a> {
    pub(super) routes: &'a Routes,
    pub(super) metrics: &'a LoopMetrics,
    pub(super) lookups: &'a mut Lookups,
    pub(super) waiters: &'a mut Waiters,
    pub(super) delivery: &'a mut Delivery,
}

/// The reason why a poll has not become a WebSocket.
pub(super) enum NotOpened {
    /// The client has been told why.
    Answered,
    /// There is no room, for this reason; its client is to be told.
    NoRoom(Refusal),
}

/// The reason why a WebSocket does not follow one more key.
#[derive(Debug)]
pub(super) enum NotFollowed {
    Refused(Refusal),
    /// The words that the client gets.
    Other(String),
}

impl NotFollowed {
    /// The words that the client gets.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Refused(refusal) => refusal.text(),
            Self::Other(text) => text,
        }
    }
}

impl From<String> for NotFollowed {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

/// A key that a WebSocket asks for.
pub(super) struct NewKey {
    /// The keys of the socket.
    pub(super) set: SetId,
    pub(super) name: Vec<u8>,
}

impl Sockets<'_> {
    /// Makes a WebSocket of the connection of a poll; returns the token of its stream.
    ///
    /// # Errors
    /// The reason why it cannot become one.
    pub(super) fn open(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        ask: &Ask,
        keys: Vec<NamedKey>,
        ends: Tick,
        to: &mut Responder<'_, '_>,
    ) -> Result<StreamId, NotOpened> {
        let Admitted { route, request, .. } = admitted;
        let rules = self.routes.get(route);
        let options = UpgradeOptions {
            subprotocols: &[SUBPROTOCOL],
            origin: if is_listed(rules, request.head.fields.find("origin")) {
                OriginPolicy::Any
            } else {
                OriginPolicy::SameHost
            },
            ..UpgradeOptions::default()
        };
        let upgrade = match upgrade(request.head, &options) {
            Ok(upgrade) => upgrade,
            Err(rejection) => {
                if rejection.status() == 403 {
                    to.ends(PollOutcome::Denied);
                }
                let text = rejection.to_string();
                to.text_with(context, rejection.status(), &text, rejection.fields());
                return Err(NotOpened::Answered);
            }
        };
        if let Some(refusal) = self.waiters.no_records(keys.len()) {
            return Err(NotOpened::NoRoom(refusal));
        }
        let sink = Sink::Leaving(upgrade.negotiated().to_bits());
        let stream = self.enter(Now::of(context), admitted, ask, keys, (sink, ends));
        let stream = stream.ok_or(NotOpened::NoRoom(Refusal::Busy))?;
        let mut fields = Vec::new();
        upgrade.for_each_field(|name, value| fields.push((name, value.to_vec())));
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_slice()))
            .collect();
        to.ends(PollOutcome::Streamed);
        to.send(
            context,
            &Response {
                status: upgrade.status(),
                fields: &fields,
                body: Body::Empty,
            },
        );
        Ok(stream)
    }

    /// Makes the records of a WebSocket; returns the token of its stream.
    fn enter(
        &mut self,
        now: Now,
        admitted: Admitted<'_>,
        ask: &Ask,
        keys: Vec<NamedKey>,
        (sink, ends): (Sink, Tick),
    ) -> Option<StreamId> {
        let Admitted { route, request, .. } = admitted;
        let takes_path_alone = self.routes.get(route).key.is_path();
        if let ([only], true) = (keys.as_slice(), takes_path_alone)
            && only.label.is_none()
        {
            let feed = self.waiters.follow(&only.name, now.seconds, |key| Feed {
                sink,
                key,
                has: since(ask.condition),
                ends,
                set: None,
                route,
                is_cached: ask.condition != Condition::None,
                is_asking: false,
            });
            return feed.map(StreamId::from);
        }
        let has = match keys.as_slice() {
            [NamedKey { label: None, .. }] => vec![since(ask.condition)],
            _ => cursors::of_stream(request.head, keys.len()),
        };
        let socket = SocketSet {
            sink,
            ends,
            route,
            path: request.head.path.into(),
            given_up: Vec::new(),
        };
        let set = self.waiters.feeds.open_set(Some(socket))?;
        for (NamedKey { label, name }, has) in keys.into_iter().zip(has) {
            self.subscribe(now, set, label, &name, has);
        }
        Some(set.into())
    }

    /// Has a WebSocket follow one more key; returns its feed.
    pub(super) fn subscribe(
        &mut self,
        now: Now,
        set: SetId,
        label: Option<Box<str>>,
        name: &[u8],
        has: Condition,
    ) -> Option<FeedId> {
        let socket = self.waiters.feeds.socket_set(set)?;
        let (sink, ends, route) = (socket.sink, socket.ends, socket.route);
        let make = |key| Feed {
            sink,
            key,
            has,
            ends,
            set: Some(set),
            route,
            is_cached: has != Condition::None,
            is_asking: false,
        };
        self.waiters.follow_in_set(name, label, now.seconds, make)
    }

    /// Takes over the connections that have become WebSockets in this turn.
    pub(crate) fn adopt(&mut self, context: &mut Context, websockets: &mut WebSockets) {
        for (stream, detached) in std::mem::take(&mut self.delivery.detached) {
            // One that has ended since is closed by being dropped.
            if let Some(Sink::Leaving(bits)) = self.waiters.feeds.sink_of(stream) {
                self.adopt_one(context, websockets, stream, detached, bits);
            }
        }
    }

    fn adopt_one(
        &mut self,
        context: &mut Context,
        websockets: &mut WebSockets,
        stream: StreamId,
        detached: Detached,
        bits: u32,
    ) {
        let negotiated = Negotiated::from_bits(bits);
        let Ok(socket) = websockets.adopt(context, detached, negotiated, stream.to_bits()) else {
            self.waiters.remove_stream(stream);
            let why = ConnectionRefusal::ConnectionsMax;
            self.metrics.connections_refused.increment(why);
            return;
        };
        let sink = Sink::Socket(socket);
        self.waiters.feeds.set_sink(stream, sink);
        self.metrics.websockets.increment();
        let now = Now::of(context);
        websockets.with_socket(context, socket, |socket| self.tell_all(now, stream, socket));
    }

    /// Tells a WebSocket what is new of each of its keys. Values of memcached are sent when they
    /// come.
    pub(super) fn tell_all(&mut self, now: Now, stream: StreamId, socket: &mut WebSocketRef<'_>) {
        for token in self.waiters.feeds.feeds_of(stream) {
            self.tell(now, token, socket);
        }
    }

    /// As [`tell_all`](Self::tell_all), for one key.
    pub(super) fn tell(&mut self, now: Now, token: FeedId, socket: &mut WebSocketRef<'_>) {
        let Some(key) = self.waiters.feeds.get(token).map(|feed| feed.key) else {
            return;
        };
        if is_blocked(socket) {
            // Its client is told when it has taken what was before.
            return self.metrics.stream_postponed.increment();
        }
        let answered = self.waiters.feeds.answered_value(token);
        if answered.is_none() && self.lookups.reads_for(&mut self.waiters.keys, key, token) {
            return;
        }
        if answered.is_none() && self.delivery.is_busy(now) {
            // It is read when there is room to tell of it.
            return self
                .delivery
                .note_change(self.lookups, key, None, [token.into()]);
        }
        let keys = &self.waiters.keys;
        let item = self.lookups.stored_key(keys, key, now.seconds);
        let is_stored = item.is_some();
        let found = item.as_ref().map(Found::stored).or(answered);
        let Some(feed) = self.waiters.feeds.get(token) else {
            return;
        };
        let content = found.as_ref().map(|found| found.content);
        if feed.news(content, self.rules(feed)) != News::None {
            let frame = self.delivery.frame(self.waiters, token, found.as_ref());
            let bytes = frame.plain().len();
            self.delivery.has_written(now, bytes);
            if frame.is_to_compress(socket.negotiated().deflate) {
                self.delivery.work.left(now).compressed(bytes);
            }
            if socket.send_shared(&frame).is_err() {
                return;
            }
            self.waiters.was_told(token, content);
        }
        self.waiters.feeds.note_told(token, content, is_stored);
    }

    /// Tells a WebSocket what the key of one of its feeds has.
    pub(super) fn tell_of_change(
        &mut self,
        context: &mut Context,
        websockets: &mut WebSockets,
        budget: &mut Budget,
        (token, socket): (FeedId, Token),
        found: Option<&Found<'_>>,
        frames: &mut Frames,
    ) {
        let current = found.map(|found| found.content);
        let Some(feed) = self.waiters.feeds.get(token) else {
            return;
        };
        if feed.news(current, self.rules(feed)) == News::None {
            return;
        }
        if feed.ends.is_due(context.tick()) {
            self.end_by_age(self.waiters.feeds.stream_of(token), |code, why| {
                websockets.close(context, socket, code, why);
            });
            return;
        }
        let frame = self.frame_among(frames, token, found);
        let sent = websockets.with_socket(context, socket, |socket| {
            if socket.queued_bytes() > 0 {
                return false;
            }
            if frame.is_to_compress(socket.negotiated().deflate) {
                budget.compressed(frame.plain().len());
            }
            socket.send_shared(&frame).is_ok()
        });
        budget.written(frame.plain().len());
        budget.encoded(self.delivery.encodings.take_work());
        if sent == Some(true) {
            self.waiters.was_told(token, current);
        } else {
            self.metrics.stream_postponed.increment();
        }
    }

    /// The frame that tells a feed what its key has, made once for each name of the key.
    fn frame_among(
        &mut self,
        frames: &mut Frames,
        token: FeedId,
        found: Option<&Found<'_>>,
    ) -> Arc<Broadcast> {
        let label = self.waiters.feeds.label_of(token);
        let known = frames.iter().find(|(other, _)| other.as_deref() == label);
        #[cfg(feature = "sim")]
        let known = if dwell_evloop::sim::Planted::WrongLabel.is_in() {
            frames.first()
        } else {
            known
        };
        if let Some((_, frame)) = known {
            return Arc::clone(frame);
        }
        let frame = self.delivery.frame(self.waiters, token, found);
        frames.push((label.map(Box::from), Arc::clone(&frame)));
        frame
    }

    fn rules(&self, feed: &Feed) -> Rules {
        self.routes.get(feed.route).rules
    }

    /// The name of a key that a WebSocket asks for by a name of its own.
    fn name_of(&self, stream: StreamId, label: &str) -> Option<Result<Vec<u8>, PollError>> {
        let path = self.waiters.path_of(stream)?;
        let route = self.waiters.feeds.route_of(stream)?;
        let rules = self.routes.get(route);
        // Who asks is known, and the application asked, only while a request is at hand.
        if !rules.key.is_path() || rules.access.jwt || rules.access.auth.is_some() {
            return Some(Err(PollError::Keys));
        }
        let path = [path, label].concat();
        let name = check_key(path.as_bytes()).map(<[u8]>::to_vec);
        let name = name.map_err(PollError::Key);
        Some(name.and_then(|name| stays_below(self.routes, route, &path).map(|()| name)))
    }

    /// The set of a WebSocket's keys, made of its one feed where it had no other.
    fn set_of(&mut self, stream: StreamId, socket: &mut WebSocketRef<'_>) -> Option<SetId> {
        let set = self.waiters.widen(stream)?;
        socket.set_tag(set.to_bits());
        Some(set)
    }

    /// The route that a WebSocket was opened on.
    pub(super) fn route_of(&self, stream: StreamId) -> Option<&RouteConfig> {
        Some(self.routes.get(self.waiters.feeds.route_of(stream)?))
    }

    /// The key that a WebSocket asks for, unless it follows that already.
    ///
    /// # Errors
    /// The reason why it may not follow the key.
    pub(super) fn new_key(
        &mut self,
        socket: &mut WebSocketRef<'_>,
        stream: StreamId,
        label: &str,
    ) -> Result<Option<NewKey>, NotFollowed> {
        let Some(set) = self.set_of(stream, socket) else {
            return Err(NotFollowed::Refused(Refusal::Busy));
        };
        let members = self
            .waiters
            .feeds
            .set(set)
            .map_or(&[][..], |set| &set.members);
        if members
            .iter()
            .any(|member| member.label.as_deref() == Some(label))
        {
            return Ok(None);
        }
        if members.len() >= KEYS_MAX {
            return Err(format!("more than {KEYS_MAX} keys").into());
        }
        if let Some(refusal) = self.waiters.no_waits(1) {
            return Err(NotFollowed::Refused(refusal));
        }
        let name = self.key_named(set.into(), label)?;
        Ok(Some(NewKey { set, name }))
    }

    /// The key that a WebSocket names so; or why it names no key.
    fn key_named(&self, stream: StreamId, label: &str) -> Result<Vec<u8>, String> {
        match self.name_of(stream, label) {
            Some(Ok(name)) => Ok(name),
            Some(Err(PollError::Key(error))) => Err(error.to_string()),
            Some(Err(PollError::ForeignKey(why))) => Err(why.to_owned()),
            _ => Err("keys of this route are named in the request".to_owned()),
        }
    }

    /// The key that a WebSocket may publish under this name; or why it may not.
    pub(super) fn publishable(
        &self,
        stream: StreamId,
        label: Option<&str>,
    ) -> Result<Vec<u8>, String> {
        let is_allowed = self
            .route_of(stream)
            .is_some_and(|route| route.websocket_publish);
        if !is_allowed {
            return Err("publishing is not allowed here".to_owned());
        }
        let Some(label) = label else {
            let feed = self.waiters.feeds.unnamed_feed(stream);
            let name = feed.and_then(|feed| self.waiters.name_of_feed(feed));
            return name
                .map(<[u8]>::to_vec)
                .ok_or_else(|| "no key named".to_owned());
        };
        self.key_named(stream, label)
    }

    /// Ends a WebSocket that is old enough; whether it was.
    pub(super) fn ends_by_age(
        &mut self,
        context: &Context,
        stream: StreamId,
        socket: &mut WebSocketRef<'_>,
    ) -> bool {
        let ends = self.waiters.feeds.end_of(stream);
        let is_old = ends.is_some_and(|ends| ends.is_due(context.tick()));
        if is_old {
            self.end_by_age(stream, |code, why| socket.close(code, why));
        }
        is_old
    }

    fn end_by_age(&mut self, stream: StreamId, close: impl FnOnce(CloseCode, &str)) {
        if self.waiters.remove_stream(stream).is_some() {
            self.metrics.streams_ended.increment(StreamEnd::Lifetime);
            close(CloseCode::GOING_AWAY, "end of its time, come back");
        }
    }
}

/// The condition of a feed for the condition of a request.
fn since(condition: Condition) -> Condition {
    match condition {
        Condition::IfNoneMatch(cursor) => Condition::Since(cursor),
        Condition::Any => Condition::None,
        other => other,
    }
}

/// The client's cursor of one key.
pub(super) fn has(text: Option<&String>) -> Condition {
    match text.map(String::as_bytes) {
        None | Some(b"") => Condition::None,
        Some(text) => Cursor::parse(text).map_or(Condition::Foreign, Condition::Since),
    }
}

/// Returns true if pages of an origin may connect from another host.
///
/// Shape: origins that may read responses by name may. `*` does not count: it permits no cookies,
/// and a handshake has them.
fn is_listed(rules: &RouteConfig, origin: Option<&[u8]>) -> bool {
    let is_it = |one: &String| origin.is_some_and(|of| one.as_bytes().eq_ignore_ascii_case(of));
    rules
        .allowed_origins
        .iter()
        .any(|one| one == "*" || is_it(one))
        || rules.access.cors_origins.iter().any(is_it)
}

/// Returns true if the socket has unsent output.
fn is_blocked(socket: &WebSocketRef<'_>) -> bool {
    socket.queued_bytes() > OUTPUT_AT_ONCE
}

/// Bytes of frames after which the socket is given time to take them.
const OUTPUT_AT_ONCE: usize = 64 * 1024;
