//! The clients of the application that a loop has while its options change.

use crate::group::{UpstreamGroup, UpstreamStatus};
use crate::plan::{GroupOptions, UPSTREAMS_MAX, UpstreamPlan};
use crate::{FaultReport, Unsent, Upstream, UpstreamError, UpstreamEvent, UpstreamRequest};
use dwell_evloop::{Context, HandshakeCounts, Readiness, Token};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The clients of the application that a loop has.
///
/// Shape: other options make another client. Requests that are in progress stay with the one that
/// has sent them until they have ended, however long that is. Each client has token kinds of its
/// own; should none be left for another one, the newest options wait for some.
#[derive(Debug)]
pub struct Upstreams {
    /// The kinds that the tokens of all of them may have.
    kinds: Range<u8>,
    current: Option<UpstreamGroup>,
    /// Have requests in progress, and get no more.
    retired: Vec<UpstreamGroup>,
    /// The client that follows when there are kinds for it.
    next: Next,
    /// The newest options.
    plan: Option<Arc<UpstreamPlan>>,
}

/// The fate of the client that a loop has.
#[derive(Debug)]
enum Next {
    Stays,
    /// It is replaced by one with these options, or by none.
    Replaced(Option<Arc<UpstreamPlan>>),
}

impl Upstreams {
    /// Begins with one client, or none. No other component of the loop may use tokens of `kinds`;
    /// twice [`UPSTREAMS_MAX`] of them are enough for one that ends and the one after it.
    pub fn new(kinds: Range<u8>, plan: Option<Arc<UpstreamPlan>>) -> Self {
        debug_assert!(kinds.len() >= 2 * UPSTREAMS_MAX);
        Self {
            current: plan.as_deref().map(|plan| group(kinds.start, plan)),
            kinds,
            retired: Vec::new(),
            next: Next::Stays,
            plan,
        }
    }

    /// Goes by another plan for the requests from now on, as soon as that can be. The plan that it
    /// goes by changes nothing.
    pub fn change(&mut self, context: &mut Context, plan: Option<Arc<UpstreamPlan>>) {
        let is_same = match (&self.plan, &plan) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        if !is_same {
            self.plan.clone_from(&plan);
            self.next = Next::Replaced(plan);
            self.settle(context);
        }
    }

    /// Lets go of retired clients that have ended, and makes the one that waits.
    pub fn settle(&mut self, context: &mut Context) {
        self.retired.retain(|group| !group.is_done());
        let Next::Replaced(plan) = &self.next else {
            return;
        };
        let servers = plan.as_ref().map_or(0, |plan| plan.servers.len());
        let Some(first) = self.free_kinds(servers.min(UPSTREAMS_MAX)) else {
            return;
        };
        let next = plan.as_deref().map(|plan| group(first, plan));
        self.next = Next::Stays;
        if let Some(mut before) = std::mem::replace(&mut self.current, next) {
            before.retire(context);
            if !before.is_done() {
                self.retired.push(before);
            }
        }
    }

    /// The first of so many kinds in a row that no client has.
    fn free_kinds(&self, count: usize) -> Option<u8> {
        let taken: Vec<_> = self.all().map(UpstreamGroup::kinds).collect();
        self.kinds.clone().find(|first| {
            let last = usize::from(*first) + count;
            let is_apart = |of: &Range<u8>| {
                last <= usize::from(of.start) || usize::from(of.end) <= usize::from(*first)
            };
            last <= usize::from(self.kinds.end) && taken.iter().all(is_apart)
        })
    }

    fn all(&self) -> impl Iterator<Item = &UpstreamGroup> {
        self.current.iter().chain(&self.retired)
    }

    /// The client that a token of this kind belongs to.
    fn of_kind(&mut self, kind: u8) -> Option<&mut UpstreamGroup> {
        let mut all = self.current.iter_mut().chain(&mut self.retired);
        all.find(|group| group.kinds().contains(&kind))
    }

    /// Sends a request to the application as it is now.
    ///
    /// # Errors
    /// [`Unsent`] with [`UpstreamError::Unavailable`] when no server takes it. No event follows
    /// then.
    pub fn send(&mut self, context: &mut Context, request: UpstreamRequest) -> Result<(), Unsent> {
        match &mut self.current {
            Some(current) => current.send(context, request),
            None => Err(Unsent {
                error: UpstreamError::Unavailable,
                report: FaultReport::default(),
            }),
        }
    }

