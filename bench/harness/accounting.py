"""What the operating system has counted for a process: CPU, memory, threads, wake-ups.

CPU per request comes from here rather than from throughput, because on shared cores the time a
server ran is steady where the work it got done in a second is not.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
# The state of a socket in /proc/net/tcp (include/net/tcp_states.h).
TCP_LISTEN = "0A"


@dataclass(frozen=True)
class ProcessStat:
    """The fields of /proc/PID/stat used here (proc(5))."""

    pid: int
    parent: int
    user_ticks: int
    system_ticks: int
    start_ticks: int

    @property
    def cpu_seconds(self) -> float:
        """User plus system time of all threads, ended ones included."""
        return (self.user_ticks + self.system_ticks) / CLOCK_TICKS_PER_SECOND


def parse_stat(line: str) -> ProcessStat:
    """Reads one line of /proc/PID/stat.

    The command name stands in parentheses and may itself hold spaces and parentheses, so the
    fields are counted from the last closing one.
    """
    before, _, after = line.rpartition(")")
    fields = after.split()
    return ProcessStat(
        pid=int(before.split(" ", 1)[0]),
        parent=int(fields[1]),
        user_ticks=int(fields[11]),
        system_ticks=int(fields[12]),
        start_ticks=int(fields[19]),
    )


def read_stat(pid: int) -> ProcessStat | None:
    """The accounting of one process, or None if it has ended."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def all_stats() -> list[ProcessStat]:
    """The accounting of every process on the machine."""
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return [stat for stat in map(read_stat, pids) if stat is not None]


def descendants(root: int, stats: Iterable[ProcessStat]) -> list[ProcessStat]:
    """The process `root` and everything it started, parents before children."""
    stats = list(stats)
    tree = [stat for stat in stats if stat.pid == root]
    for parent in tree:
        tree.extend(stat for stat in stats if stat.parent == parent.pid)
    return tree


def process_tree(root: int) -> list[ProcessStat]:
    """`descendants` of a process as they are now."""
    return descendants(root, all_stats())


def cpu_seconds(root: int) -> float:
    """CPU time of a process and its children so far, in clock ticks of 10 ms."""
    return sum(stat.cpu_seconds for stat in process_tree(root))


def task_directories(root: int) -> list[Path]:
    """One /proc directory per thread of a process and its children."""
    found: list[Path] = []
    for stat in process_tree(root):
        try:
            found.extend((PROC / str(stat.pid) / "task").iterdir())
        except FileNotFoundError:
            continue
    return found


def fine_cpu_seconds(root: int) -> float:
    """CPU time of the living threads to the nanosecond, for spans too short for clock ticks.

    The scheduler's own sum (/proc/PID/task/TID/schedstat); a thread that ends takes its share with
    it, so this is for servers whose threads stay.
    """
    total = 0
    for task in task_directories(root):
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1e9


def process_cpu_seconds(pid: int) -> float:
    """CPU time of one process so far, in clock ticks, with its ended threads; 0 once it is gone."""
    stat = read_stat(pid)
    return 0.0 if stat is None else stat.cpu_seconds


def thread_count(root: int) -> int:
    """Threads of a process and its children."""
    return len(task_directories(root))


def wakeups(root: int) -> int:
    """How often threads of the process went to sleep and were woken again, so far."""
    total = 0
    for task in task_directories(root):
        try:
            status = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += parse_field(status, "voluntary_ctxt_switches")
    return total


def is_listening(port: int) -> bool:
    """Whether somebody listens on a TCP port of IPv4."""
    return has_listener((PROC / "net" / "tcp").read_text(), port)


def has_listener(table: str, port: int) -> bool:
    """Whether a table of sockets as in /proc/net/tcp has one that listens on a port."""
    for line in table.splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == TCP_LISTEN and int(local.rpartition(":")[2], 16) == port:
            return True
    return False


def user_bytes(root: int) -> int:
    """Resident user memory of a process and its children (Rss of /proc/PID/smaps_rollup)."""
    total = 0
    for stat in process_tree(root):
        try:
            rollup = (PROC / str(stat.pid) / "smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += parse_field(rollup, "Rss") * 1024
    return total


def kernel_bytes() -> int:
    """Memory of the kernel's own objects, sockets among them (Slab of /proc/meminfo)."""
    return parse_field((PROC / "meminfo").read_text(), "Slab") * 1024


def parse_field(text: str, name: str) -> int:
    """The number after `name:` in one of /proc's "Name: value" files."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise ValueError(f"no field {name}")
