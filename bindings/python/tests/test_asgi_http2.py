"""ASGI 3 over HTTP/2 without TLS, by prior knowledge."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from http2_client import Http2
from servers import Receive, RunAsgi, RunningAsgi, Scope, Send, read, respond
from wire import TIMEOUT

DATA = Path(__file__).parents[3] / "crates" / "tls" / "tests" / "data"
INTERNAL_ERROR, REFUSED_STREAM = 2, 7


def client(server: RunningAsgi, **options: Any) -> Http2:
    return Http2(server.server.addresses[0], **options)


class Site:
    """An application that answers in every way, and notes what becomes of it."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.waiting = threading.Semaphore(0)
        self.left = threading.Semaphore(0)
        self.sent = 0
        self.gate = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await getattr(self, scope["path"].strip("/").split("/")[0] or "index")(scope, receive, send)

    async def index(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"Content-Type", b"text/plain"), (b"Connection", b"close"), (b"X-Own", b"1")]
        headers += [(b"Transfer-Encoding", b"chunked"), (b"Keep-Alive", b"timeout=5")]
        await respond(send, b"ok", headers=headers)

    async def echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, await read(receive))

    async def wait(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.waiting.release()
        assert (await receive())["type"] == "http.request"
        await self.gate.wait()
        await respond(send, scope["path"].encode())

    async def leave(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        self.waiting.release()
        assert (await receive())["type"] == "http.disconnect"
        self.left.release()

    async def endless(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"e" * 8192, "more_body": True})
                self.sent += 8192
                self.waiting.release()
        finally:
            self.left.release()

    async def trailers(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload"]})
        await send({"type": "http.response.start", "status": 200, "trailers": True})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})
        await send({"type": "http.response.trailers", "headers": [(b"X-Sum", b"6")]})

    async def fail(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("it fails in the middle")

    async def hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.waiting.release()
        await self.gate.wait()
        await respond(send, str(len(await read(receive))).encode())

    def open(self, server: RunningAsgi) -> None:
        """Lets those go on that wait."""
        server.loop.call_soon_threadsafe(self.gate.set)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def server(run_asgi: RunAsgi, site: Site) -> RunningAsgi:
    return run_asgi(site, lifespan="off", h2c=True)


def test_scope_and_answer(server: RunningAsgi, site: Site) -> None:
    with client(server) as peer:
        fields = [("x-twice", "one"), ("x-twice", "two"), ("cookie", "a=1"), ("cookie", "b=2")]
        answer = peer.get("/?q=%20x", fields=fields)
        own = peer.socket.getsockname()
    (scope,) = site.scopes
    assert (scope["type"], scope["http_version"], scope["scheme"]) == ("http", "2", "http")
    assert (scope["method"], scope["path"], scope["query_string"]) == ("GET", "/", b"q=%20x")
    assert scope["client"] == own
    assert scope["headers"] == [
        (b"host", b"test"),
        (b"x-twice", b"one"),
        (b"x-twice", b"two"),
        (b"cookie", b"a=1; b=2"),
    ]
    assert (answer.status, answer.body) == (200, b"ok")
    # The framing is HTTP/2's: no field of a connection is sent.
    assert answer.names() == {"date", "content-type", "content-length", "x-own"}
    assert ("content-length", "2") in answer.fields


def test_a_client_of_http1_is_served_on_the_same_port(server: RunningAsgi, site: Site) -> None:
    with server.wire() as old:
        assert old.ask("GET /").body == b"ok"
    assert site.scopes[0]["http_version"] == "1.1"


def test_bodies_that_nobody_reads_hold_up_no_other(server: RunningAsgi, site: Site) -> None:
    body = b"u" * 16_384
    with client(server) as peer:
        # More than the window of the connection.
        asked = [peer.ask("/hold", "POST", body=body, ends=False) for _ in range(20)]
        assert len(peer.get("/echo", method="POST", body=b"r" * 100_000).body) == 100_000
        site.open(server)
        for number in asked:
            peer.send(number, b"", ends=True)
            assert peer.answer(number).body == b"%d" % len(body)


def test_it_is_off_by_default(run_asgi: RunAsgi, site: Site) -> None:
    with run_asgi(site, lifespan="off").wire() as old:
        old.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert old.answer().status in (400, 505)


def test_h2c_excludes_tls(run_asgi: RunAsgi, site: Site) -> None:
    with pytest.raises(ValueError, match="h2c is HTTP/2 without TLS: give http2 instead"):
        run_asgi(
            site,
            h2c=True,
            ssl_certfile=str(DATA / "certificate.pem"),
            ssl_keyfile=str(DATA / "key.pem"),
        )


def test_many_streams_wait_side_by_side(server: RunningAsgi, site: Site) -> None:
    with client(server) as peer:
        asked = [peer.ask(f"/wait/{number}") for number in range(100)]
        for _ in asked:
            assert site.waiting.acquire(timeout=TIMEOUT)
        # Another request waits for none of them.
        assert peer.get("/").body == b"ok"
        site.open(server)
        bodies = [peer.answer(number).body for number in asked]
    assert bodies == [b"/wait/%d" % number for number in range(100)]


def test_bodies(server: RunningAsgi, site: Site) -> None:
    with client(server) as peer:
        for size in (0, 1, 70_000, 3_000_000):
            body = bytes(range(251)) * (size // 251) + b"b" * (size % 251)
            length = [("content-length", str(size))]
            assert peer.get("/echo", method="POST", fields=length, body=body).body == body
            # One of unknown size has neither a length nor a coding.
            assert peer.get("/echo", method="POST", body=body).body == body
        trailers = [("x-sum", "1")]
        assert peer.get("/echo", method="POST", body=b"b", trailers=trailers).body == b"b"
    names = {name for scope in site.scopes for name, _ in scope["headers"]}
    assert names == {b"host", b"content-length"}


def test_a_body_comes_as_far_as_it_is_read(server: RunningAsgi, site: Site) -> None:
    with client(server) as peer:
        asked = peer.ask("/hold", method="POST", ends=False)
        assert site.waiting.acquire(timeout=TIMEOUT)
        sent = 0
        # An exchange on another stream is answered when the server has read what came before it.
        while room := peer.room(asked):
            peer.send(asked, b"b" * room, ends=False)
            sent += room
            assert peer.get("/").body == b"ok"
            assert sent <= 1 << 20, "nothing stops the sender"
        site.open(server)
        peer.send(asked, b"b" * 1_000_000)
        assert peer.answer(asked).body == str(sent + 1_000_000).encode()


def test_a_reset_is_a_disconnect(server: RunningAsgi, site: Site) -> None:
    with client(server) as peer:
        asked = peer.ask("/leave")
        other = peer.ask("/wait")
        for _ in range(2):
            assert site.waiting.acquire(timeout=TIMEOUT)
        peer.reset(asked)
        assert site.left.acquire(timeout=TIMEOUT)
        # The connection and its other streams go on.
        site.open(server)
        assert peer.answer(other).body == b"/wait"


def test_a_connection_that_ends_disconnects_all(server: RunningAsgi, site: Site) -> None:
    with client(server) as peer:
        for _ in range(10):
            peer.ask("/leave")
        for _ in range(10):
            assert site.waiting.acquire(timeout=TIMEOUT)
    for _ in range(10):
        assert site.left.acquire(timeout=TIMEOUT)


def test_a_sender_waits_for_a_closed_window(server: RunningAsgi, site: Site) -> None:
    with client(server, window=16_384) as peer:
        asked = peer.ask("/endless")
        peer.until(asked, lambda stream: len(stream.body) >= 16_384)
        # Answered behind what the sender did with its room.
        assert peer.get("/").body == b"ok"
        assert site.sent < 1 << 20
        before = site.sent
        while site.sent == before:
            peer.take(asked)
            peer.read()
        peer.reset(asked)
        assert site.left.acquire(timeout=TIMEOUT)
        assert peer.get("/").body == b"ok"


def test_trailers_and_early_hints(server: RunningAsgi) -> None:
    with client(server) as peer:
        answer = peer.get("/trailers")
    assert answer.interim == [[(":status", "103"), ("link", "</a.css>; rel=preload")]]
    assert (answer.body, answer.trailers) == (b"onetwo", [("x-sum", "6")])


def test_an_answer_that_fails_is_reset(server: RunningAsgi) -> None:
    with client(server) as peer:
        asked = peer.ask("/fail")
        stream = peer.until(asked, lambda stream: stream.reset is not None)
        assert (stream.status, stream.reset) == (200, INTERNAL_ERROR)
        assert peer.get("/").body == b"ok"


def test_a_stop_lets_streams_finish(server: RunningAsgi, site: Site) -> None:
    with client(server) as peer:
        asked = [peer.ask(f"/wait/{number}") for number in range(5)]
        for _ in asked:
            assert site.waiting.acquire(timeout=TIMEOUT)
        stopped = asyncio.run_coroutine_threadsafe(server.server.stop(TIMEOUT), server.loop)
        while not peer.is_told_to_go:
            peer.read()
        site.open(server)
        peer.rest()
        assert all(peer.streams[number].has_ended for number in asked)
    assert stopped.result(TIMEOUT) is True


def test_httpx(server: RunningAsgi) -> None:
    httpx = pytest.importorskip("httpx")

    async def ask() -> Any:
        async with httpx.AsyncClient(http1=False, http2=True, timeout=TIMEOUT) as http:
            url = server.server.url
            sends = [http.post(f"{url}/echo", content=b"%d" % each) for each in range(50)]
            return await asyncio.gather(*sends)

    answers = asyncio.run(ask())
    assert [answer.content for answer in answers] == [b"%d" % each for each in range(50)]
    assert {answer.http_version for answer in answers} == {"HTTP/2"}


def test_curl_and_h2load(server: RunningAsgi) -> None:
    url = server.server.url
    curl = ["curl", "-sS", "--http2-prior-knowledge", "-d", "x" * 5000]
    form = "|%{http_version}|%{response_code}"
    ran = subprocess.run([*curl, "-w", form, f"{url}/echo"], capture_output=True, timeout=TIMEOUT)
    assert ran.stdout == b"x" * 5000 + b"|2|200", ran.stderr
    load = ["h2load", "-n", "500", "-c", "5", "-m", "20", f"{url}/"]
    printed = subprocess.run(load, capture_output=True, text=True, timeout=TIMEOUT).stdout
    assert "500 succeeded, 0 failed, 0 errored" in printed, printed


def test_a_broken_preface_ends_the_connection(server: RunningAsgi) -> None:
    with socket.create_connection(server.server.addresses[0], TIMEOUT) as raw:
        raw.sendall(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")
        raw.settimeout(TIMEOUT)
        while raw.recv(4096):
            pass


def tls_files() -> dict[str, str]:
    return {
        "ssl_certfile": str(DATA / "certificate.pem"),
        "ssl_keyfile": str(DATA / "key.pem"),
    }


def test_under_tls(run_asgi: RunAsgi, site: Site) -> None:
    httpx = pytest.importorskip("httpx")
    server = run_asgi(site, lifespan="off", http2=True, **tls_files())

    async def ask(**options: Any) -> Any:
        async with httpx.AsyncClient(verify=False, timeout=TIMEOUT, **options) as http:
            sends = [http.post(f"{server.server.url}/echo", content=b"%d" % n) for n in range(20)]
            return await asyncio.gather(*sends)

    for options, version in (({"http2": True}, "HTTP/2"), ({}, "HTTP/1.1")):
        answers = asyncio.run(ask(**options))
        assert {answer.http_version for answer in answers} == {version}
        assert [answer.content for answer in answers] == [b"%d" % n for n in range(20)]
    scope = site.scopes[0]
    assert (scope["http_version"], scope["scheme"]) == ("2", "https")
    assert scope["extensions"]["tls"]["tls_version"] == 0x0304


def test_it_is_not_offered_by_default(run_asgi: RunAsgi, site: Site) -> None:
    httpx = pytest.importorskip("httpx")
    server = run_asgi(site, lifespan="off", **tls_files())
    with httpx.Client(verify=False, http2=True, timeout=TIMEOUT) as http:
        assert http.get(server.server.url).http_version == "HTTP/1.1"


def test_http2_needs_tls(run_asgi: RunAsgi, site: Site) -> None:
    with pytest.raises(ValueError, match="http2 is HTTP/2 under TLS: give ssl_certfile, or h2c"):
        run_asgi(site, http2=True)


def test_resets_give_no_client_more_work(server: RunningAsgi, site: Site) -> None:
    with client(server) as peer:
        for _ in range(128):
            peer.reset(peer.ask("/wait"))
        for _ in range(128):
            assert site.waiting.acquire(timeout=TIMEOUT)
        refused = peer.ask("/")
        stream = peer.until(refused, lambda stream: stream.reset is not None)
        assert (stream.status, stream.reset) == (None, REFUSED_STREAM)
        # When the application has returned, there is room again.
        site.open(server)
        with client(server) as other:
            while True:
                # A round of the event loop, in which those tasks go on.
                assert other.get("/").body == b"ok"
                asked = peer.ask("/")
                stream = peer.until(asked, lambda it: it.has_ended or it.reset is not None)
                if stream.has_ended:
                    break
    assert stream.body == b"ok"
