//! The rules for the files of the repository.

use crate::{assert_clean, workspace_root};
use std::fs;
use std::path::{Path, PathBuf};

/// Lines a Rust file may have before its tests.
const LINES_MAX: usize = 600;
/// Characters a line of code may have.
const COLUMNS_MAX: usize = 100;
/// The page that is read whole before the code is changed.
const PAGE: &str = "ARCHITECTURE.md";
/// Lines that it may have.
const PAGE_LINES_MAX: usize = 300;

/// Folders that hold no source of ours.
const SKIPPED: &[&str] = &[
    "target",
    ".git",
    ".venv",
    // What partial runs of the bench leave behind.
    "tmp",
    "__pycache__",
    ".pytest_cache",
    "node_modules",
    "corpus",
];

/// Crates that are given the time and the bytes, and fetch neither.
const PURE_CRATES: &[&str] = &["timers", "metrics", "proto", "store"];

/// The one file of them that reads the clock: timers for futures have no caller to be given it by.
const CLOCK_READER: &str = "crates/timers/src/shared/clock.rs";

/// The crates whose unsafe code is fenced by `deny` and an expectation at each place; every other
/// crate forbids it.
const FENCED_CRATES: &[&str] = &[
    "crates/evloop/",
    "crates/store/",
    "crates/timers/",
    "bindings/capi/",
    "bindings/python/",
];

/// What a pure crate may not name: clocks, sockets, files, threads, pollers.
const IMPURE_WORDS: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "UNIX_EPOCH",
    ".elapsed()",
    "thread::sleep",
    "thread::spawn",
    "std::net",
    "std::fs",
    "std::process",
    "std::env",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "socket2",
    "mio::",
    "tokio",
];

/// The crates whose code runs on a loop, which a simulator turns.
const LOOP_CRATES: &[&str] = &[
    "evloop",
    "engine",
    "upstream",
    "memcache",
    "redis",
    "store_server",
    "edge",
];

/// Sources of time, chance and threads: what a seed does not decide.
const UNDECIDED_WORDS: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "RandomState::new",
    "thread::spawn",
    "thread::Builder",
];

/// Their files in those crates that may name them: the one reader of the clock and the one source
/// of seeds; threads beside the loops and clients that have no loop; keys of hash tables whose
/// order nothing depends on; and figures for operators.
const UNDECIDED: &[&str] = &[
    "crates/edge/src/access/expiring_cache.rs",
    "crates/edge/src/access/rate.rs",
    "crates/edge/src/handoff/",
    "crates/edge/src/polls/misses/memory.rs",
    "crates/edge/src/polls/tables.rs",
    "crates/edge/src/presence/webhooks.rs",
    "crates/edge/src/process/",
    "crates/engine/src/files/multipart.rs",
    "crates/engine/src/manager/resolve.rs",
    "crates/engine/src/server/",
    "crates/engine/src/websocket/random.rs",
    "crates/evloop/src/clock.rs",
    "crates/evloop/src/log_writer.rs",
    "crates/evloop/src/memory.rs",
    "crates/evloop/src/seed.rs",
    "crates/evloop/src/sim/network.rs",
    "crates/memcache/src/blocking/",
    "crates/memcache/src/watch/findings.rs",
    "crates/store_server/src/moment.rs",
    "crates/store_server/src/session.rs",
];

/// Folders of somebody's machine. Joined here so that this file does not name them itself.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
];

/// The one file of the edge that has exchanges held, so that each has a deadline.
const HOLDER: &str = "crates/edge/src/held.rs";

/// What the other files of the edge may not name.
const HOLDING_WORDS: &[&str] = &["Outcome::Held", "http.hold("];

/// A rule: the file's path under the root and its text give the findings.
type Rule = fn(&str, &str) -> Vec<String>;

#[test]
fn rust_files_are_short() {
    check(&["rs"], &["crates", "bindings", "bench", "fuzz"], long_file);
}

