//! Connections that are open, by the listener that has accepted them.

use dwell_evloop::Token;

/// The number of open connections by the label of their listener.
///
/// Shape: one byte for each connection, beside its record.
#[derive(Debug, Default)]
pub(super) struct OpenCounts {
    /// The label of each listener, by the index of its token.
    listeners: Vec<u8>,
    /// The label of each connection, by the index of its token.
    connections: Vec<u8>,
    /// Open connections by label.
    open: Vec<usize>,
}

/// The label of what has none.
const NONE: u8 = u8::MAX;

impl OpenCounts {
    /// Labels what a listener accepts from now on; 255 is no label.
    pub(super) fn label(&mut self, listener: Token, label: u8) {
        set(&mut self.listeners, listener, label);
        if label == NONE {
            return;
        }
        let open = usize::from(label) + 1;
        self.open.resize(self.open.len().max(open), 0);
    }

    /// Open connections of the listeners with this label.
    pub(super) fn of(&self, label: u8) -> usize {
        let open = self.open.get(usize::from(label));
        open.copied().unwrap_or_default()
    }

    /// A connection has its place.
    pub(super) fn accepted(&mut self, connection: Token, listener: Token) {
        let label = self.listeners.get(listener.index() as usize);
        let label = label.copied().unwrap_or(NONE);
        set(&mut self.connections, connection, label);
        if let Some(open) = self.open.get_mut(usize::from(label)) {
            *open += 1;
        }
    }

    /// A connection has ended, or has left HTTP.
    pub(super) fn forget(&mut self, connection: Token) {
        let Some(label) = self.connections.get_mut(connection.index() as usize) else {
            return;
        };
        let label = std::mem::replace(label, NONE);
        if let Some(open) = self.open.get_mut(usize::from(label)) {
            *open -= 1;
        }
    }
}

fn set(labels: &mut Vec<u8>, token: Token, label: u8) {
    let index = token.index() as usize;
    if index >= labels.len() {
        labels.resize(index + 1, NONE);
    }
    labels[index] = label;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_for_the_label_its_listener_had() {
        let mut counts = OpenCounts::default();
        let token = |index| Token::new(1, 0, index);
        counts.label(token(0), 2);
        counts.accepted(token(5), token(0));
        counts.accepted(token(6), token(1));
        counts.accepted(token(7), token(0));
        // The listener has been closed, and another one has its token.
        counts.label(token(0), 1);
        counts.accepted(token(8), token(0));
        assert_eq!(counts.open, [0, 1, 2]);
        for connection in [5, 5, 6, 8, 9] {
            counts.forget(token(connection));
        }
        assert_eq!(counts.open, [0, 0, 1]);
        counts.accepted(token(5), token(0));
        counts.forget(token(7));
        assert_eq!(counts.open, [0, 1, 0]);
    }
}
