//! The thread beside the page: it starts and stops the clients, and sets their key when the page's
//! key changes.
//!
//! The page reads the figures as it reads any value: the thread stores them under [`FIGURES_KEY`].

use super::lane::Fault;
use super::room::Room;
use super::show::Show;
use super::transport::{KEY, Transport};
use dwell_memcache::{Client, StoreOptions};
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The key of the figures in the page's store.
pub(super) const FIGURES_KEY: &str = "/poll/demo-clients";

/// Orders to the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The store of the page listens there.
    Store(SocketAddr),
    /// So many clients of each transport are wanted; 0 ends them.
    Clients(usize),
    /// The server of a transport is to be killed and started again.
    Kill(Transport),
    /// The page's key may have changed.
    Look,
}

/// The way to the thread.
#[derive(Clone, Debug)]
pub(super) struct Orders(SyncSender<Order>);

impl Orders {
    /// Sends an order; false if too many wait or the thread has ended.
    pub(super) fn send(&self, order: Order) -> bool {
        match self.0.try_send(order) {
            Ok(()) => true,
            // Another order is about to make the thread look.
            Err(TrySendError::Full(order)) => order == Order::Look,
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// Starts the thread, which starts the clients as soon as it knows the page's store.
///
/// Shape: its processes end with this one.
///
/// # Errors
/// When the system has no thread left.
pub(super) fn start(clients: usize) -> io::Result<Orders> {
    let (order_to, orders) = sync_channel(ORDERS_MAX);
    let thread = thread::Builder::new().name("demo".to_owned());
    thread.spawn(move || direct(&orders, clients))?;
    Ok(Orders(order_to))
}

fn direct(orders: &Receiver<Order>, clients: usize) {
    let mut stage = Stage::new(clients);
    loop {
        let now = Instant::now();
        stage.step(now);
        match orders.recv_timeout(stage.patience()) {
            Ok(Order::Store(store)) => stage.open(store),
            Ok(Order::Clients(clients)) => stage.want(newest(orders, clients)),
            Ok(Order::Kill(transport)) => stage.kill(transport),
            Ok(Order::Look) => stage.looked = None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The number of the last order that waits, where there are several: each takes seconds.
fn newest(orders: &Receiver<Order>, clients: usize) -> usize {
    let numbers = orders.try_iter().filter_map(|order| match order {
        Order::Clients(clients) => Some(clients),
        // The address is known by now, the servers are started anyhow, and the key is read soon.
        Order::Store(_) | Order::Kill(_) | Order::Look => None,
    });
    numbers.last().unwrap_or(clients)
}

/// The clients, and the reports about them to the page.
#[derive(Debug)]
struct Stage {
    store: Option<Client>,
    wanted: usize,
    show: Option<Show>,
    fault: Option<String>,
    /// The value that the clients have.
    value: String,
    /// The last time that the page's key was read.
    looked: Option<Instant>,
    told: Option<(Instant, String)>,
    is_full: bool,
}

impl Stage {
    fn new(wanted: usize) -> Self {
        Self {
            store: None,
            wanted,
            show: None,
            fault: None,
            value: FIRST_VALUE.to_owned(),
            looked: None,
            told: None,
            is_full: false,
        }
    }

    fn patience(&self) -> Duration {
        match &self.show {
            Some(show) if !show.is_waiting() => STEP,
            _ => LOOK_INTERVAL,
        }
    }

    fn open(&mut self, store: SocketAddr) {
        if self.store.is_none() {
            self.store = Client::for_servers(&[&store.to_string()]).ok();
            self.want(self.wanted);
        }
    }

    /// Ends the clients there are, and starts so many.
    fn want(&mut self, clients: usize) {
        self.wanted = clients;
        self.show = None;
        self.fault = None;
        self.is_full = false;
        if clients == 0 {
            return;
        }
        let granted = Room::measure().grant(clients);
        if granted.clients == 0 {
            self.fault = granted.limit;
            return;
        }
        match Show::start(granted, &self.value) {
            Ok(show) => self.show = Some(show),
            Err(fault) => self.failed(&fault),
        }
    }

    /// Kills a server and starts it again; nothing unless all clients wait.
    fn kill(&mut self, transport: Transport) {
        if let Some(show) = &mut self.show
            && let Err(fault) = show.kill(transport, &self.value)
        {
            self.failed(&fault);
        }
    }

    fn failed(&mut self, fault: &Fault) {
        tracing::error!("{fault}");
        self.show = None;
        self.fault = Some(fault.to_string());
    }

    fn step(&mut self, now: Instant) {
        if let Some(show) = &mut self.show
            && let Err(fault) = show.step(now)
        {
            self.failed(&fault);
        }
        if self.show.as_ref().is_some_and(Show::is_waiting) && !self.is_full {
            self.is_full = true;
            tracing::info!("all clients wait");
        }
        self.look(now);
        self.tell(now);
    }

    /// Sets the clients' key if the page's has another value.
    fn look(&mut self, now: Instant) {
        let is_soon = self.looked.is_some_and(|at| now < at + LOOK_INTERVAL);
        let (Some(store), Some(show)) = (&self.store, &mut self.show) else {
            return;
        };
        if is_soon || !show.is_waiting() {
            return;
        }
        self.looked = Some(now);
        // Without an answer the next look finds the value.
        let Ok(Some(found)) = store.get(KEY) else {
            return;
        };
        let value = as_text(&found.data);
        if value == self.value {
            return;
        }
        match show.set(&value, now) {
            Ok(true) => self.value = value,
            Ok(false) => {}
            Err(fault) => self.failed(&fault),
        }
    }

    /// Stores the figures if they have changed, not too often.
    fn tell(&mut self, now: Instant) {
        let is_soon = (self.told.as_ref()).is_some_and(|(at, _)| now < *at + TELL_INTERVAL);
        let Some(store) = self.store.as_ref().filter(|_| !is_soon) else {
            return;
        };
        let text = self.document().to_string();
        if self.told.as_ref().is_some_and(|(_, told)| *told == text) {
            return;
        }
        let stored = store.set(FIGURES_KEY, text.as_str(), StoreOptions::default());
        // The figures come again with the next change.
        if let Err(error) = stored {
            tracing::debug!(%error, "the figures are not stored");
        }
        self.told = Some((now, text));
    }

    fn document(&self) -> Value {
        match (&self.show, &self.fault) {
            (Some(show), _) => show.document(),
            (None, Some(fault)) => json!({"phase": "failed", "error": fault}),
            (None, None) => json!({"phase": "stopped"}),
        }
    }
}

/// A value as each transport transfers it: text, with line feeds at the ends of lines.
fn as_text(value: &[u8]) -> String {
    let cut = &value[..value.len().min(VALUE_BYTES_MAX)];
    let text = String::from_utf8_lossy(cut);
    text.replace("\r\n", "\n").replace('\r', "\n")
}

const FIRST_VALUE: &str = "waiting";

/// Bytes of a value that are set for all clients.
const VALUE_BYTES_MAX: usize = 4096;

/// Orders that wait.
const ORDERS_MAX: usize = 16;

const STEP: Duration = Duration::from_millis(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const TELL_INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_same_by_each_transport() {
        for (value, text) in [
            (&b"hello"[..], "hello"),
            (b"a\r\nb\rc\n", "a\nb\nc\n"),
            (b"\xff", "\u{fffd}"),
            (b"", ""),
        ] {
            assert_eq!(as_text(value), text);
        }
        assert_eq!(
            as_text("x".repeat(100_000).as_bytes()).len(),
            VALUE_BYTES_MAX
        );
    }

    #[test]
    fn orders_have_a_bound_but_a_look_is_never_missed() {
        let (order_to, orders) = sync_channel(1);
        let way = Orders(order_to);
        assert!(way.send(Order::Clients(5)));
        assert!(
            way.send(Order::Look),
            "the order before it makes the thread look"
        );
        assert!(!way.send(Order::Clients(0)));
        drop(orders);
        assert!(!way.send(Order::Look));
    }

    #[test]
    fn without_clients_the_page_is_told_why() {
        let mut stage = Stage::new(0);
        assert_eq!(stage.document(), json!({"phase": "stopped"}));
        stage.fault = Some("a reason".to_owned());
        assert_eq!(
            stage.document(),
            json!({"phase": "failed", "error": "a reason"})
        );
        stage.want(0);
        assert_eq!(stage.document(), json!({"phase": "stopped"}));
    }
}
