//! Messages of WebSocket clients.

use super::ask::KEYS_MAX;
use super::budget::Now;
use super::frames::{self, Command};
use super::publishing::Asker;
use super::sockets::has;
use super::{Polls, seconds};
use crate::access::RateKey;
use crate::config::Rate;
use crate::cursor::Cursor;
use crate::ids::StreamId;
use crate::metrics::{ClientTimeout, PublishOutcome, StreamEnd};
use crate::publish::{self, Finished, Operation, Precondition, PublishRequest, PublishResult};
use dwell_engine::websocket::{
    CloseCode, Control, EndCause, Message, MessageKind, WebSocketApp, WebSocketEnd, WebSocketRef,
};
use dwell_evloop::{Context, Id, Token};
use std::collections::HashMap;

impl WebSocketApp for Polls {
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
        if self.ends_by_age(context, stream, socket) {
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
            self.ends_by_age(context, StreamId::from_bits(socket.tag()), socket);
        }
    }

    fn drained(&mut self, context: &mut Context, socket: &mut WebSocketRef<'_>) {
        let stream = StreamId::from_bits(socket.tag());
        if !self.ends_by_age(context, stream, socket) {
            self.tell_all(Now::of(context), stream, socket);
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

impl Polls {
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
            if let Err(why) = self.subscribe_to(context, socket, stream, key, has) {
                self.refuse_frame(socket, &why, Some(key));
            }
        }
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
        let name = match self.publishable(stream, label) {
            Ok(name) => name,
            Err(why) => return self.refuse_frame(socket, &why, label),
        };
        if let Some(rate) = self.socket_over_rate(context, stream, socket.token()) {
            self.metrics.publishes.increment(PublishOutcome::Limited);
            return self.refuse_frame(socket, &format!("more than {rate}"), label);
        }
        let order = PublishRequest {
            act: Operation::Put { ttl: None },
            condition: Precondition::None,
        };
        if let Some(store) = self.lookups.store() {
            let published = publish::carry_out(store, order, &name, value, seconds(context));
            self.metrics.publishes.increment(published.outcome());
            let frame = answer(&published, Cursor::of(value, 0), label);
            let _ = socket.text(&frame);
            return;
        }
        let token = socket.token();
        let asker = |_| Asker::Socket(token, key.map(String::into_boxed_str));
        self.publisher.take(context, asker, order, &name, value);
    }

    /// The rate that a WebSocket would be over with one more value, if there is one.
    fn socket_over_rate(&self, context: &Context, stream: StreamId, socket: Token) -> Option<Rate> {
        let route = self.socket_route(stream)?;
        let rate = route.access.rate_per_publisher?;
        let who = RateKey::Socket(self.misses.of_loop(), socket.to_bits());
        let taken = self.gate.take_share(context.now(), route, who, rate);
        taken.is_err().then_some(rate)
    }

    /// The key that a WebSocket may publish under this name; or why it may not.
    fn publishable(&self, stream: StreamId, label: Option<&str>) -> Result<Vec<u8>, String> {
        let is_allowed = self
            .socket_route(stream)
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

    /// memcached has answered for what a WebSocket has published.
    pub(super) fn socket_published(
        &mut self,
        socket: Token,
        label: Option<&str>,
        finished: &Finished<()>,
    ) {
        let frame = answer(&finished.published, finished.cursor, label);
        self.delivery.replies.push((socket, frame));
    }
}

/// The frame that says what came of a value that was published.
fn answer(published: &PublishResult, cursor: Cursor, label: Option<&str>) -> String {
    match published {
        PublishResult::Created | PublishResult::Replaced => frames::published(label, cursor),
        PublishResult::TooLarge => frames::error("the value is too large for the store", label),
        PublishResult::NoRoom(why) | PublishResult::Unanswered(why) => frames::error(why, label),
        PublishResult::Moved => {
            frames::error("another process has the store: connect again", label)
        }
        _ => frames::error("too many values wait to be stored", label),
    }
}
