//! Connections of a run that break TLS, those in progress and those to come.

use crate::keys::Broken;
use crate::tls::{Intruder, Intrusion, TlsFault};
use std::time::Duration;

/// The intruders of a run.
#[derive(Default)]
pub(crate) struct Intrusions {
    intruders: Vec<Intruder>,
    /// Intrusions that are to begin.
    to_begin: Vec<Intrusion>,
    flooded_until: Duration,
}

/// The time for which handshakes may give way after a flood: its own ones have ended by then.
const FLOODED: Duration = Duration::from_secs(13);

impl Intrusions {
    /// Has so many connections come that break TLS in this way.
    pub(crate) fn add(
        &mut self,
        fault: TlsFault,
        intrusion: Intrusion,
        count: usize,
        now: Duration,
    ) {
        if fault == TlsFault::Flood {
            self.flooded_until = now + FLOODED;
        }
        self.to_begin.extend(std::iter::repeat_n(intrusion, count));
    }

    /// The moment from which no handshake gives way to those of a flood.
    pub(crate) fn flooded_until(&self) -> Duration {
        self.flooded_until
    }

    /// Returns true if none is in progress.
    pub(crate) fn is_empty(&self) -> bool {
        self.intruders.is_empty()
    }

    /// Ends those in progress, as the process they are connected to has ended.
    pub(crate) fn cut(&mut self) {
        self.intruders.clear();
    }

    /// Begins those to come by `begin`, and has all do what they can by `attend`.
    pub(crate) fn attend(
        &mut self,
        begin: impl FnMut(Intrusion) -> Intruder,
        mut attend: impl FnMut(&mut Intruder) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        self.intruders.extend(self.to_begin.drain(..).map(begin));
        for intruder in &mut self.intruders {
            attend(intruder)?;
        }
        self.intruders.retain(|intruder| !intruder.is_over());
        Ok(())
    }
}
