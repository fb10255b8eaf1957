"""`elsewhere.json`: the figures of other servers that the page of `dwell demo` shows.

The bars of a group come from one run, and a server that was not measured has no bar.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness import results


@dataclass(frozen=True)
class Bar:
    """One server: its name, its figure in a result, and the program whose version is shown."""

    server: str
    figure: str
    program: str


@dataclass(frozen=True)
class Group:
    """Servers that were measured beside each other; the first one is Dwell."""

    title: str
    bars: Sequence[Bar]


# What the version of a program is one of.
PROGRAMS = {"dwell": "commit", "nginx": "nginx", "go": "Go"}


def beside_nchan(title: str, dwell: str, nchan: str) -> Group:
    """A group of two rows: one of Dwell's edge, and one of nginx with nchan."""
    return Group(
        title,
        [
            Bar("Dwell", f"{dwell}.bytes_per_client", "dwell"),
            Bar("nginx with nchan", f"{nchan}.bytes_per_client", "nginx"),
        ],
    )


GROUPS = [
    beside_nchan("Long-polls, all on one key", "held_shared", "held_nchan"),
    beside_nchan("Event streams, all on one key", "streams_shared", "streams_nchan"),
    beside_nchan("Long-polls under TLS", "tls_held_edge", "tls_held_nchan"),
    Group(
        "WebSockets of a Go program",
        [
            Bar("Dwell's Go package", "go_dwell_websocket.bytes_per_connection", "dwell"),
            Bar("nbio", "go_nbio_websocket.bytes_per_connection", "go"),
            Bar("net/http and gorilla", "go_std_websocket.bytes_per_connection", "go"),
        ],
    ),
]


def document(kept: Sequence[results.Result]) -> dict[str, Any]:
    """The groups with their bars, each from the newest whole run that has all of its figures."""
    # The results of the Go package are always whole, and have no kind.
    whole = [result for result in kept if result.get("kind", "full") == "full"]
    whole.sort(key=lambda result: datetime.fromisoformat(result["date"]), reverse=True)
    return {"groups": [found for group in GROUPS if (found := _measured(group, whole))]}


def _measured(group: Group, newest: Sequence[results.Result]) -> dict[str, Any] | None:
    for result in newest:
        figures = results.figures(result)
        if all(bar.figure in figures for bar in group.bars):
            bars = [
                {
                    "server": bar.server,
                    "version": f"{PROGRAMS[bar.program]} {result['machine'][bar.program]}",
                    "bytes": round(figures[bar.figure]),
                }
                for bar in group.bars
            ]
            return {"title": group.title, "date": result["date"][:10], "bars": bars}
    return None


def text(kept: Sequence[results.Result]) -> str:
    """The whole of the file."""
    return json.dumps(document(kept), indent=1) + "\n"


def write(path: Path, kept: Sequence[results.Result]) -> None:
    """Writes the file."""
    path.write_text(text(kept))
