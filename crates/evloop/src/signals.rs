//! Signals delivered through the loop, so that they end its wait at once.

use crate::Token;
use mio::net::UnixStream;
use mio::{Interest, Registry};
use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};
use std::io::{self, Read};
use std::os::unix::net;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One pipe per watched signal, and per interrupter; the handler writes a byte, the loop reads it.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    watches: Vec<Watch>,
    /// The other ends of the sockets of [`interrupter`](Self::interrupter).
    interrupts: Vec<UnixStream>,
}

#[derive(Debug)]
struct Watch {
    signal: i32,
    pipe: UnixStream,
    registration: SigId,
}

impl Signals {
    pub(crate) fn watch(&mut self, registry: &Registry, signal: i32) -> io::Result<()> {
        let (read, write) = pair(registry)?;
        count_watch(signal)?;
        match pipe::register(signal, write) {
            Ok(registration) => {
                self.watches.push(Watch {
                    signal,
                    pipe: read,
                    registration,
                });
                Ok(())
            }
            Err(error) => {
                discount_watch(signal);
                Err(error)
            }
        }
    }

    /// Returns a socket whose bytes wake the loop up.
    pub(crate) fn interrupter(&mut self, registry: &Registry) -> io::Result<net::UnixStream> {
        let (read, write) = pair(registry)?;
        self.interrupts.push(read);
        Ok(write)
    }

    /// Ends every watch. A signal without a watch has its default action again.
    pub(crate) fn unwatch_all(&mut self) {
        for watch in self.watches.drain(..) {
            unregister(watch.registration);
            discount_watch(watch.signal);
        }
    }

    /// The signals that came since the last call; several of one kind count once.
    pub(crate) fn take(&mut self) -> Vec<i32> {
        for pipe in &mut self.interrupts {
            drain(pipe);
        }
        let mut seen = Vec::new();
        for watch in &mut self.watches {
            if drain(&mut watch.pipe) {
                seen.push(watch.signal);
            }
        }
        seen
    }
}

/// Both ends of what a handler writes to; the loop's is registered.
fn pair(registry: &Registry) -> io::Result<(UnixStream, net::UnixStream)> {
    let (read, write) = net::UnixStream::pair()?;
    read.set_nonblocking(true)?;
    write.set_nonblocking(true)?;
    let mut read = UnixStream::from_std(read);
    registry.register(&mut read, Token::SIGNAL.into(), Interest::READABLE)?;
    Ok((read, write))
}

/// Throws away all received bytes; returns true if there were any.
fn drain(pipe: &mut UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut came = false;
    while matches!(pipe.read(&mut bytes), Ok(read) if read > 0) {
        came = true;
    }
    came
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.unwatch_all();
    }
}

/// The watches of a signal, in all loops of the process.
struct Watched {
    signal: i32,
    watches: usize,
    /// Read by the process's signal handler: true if there is no watch, so that the default action
    /// is due.
    is_default: Arc<AtomicBool>,
    /// The process caught or ignored it before it was ever watched here. That stays as it is: a
    /// former handler is called in any case.
    was_handled: bool,
}

/// A signal handler stays installed after its last watch, so what it does then is kept here. One
/// entry for each signal that was ever watched.
static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

fn count_watch(signal: i32) -> io::Result<()> {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(entry) = watched.iter_mut().find(|entry| entry.signal == signal) {
        entry.watches += 1;
        entry.is_default.store(false, Ordering::SeqCst);
        return Ok(());
    }
    let was_handled = is_handled(signal);
    let is_default = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_default))?;
    watched.push(Watched {
        signal,
        watches: 1,
        is_default,
        was_handled,
    });
    Ok(())
}

fn discount_watch(signal: i32) {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(entry) = watched.iter_mut().find(|entry| entry.signal == signal) {
        entry.watches -= 1;
        let is_default = entry.watches == 0 && !entry.was_handled;
        entry.is_default.store(is_default, Ordering::SeqCst);
    }
}

/// Returns true if the process catches or ignores a signal, where the system shows it: Linux does.
fn is_handled(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bit = u32::try_from(signal - 1).unwrap_or(u32::MAX);
    ["SigCgt:", "SigIgn:"].iter().any(|name| {
        let mut lines = status.lines();
        lines
            .find_map(|line| line.strip_prefix(name))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .and_then(|mask| mask.checked_shr(bit))
            .is_some_and(|mask| mask & 1 == 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::{SIGURG, SIGWINCH};

    /// Returns true if the default action of `signal` is due; `None` if it was never watched.
    fn is_default(signal: i32) -> Option<bool> {
        let watched = WATCHED.lock().unwrap();
        let entry = watched.iter().find(|entry| entry.signal == signal)?;
        Some(entry.is_default.load(Ordering::SeqCst))
    }

    #[test]
    fn a_handler_of_the_process_own_stays() {
        let poll = mio::Poll::new().unwrap();
        signal_hook::flag::register(SIGURG, Arc::default()).unwrap();
        let mut signals = Signals::default();
        signals.watch(poll.registry(), SIGURG).unwrap();
        signals.unwatch_all();
        assert_eq!(is_default(SIGURG), Some(false));
    }

    #[test]
    fn the_default_action_returns_with_the_end_of_the_last_watch() {
        let poll = mio::Poll::new().unwrap();
        assert_eq!(is_default(SIGWINCH), None);
        let (mut first, mut second) = (Signals::default(), Signals::default());
        first.watch(poll.registry(), SIGWINCH).unwrap();
        second.watch(poll.registry(), SIGWINCH).unwrap();
        first.unwatch_all();
        assert_eq!(is_default(SIGWINCH), Some(false));
        drop(second);
        assert_eq!(is_default(SIGWINCH), Some(true));
        first.watch(poll.registry(), SIGWINCH).unwrap();
        assert_eq!(is_default(SIGWINCH), Some(false));
    }
}
