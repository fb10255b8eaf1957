//! The layers: the crates that each crate may depend on.

use crate::{assert_clean, workspace_root};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// One workspace member and what it may depend on outside of tests.
struct Layer {
    name: &'static str,
    /// Members of the workspace.
    inside: &'static [&'static str],
    /// Packages from the registry; `None` when any are welcome (`deny.toml` still applies).
    outside: Option<&'static [&'static str]>,
}

/// The layers, lowest first. A member may name only members above its own line here.
const LAYERS: &[Layer] = &[
    Layer {
        name: "dwell-timers",
        inside: &[],
        outside: Some(&[]),
    },
    Layer {
        name: "dwell-metrics",
        inside: &[],
        outside: Some(&[]),
    },
    Layer {
        name: "dwell-proto",
        inside: &[],
        outside: Some(&[
            "base64", "bytes", "flate2", "httparse", "httpdate", "itoa", "memchr", "sha1",
            "simdutf8",
        ]),
    },
    Layer {
        name: "dwell-tls",
        inside: &[],
        outside: Some(&[
            "aws-lc-rs",
            "rustls",
            "rustls-native-certs",
            "rustls-webpki",
            "zeroize",
        ]),
    },
    Layer {
        name: "dwell-store",
        inside: &["dwell-metrics"],
        outside: Some(&[
            "bytes",
            "foldhash",
            "hashbrown",
            "itoa",
            "memchr",
            "rustix",
            "triomphe",
            "xxhash-rust",
        ]),
    },
    Layer {
        name: "dwell-evloop",
        inside: &["dwell-timers", "dwell-tls"],
        outside: None,
    },
    Layer {
        name: "dwell-engine",
        inside: &["dwell-evloop", "dwell-proto", "dwell-timers"],
        outside: None,
    },
    Layer {
        name: "dwell-memcache",
        inside: &[
            "dwell-evloop",
            "dwell-metrics",
            "dwell-proto",
            "dwell-timers",
            "dwell-tls",
        ],
        outside: None,
    },
    Layer {
        name: "dwell-redis",
        inside: &["dwell-evloop", "dwell-metrics", "dwell-proto"],
        outside: Some(&["crc16"]),
    },
    Layer {
        name: "dwell",
        inside: &[
            "dwell-engine",
            "dwell-evloop",
            "dwell-memcache",
            "dwell-proto",
            "dwell-store",
            "dwell-timers",
        ],
        outside: Some(&[]),
    },
    Layer {
        name: "dwell-store-server",
        inside: &[
            "dwell-evloop",
            "dwell-metrics",
            "dwell-proto",
            "dwell-store",
        ],
        outside: None,
    },
    Layer {
        name: "dwell-upstream",
        inside: &["dwell-evloop", "dwell-proto"],
        outside: None,
    },
    Layer {
        name: "dwell-edge",
        inside: &[
            "dwell-engine",
            "dwell-evloop",
            "dwell-memcache",
            "dwell-metrics",
            "dwell-proto",
            "dwell-redis",
            "dwell-store",
            "dwell-store-server",
            "dwell-timers",
            "dwell-upstream",
        ],
        outside: None,
    },
    Layer {
        name: "dwell-cli",
        inside: &[
            "dwell-edge",
            "dwell-engine",
            "dwell-memcache",
            "dwell-proto",
        ],
        outside: None,
    },
    Layer {
        name: "dwell-capi",
        inside: &["dwell-engine", "dwell-evloop"],
        outside: Some(&[]),
    },
    Layer {
        name: "dwell-python",
        inside: &[
            "dwell-engine",
            "dwell-evloop",
            "dwell-memcache",
            "dwell-proto",
            "dwell-timers",
        ],
        outside: None,
    },
    Layer {
        name: TESTKIT,
        // It has drivers of loops, and servers on a simulated network.
        inside: &["dwell-engine", "dwell-evloop"],
        outside: None,
    },
    Layer {
        name: SIMULATOR,
        inside: &["dwell-edge", "dwell-evloop", "dwell-memcache", TESTKIT],
        // Its clients under TLS and of HTTP/2.
        outside: Some(&["aws-lc-rs", "loona-hpack", "rustls"]),
    },
    Layer {
        name: "dwell-tidy",
        inside: &[],
        outside: Some(&["proc-macro2", "syn"]),
    },
    Layer {
        name: "dwell-bench-floor",
        inside: &[],
        outside: None,
    },
];

/// The one member that others may name, and only among their dev-dependencies; the simulator, of
/// which no program is made, has its servers.
const TESTKIT: &str = "dwell-testkit";

/// The member that plays the whole edge on a simulated network, and no program is made of.
const SIMULATOR: &str = "dwell-sim";

/// One dependency as written in a manifest.
#[derive(Clone, Copy)]
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    is_dev: bool,
    is_member: bool,
}

