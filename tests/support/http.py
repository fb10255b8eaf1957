"""A strict HTTP/1.1 client on one socket: it sends any bytes and reads exact answers."""

import dataclasses
import socket

from support.wait import PATIENCE_S

BODILESS = (204, 304)


@dataclasses.dataclass
class Response:
    """One answer."""

    version: str
    status: int
    reason: str
    fields: list
    body: bytes = b""

    def field(self, name):
        """The value of the only field of this name, or None."""
        values = self.all(name)
        assert len(values) < 2, f"{name} was sent {len(values)} times"
        return values[0] if values else None

    def all(self, name):
        """The values of every field of this name."""
        return [value for key, value in self.fields if key.lower() == name.lower()]

    @property
    def etag(self):
        return self.field("ETag")

    @property
    def closes(self):
        """Whether the server says that it closes the connection."""
        return "close" in (self.field("Connection") or "").lower()


class Connection:
    """One client connection."""

    def __init__(self, address, timeout_s=PATIENCE_S, receive_buffer_bytes=None, source=None):
        self.socket = socket.socket()
        if source:
            self.socket.bind((source, 0))
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_s)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def ask(self, target, method="GET", fields=(), body=None):
        """Sends one request."""
        self.send(request(target, method, fields, body))

    def get(self, target, method="GET", fields=(), body=None):
        """Sends one request and reads its answer."""
        self.ask(target, method, fields, body)
        return self.answer(method)

    def answer(self, method="GET"):
        """Reads one answer."""
        response = self._head()
        response.body = self._body(response, method)
        return response

    def is_ended(self):
        """Whether the server has closed the connection, sending nothing more."""
        try:
            return self.buffer == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_silent(self):
        """Whether nothing has come, not even the end."""
        timeout_s = self.socket.gettimeout()
        self.socket.setblocking(False)
        try:
            self.buffer += self.socket.recv(65536)
            return False
        except BlockingIOError:
            return self.buffer == b""
        finally:
            self.socket.settimeout(timeout_s)

    def read_to_end(self):
        """Reads until the server closes."""
        while chunk := self._receive():
            self.buffer += chunk
        everything, self.buffer = self.buffer, b""
        return everything

    def _receive(self):
        return self.socket.recv(65536)

    def _more(self):
        chunk = self._receive()
        if not chunk:
            raise EOFError(f"closed within an answer, after {self.buffer[:200]!r}")
        self.buffer += chunk

    def _line(self):
        while b"\n" not in self.buffer:
            self._more()
        line, _, self.buffer = self.buffer.partition(b"\n")
        assert line.endswith(b"\r"), f"a line without CR: {line!r}"
        return line[:-1].decode("latin-1")

    def _take(self, count):
        while len(self.buffer) < count:
            self._more()
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def _head(self):
        version, status, *reason = self._line().split(" ", 2)
        assert version in ("HTTP/1.1", "HTTP/1.0"), version
        response = Response(version, int(status), "".join(reason), [])
        while line := self._line():
            name, colon, value = line.partition(":")
            assert colon, f"not a field: {line!r}"
            assert name == name.strip() != "", f"not a field name: {name!r}"
            response.fields.append((name, value.strip()))
        return response

    def _body(self, response, method):
        length = response.field("Content-Length")
        coding = response.field("Transfer-Encoding")
        if method == "HEAD" or response.status in BODILESS or response.status < 200:
            return b""
        if coding is not None:
            assert coding.lower() == "chunked"
            assert length is None
            return self._chunks()
        if length is None:
            assert response.closes or response.version == "HTTP/1.0"
            return self.read_to_end()
        return self._take(int(length))

    def _chunks(self):
        body = b""
        while size := int(self._line().partition(";")[0], 16):
            body += self._take(size)
            assert self._line() == ""
        while self._line():
            pass
        return body


def request(target, method="GET", fields=(), body=None, version="HTTP/1.1"):
    """The bytes of one request; Host and Content-Length are added where they are missing."""
    fields = list(fields.items()) if isinstance(fields, dict) else list(fields)
    names = {name.lower() for name, _ in fields}
    if "host" not in names:
        fields.insert(0, ("Host", "localhost"))
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        fields.append(("Content-Length", str(len(body))))
    lines = [
        f"{method} {target} {version}",
        *(f"{name}: {value}" for name, value in fields),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")
