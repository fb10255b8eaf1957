"""The four ways in which a client waits on the engine, and what each costs while nothing happens.

The server is the engine's `waiting` example. A client is taken to where it waits by one request
over a blocking socket: to the end of an answer, of nothing at all, of the head of an event stream,
or of one message echoed over a WebSocket.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import accounting, http
from harness.measure import Method, Row, Step
from harness.paths import release_directory
from harness.pollers import SOCKET_TIMEOUT_SECONDS, raise_descriptor_limit
from harness.stage import HOST, SERVER_CORE, ContenderError, Program, Stage
from harness.waiting import idle_cost, settle

ECHOED = b"Hello, World!"
MILLION = 1_000_000

Figures = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way of waiting: its name in the results, for people, and how a client gets there."""

    name: str
    label: str
    arrive: Callable[[socket.socket], None]


def _between_requests(connection: socket.socket) -> None:
    connection.sendall(http.request("/"))
    _require(http.receive(connection).status, 200)


def _in_a_long_poll(connection: socket.socket) -> None:
    _between_requests(connection)
    connection.sendall(http.request("/hold"))


def _on_an_event_stream(connection: socket.socket) -> None:
    connection.sendall(http.request("/sse"))
    _require(_head_status(connection), 200)


def _on_a_websocket(connection: socket.socket) -> None:
    connection.sendall(http.upgrade("/ws"))
    _require(_head_status(connection), 101)
    mask = b"\x00\x00\x00\x00"
    connection.sendall(bytes([0x81, 0x80 | len(ECHOED)]) + mask + ECHOED)
    expected = bytes([0x81, len(ECHOED)]) + ECHOED
    received = b""
    while len(received) < len(expected):
        part = connection.recv(len(expected) - len(received))
        if not part:
            break
        received += part
    if received != expected:
        raise ContenderError(f"the echo was {received!r}")


WAYS = (
    Way("between_requests", "between two requests", _between_requests),
    Way("long_poll", "in a long-poll", _in_a_long_poll),
    Way("event_stream", "on an event stream", _on_an_event_stream),
    Way("websocket", "on a WebSocket, after one message", _on_a_websocket),
)


def waiting(way: Way, clients: int, method: Method) -> Figures:
    """User memory per waiting client, threads, and CPU and wake-ups of the server meanwhile.

    Raises:
        ContenderError: the server did not start, or did not take every client to its place.
    """
    raise_descriptor_limit(clients)
    with Stage() as stage:
        program, port = _start(stage)
        pid = program.pid
        with _Clients(port, way) as first:
            first.open(1)
        settle(pid)
        memory, threads = accounting.user_bytes(pid), accounting.thread_count(pid)
        kernel = accounting.kernel_bytes()
        with _Clients(port, way) as crowd:
            crowd.open(clients)
            settle(pid)
            user_bytes = (accounting.user_bytes(pid) - memory) / clients
            # Both ends of every connection are on this machine.
            kernel_bytes = (accounting.kernel_bytes() - kernel) / clients / 2
            return {
                "bytes_per_client": user_bytes,
                "kernel_bytes_per_client": kernel_bytes,
                "user_gib_per_million": user_bytes * MILLION / 2**30,
                "kernel_gib_per_million": kernel_bytes * MILLION / 2**30,
                "clients": clients,
                "extra_threads": accounting.thread_count(pid) - threads,
                **idle_cost(pid, method.idle_seconds),
            }


def steps(method: Method) -> list[Step]:
    """A row for each way of waiting, and one for as many clients as this machine lets be held."""
    crowds = [(way, method.waiting_clients, way.name) for way in WAYS]
    crowds.append((WAYS[0], method.crowd_clients, "crowd"))
    return [
        (
            Row(f"engine_{name}", f"dwell engine, {clients:,} clients {way.label}", ours=True),
            partial(waiting, way, clients, method),
        )
        for way, clients, name in crowds
    ]


class _Clients:
    """Sockets that end with the block."""

    def __init__(self, port: int, way: Way) -> None:
        self._port = port
        self._way = way
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> "_Clients":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._sockets:
            connection.close()

    def open(self, count: int) -> None:
        """Takes `count` clients to where they wait."""
        for _ in range(count):
            address = (HOST, self._port)
            connection = socket.create_connection(address, timeout=SOCKET_TIMEOUT_SECONDS)
            self._sockets.append(connection)
            self._way.arrive(connection)


def _start(stage: Stage) -> tuple[Program, int]:
    port = stage.free_port()
    arguments = [str(release_directory() / "examples" / "waiting"), f"{HOST}:{port}"]
    return stage.start("engine-waiting", arguments, SERVER_CORE, [port]), port


def _head_status(connection: socket.socket) -> int:
    """Reads the head of an answer, which nothing follows by itself; its status."""
    received = http.receive_until(connection, lambda text: text.endswith(http.HEAD_END))
    return int(received.split()[1])


def _require(status: int, expected: int) -> None:
    if status != expected:
        raise ContenderError(f"a client was answered {status} instead of {expected}")
