//! The course of the demonstration: servers start, clients come, wait, and get a value.

use super::lane::{Fault, Lane};
use super::room::Granted;
use super::transport::Transport;
use super::wave::Wave;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Three lanes that go through the same phases.
#[derive(Debug)]
pub(super) struct Show {
    granted: Granted,
    lanes: Vec<Lane>,
    phase: Phase,
    began: Instant,
    /// Time from the first start until all clients waited.
    filled: Option<Duration>,
    /// Measurements since all clients wait, or since the last wave.
    rests: u32,
    returned: Option<Returned>,
    reloaded: Option<Reloaded>,
}

/// A reload of all servers.
#[derive(Debug)]
struct Reloaded {
    /// Time from the first signal until the log of the last server reported the end.
    after: Duration,
    /// Connections that have ended since, of all servers.
    lost: u64,
}

/// The return of the clients of a server that was killed.
#[derive(Debug)]
struct Returned {
    transport: Transport,
    /// Time from the end of the server until all waited again.
    after: Duration,
    missed: u64,
}

/// The phase of all lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Each server gets its first client.
    WarmUp,
    /// The others come.
    Filling,
    /// All wait; the lanes were measured at this time.
    Waiting(Instant),
    /// The clients of a server that was killed come back.
    Returning {
        lane: usize,
        /// Connections that have ended when all of them are lost.
        lost: u64,
        began: Instant,
    },
    /// The servers read their configuration again.
    Reloading {
        /// Connections that had ended before.
        lost: u64,
        began: Instant,
        /// Time until all have.
        after: Option<Duration>,
    },
    /// A value goes to one lane after the other.
    Setting {
        lane: usize,
        value: String,
        deadline: Instant,
    },
}

