//! The embedded store: a bytes-bounded cache that tells waiting loops of every change.
#![forbid(unsafe_code)]
