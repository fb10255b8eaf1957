//! Figures of each listener of clients: its connections, and the requests on them.

use crate::metrics::{ListenerCells, LoopMetrics, figure};
use dwell_engine::Http;
use dwell_evloop::Token;
use std::net::SocketAddr;
use std::sync::Arc;

/// The listeners of one loop, and which connection each has accepted.
///
/// Shape: one byte for each connection and each stream of HTTP/2.
#[derive(Debug)]
pub(crate) struct ListenerFigures {
    metrics: Arc<LoopMetrics>,
    /// The place of each listener among the figures, by the index of its token.
    places: Vec<u8>,
    /// The place of the listener of each connection, by the index of its token.
    connections: Vec<u8>,
    /// The same of streams.
    streams: Vec<u8>,
}

/// The place of what has none: there are too many listeners, or another process has accepted it.
const NONE: u8 = u8::MAX;

impl ListenerFigures {
    pub(crate) fn new(metrics: Arc<LoopMetrics>) -> Self {
        Self {
            metrics,
            places: Vec::new(),
            connections: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// Names a listener; returns the label of its connections.
    pub(crate) fn name(&mut self, listener: Token, address: SocketAddr, is_secure: bool) -> u8 {
        let name = format!("{address}{}", if is_secure { " TLS" } else { "" });
        let place = self.metrics.listener_names.of(&name);
        let place = place.and_then(|place| u8::try_from(place).ok());
        let place = place.unwrap_or(NONE);
        set(&mut self.places, listener, place);
        place
    }

    /// Copies the numbers of open connections.
    pub(super) fn keep(&self, http: &Http) {
        for (place, cells) in (0..NONE).zip(&self.metrics.listeners) {
            cells.open.set(figure(http.open_of(place)));
        }
    }

    /// A connection has begun.
    pub(super) fn opened(&mut self, connection: Token, listener: Option<Token>) {
        let place = listener.map_or(NONE, |listener| get(&self.places, listener));
        set(&mut self.connections, connection, place);
        if let Some(cells) = self.cells(place) {
            cells.connections.increment();
        }
    }

    /// A stream of HTTP/2 has begun on a connection.
    pub(super) fn stream_opened(&mut self, connection: Token, stream: Token) {
        let place = get(&self.connections, connection);
        set(&mut self.streams, stream, place);
    }

    /// A request has come on a connection, or on a stream.
    pub(super) fn requested(&self, token: Token, is_stream: bool) {
        let places = if is_stream {
            &self.streams
        } else {
            &self.connections
        };
        if let Some(cells) = self.cells(get(places, token)) {
            cells.requests.increment();
        }
    }

    fn cells(&self, place: u8) -> Option<&ListenerCells> {
        self.metrics.listeners.get(usize::from(place))
    }
}

fn get(places: &[u8], token: Token) -> u8 {
    let place = places.get(token.index() as usize);
    place.copied().unwrap_or(NONE)
}

fn set(places: &mut Vec<u8>, token: Token, place: u8) {
    let index = token.index() as usize;
    if index >= places.len() {
        places.resize(index + 1, NONE);
    }
    places[index] = place;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn requests_count_for_the_listener_of_their_connection() {
        let metrics = Metrics::new(1, Vec::new(), 0);
        let mut figures = ListenerFigures::new(metrics.of_loop(0));
        let token = |index| Token::new(1, 0, index);
        figures.name(token(0), ([127, 0, 0, 1], 80).into(), false);
        figures.name(token(3), ([127, 0, 0, 1], 443).into(), true);
        figures.opened(token(7), Some(token(3)));
        figures.opened(token(8), None);
        figures.stream_opened(token(7), token(0));
        for (connection, is_stream) in [(7, false), (0, true), (8, false), (99, false)] {
            figures.requested(token(connection), is_stream);
        }
        let cells = metrics.of_loop(0);
        let counts = |place: usize| {
            let cells = &cells.listeners[place];
            (cells.connections.value(), cells.requests.value())
        };
        assert_eq!((counts(0), counts(1)), ((0, 0), (1, 2)));
        assert_eq!(
            cells.listener_names.names(),
            ["127.0.0.1:80", "127.0.0.1:443 TLS"]
        );
    }
}
