//! The loop of a WSGI server: it runs on a thread of its own and never holds the interpreter.

use super::channel::Channel;
use super::meeting::{Job, JobBody, Meeting, Order};
use super::uploads::{Share, Uploads};
use crate::web::access_log::AccessLog;
use crate::web::answer::{AnswerHead, OVERLOADED};
use crate::web::head::Head;
use crate::web::options::Options;
use dwell_engine::desk::Outflow;
use dwell_engine::{App, Body, BodyPlan, ExchangeId, Http, Kinds, Outcome, Reply, Request};
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Stream, Token};
use dwell_proto::http1::{BodyFraming, RequestHead, Trailers};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

const LISTENER: u8 = 1;
const CONNECTION: u8 = 2;
/// The tag of exchanges that have an [`Entry`]; others get no events.
const STREAMS: u64 = 1;
/// One loop with its connections.
#[derive(Debug)]
pub(super) struct WsgiLoop {
    http: Http,
    app: WsgiApp,
    orders: Vec<Order>,
    looked: Instant,
    is_draining: bool,
    is_stopped: bool,
}

/// The app that the engine talks to.
#[derive(Debug)]
struct WsgiApp {
    meeting: Arc<Meeting>,
    options: Arc<Options>,
    log: AccessLog,
    entries: HashMap<ExchangeId, Entry>,
    /// Jobs of this turn.
    jobs: Vec<Job>,
    /// Room in the queue when the turn began.
    room: usize,
    uploads: Uploads,
}

/// An exchange of which more is to come: of the request's body, or of the answer.
#[derive(Debug)]
struct Entry {
    channel: Arc<Channel>,
    share: Share,
    /// Until a worker has it.
    job: Option<Box<Job>>,
    /// It waits for fewer bodies to be on their way.
    is_waiting: bool,
    output: Outflow,
}

impl WsgiLoop {
    pub(super) fn new(meeting: Arc<Meeting>, options: Arc<Options>) -> Self {
        let kinds = Kinds {
            listener: LISTENER,
            connection: CONNECTION,
        };
        Self {
            http: Http::new(kinds, options.limits).keep_peers(),
            app: WsgiApp {
                room: meeting.room(),
                meeting,
                log: AccessLog::new(options.access_log.clone()),
                uploads: Uploads::new(options.gathered_body_bytes, options.gathered_bytes),
                options,
                entries: HashMap::new(),
                jobs: Vec::new(),
            },
            orders: Vec::new(),
            looked: Instant::now(),
            is_draining: false,
            is_stopped: false,
        }
    }

    /// Accepts the clients of `listener`.
    pub(super) fn listen(
        &mut self,
        event_loop: &mut EventLoop<()>,
        listener: dwell_evloop::Listener,
    ) -> io::Result<()> {
        self.http.listen(event_loop.context(), listener).map(|_| ())
    }

    /// Serves until it is stopped, or was drained and the last client is gone.
    pub(super) fn run(mut self, event_loop: &mut EventLoop<()>) -> io::Result<()> {
        let meeting = Arc::clone(&self.app.meeting);
        let result = loop {
            let wait = meeting.before_wait();
            let turned = event_loop.turn(&mut self, wait);
            if turned.is_err() || self.is_over() {
                break turned;
            }
        };
        self.http.close_all(event_loop.context(), &mut self.app);
        self.app.log.flush();
        meeting.close();
        result
    }

    fn is_over(&self) -> bool {
        self.is_stopped || self.is_draining && self.http.connections() == 0
    }

    fn carry_out(&mut self, context: &mut Context, order: Order) {
        let Self { http, app, .. } = self;
        match order {
            Order::Answer(exchange, answer) => {
                let (head, body) = *answer;
                app.log.status(exchange, head.status);
                app.log.bytes(exchange, body.length());
                let reached =
                    http.with_reply(context, exchange, |reply| head.send_whole(reply, &body));
                app.leave(exchange);
                app.log.end(exchange, context.wall(), reached.is_some());
            }
            Order::Hint(exchange, head) => {
                http.with_reply(context, exchange, |reply| {
                    reply.informational(head.status, &head.fields());
                });
            }
            Order::Begin(exchange, head, channel) => {
                app.begin(http, context, exchange, &head, channel);
            }
            Order::Write(exchange, data) => {
                if let Some(entry) = app.entries.get_mut(&exchange) {
                    entry.output.push(data);
                    app.pump(http, context, exchange);
                }
            }
            Order::Finish(exchange) => {
                if let Some(entry) = app.entries.get_mut(&exchange) {
                    entry.output.finish(Vec::new());
                    app.pump(http, context, exchange);
                }
            }
            Order::Abort(exchange) => {
                http.abort(context, exchange);
                app.leave(exchange);
                app.log.end(exchange, context.wall(), false);
            }
            Order::Want(exchange, bytes) => {
                http.with_reply(context, exchange, |reply| {
                    reply.grant(bytes);
                    if let Some(entry) = app.entries.get(&exchange) {
                        reply.await_body(entry.awaits_body());
                    }
                });
            }
            Order::Drain => {
                self.is_draining = true;
                http.drain(context, app);
            }
            Order::Stop => self.is_stopped = true,
        }
    }
}

