//! Connections that break TLS or leave in the middle of it, and what the server owes them.

use super::options::{BREACHES, Intrusion};
use super::{Side, Tls};
use crate::around::Around;
use crate::failure::Oracle;
use crate::keys::Broken;
use crate::patience::PROMPT;
use dwell_evloop::sim::SimStream;
use rustls::{AlertDescription, Error};
use std::time::Duration;

/// One of them.
pub(crate) struct Intruder {
    intrusion: Intrusion,
    stream: SimStream,
    tls: Tls,
    /// The bytes that have come, as they came or opened.
    input: Vec<u8>,
    began_at: Duration,
    /// The moment at which the server has accepted it at the latest: something may hinder that.
    accepted_by: Duration,
    /// The moment from which it waits for the end of its connection.
    acted_at: Option<Duration>,
    is_over: bool,
}

/// Time for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A request without its last two bytes. The application answers it, if it comes whole.
const REQUEST: &str = "POST /elsewhere?id=intruder HTTP/1.1\r\nHost: edge\r\nContent-Length: 0\r\n";
/// Bytes of a record with an alert that is not protected.
const ALERT_BYTES: usize = 7;
const PLAIN: &[u8] = b"GET /poll/k0 HTTP/1.1\r\nHost: edge\r\n\r\n";
/// A record of a handshake whose message is a server's.
const NONSENSE: &[u8] = &[22, 3, 1, 0, 4, 2, 0, 0, 0];

impl Intruder {
    pub(crate) fn new(intrusion: Intrusion, side: &Side, around: &Around<'_>) -> Self {
        let to = match intrusion {
            Intrusion::Elsewhere => around.edge,
            _ => side.at(),
        };
        let mut stream = around.network.connect(to);
        let flips_finished = intrusion == Intrusion::Finished;
        let mut tls = side.intrude(&stream, flips_finished);
        match intrusion {
            Intrusion::Silent | Intrusion::Plain | Intrusion::Nonsense => tls.pending.clear(),
            Intrusion::HalfHello => tls.pending.truncate(tls.pending.len() / 2),
            _ => {}
        }
        match intrusion {
            Intrusion::Plain => tls.pending.extend_from_slice(PLAIN),
            Intrusion::Nonsense => tls.pending.extend_from_slice(NONSENSE),
            _ => {}
        }
        tls.flush(&mut stream);
        let now = around.network.elapsed();
        Self {
            intrusion,
            stream,
            tls,
            input: Vec::new(),
            began_at: now,
            accepted_by: now,
            acted_at: None,
            is_over: false,
        }
    }

    /// Returns true if its connection has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Does what it has come for, and checks what it gets.
    pub(crate) fn attend(&mut self, around: &Around<'_>) -> Result<(), Broken> {
        let checked = self.go_on(around);
        checked.map_err(|(oracle, reason)| {
            let name = match self.intrusion {
                Intrusion::Breach(place) => BREACHES[place].0,
                _ => "",
            };
            let intrusion = self.intrusion;
            (oracle, format!("intruder, {intrusion:?} {name}: {reason}"))
        })
    }

    fn go_on(&mut self, around: &Around<'_>) -> Result<(), Broken> {
        let now = around.network.elapsed();
        if now <= self.accepted_by + PROMPT {
            self.accepted_by = self.accepted_by.max(around.hindered_until);
        }
        let is_open = self.read();
        self.act(now);
        if is_open {
            return self.check_patience(now, around);
        }
        self.is_over = true;
        if around.ending.ends {
            return Ok(());
        }
        self.check_end(now, around)
    }

    /// Reads what has come; returns false at the end of the connection.
    fn read(&mut self) -> bool {
        let tls = &mut self.tls;
        tls.flush(&mut self.stream);
        if !self.stream.is_readable() {
            return true;
        }
        match self.intrusion {
            // They do not read what comes as TLS.
            Intrusion::Silent
            | Intrusion::HalfHello
            | Intrusion::Hello
            | Intrusion::Plain
            | Intrusion::Elsewhere
            | Intrusion::Nonsense => self.stream.read_all(&mut self.input),
            _ => {
                let is_open = self.stream.read_all(&mut tls.received);
                tls.take_received(&mut self.stream, &mut self.input);
                is_open
            }
        }
    }

