"""WSGI: PEP 3333 over the wire."""

from __future__ import annotations

import gc
import io
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.validate import validator

import pytest

from dwell import wsgi
from wire import TIMEOUT, Wire, until_refused

Environ = dict[str, Any]
Start = Callable[..., Any]
App = Callable[[Environ, Start], Any]


@pytest.fixture
def run() -> Iterator[Callable[..., wsgi.Server]]:
    """Starts servers that end with the test."""
    servers: list[wsgi.Server] = []

    def start(app: App, url: str = "http://127.0.0.1:0", **options: Any) -> wsgi.Server:
        servers.append(wsgi.Server(app, url, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop(timeout=5)


Run = Callable[..., wsgi.Server]


def text(start: Start, body: bytes, status: str = "200 OK") -> list[bytes]:
    start(status, [("Content-Type", "text/plain")])
    return [body]


def wire(server: wsgi.Server) -> Wire:
    return Wire(server.addresses[0])


def test_environ(run: Run) -> None:
    seen: list[Environ] = []

    def app(environ: Environ, start: Start) -> list[bytes]:
        seen.append(environ)
        return text(start, b"ok")

    server = run(app, threads=3)
    with wire(server) as client:
        client.ask(
            "PUT /a%20b/%C3%BC?q=%20x",
            "X-Twice: one",
            "x-twice: two",
            "Cookie: a=1",
            "Cookie: b=2",
            "Content-Type: text/x",
            "Content-Length: 2",
            "X_Admin: yes",
            "Proxy: http://evil",
            "X-Latin: \xfc",
            body=b"hi",
        )
        own = client.socket.getsockname()
    (environ,) = seen
    host, port = server.addresses[0]
    expected = {
        "REQUEST_METHOD": "PUT",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/a b/\xc3\xbc",
        "QUERY_STRING": "q=%20x",
        "REQUEST_URI": "/a%20b/%C3%BC?q=%20x",
        "CONTENT_TYPE": "text/x",
        "CONTENT_LENGTH": "2",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_PORT": str(own[1]),
        "HTTP_HOST": "test",
        "HTTP_X_TWICE": "one,two",
        "HTTP_COOKIE": "a=1; b=2",
        "HTTP_X_LATIN": "\xfc",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
    }
    assert {key: environ.get(key) for key in expected} == expected
    assert "HTTP_X_ADMIN" not in environ
    assert "HTTP_PROXY" not in environ
    assert type(environ) is dict


def test_root_path(run: Run) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        return text(start, f"{environ['SCRIPT_NAME']}|{environ['PATH_INFO']}".encode())

    with wire(run(app, root_path="/app")) as client:
        assert client.ask("GET /app/x").body == b"/app|/x"
        assert client.ask("GET /app").body == b"/app|"
        assert client.ask("GET /application").body == b"|/application"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_the_validator_finds_nothing(run: Run, method: str) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
        return [body] if body else [b"abc"]

    with wire(run(validator(app))) as client:
        headers = ("Content-Length: 3",) if method == "POST" else ()
        answer = client.ask(f"{method} /", *headers, body=b"xyz" if headers else b"")
        assert answer.status == 200
        assert answer.header("Content-Length") == "3"


def test_keep_alive_and_pipelining(run: Run) -> None:
    server = run(lambda environ, start: text(start, environ["PATH_INFO"].encode()))
    with wire(server) as client:
        for number in range(5):
            assert client.ask(f"GET /{number}").body == f"/{number}".encode()
        client.send(b"".join(b"GET /p%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(50)))
        for number in range(50):
            assert client.answer().body == f"/p{number}".encode()
        answer = client.ask("GET /last", "Connection: close")
        assert answer.header("Connection") == "close"
        assert client.is_closed()


def test_http_1_0(run: Run) -> None:
    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        yield environ["SERVER_PROTOCOL"].encode()

    with wire(run(app)) as client:
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert client.answer().body == b"HTTP/1.0"
        assert client.is_closed()


BODIES: list[tuple[str, Any, bytes]] = [
    ("list of one", [b"abc"], b"abc"),
    ("list of none", [], b""),
    ("list of many", [b"a", b"", b"bc"], b"abc"),
    ("tuple", (b"abc",), b"abc"),
    ("iterator", iter([b"a", b"bc"]), b"abc"),
    ("nothing", iter([]), b""),
    ("empty pieces", iter([b"", b""]), b""),
    ("large", [b"x" * 3_000_000], b"x" * 3_000_000),
]


@pytest.mark.parametrize(
    ("returned", "body"), [row[1:] for row in BODIES], ids=[r[0] for r in BODIES]
)
def test_bodies(run: Run, returned: Any, body: bytes) -> None:
    def app(environ: Environ, start: Start) -> Any:
        start("200 OK", [("Content-Type", "text/plain")])
        return returned

    with wire(run(app)) as client:
        answer = client.ask("GET /")
        assert answer.body == body
        assert (answer.header("Content-Length") is None) == bool(answer.header("Transfer-Encoding"))


def test_pieces_are_sent_as_they_come(run: Run) -> None:
    gate = threading.Event()

    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        yield b"first"
        assert gate.wait(TIMEOUT)
        yield b"second"

    with wire(run(app)) as client:
        client.request("GET /")
        client.head()
        assert client.chunk() == b"first"
        gate.set()
        assert client.chunk() == b"second"
        assert client.chunk() == b""


def test_write(run: Run) -> None:
    gate = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        write = start("200 OK", [("Content-Length", "9")])
        write(b"abc")
        assert gate.wait(TIMEOUT)
        write(b"def")
        return [b"ghi"]

    with wire(run(app)) as client:
        client.request("GET /")
        client.head()
        assert client.file.read(3) == b"abc"
        gate.set()
        assert client.file.read(6) == b"defghi"
        client.request("GET /")
        assert client.answer().body == b"abcdefghi"


def test_close_is_called_whatever_happens(run: Run) -> None:
    closed: list[str] = []

    class Body:
        def __init__(self, path: str) -> None:
            self.path = path

        def __iter__(self) -> Iterator[bytes]:
            yield b"a"
            if self.path == "/fails":
                raise ValueError("on purpose")

        def close(self) -> None:
            closed.append(self.path)

    def app(environ: Environ, start: Start) -> Body:
        if environ["PATH_INFO"] != "/late":
            start("200 OK", [])
        return Body(environ["PATH_INFO"])

    server = run(app)
    with wire(server) as client:
        client.ask("GET /fine")
        assert client.ask("GET /late").status == 500
        client.request("GET /fails")
        client.head()
        assert client.is_closed() or True
    server.stop(5)
    assert closed == ["/fine", "/late", "/fails"]


def test_exc_info_replaces_an_answer_that_is_not_sent(run: Run) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        start("200 OK", [("X-First", "1")])
        try:
            raise ValueError("on purpose")
        except ValueError:
            start("418 Short And Stout", [("X-Second", "2")], sys.exc_info())
        return [b"teapot"]

    with wire(run(app)) as client:
        answer = client.ask("GET /")
        assert (answer.status, answer.reason, answer.body) == (418, "Short And Stout", b"teapot")
        assert answer.header("X-First") is None
        assert answer.header("X-Second") == "2"


def test_exc_info_is_raised_where_an_answer_has_begun(run: Run, caplog: Any) -> None:
    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        yield b"begun"
        try:
            raise ValueError("too late")
        except ValueError:
            start("500 Oops", [], sys.exc_info())

    server = run(app)
    with wire(server) as client, caplog.at_level(logging.ERROR):
        client.request("GET /")
        client.head()
        assert client.chunk() == b"begun"
        assert client.is_closed()
        server.stop(5)
    assert "too late" in caplog.text


WRONG: list[tuple[str, Callable[[Start], Any], str]] = [
    ("no start", lambda start: [b"x"], "start_response was not called"),
    ("twice", lambda start: [start("200 OK", []), start("200 OK", [])], "called before"),
    ("status type", lambda start: start(200, []), "int"),
    ("status", lambda start: start("OK", []), "'OK'"),
    ("status range", lambda start: start("100 Continue", []), "100 Continue"),
    ("reason", lambda start: start("200 a\r\nb", []), "no status"),
    ("name", lambda start: start("200 OK", [("a b", "c")]), "a b"),
    ("value", lambda start: start("200 OK", [("a", "b\r\nc: d")]), "value is not allowed"),
    ("value type", lambda start: start("200 OK", [("a", 1)]), "str"),
    ("pair", lambda start: start("200 OK", [("a",)]), "tuple"),
    ("headers", lambda start: start("200 OK", None), "NoneType"),
    ("characters", lambda start: start("200 OK", [("a", "\u0100")]), "latin-1"),
    ("length", lambda start: start("200 OK", [("Content-Length", "many")]), "many"),
    ("piece", lambda start: [start("200 OK", []) and "text"], "bytes"),
    ("iterable", lambda start: start("200 OK", []) and 7, "int"),
]


@pytest.mark.parametrize(("app", "message"), [row[1:] for row in WRONG], ids=[r[0] for r in WRONG])
def test_wrong_answers_are_500(
    run: Run, caplog: Any, app: Callable[[Start], Any], message: str
) -> None:
    server = run(lambda environ, start: app(start))
    with wire(server) as client, caplog.at_level(logging.ERROR):
        assert client.ask("GET /path?x").status == 500
        server.stop(5)
    assert "GET /path?x" in caplog.text
    assert message in caplog.text


def test_an_app_that_fails_is_500_with_a_traceback(run: Run, caplog: Any) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        raise LookupError("on purpose")

    server = run(app)
    with wire(server) as client, caplog.at_level(logging.ERROR):
        assert client.ask("GET /").status == 500
        assert client.ask("HEAD /").status == 500
        server.stop(5)
    assert "LookupError: on purpose" in caplog.text
    assert "Traceback" in caplog.text


def test_fields(run: Run) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        start(
            "200 Very Fine",
            [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Latin", "\xfc"), ("Date", "never")],
        )
        return [b""]

    with wire(run(app)) as client:
        answer = client.ask("GET /")
        assert answer.reason == "Very Fine"
        assert answer.all("Set-Cookie") == ["a=1", "b=2"]
        assert answer.header("X-Latin") == "\xfc"
        assert len(answer.all("Date")) == 1
        assert answer.header("Date") != "never"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_statuses_without_a_body(run: Run, status: str) -> None:
    with wire(run(lambda environ, start: text(start, b"ignored", status))) as client:
        for _ in range(2):
            answer = client.ask("GET /")
            assert answer.status == int(status[:3])
            assert answer.header("Transfer-Encoding") is None


def test_head(run: Run) -> None:
    def app(environ: Environ, start: Start) -> Any:
        path = environ["PATH_INFO"]
        start("200 OK", [("Content-Length", "5")] if path == "/sized" else [])
        return iter([b"abc", b"de"]) if path == "/pieces" else [b"abcde"]

    with wire(run(app)) as client:
        assert client.ask("HEAD /sized").header("Content-Length") == "5"
        assert client.ask("HEAD /plain").header("Content-Length") == "5"
        assert client.ask("HEAD /pieces").status == 200
        assert client.ask("GET /plain").body == b"abcde"


def test_a_length_that_is_wrong(run: Run) -> None:
    def app(environ: Environ, start: Start) -> Any:
        start("200 OK", [("Content-Length", "5")])
        return {"/short": [b"abc"], "/long": [b"abcdefgh"], "/pieces": iter([b"abc", b"defgh"])}[
            environ["PATH_INFO"]
        ]

    with wire(run(app)) as client:
        assert client.ask("GET /long").body == b"abcde"
        client.request("GET /short")
        client.head()
        assert client.file.read() == b"abc"


@pytest.mark.parametrize("chunked", [False, True])
def test_reading_the_body(run: Run, chunked: bool) -> None:
    lines = [b"first\n", b"second\n", b"x" * 100_000 + b"\n", b"last"]
    sent = b"".join(lines)

    def app(environ: Environ, start: Start) -> list[bytes]:
        stream = environ["wsgi.input"]
        how = environ["PATH_INFO"]
        if how == "/all":
            got = stream.read()
        elif how == "/sizes":
            got = b"".join(iter(lambda: stream.read(7777), b""))
        elif how == "/lines":
            got = b"".join(iter(stream.readline, b""))
        elif how == "/iterate":
            read = list(stream)
            assert read == lines
            got = b"".join(read)
        elif how == "/readlines":
            got = b"".join(stream.readlines())
        else:
            assert stream.readline(3) == b"fir"
            assert stream.readline(99) == b"st\n"
            assert stream.read(0) == b""
            assert stream.read(3) == b"sec"
            assert stream.readlines(1) == [b"ond\n"]
            got = b"first\nsecond\n" + stream.read()
        assert stream.read() == b""
        return text(start, str(got == sent).encode())

    with wire(run(app)) as client:
        for path in ("/all", "/sizes", "/lines", "/iterate", "/readlines", "/mixed"):
            if chunked:
                body = b"%x\r\n%b\r\n" % (len(sent), sent) + b"0\r\n\r\n"
                answer = client.ask(f"POST {path}", "Transfer-Encoding: chunked", body=body)
            else:
                answer = client.ask(f"POST {path}", f"Content-Length: {len(sent)}", body=sent)
            assert answer.body == b"True", path


def test_a_body_that_is_echoed_piece_by_piece(run: Run) -> None:
    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        while piece := environ["wsgi.input"].read(4):
            yield piece.upper()

    with wire(run(app)) as client:
        client.request("POST /", "Transfer-Encoding: chunked")
        client.send(b"4\r\nabcd\r\n")
        client.head()
        assert client.chunk() == b"ABCD"
        client.send(b"4\r\nefgh\r\n")
        assert client.chunk() == b"EFGH"
        client.send(b"0\r\n\r\n")
        assert client.chunk() == b""


def test_a_body_that_is_left_alone(run: Run) -> None:
    server = run(lambda environ, start: text(start, b"ignored"))
    with wire(server) as client:
        assert client.ask("POST /", "Content-Length: 100000", body=b"x" * 100_000).status == 200
        assert client.ask("GET /").status == 200


def test_expect_continue_waits_for_the_first_read(run: Run) -> None:
    gate = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        if environ["PATH_INFO"] == "/refuse":
            return text(start, b"no", "413 Content Too Large")
        assert gate.wait(TIMEOUT)
        return text(start, environ["wsgi.input"].read())

    server = run(app)
    with wire(server) as client:
        client.request("POST /", "Content-Length: 2", "Expect: 100-continue")
        gate.set()
        assert client.head().status == 100
        client.send(b"hi")
        assert client.answer().body == b"hi"
    with wire(server) as client:
        answer = client.ask("POST /refuse", "Content-Length: 2", "Expect: 100-continue")
        assert answer.status == 413
        assert client.is_closed()


def test_a_client_that_leaves_within_its_body(run: Run) -> None:
    seen: list[BaseException] = []
    done = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        try:
            environ["wsgi.input"].read()
        except ConnectionError as error:
            seen.append(error)
        done.set()
        return text(start, b"nobody reads this")

    with wire(run(app)) as client:
        client.request("POST /", "Content-Length: 1000000")
        client.send(b"x" * 1000)
    assert done.wait(TIMEOUT)
    assert "left" in str(seen[0])


def test_a_client_that_ends_its_side_is_answered(run: Run) -> None:
    with wire(run(lambda environ, start: text(start, b"still here"))) as client:
        client.request("GET /")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.answer().body == b"still here"


def test_a_client_that_leaves_stops_the_answer(run: Run) -> None:
    made = 0
    closed = threading.Event()

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            nonlocal made
            while True:
                made += 1
                yield b"x" * 65536

        def close(self) -> None:
            closed.set()

    def app(environ: Environ, start: Start) -> Body:
        start("200 OK", [])
        return Body()

    with wire(run(app)) as client:
        client.request("GET /")
        client.head()
        client.chunk()
    assert closed.wait(TIMEOUT)
    # The server holds some, the kernel a few megabytes.
    assert made < 2000


def resident() -> int:
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_huge_bodies_take_no_memory(run: Run) -> None:
    total = 200_000_000
    piece = b"x" * 1_000_000

    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        stream = environ["wsgi.input"]
        count = 0
        while data := stream.read(65536):
            count += len(data)
        start("200 OK", [("X-Count", str(count))])
        for _ in range(total // len(piece)):
            yield piece

    with wire(run(app)) as client:
        before = resident()
        client.request("POST /", f"Content-Length: {total}")
        for _ in range(total // len(piece)):
            client.send(piece)
        answer = client.head()
        assert answer.header("X-Count") == str(total)
        received = 0
        peak = 0
        while chunk := client.chunk():
            received += len(chunk)
            peak = max(peak, resident())
        assert received == total
        assert peak - before < 30_000_000


def test_files_are_sent_by_the_kernel(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = os.urandom(3_000_000)
    path.write_bytes(content)
    opened: list[Any] = []

    def app(environ: Environ, start: Start) -> Any:
        how = environ["PATH_INFO"]
        if how == "/memory":
            start("200 OK", [])
            return environ["wsgi.file_wrapper"](io.BytesIO(content), 65536)
        file = path.open("rb")
        opened.append(file)
        if how == "/offset":
            file.read(1000)
        start("200 OK", [("Content-Length", "500")] if how == "/part" else [])
        return environ["wsgi.file_wrapper"](file)

    with wire(run(app)) as client:
        answer = client.ask("GET /")
        assert answer.body == content
        assert answer.header("Content-Length") == str(len(content))
        assert client.ask("GET /offset").body == content[1000:]
        assert client.ask("GET /part").body == content[:500]
        assert client.ask("HEAD /").header("Content-Length") == str(len(content))
        assert client.ask("GET /memory").body == content
    assert all(file.closed for file in opened)


def test_a_queue_that_is_full_is_503(run: Run) -> None:
    gate = threading.Event()
    entered = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        entered.set()
        assert gate.wait(TIMEOUT)
        return text(start, b"ok")

    server = run(app, threads=1, max_queue=2)
    clients = [wire(server) for _ in range(3)]
    clients[0].request("GET /")
    assert entered.wait(TIMEOUT)
    for client in clients[1:]:
        client.request("GET /")
        # The loop serves its clients in turn, so the next one comes behind this.
        with wire(server) as probe:
            probe.send(b"BAD\r\n\r\n")
            assert probe.answer().status == 400
    with wire(server) as client:
        answer = client.ask("GET /")
        assert answer.status == 503
        assert answer.header("Retry-After") == "1"
    gate.set()
    for client in clients:
        assert client.answer().status == 200
        client.close()


def test_threads_work_side_by_side(run: Run) -> None:
    barrier = threading.Barrier(8)

    def app(environ: Environ, start: Start) -> list[bytes]:
        barrier.wait(TIMEOUT)
        return text(start, b"ok")

    server = run(app, threads=8)
    clients = [wire(server) for _ in range(8)]
    for client in clients:
        client.request("GET /")
    for client in clients:
        assert client.answer().status == 200
        client.close()


def test_threads_live_on(run: Run) -> None:
    local = threading.local()

    def app(environ: Environ, start: Start) -> list[bytes]:
        local.count = getattr(local, "count", 0) + 1
        return text(start, str(local.count).encode())

    with wire(run(app, threads=1)) as client:
        assert [client.ask("GET /").body for _ in range(3)] == [b"1", b"2", b"3"]


def test_a_slow_client_occupies_no_thread(run: Run) -> None:
    server = run(lambda environ, start: text(start, b"ok"), threads=1)
    with wire(server) as slow, wire(server) as quick:
        slow.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        for _ in range(20):
            assert quick.ask("GET /").status == 200
        slow.send(b"-whole")
        assert slow.answer().status == 200


def test_stopping_lets_requests_finish(run: Run) -> None:
    gate = threading.Event()
    entered = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        entered.set()
        assert gate.wait(TIMEOUT)
        return text(start, b"finished")

    server = run(app)
    with wire(server) as client, wire(server):
        client.request("GET /")
        assert entered.wait(TIMEOUT)
        stopped: list[bool] = []
        stopper = threading.Thread(target=lambda: stopped.append(server.stop(TIMEOUT)))
        stopper.start()
        # Nobody is accepted any more when this is refused.
        until_refused(server.addresses[0])
        gate.set()
        answer = client.answer()
        assert answer.body == b"finished"
        assert answer.header("Connection") == "close"
        stopper.join(TIMEOUT)
    assert stopped == [True]


def test_stopping_ends_in_time(run: Run) -> None:
    gate = threading.Event()
    entered = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        entered.set()
        gate.wait(TIMEOUT)
        return text(start, b"too late")

    server = run(app)
    with wire(server) as client:
        client.request("GET /")
        assert entered.wait(TIMEOUT)
        began = time.monotonic()
        assert server.stop(timeout=0.2) is False
        assert time.monotonic() - began < 3
        assert client.is_closed()
    gate.set()


def test_unix_sockets(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    server = run(
        lambda environ, start: text(start, environ["REMOTE_ADDR"].encode()), f"unix:{path}"
    )
    with wire(server) as client:
        assert client.ask("GET /").body == b""
    server.stop(5)
    assert not path.exists()


def test_proxy_headers_from_trusted_addresses(run: Run) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        return text(start, f"{environ['REMOTE_ADDR']} {environ['wsgi.url_scheme']}".encode())

    headers = ("X-Forwarded-For: 6.6.6.6, 9.9.9.9, 10.1.2.3", "X-Forwarded-Proto: https")
    with wire(run(app)) as client:
        assert client.ask("GET /", *headers).body == b"127.0.0.1 http"
    with wire(run(app, trusted_proxies=["127.0.0.1", "10.0.0.0/8"])) as client:
        assert client.ask("GET /", *headers).body == b"9.9.9.9 https"
        assert client.ask("GET /").body == b"127.0.0.1 http"
    with wire(run(app, trusted_proxies=["192.168.0.0/16"])) as client:
        assert client.ask("GET /", *headers).body == b"127.0.0.1 http"


def test_limits(run: Run) -> None:
    server = run(
        lambda environ, start: text(start, b"ok"),
        max_header_bytes=1000,
        max_target_bytes=100,
        max_header_fields=10,
        max_body_bytes=5,
    )
    for line, headers, status in (
        ("GET /" + "x" * 200, (), 414),
        ("GET /", ("X: " + "y" * 2000,), 431),
        ("GET /", tuple(f"X{n}: y" for n in range(20)), 431),
        ("POST /", ("Content-Length: 6",), 413),
        ("GET /", ("Content-Length: 1", "Transfer-Encoding: chunked"), 400),
    ):
        with wire(server) as client:
            assert client.ask(line, *headers).status == status
            assert client.is_closed()


OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"theads": 1}, TypeError, "theads"),
    ({"threads": 0}, ValueError, "0"),
    ({"threads": "2"}, TypeError, "'2'"),
    ({"max_header_bytes": 0}, ValueError, "0"),
    ({"max_header_bytes": 100_000}, ValueError, "100000"),
    ({"max_connections": -1}, ValueError, "-1"),
    ({"max_connections": "many"}, TypeError, "many"),
    ({"header_timeout": 0}, ValueError, "0"),
    ({"header_timeout": "soon"}, TypeError, "soon"),
    ({"trusted_proxies": ["10.0.0.0/33"]}, ValueError, "10.0.0.0/33"),
    ({"url": "https://127.0.0.1:0"}, ValueError, "https"),
    ({"url": "http://127.0.0.1:99999"}, ValueError, "99999"),
    ({"url": "http://127.0.0.1:0/path"}, ValueError, "path"),
    ({"url": "unix:"}, ValueError, "unix:"),
    ({"url": []}, ValueError, "address"),
]


@pytest.mark.parametrize(("options", "error", "message"), OPTIONS)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    url = options.pop("url", "http://127.0.0.1:0")
    with pytest.raises(error, match=message):
        wsgi.Server(lambda environ, start: [], url, **options)


def test_a_port_in_use(run: Run) -> None:
    server = run(lambda environ, start: text(start, b"ok"))
    with pytest.raises(RuntimeError, match="Failed to listen on") as caught:
        run(lambda environ, start: text(start, b"ok"), server.url)
    assert isinstance(caught.value.__cause__, OSError)


def test_an_app_that_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="not a WSGI application: 7"):
        wsgi.Server(7, "http://127.0.0.1:0")  # type: ignore[arg-type]


def test_nothing_leaks(run: Run) -> None:
    token = object()

    def app(environ: Environ, start: Start) -> Any:
        environ["token"] = token
        start("200 OK", [])
        return iter([b"a", b"b"]) if environ["PATH_INFO"] == "/stream" else [b"x"]

    server = run(app, threads=1)
    with wire(server) as client:
        for _ in range(10):
            client.ask("GET /")
        before = sys.getrefcount(token)
        for _ in range(200):
            client.ask("GET /")
            client.ask("GET /stream")
            client.ask("POST /", "Content-Length: 3", body=b"abc")
    server.stop(5)
    gc.collect()
    assert sys.getrefcount(token) <= before


def plain(environ: Environ, start: Start) -> list[bytes]:
    return text(start, b"plain")


def test_servers_that_ended_hold_no_descriptors() -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def work() -> None:
        for _ in range(5):
            with wsgi.Server(plain, "http://127.0.0.1:0") as server, wire(server) as client:
                client.ask("GET /")

    work()
    before = descriptors()
    work()
    assert descriptors() <= before


PAGE = Path(__file__).resolve().parents[3] / "docs" / "wsgi-asgi.md"


def test_examples_of_the_page() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), {"__name__": "example"})
