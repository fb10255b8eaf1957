"""The server under test, as its clients see it, and its store.

Every read has a timeout, and every answer a bound in bytes.
"""

import base64
import contextlib
import dataclasses
import http.client
import itertools
import socket
import threading
import time
import urllib.parse

from dwell_conformance.rule import Broken

BYTES_MAX = 1 << 20


@dataclasses.dataclass
class Answer:
    """One response, whole."""

    status: int
    fields: http.client.HTTPMessage
    body: bytes
    seconds: float

    def field(self, name):
        return self.fields.get(name)

    @property
    def cursor(self):
        cursor = self.field("Poll-Cursor")
        if cursor is None:
            raise Broken(f"a response with status {self.status} has no Poll-Cursor")
        return cursor


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a server; `None` for those that it does not tell of."""

    body_bytes: int = 64 << 10
    target_bytes: int = 8 << 10
    rate_path: str | None = None
    waiters_max: int | None = None


class Server:
    """Requests to one server, and values in its store."""

    def __init__(self, url, store, prefix="/poll/", timeout=30.0, limits=None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"not a URL such as http://127.0.0.1:8080: {url}")
        self.address = (parts.hostname, parts.port or 80)
        self.authority = parts.netloc
        self.store_address = store
        self.prefix = prefix
        self.timeout = timeout
        self.limits = limits or Limits()
        # Keys of an earlier run may be there still.
        self._names = (f"conformance-{time.time_ns():x}-{n}" for n in itertools.count())
        self._written = set()

    def name(self):
        """A name that no other check uses."""
        return next(self._names)

    def path(self, name):
        return f"{self.prefix}{name}"

    @contextlib.contextmanager
    def connection(self):
        connection = http.client.HTTPConnection(*self.address, timeout=self.timeout)
        with contextlib.closing(connection):
            yield connection

    def ask(self, target, method="GET", fields=None, body=None, connection=None):
        """One request; on a connection of its own if none is given."""
        with contextlib.ExitStack() as stack:
            if connection is None:
                connection = stack.enter_context(self.connection())
            begun = time.monotonic()
            connection.request(method, target, body, fields or {})
            return self.answer(connection, begun)

    def answer(self, connection, begun=None):
        """The response to the request that this connection has sent."""
        begun = time.monotonic() if begun is None else begun
        response = connection.getresponse()
        content = response.read(BYTES_MAX)
        seconds = time.monotonic() - begun
        return Answer(response.status, response.headers, content, seconds)

    def poll(self, name, query="", **options):
        return self.ask(self.path(name) + query, **options)

    @contextlib.contextmanager
    def asking(self, *targets, **options):
        """Sends requests at the same time; gives a function that waits for their answers."""
        answers = [None] * len(targets)

        def ask(index, target):
            try:
                answers[index] = self.ask(target, **options)
            except Exception as error:
                answers[index] = error

        threads = [
            threading.Thread(target=ask, args=pair, daemon=True) for pair in enumerate(targets)
        ]
        for thread in threads:
            thread.start()

        def wait():
            for thread in threads:
                thread.join(self.timeout)
            for answer in answers:
                if not isinstance(answer, Answer):
                    raise Broken(f"no answer to a poll that waits: {answer}")
            return answers

        yield wait

    def set(self, name, value):
        """Stores a value under the key of a poll of this name."""
        key = self.path(name)
        self._written.add(key)
        self._store(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n", b"STORED")

    def delete(self, name):
        self._store(f"delete {self.path(name)}\r\n".encode(), b"DELETED")

    def clean(self):
        """Deletes what the checks have stored."""
        for key in self._written:
            self._store(f"delete {key}\r\n".encode(), None)
        self._written.clear()

    def value(self, value=b"hello"):
        """A new name with this value, and the cursor of it."""
        name = self.name()
        self.set(name, value)
        answer = self.poll(name)
        if answer.status != 200:
            raise Broken(f"a poll for a value that was stored has status {answer.status}")
        return name, answer.cursor

    def events(self, target, fields=None):
        """An event stream, which is closed at the end of the block."""
        return EventStream(self, target, fields or {})

    def _store(self, command, wanted):
        with socket.create_connection(self.store_address, self.timeout) as store:
            store.sendall(command)
            with store.makefile("rb") as lines:
                line = lines.readline(1024).strip()
        if wanted is not None and line != wanted:
            raise Broken(f"the store responds with {line!r} to {command[:80]!r}")


class EventStream:
    """Server-sent events, read one by one."""

    def __init__(self, server, target, fields):
        self.connection = http.client.HTTPConnection(*server.address, timeout=server.timeout)
        self.timeout = server.timeout
        self.target = target
        self.fields = {"Accept": "text/event-stream", **fields}
        self.response = None
        self.socket = None
        self.is_cut = False

    def __enter__(self):
        try:
            self.connection.request("GET", self.target, headers=self.fields)
            # The connection forgets it where the response ends with it.
            self.socket = self.connection.sock
            self.response = self.connection.getresponse()
        except BaseException:
            self.connection.close()
            raise
        return self

    def __exit__(self, *_):
        self.connection.close()

    def event(self):
        """The next event, as a dictionary of its fields; comments and `retry` are left out.

        It comes whole within the timeout: heartbeats, and pieces of it, give it no more time.
        """
        cut = threading.Timer(self.timeout, self._cut)
        cut.daemon = True
        cut.start()
        try:
            return self._event()
        except Exception:
            if self.is_cut:
                raise Broken(f"no event has come whole within {self.timeout} s") from None
            raise
        finally:
            cut.cancel()

    def _cut(self):
        self.is_cut = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def _event(self):
        fields, count = {}, 0
        while True:
            line = self.response.readline(BYTES_MAX).decode()
            count += len(line)
            if not line or count > BYTES_MAX:
                raise Broken("the event stream has ended, or an event does not end")
            line = line.rstrip("\n")
            if line:
                name, _, text = line.partition(":")
                text = text.removeprefix(" ")
                fields[name] = f"{fields[name]}\n{text}" if name in fields else text
                continue
            fields.pop("", None)
            fields.pop("retry", None)
            if fields:
                return fields


def text_of(entry):
    """The bytes of a value in JSON."""
    return entry["v"].encode() if "v" in entry else base64.b64decode(entry["b64"])