#[test]
fn lines_of_code_are_short_and_clean() {
    check(
        &["rs", "py", "sh"],
        &[
            "crates", "bindings", "bench", "fuzz", "tests", ".ci", "scripts",
        ],
        bad_line,
    );
}

#[test]
fn the_page_of_the_architecture_is_short() {
    check(&["md"], &["."], long_page);
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    check(
        &[
            "rs", "py", "sh", "md", "toml", "yml", "yaml", "html", "conf", "",
        ],
        &["."],
        machine,
    );
}

#[test]
fn pure_crates_fetch_neither_time_nor_bytes() {
    for name in PURE_CRATES {
        check(&["rs"], &[&format!("crates/{name}/src")], impure);
    }
}

#[test]
fn what_runs_on_a_loop_is_decided_by_its_seed() {
    for name in LOOP_CRATES {
        check(&["rs"], &[&format!("crates/{name}/src")], undecided);
    }
}

#[test]
fn the_edge_holds_nothing_without_a_deadline() {
    check(&["rs"], &["crates/edge/src"], undated);
}

#[test]
fn lints_are_expected_with_a_reason_and_never_allowed() {
    check(&["rs"], &["crates", "bindings", "bench", "fuzz"], silenced);
}

#[test]
fn every_crate_forbids_or_fences_unsafe_code() {
    check(&["rs"], &["crates", "bindings"], unfenced);
}

#[test]
fn every_manifest_inherits_lints_and_versions() {
    check(&["toml"], &["crates", "bindings", "bench"], loose_manifest);
}

#[test]
fn each_rule_finds_its_bad_sample_and_passes_a_good_one() {
    let long = "x();\n".repeat(LINES_MAX + 1);
    let tested = format!("x();\n#[cfg(test)]\nmod tests {{\n{long}");
    let method = format!("#[cfg(test)]\nfn f() {{}}\n{long}");
    let declared = format!("#[cfg(test)]\nmod tests;\n{long}");
    let wide = format!("{}\n", "x".repeat(COLUMNS_MAX + 1));
    let row = format!("|{wide}");
    let sized: &[Sample<'_>] = &[
        (long_file, "a.rs", &long, &tested),
        (long_file, "a.rs", &method, &tested),
        (long_file, "a.rs", &declared, &tested),
        (long_page, PAGE, &long, "short\n"),
        (long_page, PAGE, &wide, &row),
        (bad_line, "a.rs", &wide, "let x = 1;\n"),
        (bad_line, "a.rs", "let x = 1; \n", "\n"),
        (bad_line, "a.rs", "\tlet x = 1;\n", "    let x = 1;\n"),
        (bad_line, "a.py", "no end of line", "end of line\n"),
    ];
    for (place, (rule, path, bad, good)) in sized.iter().chain(SAMPLES).enumerate() {
        assert!(!rule(path, bad).is_empty(), "sample {place} was not found");
        assert_eq!(rule(path, good), Vec::<String>::new(), "sample {place}");
    }
}

/// A rule, a path it looks at, a text it must find fault with, and one it must not.
type Sample<'a> = (Rule, &'a str, &'a str, &'a str);