impl Driver for WsgiLoop {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.http.ready(context, token, readiness, &mut self.app);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.http.expired(context, token, &mut self.app);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}

    fn turn_end(&mut self, context: &mut Context) {
        let meeting = Arc::clone(&self.app.meeting);
        meeting.after_wait();
        if !self.app.jobs.is_empty() {
            meeting.offer(&mut self.app.jobs);
        }
        let mut orders = std::mem::take(&mut self.orders);
        meeting.take_orders(&mut orders);
        for order in orders.drain(..) {
            self.carry_out(context, order);
        }
        self.orders = orders;
        if !self.app.jobs.is_empty() {
            // Of requests that have waited for others to end.
            meeting.offer(&mut self.app.jobs);
        }
        if context.now().duration_since(self.looked).as_millis() > 0 {
            self.looked = context.now();
            meeting.look();
        }
        self.app.room = meeting.room();
        self.app.log.flush();
    }
}

impl WsgiApp {
    /// Begins a streaming answer.
    fn begin(
        &mut self,
        http: &mut Http,
        context: &mut Context,
        exchange: ExchangeId,
        head: &AnswerHead,
        channel: Arc<Channel>,
    ) {
        self.log.status(exchange, head.status);
        let sent = http.with_reply(context, exchange, |reply| {
            head.send(reply, Body::Stream(head.content_length));
        });
        if sent.is_none() {
            channel.leave();
            self.leave(exchange);
            self.log.end(exchange, context.wall(), false);
            return;
        }
        http.hold(context, exchange, STREAMS, None);
        self.entries
            .entry(exchange)
            .or_insert_with(|| Entry::new(channel));
    }

    /// Gives the engine what it takes of a streaming answer.
    fn pump(&mut self, http: &mut Http, context: &mut Context, exchange: ExchangeId) {
        let Self { entries, log, .. } = self;
        let Some(entry) = entries.get_mut(&exchange) else {
            return;
        };
        let over = http.with_reply(context, exchange, |reply| {
            entry.pump(reply, |bytes| log.bytes(exchange, bytes))
        });
        if over != Some(false) {
            self.leave(exchange);
            self.log.end(exchange, context.wall(), over.is_some());
        }
    }

    /// Forgets what is known of an exchange, which is over.
    fn leave(&mut self, exchange: ExchangeId) {
        if let Some(entry) = self.entries.remove(&exchange) {
            entry.channel.leave();
            self.uploads.end(entry.share);
            self.advance();
        }
    }

    /// Gives workers the requests that have waited for fewer bodies to be on their way.
    fn advance(&mut self) {
        while let Some(exchange) = self.uploads.next(self.meeting.workers()) {
            // One that is gone, or complete, waits no more.
            if let Some(entry) = self.entries.get_mut(&exchange)
                && let Some(job) = entry.job.take()
            {
                self.uploads.run(&mut entry.share);
                self.jobs.push(*job);
            }
        }
    }

    /// Gathers more of a body, or gives its request to a worker; then turns the engine's wait for
    /// the body on or off.
    fn gather(&mut self, exchange: ExchangeId, reply: &mut Reply<'_>) {
        self.gather_more(exchange, reply);
        if let Some(entry) = self.entries.get(&exchange) {
            reply.await_body(entry.awaits_body());
        }
    }

    fn gather_more(&mut self, exchange: ExchangeId, reply: &mut Reply<'_>) {
        let Some(entry) = self.entries.get_mut(&exchange) else {
            return;
        };
        if !entry.is_gathering() {
            return;
        }
        if let Some(more) = self.uploads.more(&mut entry.share) {
            entry.channel.asked(more);
            reply.grant(more);
            return;
        }
        let workers = self.meeting.workers();
        if self.uploads.begin(exchange, &mut entry.share, workers) {
            self.jobs.extend(entry.job.take().map(|job| *job));
        } else {
            entry.is_waiting = true;
            if self.uploads.waiting() > 2 * self.entries.len() {
                let entries = &self.entries;
                self.uploads
                    .retain(|exchange| entries.get(exchange).is_some_and(Entry::waits));
            }
        }
    }
}

