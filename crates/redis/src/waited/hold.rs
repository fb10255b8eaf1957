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
    /// | | sent | answered | refused | invalidated | lost |
    /// |---|---|---|---|---|---|
    /// | unheld | arming 1 | | | unheld | unheld |
    /// | arming 1 | arming 2 | armed | unheld | arming 1 | unheld |
    /// | arming n | arming n+1 | arming n-1 | arming n-1 | arming n | unheld |
    /// | armed | arming 1 | | | unheld | unheld |
    pub(crate) fn after(self, event: HoldEvent) -> Self {
        match (self, event) {
            (_, HoldEvent::Lost)
            | (Self::Arming { reads: 1 }, HoldEvent::Refused)
            | (Self::Unheld | Self::Armed, HoldEvent::Invalidated) => Self::Unheld,
            (Self::Arming { reads }, HoldEvent::Sent) => Self::Arming { reads: reads + 1 },
            (Self::Unheld | Self::Armed, HoldEvent::Sent) => Self::Arming { reads: 1 },
            (Self::Arming { reads: 1 }, HoldEvent::Answered) => Self::Armed,
            (Self::Arming { reads }, HoldEvent::Answered | HoldEvent::Refused) => {
                Self::Arming { reads: reads - 1 }
            }
            // The reply under way is newer than the change. Only a read under way is answered.
            (Self::Arming { .. }, HoldEvent::Invalidated)
            | (Self::Unheld | Self::Armed, HoldEvent::Answered | HoldEvent::Refused)
            | (_, HoldEvent::Touched) => self,
        }
    }

    /// Returns true if no read is under way.
    pub(crate) fn is_idle(self) -> bool {
        !matches!(self, Self::Arming { .. })
    }
}