const SAMPLES: &[Sample<'_>] = &[
    (
        machine,
        "a.md",
        concat!("see /ho", "me/me/notes"),
        "see /homely/ways",
    ),
    (
        impure,
        "a.rs",
        "let t = Instant::now();",
        "/// Unlike `Instant::now()`.\nlet t = now;",
    ),
    (
        impure,
        "a.rs",
        "use std::net::TcpStream;",
        "use std::num::NonZeroU32; // no std::net",
    ),
    (
        undecided,
        "crates/edge/src/polls/a.rs",
        "let t = Instant::now();",
        "let t = now;\n#[cfg(test)]\nmod tests {\n    Instant::now();\n}",
    ),
    (
        undated,
        "a.rs",
        "Outcome::Held { tag, timeout: None }",
        "held(tag, timeout) // no Outcome::Held",
    ),
    (undated, "a.rs", "http.hold(context,", "hold(http, context,"),
    (
        silenced,
        "a.rs",
        "#[allow(dead_code)]",
        "// allow(dead_code)",
    ),
    (
        silenced,
        "a.rs",
        "#[expect(dead_code)]",
        "#[expect(dead_code, reason = \"ffi\")]",
    ),
    (
        silenced,
        "a.rs",
        "#[expect(\n    dead_code\n)]",
        "#[expect(\n  a,\n  reason = \"b\"\n)]",
    ),
    (
        unfenced,
        "crates/a/src/lib.rs",
        "//! A.",
        "#![forbid(unsafe_code)]",
    ),
    (
        unfenced,
        "crates/a/src/main.rs",
        "",
        "//! A.\n#![forbid(unsafe_code)]",
    ),
    (
        loose_manifest,
        "crates/a/Cargo.toml",
        "[package]\n",
        GOOD_MANIFEST,
    ),
    (
        loose_manifest,
        "crates/a/Cargo.toml",
        LOOSE_VERSION,
        GOOD_MANIFEST,
    ),
];

#[test]
fn the_walk_reaches_the_sources() {
    let here = files(&workspace_root(), &["rs"], "crates");
    assert!(
        here.iter()
            .any(|path| path.ends_with("tests/tidy/sources.rs"))
    );
    assert!(here.iter().any(|path| path.ends_with("timers/src/lib.rs")));
}

const GOOD_MANIFEST: &str = "[package]\n[lints]\nworkspace = true\n[dependencies]\n\
                             itoa.workspace = true\nmio = { workspace = true }\n";
const LOOSE_VERSION: &str = "[lints]\nworkspace = true\n[dependencies]\nitoa = \"1.0\"\n";

/// Applies `rule` to every file under `folders` whose name ends in one of `extensions`.
fn check(extensions: &[&str], folders: &[&str], rule: Rule) {
    let root = workspace_root();
    let mut findings = Vec::new();
    for folder in folders {
        for path in files(&root, extensions, folder) {
            // What is not UTF-8 is no source: a build product without an extension.
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            let name = path
                .strip_prefix(&root)
                .expect("the walk starts at the root");
            findings.extend(rule(&name.to_string_lossy(), &text));
        }
    }
    assert_clean(&findings);
}

fn files(root: &Path, extensions: &[&str], folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root.join(folder)];
    while let Some(folder) = pending.pop() {
        // A folder may be absent: not every checkout has every part.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if SKIPPED.contains(&&*name.to_string_lossy()) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(path);
            } else if has_extension(&path, extensions) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Whether `path` ends in one of `extensions`; `""` stands for scripts and makefiles.
fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    match path.extension() {
        Some(extension) => extensions.contains(&&*extension.to_string_lossy()),
        None => extensions.contains(&"") && path.file_name().is_some_and(|name| name != ".git"),
    }
}

fn long_file(path: &str, text: &str) -> Vec<String> {
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let begins_tests = |pair: &[&str]| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    let before_tests = lines.windows(2).position(begins_tests);
    let before_tests = before_tests.unwrap_or(lines.len());
    let found = before_tests > LINES_MAX && !is_test;
    found
        .then(|| format!("{path}: {before_tests} lines, at most {LINES_MAX}"))
        .into_iter()
        .collect()
}

fn long_page(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    if path != PAGE {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if lines > PAGE_LINES_MAX {
        findings.push(format!("{path}: {lines} lines, at most {PAGE_LINES_MAX}"));
    }
    let is_wide = |line: &str| line.chars().count() > COLUMNS_MAX && !line.starts_with('|');
    let wide = text.lines().enumerate().filter(|(_, line)| is_wide(line));
    findings.extend(wide.map(|(place, _)| format!("{path}:{}: a long line", place + 1)));
    findings
}

fn bad_line(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            let number = place + 1;
            findings.push(format!(
                "{path}:{number}: {columns} columns, at most {COLUMNS_MAX}"
            ));
        }
        if line.ends_with([' ', '\t']) {
            findings.push(format!(
                "{path}:{}: blanks at the end of the line",
                place + 1
            ));
        }
        if line.starts_with('\t') {
            findings.push(format!("{path}:{}: indented by a tab", place + 1));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(format!("{path}: the last line has no end"));
    }
    findings
}