impl Show {
    /// Starts the servers and the processes of the clients.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn start(granted: Granted, value: &str) -> Result<Self, Fault> {
        let began = Instant::now();
        let start = |transport| Lane::start(transport, value);
        Ok(Self {
            lanes: Transport::ALL
                .into_iter()
                .map(start)
                .collect::<Result<_, _>>()?,
            granted,
            phase: Phase::WarmUp,
            began,
            filled: None,
            rests: 0,
            returned: None,
            reloaded: None,
        })
    }

    /// Goes on as far as the processes are.
    ///
    /// # Errors
    /// [`Fault`], after which it is of no more use.
    pub(super) fn step(&mut self, now: Instant) -> Result<(), Fault> {
        let mut ended = Vec::with_capacity(self.lanes.len());
        for lane in &mut self.lanes {
            ended.push(lane.step()?);
        }
        let clients = self.granted.clients;
        let have_all = |count: usize| self.lanes.iter().all(|lane| lane.waiting() >= count);
        match &mut self.phase {
            Phase::WarmUp if have_all(1) => {
                for lane in &mut self.lanes {
                    lane.fill(clients)?;
                }
                self.phase = Phase::Filling;
            }
            Phase::Filling if have_all(clients) => {
                self.filled.get_or_insert(now.duration_since(self.began));
                self.wait(now);
            }
            Phase::WarmUp | Phase::Filling => {
                if now.duration_since(self.began) > FILL_TIMEOUT {
                    return Err(self.late());
                }
            }
            Phase::Waiting(measured) => {
                if now.duration_since(*measured) >= SECOND {
                    self.wait(now);
                }
            }
            Phase::Returning { .. } => return self.step_return(now),
            Phase::Reloading { .. } => return self.step_reload(now),
            Phase::Setting {
                lane,
                value,
                deadline,
            } => {
                if ended.get(*lane) == Some(&true) {
                    *lane += 1;
                    *deadline = now + WAVE_TIMEOUT;
                    match self.lanes.get_mut(*lane) {
                        Some(next) => next.set(value)?,
                        None => self.phase = Phase::Waiting(now),
                    }
                } else if now > *deadline {
                    return Err(Fault::Late("a wave has not ended in time".to_owned()));
                }
            }
        }
        Ok(())
    }

    fn have_all(&self) -> bool {
        let clients = self.granted.clients;
        self.lanes.iter().all(|lane| lane.waiting() >= clients)
    }

    /// Goes on while the clients of a server that was killed come back.
    fn step_return(&mut self, now: Instant) -> Result<(), Fault> {
        let Phase::Returning { lane, lost, began } = self.phase else {
            return Ok(());
        };
        let after = now.duration_since(began);
        let Some(lane) = self.lanes.get(lane) else {
            return Ok(());
        };
        if lane.lost() >= lost && self.have_all() {
            self.returned = Some(Returned {
                transport: lane.transport(),
                after,
                missed: lane.missed(),
            });
            self.wait(now);
        } else if after > FILL_TIMEOUT {
            return Err(self.late());
        }
        Ok(())
    }

    /// Goes on while the servers read their configuration again.
    fn step_reload(&mut self, now: Instant) -> Result<(), Fault> {
        let (is_reloading, have_all) = (self.lanes.iter().any(Lane::is_reloading), self.have_all());
        let all: u64 = self.lanes.iter().map(Lane::lost).sum();
        let Phase::Reloading { lost, began, after } = &mut self.phase else {
            return Ok(());
        };
        let passed = now.duration_since(*began);
        if !is_reloading {
            after.get_or_insert(passed);
        }
        match *after {
            // A connection that the reload closes is lost by then.
            Some(after) if passed >= after + SECOND && have_all => {
                let lost = all.saturating_sub(*lost);
                self.reloaded = Some(Reloaded { after, lost });
                self.wait(now);
            }
            _ if passed > RELOAD_TIMEOUT => {
                let seconds = RELOAD_TIMEOUT.as_secs();
                let missing = if is_reloading {
                    "a server has not read its configuration again"
                } else {
                    "clients have not come back after a reload"
                };
                return Err(Fault::Late(format!("after {seconds} s {missing}")));
            }
            _ => {}
        }
        Ok(())
    }

    /// Measures all lanes.
    fn wait(&mut self, now: Instant) {
        for lane in &mut self.lanes {
            lane.measure(now);
        }
        self.rests = self.rests.saturating_add(1);
        self.phase = Phase::Waiting(now);
    }

    fn late(&self) -> Fault {
        let waiting: Vec<_> = self.lanes.iter().map(Lane::waiting).collect();
        Fault::Late(format!(
            "after {} s only {waiting:?} of {} clients wait",
            FILL_TIMEOUT.as_secs(),
            self.granted.clients
        ))
    }

    /// Sets the key to `value`; false unless all clients wait.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn set(&mut self, value: &str, now: Instant) -> Result<bool, Fault> {
        let (Phase::Waiting(_), Some(first)) = (&self.phase, self.lanes.first_mut()) else {
            return Ok(false);
        };
        first.set(value)?;
        self.rests = 0;
        self.phase = Phase::Setting {
            lane: 0,
            value: value.to_owned(),
            deadline: now + WAVE_TIMEOUT,
        };
        Ok(true)
    }

    /// Kills the server of a transport and starts another one, whose key has `value`, if all
    /// clients wait.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn kill(&mut self, transport: Transport, value: &str) -> Result<(), Fault> {
        let mut lanes = self.lanes.iter_mut().enumerate();
        let named = lanes.find(|(_, lane)| lane.transport() == transport);
        let (Phase::Waiting(_), Some((index, lane))) = (&self.phase, named) else {
            return Ok(());
        };
        let began = Instant::now();
        let lost = lane.lost() + lane.waiting() as u64;
        lane.restart(value)?;
        self.rests = 0;
        (self.returned, self.reloaded) = (None, None);
        self.phase = Phase::Returning {
            lane: index,
            lost,
            began,
        };
        Ok(())
    }

    /// Has all servers read their configuration again, if all clients wait.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn reload(&mut self) -> Result<(), Fault> {
        if !self.is_waiting() {
            return Ok(());
        }
        let (lost, began) = (self.lanes.iter().map(Lane::lost).sum(), Instant::now());
        for lane in &mut self.lanes {
            lane.reload()?;
        }
        self.rests = 0;
        (self.returned, self.reloaded) = (None, None);
        self.phase = Phase::Reloading {
            lost,
            began,
            after: None,
        };
        Ok(())
    }

    /// Returns true if all clients wait, and no wave is in progress.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_))
    }

    /// Returns true if no wave is in progress, and all clients have waited for two seconds.
    pub(super) fn has_rested(&self) -> bool {
        self.is_waiting() && self.rests >= 3
    }

    /// Returns true if all clients wait, and a wave has ended in every lane.
    pub(super) fn has_ended(&self) -> bool {
        self.is_waiting() && self.lanes.iter().all(|lane| lane.wave().is_some())
    }

    /// Returns true if every client of every lane got the last value.
    pub(super) fn is_complete(&self) -> bool {
        // A client that was lost before the wave has not got the value either.
        let is_all = |wave: &Wave| wave.is_complete() && wave.expected >= self.granted.clients;
        let is_complete = |lane: &Lane| lane.wave().is_some_and(is_all);
        self.lanes.iter().all(is_complete)
    }

    /// The figures as JSON.
    pub(super) fn document(&self) -> Value {
        let lanes: Vec<_> = self.lanes.iter().map(Lane::document).collect();
        let phase = match self.phase {
            Phase::WarmUp | Phase::Filling => "connecting",
            Phase::Waiting(_) => "waiting",
            Phase::Returning { .. } => "returning",
            Phase::Reloading { .. } => "reloading",
            Phase::Setting { .. } => "wave",
        };
        let returned = self.returned.as_ref().map(|returned| {
            json!({
                "transport": returned.transport.name(),
                "clients": self.granted.clients,
                "seconds": seconds(returned.after),
                "missed": returned.missed,
            })
        });
        let mut document = json!({
            "phase": phase,
            "clients": self.granted.clients,
            "limit": self.granted.limit,
            "fill_seconds": self.filled.map(seconds),
            "returned": returned,
            "transports": lanes,
        });
        if let Some(reloaded) = &self.reloaded {
            document["reloaded"] = json!({
                "seconds": seconds(reloaded.after),
                "waiting": self.lanes.iter().map(Lane::waiting).sum::<usize>(),
                "lost": reloaded.lost,
            });
        }
        document
    }
}

/// Seconds in whole milliseconds.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

const SECOND: Duration = Duration::from_secs(1);

/// Time until all clients wait.
const FILL_TIMEOUT: Duration = Duration::from_secs(120);

/// Time until all servers have read their configuration again, and all clients wait.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the wave of one lane, above that of the clients' process.
const WAVE_TIMEOUT: Duration = Duration::from_secs(15);
