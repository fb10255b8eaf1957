//! The bounds that the process keeps to, and what clients have seen of them.

use crate::bounds::{self, Bounds, Excess, Refused};
use crate::keys::Broken;
use crate::options::Options;
use crate::reload;
use dwell_edge::process::{LoopLoad, Refusals};
use std::time::Duration;

/// The bounds of a run, which end before its calm phase.
pub(crate) struct Bounding {
    /// The bounds that the process keeps to now.
    bounds: Option<Bounds>,
    refused: Refused,
    excess: Excess,
    /// Until then a client may hear that a bound has struck it.
    refused_until: Duration,
}

impl Bounding {
    pub(crate) fn new(bounds: Option<Bounds>) -> Self {
        Self {
            bounds,
            refused: Refused::default(),
            excess: Excess::default(),
            refused_until: Duration::ZERO,
        }
    }

    /// The bounds that the process keeps to now.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        self.bounds
    }

    /// Ends the bounds, which clients may hear of until then; returns true if there were some.
    pub(crate) fn lift(&mut self, refused_until: Duration) -> bool {
        let had = self.bounds.take().is_some();
        if had {
            self.refused_until = refused_until;
        }
        had
    }

    /// Returns true if a client may hear that a bound has struck it.
    pub(crate) fn may_refuse(&self, now: Duration) -> bool {
        self.bounds.is_some() || now < self.refused_until
    }

    /// Takes in what clients hear of bounds, while they may.
    pub(crate) fn refused(&mut self, now: Duration) -> Option<&mut Refused> {
        self.may_refuse(now).then_some(&mut self.refused)
    }

    /// Checks that a loop has no more than its share of anything.
    pub(crate) fn check_load(
        &self,
        load: Option<LoopLoad>,
        options: &Options,
    ) -> Result<(), Broken> {
        load.map_or(Ok(()), bounds::check_http2)?;
        match (self.bounds, load) {
            (Some(bounds), Some(load)) => {
                bounds.check(load, options.loops, reload::app_servers(options))
            }
            _ => Ok(()),
        }
    }

    /// Takes in what is queued when no loop has anything to do; `clear` is the time, and the moment
    /// from which none was hindered.
    pub(crate) fn check_queued(
        &mut self,
        queued_bytes: usize,
        clear: (Duration, Duration),
    ) -> Result<(), Broken> {
        self.bounds.map_or(Ok(()), |bounds| {
            self.excess.check(queued_bytes, bounds.output_bytes, clear)
        })
    }

    /// Checks that the process has counted all that was refused.
    pub(crate) fn check_refusals(&self, counted: Refusals) -> Result<(), Broken> {
        self.refused.check(counted)
    }
}
