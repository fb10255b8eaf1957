//! The state of one key on the tracking connection.

/// The registration of a key with the server, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// The server announces nothing of it.
    Unheld,
    /// So many reads are in progress; the last one's reply will be the newest value and a
    /// registration, unless it is dirty.
    Arming { reads: u32, is_dirty: bool },
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
    /// A read was executed: the reply has the value, or that the key has no value.
    Answered,
    /// A read was refused, and so registered nothing.
    Refused { is_of_waits: bool },
    /// As `Refused`, as every read is for now, or it has failed.
    Deferred,
    /// The server has announced a change, in the order in which it has executed commands.
    Invalidated,
    /// The server has announced a change at a time of its own: reads in progress may be older.
    Announced,
    /// The connection is gone, with every read in progress.
    Lost,
    /// A new connection: keys that are not registered are to be read.
    Touched,
}

impl Hold {
    /// The state after an event.
    ///
    /// | | sent | answered | refused | deferred | invalidated | announced | lost |
    /// |---|---|---|---|---|---|---|---|
    /// | unheld | arming 1 | | | | unheld | unheld | unheld |
    /// | arming 1 | arming 2 | armed | put off | unheld | arming 1 | dirty 1 | unheld |
    /// | arming n | arming n+1 | arming n-1 | (same) | (same) | arming n | dirty n | unheld |
    /// | dirty 1 | arming 2 | unheld | put off | unheld | dirty 1 | dirty 1 | unheld |
    /// | dirty n | arming n+1 | dirty n-1 | (same) | (same) | dirty n | dirty n | unheld |
    /// | armed | arming 1 | | | | unheld | unheld | unheld |
    /// | put off | arming 1 | | | | unheld | unheld | unheld |
    pub(crate) fn after(self, event: HoldEvent) -> Self {
        use HoldEvent::{Announced, Answered, Deferred, Invalidated, Lost, Refused, Sent, Touched};
        match (self, event) {
            (_, Lost)
            | (Self::Arming { reads: 1, .. }, Deferred)
            | (
                Self::Arming {
                    reads: 1,
                    is_dirty: true,
                },
                Answered,
            )
            | (Self::Unheld | Self::Armed | Self::PutOff, Invalidated | Announced) => Self::Unheld,
            // What is sent now is newer than all that was announced.
            (Self::Arming { reads, .. }, Sent) => Self::arming(reads + 1),
            (Self::Unheld | Self::Armed | Self::PutOff, Sent) => Self::arming(1),
            (Self::Arming { reads: 1, .. }, Answered) => Self::Armed,
            (Self::Arming { reads: 1, .. }, Refused { .. }) => Self::PutOff,
            (Self::Arming { reads, is_dirty }, Answered | Refused { .. } | Deferred) => {
                Self::Arming {
                    reads: reads - 1,
                    is_dirty,
                }
            }
            (Self::Arming { reads, .. }, Announced) => Self::Arming {
                reads,
                is_dirty: true,
            },
            // The reply under way is newer than the change. Only a read under way is answered.
            (Self::Arming { .. }, Invalidated)
            | (Self::Unheld | Self::Armed | Self::PutOff, Answered | Refused { .. } | Deferred)
            | (_, Touched) => self,
        }
    }

    fn arming(reads: u32) -> Self {
        Self::Arming {
            reads,
            is_dirty: false,
        }
    }

    /// Reads in progress.
    pub(crate) fn reads(self) -> u32 {
        match self {
            Self::Arming { reads, .. } => reads,
            Self::Unheld | Self::Armed | Self::PutOff => 0,
        }
    }

    /// Returns true if no read is in progress.
    pub(crate) fn is_idle(self) -> bool {
        self.reads() == 0
    }
}
