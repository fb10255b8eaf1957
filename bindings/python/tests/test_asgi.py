"""ASGI 3 over the wire: HTTP, WebSocket and lifespan."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from dwell import asgi
from wire import TIMEOUT, Wire, until_refused

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Running:
    """A server on a loop on a thread of its own."""

    def __init__(self, app: App, url: str, options: dict[str, Any]) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server = asgi.Server(app, url, **options)
        try:
            self.do(self.server.start())
        except BaseException:
            self.end()
            raise

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(TIMEOUT)

    def stop(self, timeout: float = 5) -> bool:
        return bool(self.do(self.server.stop(timeout)))

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(TIMEOUT)
        self.loop.close()

    def wire(self) -> Wire:
        return Wire(self.server.addresses[0])

    def socket(self, path: str = "/", **options: Any) -> ClientConnection:
        return connect(self.server.url.replace("http", "ws") + path, **options)


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    """Starts servers that end with the test."""
    servers: list[Running] = []

    def start(app: App, url: str = "http://127.0.0.1:0", **options: Any) -> Running:
        servers.append(Running(app, url, options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
        server.end()


Run = Callable[..., Running]


async def respond(send: Send, body: bytes = b"", status: int = 200, headers: Any = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read(receive: Receive) -> bytes:
    pieces = []
    while True:
        message = await receive()
        assert message["type"] == "http.request", message
        pieces.append(message["body"])
        if not message["more_body"]:
            return b"".join(pieces)


def test_scope(run: Run) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await respond(send, b"ok")

    server = run(app, lifespan="off", root_path="/app")
    with server.wire() as client:
        client.ask("PATCH /a%20b/%C3%BC?q=%20x", "X-Twice: one", "x-TWICE: two")
        own = client.socket.getsockname()
    (scope,) = scopes
    assert scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.5"},
        "http_version": "1.1",
        "method": "PATCH",
        "scheme": "http",
        "path": "/a b/\xfc",
        "raw_path": b"/a%20b/%C3%BC",
        "query_string": b"q=%20x",
        "root_path": "/app",
        "headers": [(b"host", b"test"), (b"x-twice", b"one"), (b"x-twice", b"two")],
        "client": own,
        "server": server.server.addresses[0],
        "extensions": {"http.response.trailers": {}, "http.response.pathsend": {}},
    }


def test_keep_alive_and_pipelining(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/p3":
            await asyncio.sleep(0.01)
        await respond(send, scope["raw_path"])

    with run(app).wire() as client:
        for number in range(5):
            assert client.ask(f"GET /{number}").body == f"/{number}".encode()
        client.send(b"".join(b"GET /p%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(50)))
        for number in range(50):
            assert client.answer().body == f"/p{number}".encode()
        assert client.ask("GET /", "Connection: close").header("Connection") == "close"
        assert client.is_closed()


def test_bodies(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read(receive)
        await respond(send, body, headers=[(b"x-length", str(len(body)).encode())])

    with run(app).wire() as client:
        for size in (0, 1, 65_536, 65_537, 3_000_000):
            sent = os.urandom(size)
            answer = client.ask("POST /", f"Content-Length: {size}", body=sent)
            assert answer.body == sent
            chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (size, sent) if size else b"0\r\n\r\n"
            assert client.ask("POST /", "Transfer-Encoding: chunked", body=chunks).body == sent
        assert client.ask("GET /").body == b""


def test_bodies_piece_by_piece(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            body = message["body"].upper()
            await send({"type": "http.response.body", "body": body, "more_body": more})

    with run(app).wire() as client:
        client.request("POST /", "Transfer-Encoding: chunked")
        client.send(b"4\r\nabcd\r\n")
        client.head()
        assert client.chunk() == b"ABCD"
        client.send(b"4\r\nefgh\r\n")
        assert client.chunk() == b"EFGH"
        client.send(b"0\r\n\r\n")
        assert client.chunk() == b""
        assert client.fields() == []
        assert client.ask("POST /", "Content-Length: 2", body=b"hi").body == b"HI"


def test_expect_continue(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/refuse":
            await respond(send, b"", 413)
        else:
            await respond(send, await read(receive))

    server = run(app)
    with server.wire() as client:
        client.request("POST /", "Content-Length: 2", "Expect: 100-continue")
        assert client.head().status == 100
        client.send(b"hi")
        assert client.answer().body == b"hi"
    with server.wire() as client:
        headers = ("Content-Length: 2", "Expect: 100-continue")
        assert client.ask("POST /refuse", *headers).status == 413
        assert client.is_closed()


def test_head_and_statuses_without_a_body(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status = int(scope["path"][1:])
        headers = [(b"content-length", b"4")] if status == 206 else []
        await respond(send, b"body", status, headers)

    with run(app).wire() as client:
        assert client.ask("HEAD /200").header("Content-Length") == "4"
        assert client.ask("HEAD /206").header("Content-Length") == "4"
        assert client.ask("GET /204").header("Content-Length") is None
        assert client.ask("GET /304").status == 304
        assert client.ask("GET /200").body == b"body"


def test_fields(run: Run) -> None:
    fields = [
        (b"set-cookie", b"a=1"),
        [b"set-cookie", b"b=2"],
        (b"x-raw", b"\xfc"),
        (b"date", b"x"),
    ]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"", headers=iter(fields))

    with run(app).wire() as client:
        answer = client.ask("GET /")
        assert answer.all("set-cookie") == ["a=1", "b=2"]
        assert answer.header("x-raw") == "\xfc"
        assert answer.all("date") != ["x"]
        assert len(answer.all("date")) == 1


def test_trailers(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert "http.response.trailers" in scope["extensions"]
        await send({"type": "http.response.start", "status": 200, "trailers": True})
        await send({"type": "http.response.body", "body": b"body"})
        trailers = {"type": "http.response.trailers"}
        await send(trailers | {"headers": [(b"x-one", b"1")], "more_trailers": True})
        await send(trailers | {"headers": [(b"x-two", b"2")]})

    with run(app).wire() as client:
        for _ in range(2):
            answer = client.ask("GET /")
            assert answer.body == b"body"
            assert answer.trailers == [("x-one", "1"), ("x-two", "2")]


def test_pathsend(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content := os.urandom(1_000_000))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.pathsend", "path": str(path)})

    with run(app).wire() as client:
        assert client.ask("GET /").body == content
        assert client.ask("HEAD /").header("Content-Length") == "1000000"


WRONG: list[tuple[str, Any, str]] = [
    ("no start", [{"type": "http.response.body"}], "http.response.body is not expected"),
    ("two starts", [{"type": "http.response.start", "status": 200}] * 2, "is not expected"),
    ("type", [{"type": "http.response.ends"}], "http.response.ends"),
    ("no type", [{}], "without a type"),
    ("no dict", ["text"], "dict"),
    ("no status", [{"type": "http.response.start"}], "without a status"),
    ("status", [{"type": "http.response.start", "status": 99}], "99"),
    ("status type", [{"type": "http.response.start", "status": "200"}], "str"),
    ("text", [{"type": "http.response.start", "status": 200, "headers": [("a", "b")]}], "bytes"),
    ("name", [{"type": "http.response.start", "status": 200, "headers": [(b"a b", b"")]}], "a b"),
    (
        "value",
        [{"type": "http.response.start", "status": 200, "headers": [(b"a", b"\n")]}],
        "value",
    ),
    ("nothing", [], "has not answered GET /path"),
]


@pytest.mark.parametrize(
    ("messages", "error"), [row[1:] for row in WRONG], ids=[r[0] for r in WRONG]
)
def test_wrong_messages_are_500(run: Run, caplog: Any, messages: Any, error: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    server = run(app, lifespan="off")
    with server.wire() as client, caplog.at_level(logging.ERROR):
        assert client.ask("GET /path").status == 500
        assert client.ask("GET /path").status == 500
        server.stop()
    assert error in caplog.text


def test_an_app_that_fails(run: Run, caplog: Any) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise LookupError("on purpose")

    server = run(app, lifespan="off")
    with server.wire() as client, caplog.at_level(logging.ERROR):
        assert client.ask("GET /").status == 500
        client.request("GET /begun")
        client.head()
        assert client.chunk() == b"half"
        assert client.is_closed()
        server.stop()
    assert caplog.text.count("LookupError: on purpose") == 2


def test_half_an_answer_is_cut_off(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    with run(app).wire() as client:
        client.request("GET /")
        client.head()
        assert client.chunk() == b"half"
        assert client.is_closed()


@pytest.mark.parametrize("path", ["/waits", "/sends", "/body"])
def test_disconnect(run: Run, path: str) -> None:
    told: list[Any] = []
    began, done = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        try:
            if path == "/sends":
                await send({"type": "http.response.start", "status": 200})
                while True:
                    await send(
                        {"type": "http.response.body", "body": b"x" * 65536, "more_body": True}
                    )
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    told.append(message)
                    assert await receive() == message
                    await send({"type": "http.response.start", "status": 200})
                    with pytest.raises(ConnectionResetError):
                        await send({"type": "http.response.body"})
                    break
        except OSError as error:
            told.append(error)
        finally:
            done.set()

    server = run(app, lifespan="off")
    with server.wire() as client:
        if path == "/body":
            client.request("POST /", "Content-Length: 1000000", body=b"x")
        else:
            client.request("GET /")
        assert began.wait(TIMEOUT)
    assert done.wait(TIMEOUT)
    assert len(told) == 1


def test_disconnect_after_the_answer(run: Run) -> None:
    told: list[Any] = []
    done = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        await respond(send, b"ok")
        told.append(await waiting)
        told.append(await receive())
        done.set()

    with run(app, lifespan="off").wire() as client:
        assert client.ask("GET /").body == b"ok"
        assert done.wait(TIMEOUT)
        assert told == [{"type": "http.disconnect"}] * 2
        assert client.ask("GET /").body == b"ok"


def test_a_receive_that_is_cancelled_loses_nothing(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.create_task(receive())  # type: ignore[arg-type]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.sleep(1)), 0.001)
        first = await receive()
        assert first["more_body"]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(receive(), 0.01)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        rest = await read(receive)
        await send({"type": "http.response.body", "body": first["body"] + rest})

    with run(app, lifespan="off").wire() as client:
        client.request("POST /", "Transfer-Encoding: chunked")
        client.send(b"3\r\nabc\r\n")
        client.head()
        client.send(b"3\r\ndef\r\n0\r\n\r\n")
        assert client.chunk() == b"abcdef"


def resident() -> int:
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_huge_bodies_take_no_memory(run: Run) -> None:
    total = 100_000_000
    piece = b"x" * 1_000_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        count = 0
        while True:
            message = await receive()
            count += len(message["body"])
            if not message["more_body"]:
                break
        headers = [(b"x-count", str(count).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(total // len(piece)):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    with run(app, lifespan="off").wire() as client:
        before = resident()
        client.request("POST /", f"Content-Length: {total}")
        for _ in range(total // len(piece)):
            client.send(piece)
        assert client.head().header("X-Count") == str(total)
        received, peak = 0, 0
        while chunk := client.chunk():
            received += len(chunk)
            peak = max(peak, resident())
        assert received == total
        assert peak - before < 30_000_000


def test_a_body_is_read_with_credit(run: Run) -> None:
    gate = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while not gate.is_set():
            await asyncio.sleep(0.01)
        await respond(send, str(len(await read(receive))).encode())

    with run(app, lifespan="off").wire() as client:
        client.request("POST /", "Content-Length: 50000000")
        client.socket.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 50_000_000:
                sent += client.socket.send(b"x" * 1_000_000)
        # The kernel's buffers, and nothing of the server's.
        assert sent < 20_000_000
        client.socket.settimeout(TIMEOUT)
        gate.set()
        client.send(b"x" * (50_000_000 - sent))
        assert client.answer().body == b"50000000"


def test_the_answer_waits_for_a_slow_client(run: Run) -> None:
    sent = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200})
        for _ in range(500):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
            sent += 1
        await send({"type": "http.response.body"})

    server = run(app, lifespan="off")
    with server.wire() as client, server.wire() as other:
        client.request("GET /")
        client.head()
        client.chunk()

        async def settled() -> int:
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.1)
            return sent

        assert server.do(settled()) < 400
        # Others are served meanwhile.
        other.request("GET /")
        other.head()
        received = 100_000
        while chunk := client.chunk():
            received += len(chunk)
        assert received == 50_000_000


# WebSocket


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "websocket":
        return
    assert (await receive()) == {"type": "websocket.connect"}
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send(message | {"type": "websocket.send"})


def test_web_socket_echo(run: Run) -> None:
    with run(echo).socket() as client:
        for message in ("text", "", "\u2713" * 50_000, b"bytes", b"", os.urandom(900_000)):
            client.send(message)
            assert client.recv(TIMEOUT) == message
        for number in range(300):
            client.send(f"{number}")
        for number in range(300):
            assert client.recv(TIMEOUT) == f"{number}"


def test_web_socket_scope_and_acceptance(run: Run) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await receive()
        headers = [(b"x-own", b"1"), (b"set-cookie", b"a=b")]
        await send({"type": "websocket.accept", "subprotocol": "two", "headers": headers})
        await send({"type": "websocket.send", "text": "hello"})
        await receive()

    server = run(app, lifespan="off")
    with server.socket("/chat?x=1", subprotocols=["one", "two"]) as client:
        assert client.subprotocol == "two"
        assert client.response is not None
        assert client.response.headers["x-own"] == "1"
        assert client.recv(TIMEOUT) == "hello"
    (scope,) = scopes
    assert scope["type"] == "websocket"
    assert scope["scheme"] == "ws"
    assert scope["path"] == "/chat"
    assert scope["query_string"] == b"x=1"
    assert scope["subprotocols"] == ["one", "two"]
    assert "websocket.http.response" in scope["extensions"]
    assert "method" not in scope


def test_web_socket_is_not_accepted_before_the_app_does(run: Run) -> None:
    gate = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await asyncio.get_running_loop().run_in_executor(None, gate.wait, TIMEOUT)
        await send({"type": "websocket.accept"})
        await receive()

    with run(app, lifespan="off").wire() as client:
        client.request(
            "GET /",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(TIMEOUT)
        client.file = client.socket.makefile("rb")
        gate.set()
        answer = client.head()
        assert answer.status == 101
        assert answer.header("Sec-WebSocket-Accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


REFUSALS: list[tuple[str, list[Any], int, bytes]] = [
    ("close", [{"type": "websocket.close"}], 403, b""),
    ("close with code", [{"type": "websocket.close", "code": 4000}], 403, b""),
    ("return", [], 403, b""),
    (
        "denial",
        [
            {"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-why", b"y")]},
            {"type": "websocket.http.response.body", "body": b"not ", "more_body": True},
            {"type": "websocket.http.response.body", "body": b"you"},
        ],
        401,
        b"not you",
    ),
    ("send", [{"type": "websocket.send", "text": "x"}], 500, b""),
    ("subprotocol", [{"type": "websocket.accept", "subprotocol": "other"}], 500, b""),
]


@pytest.mark.parametrize(
    ("messages", "status", "body"), [row[1:] for row in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_web_socket_refusals(run: Run, messages: list[Any], status: int, body: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        for message in messages:
            await send(message)

    with pytest.raises(InvalidStatus) as caught, run(app, lifespan="off").socket():
        pass
    assert caught.value.response.status_code == status
    assert (caught.value.response.body or b"") == body


def test_a_bad_handshake_never_reaches_the_app(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("called")

    server = run(app, lifespan="off")
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 8")
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    with server.wire() as client:
        assert client.ask("GET /", *upgrade, key).status == 426
    with server.wire() as client:
        assert client.ask("GET /", *upgrade[:2], "Sec-WebSocket-Version: 13").status == 400


CLOSES: list[tuple[dict[str, Any], int, str]] = [
    ({}, 1000, ""),
    ({"code": 4321, "reason": "enough"}, 4321, "enough"),
    ({"code": None, "reason": None}, 1000, ""),
]


@pytest.mark.parametrize(("message", "code", "reason"), CLOSES)
def test_the_app_closes(run: Run, message: dict[str, Any], code: int, reason: str) -> None:
    after: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close"} | message)
        after.append(await receive())
        with pytest.raises(ConnectionResetError):
            await send({"type": "websocket.send", "text": "x"})

    server = run(app, lifespan="off")
    with server.socket() as client, pytest.raises(ConnectionClosed) as caught:
        client.recv(TIMEOUT)
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (code, reason)
    server.stop()
    assert after == [{"type": "websocket.disconnect", "code": code, "reason": reason}]


@pytest.mark.parametrize(
    ("how", "code", "reason"),
    [
        ("close", 4001, "bye"),
        ("plain", 1000, ""),
        ("empty", 1005, ""),
        ("cut", 1006, ""),
        ("bad", 1002, ""),
    ],
)
def test_the_client_closes(run: Run, how: str, code: int, reason: str) -> None:
    ends: list[Any] = []
    done = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            pass
        ends.append(message)
        assert await receive() == message
        done.set()

    server = run(app, lifespan="off")
    client = server.socket(legacy=True)
    if how == "close":
        client.close(code, reason)
    elif how == "plain":
        client.close()
    elif how == "empty":
        client.socket.sendall(b"\x88\x80\0\0\0\0")
    elif how == "bad":
        client.socket.sendall(b"\xf1\x80\0\0\0\0")
    else:
        client.socket.shutdown(socket.SHUT_RDWR)
    assert done.wait(TIMEOUT)
    assert ends == [{"type": "websocket.disconnect", "code": code, "reason": reason}]


def test_an_app_that_fails_closes_with_1011(run: Run, caplog: Any) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        raise LookupError("on purpose")

    server = run(app, lifespan="off")
    with server.socket() as client, caplog.at_level(logging.ERROR):
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(TIMEOUT)
        server.stop()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1011
    assert "LookupError: on purpose" in caplog.text


def test_messages_wait_for_a_slow_app(run: Run) -> None:
    gate = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while not gate.is_set():
            await asyncio.sleep(0.01)
        total = 0
        while total < 400 * 100_000:
            total += len((await receive())["bytes"])
        await send({"type": "websocket.send", "text": str(total)})
        await receive()

    server = run(app, lifespan="off")
    with server.socket(compression=None) as client:
        before = resident()
        sender = threading.Thread(target=lambda: [client.send(b"x" * 100_000) for _ in range(400)])
        sender.start()
        sender.join(0.5)
        assert sender.is_alive(), "everything was taken"
        assert resident() - before < 20_000_000
        gate.set()
        assert client.recv(TIMEOUT) == str(400 * 100_000)
        sender.join(TIMEOUT)


def test_sending_waits_for_a_slow_client(run: Run) -> None:
    sent = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(300):
            await send({"type": "websocket.send", "bytes": b"x" * 100_000})
            sent += 1
        await receive()

    server = run(app, lifespan="off")
    with server.wire() as client:
        client.request(
            "GET /",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
        assert client.head().status == 101

        async def settled() -> int:
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.1)
            return sent

        assert server.do(settled()) < 250
        frame = 100_000 + 10
        assert len(client.file.read(300 * frame)) == 300 * frame


def test_limits_of_messages(run: Run) -> None:
    with run(echo, max_message_bytes=1000).socket() as client:
        client.send("x" * 1000)
        assert client.recv(TIMEOUT) == "x" * 1000
        client.send("x" * 1001)
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(TIMEOUT)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009


# Lifespan, and the end


def test_lifespan(run: Run) -> None:
    events: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            events.append((await receive())["type"])
            scope["state"]["pool"] = "pool"
            await send({"type": "lifespan.startup.complete"})
            events.append((await receive())["type"])
            await send({"type": "lifespan.shutdown.complete"})
            return
        scope["state"].setdefault("own", 0)
        scope["state"]["own"] += 1
        await respond(send, f"{scope['state']}".encode())

    server = run(app)
    with server.wire() as client:
        for _ in range(2):
            assert client.ask("GET /").body == b"{'pool': 'pool', 'own': 1}"
        assert events == ["lifespan.startup"]
    server.stop()
    assert events == ["lifespan.startup", "lifespan.shutdown"]


def test_lifespan_that_fails(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(RuntimeError, match="no database"):
        run(app)


def test_lifespan_that_is_unknown(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        assert "state" not in scope
        await respond(send, b"ok")

    with run(app).wire() as client:
        assert client.ask("GET /").body == b"ok"
    with pytest.raises(RuntimeError, match="knows no lifespan"):
        run(app, lifespan="on")
    with pytest.raises(ValueError, match="maybe"):
        run(app, lifespan="maybe")


def test_stopping_lets_requests_finish(run: Run) -> None:
    began, gate = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        await asyncio.get_running_loop().run_in_executor(None, gate.wait, TIMEOUT)
        await respond(send, b"finished")

    server = run(app, lifespan="off")
    with server.wire() as client:
        client.request("GET /")
        assert began.wait(TIMEOUT)
        ended = asyncio.run_coroutine_threadsafe(server.server.stop(TIMEOUT), server.loop)
        address = server.server.addresses
        until_refused(address[0])
        gate.set()
        answer = client.answer()
        assert answer.body == b"finished"
        assert answer.header("Connection") == "close"
        assert ended.result(TIMEOUT) is True


def test_stopping_closes_web_sockets(run: Run) -> None:
    server = run(echo, lifespan="off")
    with server.socket() as client:
        client.send("x")
        client.recv(TIMEOUT)
        ended = asyncio.run_coroutine_threadsafe(server.server.stop(TIMEOUT), server.loop)
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(TIMEOUT)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1001
    assert ended.result(TIMEOUT) is True


def test_stopping_ends_in_time(run: Run) -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        try:
            await asyncio.sleep(TIMEOUT)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    server = run(app, lifespan="off")
    with server.wire() as client:
        client.request("GET /")
        assert began.wait(TIMEOUT)
        assert server.stop(timeout=0.1) is False
        assert cancelled.is_set()
        assert client.is_closed()


def test_unix_sockets(run: Run, tmp_path: Path) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["client"] is None
        await respond(send, scope["server"][0].encode())

    path = tmp_path / "socket"
    with run(app, f"unix:{path}", lifespan="off").wire() as client:
        assert client.ask("GET /").body == str(path).encode()


def test_proxy_headers_from_trusted_addresses(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, f"{scope['client'][0]} {scope['scheme']}".encode())

    headers = ("X-Forwarded-For: 6.6.6.6, 9.9.9.9", "X-Forwarded-Proto: https")
    with run(app, lifespan="off").wire() as client:
        assert client.ask("GET /", *headers).body == b"127.0.0.1 http"
    with run(app, lifespan="off", trusted_proxies=["127.0.0.1"]).wire() as client:
        assert client.ask("GET /", *headers).body == b"9.9.9.9 https"


def test_idle_timeouts_end_connections(run: Run) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"ok")

    server = run(app, lifespan="off", keep_alive_timeout=0.1, header_timeout=0.1)
    with server.wire() as client:
        assert client.ask("GET /").body == b"ok"
        assert client.is_closed()
    with server.wire() as client:
        client.send(b"GET / HT")
        assert client.answer().status == 408


def test_nothing_leaks(run: Run) -> None:
    token = object()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["token"] = token
        if scope["type"] == "websocket":
            await echo(scope, receive, send)
            return
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": message["body"], "more_body": True})
        await send({"type": "http.response.body"})

    server = run(app, lifespan="off")

    def work() -> None:
        for _ in range(50):
            with server.wire() as client:
                client.ask("GET /")
                client.ask("POST /", "Content-Length: 3", body=b"abc")
                client.request("POST /", "Content-Length: 100000")
        for _ in range(5):
            with server.socket() as socket:
                socket.send("x")
                socket.recv(TIMEOUT)

    work()
    gc.collect()
    before = sys.getrefcount(token)
    work()
    server.stop()
    gc.collect()
    assert sys.getrefcount(token) <= before


def test_servers_that_ended_hold_no_descriptors() -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    async def serve() -> None:
        for _ in range(5):
            async with asgi.Server(echo, "http://127.0.0.1:0", lifespan="off") as server:
                reader, writer = await asyncio.open_connection(*server.addresses[0])
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 500")
                writer.close()

    asyncio.run(serve())
    before = descriptors()
    asyncio.run(serve())
    assert descriptors() <= before
