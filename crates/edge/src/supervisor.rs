//! What the first loop does beside serving: it hears the signals.

use crate::driver::Message;
use crate::reload::Reloader;
use dwell_evloop::EventLoop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;

/// Belongs to the first loop.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// Absent where the configuration has no file.
    pub(crate) reloader: Option<Arc<Reloader>>,
}

impl Supervisor {
    /// Does what a signal asks for; false where it asks for the end.
    pub(crate) fn heard(&self, signal: i32) -> bool {
        match (signal, &self.reloader) {
            (SIGHUP, Some(reloader)) => {
                reloader.ask(|| {});
                true
            }
            _ => false,
        }
    }
}

/// Has the first loop hear the signals that mean something.
pub(crate) fn watch_signals(
    event_loop: &mut EventLoop<Message>,
    can_reload: bool,
) -> io::Result<()> {
    for signal in [SIGTERM, SIGINT] {
        event_loop.watch_signal(signal)?;
    }
    // Where nothing can be read anew it ends the process, as when a terminal is closed.
    if can_reload {
        event_loop.watch_signal(SIGHUP)?;
    }
    Ok(())
}
