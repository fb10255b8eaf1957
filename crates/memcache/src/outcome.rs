//! Outcomes of a store, for both clients.

/// The outcome of a conditional store.
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
