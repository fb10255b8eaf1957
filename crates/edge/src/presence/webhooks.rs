//! The client of the webhook: it sends events in batches, one request at a time.

use super::Presence;
use super::board::Event;
use crate::log::Outage;
use crate::metrics::{Counter, LoopMetrics, WebhookOutcome, figure};
use bytes::Bytes;
use dwell_evloop::{Backoff, Connector, Context, Readiness, Token};
use dwell_upstream::{Upstream, UpstreamError, UpstreamEvent, UpstreamOptions, UpstreamRequest};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Destination of events, and the bounds of requests.
#[derive(Clone, Debug)]
pub(crate) struct WebhookPlan {
    pub(crate) address: SocketAddr,
    /// Begins the handshakes of TLS; `None` without TLS.
    pub(crate) tls: Option<Connector>,
    /// The host in the `Host` field, as configured.
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) token: Option<String>,
    /// Longest time for one request.
    pub(crate) timeout: Duration,
    /// Most requests for one batch.
    pub(crate) attempts_max: u32,
    /// Most events in one request.
    pub(crate) batch_max: usize,
}

/// The webhook client of the first loop.
#[derive(Debug)]
pub(crate) struct Webhooks {
    client: Upstream,
    plan: WebhookPlan,
    batch: Option<Batch>,
    /// Token of the next deadline.
    timer: Token,
    /// The deadline that is armed for it.
    armed: Option<Instant>,
    backoff: Backoff,
    /// Outage of the webhook.
    outage: Outage,
}

/// A batch of events that is being sent.
#[derive(Debug)]
struct Batch {
    request: Bytes,
    events: u64,
    /// Requests sent so far.
    attempts: u32,
    /// Time of the next request; `None` while one is open.
    due: Option<Instant>,
}

/// Result of a request.
#[derive(Debug)]
enum AttemptResult {
    Taken,
    /// A retry may succeed.
    Failed(String),
    /// A retry cannot succeed.
    Refused(u16),
}

/// Longest delay before the first retry; it doubles for each further one.
const DELAY_MIN: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(30);
/// The tag of the one open request.
const TAG: u64 = 0;

impl Webhooks {
    /// Makes a client without a connection. `kind` is the kind of its tokens and `timer` the token
    /// of its deadline; both belong to it alone.
    pub(crate) fn new(kind: u8, timer: Token, plan: WebhookPlan, seed: u64) -> Self {
        let options = UpstreamOptions {
            tls: plan.tls.clone(),
            connect_timeout: plan.timeout,
            header_timeout: plan.timeout,
            total_timeout: plan.timeout,
            connections_max: 1,
            transfers_max: 0,
            idle_max: 1,
            queue_max: 1,
            answer_bytes_max: ANSWER_BYTES_MAX,
            ..UpstreamOptions::new(plan.address)
        };
        Self {
            client: Upstream::new(kind, options),
            plan,
            batch: None,
            timer,
            armed: None,
            backoff: Backoff::new(DELAY_MIN, DELAY_MAX, seed),
            outage: Outage::default(),
        }
    }

    /// Sends pending events; called at the end of every turn. Keys lose their last watchers only if
    /// `serves`.
    pub(crate) fn follow(
        &mut self,
        context: &mut Context,
        presence: &Presence,
        metrics: &LoopMetrics,
        serves: bool,
    ) {
        let now = context.now();
        if serves {
            dropped(metrics).add(presence.expire(now));
        }
        loop {
            if self.batch.is_none() {
                self.batch = self.next_batch(presence, now);
            }
            let due = self.batch.as_ref().and_then(|batch| batch.due);
            if due.is_none_or(|due| due > now) {
                break;
            }
            if let Err(error) = self.send(context) {
                self.ended(now, metrics, AttemptResult::Failed(error.to_string()));
            }
        }
        let (next_end, waiting) = presence.outlook();
        let under_way = self.batch.as_ref().map_or(0, |batch| batch.events);
        metrics
            .webhook_queue
            .set(figure(waiting as u64 + under_way));
        let due = self.batch.as_ref().and_then(|batch| batch.due);
        let next_end = next_end.filter(|_| serves);
        self.arm(context, due.into_iter().chain(next_end).min());
    }

    fn next_batch(&self, presence: &Presence, now: Instant) -> Option<Batch> {
        let events = presence.take(self.plan.batch_max);
        (!events.is_empty()).then(|| Batch {
            request: encode(&self.plan, &events),
            events: events.len() as u64,
            attempts: 0,
            due: Some(now),
        })
    }

    fn send(&mut self, context: &mut Context) -> Result<(), UpstreamError> {
        let Some(batch) = &mut self.batch else {
            return Ok(());
        };
        batch.attempts += 1;
        batch.due = None;
        let request = UpstreamRequest::new(batch.request.clone(), TAG);
        self.client.send(context, request)
    }

    fn arm(&mut self, context: &mut Context, next: Option<Instant>) {
        let now = context.now();
        if self.armed == next && next.is_none_or(|next| next > now) {
            return;
        }
        self.armed = next;
        match next {
            Some(next) => context.arm(self.timer, next.saturating_duration_since(now)),
            None => context.disarm(self.timer),
        }
    }

