//! One key of a poll of several.

/// One key of a poll of several.
pub(super) struct Part {
    pub(super) key: usize,
    pub(super) label: String,
    /// The state whose cursor was sent.
    pub(super) has: Option<usize>,
    /// The cursor; empty where none was sent.
    pub(super) cursor: String,
    /// The cursor that was sent is none.
    pub(super) is_garbage: bool,
    /// The oldest state that the answer may tell of.
    pub(super) floor: usize,
}

impl Part {
    /// Returns true if no cursor was sent for it.
    pub(super) fn knows_nothing(&self) -> bool {
        self.has.is_none() && !self.is_garbage
    }
}
