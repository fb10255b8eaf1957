//! The C interface of Dwell: [`dwell_engine`](engine) for hosts that have a scheduler of their own.
//!
//! `include/dwell.h` is made of this crate. Its introduction, with the rules of ownership and of
//! threads, is in `cbindgen.toml`. Every entry expects the mistakes that C permits: null pointers,
//! two threads at once and stale handles are statuses, and a panic is caught and ends the engine it
//! happened in.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![expect(
    clippy::doc_markdown,
    reason = "what is said of the entries is read in a C header"
)]
#![expect(
    non_camel_case_types,
    reason = "the names are C's: `dwell_noun` and `dwell_noun_verb`"
)]

pub mod attached;
pub mod data;
pub mod engine;
pub mod facts;
pub mod orders;
mod pointers;
pub mod remote;
pub mod requests;
pub mod status;
pub mod tls;