    /// Handles readiness of the client's socket.
    pub(crate) fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        metrics: &LoopMetrics,
    ) {
        let mut events = Vec::new();
        let mut sink = |_: &mut Context, event| events.push(event);
        self.client.ready(context, token, readiness, &mut sink);
        self.upstream_event(context, events, metrics);
    }

    /// Handles a deadline of the client.
    pub(crate) fn expired(&mut self, context: &mut Context, token: Token, metrics: &LoopMetrics) {
        let mut events = Vec::new();
        let mut sink = |_: &mut Context, event| events.push(event);
        self.client.expired(context, token, &mut sink);
        self.upstream_event(context, events, metrics);
    }

    fn upstream_event(
        &mut self,
        context: &mut Context,
        events: Vec<UpstreamEvent>,
        metrics: &LoopMetrics,
    ) {
        for event in events {
            let verdict = match event {
                UpstreamEvent::Answer { answer, .. } => match answer.status {
                    200..300 => AttemptResult::Taken,
                    408 | 425 | 429 | 500.. => {
                        AttemptResult::Failed(format!("status {}", answer.status))
                    }
                    status => AttemptResult::Refused(status),
                },
                UpstreamEvent::Failed { error, .. } => AttemptResult::Failed(error.to_string()),
                UpstreamEvent::Large { .. } => {
                    self.client.cancel(context, TAG);
                    AttemptResult::Failed("its answer is too large".to_owned())
                }
                // Events of other kinds of requests.
                UpstreamEvent::Started { .. }
                | UpstreamEvent::BodyTaken { .. }
                | UpstreamEvent::Parts { .. }
                | UpstreamEvent::Switched { .. } => continue,
            };
            self.ended(context.now(), metrics, verdict);
        }
    }

    /// Handles the end of a request: the next batch follows, or the same one again.
    fn ended(&mut self, now: Instant, metrics: &LoopMetrics, verdict: AttemptResult) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        match verdict {
            AttemptResult::Taken => {
                let delivered = metrics.webhook_events.of(WebhookOutcome::Delivered);
                delivered.add(batch.events);
                if self.outage.worked() {
                    tracing::info!("webhook answers");
                }
            }
            AttemptResult::Failed(why) if batch.attempts < self.plan.attempts_max => {
                metrics.webhook_retries.increment();
                batch.due = Some(now + self.backoff.delay(batch.attempts));
                self.batch = Some(batch);
                if let Some(count) = self.outage.failed(now) {
                    tracing::warn!(why, count, "webhook does not take events");
                }
            }
            AttemptResult::Failed(why) => {
                dropped(metrics).add(batch.events);
                tracing::warn!(why, events = batch.events, "events are lost to the webhook");
            }
            AttemptResult::Refused(status) => {
                dropped(metrics).add(batch.events);
                tracing::warn!(status, events = batch.events, "webhook refuses events");
            }
        }
    }
}

fn dropped(metrics: &LoopMetrics) -> &Counter {
    metrics.webhook_events.of(WebhookOutcome::Dropped)
}

/// Encodes the request for a batch of events.
fn encode(plan: &WebhookPlan, events: &[Event]) -> Bytes {
    // Strings and numbers always serialize.
    let body = serde_json::to_string(events).unwrap_or_default();
    let mut request = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: dwell\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n",
        plan.path,
        plan.host,
        body.len()
    );
    if let Some(token) = &plan.token {
        // Writing to a string cannot fail.
        let _ = write!(request, "Authorization: Bearer {token}\r\n");
    }
    request.push_str("\r\n");
    request.push_str(&body);
    request.into()
}

/// Longest response of the webhook; it is read and discarded.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_evloop::{Driver, EventLoop};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    const KIND: u8 = 7;
    const REQUESTS: u64 = 50;
    const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";

    struct Alone {
        webhooks: Webhooks,
        metrics: LoopMetrics,
    }

    impl Driver for Alone {
        type Message = ();

        fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
            self.webhooks
                .ready(context, token, readiness, &self.metrics);
        }

        fn expired(&mut self, context: &mut Context, token: Token) {
            self.webhooks.expired(context, token, &self.metrics);
        }

        fn message(&mut self, _: &mut Context, (): ()) {}
    }

    /// Answers every request of one connection with 204.
    fn hook() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut answers = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if line.is_empty() {
                    answers.write_all(b"HTTP/1.1 204 No\r\n\r\n").unwrap();
                }
            }
        });
        address
    }

    #[test]
    fn requests_that_are_over_leave_nothing_behind() {
        let plan = WebhookPlan {
            address: hook(),
            tls: None,
            host: "a".to_owned(),
            path: "/".to_owned(),
            token: None,
            timeout: Duration::from_secs(20),
            attempts_max: 1,
            batch_max: 1,
        };
        let mut driver = Alone {
            webhooks: Webhooks::new(KIND, Token::new(KIND + 1, 0, 0), plan, 7),
            metrics: LoopMetrics::default(),
        };
        let mut event_loop = EventLoop::<()>::new().unwrap();
        for _ in 0..REQUESTS {
            driver.webhooks.batch = Some(Batch {
                request: Bytes::from_static(REQUEST),
                events: 1,
                attempts: 0,
                due: None,
            });
            driver.webhooks.send(event_loop.context()).unwrap();
            while driver.webhooks.batch.is_some() {
                let timeout = Duration::from_millis(50);
                event_loop.turn(&mut driver, Some(timeout)).unwrap();
            }
        }
        let delivered = driver.metrics.webhook_events.of(WebhookOutcome::Delivered);
        assert_eq!(delivered.value(), REQUESTS);
    }
}
