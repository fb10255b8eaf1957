"""The timers beside pingora-timeout's and tokio's: one program measures, this keeps the result."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import machine, results
from harness.measure import Row
from harness.paths import BENCH, REPOSITORY, RESULTS
from harness.targets import number

# Name of the program's contender -> label of its row.
CONTENDERS = {
    "dwell": "dwell-timers",
    "wheel": "dwell-timers Wheel, 100,000 ids",
    "wheel_1m": "dwell-timers Wheel, 1,000,000 ids",
    "evloop": "a loop's connections, 100,000",
    "pingora": "pingora-timeout",
    "tokio": "tokio::time",
}
ROWS = {name: f"timers_{name}" for name in CONTENDERS}

# Figure of the program -> what it is.
FIGURES = {
    "waker_ns": "clone and drop a task's waker: the floor of the next rows, ns",
    "ready_ns": "timeout() of a ready future, ns",
    "arm_cancel_ns": "arm + cancel, ns",
    "arm_cancel_2_threads_ns": "arm + cancel on 2 threads at once, ns",
    "arm_complete_ns": "arm, poll again, complete, ns",
    "rearm_ns": "move the deadline of a connection, ns",
    "create_ns": "make a handle, 100,000 kept, ns",
    "drop_ns": "drop it, ns",
    "hold_ns": "arm, 100,000 held over 1 to 60 s, ns",
    "drop_held_ns": "drop one of them, ns",
    "bytes": "bytes per armed timer, its future included",
    "fire_ns": "fire 100,000 at once: CPU for each, ns",
    "fire_1m_ns": "fire 1,000,000 at once: CPU for each, ns",
    "storm_p50_ns": "arm + cancel while 100,000 fire, p50, ns",
    "storm_p9999_ns": "the same, p99.99, ns",
    "storm_p99999_ns": "the same, p99.999, ns",
    "early": "of 2,000 random timers fired early",
    "lost": "lost",
    "late_below_0": "late by less than nothing: early",
    "late_0_to_5": "late by 0 to 5 ms",
    "late_5_to_10": "late by 5 to 10 ms",
    "late_10_to_15": "late by 10 to 15 ms",
    "late_15_to_20": "late by 15 to 20 ms",
    "late_20_to_30": "late by 20 to 30 ms",
    "late_above_30": "late by more",
    "late_min_ms": "late by at least, ms",
    "late_p50_ms": "late by, p50, ms",
    "late_p99_ms": "late by, p99, ms",
    "late_max_ms": "late by at most, ms",
    "leaked_on_cancel": "slots leaked by a million cancelled timers",
    "leaked_bytes": "bytes left of each of a million cancelled timers",
    "extra_threads": "threads beyond the one, after being stopped four times",
    "dead_after_fork": "a timeout in a forked child does not fire",
    "arm_ns": "loop-local: arm, ns",
    "rearm_earlier_ns": "loop-local: move to an earlier tick, ns",
    "cancel_ns": "loop-local: cancel, ns",
}

# Rows of the ratio table: ours, over the peer's, at most.
RATIOS = (
    ("ready future", "dwell.ready_ns", "ready_ns", 8),
    ("arm + cancel, 1 thread", "dwell.arm_cancel_ns", "arm_cancel_ns", 8),
    ("arm + cancel, 2 threads", "dwell.arm_cancel_2_threads_ns", "arm_cancel_2_threads_ns", 8),
    ("re-arm / cancel + new", "dwell.rearm_ns", "rearm_ns", 50),
    ("re-arm on a loop, 100k at random", "evloop.rearm_ns", "rearm_ns", None),
    ("loop-local arm / create", "wheel.arm_ns", "create_ns", 9),
    ("loop-local cancel / drop", "wheel.cancel_ns", "drop_ns", 8),
    ("loop-local sweep, 100k", "wheel.fire_ns", "fire_ns", 5),
    ("loop-local sweep, 1M", "wheel_1m.fire_ns", "fire_1m_ns", 5),
    ("bytes, shared", "dwell.bytes", "bytes", 1.8),
    ("bytes, loop-local", "wheel.bytes", "bytes", 8),
    ("arm, 100k held", "dwell.hold_ns", "hold_ns", None),
    ("arm + complete", "dwell.arm_complete_ns", "arm_complete_ns", None),
    ("arm in a storm, p99.99", "dwell.storm_p9999_ns", "storm_p9999_ns", None),
    ("arm in a storm, p99.999", "dwell.storm_p99999_ns", "storm_p99999_ns", None),
    ("fire, 100k (no win promised)", "dwell.fire_ns", "fire_ns", None),
)
# What must be zero, for which of ours.
FAULTS = (
    ("early", "dwell"),
    ("lost", "dwell"),
    ("leaked_on_cancel", "dwell"),
    ("extra_threads", "dwell"),
    ("extra_threads", "wheel"),
    ("dead_after_fork", "dwell"),
)

Samples = dict[str, dict[str, list[float]]]


def parse(lines: Iterable[str]) -> Samples:
    """The values of each contender's figures, in the order of the rounds.

    Raises:
        ValueError: a line is not `CONTENDER FIGURE VALUE`, or names something unknown.
    """
    samples: Samples = {name: {} for name in CONTENDERS}
    for line in lines:
        contender, figure, value = line.split()
        if contender not in CONTENDERS or figure not in FIGURES:
            raise ValueError(f"unknown figure: {contender} {figure}")
        samples[contender].setdefault(figure, []).append(float(value))
    return samples


def rows(samples: Samples) -> list[dict[str, Any]]:
    """One row per contender; a figure measured once for the whole run is in every sample."""
    found = []
    for name, label in CONTENDERS.items():
        row = Row(ROWS[name], label, ours=name not in ("pingora", "tokio"), plotted=False)
        figures = samples[name]
        rounds = max((len(values) for values in figures.values()), default=0)
        row.samples = [
            {figure: values[min(place, len(values) - 1)] for figure, values in figures.items()}
            for place in range(rounds)
        ]
        found.append(row.as_dict())
    return found


def report(medians: dict[str, dict[str, float]]) -> str:
    """The table of figures, and that of ratios with their targets."""
    width = max(map(len, FIGURES.values()))
    lines = [f"{'median of the rounds':<{width}}" + "".join(f"{name:>10}" for name in CONTENDERS)]
    for figure, label in FIGURES.items():
        values = [medians[ROWS[name]].get(figure) for name in CONTENDERS]
        cells = ["-" if value is None else number(value) for value in values]
        lines.append(f"{label:<{width}}" + "".join(f"{cell:>10}" for cell in cells))
    lines += ["", f"{'ratio':<34}{'pingora':>10}{'tokio':>10}{'target':>10}"]
    peers = ("pingora", "tokio")
    for label, ours, theirs, bound in RATIOS:
        contender, figure = ours.split(".")
        value = medians[ROWS[contender]][figure]
        cells = []
        for peer in peers:
            other = medians[ROWS[peer]].get(theirs)
            cells.append("-" if other is None else f"1/{other / value:.2f}")
        target = "-" if bound is None else f"1/{bound:g}"
        verdict = ""
        if bound is not None:
            holds = medians[ROWS["pingora"]][theirs] >= bound * value
            verdict = "  pass" if holds else "  MISS"
        lines.append(f"{label:<34}{cells[0]:>10}{cells[1]:>10}{target:>10}{verdict}")
    for figure, name in FAULTS:
        value = medians[ROWS[name]][figure]
        cells = []
        for peer in peers:
            other = medians[ROWS[peer]].get(figure)
            cells.append("-" if other is None else number(other))
        verdict = "pass" if value == 0 else f"MISS: {number(value)}"
        label = f"{figure.replace('_', ' ')}, {name}"
        lines.append(f"{label:<34}{cells[0]:>10}{cells[1]:>10}{'0':>10}  {verdict}")
    return "\n".join(lines)


def run(arguments: Sequence[str]) -> int:
    """`bench/run-timers`: builds, measures, prints the tables and keeps the result."""
    parser = argparse.ArgumentParser(prog="bench/run-timers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5, 25 s each)")
    parser.add_argument("--no-keep", action="store_true", help="only print the tables")
    options = parser.parse_args(arguments)
    date = datetime.now(UTC)
    facts = machine.facts()
    samples = parse(_measure(options.rounds))
    found = rows(samples)
    print(report({row["name"]: row["median"] for row in found}))
    if not options.no_keep:
        table = {"name": "timers", "title": "Deadlines, in one process", "rows": found}
        result: results.Result = {
            "schema": results.SCHEMA,
            "date": date.isoformat(timespec="seconds"),
            "kind": "timers",
            "machine": facts,
            "method": {"rounds": options.rounds},
            "tables": [table],
        }
        path = RESULTS / f"timers-{date:%Y-%m-%dT%H%M}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"\nkept as {path.relative_to(REPOSITORY)}")
    return 0


def _measure(rounds: int) -> list[str]:
    base = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    target = REPOSITORY / base / "bench-timers"
    build = ["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", str(target)]
    if subprocess.run(build, cwd=BENCH / "timers", check=False).returncode != 0:
        sys.exit("bench/run-timers cannot build bench/timers")
    program = target / "release" / "dwell-bench-timers"
    done = subprocess.run([program, str(rounds)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit("bench/run-timers: the measurement failed")
    return done.stdout.splitlines()
