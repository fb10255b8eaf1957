"""What a manager's turns, wake-ups, timers and signals cost: the engine's own benchmark, run here.

It is one process that polls itself, so nothing else is started; its lines are read as figures.
"""

import os
import re
import subprocess

from harness.measure import Row, say
from harness.paths import REPOSITORY
from harness.stage import SERVER_CORE

COMMAND = (
    *("cargo", "bench", "--quiet", "--locked", "-p", "dwell-engine"),
    *("--bench", "manager"),
)
TIMEOUT_SECONDS = 300
# The unit that each figure is kept in, and what the benchmark calls it.
FIGURES = {
    "bytes_per_connection": ("", "resident bytes per idle connection"),
    "empty_turn_us": ("us", "empty turn, nothing idle"),
    "empty_turn_crowded_us": ("us", "empty turn, 10000 idle"),
    "turn_us": ("us", "turn with 10 requests, nothing idle"),
    "turn_crowded_us": ("us", "turn with 10 requests, 10000 idle"),
    "turn_ratio": ("", "ratio"),
    "wakeup_p50_us": ("us", "wake-up to handler, median"),
    "wakeup_p99_us": ("us", "wake-up to handler, p99"),
    "timer_most_ms": ("ms", "timer of 20 ms under poll(500), most"),
    "signal_most_ms": ("ms", "SIGTERM to the end of run, most"),
}
SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
VALUE = re.compile(r"(?P<number>[0-9.]+)(?P<unit>s|ms|µs|ns|)")


def parse(printed: str) -> dict[str, float]:
    """The figures in what the benchmark printed.

    Raises:
        ValueError: one is missing or cannot be read.
    """
    lines = dict(line.rsplit(": ", 1) for line in printed.splitlines() if ": " in line)
    figures = {}
    for name, (unit, label) in FIGURES.items():
        match = VALUE.fullmatch(lines.get(label, ""))
        if match is None:
            raise ValueError(f"the benchmark printed no {label!r}")
        seconds = float(match["number"]) * SECONDS[match["unit"]]
        figures[name] = seconds / SECONDS[unit]
    return figures


def run() -> list[Row]:
    """The manager's row."""
    row = Row("manager", "dwell Manager", ours=True)
    try:
        done = subprocess.run(
            COMMAND,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_SECONDS,
            preexec_fn=lambda: os.sched_setaffinity(0, range(SERVER_CORE, os.cpu_count() or 1)),
        )
        row.samples.append(parse(done.stdout))
    except (subprocess.SubprocessError, ValueError) as error:
        row.problem(f"failed: {error}")
    say(f"  {row.name}: {row.problems or row.samples[0]}")
    return [row]
