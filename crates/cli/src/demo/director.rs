//! The thread beside the page: it starts and stops the clients, and sets their key when the page's
//! key changes.
//!
//! The page reads the figures as it reads any value: the thread stores them under [`FIGURES_KEY`].

use super::gate::{Action, Gate, Occupation, Refusal};
use super::lane::Fault;
use super::room::Room;
use super::show::Show;
use super::transport::KEY;
use dwell_memcache::{Client, StoreOptions};
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The key of the figures in the page's store.
pub(super) const FIGURES_KEY: &str = "/poll/demo-clients";

/// Orders to the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The store of the page listens there.
    Store(SocketAddr),
    /// An action that the gate has admitted.
    Act(Action),
    /// The page's key may have changed.
    Look,
}

/// The way to the thread.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    orders: SyncSender<Order>,
    gate: Arc<Gate>,
}

impl Orders {
    /// Names the store of the page; the first name counts.
    pub(super) fn store(&self, store: SocketAddr) {
        // Beside it only looks and actions are sent, which come later.
        let _ = self.orders.try_send(Order::Store(store));
    }

    /// Has the thread read the page's key.
    pub(super) fn look(&self) {
        // If the queue is full, another order is about to make the thread look.
        let _ = self.orders.try_send(Order::Look);
    }

    /// Has an action carried out.
    ///
    /// # Errors
    /// [`Refusal`]; nothing happens then.
    pub(super) fn act(&self, action: Action) -> Result<(), Refusal> {
        self.gate.admit(action)?;
        self.orders.try_send(Order::Act(action)).map_err(|_| {
            self.gate.withdraw();
            Refusal::Unavailable
        })
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
    let gate = Arc::new(Gate::default());
    let stage = Stage::new(clients, Arc::clone(&gate));
    let thread = thread::Builder::new().name("demo".to_owned());
    thread.spawn(move || direct(&orders, stage))?;
    Ok(Orders {
        orders: order_to,
        gate,
    })
}

/// The way to a thread that is at this and does nothing, and what it gets.
#[cfg(test)]
pub(super) fn idle(occupation: Occupation) -> (Orders, Receiver<Order>) {
    let (order_to, sent) = sync_channel(1);
    let orders = Orders {
        orders: order_to,
        gate: Arc::default(),
    };
    orders.gate.occupy(occupation);
    (orders, sent)
}

/// The action that a thread would take next.
#[cfg(test)]
pub(super) fn next_action(sent: &Receiver<Order>) -> Option<Action> {
    match sent.try_recv() {
        Ok(Order::Act(action)) => Some(action),
        _ => None,
    }
}

fn direct(orders: &Receiver<Order>, mut stage: Stage) {
    loop {
        stage.step(Instant::now());
        match orders.recv_timeout(stage.patience()) {
            Ok(Order::Store(store)) => stage.open(store),
            Ok(Order::Act(action)) => stage.act(action),
            Ok(Order::Look) => stage.looked = None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The clients, and the reports about them to the page.
#[derive(Debug)]
struct Stage {
    gate: Arc<Gate>,
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
    fn new(wanted: usize, gate: Arc<Gate>) -> Self {
        Self {
            gate,
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

    fn occupation(&self) -> Occupation {
        match (&self.store, &self.show) {
            (Some(_), None) => Occupation::Idle,
            (Some(_), Some(show)) if show.is_waiting() => Occupation::Waiting,
            // Without the store they are about to be started.
            (None, _) | (Some(_), Some(_)) => Occupation::Busy,
        }
    }

    fn open(&mut self, store: SocketAddr) {
        if self.store.is_none() {
            self.store = Client::for_servers(&[&store.to_string()]).ok();
            self.want(self.wanted);
        }
    }

    fn act(&mut self, action: Action) {
        self.gate.begin();
        let acted = match (action, &mut self.show) {
            (Action::Clients(clients), _) => {
                self.want(clients);
                return;
            }
            // A server has failed meanwhile, and the page shows that.
            (_, None) => return,
            (Action::Kill(transport), Some(show)) => show.kill(transport, &self.value),
            (Action::Reload, Some(show)) => show.reload(),
        };
        if let Err(fault) = acted {
            self.failed(&fault);
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
        // A page that reads that all wait can order the next action.
        self.gate.occupy(self.occupation());
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
        if value == self.value || !self.gate.begin_wave() {
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
    use crate::demo::transport::Transport;

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
        let (way, orders) = idle(Occupation::Waiting);
        assert_eq!(way.act(Action::Clients(5)), Ok(()));
        // The order before it makes the thread look.
        way.look();
        assert_eq!(way.act(Action::Reload), Err(Refusal::Busy));
        let end = Action::Clients(0);
        assert_eq!(way.act(end), Err(Refusal::Unavailable), "the queue is full");
        let sent: Vec<_> = orders.try_iter().collect();
        assert_eq!(sent, [Order::Act(Action::Clients(5))]);
        way.gate.begin();
        way.gate.occupy(Occupation::Waiting);
        assert_eq!(way.act(Action::Reload), Ok(()), "none is left over");
        drop(orders);
        assert_eq!(way.act(end), Err(Refusal::Unavailable));
    }

    #[test]
    fn without_clients_the_page_is_told_why() {
        let mut stage = Stage::new(0, Arc::default());
        assert_eq!(stage.document(), json!({"phase": "stopped"}));
        stage.fault = Some("a reason".to_owned());
        assert_eq!(
            stage.document(),
            json!({"phase": "failed", "error": "a reason"})
        );
        stage.act(Action::Kill(Transport::WebSocket));
        assert!(stage.fault.is_some(), "there is no server");
        stage.act(Action::Clients(0));
        assert_eq!(stage.document(), json!({"phase": "stopped"}));
    }
}
