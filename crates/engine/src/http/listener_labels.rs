//! The labels of listeners, and of the connections that they have accepted.

use dwell_evloop::Token;

/// The label of the listener of each connection, and the number of connections by label.
///
/// Shape: one byte for each connection, beside its record.
#[derive(Debug, Default)]
pub(crate) struct ListenerLabels {
    /// The label of each listener, by the index of its token.
    listeners: Vec<u8>,
    /// The label of each connection, by the index of its token.
    connections: Vec<u8>,
    /// Connections by label.
    counts: Vec<Count>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    open: usize,
    accepted: u64,
}

/// The label of what has none.
pub(super) const NONE: u8 = u8::MAX;

impl ListenerLabels {
    /// Labels what a listener accepts from now on; 255 is no label.
    pub(super) fn label(&mut self, listener: Token, label: u8) {
        set(&mut self.listeners, listener, label);
        if label == NONE {
            return;
        }
        let labels = usize::from(label) + 1;
        let labels = self.counts.len().max(labels);
        self.counts.resize(labels, Count::default());
    }

    /// Open connections of the listeners with this label.
    pub(super) fn open(&self, label: u8) -> usize {
        self.count(label).open
    }

    /// Connections that the listeners with this label have accepted.
    pub(super) fn accepted(&self, label: u8) -> u64 {
        self.count(label).accepted
    }

    /// The label of the listener that has accepted a connection, if it has one.
    pub(super) fn find(&self, connection: Token) -> Option<u8> {
        let label = self.connections.get(connection.index() as usize)?;
        (*label != NONE).then_some(*label)
    }

    /// A connection has its place.
    pub(super) fn accept(&mut self, connection: Token, listener: Token) {
        let label = self.listeners.get(listener.index() as usize);
        let label = label.copied().unwrap_or(NONE);
        set(&mut self.connections, connection, label);
        if let Some(count) = self.counts.get_mut(usize::from(label)) {
            count.open += 1;
            count.accepted += 1;
        }
    }

    /// A connection has ended, or has left HTTP.
    pub(super) fn forget(&mut self, connection: Token) {
        let Some(label) = self.connections.get_mut(connection.index() as usize) else {
            return;
        };
        let label = std::mem::replace(label, NONE);
        if let Some(count) = self.counts.get_mut(usize::from(label)) {
            count.open -= 1;
        }
    }

    fn count(&self, label: u8) -> Count {
        let count = self.counts.get(usize::from(label));
        count.copied().unwrap_or_default()
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
        let mut labels = ListenerLabels::default();
        let token = |index| Token::new(1, 0, index);
        let open = |labels: &ListenerLabels| [0, 1, 2].map(|label| labels.open(label));
        labels.label(token(0), 2);
        labels.accept(token(5), token(0));
        labels.accept(token(6), token(1));
        labels.accept(token(7), token(0));
        // The listener has been closed, and another one has its token.
        labels.label(token(0), 1);
        labels.accept(token(8), token(0));
        assert_eq!(open(&labels), [0, 1, 2]);
        let found = [5, 6, 7, 8, 9].map(|connection| labels.find(token(connection)));
        assert_eq!(found, [Some(2), None, Some(2), Some(1), None]);
        for connection in [5, 5, 6, 8, 9] {
            labels.forget(token(connection));
        }
        assert_eq!(open(&labels), [0, 0, 1]);
        assert_eq!(labels.find(token(5)), None, "it has ended");
        labels.accept(token(5), token(0));
        labels.forget(token(7));
        assert_eq!(open(&labels), [0, 1, 0]);
        let accepted = [0, 1, 2, NONE].map(|label| labels.accepted(label));
        assert_eq!(accepted, [0, 2, 2, 0]);
        labels.label(token(0), NONE);
        labels.accept(token(9), token(0));
        assert_eq!(
            labels.find(token(9)),
            None,
            "another listener has the token"
        );
    }
}