#[test]
fn members_keep_to_their_layers() {
    let metadata = metadata();
    let members: Vec<&str> = metadata
        .workspace_packages()
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let mut findings: Vec<String> = members.iter().filter_map(|name| unlisted(name)).collect();
    for package in metadata.workspace_packages() {
        for dependency in &package.dependencies {
            let edge = Edge {
                from: &package.name,
                to: &dependency.name,
                is_dev: dependency.kind == DependencyKind::Development,
                is_member: members.contains(&dependency.name.as_str()),
            };
            findings.extend(refused(edge));
        }
    }
    assert_clean(&findings);
}

#[test]
fn the_table_itself_points_downwards() {
    for (place, layer) in LAYERS.iter().enumerate() {
        for name in layer.inside {
            let below = LAYERS.iter().position(|other| other.name == *name);
            assert!(
                below.is_some_and(|below| below < place),
                "{} -> {name}",
                layer.name
            );
        }
    }
}

#[test]
fn upward_sideways_and_stray_dependencies_are_refused() {
    let member = |from, to| Edge {
        from,
        to,
        is_dev: false,
        is_member: true,
    };
    let registry = |from, to| Edge {
        from,
        to,
        is_dev: false,
        is_member: false,
    };
    for edge in [
        member("dwell-timers", "dwell-evloop"),
        member("dwell-engine", "dwell-edge"),
        member("dwell-edge", "dwell-cli"),
        member("dwell-engine", "dwell-memcache"),
        member("dwell-store", "dwell-proto"),
        member("dwell-edge", TESTKIT),
        registry("dwell-timers", "itoa"),
        registry("dwell-metrics", "itoa"),
        registry("dwell-proto", "mio"),
        registry("dwell-tls", "mio"),
        member("dwell-tls", "dwell-evloop"),
        registry("dwell-store", "socket2"),
        Edge {
            from: "dwell-proto",
            to: "dwell-edge",
            is_dev: true,
            is_member: true,
        },
    ] {
        assert!(
            refused(edge).is_some(),
            "{} -> {} passed",
            edge.from,
            edge.to
        );
    }
    assert!(unlisted("dwell-newcomer").is_some());
}

#[test]
fn downward_dependencies_and_the_testkit_in_tests_are_allowed() {
    for edge in [
        Edge {
            from: "dwell-edge",
            to: "dwell-store",
            is_dev: false,
            is_member: true,
        },
        Edge {
            from: "dwell-proto",
            to: "httparse",
            is_dev: false,
            is_member: false,
        },
        Edge {
            from: "dwell-evloop",
            to: "mio",
            is_dev: false,
            is_member: false,
        },
        Edge {
            from: "dwell-timers",
            to: "proptest",
            is_dev: true,
            is_member: false,
        },
        Edge {
            from: "dwell-engine",
            to: TESTKIT,
            is_dev: true,
            is_member: true,
        },
    ] {
        assert_eq!(refused(edge), None);
    }
}

/// The feature of simulated sockets and time.
const SIM: &str = "sim";

#[test]
fn no_build_of_a_program_has_simulated_sockets() {
    let mut findings = Vec::new();
    for package in metadata().workspace_packages() {
        let name = package.name.as_str();
        for dependency in &package.dependencies {
            // Only those who ask for the feature of the testkit get it there.
            let is_asked_for = [TESTKIT, SIMULATOR].contains(&name) && dependency.optional;
            let is_dev = dependency.kind == DependencyKind::Development;
            let has_it = dependency.features.iter().any(|feature| feature == SIM);
            if has_it && !is_dev && !is_asked_for {
                findings.push(format!("{name} builds {} with {SIM}", dependency.name));
            }
        }
        for (feature, others) in &package.features {
            let is_its = |other: &String| other == SIM || other.ends_with("/sim");
            if feature != SIM && others.iter().any(is_its) {
                findings.push(format!("{name}: {feature} has {SIM} in it"));
            }
        }
    }
    assert_clean(&findings);
}

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(workspace_root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata reads the workspace")
}

fn unlisted(name: &str) -> Option<String> {
    let listed = LAYERS.iter().any(|layer| layer.name == name);
    (!listed).then(|| format!("{name} has no line in the table of layers"))
}

fn refused(edge: Edge<'_>) -> Option<String> {
    let layer = LAYERS.iter().find(|layer| layer.name == edge.from)?;
    let allowed = match (edge.is_member, edge.is_dev) {
        (true, true) => edge.to == TESTKIT || layer.inside.contains(&edge.to),
        (true, false) => layer.inside.contains(&edge.to),
        (false, true) => true,
        (false, false) => layer.outside.is_none_or(|names| names.contains(&edge.to)),
    };
    (!allowed).then(|| format!("{} may not depend on {}", edge.from, edge.to))
}
