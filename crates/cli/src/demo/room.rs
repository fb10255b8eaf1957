//! The number of clients for which the machine has room.

use rustix::process::{Resource, getrlimit};
use std::fs;

/// Resources of the machine that bound the clients of one transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Descriptors that one process may open; `None` is no limit.
    pub(super) descriptors: Option<u64>,
    /// Local ports for connections to one address.
    pub(super) ports: u64,
    /// Memory that is free, of the machine or of its control group. Units: bytes.
    pub(super) memory: Option<u64>,
}

/// A number of clients, and the reason why there are no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) clients: usize,
    /// The limit that cut the number that was asked for.
    pub(super) limit: Option<String>,
}

impl Room {
    /// Reads the limits of this process and machine.
    pub(super) fn measure() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        Self {
            descriptors: getrlimit(Resource::Nofile).maximum,
            ports: read("/proc/sys/net/ipv4/ip_local_port_range")
                .and_then(|range| ports(&range))
                .unwrap_or(PORTS_DEFAULT),
            memory: memory(&read),
        }
    }

    /// The clients of each transport, at most `wanted`.
    pub(super) fn grant(&self, wanted: usize) -> Granted {
        let mut bounds = vec![(
            CLIENTS_MAX,
            format!("the demonstration has at most {CLIENTS_MAX} clients of each kind"),
        )];
        if let Some(descriptors) = self.descriptors {
            let reason = format!("a process may open {descriptors} files here (`ulimit -Hn`)");
            bounds.push((
                at_most(descriptors.saturating_sub(DESCRIPTORS_KEPT)),
                reason,
            ));
        }
        // The kernel gives out half of the range first. For each port of the other half it searches
        // all of the first one again, so that a connection takes milliseconds.
        let ports = self.ports / 2;
        let reason = format!(
            "the kernel gives out half of the local ports quickly: {ports} \
             (net.ipv4.ip_local_port_range)"
        );
        bounds.push((at_most(ports), reason));
        if let Some(memory) = self.memory {
            let reason = format!("{} MiB of memory are free", memory >> 20);
            bounds.push((at_most(memory / 2 / CLIENT_BYTES), reason));
        }
        let smallest = bounds.into_iter().min_by_key(|(bound, _)| *bound);
        match smallest {
            Some((bound, reason)) if bound < wanted => Granted {
                clients: bound,
                limit: Some(reason),
            },
            _ => Granted {
                clients: wanted,
                limit: None,
            },
        }
    }
}

fn at_most(bound: u64) -> usize {
    usize::try_from(bound).unwrap_or(usize::MAX)
}

fn ports(range: &str) -> Option<u64> {
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    Some((last + 1).saturating_sub(first))
}

/// The free memory, of the machine or of the tightest control group of this process.
fn memory(read: &impl Fn(&str) -> Option<String>) -> Option<u64> {
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    });
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let groups = groups.lines().filter_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        match controllers {
            "" => Some(("/sys/fs/cgroup", path, "memory.max", "memory.current")),
            "memory" => Some((
                "/sys/fs/cgroup/memory",
                path,
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            )),
            _ => None,
        }
    });
    let of_groups = groups.flat_map(|(root, path, limit, usage)| {
        // A group is bound by those around it; in a container its path may begin elsewhere.
        let ends = path.match_indices('/').map(|(end, _)| end);
        ends.chain([path.len()]).filter_map(move |end| {
            let number = |name: &str| -> Option<u64> {
                let text = read(&format!("{root}{}/{name}", &path[..end]))?;
                text.trim().parse().ok()
            };
            Some(number(limit)?.saturating_sub(number(usage)?))
        })
    });
    machine.into_iter().chain(of_groups).min()
}

/// The most clients of one transport, whatever room there is.
pub(crate) const CLIENTS_MAX: usize = 40_000;

/// Clients of one transport unless another number is asked for.
pub(crate) const CLIENTS_DEFAULT: usize = 10_000;

/// Descriptors that are not for clients: of the loop, of logs, and what a server keeps for its
/// store and its admin listener.
const DESCRIPTORS_KEPT: u64 = 128;

/// Linux's own range.
const PORTS_DEFAULT: u64 = 28_232;

/// Memory of a client over each of the three transports, of which most is the kernel's for the two
/// sockets of each connection. Units: bytes.
const CLIENT_BYTES: u64 = 3 * 12 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: Room = Room {
        descriptors: None,
        ports: 28_232,
        memory: None,
    };

    fn granted(room: Room, wanted: usize) -> (usize, String) {
        let granted = room.grant(wanted);
        (granted.clients, granted.limit.unwrap_or_default())
    }

    #[test]
    fn a_large_machine_has_room_for_all() {
        for wanted in [0, 1, 200, CLIENTS_DEFAULT] {
            assert_eq!(granted(LARGE, wanted), (wanted, String::new()));
        }
    }

    #[test]
    fn the_smallest_bound_cuts_the_number_and_is_named() {
        let files = Room {
            descriptors: Some(1024),
            ..LARGE
        };
        let ports = Room {
            ports: 100,
            ..files
        };
        let memory = Room {
            memory: Some(32 << 20),
            ..files
        };
        for (room, clients, word) in [
            (LARGE, 14_116, "local ports quickly: 14116"),
            (
                Room {
                    ports: 100_000,
                    ..LARGE
                },
                CLIENTS_MAX,
                "at most 40000",
            ),
            (files, 896, "1024 files"),
            (ports, 50, "local ports quickly: 50 "),
            (memory, 455, "32 MiB"),
        ] {
            let (cut, limit) = granted(room, usize::MAX);
            assert_eq!(cut, clients, "{limit}");
            assert!(limit.contains(word), "{limit}");
        }
        let none = Room {
            descriptors: Some(64),
            ..LARGE
        };
        assert_eq!(granted(none, 1).0, 0);
    }

    #[test]
    fn the_tightest_group_bounds_the_memory() {
        let files = |path: &str| {
            let text = match path {
                "/proc/meminfo" => "MemTotal: 9 kB\nMemAvailable:    1000 kB\n",
                "/proc/self/cgroup" => "4:memory:/a/b\n1:name=systemd:/a\n0::/\n",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes" => "5000\n",
                "/sys/fs/cgroup/memory/a/memory.usage_in_bytes" => "2000\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes" => "9223372036854771712\n",
                "/sys/fs/cgroup/memory/memory.usage_in_bytes" => "2001\n",
                "/sys/fs/cgroup/memory.max" => "max\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        assert_eq!(memory(&files), Some(3000));
        let machine_alone = |path: &str| files(path).filter(|_| path == "/proc/meminfo");
        assert_eq!(memory(&machine_alone), Some(1_024_000));
        assert_eq!(memory(&|_: &str| None), None);
    }

    #[test]
    fn a_range_of_ports_has_both_ends() {
        assert_eq!(ports("32768\t60999\n"), Some(28_232));
        assert_eq!(ports("5\n"), None);
    }
}
