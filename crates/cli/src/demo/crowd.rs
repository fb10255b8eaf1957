//! The clients of one transport, all on one loop of the engine, in a process of their own.
//!
//! The parent orders in lines of JSON, `{"clients":N}` and `{"wave":"VALUE"}`; this process writes
//! one line when its counts change, and one when a wave has ended.

mod client;
mod tally;

use super::measure::monotonic_ns;
use super::part::obey_parent;
use super::transport::Transport;
use client::Client;
use dwell_edge::process::raise_descriptor_limit;
use dwell_engine::manager::{Conn, Event, EventKind, EventSet, Manager, ManagerOptions};
use serde_json::Value;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tally::Tally;

/// Runs the clients until the parent ends.
///
/// # Errors
/// When the loop cannot be made or fails, or the parent reads no more.
pub(super) fn run(transport: Transport, server: SocketAddr) -> Result<(), String> {
    raise_descriptor_limit();
    let crowd = Arc::new(Crowd::new(transport));
    let mut options = ManagerOptions::default();
    options.events = EVENTS;
    let of_events = Arc::clone(&crowd);
    let manager = Manager::with_options(options, move |conn, event| of_events.event(conn, &event));
    let mut manager = manager.map_err(|error| error.to_string())?;
    let (waker, of_orders) = (manager.waker(), Arc::clone(&crowd));
    let obey = move |line: &str| {
        of_orders.obey(line);
        // It fails only when the manager has ended, and with it this process.
        let _ = waker.wakeup();
    };
    obey_parent(obey).map_err(|error| error.to_string())?;
    let url = transport.url(server);
    loop {
        manager.poll(PATIENCE).map_err(|error| error.to_string())?;
        let (connects, told) = crowd.lock().turned(Instant::now());
        for _ in 0..connects {
            let connected = match transport {
                Transport::WebSocket => manager.ws_connect(&url),
                _ => manager.connect(&url),
            };
            connected.map_err(|error| error.to_string())?;
        }
        if !told.is_empty() {
            let mut out = io::stdout().lock();
            let written = out.write_all(told.as_bytes()).and_then(|()| out.flush());
            written.map_err(|error| error.to_string())?;
        }
    }
}

/// The clients, as the events of their connections and the orders of the parent change them.
struct Crowd {
    transport: Transport,
    tally: Mutex<Tally>,
}

impl Crowd {
    fn new(transport: Transport) -> Self {
        Self {
            transport,
            tally: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tally> {
        // A panic in a handler costs its connection alone.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn obey(&self, line: &str) {
        let order: Value = serde_json::from_str(line).unwrap_or_default();
        let mut tally = self.lock();
        if let Some(clients) = order["clients"].as_u64() {
            tally.want(usize::try_from(clients).unwrap_or(usize::MAX));
        }
        if let Some(value) = order["expect"].as_str() {
            tally.expect(value);
        }
        if let Some(value) = order["wave"].as_str() {
            tally.begin_wave(value, Instant::now());
        }
    }

    fn event(&self, conn: &mut Conn<'_>, event: &Event<'_>) {
        if matches!(event, Event::Open) {
            conn.set_user_data(Client::new(self.transport));
            return;
        }
        if matches!(event, Event::Close) {
            let has_value = conn
                .user_data::<Client>()
                .is_some_and(|client| client.has_value());
            self.lock().left(has_value, Instant::now());
            return;
        }
        let id = conn.id();
        let Some(client) = conn.user_data::<Client>() else {
            return;
        };
        let now_ns = monotonic_ns();
        let told = client.event(id, event, |joined, value| {
            self.lock().value(joined, value, now_ns)
        });
        let sent = match told {
            Ok(client::Next::Wait) => Ok(()),
            Ok(client::Next::Request(target)) => conn.request("GET", &target, &[], b""),
            Ok(client::Next::Send(bytes)) => conn.send(&bytes),
            Err(client::Refused) => {
                conn.abort();
                return;
            }
        };
        if sent.is_err() {
            conn.abort();
        }
    }
}

const EVENTS: EventSet = EventSet::NONE
    .with(EventKind::Open)
    .with(EventKind::Connect)
    .with(EventKind::Read)
    .with(EventKind::HttpMessage)
    .with(EventKind::WebSocketMessage)
    .with(EventKind::Close);

/// The longest time without a check for counts to report.
const PATIENCE: Duration = Duration::from_millis(100);
