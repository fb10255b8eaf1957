//! Messages to many at once, which are gathered and sent by one system call.

use super::WebSockets;
use dwell_evloop::{Context, Readiness, Sends, Sent, Token};

impl WebSockets {
    /// Gathers from now on what connections are sent, if `count` of them are worth it and the loop
    /// has [`Sends`], until it is [sent](Self::send_gathered).
    ///
    /// Shape: for one callback of the driver, which ends with that.
    ///
    /// ```
    /// use dwell_engine::websocket::{Broadcast, MessageKind, WebSockets};
    /// use dwell_evloop::{Context, Token};
    ///
    /// /// Tells all of them the same, by few system calls.
    /// fn tell(sockets: &mut WebSockets, context: &mut Context, who: &[Token]) {
    ///     let news = Broadcast::new(MessageKind::Text, b"news");
    ///     sockets.gather(context, who.len());
    ///     for token in who {
    ///         let _ = sockets.send_shared(context, *token, &news);
    ///     }
    ///     sockets.send_gathered(context);
    /// }
    /// #
    /// # let frame = dwell_testkit::socket_once(|sockets, context, token| {
    /// #     context.set_sends(Some(dwell_evloop::Sends::default()));
    /// #     tell(sockets, context, &[token]);
    /// # });
    /// # assert_eq!(frame, b"\x81\x04news");
    /// ```
    pub fn gather(&mut self, context: &mut Context, count: usize) {
        if count >= Sends::COUNT_MIN
            && let Some(sends) = context.sends()
        {
            sends.begin(self.kind);
        }
    }

    /// Sends what was gathered, and gathers no longer.
    pub fn send_gathered(&mut self, context: &mut Context) {
        self.send_now(context);
        if let Some(sends) = context.sends_of(self.kind) {
            sends.end();
        }
    }

    /// Sends what is gathered if there is no room for more.
    pub(super) fn send_if_full(&mut self, context: &mut Context) {
        let sends = context.sends_of(self.kind);
        if sends.is_some_and(|sends| sends.is_full()) {
            self.send_now(context);
        }
    }

    /// Sends what is gathered before something else is done with a connection that is among it.
    pub(super) fn send_before(&mut self, context: &mut Context, token: Token) {
        let connection = self.connections.get(token);
        if connection.is_some_and(|connection| connection.is_gathered) {
            self.send_now(context);
        }
    }

    fn send_now(&mut self, context: &mut Context) {
        let Some(mut sends) = context.take_sends() else {
            return;
        };
        if sends.is_of(self.kind) && !sends.is_empty() {
            let connections = &self.connections;
            sends.send(|token| Some(&connections.get(token)?.peer.stream));
            for (token, sent) in sends.outcomes() {
                self.was_sent(context, token, sent);
            }
            sends.clear();
        }
        context.return_sends(sends);
    }

    fn was_sent(&mut self, context: &mut Context, token: Token, sent: Sent<'_>) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        connection.is_gathered = false;
        match sent {
            Sent::Whole => {}
            Sent::Failed => context.again(token, Readiness::HANGUP),
            Sent::Rest(rest) => {
                if let Some(mut visit) = self.visit_of(context, token, &mut ()) {
                    visit.refused(rest);
                    let output = std::mem::take(&mut visit.output);
                    context.return_output(output);
                }
            }
        }
    }
}
