"""A client that sends bytes as they are and reads answers one by one."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from types import TracebackType

TIMEOUT = 30.0


@dataclass
class Answer:
    """An answer as it came."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)

    def header(self, name: str) -> str | None:
        """The first field of this name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def all(self, name: str) -> list[str]:
        """The fields of this name, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


class Wire:
    """One connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        host, port = address
        if host.startswith("/"):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.settimeout(TIMEOUT)
            self.socket.connect(host)
        else:
            self.socket = socket.create_connection((host, port), TIMEOUT)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, line: str, *headers: str, body: bytes = b"") -> None:
        """Sends a request; its framing is the caller's."""
        head = [f"{line} HTTP/1.1", "Host: test", *headers, "", ""]
        self.send("\r\n".join(head).encode("latin-1") + body)

    def request_web_socket(self) -> None:
        """Asks for a WebSocket, with the key of RFC 6455 section 1.3."""
        self.request(
            "GET /",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )

    def ask(self, line: str, *headers: str, body: bytes = b"") -> Answer:
        """Sends a request and reads its answer."""
        self.request(line, *headers, body=body)
        return self.answer(is_head=line.startswith("HEAD "))

    def head(self) -> Answer:
        """Reads the head of an answer."""
        start = self.line()
        assert start.startswith("HTTP/1.1 "), start
        _, status, reason = start.split(" ", 2)
        return Answer(int(status), reason, self.fields())

    def fields(self) -> list[tuple[str, str]]:
        fields = []
        while line := self.line():
            name, value = line.split(":", 1)
            fields.append((name, value.strip()))
        return fields

    def line(self) -> str:
        line = self.file.readline()
        assert line.endswith(b"\r\n"), f"the connection has ended: {line!r}"
        return line[:-2].decode("latin-1")

    def answer(self, *, is_head: bool = False) -> Answer:
        """Reads a whole answer."""
        answer = self.head()
        if is_head or answer.status in (101, 204, 304):
            return answer
        if (length := answer.header("Content-Length")) is not None:
            answer.body = self.file.read(int(length))
            assert len(answer.body) == int(length), "the answer is cut off"
        elif answer.header("Transfer-Encoding") == "chunked":
            while chunk := self.chunk():
                answer.body += chunk
            answer.trailers = self.fields()
        else:
            answer.body = self.file.read()
        return answer

    def chunk(self) -> bytes:
        """Reads a chunk; the trailers behind the last one are left."""
        size = int(self.line(), 16)
        if size == 0:
            return b""
        data = self.file.read(size)
        assert self.file.read(2) == b"\r\n"
        return data

    def is_closed(self) -> bool:
        """Waits for the end of the connection; false where more data comes."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


def until_refused(address: tuple[str, int]) -> None:
    """Connects until nobody listens any more."""
    try:
        while True:
            Wire(address).close()
    except OSError:
        return