impl Entry {
    fn new(channel: Arc<Channel>) -> Self {
        Self {
            channel,
            share: Share::default(),
            job: None,
            is_waiting: false,
            output: Outflow::default(),
        }
    }

    /// True while it waits for fewer bodies to be on their way.
    fn waits(&self) -> bool {
        self.is_waiting && self.job.is_some()
    }

    /// True while its body is gathered before a worker is to have it.
    fn is_gathering(&self) -> bool {
        self.job.is_some() && !self.is_waiting
    }

    /// True while the loop or its worker waits for more of its body.
    fn awaits_body(&self) -> bool {
        self.is_gathering() || self.channel.is_awaited()
    }

    /// Writes what there is room for; true when the answer is complete.
    fn pump(&mut self, reply: &mut Reply<'_>, mut count: impl FnMut(u64)) -> bool {
        self.output.pump(reply, |bytes| {
            count(bytes as u64);
            self.channel.taken(bytes);
        })
    }
}

impl App for WsgiApp {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        head: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        self.options.body_plan(head)
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let waits = if request.body_follows {
            self.uploads.waiting()
        } else {
            0
        };
        if self.jobs.len() + waits >= self.room {
            reply.send(&OVERLOADED);
            return Outcome::Answered;
        }
        let peer = reply.peer_address();
        let head = Head::of(request);
        let origin = self
            .options
            .trusted
            .origin(peer, request.head.fields.iter());
        let exchange = request.exchange;
        self.log.begin(request, context.now(), &origin);
        self.options.wear.count();
        if !request.body_follows {
            self.jobs.push(Job {
                exchange,
                head,
                origin,
                body: JobBody::Whole(request.body.to_vec()),
            });
            return Outcome::Held {
                tag: 0,
                timeout: None,
            };
        }
        let channel = Arc::new(Channel::default());
        let mut entry = Entry::new(Arc::clone(&channel));
        entry.job = Some(Box::new(Job {
            exchange,
            head,
            origin,
            body: JobBody::Streamed(channel),
        }));
        let is_sized = matches!(request.head.framing, BodyFraming::Length(_));
        if !is_sized || request.head.expect_continue {
            // The client may send nothing before the app has said something.
            entry.share = Share::direct();
        }
        self.entries.insert(exchange, entry);
        self.gather(exchange, reply);
        Outcome::Held {
            tag: STREAMS,
            timeout: None,
        }
    }

    fn body_data(
        &mut self,
        _: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if let Some(entry) = self.entries.get_mut(&exchange) {
            entry.channel.arrive(data);
            entry.share.add(data.len());
            self.gather(exchange, reply);
        }
        Outcome::Held { tag, timeout: None }
    }

    fn body_end(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        _: Trailers<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if let Some(entry) = self.entries.get_mut(&exchange) {
            entry.channel.complete();
            self.uploads.complete(&mut entry.share);
            if entry.job.is_some() && self.jobs.len() >= self.room {
                self.log.status(exchange, OVERLOADED.status);
                reply.send(&OVERLOADED);
                self.leave(exchange);
                self.log.end(exchange, context.wall(), true);
                return Outcome::Answered;
            }
            self.jobs.extend(entry.job.take().map(|job| *job));
            self.advance();
        }
        Outcome::Held { tag, timeout: None }
    }

    fn drained(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let Self { entries, log, .. } = self;
        let Some(entry) = entries.get_mut(&exchange) else {
            return Outcome::Held { tag, timeout: None };
        };
        if !entry.pump(reply, |bytes| log.bytes(exchange, bytes)) {
            return Outcome::Held { tag, timeout: None };
        }
        self.leave(exchange);
        self.log.end(exchange, context.wall(), true);
        Outcome::Answered
    }

    fn expired(&mut self, _: &mut Context, _: ExchangeId, tag: u64, _: &mut Reply<'_>) -> Outcome {
        Outcome::Held { tag, timeout: None }
    }

    fn peer_closed(&mut self, _: ExchangeId, _: u64) -> bool {
        // Half a connection can still take an answer.
        false
    }

    fn abandoned(&mut self, context: &mut Context, exchange: ExchangeId, _: u64) {
        self.leave(exchange);
        self.log.end(exchange, context.wall(), false);
    }
}
