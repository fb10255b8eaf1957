//! Figures of HTTP/2, for a program that shows them.

use dwell_proto::http2::ErrorCode;

/// Codes that have a name (RFC 9113 section 7), and one place for all others.
const CODES: usize = 15;

/// Figures of the connections of HTTP/2, as they are and since the start.
///
/// Shape: a count of a loop that costs an addition, whether it is read or not.
///
/// ```
/// use dwell_engine::{Http, Http2Figures, Kinds, Limits};
///
/// let kinds = Kinds { listener: 0, connection: 1 };
/// let http = Http::new(kinds, Limits::default());
/// assert!(http.http2_figures().is_none(), "it does not speak it");
/// let http = http.speak_h2c(2);
/// let figures: &Http2Figures = http.http2_figures().expect("it speaks it");
/// assert_eq!((figures.connections, figures.streams_open, figures.streams), (0, 0, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http2Figures {
    /// Connections now.
    pub connections: usize,
    /// Requests in progress now.
    pub streams_open: usize,
    /// Requests that were begun.
    pub streams: u64,
    /// Requests that were refused.
    pub refused: StreamRefusals,
    /// Frames of `RST_STREAM` that were sent.
    pub resets_sent: CodeCounts,
    /// Frames of `RST_STREAM` that came.
    pub resets_received: CodeCounts,
    /// Frames of GOAWAY that were sent.
    pub go_aways_sent: CodeCounts,
    /// Frames of GOAWAY that came.
    pub go_aways_received: CodeCounts,
}

/// Requests of HTTP/2 that were refused, by the reason.
///
/// ```
/// use dwell_engine::StreamRefusals;
///
/// let StreamRefusals { streams, work, output, app } = StreamRefusals::default();
/// assert_eq!([streams, work, output, app], [0; 4]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamRefusals {
    /// The connection had 128 in progress.
    pub streams: u64,
    /// Work of 128 requests of the connection was in progress, for some that were reset.
    pub work: u64,
    /// Too much output waited on the connection.
    pub output: u64,
    /// [`App::streams_open`](crate::App::streams_open) has said so.
    pub app: u64,
}

/// Counts by error code.
///
/// ```
/// use dwell_engine::CodeCounts;
///
/// let counts = CodeCounts::default();
/// assert_eq!((counts.total(), counts.by_number().len()), (0, 15));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeCounts {
    counts: [u64; CODES],
    total: u64,
}

impl CodeCounts {
    pub(super) fn count(&mut self, code: ErrorCode) {
        let place = (code.0 as usize).min(CODES - 1);
        self.counts[place] += 1;
        self.total += 1;
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The count of each code, in the order of their numbers; the last one is that of all codes
    /// without a name.
    pub fn by_number(&self) -> &[u64] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_with_a_name_has_its_place() {
        let mut counts = CodeCounts::default();
        for number in 0..20 {
            counts.count(ErrorCode(number));
        }
        counts.count(ErrorCode(u32::MAX));
        assert_eq!(counts.total(), 21);
        assert_eq!(counts.by_number()[..CODES - 1], [1; CODES - 1]);
        assert_eq!(counts.by_number()[CODES - 1], 7);
        let is_named = |number| ErrorCode(number).name().is_some();
        let places = 0..CODES as u32;
        assert_eq!(places.filter(|number| is_named(*number)).count(), CODES - 1);
    }
}
