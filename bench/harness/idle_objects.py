"""What an idle connection is to Python: objects, tasks and threads that it adds.

The servers answer with what the interpreter holds, which is asked before and after many clients
have come, have had one answer each, and stay.
"""

import json
import socket
import sys
from collections.abc import Mapping

from harness import http
from harness.paths import BENCH
from harness.pollers import raise_descriptor_limit
from harness.stage import HOST, SERVER_CORE, Stage
from harness.suites import Counted, SuiteError

PEERS = BENCH / "peers" / "python"
CLIENTS = 2000
# Nobody may be sent away between the looks.
KEEP_ALIVE_SECONDS = 600
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
# Those that are there before the first look, so that what exists once is too.
FIRST = 50
LOOKS = 3
ROWS = {"idle_manager": "manager", "idle_wsgi": "wsgi", "idle_asgi": "asgi"}


def count() -> list[Counted]:
    """What each kind of server holds for an idle connection."""
    raise_descriptor_limit(CLIENTS + FIRST)
    return [count_of(row, kind) for row, kind in ROWS.items()]


def command(kind: str, port: int) -> list[str]:
    """The command of a server."""
    if kind == "manager":
        return [sys.executable, str(PEERS / "idle_objects.py"), str(port)]
    options = ["--app-dir", str(PEERS), "--interface", kind, "--threads", "1"]
    options += ["--keep-alive-timeout", str(KEEP_ALIVE_SECONDS)]
    return [sys.executable, "-m", "dwell", f"idle_objects:{kind}", "--port", str(port), *options]


def count_of(row: str, kind: str) -> Counted:
    """What one kind of server holds for an idle connection."""
    with Stage() as stage:
        port = stage.free_port()
        stage.start(row, command(kind, port), SERVER_CORE, [port])
        clients = [answered(port) for _ in range(FIRST)]
        before = held(port)
        clients += [answered(port) for _ in range(CLIENTS)]
        after = held(port)
        for client in clients:
            client.setblocking(False)
            if not is_open(client):
                raise SuiteError(f"{row}: the server has closed an idle connection")
            client.close()
    return per_connection(row, before, after)


def per_connection(row: str, before: Mapping[str, int], after: Mapping[str, int]) -> Counted:
    """What has grown, over the clients.

    Raises:
        SuiteError: the looks do not show the same, or show nothing.
    """
    if not before or set(before) != set(after):
        raise SuiteError(f"{row}: {before} before and {after} after")
    grown = {name: max(0, after[name] - before[name]) / CLIENTS for name in after}
    figures = {f"{name}_per_connection": value for name, value in grown.items()}
    return Counted(row, figures | {"cases": CLIENTS})


def held(port: int) -> dict[str, int]:
    """The least of some looks, each on a connection of its own."""
    looks = [json.loads(http.fetch(f"http://{HOST}:{port}/held").body) for _ in range(LOOKS)]
    return {name: min(look[name] for look in looks) for name in looks[0]}


def answered(port: int) -> socket.socket:
    """A client that has had one answer.

    Raises:
        SuiteError: it got none.
    """
    client = socket.create_connection((HOST, port), timeout=30)
    client.sendall(REQUEST)
    if not client.recv(4096).startswith(b"HTTP/1.1 200 "):
        raise SuiteError("a request was not answered 200")
    return client


def is_open(client: socket.socket) -> bool:
    """Whether nothing has come, not even the end."""
    try:
        return bool(client.recv(1))
    except BlockingIOError:
        return True
