"""A WSGI server: its threads, its end, addresses, options, and what it leaves behind."""

from __future__ import annotations

import gc
import re
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dwell import wsgi
from servers import Environ, RunWsgi, Start, descriptors, text, wire
from wire import TIMEOUT, until_refused


def test_a_queue_that_is_full_is_503(run_wsgi: RunWsgi) -> None:
    gate = threading.Event()
    entered = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        entered.set()
        assert gate.wait(TIMEOUT)
        return text(start, b"ok")

    server = run_wsgi(app, threads=1, max_queue=2)
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


def test_threads_work_side_by_side(run_wsgi: RunWsgi) -> None:
    barrier = threading.Barrier(8)

    def app(environ: Environ, start: Start) -> list[bytes]:
        barrier.wait(TIMEOUT)
        return text(start, b"ok")

    server = run_wsgi(app, threads=8)
    clients = [wire(server) for _ in range(8)]
    for client in clients:
        client.request("GET /")
    for client in clients:
        assert client.answer().status == 200
        client.close()


def test_threads_live_on(run_wsgi: RunWsgi) -> None:
    local = threading.local()

    def app(environ: Environ, start: Start) -> list[bytes]:
        local.count = getattr(local, "count", 0) + 1
        return text(start, str(local.count).encode())

    with wire(run_wsgi(app, threads=1)) as client:
        assert [client.ask("GET /").body for _ in range(3)] == [b"1", b"2", b"3"]


def test_a_slow_client_occupies_no_thread(run_wsgi: RunWsgi) -> None:
    server = run_wsgi(lambda environ, start: text(start, b"ok"), threads=1)
    with wire(server) as slow, wire(server) as quick:
        slow.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        for _ in range(20):
            assert quick.ask("GET /").status == 200
        slow.send(b"-whole")
        assert slow.answer().status == 200


def test_stopping_lets_requests_finish(run_wsgi: RunWsgi) -> None:
    gate = threading.Event()
    entered = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        entered.set()
        assert gate.wait(TIMEOUT)
        return text(start, b"finished")

    server = run_wsgi(app)
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


def test_stopping_ends_in_time(run_wsgi: RunWsgi) -> None:
    gate = threading.Event()
    entered = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        entered.set()
        gate.wait(TIMEOUT)
        return text(start, b"too late")

    server = run_wsgi(app)
    with wire(server) as client:
        client.request("GET /")
        assert entered.wait(TIMEOUT)
        began = time.monotonic()
        assert server.stop(timeout=0.2) is False
        assert time.monotonic() - began < TIMEOUT / 2
        assert client.is_closed()
    gate.set()


def test_unix_sockets(run_wsgi: RunWsgi, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    server = run_wsgi(
        lambda environ, start: text(start, environ["REMOTE_ADDR"].encode()), f"unix:{path}"
    )
    with wire(server) as client:
        assert client.ask("GET /").body == b""
    server.stop(5)
    assert not path.exists()


def test_proxy_headers_from_trusted_addresses(run_wsgi: RunWsgi) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        return text(start, f"{environ['REMOTE_ADDR']} {environ['wsgi.url_scheme']}".encode())

    headers = ("X-Forwarded-For: 6.6.6.6, 9.9.9.9, 10.1.2.3", "X-Forwarded-Proto: https")
    with wire(run_wsgi(app)) as client:
        assert client.ask("GET /", *headers).body == b"127.0.0.1 http"
    with wire(run_wsgi(app, trusted_proxies=["127.0.0.1", "10.0.0.0/8"])) as client:
        assert client.ask("GET /", *headers).body == b"9.9.9.9 https"
        assert client.ask("GET /").body == b"127.0.0.1 http"
    with wire(run_wsgi(app, trusted_proxies=["192.168.0.0/16"])) as client:
        assert client.ask("GET /", *headers).body == b"127.0.0.1 http"


def test_limits(run_wsgi: RunWsgi) -> None:
    server = run_wsgi(
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


def test_a_port_in_use(run_wsgi: RunWsgi) -> None:
    server = run_wsgi(lambda environ, start: text(start, b"ok"))
    with pytest.raises(RuntimeError, match="Failed to listen on") as caught:
        run_wsgi(lambda environ, start: text(start, b"ok"), server.url)
    assert isinstance(caught.value.__cause__, OSError)


def test_an_app_that_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="not a WSGI application: 7"):
        wsgi.Server(7, "http://127.0.0.1:0")  # type: ignore[arg-type]


def test_nothing_leaks(run_wsgi: RunWsgi) -> None:
    token = object()

    def app(environ: Environ, start: Start) -> Any:
        environ["token"] = token
        start("200 OK", [])
        return iter([b"a", b"b"]) if environ["PATH_INFO"] == "/stream" else [b"x"]

    server = run_wsgi(app, threads=1)
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
    def work() -> None:
        for _ in range(5):
            with wsgi.Server(plain, "http://127.0.0.1:0") as server, wire(server) as client:
                client.ask("GET /")

    work()
    before = descriptors()
    work()
    assert descriptors() <= before


DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(("page", "count"), [("wsgi-asgi.md", 3), ("wsgi-asgi-tls.md", 1)])
def test_examples_of_a_page(page: str, count: int) -> None:
    text = (DOCS / page).read_text()
    examples = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(examples) == count
    for example in examples:
        exec(compile(example, page, "exec"), {"__name__": "example"})
