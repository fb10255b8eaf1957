"""WSGI over HTTP/2 without TLS, by prior knowledge, and the flag of the command."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dwell import wsgi
from http2_client import Http2
from programs import Start as StartProgram
from servers import Environ, RunWsgi, Start, text, wire
from wire import TIMEOUT

DATA = Path(__file__).parents[3] / "crates" / "tls" / "tests" / "data"
INTERNAL_ERROR, REFUSED_STREAM = 2, 7


class Site:
    """An application that answers in every way."""

    def __init__(self) -> None:
        self.environs: list[Environ] = []
        self.waiting = threading.Semaphore(0)
        self.closed = threading.Semaphore(0)
        self.gate = threading.Event()

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        self.environs.append(environ)
        path = environ["PATH_INFO"].strip("/") or "index"
        answer: Iterable[bytes] = getattr(self, path)(environ, start)
        return answer

    def index(self, environ: Environ, start: Start) -> Iterable[bytes]:
        return text(start, environ["SERVER_PROTOCOL"].encode())

    def echo(self, environ: Environ, start: Start) -> Iterable[bytes]:
        return text(start, environ["wsgi.input"].read())

    def wait(self, environ: Environ, start: Start) -> Iterable[bytes]:
        self.waiting.release()
        assert self.gate.wait(TIMEOUT)
        return text(start, b"waited")

    def pieces(self, environ: Environ, start: Start) -> Iterable[bytes]:
        environ["wsgi.early_hints"]([("Link", "</a.css>; rel=preload")])
        start("200 Fine", [("Content-Type", "text/plain")])
        return iter([b"one ", b"two"])

    def endless(self, environ: Environ, start: Start) -> Iterable[bytes]:
        start("200 OK", [])
        return Endless(self)

    def short(self, environ: Environ, start: Start) -> Iterable[bytes]:
        start("200 OK", [("Content-Length", "10")])
        return iter([b"half", b""])


class Endless:
    """A body without an end, that notes when it is given up."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b"e" * 8192

    def close(self) -> None:
        self.site.closed.release()


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def server(run_wsgi: RunWsgi, site: Site) -> wsgi.Server:
    return run_wsgi(site, h2c=True, threads=8)


def client(server: wsgi.Server, **options: Any) -> Http2:
    return Http2(server.addresses[0], **options)


def test_environ(server: wsgi.Server, site: Site) -> None:
    with client(server) as peer:
        answer = peer.get("/?q=1", fields=[("x-own", "1"), ("cookie", "a=1"), ("cookie", "b=2")])
        assert (answer.status, answer.body) == (200, b"HTTP/2.0")
        assert peer.get("/echo", method="POST", body=b"body").body == b"body"
        assert answer.names() == {"date", "content-type", "content-length"}
    with wire(server) as old:
        assert old.ask("GET /").body == b"HTTP/1.1"
    first, second, _ = site.environs
    assert (first["QUERY_STRING"], first["HTTP_HOST"]) == ("q=1", "test")
    assert (first["HTTP_X_OWN"], first["HTTP_COOKIE"]) == ("1", "a=1; b=2")
    assert second["wsgi.input_terminated"] is True
    assert not {"CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING"} & second.keys()


def test_streams_wait_side_by_side(server: wsgi.Server, site: Site) -> None:
    with client(server) as peer:
        asked = [peer.ask("/wait") for _ in range(7)]
        for _ in asked:
            assert site.waiting.acquire(timeout=TIMEOUT)
        assert peer.get("/").body == b"HTTP/2.0"
        site.gate.set()
        assert [peer.answer(number).body for number in asked] == [b"waited"] * 7


def test_bodies(server: wsgi.Server) -> None:
    with client(server) as peer:
        for size in (1, 70_000, 3_000_000):
            body = b"b" * size
            length = [("content-length", str(size))]
            assert peer.get("/echo", method="POST", fields=length, body=body).body == body
            assert peer.get("/echo", method="POST", body=body).body == body


def test_an_answer_in_pieces(server: wsgi.Server) -> None:
    with client(server) as peer:
        answer = peer.get("/pieces")
        assert answer.interim == [[(":status", "103"), ("link", "</a.css>; rel=preload")]]
        assert answer.body == b"one two"
        # What is shorter than it has announced is no whole answer.
        asked = peer.ask("/short")
        assert peer.until(asked, lambda stream: stream.reset is not None).reset == INTERNAL_ERROR
        assert peer.get("/").body == b"HTTP/2.0"


def test_a_reset_ends_the_iteration(server: wsgi.Server, site: Site) -> None:
    with client(server, window=16_384) as peer:
        asked = peer.ask("/endless")
        peer.until(asked, lambda stream: len(stream.body) >= 16_384)
        peer.reset(asked)
        assert site.closed.acquire(timeout=TIMEOUT)
        assert peer.get("/").body == b"HTTP/2.0"


PROGRAM = """
import os, time
def app(environ, start_response):
    if environ["PATH_INFO"] == "/wait":
        os.write(1, b"waiting\\n")
        while not os.path.exists("gate"):
            time.sleep(0.01)
    start_response("200 OK", [])
    return [environ["SERVER_PROTOCOL"].encode()]
"""

ASYNC_PROGRAM = """
import asyncio, os
async def app(scope, receive, send):
    assert scope["type"] == "http"
    if scope["path"] == "/wait":
        os.write(1, b"waiting\\n")
        while not os.path.exists("gate"):
            await asyncio.sleep(0.01)
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"HTTP/2.0"})
"""


@pytest.mark.parametrize("source", [PROGRAM, ASYNC_PROGRAM], ids=["wsgi", "asgi"])
def test_sigterm_lets_streams_finish(start: StartProgram, tmp_path: Path, source: str) -> None:
    (tmp_path / "program.py").write_text(source)
    program = start("program:app", "--port", "0", "--h2c", "--access-log-format", "%(r)s %(s)s")
    with Http2(program.address()) as peer:
        asked = [peer.ask("/wait") for _ in range(3)]
        for _ in asked:
            program.wait_for("waiting")
        program.send(signal.SIGTERM)
        while not peer.is_told_to_go:
            peer.read()
        (tmp_path / "gate").touch()
        peer.rest()
        assert [peer.streams[number].body for number in asked] == [b"HTTP/2.0"] * 3
    assert program.end() == 0
    assert program.seen.count("GET /wait HTTP/2.0 200") == 3, program.seen


def test_the_flag_excludes_certificates(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    files = ["--ssl-certfile", DATA / "certificate.pem", "--ssl-keyfile", DATA / "key.pem"]
    command = [sys.executable, "-m", "dwell", "program:app", "--port", "0", "--h2c", *files]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 1
    assert "h2c is HTTP/2 without TLS: give http2 instead" in done.stderr


def test_resets_give_no_client_more_work(server: wsgi.Server, site: Site) -> None:
    with client(server) as peer:
        for _ in range(128):
            peer.reset(peer.ask("/wait"))
        refused = peer.ask("/")
        stream = peer.until(refused, lambda stream: stream.reset is not None)
        assert (stream.status, stream.reset) == (None, REFUSED_STREAM)
        site.gate.set()
        with client(server) as other:
            # When a later request is answered, each thread has an earlier one at most.
            assert other.get("/").body == b"HTTP/2.0"
        stream = peer.get("/")
    assert stream.body == b"HTTP/2.0"
