"""The Python package beside its peers: a handler, a WSGI and an ASGI application.

Every server is one process with one thread that runs Python, answers the same 13 bytes, and is
started anew for each round. The managers are also asked among idle connections, each of which has
had one answer.
"""

import argparse
import resource
import socket
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from harness import accounting, machine, results, tls, wrk
from harness.contenders.base import Contender, Running
from harness.measure import QUICK, Method, Row, Sample, in_turn, load_sample
from harness.paths import BENCH, RESULTS
from harness.stage import HOST, SERVER_CORE, Stage
from harness.waiting import settle

PEERS = BENCH / "peers" / "python"
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
# Accepting is quadratic in the reference, and each of its polls walks all connections.
IDLE = {"python_manager": 10_000, "cymongoose": 2_000}
DESCRIPTORS_TO_SPARE = 500
# Seconds for which servers keep idle clients, where it is their memory that is measured.
PATIENCE = "600"
# It has no flag for the folder of an application.
HYPERCORN = (
    f"import sys; sys.path.insert(0, {str(PEERS)!r}); "
    "from hypercorn.__main__ import main; sys.exit(main(sys.argv[1:]))"
)


class Served(Contender):
    """A server that is started by a command."""

    def __init__(
        self, name: str, label: str, command: Callable[[int], list[str]], *, note: str = ""
    ) -> None:
        self.name = name
        self.label = label
        self.ours = name.startswith("python_")
        self.note = note
        self._command = command

    def start(self, stage: Stage) -> Running:
        """Starts the server on its core."""
        port = stage.free_port()
        arguments = [sys.executable, *self._command(port)]
        program = stage.start(self.name, arguments, SERVER_CORE, [port])
        return Running(program, port, "/")


def manager(package: str) -> Callable[[int], list[str]]:
    """A handler on a package with the poll API."""
    return lambda port: [str(PEERS / "manager_hello.py"), package, str(port)]


def dwell(interface: str) -> Callable[[int], list[str]]:
    """An application on `python -m dwell`."""
    app = f"hello_apps:{interface}"
    options = ["--app-dir", str(PEERS), "--interface", interface, "--threads", "1"]
    return lambda port: ["-m", "dwell", app, "--port", str(port), *options]


def granian(interface: str) -> Callable[[int], list[str]]:
    """An application on granian."""
    options = ["--interface", interface, "--workers", "1", "--working-dir", str(PEERS), "--no-ws"]
    app = f"hello_apps:{interface}"
    return lambda port: ["-m", "granian", app, "--host", HOST, "--port", str(port), *options]


def uvicorn(port: int) -> list[str]:
    """The ASGI application on uvicorn."""
    options = ["--app-dir", str(PEERS), "--no-access-log", "--log-level", "warning"]
    return ["-m", "uvicorn", "hello_apps:asgi", "--port", str(port), *options]


class SecureServed(tls.Secure):
    """A server that is started by a command, and again with further flags under TLS."""

    def __init__(
        self,
        name: str,
        label: str,
        command: Callable[[int], list[str]],
        flags: tuple[str, str] = ("--ssl-certfile", "--ssl-keyfile"),
    ) -> None:
        self.name = name
        self.label = label
        self.ours = name.startswith("python_")
        self._command = command
        self._flags = flags

    def start(self, stage: Stage) -> Running:
        """Starts the server on its core, without TLS."""
        return self._start(stage, [])

    def serve(self, stage: Stage, *, is_secure: bool) -> tuple[int, int]:
        """Starts it, for clients of one kind."""
        files = tls.make_certificate(stage.directory) if is_secure else ()
        pairs = zip(self._flags, map(str, files), strict=False)
        running = self._start(stage, [part for pair in pairs for part in pair])
        return running.program.pid, running.port

    def _start(self, stage: Stage, further: list[str]) -> Running:
        port = stage.free_port()
        arguments = [sys.executable, *self._command(port), *further]
        return Running(stage.start(self.name, arguments, SERVER_CORE, [port]), port, "/")


def hypercorn(port: int) -> list[str]:
    """The ASGI application on hypercorn, in its own process, patient as the others."""
    options = ["--bind", f"{HOST}:{port}", "--workers", "0", "--keep-alive", PATIENCE]
    return ["-c", HYPERCORN, "hello_apps:asgi", *options]


def patient(command: Callable[[int], list[str]]) -> Callable[[int], list[str]]:
    """A server that keeps its idle clients for as long as is measured."""
    return lambda port: [*command(port), "--timeout-keep-alive", PATIENCE]


