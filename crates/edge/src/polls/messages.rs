//! Messages of WebSocket clients.

use super::ask::KEYS_MAX;
use super::budget::Now;
use super::delivery::Delivery;
use super::fetch::Fetching;
use super::frames::{self, Command};
use super::lookups::{Lookups, seconds};
use super::misses::{Misses, OriginRequest};
use super::missing::SubFetches;
use super::publishing::Asker;
use super::refusals::{Refusal, Refusals};
use super::sockets::{NotFollowed, Sockets, has};
use super::waiters::Waiters;
use crate::access::{Gate, RateKey};
use crate::config::{Config, Rate, Routes};
use crate::cursor::{Condition, Cursor};
use crate::ids::StreamId;
use crate::metrics::{ClientTimeout, LoopMetrics, PublishOutcome, StreamEnd};
use crate::publish::{self, PublishRequest, PublishResult, Publisher};
use dwell_engine::websocket::{
    CloseCode, Control, EndCause, Message, MessageKind, WebSocketApp, WebSocketEnd, WebSocketRef,
};
use dwell_evloop::{Context, Id, Token};
use std::collections::HashMap;

/// Messages of WebSocket clients, with the parts of the loop that they touch: no exchange of HTTP
/// is answered by them.
pub(crate) struct Messages<'a> {
    pub(super) config: &'a Config,
    pub(super) routes: &'a Routes,
    pub(super) metrics: &'a LoopMetrics,
    pub(super) gate: &'a Gate,
    pub(super) lookups: &'a mut Lookups,
    pub(super) misses: &'a mut Misses,
    pub(super) waiters: &'a mut Waiters,
    pub(super) delivery: &'a mut Delivery,
    pub(super) refusals: &'a mut Refusals,
    pub(super) publisher: &'a mut Publisher<Asker>,
}

impl WebSocketApp for Messages<'_> {
    fn puts_off(&mut self, context: &Context) -> bool {
        self.delivery.is_busy(Now::of(context))
    }

    fn message(
        &mut self,
        context: &mut Context,
        socket: &mut WebSocketRef<'_>,
        message: Message<'_>,
    ) {
        let stream = StreamId::from_bits(socket.tag());
        if self.sockets().ends_by_age(context, stream, socket) {
            return;
        }
        if message.kind == MessageKind::Binary {
            let why = "frames of text alone";
            return self.dismiss(socket, CloseCode::UNSUPPORTED_DATA, why, StreamEnd::Client);
        }
        let command = Command::parse(&message.payload);
        let keys = command.as_ref().map_or(1, Command::keys);
        let counted = RateKey::Messages(self.misses.of_loop(), socket.token().to_bits());
        if let Err(rate) = self.gate.count_message(context.now(), counted, keys) {
            let why = format!("more than {rate} messages");
            return self.dismiss(socket, CloseCode::POLICY_VIOLATION, &why, StreamEnd::Rate);
        }
        self.delivery.work.left(Now::of(context)).followed(keys);
        match command {
            Some(Command::Subscribe { keys, since }) => {
                self.subscribe_all(context, socket, &keys, &since);
            }
            Some(Command::Unsubscribe { keys }) => self.unsubscribe_all(socket, stream, &keys),
            Some(Command::Publish { key, value }) => {
                self.publish_frame(context, socket, stream, key, &value);
            }
            None => self.dismiss(
                socket,
                CloseCode::POLICY_VIOLATION,
                "not a frame of dwell.v1",
                StreamEnd::Client,
            ),
        }
    }

    fn control(
        &mut self,
        context: &mut Context,
        socket: &mut WebSocketRef<'_>,
        control: Control<'_>,
    ) {
        if !matches!(control, Control::Close { .. }) {
            let stream = StreamId::from_bits(socket.tag());
            self.sockets().ends_by_age(context, stream, socket);
        }
    }

    fn drained(&mut self, context: &mut Context, socket: &mut WebSocketRef<'_>) {
        let stream = StreamId::from_bits(socket.tag());
        let mut sockets = self.sockets();
        if !sockets.ends_by_age(context, stream, socket) {
            sockets.tell_all(Now::of(context), stream, socket);
        }
    }

    fn closed(&mut self, _: &mut Context, _: Token, tag: u64, end: WebSocketEnd<'_>) {
        if end.cause == EndCause::WriteTimeout {
            self.metrics.client_timeouts.increment(ClientTimeout::Write);
        }
        if self
            .waiters
            .remove_stream(StreamId::from_bits(tag))
            .is_some()
        {
            self.metrics.streams_ended.increment(StreamEnd::Client);
        }
    }
}

