//! What both clients say of a store.

/// What has become of a value that was to be stored on a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreOutcome {
    /// It is stored.
    Stored,
    /// It is not: there is such a key already, or there is none, whichever was not to be.
    NotStored,
    /// It is not: the item has changed since its cas unique was read.
    Exists,
    /// It is not: there is no such item.
    NotFound,
}
