//! Fan-out: output of one component to many connections, gathered and sent by one system call.

use dwell_evloop::{Context, Readiness, Sends, Sent, Stream, Token};

/// A component whose connections leave output to the [`Sends`] of the turn.
pub(crate) trait FanOut {
    /// Returns the kind of the tokens of its connections.
    fn kind(&self) -> u8;

    /// Returns the stream of a connection.
    fn stream(&self, token: Token) -> Option<&Stream>;

    /// Returns the mark of a connection: output of it is among what is gathered.
    fn mark(&mut self, token: Token) -> Option<&mut bool>;

    /// Queues the rest of what a socket has not taken.
    fn refused(&mut self, context: &mut Context, token: Token, rest: &[u8]);
}

/// Gathers from now on, if `count` sends are worth it and the loop has [`Sends`].
pub(crate) fn begin(component: &impl FanOut, context: &mut Context, count: usize) {
    if count >= Sends::COUNT_MIN
        && let Some(sends) = context.sends()
    {
        sends.begin(component.kind());
    }
}

/// Sends what was gathered, and gathers no longer.
pub(crate) fn end(component: &mut impl FanOut, context: &mut Context) {
    send(component, context);
    if let Some(sends) = context.sends_of(component.kind()) {
        sends.end();
    }
}

/// Sends what is gathered if there is no room for more.
#[inline]
pub(crate) fn send_if_full(component: &mut impl FanOut, context: &mut Context) {
    let sends = context.sends_of(component.kind());
    if sends.is_some_and(|sends| sends.is_full()) {
        send(component, context);
    }
}

/// Sends what is gathered before something else is done with a connection that is among it.
#[inline]
pub(crate) fn send_before(component: &mut impl FanOut, context: &mut Context, token: Token) {
    let sends = context.sends_of(component.kind());
    if sends.is_none_or(|sends| sends.is_empty()) {
        return;
    }
    if component.mark(token).is_some_and(|mark| *mark) {
        send(component, context);
    }
}

fn send(component: &mut impl FanOut, context: &mut Context) {
    let Some(mut sends) = context.take_sends() else {
        return;
    };
    if sends.is_of(component.kind()) && !sends.is_empty() {
        let streams = &*component;
        sends.send(|token| streams.stream(token));
        for (token, sent) in sends.outcomes() {
            let Some(mark) = component.mark(token) else {
                continue;
            };
            *mark = false;
            match sent {
                Sent::Whole => {}
                Sent::Failed => context.again(token, Readiness::HANGUP),
                Sent::Rest(rest) => component.refused(context, token, rest),
            }
        }
        sends.clear();
    }
    context.return_sends(sends);
}
