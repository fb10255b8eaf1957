"""The memcached client, beside its peers and beside other ways to give operations a timeout.

The sequence is that of the benchmark memcache-client had in 2009: 2,500 iterations of 12
operations, 30,000 in all, half of them sets.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import machine, memcached, results
from harness.measure import Row
from harness.paths import BENCH, REPOSITORY, RESULTS
from harness.stage import HOST, Stage

ITERATIONS = 2500
OPERATIONS_PER_ITERATION = 12
# strace makes everything slow; the count per operation is the same.
TRACED_ITERATIONS = (20, 120)
SERVER_CORE, CLIENT_CORE = 0, 1
FAULTS = ("drip", "hole")
FAULT_SECONDS = 60

# Those of bench/memcache/python_clients.py; the others are in the program beside it.
PYTHON_CONTENDERS = {
    "dwell_python",
    "dwell_asyncio",
    "pymemcache_none",
    "pymemcache",
    "pylibmc_default",
    "pylibmc",
}

# Name of the contender -> label of its row. "raw" rows share a client of a few lines, so that
# they differ in the timeout alone.
CONTENDERS = {
    "dwell_none": "dwell-memcache, no timeout",
    "dwell_kernel": "dwell-memcache, kernel",
    "dwell_reaper": "dwell-memcache, reaper",
    "dwell_strict": "dwell-memcache, strict",
    "dwell_ring": "dwell-memcache, kernel, ring of two",
    "dwell_python": "dwell.memcache, from Python",
    "dwell_asyncio": "dwell.memcache, from asyncio",
    "raw_none": "raw, no timeout",
    "raw_kernel": "raw, SO_RCVTIMEO once (2009)",
    "raw_alarm": "raw, alarm per operation",
    "raw_rearm": "raw, SO_RCVTIMEO before each call",
    "raw_pollfirst": "raw, poll before each call",
    "raw_watchdog": "raw, a watchdog thread, woken",
    "raw_thread": "raw, a watchdog thread per operation",
    "memcache_ascii": "crate memcache 0.21, text",
    "async_memcached": "crate async-memcached 0.9",
    "async_memcached_timeout": "the same under tokio's timeout",
    "pymemcache_none": "pymemcache 4, no timeout",
    "pymemcache": "pymemcache 4",
    "pylibmc_default": "pylibmc 1.6, as it comes",
    "pylibmc": "pylibmc 1.6, _poll_timeout",
}
UNBOUNDED = ("dwell_none", "raw_none", "async_memcached", "pymemcache_none")

# Figure -> head of its column.
FIGURES = {
    "us": "us/op, best / median",
    "cpu_us": "CPU us/op, best / median",
    "syscalls": "calls/op",
    "switches": "switches/op",
    "drip_s": "drip, s",
    "hole_s": "silent, s",
}


def calls_total(summary: str) -> int:
    """The calls in a summary of `strace -c`.

    Raises:
        ValueError: there is no total.
    """
    found = re.search(r"^100\.00\s+\S+\s+\S+\s+(\d+)\s+(?:\d+\s+)?total$", summary, re.MULTILINE)
    if found is None:
        raise ValueError(f"strace printed no total: {summary}")
    return int(found[1])


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The table, in Markdown."""
    lines = [
        "| client or timeout | " + " | ".join(FIGURES.values()) + " |",
        "|---|" + "---:|" * len(FIGURES),
    ]
    for row in rows:
        median, cells = row["median"], []
        for figure in FIGURES:
            value = median.get(figure)
            if value is None:
                cells.append("-")
            elif figure.endswith("us"):
                # Whatever else the machine does only adds.
                best = min(sample[figure] for sample in row["samples"])
                cells.append(f"{best:.1f} / {value:.1f}")
            elif figure.endswith("_s"):
                cells.append(f"{value:.2f} {row['ends'].get(figure, '')}".strip())
            else:
                cells.append(f"{value:.2f}")
        lines.append(f"| {row['label']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


class Bench:
    """The built programs, and how they are run."""

    def __init__(self) -> None:
        base = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
        target = REPOSITORY / base / "bench-memcache"
        build = ["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", str(target)]
        if subprocess.run(build, cwd=BENCH / "memcache", check=False).returncode != 0:
            sys.exit("bench/run-memcache cannot build bench/memcache")
        self.program = str(target / "release" / "dwell-bench-memcache")
        self.python = str(REPOSITORY / ".venv" / "bin" / "python")

    def command(self, contender: str) -> list[str]:
        """The program of a contender."""
        if contender in PYTHON_CONTENDERS:
            return [self.python, str(BENCH / "memcache" / "python_clients.py")]
        return [self.program]

    def words(self, contender: str, *arguments: str) -> list[str]:
        """What one run prints, in words."""
        command = ["taskset", "-c", str(CLIENT_CORE), *self.command(contender), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{contender}: {done.stderr.strip()}")
        return done.stdout.split()

    def mixed(self, contender: str, server: str, iterations: int) -> dict[str, float]:
        """One run of the sequence."""
        values = self.words(contender, "mixed", contender, server, str(iterations))
        return dict(zip(("us", "cpu_us", "switches"), map(float, values), strict=True))

    def syscalls(self, contender: str, server: str) -> float:
        """System calls per operation: what a longer run makes more than a shorter one.

        In whole hundredths: what is once in a run, such as a wait for the connection, may be in
        one of the two and not in the other.
        """
        counts = []
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "summary"
            for iterations in TRACED_ITERATIONS:
                command = ["strace", "-c", "-f", "-o", str(log), *self.command(contender)]
                command += ["mixed", contender, server, str(iterations)]
                subprocess.run(command, capture_output=True, check=True)
                counts.append(calls_total(log.read_text()))
        operations = TRACED_ITERATIONS[1] - TRACED_ITERATIONS[0]
        return round((counts[1] - counts[0]) / (operations * OPERATIONS_PER_ITERATION), 2)

    def fault(self, contender: str, kind: str) -> tuple[float, str]:
        """How long a contender takes to see through a server, and what it says."""
        server = subprocess.Popen(
            [self.program, "serve", kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            command = [*self.command(contender), "fault", contender, address]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=FAULT_SECONDS, check=True
            )
            seconds, ended = done.stdout.split()
            return float(seconds), ended
        except subprocess.TimeoutExpired:
            return FAULT_SECONDS, "killed"
        finally:
            server.kill()
            server.wait()


def measure(bench: Bench, rounds: int, iterations: int, names: Sequence[str]) -> list[dict]:
    """All rounds of all contenders, in turn."""
    rows = {
        name: Row(f"memcache_{name}", CONTENDERS[name], name.startswith("dwell"), plotted=False)
        for name in names
    }
    ends: dict[str, dict[str, str]] = {name: {} for name in names}
    with Stage() as stage:
        _, port = memcached.start_on(stage, SERVER_CORE)
        server = f"{HOST}:{port}"
        for _ in range(rounds):
            for name, row in rows.items():
                row.samples.append(bench.mixed(name, server, iterations))
        for name, row in rows.items():
            calls = bench.syscalls(name, server)
            for sample in row.samples:
                sample["syscalls"] = calls
    for name, row in rows.items():
        for kind in () if name in UNBOUNDED else FAULTS:
            seconds, ended = bench.fault(name, kind)
            ends[name][f"{kind}_s"] = ended
            for sample in row.samples:
                sample[f"{kind}_s"] = seconds
    return [{**row.as_dict(), "ends": ends[name]} for name, row in rows.items()]


def ratios(rows: Sequence[dict[str, Any]]) -> str:
    """Processor time with a timeout over that without: the median of each round's ratio."""
    samples = {row["name"]: row["samples"] for row in rows}
    lines = []
    for over, under in (("dwell_kernel", "dwell_none"), ("dwell_reaper", "dwell_none")):
        pairs = zip(
            samples.get(f"memcache_{over}", ()), samples.get(f"memcache_{under}", ()), strict=False
        )
        found = [mine["cpu_us"] / other["cpu_us"] for mine, other in pairs]
        if found:
            lines.append(f"CPU of {over} / {under}: {statistics.median(found):.3f}")
    return "\n".join(lines)


def run(arguments: Sequence[str]) -> int:
    """`bench/run-memcache`: builds, measures, prints the table and keeps the result."""
    parser = argparse.ArgumentParser(prog="bench/run-memcache", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds (default 7)")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of 12 operations")
    parser.add_argument("--only", action="append", choices=CONTENDERS, help="only this row")
    parser.add_argument("--no-keep", action="store_true", help="only print the table")
    options = parser.parse_args(arguments)
    date = datetime.now(UTC)
    facts = machine.facts()
    names = options.only or list(CONTENDERS)
    rows = measure(Bench(), options.rounds, options.iterations, names)
    print(report(rows))
    print(f"\n{ratios(rows)}")
    if not options.no_keep and not options.only:
        table = {"name": "memcache", "title": "A memcached client's operations", "rows": rows}
        result: results.Result = {
            "schema": results.SCHEMA,
            "date": date.isoformat(timespec="seconds"),
            "kind": "memcache",
            "machine": facts,
            "method": {"rounds": options.rounds, "iterations": options.iterations},
            "tables": [table],
        }
        path = RESULTS / f"memcache-{date:%Y-%m-%dT%H%M}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"\nkept as {path.relative_to(REPOSITORY)}")
    return 0
