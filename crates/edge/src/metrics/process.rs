//! Figures of the process from the operating system.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// Figures of the process, as far as the system has `/proc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub(crate) struct ProcessFigures {
    /// Units: seconds.
    pub(crate) cpu_seconds: f64,
    /// Units: bytes.
    pub(crate) resident_bytes: u64,
    pub(crate) open_fds: Option<u64>,
    /// The limit on open descriptors; `None` is no limit.
    pub(crate) max_fds: Option<u64>,
}

impl ProcessFigures {
    pub(crate) fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        Some(Self {
            cpu_seconds: cpu_seconds(&stat).map(|(user, system)| user + system)?,
            resident_bytes: resident_bytes(&status)?,
            open_fds: open_fds(),
            max_fds: getrlimit(Resource::Nofile).current,
        })
    }
}

/// The name of the machine, or of the container.
pub(crate) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// The smallest limit on memory of the control groups of the process, if one has a limit. Units:
/// bytes.
///
/// Source: the kernel's `admin-guide/cgroup-v2`, `memory.max`.
pub(crate) fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_limit_in(Path::new("/sys/fs/cgroup"), &groups)
}

fn memory_limit_in(root: &Path, groups: &str) -> Option<u64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = root.join(group);
    let folders = folder
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    let limits = folders.filter_map(|folder| fs::read_to_string(folder.join("memory.max")).ok());
    limits.filter_map(|limit| limit.trim().parse().ok()).min()
}

/// CPU time of the process in user and system mode. Units: seconds.
pub(crate) fn cpu_times() -> Option<(f64, f64)> {
    cpu_seconds(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// The size of the folder, which is the number of its entries since Linux 6.2 and was 0 before.
/// Counting many entries would block the loop for milliseconds.
fn open_fds() -> Option<u64> {
    let count = fs::metadata("/proc/self/fd").ok()?.len();
    (count > 0).then_some(count)
}

/// Source: `proc_pid_stat(5)`, fields 14 and 15.
#[expect(
    clippy::cast_precision_loss,
    reason = "a sum is shown, not computed with"
)]
fn cpu_seconds(stat: &str) -> Option<(f64, f64)> {
    // The second field is the program's name in parentheses, which may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((
        user as f64 / TICKS_PER_SECOND,
        system as f64 / TICKS_PER_SECOND,
    ))
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Ticks that Linux reports on every common architecture, whatever the kernel's own rate.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_hides_nothing() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 1 0 0 0 250 50 0 0 20 0 3 0 9 9 9";
        assert_eq!(cpu_seconds(stat), Some((2.5, 0.5)));
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(
            resident_bytes("Name:\tx\nVmRSS:\t    1234 kB\nX: 1\n"),
            Some(1234 * 1024)
        );
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }

    #[test]
    fn the_smallest_limit_of_the_groups_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (root, group) = (folder.path(), folder.path().join("pod/container"));
        fs::create_dir_all(&group).unwrap();
        let limit = |groups: &str| memory_limit_in(root, groups);
        let of_both = "4:cpu:/other\n0::/pod/container\n";
        assert_eq!(limit(of_both), None, "no group has the file");
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit(of_both), None);
        fs::write(root.join("memory.max"), "3000\n").unwrap();
        assert_eq!(limit(of_both), Some(3000));
        fs::write(root.join("pod/memory.max"), "2000\n").unwrap();
        assert_eq!(
            limit(of_both),
            Some(2000),
            "the container has none of its own"
        );
        fs::write(group.join("memory.max"), "2500\n").unwrap();
        assert_eq!(limit(of_both), Some(2000));
        fs::write(group.join("memory.max"), "1000\n").unwrap();
        assert_eq!(limit(of_both), Some(1000));
        assert_eq!(
            limit("0::/\n"),
            Some(3000),
            "a namespace shows its own group as the root"
        );
        assert_eq!(
            limit("4:memory:/pod/container\n"),
            None,
            "version 1 is not read"
        );
        assert_eq!(limit(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory() {
        let figures = ProcessFigures::read().expect("Linux has /proc");
        assert!(figures.resident_bytes > 0, "{figures:?}");
    }
}
