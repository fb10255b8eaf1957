//! Outcomes of a store, for both clients.

/// The outcome of a conditional store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreOutcome {
    /// It is stored.
    Stored,
    /// It is not: the key exists already, or it does not exist, whichever the command forbids.
    NotStored,
    /// It is not: the item has changed since its cas unique was read.
    Exists,
    /// It is not: there is no such item.
    NotFound,
}
