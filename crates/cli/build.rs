//! Tells the program from which commit, for which target and by which compiler it is built.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=DWELL_COMMIT");
    let given = env::var("DWELL_COMMIT").ok();
    let commit = given.filter(|commit| !commit.is_empty()).or_else(of_git);
    let from = commit.map(|commit| format!(" ({commit})"));
    println!(
        "cargo::rustc-env=DWELL_BUILT_FROM={}",
        from.unwrap_or_default()
    );
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=DWELL_BUILT_FOR={target}");
    println!("cargo::rustc-env=DWELL_BUILT_BY={}", compiler());
}

/// The version of the compiler, such as `1.90.0 (1159e78c4 2025-09-14)`.
fn compiler() -> String {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).arg("--version").output();
    let text = output
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let text = text.unwrap_or_default();
    let version = text.lines().next().unwrap_or_default();
    match version.strip_prefix("rustc ") {
        Some(version) => version.to_owned(),
        None => "unknown".to_owned(),
    }
}

/// The commit of the sources, if they are a checkout of the project itself.
fn of_git() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // A package that was unpacked inside of another repository has no file of this one.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // The log of the head changes with every commit and checkout.
    let log = git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ])?;
    println!("cargo::rerun-if-changed={log}");
    println!("cargo::rerun-if-changed=build.rs");
    git(&["rev-parse", "--short=12", "HEAD"])
}
