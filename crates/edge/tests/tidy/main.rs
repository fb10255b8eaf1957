//! The rules of ARCHITECTURE.md and CONTRIBUTING.md that neither rustc nor clippy checks.
//!
//! `layers` reads `cargo metadata` and refuses any dependency that the layers do not allow;
//! `sources` reads the files. Each rule is a function from text to findings, and is itself tested
//! with a sample that breaks it: a rule that cannot fail is not a rule.

mod layers;
mod sources;

use std::path::{Path, PathBuf};

/// The folder of the workspace's `Cargo.toml`.
fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/edge lies two folders below the root")
        .to_path_buf()
}

/// Fails the running test with all findings, one a line.
fn assert_clean(findings: &[String]) {
    assert!(
        findings.is_empty(),
        "{} findings:\n{}",
        findings.len(),
        findings.join("\n")
    );
}
