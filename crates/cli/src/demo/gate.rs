//! The actions of the page, of which one is in progress at a time.

use super::transport::Transport;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An action that the page asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// So many clients of each transport are to wait, or as many as the machine has room for if
    /// that is less. 0 ends those that are there.
    Clients(usize),
    /// The server of a transport is to be killed and started again.
    Kill(Transport),
    /// All servers are to read their configuration again.
    Reload,
}

/// The present work of the thread that carries out the actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Occupation {
    /// It starts clients, carries out another action, or sets their key.
    #[default]
    Busy,
    /// It has no clients.
    Idle,
    /// All clients wait.
    Waiting,
}

/// Reason why an action is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another action is in progress, or a value is on its way to the clients.
    Busy,
    /// The action needs clients, and all have ended.
    NoClients,
    /// The thread has ended, or too many orders wait.
    Unavailable,
}

/// Admits actions one after the other: an action that is admitted is carried out.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    occupation: Occupation,
    /// Actions that were admitted and are not taken yet.
    ordered: usize,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits `action`, if it is possible now. To end the clients is always possible.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn admit(&self, action: Action) -> Result<(), Refusal> {
        let mut state = self.lock();
        match (action, state.occupation) {
            (Action::Clients(0), _) => {}
            (_, Occupation::Busy) => return Err(Refusal::Busy),
            _ if state.ordered > 0 => return Err(Refusal::Busy),
            (Action::Kill(_) | Action::Reload, Occupation::Idle) => return Err(Refusal::NoClients),
            _ => {}
        }
        state.ordered += 1;
        Ok(())
    }

    /// Takes back an action that was admitted and cannot be sent.
    pub(super) fn withdraw(&self) {
        let mut state = self.lock();
        state.ordered = state.ordered.saturating_sub(1);
    }

    /// Begins an action that was admitted.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        state.ordered = state.ordered.saturating_sub(1);
        state.occupation = Occupation::Busy;
    }

    /// Begins a wave, unless an action was admitted first.
    pub(super) fn begin_wave(&self) -> bool {
        let mut state = self.lock();
        let may = state.ordered == 0;
        if may {
            state.occupation = Occupation::Busy;
        }
        may
    }

    /// Notes the present work of the thread.
    pub(super) fn occupy(&self, occupation: Occupation) {
        self.lock().occupation = occupation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: Action = Action::Kill(Transport::WebSocket);

    #[test]
    fn one_action_is_in_progress_at_a_time() {
        let gate = Gate::default();
        assert_eq!(
            gate.admit(Action::Clients(5)),
            Err(Refusal::Busy),
            "it starts"
        );
        gate.occupy(Occupation::Waiting);
        assert_eq!(gate.admit(KILL), Ok(()));
        for action in [KILL, Action::Reload, Action::Clients(5)] {
            assert_eq!(gate.admit(action), Err(Refusal::Busy), "{action:?}");
        }
        assert!(!gate.begin_wave(), "the action comes first");
        // The thread does not know of the order yet.
        gate.occupy(Occupation::Waiting);
        assert_eq!(gate.admit(Action::Reload), Err(Refusal::Busy));
        gate.begin();
        assert_eq!(gate.admit(Action::Reload), Err(Refusal::Busy));
        gate.occupy(Occupation::Waiting);
        assert_eq!(gate.admit(Action::Reload), Ok(()));
        gate.withdraw();
        assert!(gate.begin_wave());
        assert_eq!(gate.admit(Action::Reload), Err(Refusal::Busy));
    }

    #[test]
    fn clients_can_be_ended_at_any_time() {
        let gate = Gate::default();
        assert_eq!(gate.admit(Action::Clients(0)), Ok(()));
        assert_eq!(gate.admit(Action::Clients(0)), Ok(()));
        gate.begin();
        gate.occupy(Occupation::Idle);
        assert_eq!(
            gate.admit(Action::Clients(1)),
            Err(Refusal::Busy),
            "one is left"
        );
        gate.begin();
        gate.occupy(Occupation::Idle);
        assert_eq!(gate.admit(KILL), Err(Refusal::NoClients));
        assert_eq!(gate.admit(Action::Reload), Err(Refusal::NoClients));
        assert_eq!(gate.admit(Action::Clients(1)), Ok(()));
    }
}
