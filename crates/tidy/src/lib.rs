//! Structure of the workspace's own sources, as a parser of Rust reads them.
//!
//! [`Sources::read`] parses the files of one crate; the other modules compute one measure each:
//! [`imports`] the arrows between files, [`rings`] the files that import one another in a circle,
//! [`types`] the size of types and the files that implement them, and [`comments`] the first words
//! of doc comments. Code under `#[cfg(test)]` counts in none of them. The rules themselves are the
//! tests of this crate.
#![forbid(unsafe_code)]

pub mod comments;
pub mod imports;
pub mod rings;
pub mod sources;
pub mod types;

pub use sources::Sources;
