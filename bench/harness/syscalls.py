"""System calls per request, from a short run of their own under `strace -c -f`.

Tracing slows the server several times over, so nothing else is taken from this run. The counts
include opening and closing the 100 connections, which over a few seconds is about 0.03 calls
per request.
"""

import signal
import subprocess
import time
from pathlib import Path

from harness import accounting, wrk
from harness.contenders import Running
from harness.stage import ContenderError


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


def per_request(running: Running, seconds: float, directory: Path) -> dict[str, float]:
    """System calls per request by name, and under `total` their sum.

    Raises:
        ContenderError: strace is not allowed to trace, or the load failed.
    """
    pid = running.program.pid
    output = directory / "strace"
    targets = [part for stat in accounting.process_tree(pid) for part in ("-p", str(stat.pid))]
    tracer = subprocess.Popen(
        ["strace", "-c", "-f", "-q", "-o", str(output), *targets],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_traced(pid, tracer)
        report = wrk.run(running.url, seconds, running.keys, running.fields)
    finally:
        tracer.send_signal(signal.SIGINT)
        _, complaint = tracer.communicate(timeout=30)
        summary = output.read_text() if output.exists() else ""
    calls = parse_summary(summary)
    if not calls:
        raise ContenderError(f"strace counted nothing: {complaint.strip()}")
    calls_per_request = {name: count / report.requests for name, count in calls.items()}
    return {"total": sum(calls_per_request.values()), **calls_per_request}


def _wait_traced(pid: int, tracer: "subprocess.Popen[str]") -> None:
    for _ in range(200):
        status = Path(f"/proc/{pid}/status").read_text()
        if accounting.parse_field(status, "TracerPid") != 0:
            return
        if tracer.poll() is not None:
            break
        time.sleep(0.02)
    raise ContenderError("strace could not attach")
