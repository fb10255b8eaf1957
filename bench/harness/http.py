"""The little HTTP/1.1 the harness speaks itself: whole answers with Content-Length."""

import base64
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from harness.stage import ContenderError

HEAD_END = b"\r\n\r\n"
RECEIVE_BYTES = 65536


@dataclass(frozen=True)
class Answer:
    """One answer as it came over the wire."""

    status: int
    fields: dict[str, str]
    body: bytes
    wire_bytes: int


def request(path: str, fields: dict[str, str] | None = None) -> bytes:
    """The bytes of a GET request."""
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in (fields or {}).items()]
    return "\r\n".join(lines).encode() + HEAD_END


def upgrade(path: str) -> bytes:
    """The bytes of a request for a WebSocket."""
    fields = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
    }
    return request(path, fields)


def receive_until(
    connection: socket.socket, is_whole: Callable[[bytes], bool], received: bytes = b""
) -> bytes:
    """Reads, behind what was received already, until `is_whole` says that it is enough.

    Raises:
        ContenderError: the connection ended first.
    """
    while not is_whole(received):
        received += _some(connection)
    return received


def receive(connection: socket.socket) -> Answer:
    """Reads one answer.

    Raises:
        ContenderError: the connection ended first, or the answer has no Content-Length.
    """
    received = receive_until(connection, lambda text: HEAD_END in text)
    head, _, body = received.partition(HEAD_END)
    status_line, *field_lines = head.decode("latin-1").split("\r\n")
    fields = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in field_lines)
    }
    status = int(status_line.split()[1])
    if "content-length" not in fields and status not in (204, 304):
        raise ContenderError(f"an answer without Content-Length: {status_line}")
    length = 0 if status in (204, 304) else int(fields["content-length"])
    while len(body) < length:
        body += _some(connection)
    return Answer(status, fields, body, len(head) + len(HEAD_END) + len(body))


def _some(connection: socket.socket) -> bytes:
    received = connection.recv(RECEIVE_BYTES)
    if not received:
        raise ContenderError("the connection was closed before the answer was whole")
    return received


def fetch(url: str, fields: dict[str, str] | None = None) -> Answer:
    """GETs one URL over a connection of its own."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        connection.sendall(request(parts.path, fields))
        return receive(connection)
