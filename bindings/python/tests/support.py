"""A manager polled by the test itself, and clients on plain sockets.

Nothing here sleeps: `Loop.until` polls until what is waited for has happened, and fails after a
time that is only ever reached when it never does.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from dwell import Connection, Event, Manager

PATIENCE_S = 30.0

Told = tuple[Connection, Event, Any]


class Loop:
    """A manager with one HTTP listener, and a record of what its handler was told."""

    def __init__(self, handler: Callable[..., object] | None = None, **options: Any) -> None:
        self.told: list[tuple[int, Event]] = []
        self._handler = handler
        self.manager = Manager(self._tell, **options)

    def _tell(self, conn: Connection, event: Event, data: Any) -> None:
        self.told.append((conn.id, event))
        if self._handler is not None:
            self._handler(conn, event, data)

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.manager.close()

    def listen(
        self, url: str = "http://127.0.0.1:0", *arguments: Any, **options: Any
    ) -> Connection:
        """Listens on a free port."""
        return self.manager.listen(url, *arguments, **options)

    def until(self, condition: Callable[[], object]) -> None:
        """Polls until `condition` is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"it never came; told: {self.told}"
            self.manager.poll(50)

    def until_told(self, event: Event, count: int = 1) -> None:
        """Polls until the handler was told `event` so often."""
        self.until(lambda: sum(kind is event for _, kind in self.told) >= count)

    def events(self, conn_id: int) -> list[str]:
        """The names of what was told of one connection, but for polls."""
        return [event.name for told, event in self.told if told == conn_id]

    def client(self, listener: Connection) -> Client:
        """A client that is connected."""
        return Client(self, port_of(listener))

    def ask(self, listener: Connection, request: bytes) -> bytes:
        """One request on a connection of its own; the answer with its head."""
        with self.client(listener) as client:
            client.send(request)
            return client.answer()


def answer(conn: Connection, event: Event, _data: Any) -> None:
    """Answers every request."""
    if event == Event.HTTP_MSG:
        conn.reply(200, "ok")


def port_of(listener: Connection) -> int:
    """The port that a listener was given."""
    address = listener.local_addr
    assert address is not None
    return address[1]


class Client:
    """A socket whose other end the same thread polls."""

    def __init__(self, loop: Loop, port: int) -> None:
        self.loop = loop
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.input = b""
        self.ended = False

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends all of it, while the manager is polled."""
        while data:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                self.loop.manager.poll(1)

    def _receive(self) -> None:
        # All that is there, so that a poll is only waited for when nothing is.
        while not self.ended:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            self.input += data
            self.ended = not data

    def until(self, condition: Callable[[], object]) -> None:
        """Polls and receives until `condition` is true."""

        def met() -> object:
            self._receive()
            return condition()

        self.loop.until(met)

    def take(self, length: int) -> bytes:
        """The next bytes."""
        self.until(lambda: len(self.input) >= length or self.ended)
        assert len(self.input) >= length, (self.input, "ended")
        data, self.input = self.input[:length], self.input[length:]
        return data

    def take_until(self, end: bytes) -> bytes:
        """The next bytes up to and with `end`."""
        self.until(lambda: end in self.input or self.ended)
        assert end in self.input, (self.input, "ended")
        return self.take(self.input.index(end) + len(end))

    def rest(self) -> bytes:
        """Everything until the server closes."""
        self.until(lambda: self.ended)
        return self.take(len(self.input))

    def answer(self) -> bytes:
        """One answer with a Content-Length, or without a body."""
        head = self.take_until(b"\r\n\r\n")
        fields = fields_of(head)
        return head + self.take(int(fields.get("content-length", "0")))

    def get(self, target: str = "/") -> bytes:
        """The answer to a GET."""
        self.send(f"GET {target} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        return self.answer()

    def upgrade(self, target: str = "/", extra: str = "") -> bytes:
        """Asks for a WebSocket; the head of the answer."""
        key = base64.b64encode(os.urandom(16)).decode()
        self.send(
            f"GET {target} HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"{extra}\r\n".encode()
        )
        return self.take_until(b"\r\n\r\n")

    def send_frame(self, opcode: int, payload: bytes, *, fin: bool = True) -> None:
        """Sends a masked frame."""
        length = len(payload)
        if length < 126:
            header = bytes([fin << 7 | opcode, 0x80 | length])
        elif length < 1 << 16:
            header = bytes([fin << 7 | opcode, 0x80 | 126]) + struct.pack("!H", length)
        else:
            header = bytes([fin << 7 | opcode, 0x80 | 127]) + struct.pack("!Q", length)
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        self.send(header + mask + masked)

    def frame(self) -> tuple[int, bytes]:
        """The next frame: its first byte and its payload."""
        first, length = self.take(2)
        if length == 126:
            (length,) = struct.unpack("!H", self.take(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self.take(8))
        return first, self.take(length)


def fields_of(head: bytes) -> dict[str, str]:
    """The fields of an answer's head, their names in lower case."""
    lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    pairs = (line.split(":", 1) for line in lines)
    return {name.lower(): value.strip() for name, value in pairs}


def body_of(answer: bytes) -> bytes:
    """What follows the head."""
    return answer.partition(b"\r\n\r\n")[2]