CONTENDERS: list[Contender] = [
    Served("python_manager", "dwell.Manager, handler", manager("dwell")),
    Served("cymongoose", "cymongoose, handler", manager("cymongoose")),
    Served("python_wsgi", "dwell, WSGI", dwell("wsgi"), note="one thread of the pool"),
    Served("granian_wsgi", "granian, WSGI", granian("wsgi")),
    Served("python_asgi", "dwell, ASGI", dwell("asgi")),
    Served("granian_asgi", "granian, ASGI", granian("asgi")),
    Served("uvicorn", "uvicorn, ASGI", uvicorn),
    SecureServed("python_wsgi_tls", "dwell, WSGI, TLS", patient(dwell("wsgi"))),
    SecureServed("python_asgi_tls", "dwell, ASGI, TLS", patient(dwell("asgi"))),
    SecureServed("uvicorn_tls", "uvicorn, ASGI, TLS", patient(uvicorn)),
    SecureServed("hypercorn_tls", "hypercorn, ASGI, TLS", hypercorn, ("--certfile", "--keyfile")),
]
FIGURES = {
    "us_per_request": ("CPU us/request", "{:.2f}"),
    "requests_per_second": ("requests/s", "{:,.0f}"),
    "p99_us": ("p99 us", "{:,.0f}"),
    "bytes_per_connection": ("bytes/idle connection", "{:,.0f}"),
    "idle": ("idle", "{:,.0f}"),
    "crowded_ratio": ("CPU among idle / alone", "{:.2f}"),
    "plain_bytes": ("bytes/idle connection, plain", "{:,.0f}"),
    "secure_bytes": ("TLS", "{:,.0f}"),
    "above_bytes": ("above plain", "{:,.0f}"),
}
RATIOS = [
    ("python_manager", "cymongoose"),
    ("python_wsgi", "granian_wsgi"),
    ("python_asgi", "granian_asgi"),
    ("python_asgi", "uvicorn"),
]


def sample(contender: Contender, running: Running, row: Row, method: Method) -> Sample:
    """One round: the load alone, and for the managers among idle connections."""
    if isinstance(contender, tls.Secure):
        return tls.idle(contender, tls.crowd(contender, method))
    figures = load_sample(running, method, row)
    idle = min(IDLE.get(row.name, 0), method.waiting_clients)
    if not idle:
        return figures
    pid = running.program.pid
    # What exists once is there before the first look.
    settle(pid)
    before = accounting.user_bytes(pid)
    clients = [answered(running.port) for _ in range(idle)]
    try:
        settle(pid)
        figures["idle"] = idle
        figures["bytes_per_connection"] = (accounting.user_bytes(pid) - before) / idle
        cpu_before = accounting.cpu_seconds(pid)
        report = wrk.run(running.url, method.seconds, None)
        crowded = (accounting.cpu_seconds(pid) - cpu_before) / report.requests * 1e6
        figures["crowded_ratio"] = crowded / figures["us_per_request"]
    finally:
        for client in clients:
            client.close()
    return figures


def answered(port: int) -> socket.socket:
    """A client that has had one answer."""
    client = socket.create_connection((HOST, port), timeout=30)
    client.sendall(REQUEST)
    client.recv(4096)
    return client


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
        remarks = "; ".join([*([row["note"]] if row["note"] else []), *row["problems"]])
        lines.append("| " + " | ".join([row["label"], *cells, remarks]) + " |")
    medians = {row["name"]: row["median"].get("us_per_request") for row in rows}
    for mine, other in RATIOS:
        if medians.get(mine) and medians.get(other):
            lines.append(f"\nCPU of {mine} / {other}: {medians[mine] / medians[other]:.2f}")
    return "\n".join(lines)


def run(arguments: Sequence[str]) -> int:
    """`bench/run-python`: measures, prints the table and keeps the result."""
    parser = argparse.ArgumentParser(prog="bench/run-python", description=__doc__)
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--quick", action="store_true", help="one short round, not kept")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--only", action="append", choices=names, help="only this row; not kept")
    options = parser.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(IDLE.values()) + DESCRIPTORS_TO_SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, most), most))
    date, facts = datetime.now(UTC), machine.facts()
    method = QUICK if options.quick else Method(rounds=options.rounds)
    chosen = [each for each in CONTENDERS if each.name in (options.only or names)]
    by_name = {contender.name: contender for contender in chosen}
    rows = in_turn(
        chosen,
        method.rounds,
        lambda running, row: sample(by_name[row.name], running, row, method),
    )
    kept = [row.as_dict() for row in rows]
    print(report(kept))
    if not options.quick and not options.only:
        table = {"name": "python", "title": "The Python package", "rows": kept}
        result = {
            "schema": results.SCHEMA,
            "date": date.isoformat(timespec="seconds"),
            "machine": facts,
            "tables": [table],
        }
        print(f"\nkept as {save(result, date)}")
    return 0


def save(result: results.Result, date: datetime) -> str:
    """Keeps a result under a name of its own."""
    path = RESULTS / f"python-{date:%Y-%m-%dT%H%M}.json"
    path.write_text(results.json.dumps(result, indent=1) + "\n")
    return path.name
