//! Messages to many at once, which are gathered and sent by one system call.

use super::WebSockets;
use crate::fan_out::{self, FanOut};
use dwell_evloop::{Context, Stream, Token};

impl WebSockets {
    /// Gathers from now on what connections are sent, if `count` of them are worth it and the loop
    /// has [`Sends`](dwell_evloop::Sends), until it is [sent](Self::send_gathered).
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
        fan_out::begin(self, context, count);
    }

    /// Sends what was gathered, and gathers no longer.
    pub fn send_gathered(&mut self, context: &mut Context) {
        fan_out::end(self, context);
    }
}

impl FanOut for WebSockets {
    fn kind(&self) -> u8 {
        self.kind
    }

    fn stream(&self, token: Token) -> Option<&Stream> {
        Some(&self.connections.get(token)?.peer.stream)
    }

    fn mark(&mut self, token: Token) -> Option<&mut bool> {
        Some(&mut self.connections.get_mut(token)?.is_gathered)
    }

    fn refused(&mut self, context: &mut Context, token: Token, rest: &[u8]) {
        if let Some(mut visit) = self.visit_of(context, token, &mut ()) {
            visit.refused(rest);
            let output = std::mem::take(&mut visit.output);
            context.return_output(output);
        }
    }
}
