"""The Go package beside net/http and nbio: the same handler, in the same run.

Every server is one process, built from `bench/go`, that answers the same 13 bytes and is started
anew for each round. It is loaded alone, and again while idle connections are held, each of which
has had one answer or, in rows of their own, one echoed WebSocket message. hop (http-over-polling)
is not among them: the Go proxy refuses it.
"""

import argparse
import json
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import accounting, http, machine, results, tls, wrk
from harness.contenders.base import Contender, Running
from harness.measure import QUICK, Method, Row, Sample, in_turn, load_sample
from harness.paths import BENCH, RESULTS
from harness.pollers import raise_descriptor_limit
from harness.stage import HOST, SERVER_CORE, ContenderError, Stage
from harness.waiting import settle

GO = BENCH / "go"
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MESSAGE = b"\x81\x82\0\0\0\0hi"
# Connections that are there before the first look, so that what exists once is too.
FIRST = 50


class Served(Contender):
    """One way of serving of the program."""

    plotted = False

    def __init__(self, kind: str, label: str, *, is_websocket: bool = False) -> None:
        self.kind = kind
        self.is_websocket = is_websocket
        self.name = f"go_{kind}_websocket" if is_websocket else f"go_{kind}"
        self.label = label
        self.ours = kind in ("dwell", "inline")
        self.binary = Path()

    def start(self, stage: Stage) -> Running:
        """Starts the server on its core."""
        port = stage.free_port()
        command = [str(self.binary), "-type", self.kind, "-listen", f"{HOST}:{port}"]
        return Running(stage.start(self.name, command, SERVER_CORE, [port]), port, "/")


class SecureServed(tls.Secure):
    """The same, which listens under TLS as well."""

    plotted = False

    def __init__(self, kind: str, label: str) -> None:
        self.kind = kind
        self.name = f"go_{kind}_tls"
        self.label = label
        self.ours = kind in ("dwell", "inline")
        self.binary = Path()
        self._port = 0

    def start(self, stage: Stage) -> Running:
        """Starts the server on its core."""
        self._port, self.secure_port = stage.free_port(), stage.free_port()
        certificate, key = tls.make_certificate(stage.directory)
        command = [str(self.binary), "-type", self.kind, "-listen", f"{HOST}:{self._port}"]
        command += ["-secure", f"{HOST}:{self.secure_port}"]
        command += ["-cert", str(certificate), "-key", str(key)]
        ports = [self._port, self.secure_port]
        return Running(stage.start(self.name, command, SERVER_CORE, ports), self._port, "/")

    def settle(self, pid: int) -> None:
        """Has garbage collected first."""
        collect(pid, self._port)


CONTENDERS = [
    Served("std", "net/http"),
    Served("nbio", "nbio"),
    Served("dwell", "dwell"),
    Served("inline", "dwell, Inline"),
    Served("std", "net/http and gorilla, WebSocket", is_websocket=True),
    Served("nbio", "nbio, WebSocket", is_websocket=True),
    Served("dwell", "dwell, WebSocket", is_websocket=True),
    Served("inline", "dwell, Inline, WebSocket", is_websocket=True),
    SecureServed("std", "net/http, TLS"),
    SecureServed("dwell", "dwell, TLS"),
    SecureServed("inline", "dwell, Inline, TLS"),
]
FIGURES = {
    "us_per_request": ("CPU us/request", "{:.2f}"),
    "p99_us": ("p99 us", "{:,.0f}"),
    "crowded_p99_us": ("p99 us among idle", "{:,.0f}"),
    "idle": ("idle", "{:,.0f}"),
    "bytes_per_connection": ("bytes each", "{:,.0f}"),
    "goroutines_per_connection": ("goroutines each", "{:.2f}"),
    "objects_per_connection": ("Go objects each", "{:.2f}"),
    "secure_bytes": ("bytes each, TLS", "{:,.0f}"),
    "above_bytes": ("above plain", "{:,.0f}"),
}
RATIOS = [("go_dwell", "go_std"), ("go_inline", "go_std"), ("go_dwell", "go_nbio")]


