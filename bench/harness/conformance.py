"""Counts of what suites find that are no benchmarks: other projects', and Dwell's own.

Each part runs real programs, such as Autobahn, memccapable, memcached and its clients, against the
programs of the release build, and counts. A part without a single case is an error. No part is
compared with another, so a run of some of them is kept like a whole one.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness import exchanges, idle_objects, machine, results, rings, suites
from harness.measure import Row
from harness.paths import RESULTS
from harness.stage import ContenderError
from harness.suites import Counted, SuiteError

# Name of a part -> what it is, and what counts.
PARTS: dict[str, tuple[str, Callable[[], list[Counted]]]] = {
    "rings": ("keys that are where another client of memcached puts them", rings.count),
    "memccapable": ("libmemcached's suite, text and binary", suites.memccapable),
    "exchanges": ("exchanges with memcached and with the embedded store", exchanges.count),
    "memory": ("looks at the memory of a store that is filled", suites.memory),
    "smuggling": ("messages that two parsers could read differently", suites.smuggling),
    "idle": ("what an idle connection is to Python", idle_objects.count),
    "h2spec": ("h2spec, the conformance suite of HTTP/2, strict", suites.h2spec),
    "autobahn": ("the Autobahn WebSocket suite, all cases", suites.autobahn),
}
# Rows of the results, for the check that no target names another.
ROWS = {
    *rings.ROWS,
    *idle_objects.ROWS,
    *("memccapable", "exchanges", "memory", "smuggling", "h2spec", "autobahn"),
}


def measure(names: Sequence[str]) -> tuple[list[Row], bool]:
    """The rows of the parts, and whether every part could be counted."""
    rows: list[Row] = []
    complete = True
    for name in names:
        title, count = PARTS[name]
        try:
            counted = count()
        except (SuiteError, ContenderError, OSError) as error:
            complete = False
            print(f"{name}: NOT COUNTED: {error}", flush=True)
            continue
        for part in counted:
            row = Row(part.name, title, ours=True, plotted=False, samples=[dict(part.counts)])
            for line in part.remarks:
                row.problem(line)
            rows.append(row)
            shown = ", ".join(f"{figure} {value:g}" for figure, value in part.counts.items())
            print(f"{part.name}: {shown}", *part.remarks, sep="\n    ", flush=True)
    return rows, complete


def save(rows: Sequence[Row], date: datetime, directory: Path = RESULTS) -> Path:
    """Keeps the counts under the minute they were begun in."""
    result: results.Result = {
        "schema": results.SCHEMA,
        "date": date.isoformat(timespec="seconds"),
        "kind": "conformance",
        "machine": machine.facts(),
        "tables": [
            {
                "name": "conformance",
                "title": "Conformance",
                "rows": [row.as_dict() for row in rows],
            }
        ],
    }
    path = directory / f"conformance-{date:%Y-%m-%dT%H%M}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def run(arguments: Sequence[str]) -> int:
    """`bench/run-conformance`: counts, prints and keeps the counts; 1 where a part did not run."""
    parser = argparse.ArgumentParser(prog="bench/run-conformance", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part")
    parser.add_argument("--no-keep", action="store_true", help="only print the counts")
    options = parser.parse_args(arguments)
    date = datetime.now(UTC)
    rows, complete = measure(options.only or list(PARTS))
    if rows and not options.no_keep:
        print(f"\nkept as {save(rows, date).name}")
    return 0 if complete else 1