    /// Counts a request that cannot be completed: its connection has ended before all of its body
    /// was sent.
    pub fn lost(&mut self, now: Instant, connection: Option<Token>) -> Unsent {
        let group = connection.and_then(|at| Some((self.of_kind(at.kind())?, at)));
        match group {
            Some((group, connection)) => group.lost(now, connection),
            None => Unsent {
                error: UpstreamError::Closed,
                report: FaultReport::default(),
            },
        }
    }

    /// The client that has this connection to a server of the application.
    pub fn client_of(&mut self, connection: Token) -> Option<&mut Upstream> {
        self.of_kind(connection.kind())?.client_of(connection)
    }

    /// Tells whether a request is to get a connection yet, or another one.
    pub fn is_unannounced(&mut self, tag: u64) -> bool {
        let mut all = self.current.iter_mut().chain(&mut self.retired);
        all.any(|group| group.is_unannounced(tag))
    }

    /// Tells whether a request waits for a connection in its client's line.
    pub fn may_be_given(&mut self, tag: u64) -> bool {
        let mut all = self.current.iter_mut().chain(&mut self.retired);
        all.any(|group| group.may_be_given(tag))
    }

    /// Another client asks for what a request brings.
    pub fn also_for(&mut self, context: &mut Context, tag: u64, client: Option<IpAddr>) {
        for group in self.current.iter_mut().chain(&mut self.retired) {
            group.also_for(context, tag, client);
        }
    }

    /// Drops a request that this connection has, or has had.
    pub fn abort(&mut self, context: &mut Context, connection: Token, tag: u64) {
        if let Some(group) = self.of_kind(connection.kind()) {
            group.abort(context, connection, tag);
        }
    }

    /// Forgets a request, whichever client has it.
    pub fn cancel(&mut self, context: &mut Context, tag: u64) {
        for group in self.current.iter_mut().chain(&mut self.retired) {
            group.cancel(context, tag);
        }
    }

    /// Begins the health checks, if they are on; called at the end of every turn.
    pub fn start(&mut self, context: &mut Context) {
        if let Some(current) = &mut self.current {
            current.start(context);
        }
    }

    /// Handles a socket of one of the servers that is ready.
    pub fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        if let Some(group) = self.of_kind(token.kind()) {
            group.ready(context, token, readiness, sink);
        }
    }

    /// Handles the deadline of a token of one of the servers, which has passed.
    pub fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        if let Some(group) = self.of_kind(token.kind()) {
            group.expired(context, token, sink);
        }
    }

    /// The servers of the current options as they stand now, in the order of those.
    pub fn statuses(&self) -> impl Iterator<Item = UpstreamStatus> {
        self.current.iter().flat_map(UpstreamGroup::statuses)
    }

    /// The reason for which the server at this place among them is left out, if it is.
    pub fn reason(&self, index: usize) -> Option<Arc<str>> {
        self.current.as_ref()?.reason(index)
    }

    /// Takes the attempts that failed at the server at this place among them, with the last error:
    /// also of requests that another server has answered.
    pub fn take_failed(&mut self, index: usize) -> Option<(u64, UpstreamError)> {
        self.current.as_mut()?.take_failed(index)
    }

    /// Figures of now, and of what has happened since this was called last.
    ///
    /// Shape: `head` gets the place of a server, and for how long a request to it waited for the
    /// head of its answer; of the servers of earlier options, which may be others, it gets none.
    pub fn take_figures(&mut self, mut head: impl FnMut(usize, Duration)) -> UpstreamFigures {
        let current = self.current.iter_mut().map(|group| (group, true));
        let retired = self.retired.iter_mut().map(|group| (group, false));
        let mut figures = UpstreamFigures::default();
        for (group, is_current) in current.chain(retired) {
            figures.connections += group.connections();
            let statuses = group.statuses();
            figures.outstanding += statuses.map(|status| status.outstanding).sum::<usize>();
            for (index, waited) in group.take_first_bytes() {
                if is_current {
                    head(index, waited);
                }
            }
            figures.retried += group.take_retried();
            figures.handshakes.append(group.take_handshakes());
        }
        figures
    }
}

/// Figures of all clients of the application that one loop has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamFigures {
    /// Handshakes of TLS that have ended.
    pub handshakes: HandshakeCounts,
    /// Open connections.
    pub connections: usize,
    /// Requests in progress or waiting.
    pub outstanding: usize,
    /// Requests that were sent to another server.
    pub retried: u64,
}