impl Messages<'_> {
    fn sockets(&mut self) -> Sockets<'_> {
        Sockets {
            routes: self.routes,
            metrics: self.metrics,
            lookups: self.lookups,
            waiters: self.waiters,
            delivery: self.delivery,
        }
    }

    fn sub_fetches(&mut self) -> SubFetches<'_> {
        SubFetches {
            fetching: Fetching {
                config: self.config,
                routes: self.routes,
                gate: self.gate,
                misses: self.misses,
                waiters: self.waiters,
            },
            lookups: self.lookups,
        }
    }

    /// Closes a WebSocket; it waits for nothing from now on, however long its client takes.
    fn dismiss(
        &mut self,
        socket: &mut WebSocketRef<'_>,
        code: CloseCode,
        why: &str,
        end: StreamEnd,
    ) {
        if self
            .waiters
            .remove_stream(StreamId::from_bits(socket.tag()))
            .is_some()
        {
            self.metrics.streams_ended.increment(end);
        }
        socket.close(code, why);
    }

    fn subscribe_all(
        &mut self,
        context: &Context,
        socket: &mut WebSocketRef<'_>,
        keys: &[String],
        since: &HashMap<String, String>,
    ) {
        for (place, key) in keys.iter().enumerate() {
            if place == KEYS_MAX {
                // One frame says it of all the rest.
                return self.refuse_frame(socket, &format!("more than {KEYS_MAX} keys"), Some(key));
            }
            // The first makes a stream of several keys of one that had a single key.
            let stream = StreamId::from_bits(socket.tag());
            let has = has(since.get(key));
            if let Err(why) = self.subscribe(context, socket, stream, key, has) {
                if let NotFollowed::Refused(refusal) = why {
                    self.refusals.note(context, refusal);
                }
                self.refuse_frame(socket, why.text(), Some(key));
            }
        }
    }

    /// Has a WebSocket follow one more key; the error is why it does not.
    fn subscribe(
        &mut self,
        context: &Context,
        socket: &mut WebSocketRef<'_>,
        stream: StreamId,
        label: &str,
        has: Condition,
    ) -> Result<(), NotFollowed> {
        let Some(key) = self.sockets().new_key(socket, stream, label)? else {
            return Ok(());
        };
        let (set, now, peer) = (key.set, Now::of(context), socket.peer_address());
        if let Some(route) = self.waiters.feeds.route_of(set.into()) {
            let rules = self.routes.get(route);
            let counted = self
                .gate
                .count_key_of(context.now(), rules, &key.name, peer);
            counted.map_err(|limited| format!("more than {}", limited.rate))?;
        }
        let has = self.waiters.feeds.still_has(set, label, has);
        let mut sockets = self.sockets();
        let feed = sockets.subscribe(now, set, Some(label.into()), &key.name, has);
        let feed = feed.ok_or(NotFollowed::Refused(Refusal::TooManyWait))?;
        if self.config.has_upstream()
            && let Some(socket_set) = self.waiters.feeds.socket_set(set)
        {
            let (path, route) = (&socket_set.path, socket_set.route);
            let origin_request = OriginRequest::nameless(path, route, peer);
            self.sub_fetches().seek(context, feed, &origin_request);
        }
        self.sockets().tell(now, feed, socket);
        Ok(())
    }

    fn unsubscribe_all(
        &mut self,
        socket: &mut WebSocketRef<'_>,
        stream: StreamId,
        keys: &[String],
    ) {
        for key in keys.iter().take(KEYS_MAX) {
            if !self.waiters.unfollow(stream, key) {
                self.refuse_frame(socket, "not subscribed", Some(key));
            }
        }
    }

    /// Says why something was not done. A client that does not take this either has no room for
    /// more, and asks for nothing until it has.
    fn refuse_frame(&self, socket: &mut WebSocketRef<'_>, why: &str, key: Option<&str>) {
        self.metrics.websocket_errors.increment();
        let _ = socket.text(&frames::error(why, key));
    }

    fn publish_frame(
        &mut self,
        context: &mut Context,
        socket: &mut WebSocketRef<'_>,
        stream: StreamId,
        key: Option<String>,
        value: &[u8],
    ) {
        let label = key.as_deref();
        let name = match self.sockets().publishable(stream, label) {
            Ok(name) => name,
            Err(why) => return self.refuse_frame(socket, &why, label),
        };
        if let Some(rate) = self.socket_over_rate(context, stream, socket.token()) {
            self.metrics.publishes.increment(PublishOutcome::Limited);
            return self.refuse_frame(socket, &format!("more than {rate}"), label);
        }
        let order = PublishRequest::store();
        if let Some(store) = self.lookups.store() {
            let published = publish::carry_out(store, order, &name, value, seconds(context));
            self.metrics.publishes.increment(published.outcome());
            let frame = frame_of(&published, Cursor::of(value, 0), label);
            let _ = socket.text(&frame);
            return;
        }
        let token = socket.token();
        let asker = |_| Asker::Socket(token, key.map(String::into_boxed_str));
        self.publisher.take(context, asker, order, &name, value);
    }

    /// The rate that a WebSocket would be over with one more value, if there is one.
    fn socket_over_rate(&self, context: &Context, stream: StreamId, socket: Token) -> Option<Rate> {
        let route = self.routes.get(self.waiters.feeds.route_of(stream)?);
        let rate = route.access.rate_per_publisher?;
        let who = RateKey::Socket(self.misses.of_loop(), socket.to_bits());
        let taken = self.gate.take_share(context.now(), route, who, rate);
        taken.is_err().then_some(rate)
    }
}

/// The frame that says what came of a value that was published.
pub(super) fn frame_of(published: &PublishResult, cursor: Cursor, label: Option<&str>) -> String {
    match published {
        PublishResult::Created | PublishResult::Replaced => frames::published(label, cursor),
        PublishResult::TooLarge => frames::error("the value is too large for the store", label),
        PublishResult::NoRoom(why)
        | PublishResult::NotNow(why)
        | PublishResult::Unanswered(why) => frames::error(why, label),
        PublishResult::Moved => {
            frames::error("another process has the store: connect again", label)
        }
        _ => frames::error("too many values wait to be stored", label),
    }
}
