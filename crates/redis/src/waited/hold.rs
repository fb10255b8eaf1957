//! The state of one key on the tracking connection.

/// The registration of a key with the server, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// The server announces nothing of it.
    Unheld,
    /// So many reads are under way; the last one's reply will be the newest value and a
    /// registration.
    Arming { reads: u32 },
    /// The server announces its next change, or has done so and the announcement is on its way.
    Armed,
    /// The server has refused to read it: it is read again later.
    PutOff,
}

/// An event of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HoldEvent {
    /// A read goes out.
    Sent,
    /// A read was executed: the reply has the value, or that there is none.
    Answered,
    /// A read was refused, and so registered nothing.
    Refused,
    /// As `Refused`, as every read is for now.
    Deferred,
    /// The server has announced a change.
    Invalidated,
    /// The connection is gone, with every read under way.
    Lost,
    /// A new connection: keys that are not registered are to be read.
    Touched,
}

impl Hold {
    /// The state after an event.
    ///
    /// | | sent | answered | refused | deferred | invalidated | lost |
    /// |---|---|---|---|---|---|---|
    /// | unheld | arming 1 | | | | unheld | unheld |
    /// | arming 1 | arming 2 | armed | put off | unheld | arming 1 | unheld |
    /// | arming n | arming n+1 | arming n-1 | arming n-1 | arming n-1 | arming n | unheld |
    /// | armed | arming 1 | | | | unheld | unheld |
    /// | put off | arming 1 | | | | unheld | unheld |
    pub(crate) fn after(self, event: HoldEvent) -> Self {
        use HoldEvent::{Answered, Deferred, Invalidated, Lost, Refused, Sent, Touched};
        match (self, event) {
            (_, Lost)
            | (Self::Arming { reads: 1 }, Deferred)
            | (Self::Unheld | Self::Armed | Self::PutOff, Invalidated) => Self::Unheld,
            (Self::Arming { reads }, Sent) => Self::Arming { reads: reads + 1 },
            (Self::Unheld | Self::Armed | Self::PutOff, Sent) => Self::Arming { reads: 1 },
            (Self::Arming { reads: 1 }, Answered) => Self::Armed,
            (Self::Arming { reads: 1 }, Refused) => Self::PutOff,
            (Self::Arming { reads }, Answered | Refused | Deferred) => {
                Self::Arming { reads: reads - 1 }
            }
            // The reply under way is newer than the change. Only a read under way is answered.
            (Self::Arming { .. }, Invalidated)
            | (Self::Unheld | Self::Armed | Self::PutOff, Answered | Refused | Deferred)
            | (_, Touched) => self,
        }
    }

    /// Reads under way.
    pub(crate) fn reads(self) -> u32 {
        match self {
            Self::Arming { reads } => reads,
            Self::Unheld | Self::Armed | Self::PutOff => 0,
        }
    }

    /// Returns true if no read is under way.
    pub(crate) fn is_idle(self) -> bool {
        self.reads() == 0
    }
}
