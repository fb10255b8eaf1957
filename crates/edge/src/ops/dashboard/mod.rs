//! The dashboard: a page with the figures of the process, and the event stream that updates it.
//!
//! Once a second the figures are read and encoded, once for all viewers, and only while there are
//! viewers: the timeouts of their streams are the clock. The readings of the last minutes are kept
//! while there is a viewer, so that a second one begins with a history. Coarser ones are kept for
//! an hour, viewers or not.

mod history;
mod page;
mod sample;

pub(crate) use history::HISTORY_INTERVAL;
pub(crate) use sample::Setting;

use crate::held::held;
use crate::log::recent_events;
use crate::metrics::{Metrics, StoreFigures};
use dwell_engine::{Body, Outcome, Reply, Request, Response, SharedPiece, WriteError, sse};
use dwell_evloop::Context;
use dwell_store_server::StoreService;
use history::History;
use page::DashboardPage;
use sample::{Numbers, Sample, SampleInputs};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Path of the page.
pub(crate) const PAGE_PATH: &str = "/-/";
/// Path of its events.
pub(crate) const EVENTS_PATH: &str = "/-/dashboard/events";
/// Path of the readings of the last hour.
pub(crate) const HISTORY_PATH: &str = "/-/history";
/// Path of the newest events of the process.
pub(crate) const RECENT_PATH: &str = "/-/events";

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// Readings that are kept for the curves of the page.
const RECENT_MAX: usize = 120;
/// Most streams at a time.
const VIEWERS_MAX: usize = 32;

/// The page, its viewers, and the last readings.
#[derive(Debug)]
pub(crate) struct Dashboard {
    page: DashboardPage,
    metrics: Arc<Metrics>,
    service: Option<Arc<StoreService>>,
    setting: Setting,
    started: Instant,
    draining: bool,
    viewers: usize,
    /// Time of the next reading.
    due: Instant,
    /// Number of readings; the tag of a viewer's stream is the number of the last one it was sent.
    number: u64,
    latest: SharedPiece,
    recent: VecDeque<String>,
    hour: History,
}

impl Dashboard {
    /// Shape: `service` is absent when values come from memcached servers.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        service: Option<Arc<StoreService>>,
        setting: Setting,
        started: Instant,
    ) -> Self {
        Self {
            page: DashboardPage::new(),
            metrics,
            service,
            setting,
            started,
            draining: false,
            viewers: 0,
            due: started,
            number: 0,
            latest: SharedPiece::new(b""),
            recent: VecDeque::new(),
            hour: History::default(),
        }
    }

    /// Keeps a reading for an hour, and returns whether its figures differ from the last ones.
    pub(crate) fn keep_reading(&mut self, context: &Context) -> bool {
        let numbers = Numbers::read(&self.metrics, self.inputs(context));
        self.hour.add(numbers.past())
    }

    fn inputs(&self, context: &Context) -> SampleInputs {
        SampleInputs {
            store: self.service.as_deref().map(StoreFigures::of),
            draining: self.draining,
            uptime: context.now().duration_since(self.started),
        }
    }

    /// The readings of the last hour, and the one of now.
    fn hour(&mut self, context: &Context) -> String {
        let now = Numbers::read(&self.metrics, self.inputs(context));
        format!(
            "{{\"started\":{},\"interval_ms\":{},\"bounds\":{},\"readings\":[{}]}}\n",
            self.metrics.started_unix_seconds(),
            HISTORY_INTERVAL.as_millis(),
            now.bounds(),
            self.hour.with(&now.past()),
        )
    }

    /// Shows these options from now on.
    pub(crate) fn reconfigure(&mut self, setting: Setting) {
        self.setting = setting;
    }

    /// Reports from now on that the process drains.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Answers a request for one of the paths.
    pub(crate) fn request(
        &mut self,
        context: &Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if !matches!(request.head.method, "GET" | "HEAD") {
            reply.send(&Response {
                status: 405,
                fields: &[("Allow", b"GET, HEAD")],
                body: Body::Empty,
            });
        } else if request.head.path == PAGE_PATH {
            self.page.send(reply);
        } else if request.head.path == HISTORY_PATH {
            send_json(reply, self.hour(context));
        } else if request.head.path == RECENT_PATH {
            send_json(reply, recent());
        } else if self.viewers >= VIEWERS_MAX {
            reply.send(&Response {
                status: 503,
                fields: &[("Retry-After", b"10"), ("Cache-Control", b"no-store")],
                body: Body::Slice(b"too many clients have the dashboard open\n"),
            });
        } else {
            return self.begin(context, request, reply);
        }
        Outcome::Answered
    }

    /// Begins the stream of a viewer, with the history and the latest figures.
    fn begin(
        &mut self,
        context: &Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        sse::begin(reply, &[]);
        if request.head.method == "HEAD" {
            return Outcome::Answered;
        }
        if self.viewers == 0 {
            self.recent.clear();
            self.due = context.now();
        }
        let past: Vec<&str> = self.recent.iter().map(String::as_str).collect();
        let past = format!("[{}]", past.join(","));
        let event = sse::Event {
            event: Some("history"),
            retry: Some(RETRY),
            ..sse::Event::new(&past)
        };
        self.read_if_due(context);
        let is_begun = sse::send(reply, &event).is_ok() && reply.write_piece(&self.latest).is_ok();
        if !is_begun {
            return Outcome::Close;
        }
        self.viewers += 1;
        self.hold(context)
    }

    /// Handles the timeout of a viewer's stream: sends the latest figures, unless the viewer has
    /// not received those before.
    pub(crate) fn expired(
        &mut self,
        context: &Context,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.read_if_due(context);
        if tag != self.number {
            match reply.write_piece(&self.latest) {
                Ok(()) | Err(WriteError::Full { .. }) => {}
                Err(_) => {
                    self.abandoned();
                    return Outcome::Close;
                }
            }
        }
        self.hold(context)
    }

    /// Handles a viewer that has left.
    pub(crate) fn abandoned(&mut self) {
        self.viewers = self.viewers.saturating_sub(1);
    }

    fn hold(&self, context: &Context) -> Outcome {
        held(
            self.number,
            self.due.saturating_duration_since(context.now()),
        )
    }

    fn read_if_due(&mut self, context: &Context) {
        if context.now() < self.due {
            return;
        }
        self.due = context.now() + INTERVAL;
        self.number += 1;
        let sample = Sample::read(&self.metrics, &self.setting, self.inputs(context));
        let (numbers, everything) = sample.encode();
        // Text without a line end is always a valid event.
        self.latest = sse::SharedEvent::new(&sse::Event::new(&everything))
            .map_or_else(|_| SharedPiece::new(b""), |event| event.piece().clone());
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(numbers);
    }
}

/// The newest events of the process, the oldest first.
fn recent() -> String {
    // Fails only for maps with keys that are not strings, or when writing fails.
    let events = serde_json::to_string(&recent_events()).unwrap_or_default();
    format!("{{\"events\":{events}}}\n")
}

fn send_json(reply: &mut Reply<'_>, text: String) {
    reply.send(&Response {
        status: 200,
        fields: &[
            ("Content-Type", b"application/json"),
            ("Cache-Control", b"no-store"),
        ],
        body: Body::Shared(text.into()),
    });
}

/// Time after which a page reconnects. Units: milliseconds.
const RETRY: u64 = 1000;