    fn act(&mut self, now: Duration) {
        if self.acted_at.is_some() {
            return;
        }
        let (tls, stream) = (&mut self.tls, &mut self.stream);
        let is_ready = !tls.is_shaking();
        match self.intrusion {
            Intrusion::Silent | Intrusion::HalfHello | Intrusion::Hello => return,
            Intrusion::Plain | Intrusion::Elsewhere | Intrusion::Nonsense => {}
            _ if !is_ready => return,
            Intrusion::Finished => {}
            intrusion => {
                tls.send(stream, |sealer, out| {
                    sealer.seal(super::DATA, REQUEST.as_bytes(), 0, out);
                });
                match intrusion {
                    Intrusion::Breach(place) => tls.send(stream, |sealer, out| {
                        BREACHES[place].2(sealer, out);
                        sealer.seal(super::DATA, b"\r\n", 0, out);
                    }),
                    Intrusion::Goodbye => tls.close_notify(stream),
                    Intrusion::Alert => tls.send(stream, |sealer, out| {
                        sealer.seal(super::ALERT, &[2, 80], 0, out);
                        sealer.seal(super::DATA, b"\r\n", 0, out);
                    }),
                    // A window has room for so little.
                    _ => drop(stream.shutdown_write()),
                }
            }
        }
        self.acted_at = Some(now);
    }

    fn check_patience(&self, now: Duration, around: &Around<'_>) -> Result<(), Broken> {
        let is_late = |end: Duration| now > end.max(around.hindered_until) + PROMPT;
        let (end, what) = match (self.intrusion, self.acted_at) {
            (_, Some(acted_at)) => (acted_at, "its connection does not end"),
            (Intrusion::Silent | Intrusion::HalfHello | Intrusion::Hello, None) => {
                (self.accepted_by + HANDSHAKE, "its handshake does not end")
            }
            (_, None) => (self.began_at, "its handshake does not go on"),
        };
        if is_late(end) {
            return Err((Oracle::Deadline, what.to_owned()));
        }
        Ok(())
    }

    /// Checks how its connection has ended.
    fn check_end(&mut self, now: Duration, around: &Around<'_>) -> Result<(), Broken> {
        let is_displaced = around.is_flooded();
        let app = around.app.map(std::cell::RefCell::borrow);
        if app.is_some_and(|app| app.has_come("intruder")) {
            let reason = "the application gets a request that was broken".to_owned();
            return Err((Oracle::Record, reason));
        }
        let wrong = |reason: String| Err((Oracle::Record, reason));
        let has = String::from_utf8_lossy(&self.input).into_owned();
        if around.refused.is_some() && has.is_empty() {
            // A bound may be why.
            return Ok(());
        }
        let fault = self.tls.fault.clone();
        match self.intrusion {
            Intrusion::Silent | Intrusion::HalfHello | Intrusion::Hello => {
                let is_early = now < self.began_at + HANDSHAKE;
                let may_give_way = is_displaced && self.intrusion == Intrusion::Hello;
                if is_early && !may_give_way && !around.may_end() {
                    return wrong("its handshake ends before its time".to_owned());
                }
                Ok(())
            }
            Intrusion::Plain if !has.starts_with("HTTP/1.1 400 ") => wrong(format!("gets {has:?}")),
            Intrusion::Elsewhere if !has.is_empty() => wrong(format!("gets {has:?}")),
            Intrusion::Nonsense => {
                // One that finds no room is cut.
                let is_cut = around.refuses_writes && self.input.len() < ALERT_BYTES;
                let is_alert = matches!(*self.input, [21, 3, _, 0, 2, 2, _]);
                if is_alert || is_cut {
                    return Ok(());
                }
                wrong(format!("gets {:?}", self.input))
            }
            Intrusion::Plain | Intrusion::Elsewhere => Ok(()),
            _ if self.tls.is_unconfirmed() && is_displaced => Ok(()),
            _ if !has.is_empty() => wrong(format!("gets {has:?}")),
            Intrusion::Breach(place) => check_alert(fault, BREACHES[place].1, around),
            Intrusion::Finished => check_alert(fault, 20, around),
            Intrusion::Cut | Intrusion::Goodbye | Intrusion::Alert => {
                let is_told = self.tls.has_ended();
                match fault {
                    Some(fault) => wrong(format!("gets {fault}")),
                    None if self.intrusion == Intrusion::Goodbye
                        && !is_told
                        && !around.refuses_writes =>
                    {
                        wrong("is not told of the end".to_owned())
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// Checks that the server has ended the connection by this alert. One that finds no room is not
/// sent.
fn check_alert(fault: Option<Error>, expected: u8, around: &Around<'_>) -> Result<(), Broken> {
    match fault {
        Some(Error::AlertReceived(alert)) if alert == AlertDescription::from(expected) => Ok(()),
        None if around.refuses_writes => Ok(()),
        fault => {
            let reason = format!("gets {fault:?} instead of the alert {expected}");
            Err((Oracle::Record, reason))
        }
    }
}
