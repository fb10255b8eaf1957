"""Many waiting clients in one process.

They are opened and asked one after another over blocking sockets, which is simple and puts no load
on the server worth mentioning. Only the moment that is timed, a wake-up of all of them, goes
through one epoll set: arrivals are counted there without reading anything, so what is timed is the
server and not this program.
"""

import resource
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Self

from harness import http
from harness.stage import HOST, ContenderError
from harness.transports import LongPolls, Transport

DESCRIPTORS = 20_000
SPARE_DESCRIPTORS = 200
SOCKET_TIMEOUT_SECONDS = 10
# What a client has that was told nothing yet.
NOTHING = http.Answer(0, {}, b"", 0)


def raise_descriptor_limit(clients: int) -> None:
    """Lets this process, and the servers it starts, hold `clients` connections.

    Raises:
        ContenderError: the system's hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(DESCRIPTORS, hard) if hard != resource.RLIM_INFINITY else DESCRIPTORS
    if wanted < clients + SPARE_DESCRIPTORS:
        raise ContenderError(f"{clients} clients need more descriptors than the limit of {hard}")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Pollers:
    """Clients that wait, one per path; the same path may stand there many times.

    `wrap` puts TLS on a connection.
    """

    def __init__(
        self,
        port: int,
        paths: Sequence[str],
        transport: Transport | None = None,
        wrap: Callable[[socket.socket], socket.socket] | None = None,
    ) -> None:
        self._wrap = wrap
        self._port = port
        self._paths = paths
        self._transport = transport or LongPolls()
        self._sockets: list[socket.socket] = []
        self._seen: list[http.Answer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection."""
        for connection in self._sockets:
            connection.close()

    def open(self, count: int | None = None) -> None:
        """Connects every client, or `count` more, and has each told what its key has.

        Raises:
            ContenderError: one was told nothing.
        """
        begun = len(self._seen)
        for path in self._paths[begun : count and begun + count]:
            self._seen.append(self._transport.arrive(self._connect(), path))

    def connect(self) -> None:
        """Connects every client, which has nothing and asks nothing yet."""
        for _ in self._paths:
            self._connect()
            self._seen.append(NOTHING)

    def hold(self) -> None:
        """Has every client wait for something newer than it has."""
        for connection, path, seen in zip(self._sockets, self._paths, self._seen, strict=True):
            self._transport.wait(connection, path, seen)

    def disturbed(self) -> int:
        """How many clients no longer wait: they were told something, or their connection ended."""
        watch = select.poll()
        for connection in self._sockets:
            watch.register(connection, select.POLLIN)
        return len(watch.poll(0))

    def require_silence(self) -> None:
        """Checks that every client is still connected and waiting.

        Raises:
            ContenderError: some were answered, or closed.
        """
        if disturbed := self.disturbed():
            raise ContenderError(
                f"{disturbed} of {len(self._sockets)} clients were not kept waiting"
            )

    def arrivals(self) -> "Arrivals":
        """A watch over all clients, to be made before what wakes them."""
        return Arrivals(self._sockets)

    def take_answers(self, body: bytes) -> None:
        """Reads what each client was told and remembers it.

        Raises:
            ContenderError: one was not told `body`.
        """
        for index, connection in enumerate(self._sockets):
            answer = self._transport.hear(connection)
            if answer.body != body:
                raise ContenderError(f"a waiter got {answer.status} {answer.body[:40]!r}")
            self._seen[index] = answer

    def _connect(self) -> socket.socket:
        address = (HOST, self._port)
        connection = socket.create_connection(address, timeout=SOCKET_TIMEOUT_SECONDS)
        if self._wrap is not None:
            connection = self._wrap(connection)
        self._sockets.append(connection)
        return connection


class Arrivals:
    """The moments at which answers reach a set of sockets."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._count = len(sockets)
        self._epoll = select.epoll(self._count)
        for connection in sockets:
            self._epoll.register(connection, select.EPOLLIN | select.EPOLLET)

    def wait_all(self, timeout_seconds: float) -> tuple[float, float]:
        """Waits until every socket has something to read; the monotonic times of first and last.

        Raises:
            ContenderError: not all had by the end of the time.
        """
        give_up = time.monotonic() + timeout_seconds
        seen: set[int] = set()
        first = last = 0.0
        while len(seen) < self._count:
            events = self._epoll.poll(max(0.0, give_up - time.monotonic()), self._count)
            last = time.monotonic()
            if not events:
                raise ContenderError(f"{len(seen)} of {self._count} waiters were answered")
            if not seen:
                first = last
            seen.update(descriptor for descriptor, _ in events)
        return first, last

    def close(self) -> None:
        """Ends the watch; the sockets stay open."""
        self._epoll.close()
