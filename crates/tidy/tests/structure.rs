//! The structure of the crates, held: how large rings of imports and types may become, and how doc
//! comments begin.
//!
//! Each bound is the measure of today or lower, and only falls. `cargo run -p dwell-tidy --
//! crates/edge` prints the measures.

use dwell_tidy::{Sources, comments, imports, rings, types};
use std::collections::BTreeSet;
use std::path::Path;

/// What the sources of one crate may be.
struct Bounds {
    name: &'static str,
    /// Files in the largest ring of imports.
    ring: usize,
    /// Doc comments that begin with a word of [`comments::BANNED`].
    banned: usize,
    /// Types that have more fields or files than the rule, with what they may have.
    wide: &'static [(&'static str, usize, usize)],
}

/// Fields that a struct with methods of its own to change it may have.
const FIELDS_MAX: usize = 15;
/// Files that may have `impl` blocks of one type.
const FILES_MAX: usize = 2;

const CRATES: &[Bounds] = &[
    Bounds {
        name: "dwell",
        ring: 2,
        banned: 45,
        wide: &[],
    },
    Bounds {
        name: "edge",
        ring: 13,
        banned: 365,
        wide: &[
            ("proxy/mod.rs ProxiedRequest", 16, 1),
            ("proxy/mod.rs Proxy", 6, 3),
            ("metrics/mod.rs Metrics", 5, 3),
            ("polls/mod.rs Polls", 32, 25),
        ],
    },
    Bounds {
        name: "engine",
        ring: 9,
        banned: 0,
        wide: &[
            ("http.rs Http", 12, 5),
            ("http/visit.rs Visit", 17, 4),
            ("manager.rs Manager", 3, 3),
            ("manager/conn.rs Conn", 4, 8),
            ("manager/state.rs State", 26, 2),
            ("reply.rs Reply", 11, 3),
            ("websocket/connection.rs Connection", 18, 1),
        ],
    },
    Bounds {
        name: "evloop",
        ring: 2,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "memcache",
        ring: 3,
        banned: 0,
        wide: &[("blocking/client.rs Client", 2, 6)],
    },
    Bounds {
        name: "metrics",
        ring: 2,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "proto",
        ring: 2,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "store",
        ring: 2,
        banned: 0,
        wide: &[("shard.rs Shard", 6, 5)],
    },
    Bounds {
        name: "store_server",
        ring: 2,
        banned: 0,
        wide: &[("commands.rs Executor", 5, 5)],
    },
    Bounds {
        name: "timers",
        ring: 2,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "upstream",
        ring: 3,
        banned: 0,
        wide: &[("client.rs Upstream", 9, 3)],
    },
];

/// The rooms of `edge`, its modules, from the top: each may import those below it.
const ROOMS: &[&str] = &[
    "process",
    "event_loop",
    "ops",
    "proxy",
    "polls",
    "presence",
    "handoff",
    "response_log",
    "access",
    "publish",
    "retry_after",
    "pages",
    "descriptors",
    "log",
    "metrics",
    "config",
    "held",
    "cursor",
    "published",
];

/// Imports of `edge` that run up in spite of it. None is added; one that is gone leaves the list.
const UPWARD: &[&str] = &[];

#[test]
fn imports_of_the_edge_run_down() {
    let sources = read("edge");
    let found = imports::upward(&sources, ROOMS);
    let is_listed = |arrow: &&String| !UPWARD.contains(&arrow.as_str());
    let new: Vec<&String> = found.iter().filter(is_listed).collect();
    assert!(new.is_empty(), "imports that run up: {new:#?}");
    let is_gone = |arrow: &&&str| !found.iter().any(|found| found == **arrow);
    let gone: Vec<&&str> = UPWARD.iter().filter(is_gone).collect();
    assert!(
        gone.is_empty(),
        "gone, so no longer to be listed: {gone:#?}"
    );
    let files = 0..sources.files.len();
    let rooms: BTreeSet<&str> = files.map(|file| imports::room(&sources, file)).collect();
    let left: Vec<&&str> = ROOMS
        .iter()
        .filter(|room| !rooms.contains(**room))
        .collect();
    assert!(left.is_empty(), "rooms that are gone: {left:?}");
}

#[test]
fn rings_of_files_stay_small() {
    check(|bounds, sources| {
        let found = rings::rings(sources.files.len(), &imports::imports(sources));
        let largest = found.first()?;
        (largest.len() > bounds.ring).then(|| {
            let names = largest.iter().map(|file| &*sources.files[*file].path);
            format!(
                "a ring of {} files, at most {}: {}",
                largest.len(),
                bounds.ring,
                names.collect::<Vec<_>>().join(" ")
            )
        })
    });
}

#[test]
fn types_stay_small_and_in_one_place() {
    check(|bounds, sources| {
        let found: Vec<String> = types::measure(sources)
            .into_iter()
            .filter_map(|(name, measured)| {
                let listed = bounds.wide.iter().find(|(listed, ..)| *listed == name);
                let (_, fields_max, files_max) = listed.unwrap_or(&("", FIELDS_MAX, FILES_MAX));
                let (fields, files) = (measured.changing_fields(), measured.files.len());
                let is_wide = fields > FIELDS_MAX.max(*fields_max);
                (is_wide || files > FILES_MAX.max(*files_max))
                    .then(|| format!("{name}: {fields} fields, {files} files"))
            })
            .collect();
        (!found.is_empty()).then(|| found.join("\n"))
    });
}

#[test]
fn types_that_became_small_leave_the_list() {
    check(|bounds, sources| {
        let measured = types::measure(sources);
        let is_small = |name: &str| {
            measured.get(name).is_none_or(|found| {
                found.changing_fields() <= FIELDS_MAX && found.files.len() <= FILES_MAX
            })
        };
        let names = bounds.wide.iter().map(|(name, ..)| *name);
        let stale: Vec<&str> = names.filter(|name| is_small(name)).collect();
        (!stale.is_empty()).then(|| format!("small or gone: {}", stale.join(", ")))
    });
}

#[test]
fn doc_comments_name_the_thing_first() {
    check(|bounds, sources| {
        let found = comments::banned(sources);
        (found.len() > bounds.banned).then(|| {
            format!(
                "{} doc comments begin with {:?}, at most {}:\n{}",
                found.len(),
                comments::BANNED,
                bounds.banned,
                found.join("\n")
            )
        })
    });
}

/// Fails with what `rule` finds in each crate.
fn check(rule: impl Fn(&Bounds, &Sources) -> Option<String>) {
    let findings: Vec<String> = CRATES
        .iter()
        .filter_map(|bounds| {
            let found = rule(bounds, &read(bounds.name))?;
            Some(format!("{}: {found}", bounds.name))
        })
        .collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

fn read(name: &str) -> Sources {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let crates = crates.expect("this crate stands among the others");
    let sources = Sources::read(&crates.join(name).join("src"));
    let sources = sources.expect("the sources of a crate parse");
    assert!(!sources.files.is_empty(), "{name} has no files");
    sources
}
