"""An application behind the edge that records what reaches it."""

import contextlib
import dataclasses
import re
import socket
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support import ports
from support.wait import until


@dataclasses.dataclass
class Request:
    """What reached the application."""

    method: str
    target: str
    fields: list
    body: bytes

    def field(self, name):
        values = [value for key, value in self.fields if key.lower() == name.lower()]
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None


@dataclasses.dataclass
class Answer:
    """What the application answers."""

    body: bytes = b"from the app"
    status: int = 200
    fields: tuple = (("Content-Type", "text/plain"),)
    # Instead of all that: pieces that are sent as they are, after which the connection is closed.
    raw: Iterable[bytes] | None = None


class Upstream:
    """An HTTP/1.1 application in a thread. `answer` may be replaced by any function."""

    def __init__(self):
        self.address = ports.free_address()
        self.requests = []
        self.answer = lambda request: Answer()
        self.gate = threading.Event()
        self.gate.set()
        self._server = None
        self._sockets = set()

    @property
    def url(self):
        return f"http://{ports.text(self.address)}"

    def start(self):
        self._server = _Server(self.address, self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self):
        """Goes away as a killed process does: nothing listens, and every connection is reset."""
        self.gate.set()
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def hang(self):
        """From now on requests are read and not answered until `release`."""
        self.gate.clear()

    def release(self):
        self.gate.set()

    def await_requests(self, count):
        until(
            lambda: len(self.requests) >= count,
            f"{count} requests reach the application",
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, address, upstream):
        self.upstream = upstream
        super().__init__(address, _Handler)

    def handle_error(self, *_):
        """A peer that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body go out as they are written, without waiting for an acknowledgement.
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.server.upstream._sockets.add(self.connection)

    def finish(self):
        self.server.upstream._sockets.discard(self.connection)
        super().finish()

    def parse_request(self):
        if not super().parse_request():
            return False
        setattr(self, f"do_{self.command}", self._handle)
        return True

    def _handle(self):
        upstream = self.server.upstream
        request = Request(self.command, self.path, self.headers.items(), self._read_body())
        upstream.requests.append(request)
        upstream.gate.wait(60)
        answer = upstream.answer(request)
        if answer.raw is not None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                for piece in answer.raw:
                    self.connection.sendall(piece)
            return
        body = b"" if answer.status in (204, 304) else answer.body
        self.send_response(answer.status)
        for name, value in answer.fields:
            self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _read_body(self):
        if (self.headers["Transfer-Encoding"] or "").lower() == "chunked":
            body = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return body
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def log_message(self, *_):
        """Tests look at `requests`."""


class ConnectionServer:
    """Accepts connections and calls `_serve` with each, in a thread of its own."""

    SCHEME = "http"

    def __init__(self):
        self.connections = 0
        self.listener = socket.create_server(ports.free_address(), backlog=128)
        self.address = self.listener.getsockname()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def url(self):
        return f"{self.SCHEME}://{ports.text(self.address)}"

    def close(self):
        self.listener.close()

    def _run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()


class ScriptedUpstream(ConnectionServer):
    """Answers every request with the next of some byte strings, then closes the connection.

    It reads a head and as many bytes as its Content-Length says, so that closing resets nothing,
    and knows nothing else of HTTP: for answers no server sends.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        super().__init__()

    def _serve(self, connection):
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                chunk = connection.recv(65536)
                if not chunk:
                    return
                head += chunk
            head, _, body = head.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            missing = int(length[1]) - len(body) if length else 0
            while missing > 0 and (chunk := connection.recv(missing)):
                missing -= len(chunk)
            connection.sendall(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
