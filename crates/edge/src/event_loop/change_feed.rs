//! How what the feed has found reaches the loops.

use super::{EdgeLoop, Message, Occurrence};
use crate::change_feed::Resync;
use crate::metrics::ResyncReason;
use dwell_evloop::{Context, Token};

impl EdgeLoop {
    /// Has the feed go on, and spreads what it has found.
    pub(crate) fn follow_feed(&mut self, context: &mut Context) {
        if let Some(waited) = &self.waited
            && self.front.polls.watched_keys() > 0
        {
            if waited.wake() {
                self.fleet.wake(0);
            }
            self.look_at_returned();
        }
        if let Some(server) = self.front.polls.lookups.take_went_back() {
            let is_distrusted = true;
            self.metrics.feed_resyncs.increment(ResyncReason::Reversed);
            self.resync_all(Resync {
                server,
                is_distrusted,
            });
        }
        let Some(feed) = &mut self.change_feed else {
            return;
        };
        feed.follow(context);
        for (of_loop, names) in feed.hints() {
            if of_loop == self.index {
                self.front.polls.hinted(&names);
            } else {
                self.fleet.send(of_loop, Message::Hinted(names));
            }
        }
        for resync in feed.resyncs() {
            self.resync_all(resync);
        }
    }

    /// Has every loop look at everything of one server.
    fn resync_all(&mut self, resync: Resync) {
        for of_loop in 0..self.fleet.loops() {
            if of_loop == self.index {
                self.resync(resync);
            } else {
                self.fleet.send(of_loop, Message::Resync(resync));
            }
        }
    }

    /// Looks at everything of one server that polls wait for.
    pub(crate) fn resync(&mut self, resync: Resync) {
        if let Some(client) = &self.memcached {
            let is_of_server = |name: &[u8]| client.server_of(name) == resync.server;
            self.front.polls.resync(is_of_server, resync.is_distrusted);
        }
    }

    pub(crate) fn tell_feed(&mut self, context: &mut Context, token: Token, what: Occurrence) {
        let Some(feed) = &mut self.change_feed else {
            return;
        };
        match what {
            Occurrence::Ready(readiness) => feed.ready(context, token, readiness),
            Occurrence::Expired => feed.expired(context, token),
        }
    }
}
