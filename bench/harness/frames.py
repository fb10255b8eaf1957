"""The little HTTP/2 the harness speaks itself: GET requests on streams, and whole answers.

Blocks are written without a table. Of an answer's block only its beginning is read, which is its
status where that is 200: what a client has to know of it besides is asked over HTTP/1.1.
"""

import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Self

from harness.pollers import SOCKET_TIMEOUT_SECONDS
from harness.stage import HOST, ContenderError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
FRAME_BYTES = 9
RECEIVE_BYTES = 65536
# An index of the static table (RFC 7541 appendix A).
STATUS_200 = 0x88
# More than all answers that one connection gets in a run.
WINDOW_BYTES = 1 << 24


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload) << 8 | kind) + struct.pack(">BI", flags, stream) + payload


OPENING = (
    PREFACE
    + frame(SETTINGS, 0, 0, b"")
    + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_BYTES))
)


def request(stream: int, path: str, fields: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """The frame of a GET request, whose names and values are of at most 126 bytes."""
    lines = {":method": "GET", ":scheme": "http", ":path": path, ":authority": HOST, **fields}
    parts = [
        b"\0%c%b%c%b" % (len(name), name.lower().encode(), len(value), value.encode())
        for name, value in lines.items()
    ]
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, b"".join(parts))


class Connection:
    """One connection, and the answers that have come on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=SOCKET_TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = -1
        self._text = b""
        self._bodies: dict[int, bytes] = {}
        self._has_settings = False
        self.socket.sendall(OPENING)

    def ask(self, paths: Sequence[str], fields: Mapping[str, str] = MappingProxyType({})) -> None:
        """Sends requests in one write, each on a stream of its own."""
        frames = []
        for path in paths:
            self._stream += 2
            frames.append(request(self._stream, path, fields))
        self.socket.sendall(b"".join(frames))

    def take(self, count: int) -> tuple[list[bytes], int]:
        """Reads so many whole answers; their bodies, and the bytes that have come.

        Raises:
            ContenderError: one is not 200, or the connection ended first.
        """
        ended: list[bytes] = []
        received = 0
        while len(ended) < count or not self._has_settings:
            some = self.socket.recv(RECEIVE_BYTES)
            if not some:
                raise ContenderError("a connection of HTTP/2 ended before its answers were whole")
            received += len(some)
            self._text += some
            ended += self._frames()
        if len(ended) > count:
            raise ContenderError(f"{len(ended)} answers came instead of {count}")
        return ended, received

    def _frames(self) -> list[bytes]:
        """Takes whole frames; the bodies of the answers that have ended."""
        ended: list[bytes] = []
        while len(self._text) >= FRAME_BYTES:
            start, flags, stream = struct.unpack(">IBI", self._text[:FRAME_BYTES])
            end = FRAME_BYTES + (start >> 8)
            if len(self._text) < end:
                break
            kind, payload = start & 0xFF, self._text[FRAME_BYTES:end]
            self._text = self._text[end:]
            if kind == SETTINGS and not flags & ACK:
                self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
                self._has_settings = True
            elif kind == HEADERS:
                if payload[0] != STATUS_200:
                    raise ContenderError("an answer of HTTP/2 is not 200")
                self._bodies[stream] = b""
            elif kind == DATA:
                self._bodies[stream] += payload
            elif kind not in (SETTINGS, WINDOW_UPDATE):
                raise ContenderError(f"a frame of type {kind} came")
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                ended.append(self._bodies.pop(stream))
        return ended


class Streams:
    """Clients that ask on streams: so many connections, with so many requests on each."""

    def __init__(self, port: int, connections: int, streams: int) -> None:
        self._port = port
        self._count = connections
        self._streams = streams
        self._connections: list[Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.socket.close()

    def open(self, path: str) -> None:
        """Connects all, each after one answer, by which it has what comes first."""
        for _ in range(self._count):
            connection = Connection(self._port)
            self._connections.append(connection)
            connection.ask([path])
            connection.take(1)

    def hold(self, path: str, fields: Mapping[str, str]) -> None:
        """Has every stream wait."""
        for connection in self._connections:
            connection.ask([path] * self._streams, fields)

    def take_answers(self, body: bytes) -> int:
        """Reads what every stream was told; the bytes of the answers of one connection.

        Raises:
            ContenderError: one was not told `body`, or was sent another number of bytes.
        """
        sizes = set()
        for connection in self._connections:
            bodies, size = connection.take(self._streams)
            if set(bodies) != {body}:
                raise ContenderError(f"streams were told {set(bodies)}")
            sizes.add(size)
        if len(sizes) != 1:
            raise ContenderError(f"answers of a connection have {sizes} bytes")
        return sizes.pop()

    def require_silence(self) -> None:
        """Checks that every stream waits.

        Raises:
            ContenderError: some connections were sent something.
        """
        watch = select.poll()
        for connection in self._connections:
            watch.register(connection.socket, select.POLLIN)
        if disturbed := len(watch.poll(0)):
            raise ContenderError(f"{disturbed} of {self._count} connections were not kept waiting")

    def arrivals(self, size: int) -> "Arrivals":
        """A watch over all connections, to be made before what wakes them.

        One answer comes whole, so its size is not looked at, as it is not with HTTP/1.1.
        """
        return Arrivals(self._connections, size if self._streams > 1 else 0)


class Arrivals:
    """The moments at which answers of so many bytes have reached each of some connections.

    What comes is looked at and not taken, so the streams can read it afterwards. Without a size
    anything is enough.
    """

    def __init__(self, connections: Sequence[Connection], size: int) -> None:
        self._size = size
        self._missing = {each.socket.fileno(): each.socket for each in connections}
        self._epoll = select.epoll(len(connections))
        for descriptor in self._missing:
            self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLET)

    def wait_all(self, timeout_seconds: float) -> tuple[float, float]:
        """Waits until every connection has all; the monotonic times of first and last.

        Raises:
            ContenderError: not all had by the end of the time.
        """
        give_up = time.monotonic() + timeout_seconds
        buffer = bytearray(self._size)
        first = last = 0.0
        while self._missing:
            events = self._epoll.poll(max(0.0, give_up - time.monotonic()), len(self._missing))
            first = first or time.monotonic()
            if not events:
                raise ContenderError(f"{len(self._missing)} connections miss some answers")
            for descriptor, _ in events:
                missing = self._missing.get(descriptor)
                if missing is None:
                    continue
                if self._size and missing.recv_into(buffer, 0, socket.MSG_PEEK) < self._size:
                    continue
                del self._missing[descriptor]
            last = time.monotonic()
        return first, last

    def close(self) -> None:
        """Ends the watch; the connections stay open."""
        self._epoll.close()