fn machine(path: &str, text: &str) -> Vec<String> {
    named_lines(path, text.lines(), MACHINE_PATHS)
}

fn impure(path: &str, text: &str) -> Vec<String> {
    if path == CLOCK_READER {
        return Vec::new();
    }
    named_lines(path, text.lines().map(without_comment), IMPURE_WORDS)
}

fn undecided(path: &str, text: &str) -> Vec<String> {
    if path.contains("tests") || UNDECIDED.iter().any(|it| path.starts_with(it)) {
        return Vec::new();
    }
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    named_lines(path, code.lines().map(without_comment), UNDECIDED_WORDS)
}

fn undated(path: &str, text: &str) -> Vec<String> {
    if path == HOLDER {
        return Vec::new();
    }
    named_lines(path, text.lines().map(without_comment), HOLDING_WORDS)
}

fn named_lines<'a>(
    path: &str,
    lines: impl Iterator<Item = &'a str>,
    words: &[&str],
) -> Vec<String> {
    lines
        .enumerate()
        .filter_map(|(place, line)| {
            let word = words.iter().find(|word| line.contains(**word))?;
            Some(format!("{path}:{}: names {word}", place + 1))
        })
        .collect()
}

/// The code of a line. A `//` inside a string cuts the string too, which hides nothing: what is
/// looked for never follows one.
fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

fn silenced(path: &str, text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .flat_map(|line| [without_comment(line), "\n"])
        .collect();
    let mut findings = Vec::new();
    for opening in ["#[allow(", "#![allow("] {
        if code
            .lines()
            .any(|line| line.trim_start().starts_with(opening))
        {
            findings.push(format!(
                "{path}: {opening}..) where #[expect(.., reason = ..)] is due"
            ));
        }
    }
    for opening in ["#[expect(", "#![expect("] {
        for (start, _) in code.match_indices(opening) {
            let line_start = code[..start].rfind('\n').map_or(0, |end| end + 1);
            let attribute = code[start..].split(")]").next().unwrap_or_default();
            if code[line_start..start].trim().is_empty() && !attribute.contains("reason") {
                findings.push(format!("{path}: an expected lint without its reason"));
            }
        }
    }
    findings
}

fn unfenced(path: &str, text: &str) -> Vec<String> {
    let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    let is_fenced = FENCED_CRATES.iter().any(|krate| path.starts_with(krate));
    let attribute = |line: &str| {
        line.starts_with("#![forbid(unsafe_code")
            || is_fenced && line.starts_with("#![deny(unsafe_code")
    };
    let found = is_root && !text.lines().any(attribute);
    found
        .then(|| format!("{path}: unsafe code is not forbidden"))
        .into_iter()
        .collect()
}

fn loose_manifest(path: &str, text: &str) -> Vec<String> {
    // One that is a workspace of its own has nothing to inherit.
    if !path.ends_with("Cargo.toml") || text.lines().any(|line| line == "[workspace]") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if !text.contains("[lints]\nworkspace = true\n") {
        findings.push(format!(
            "{path}: does not inherit the lints of the workspace"
        ));
    }
    let mut in_dependencies = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        } else if in_dependencies && !line.is_empty() && !line.starts_with('#') {
            let inherits = line.contains("workspace = true") || line.contains("path = ");
            if !inherits {
                findings.push(format!(
                    "{path}: a version outside the root manifest: {line}"
                ));
            }
        }
    }
    findings
}
