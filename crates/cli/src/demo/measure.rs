//! The figures that the kernel has of a process, and its clock.

use std::fs;

/// The figures of one process, of which a kernel may lack some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measured {
    /// Resident memory. Units: bytes.
    pub(super) resident: Option<u64>,
    /// Time on a processor since the start, of all threads. Units: nanoseconds.
    pub(super) cpu_ns: Option<u64>,
    pub(super) threads: usize,
}

/// Reads the figures of process `id`.
///
/// Shape: reading the memory holds the locks of its page tables, so not while it is under load.
pub(super) fn measure(id: u32) -> Measured {
    let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup"));
    Measured {
        resident: rollup.ok().and_then(|text| resident(&text)),
        cpu_ns: cpu_ns(id),
        threads: threads(id).len(),
    }
}

/// Returns the time that the threads of process `id` have had a processor. Units: nanoseconds.
pub(super) fn cpu_ns(id: u32) -> Option<u64> {
    let times = threads(id).into_iter().map(|thread| {
        let text = fs::read_to_string(format!("/proc/{id}/task/{thread}/schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    // A thread that has ended meanwhile took its time with it; these threads last.
    times.sum::<Option<u64>>().filter(|time| *time > 0)
}

/// The time that is common to all processes. Units: nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn threads(id: u32) -> Vec<String> {
    let Ok(folder) = fs::read_dir(format!("/proc/{id}/task")) else {
        return Vec::new();
    };
    let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    folder.flatten().filter_map(name).collect()
}

fn resident(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_time_and_threads() {
        let measured = measure(std::process::id());
        assert!(measured.resident.is_some_and(|bytes| bytes > 100_000));
        assert!(measured.cpu_ns.is_some());
        assert!(measured.threads > 0);
    }

    #[test]
    fn a_process_that_has_ended_has_none() {
        assert_eq!(measure(u32::MAX), Measured::default());
    }

    #[test]
    fn the_resident_memory_is_in_kilobytes() {
        let rollup = "1-2 ---p 0 0:0 0 [rollup]\nRss:               20040 kB\nPss:  1 kB\n";
        assert_eq!(resident(rollup), Some(20040 * 1024));
        assert_eq!(resident("Pss: 1 kB\n"), None);
    }
}
