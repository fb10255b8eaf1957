//! The place that a server has left, until it has replied.

use crate::link::{Link, LinkEvent};
use crate::shared::Shared;
use crate::waits::Waits;
use crate::{ClientOptions, Completion, Failure};
use dwell_evloop::{Context, Readiness, Token};

/// The connection for reads and writes there, and the state that its replies change.
#[derive(Debug)]
pub(crate) struct Left {
    link: Link,
    waits: Waits,
}

impl Left {
    pub(crate) fn new(link: Link, waits: Waits) -> Self {
        Self { link, waits }
    }

    /// Returns true of a token of the connection.
    pub(crate) fn has(&self, token: Token) -> bool {
        self.link.has(token)
    }

    /// Commands without a reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.link.in_flight()
    }

    pub(crate) fn set_retired(&mut self, is_retired: bool) {
        self.waits.set_retired(is_retired);
    }

    pub(crate) fn ready(
        &mut self,
        context: &mut Context,
        (token, readiness): (Token, Readiness),
        options: &ClientOptions,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let Self { link, waits } = self;
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, false, event, shared, sink)
        };
        link.ready(context, token, readiness, options, &mut on);
    }

    pub(crate) fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        options: &ClientOptions,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let Self { link, waits } = self;
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, false, event, shared, sink)
        };
        link.expired(context, token, options, &mut on);
    }

    /// Ends the connection. The commands without a reply fail as closed: they may have been
    /// executed.
    pub(crate) fn end(
        self,
        context: &mut Context,
        options: &ClientOptions,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let Self {
            mut link,
            mut waits,
        } = self;
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, false, event, shared, sink)
        };
        link.end(context, Failure::Closed, options, &mut on);
        link.give_up(context);
    }

    /// Closes the connection, which owes nothing.
    pub(crate) fn close(mut self, context: &mut Context) {
        self.link.close(context);
        self.link.give_up(context);
    }
}
