//! Connections of a server that have left HTTP.

use super::guard::guarded;
use super::kind;
use super::link::LoopLink;
use super::statistics::add;
use crate::handler::{Outlet, StreamHandler, StreamSender};
use crate::streams::{StreamApp, StreamEnd, StreamRef, Streams};
use dwell_evloop::{Context, Slab, Token};
use std::fmt;
use std::sync::Arc;

/// The handlers of the raw streams of one loop; a stream's tag names its own.
pub(super) struct RawApp {
    handlers: Slab<Entry>,
    link: Arc<LoopLink>,
}

struct Entry {
    handler: Box<dyn StreamHandler>,
    stream: Option<Token>,
}

impl RawApp {
    pub(super) fn new(link: Arc<LoopLink>) -> Self {
        Self {
            handlers: Slab::new(kind::TAKEOVER, usize::MAX),
            link,
        }
    }

    /// Keeps a handler; returns the tag of its stream.
    pub(super) fn insert(&mut self, handler: Box<dyn StreamHandler>) -> Option<u64> {
        let entry = Entry {
            handler,
            stream: None,
        };
        self.handlers.insert(entry).ok().map(Token::to_bits)
    }

    /// The stream has no place; its handler learns of it.
    pub(super) fn refuse(&mut self, tag: u64) {
        self.closed_by(tag, StreamEnd::Aborted);
    }

    pub(super) fn opened(&mut self, stream: &mut StreamRef<'_>) {
        if let Some(entry) = self.handlers.get_mut(Token::from_bits(stream.tag())) {
            entry.stream = Some(stream.token());
        }
        let sender = StreamSender(Outlet::new(Arc::clone(&self.link), stream.token()));
        self.call(stream, (), |handler, stream| handler.opened(stream, sender));
    }

    /// Calls every handler: the server shuts down.
    pub(super) fn drain(&mut self, context: &mut Context, streams: &mut Streams) {
        let entries = self.handlers.tokens();
        let streams_now = entries.filter_map(|entry| self.handlers.get(entry)?.stream);
        for token in streams_now.collect::<Vec<_>>() {
            streams.with_stream(context, token, |stream| self.draining(stream));
        }
    }

    /// Calls the handler of one stream: the server shuts down.
    pub(super) fn draining(&mut self, stream: &mut StreamRef<'_>) {
        self.call(stream, (), |handler, stream| {
            handler.draining(stream);
        });
    }

    /// Calls the handler of a stream; one that panics loses its connection.
    fn call<T>(
        &mut self,
        stream: &mut StreamRef<'_>,
        otherwise: T,
        callback: impl FnOnce(&mut dyn StreamHandler, &mut StreamRef<'_>) -> T,
    ) -> T {
        let Some(entry) = self.handlers.get_mut(Token::from_bits(stream.tag())) else {
            return otherwise;
        };
        guarded(|| callback(&mut *entry.handler, stream)).unwrap_or_else(|_| {
            add(&self.link.figures.panics, 1);
            stream.abort();
            otherwise
        })
    }

    /// Calls a handler for its end, and drops it.
    fn closed_by(&mut self, tag: u64, end: StreamEnd) {
        if let Some(mut entry) = self.handlers.remove(Token::from_bits(tag)) {
            let told = guarded(move || entry.handler.closed(end));
            add(&self.link.figures.panics, u64::from(told.is_err()));
        }
    }
}

impl StreamApp for RawApp {
    fn opened(&mut self, _: &mut Context, stream: &mut StreamRef<'_>, _: u64) {
        // There are no listeners of raw streams here.
        stream.abort();
    }

    fn data(
        &mut self,
        _: &mut Context,
        stream: &mut StreamRef<'_>,
        input: &[u8],
        _: usize,
    ) -> usize {
        self.call(stream, 0, |handler, stream| handler.data(stream, input))
    }

    fn peer_closed(&mut self, _: &mut Context, stream: &mut StreamRef<'_>) {
        self.call(stream, (), |handler, stream| {
            handler.peer_closed(stream);
        });
    }

    fn drained(&mut self, _: &mut Context, stream: &mut StreamRef<'_>) {
        self.call(stream, (), |handler, stream| {
            handler.drained(stream);
        });
    }

    fn closed(&mut self, _: &mut Context, _: Token, tag: u64, end: StreamEnd) {
        self.closed_by(tag, end);
    }
}

impl fmt::Debug for RawApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawApp").finish_non_exhaustive()
    }
}
