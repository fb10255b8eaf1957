"""WSGI over the wire: what an app is told, and what its answers become (PEP 3333)."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.validate import validator

import pytest

from servers import Environ, RunWsgi, Start, text, wire
from wire import TIMEOUT


def test_environ(run_wsgi: RunWsgi) -> None:
    seen: list[Environ] = []

    def app(environ: Environ, start: Start) -> list[bytes]:
        seen.append(environ)
        return text(start, b"ok")

    server = run_wsgi(app, threads=3)
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


def test_root_path(run_wsgi: RunWsgi) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        return text(start, f"{environ['SCRIPT_NAME']}|{environ['PATH_INFO']}".encode())

    with wire(run_wsgi(app, root_path="/app/")) as client:
        assert client.ask("GET /app/x").body == b"/app|/x"
        assert client.ask("GET /app").body == b"/app|"
        assert client.ask("GET /application").body == b"/app|/application"
        # A proxy has taken the prefix off.
        assert client.ask("GET /x").body == b"/app|/x"
        assert client.ask("GET /").body == b"/app|/"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_the_validator_finds_nothing(run_wsgi: RunWsgi, method: str) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
        return [body] if body else [b"abc"]

    with wire(run_wsgi(validator(app))) as client:
        headers = ("Content-Length: 3",) if method == "POST" else ()
        answer = client.ask(f"{method} /", *headers, body=b"xyz" if headers else b"")
        assert answer.status == 200
        assert answer.header("Content-Length") == "3"


def test_keep_alive_and_pipelining(run_wsgi: RunWsgi) -> None:
    server = run_wsgi(lambda environ, start: text(start, environ["PATH_INFO"].encode()))
    with wire(server) as client:
        for number in range(5):
            assert client.ask(f"GET /{number}").body == f"/{number}".encode()
        client.send(b"".join(b"GET /p%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(50)))
        for number in range(50):
            assert client.answer().body == f"/p{number}".encode()
        answer = client.ask("GET /last", "Connection: close")
        assert answer.header("Connection") == "close"
        assert client.is_closed()


def test_http_1_0(run_wsgi: RunWsgi) -> None:
    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        yield environ["SERVER_PROTOCOL"].encode()

    with wire(run_wsgi(app)) as client:
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
def test_bodies(run_wsgi: RunWsgi, returned: Any, body: bytes) -> None:
    def app(environ: Environ, start: Start) -> Any:
        start("200 OK", [("Content-Type", "text/plain")])
        return returned

    with wire(run_wsgi(app)) as client:
        answer = client.ask("GET /")
        assert answer.body == body
        assert (answer.header("Content-Length") is None) == bool(answer.header("Transfer-Encoding"))


def test_pieces_are_sent_as_they_come(run_wsgi: RunWsgi) -> None:
    gate = threading.Event()

    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        yield b"first"
        assert gate.wait(TIMEOUT)
        yield b"second"

    with wire(run_wsgi(app)) as client:
        client.request("GET /")
        client.head()
        assert client.chunk() == b"first"
        gate.set()
        assert client.chunk() == b"second"
        assert client.chunk() == b""


def test_write(run_wsgi: RunWsgi) -> None:
    gate = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        write = start("200 OK", [("Content-Length", "9")])
        write(b"abc")
        assert gate.wait(TIMEOUT)
        write(b"def")
        return [b"ghi"]

    with wire(run_wsgi(app)) as client:
        client.request("GET /")
        client.head()
        assert client.file.read(3) == b"abc"
        gate.set()
        assert client.file.read(6) == b"defghi"
        client.request("GET /")
        assert client.answer().body == b"abcdefghi"


def test_close_is_called_whatever_happens(run_wsgi: RunWsgi) -> None:
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

    server = run_wsgi(app)
    with wire(server) as client:
        client.ask("GET /fine")
        assert client.ask("GET /late").status == 500
        client.request("GET /fails")
        client.head()
        assert client.is_closed() or True
    server.stop(5)
    assert closed == ["/fine", "/late", "/fails"]


def test_exc_info_replaces_an_answer_that_is_not_sent(run_wsgi: RunWsgi) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        start("200 OK", [("X-First", "1")])
        try:
            raise ValueError("on purpose")
        except ValueError:
            start("418 Short And Stout", [("X-Second", "2")], sys.exc_info())
        return [b"teapot"]

    with wire(run_wsgi(app)) as client:
        answer = client.ask("GET /")
        assert (answer.status, answer.reason, answer.body) == (418, "Short And Stout", b"teapot")
        assert answer.header("X-First") is None
        assert answer.header("X-Second") == "2"


def test_exc_info_is_raised_where_an_answer_has_begun(run_wsgi: RunWsgi, caplog: Any) -> None:
    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        yield b"begun"
        try:
            raise ValueError("too late")
        except ValueError:
            start("500 Oops", [], sys.exc_info())

    server = run_wsgi(app)
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
    ("status", lambda start: start("OK", []), '"OK"'),
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
    run_wsgi: RunWsgi, caplog: Any, app: Callable[[Start], Any], message: str
) -> None:
    server = run_wsgi(lambda environ, start: app(start))
    with wire(server) as client, caplog.at_level(logging.ERROR):
        assert client.ask("GET /path?x").status == 500
        server.stop(5)
    [record] = caplog.records
    assert "GET /path?x" in record.getMessage()
    # Not in the traceback, which shows the lines of this file.
    assert message in str(record.exc_info[1])


def test_an_app_that_fails_is_500_with_a_traceback(run_wsgi: RunWsgi, caplog: Any) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        raise LookupError("on purpose")

    server = run_wsgi(app)
    with wire(server) as client, caplog.at_level(logging.ERROR):
        assert client.ask("GET /").status == 500
        assert client.ask("HEAD /").status == 500
        server.stop(5)
    assert "LookupError: on purpose" in caplog.text
    assert "Traceback" in caplog.text


def test_fields(run_wsgi: RunWsgi) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        start(
            "200 Very Fine",
            [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Latin", "\xfc"), ("Date", "never")],
        )
        return [b""]

    with wire(run_wsgi(app)) as client:
        answer = client.ask("GET /")
        assert answer.reason == "Very Fine"
        assert answer.all("Set-Cookie") == ["a=1", "b=2"]
        assert answer.header("X-Latin") == "\xfc"
        assert len(answer.all("Date")) == 1
        assert answer.header("Date") != "never"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_statuses_without_a_body(run_wsgi: RunWsgi, status: str) -> None:
    with wire(run_wsgi(lambda environ, start: text(start, b"ignored", status))) as client:
        for _ in range(2):
            answer = client.ask("GET /")
            assert answer.status == int(status[:3])
            assert answer.header("Transfer-Encoding") is None


def test_head(run_wsgi: RunWsgi) -> None:
    def app(environ: Environ, start: Start) -> Any:
        path = environ["PATH_INFO"]
        start("200 OK", [("Content-Length", "5")] if path == "/sized" else [])
        return iter([b"abc", b"de"]) if path == "/pieces" else [b"abcde"]

    with wire(run_wsgi(app)) as client:
        assert client.ask("HEAD /sized").header("Content-Length") == "5"
        assert client.ask("HEAD /plain").header("Content-Length") == "5"
        assert client.ask("HEAD /pieces").status == 200
        assert client.ask("GET /plain").body == b"abcde"


def test_a_length_that_is_wrong(run_wsgi: RunWsgi) -> None:
    def app(environ: Environ, start: Start) -> Any:
        start("200 OK", [("Content-Length", "5")])
        return {"/short": [b"abc"], "/long": [b"abcdefgh"], "/pieces": iter([b"abc", b"defgh"])}[
            environ["PATH_INFO"]
        ]

    with wire(run_wsgi(app)) as client:
        assert client.ask("GET /long").body == b"abcde"
        client.request("GET /short")
        client.head()
        assert client.file.read() == b"abc"


def whole(start: Start) -> list[bytes]:
    start("200 OK", [("Content-Length", "4")])
    return [b"longer"]


def pieces(start: Start) -> list[bytes]:
    start("200 OK", [("Content-Length", "4")])
    return [b"lo", b"ng", b"er"]


def one_piece_of_many(start: Start) -> list[bytes]:
    start("200 OK", [("Content-Length", "4")])
    return [b"lon", b"ger", b"!"]


def written(start: Start) -> list[bytes]:
    write = start("200 OK", [("Content-Length", "4")])
    write(b"longer")
    return []


@pytest.mark.parametrize("answer", [whole, pieces, one_piece_of_many, written])
def test_a_body_over_its_length_is_logged(
    run_wsgi: RunWsgi, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        result: list[bytes] = answer(start)
        return result

    # The thread logs before it takes its next request.
    with wire(run_wsgi(app, threads=1)) as client:
        for _ in range(2):
            # What was announced is sent, and the connection goes on.
            assert client.ask("GET /").body == b"long"
        assert client.ask("HEAD /").header("Content-Length") == "4"
        client.ask("GET /last")
    lines = [record for record in caplog.records if record.exc_info]
    assert [line.getMessage().split("(")[0] for line in lines[:2]] == [
        "the application failed on GET / "
    ] * 2
    assert "body exceeds its Content-Length of 4 bytes" in str(lines[0].exc_info)
    assert not any("HEAD" in line.getMessage() for line in lines)