fn group(kind: u8, plan: &UpstreamPlan) -> UpstreamGroup {
    let options = GroupOptions {
        seed: dwell_evloop::seed(),
        ..plan.options.clone()
    };
    UpstreamGroup::new(kind, &plan.servers, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Taking, UpstreamOptions};
    use bytes::Bytes;
    use dwell_evloop::EventLoop;
    use std::net::TcpListener;

    /// Enough for two of the largest clients.
    const KINDS: Range<u8> = Token::RESERVED_KIND - 2 * UPSTREAMS_MAX as u8..Token::RESERVED_KIND;

    fn plan(listeners: &[&TcpListener]) -> Arc<UpstreamPlan> {
        let addresses = listeners.iter().map(|it| it.local_addr().unwrap());
        Arc::new(UpstreamPlan {
            servers: addresses.map(UpstreamOptions::new).collect(),
            options: GroupOptions {
                failures_max: 3,
                failures_window: Duration::from_secs(30),
                health: None,
                seed: 7,
                faults: Arc::default(),
            },
        })
    }

    fn request(tag: u64) -> UpstreamRequest {
        UpstreamRequest {
            is_idempotent: true,
            taking: Taking::Parts,
            ..UpstreamRequest::new(
                Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                tag,
            )
        }
    }

    #[test]
    fn a_request_that_does_not_end_holds_no_change_up() {
        let app = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        let mut upstreams = Upstreams::new(KINDS, Some(plan(&[&app])));
        for tag in 0..20 {
            upstreams.send(context, request(tag)).unwrap();
            let servers = vec![&app; 1 + tag as usize % 3];
            upstreams.change(context, Some(plan(&servers)));
            let current = upstreams.current.as_ref().unwrap();
            assert_eq!(current.statuses().len(), servers.len(), "change {tag}");
        }
        let kinds = upstreams.all().flat_map(UpstreamGroup::kinds);
        let mut kinds: Vec<u8> = kinds.collect();
        let count = kinds.len();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!((kinds.len(), upstreams.retired.len()), (count, 20));
        for tag in 0..20 {
            upstreams.cancel(context, tag);
        }
        upstreams.settle(context);
        assert!(upstreams.retired.is_empty());
    }

    #[test]
    fn a_plan_keeps_the_servers_that_failed_by_the_one_before() {
        let [first, second, third] = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let before = plan(&[&first, &second]);
        for place in 0..2 {
            before
                .options
                .faults
                .failed(dwell_evloop::now(), Some(place));
        }
        assert!(before.options.faults.answered(0));
        let next = Arc::unwrap_or_clone(plan(&[&third, &second, &first]));
        let next = next.following(Some(&before));
        let answered = |place| next.options.faults.answered(place);
        assert_eq!([0, 1, 2].map(answered), [false, true, false]);
    }

    #[test]
    fn the_same_plan_again_changes_nothing() {
        let app = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        let first = plan(&[&app]);
        let mut upstreams = Upstreams::new(KINDS, Some(Arc::clone(&first)));
        upstreams.send(context, request(0)).unwrap();
        upstreams.change(context, Some(Arc::clone(&first)));
        assert!(upstreams.retired.is_empty(), "its connections stay");
        upstreams.change(context, Some(plan(&[&app])));
        assert_eq!(upstreams.retired.len(), 1);
    }

    #[test]
    fn where_no_kinds_are_left_the_newest_plan_waits() {
        let app = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        let mut upstreams = Upstreams::new(KINDS, Some(plan(&[&app; UPSTREAMS_MAX])));
        for tag in 0..2 {
            upstreams.send(context, request(tag)).unwrap();
            upstreams.change(context, Some(plan(&[&app; UPSTREAMS_MAX])));
        }
        let servers = |upstreams: &Upstreams| {
            let current = upstreams.current.as_ref();
            current.map(|group| group.statuses().len())
        };
        upstreams.change(context, Some(plan(&[&app])));
        assert_eq!(servers(&upstreams), Some(UPSTREAMS_MAX));
        upstreams.cancel(context, 0);
        upstreams.settle(context);
        assert_eq!(servers(&upstreams), Some(1));
        upstreams.change(context, None);
        assert_eq!(servers(&upstreams), None);
    }
}
