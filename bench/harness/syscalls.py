"""System calls and turns per request, from a short run of their own.

Counted by the kernel's tracepoints under `perf stat`, at nearly full speed, where the system has
them: how many requests a server takes in one turn depends on its speed. Elsewhere under `strace -c
-f`, which slows it several times over. Nothing else is taken from this run. The counts include
opening and closing the 100 connections, which over a few seconds is about 0.03 calls per request.
"""

import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from harness import accounting, wrk
from harness.contenders import Running
from harness.stage import ContenderError

# Calls that wait for events: one for each turn of an event loop.
WAITS = ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "select", "pselect6")
ANY_CALL = "raw_syscalls:sys_enter"
ONE_CALL = "syscalls:sys_enter_"
OPENED_SECONDS = 4.0


def parse_summary(summary: str) -> dict[str, int]:
    """Reads the table of `strace -c`: calls by name, without its total."""
    calls: dict[str, int] = {}
    for line in summary.splitlines():
        fields = line.split()
        # "% time", seconds, usecs/call, calls, [errors,] name
        if len(fields) not in (5, 6) or not fields[3].isdigit() or fields[-1] == "total":
            continue
        calls[fields[-1]] = int(fields[3])
    return calls


def parse_counts(counts: str) -> dict[str, int]:
    """Reads the lines of `perf stat -x,`: all calls as `total`, and those that wait by name."""
    calls: dict[str, int] = {}
    for line in counts.splitlines():
        # count, unit, event, and more; "<not supported>" for a call the system does not have
        count, _, rest = line.partition(",")
        event = rest.partition(",")[2].partition(",")[0]
        if not count.isdigit():
            continue
        if event == ANY_CALL:
            calls["total"] = int(count)
        elif event.startswith(ONE_CALL) and int(count) > 0:
            calls[event.removeprefix(ONE_CALL)] = int(count)
    return calls


def with_turns(calls: dict[str, int], requests: int) -> dict[str, float]:
    """Calls per request by name, their sum as `total`, and those that wait as `turns`."""
    calls = {"total": sum(calls.values()), **calls}
    turns = sum(calls.get(name, 0) for name in WAITS)
    return {name: count / requests for name, count in {**calls, "turns": turns}.items()}


def per_request(running: Running, seconds: float, directory: Path) -> dict[str, float]:
    """System calls per request by name, under `total` their sum, and under `turns` those that wait.

    Raises:
        ContenderError: neither perf nor strace is allowed to count, or the load failed.
    """
    counted = _by_perf(running, seconds, directory / "perf")
    return counted or _by_strace(running, seconds, directory / "strace")


def _by_perf(running: Running, seconds: float, output: Path) -> dict[str, float] | None:
    if shutil.which("perf") is None:
        return None
    events = ",".join([ANY_CALL, *(ONE_CALL + name for name in WAITS)])
    pids = ",".join(str(stat.pid) for stat in accounting.process_tree(running.program.pid))
    command = ["perf", "stat", "-x,", "-e", events, "-o", str(output), "-p", pids]
    counter = _start(command)
    report = None
    try:
        if _wait_counted(counter):
            report = wrk.run(running.url, seconds, running.keys, running.fields)
    finally:
        _end(counter)
    calls = parse_counts(output.read_text()) if report and output.exists() else {}
    return with_turns(calls, report.requests) if report and calls.get("total") else None


def _by_strace(running: Running, seconds: float, output: Path) -> dict[str, float]:
    pid = running.program.pid
    targets = [part for stat in accounting.process_tree(pid) for part in ("-p", str(stat.pid))]
    tracer = _start(["strace", "-c", "-f", "-q", "-o", str(output), *targets])
    complaint = ""
    try:
        _wait_traced(pid, tracer)
        report = wrk.run(running.url, seconds, running.keys, running.fields)
    finally:
        complaint = _end(tracer)
        summary = output.read_text() if output.exists() else ""
    calls = parse_summary(summary)
    if not calls:
        raise ContenderError(f"strace counted nothing: {complaint.strip()}")
    return with_turns(calls, report.requests)


def _start(command: Sequence[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(counter: "subprocess.Popen[str]") -> str:
    """Has it write what it has counted; returns its complaints."""
    counter.send_signal(signal.SIGINT)
    _, complaint = counter.communicate(timeout=30)
    return complaint


def _wait_counted(counter: "subprocess.Popen[str]") -> bool:
    """Waits until perf has opened its counters; false if it has ended instead."""
    end, before = time.monotonic() + OPENED_SECONDS, 0
    while time.monotonic() < end and counter.poll() is None:
        try:
            opened = len(list(Path(f"/proc/{counter.pid}/fd").iterdir()))
        except OSError:
            break
        if opened > len(WAITS) and opened == before:
            return True
        before = opened
        time.sleep(0.1)
    return False


def _wait_traced(pid: int, tracer: "subprocess.Popen[str]") -> None:
    for _ in range(200):
        status = Path(f"/proc/{pid}/status").read_text()
        if accounting.parse_field(status, "TracerPid") != 0:
            return
        if tracer.poll() is not None:
            break
        time.sleep(0.02)
    raise ContenderError("strace could not attach")
