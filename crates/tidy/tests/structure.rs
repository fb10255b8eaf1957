//! The structure of the crates, held: how large rings of imports and types may become, and how doc
//! comments begin.
//!
//! Each bound is the measure of today, and only falls. `cargo run -p dwell-tidy -- crates/edge`
//! prints the measures.

use dwell_tidy::types::{FIELDS_MAX, FILES_MAX, Measured};
use dwell_tidy::{Sources, comments, imports, rings, types};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

/// The bounds of one crate.
struct Bounds {
    name: &'static str,
    /// Files in the largest ring of imports.
    ring: usize,
    /// Doc comments that begin with a word of [`comments::BANNED`].
    banned: usize,
    /// Types that have more fields or files than the rule, with what they may have; the rule's own
    /// number for the other.
    wide: &'static [(&'static str, usize, usize)],
}

const CRATES: &[Bounds] = &[
    Bounds {
        name: "cli",
        ring: 2,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "dwell",
        ring: 0,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "edge",
        ring: 3,
        banned: 0,
        wide: &[("polls/mod.rs Polls", FIELDS_MAX, 5)],
    },
    Bounds {
        name: "engine",
        ring: 9,
        banned: 0,
        wide: &[
            ("http.rs Http", FIELDS_MAX, 6),
            ("http/http2/serve.rs Serve", FIELDS_MAX, 6),
            ("http/visit.rs Visit", 17, 4),
            ("manager.rs Manager", FIELDS_MAX, 4),
            ("manager/conn.rs Conn", FIELDS_MAX, 8),
            ("manager/state.rs ManagerApp", 26, 2),
            ("reply.rs Reply", 15, 4),
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
        wide: &[("blocking/client.rs Client", FIELDS_MAX, 6)],
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
        name: "redis",
        ring: 3,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "store",
        ring: 2,
        banned: 0,
        wide: &[("shard.rs Shard", FIELDS_MAX, 5)],
    },
    Bounds {
        name: "store_server",
        ring: 2,
        banned: 0,
        wide: &[("commands.rs Executor", FIELDS_MAX, 3)],
    },
    Bounds {
        name: "sim",
        ring: 0,
        banned: 0,
        wide: &[("world.rs World", 21, FILES_MAX)],
    },
    Bounds {
        name: "testkit",
        ring: 0,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "tidy",
        ring: 0,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "timers",
        ring: 2,
        banned: 0,
        wide: &[],
    },
    Bounds {
        name: "tls",
        ring: 2,
        banned: 0,
        wide: &[("session.rs Session", FIELDS_MAX, 3)],
    },
    Bounds {
        name: "upstream",
        ring: 3,
        banned: 0,
        wide: &[("client.rs Upstream", FIELDS_MAX, 3)],
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
    "responder",
    "access",
    "publish",
    "retry_after",
    "pages",
    "descriptors",
    "constant_fields",
    "log",
    "route_figures",
    "metrics",
    "config",
    "held",
    "ids",
    "query",
    "cursor",
    "published",
];

/// Rooms of which the first imports nothing of the second, although it stands above it.
const APART: &[(&str, &str)] = &[("proxy", "polls")];

/// The measures of one crate.
struct Structure {
    /// The files of the largest ring.
    ring: Vec<String>,
    types: BTreeMap<String, Measured>,
    banned: Vec<String>,
    /// The modules of the crate.
    rooms: BTreeSet<String>,
    /// Modules of which the first imports the second.
    pairs: BTreeSet<(String, String)>,
    /// Imports against the order of [`ROOMS`].
    upward: Vec<String>,
}

/// The measures of each of [`CRATES`], taken once: parsing is most of the work.
static STRUCTURES: LazyLock<Vec<(&Bounds, Structure)>> = LazyLock::new(|| {
    let crates = CRATES.iter();
    crates
        .map(|bounds| (bounds, Structure::of(bounds.name)))
        .collect()
});

impl Structure {
    fn of(name: &str) -> Self {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let crates = crates.expect("this crate stands among the others");
        let sources = Sources::read(&crates.join(name).join("src"));
        let sources = sources.expect("the sources of a crate parse");
        let files = sources.files.len();
        assert!(files > 0, "{name} has no files");
        let arrows = imports::imports(&sources);
        let rings = rings::rings(files, &arrows);
        let path = |file: &usize| sources.files[*file].path.clone();
        let room = |file| imports::room(&sources, file).to_owned();
        let between = imports::between_rooms(&sources, &arrows);
        let owned = |(from, to): (&str, &str)| (from.to_owned(), to.to_owned());
        Self {
            ring: rings.first().into_iter().flatten().map(path).collect(),
            types: types::measure(&sources),
            banned: comments::banned(&sources),
            rooms: (0..files).map(room).collect(),
            pairs: between.into_keys().map(owned).collect(),
            upward: imports::upward(&sources, ROOMS),
        }
    }
}

#[test]
fn imports_of_the_edge_run_down() {
    let mut all = STRUCTURES.iter();
    let (_, edge) = all.find(|(bounds, _)| bounds.name == "edge").unwrap();
    assert_eq!(edge.upward, [""; 0], "imports that run up");
    for (room, other) in APART {
        assert!(edge.rooms.contains(*room) && edge.rooms.contains(*other));
        let pair = ((*room).to_owned(), (*other).to_owned());
        assert!(!edge.pairs.contains(&pair), "{room} imports {other}");
    }
    let is_gone = |room: &&&str| !edge.rooms.contains(**room);
    let gone: Vec<&&str> = ROOMS.iter().filter(is_gone).collect();
    assert!(gone.is_empty(), "rooms that are gone: {gone:?}");
}

#[test]
fn rings_of_files_stay_small() {
    check(|bounds, Structure { ring, .. }| {
        let (files, most) = (ring.len(), bounds.ring);
        (files > most).then(|| format!("a ring of {files} files, at most {most}: {ring:?}"))
    });
}

#[test]
fn types_stay_small_and_in_one_place() {
    check(|bounds, structure| {
        let wide = structure.types.iter().filter_map(|(name, measured)| {
            let listed = bounds.wide.iter().find(|(listed, ..)| listed == name);
            let (_, fields_max, files_max) = listed.unwrap_or(&("", FIELDS_MAX, FILES_MAX));
            let (fields, files) = (measured.changing_fields(), measured.files.len());
            (fields > *fields_max || files > *files_max)
                .then(|| format!("{name}: {fields} fields, {files} files"))
        });
        let wide: Vec<String> = wide.collect();
        (!wide.is_empty()).then(|| wide.join("\n"))
    });
}

#[test]
fn bounds_are_the_measures_of_today() {
    check(|bounds, structure| {
        let mut pairs = vec![
            ("ring", bounds.ring, structure.ring.len()),
            ("doc comments", bounds.banned, structure.banned.len()),
        ];
        let mut loose = Vec::new();
        for (name, fields, files) in bounds.wide {
            let found = structure.types.get(*name);
            let Some(found) = found.filter(|found| !found.is_small()) else {
                loose.push(format!("{name}: small or gone"));
                continue;
            };
            pairs.push((name, *fields, found.changing_fields().max(FIELDS_MAX)));
            pairs.push((name, *files, found.files.len().max(FILES_MAX)));
        }
        let above = pairs.iter().filter(|(_, bound, measure)| bound > measure);
        loose.extend(above.map(|(name, bound, found)| format!("{name}: {found}, not {bound}")));
        (!loose.is_empty()).then(|| loose.join("\n"))
    });
}

#[test]
fn doc_comments_name_the_thing_first() {
    check(|bounds, Structure { banned, .. }| {
        (banned.len() > bounds.banned).then(|| {
            format!(
                "{} doc comments begin with {:?}, at most {}:\n{}",
                banned.len(),
                comments::BANNED,
                bounds.banned,
                banned.join("\n")
            )
        })
    });
}

/// Names of the system's sockets and clocks, and of waits.
const REAL: &[&str] = &[
    "std::net",
    "std::os",
    "std::thread",
    "socket2",
    "free_port",
    "Instant::now",
    "SystemTime::now",
    "sleep",
];

#[test]
fn polls_and_the_proxy_are_tested_without_sockets_and_without_waiting() {
    let edge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../edge/src");
    let mut pending: Vec<_> = ["polls", "proxy"].map(|room| edge.join(room)).into();
    let (mut files, mut findings) = (0, Vec::new());
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            let inner = std::fs::read_dir(&path).expect("a folder of the edge");
            pending.extend(inner.map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let Some(tests) = tests_of(path.strip_prefix(&edge).unwrap(), &text) else {
            continue;
        };
        files += 1;
        let found = REAL.iter().filter(|name| tests.contains(**name));
        findings.extend(found.map(|name| format!("{}: {name}", path.display())));
    }
    assert!(files > 40, "only {files} files have tests");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// The tests of a file below `src`: all of one that has nothing else, or the module at the end.
fn tests_of<'a>(path: &Path, text: &'a str) -> Option<&'a str> {
    let is_whole = path.ends_with("tests.rs") || path.iter().any(|part| part == "tests");
    let module = || text.find("\nmod tests {").map(|start| &text[start..]);
    if is_whole { Some(text) } else { module() }
}

#[test]
fn tests_of_a_file_are_told_from_its_code() {
    let inline = "code\n#[cfg(test)]\nmod tests {\n}";
    let tests = |path: &str| tests_of(Path::new(path), inline).map(str::len);
    assert_eq!(tests("polls/a.rs"), Some("\nmod tests {\n}".len()));
    assert_eq!(tests("polls/a/tests.rs"), Some(inline.len()));
    assert_eq!(tests("polls/tests/a.rs"), Some(inline.len()));
    assert_eq!(tests_of(Path::new("polls/a.rs"), "mod tests;"), None);
}

/// Fails with what `rule` finds in each crate.
fn check(rule: impl Fn(&Bounds, &Structure) -> Option<String>) {
    let findings: Vec<String> = STRUCTURES
        .iter()
        .filter_map(|(bounds, structure)| {
            let found = rule(bounds, structure)?;
            Some(format!("{}: {found}", bounds.name))
        })
        .collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