def sample(contender: Contender, running: Running, row: Row, method: Method) -> Sample:
    """One round: the load alone, then idle connections, then the load among them."""
    if isinstance(contender, tls.Secure):
        return tls.idle(contender, tls.crowd(contender, method))
    is_websocket = row.name.endswith("_websocket")
    figures: Sample = {} if is_websocket else load_sample(running, method, row)
    connections = [connect(running.port, is_websocket) for _ in range(FIRST)]
    try:
        before = held(running)
        connections += [connect(running.port, is_websocket) for _ in range(method.waiting_clients)]
        after = held(running)
        for name, value in after.items():
            figures[f"{name}_per_connection"] = (value - before[name]) / method.waiting_clients
        figures["idle"] = method.waiting_clients
        if not is_websocket:
            figures["crowded_p99_us"] = wrk.run(running.url, method.seconds, None).p99_us
    finally:
        for connection in connections:
            connection.close()
    return figures


def held(running: Running) -> dict[str, float]:
    """Resident bytes, goroutines and Go objects, after a collection."""
    pid = running.program.pid
    counts = collect(pid, running.port)
    return {"bytes": accounting.user_bytes(pid), **counts}


def collect(pid: int, port: int) -> dict[str, float]:
    """Has a server collect its garbage; what is left, in goroutines and objects."""
    settle(pid)
    answer = http.fetch(f"http://{HOST}:{port}/collect")
    counts: dict[str, float] = json.loads(answer.body)
    settle(pid)
    return counts


def connect(port: int, is_websocket: bool) -> socket.socket:
    """A client that has had one answer, or one message."""
    client = socket.create_connection((HOST, port), timeout=30)
    client.sendall(HANDSHAKE if is_websocket else REQUEST)
    read_until(client, b"\r\n\r\n" if is_websocket else b"Hello, world!")
    if is_websocket:
        client.sendall(MESSAGE)
        read_until(client, b"hi")
    return client


def read_until(client: socket.socket, end: bytes) -> None:
    """Reads what comes, up to `end`.

    Raises:
        ContenderError: the connection was closed first.
    """
    received = b""
    while end not in received:
        piece = client.recv(4096)
        if not piece:
            raise ContenderError(f"it closed a connection after {received!r}")
        received += piece


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The table, and what is divided by what."""
    heads = ["", *(head for head, _ in FIGURES.values()), ""]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        median = row["median"]
        cells = [
            form.format(median[name]) if name in median else ""
            for name, (_, form) in FIGURES.items()
        ]
        remarks = "; ".join(row["problems"])
        lines.append("| " + " | ".join([row["label"], *cells, remarks]) + " |")
    medians = {row["name"]: row["median"].get("us_per_request") for row in rows}
    lines.append("")
    for mine, other in RATIOS:
        if medians.get(mine) and medians.get(other):
            lines.append(f"CPU of {mine} / {other}: {medians[mine] / medians[other]:.2f}")
    return "\n".join(lines)


def run(arguments: Sequence[str]) -> int:
    """`bench/run-go`: measures, prints the table and keeps the result."""
    parser = argparse.ArgumentParser(prog="bench/run-go", description=__doc__)
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--quick", action="store_true", help="one short round, not kept")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--only", action="append", choices=names, help="only this row; not kept")
    options = parser.parse_args(arguments)
    method = QUICK if options.quick else Method(rounds=options.rounds)
    raise_descriptor_limit(method.waiting_clients)
    date, facts = datetime.now(UTC), machine.facts() | {"go": go_version()}
    chosen = [each for each in CONTENDERS if each.name in (options.only or names)]
    with tempfile.TemporaryDirectory() as directory:
        binary = Path(directory) / "server"
        subprocess.run(["go", "build", "-o", binary, "./server"], check=True, cwd=GO)
        for contender in chosen:
            contender.binary = binary
        by_name = {contender.name: contender for contender in chosen}
        rows = in_turn(
            chosen,
            method.rounds,
            lambda running, row: sample(by_name[row.name], running, row, method),
        )
    kept = [row.as_dict() for row in rows]
    print(report(kept))
    if not options.quick and not options.only:
        result = {
            "schema": results.SCHEMA,
            "date": date.isoformat(timespec="seconds"),
            "machine": facts,
            "tables": [{"name": "go", "title": "The Go package", "rows": kept}],
        }
        path = RESULTS / f"go-{date:%Y-%m-%dT%H%M}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"\nkept as {path.name}")
    return 0


def go_version() -> str:
    """The version of Go that builds the program."""
    done = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True)
    return done.stdout.strip().removeprefix("go")
