//! The streams of all connections, and how many of them leave HTTP.

use super::figures::Http2Figures;
use super::stream::{Stream, Way};
use super::unread::Unread;
use dwell_evloop::{Slab, Token};
use dwell_proto::http2::FieldSection;

/// The streams of all connections, and what is used in turns.
#[derive(Debug)]
pub(super) struct Tables {
    pub(in crate::http) streams: Slab<Stream>,
    /// A section for the next field block.
    pub(super) spare: Option<Box<FieldSection>>,
    /// Streams that have ended, where somebody takes them.
    pub(super) ended: Option<Vec<Token>>,
    /// Streams may leave HTTP.
    pub(super) takes_connect: bool,
    pub(super) leaves: Leaves,
    pub(super) unread: Unread,
    pub(super) figures: Http2Figures,
}

/// Streams that leave HTTP, as far as they are counted nowhere else.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    /// Streams of which the app has not decided.
    pub(super) offered: usize,
    /// Streams that have left since the driver [counted](crate::Http::counted_left) them.
    pub(super) left: usize,
    /// Connections, and how many there may be, in this visit.
    pub(super) connections: (usize, usize),
}

impl Tables {
    pub(super) fn new(stream_kind: u8) -> Self {
        Self {
            streams: Slab::new(stream_kind, usize::MAX),
            spare: None,
            ended: None,
            takes_connect: false,
            leaves: Leaves::default(),
            unread: Unread::default(),
            figures: Http2Figures::default(),
        }
    }

    /// Returns true if there are as many connections as may be, with the streams that leave.
    pub(super) fn is_full(&self) -> bool {
        let Leaves {
            offered,
            left,
            connections: (connections, connections_max),
        } = self.leaves;
        connections + offered + left >= connections_max
    }

    /// Takes a stream out.
    pub(super) fn remove(&mut self, token: Token) -> Option<Stream> {
        let stream = self.streams.remove(token)?;
        if stream.carrier.is_some() {
            self.unread.remove(token);
            self.leaves.offered -= usize::from(stream.marks.way == Way::In);
        }
        self.figures.streams_open = self.streams.len();
        if let Some(ended) = &mut self.ended {
            ended.push(token);
        }
        Some(stream)
    }
}
