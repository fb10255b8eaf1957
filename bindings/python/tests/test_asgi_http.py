"""ASGI 3 over the wire: requests and their answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest

from servers import Receive, RunAsgi, Scope, Send, read, resident, respond
from wire import TIMEOUT


def test_scope(run_asgi: RunAsgi) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await respond(send, b"ok")

    server = run_asgi(app, lifespan="off", root_path="/app")
    with server.wire() as client:
        client.ask("PATCH /a%20b/%C3%BC?q=%20x", "X-Twice: one", "x-TWICE: two")
        own = client.socket.getsockname()
    (scope,) = scopes
    assert scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "PATCH",
        "scheme": "http",
        "path": "/app/a b/\xfc",
        "raw_path": b"/app/a%20b/%C3%BC",
        "query_string": b"q=%20x",
        "root_path": "/app",
        "headers": [(b"host", b"test"), (b"x-twice", b"one"), (b"x-twice", b"two")],
        "client": own,
        "server": server.server.addresses[0],
        "extensions": {
            "http.response.early_hint": {},
            "http.response.pathsend": {},
            "http.response.trailers": {},
        },
    }


@pytest.mark.parametrize("root_path", ["/\xfc app", "/\xfc app/"])
def test_root_path(run_asgi: RunAsgi, root_path: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["root_path"] == "/\xfc app"
        await respond(send, scope["path"].encode() + b"|" + scope["raw_path"])

    with run_asgi(app, lifespan="off", root_path=root_path).wire() as client:
        prefix, raw = "/\xfc app".encode(), b"/%C3%BC%20app"
        for rest in ("/dir", "/", "/dir%2Fx", "/%C3%BC%20app/dir"):
            decoded = unquote_to_bytes(rest)
            expected = prefix + decoded + b"|" + raw + rest.encode()
            assert client.ask(f"GET {rest}").body == expected
        assert client.ask("OPTIONS *").body == b"*|*"


def test_keep_alive_and_pipelining(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/p3":
            await asyncio.sleep(0.01)
        await respond(send, scope["raw_path"])

    with run_asgi(app).wire() as client:
        for number in range(5):
            assert client.ask(f"GET /{number}").body == f"/{number}".encode()
        client.send(b"".join(b"GET /p%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(50)))
        for number in range(50):
            assert client.answer().body == f"/p{number}".encode()
        assert client.ask("GET /", "Connection: close").header("Connection") == "close"
        assert client.is_closed()


def test_time_in_which_the_application_does_not_receive_is_not_the_clients(
    run_asgi: RunAsgi,
) -> None:
    timeout = 1.0
    seen: Queue[bytes] = Queue()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(2):
            seen.put((await receive())["body"])
            await asyncio.sleep(1.5 * timeout)
            seen.put(b"awake")
        await receive()

    with run_asgi(app, lifespan="off", read_timeout=timeout).wire() as client:
        client.request("POST /", "Transfer-Encoding: chunked")
        for piece in (b"abc", b"def"):
            client.send(b"3\r\n" + piece + b"\r\n")
            assert seen.get(timeout=TIMEOUT) == piece
            assert seen.get(timeout=TIMEOUT) == b"awake"
        # The application waits for more now, but not for ever.
        assert client.answer().status == 408


def test_bodies(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read(receive)
        await respond(send, body, headers=[(b"x-length", str(len(body)).encode())])

    with run_asgi(app, lifespan="off").wire() as client:
        for size in (0, 1, 65_536, 65_537, 3_000_000):
            sent = os.urandom(size)
            answer = client.ask("POST /", f"Content-Length: {size}", body=sent)
            assert answer.body == sent
            chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (size, sent) if size else b"0\r\n\r\n"
            assert client.ask("POST /", "Transfer-Encoding: chunked", body=chunks).body == sent
        assert client.ask("GET /").body == b""


def test_bodies_piece_by_piece(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            body = message["body"].upper()
            await send({"type": "http.response.body", "body": body, "more_body": more})

    with run_asgi(app).wire() as client:
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


def test_expect_continue(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/refuse":
            await respond(send, b"", 413)
        else:
            await respond(send, await read(receive))

    server = run_asgi(app)
    with server.wire() as client:
        client.request("POST /", "Content-Length: 2", "Expect: 100-continue")
        assert client.head().status == 100
        client.send(b"hi")
        assert client.answer().body == b"hi"
    with server.wire() as client:
        headers = ("Content-Length: 2", "Expect: 100-continue")
        assert client.ask("POST /refuse", *headers).status == 413
        assert client.is_closed()


def test_head_and_statuses_without_a_body(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status = int(scope["path"][1:])
        headers = [(b"content-length", b"4")] if status == 206 else []
        await respond(send, b"body", status, headers)

    with run_asgi(app).wire() as client:
        assert client.ask("HEAD /200").header("Content-Length") == "4"
        assert client.ask("HEAD /206").header("Content-Length") == "4"
        assert client.ask("GET /204").header("Content-Length") is None
        assert client.ask("GET /304").status == 304
        assert client.ask("GET /200").body == b"body"


def test_fields(run_asgi: RunAsgi) -> None:
    fields = [
        (b"set-cookie", b"a=1"),
        [b"set-cookie", b"b=2"],
        (b"x-raw", b"\xfc"),
        (b"date", b"x"),
    ]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"", headers=iter(fields))

    with run_asgi(app).wire() as client:
        answer = client.ask("GET /")
        assert answer.all("set-cookie") == ["a=1", "b=2"]
        assert answer.header("x-raw") == "\xfc"
        assert answer.all("date") != ["x"]
        assert len(answer.all("date")) == 1


def test_trailers(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert "http.response.trailers" in scope["extensions"]
        await send({"type": "http.response.start", "status": 200, "trailers": True})
        await send({"type": "http.response.body", "body": b"body"})
        trailers = {"type": "http.response.trailers"}
        await send(trailers | {"headers": [(b"x-one", b"1")], "more_trailers": True})
        await send(trailers | {"headers": [(b"x-two", b"2")]})

    with run_asgi(app).wire() as client:
        for _ in range(2):
            answer = client.ask("GET /")
            assert answer.body == b"body"
            assert answer.trailers == [("x-one", "1"), ("x-two", "2")]


def test_pathsend(run_asgi: RunAsgi, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content := os.urandom(1_000_000))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.pathsend", "path": str(path)})

    with run_asgi(app).wire() as client:
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
def test_wrong_messages_are_500(run_asgi: RunAsgi, caplog: Any, messages: Any, error: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    server = run_asgi(app, lifespan="off")
    with server.wire() as client, caplog.at_level(logging.ERROR):
        assert client.ask("GET /path").status == 500
        assert client.ask("GET /path").status == 500
        server.stop()
    assert error in caplog.text


def test_an_app_that_fails(run_asgi: RunAsgi, caplog: Any) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise LookupError("on purpose")

    server = run_asgi(app, lifespan="off")
    with server.wire() as client, caplog.at_level(logging.ERROR):
        assert client.ask("GET /").status == 500
        client.request("GET /begun")
        client.head()
        assert client.chunk() == b"half"
        assert client.is_closed()
        server.stop()
    assert caplog.text.count("LookupError: on purpose") == 2


def test_half_an_answer_is_cut_off(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    with run_asgi(app).wire() as client:
        client.request("GET /")
        client.head()
        assert client.chunk() == b"half"
        assert client.is_closed()


@pytest.mark.parametrize("path", ["/waits", "/sends", "/body"])
def test_disconnect(run_asgi: RunAsgi, path: str) -> None:
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
                    await send({"type": "http.response.body"})
                    break
        except OSError as error:
            told.append(error)
        finally:
            done.set()

    server = run_asgi(app, lifespan="off")
    with server.wire() as client:
        if path == "/body":
            client.request("POST /", "Content-Length: 1000000", body=b"x")
        else:
            client.request("GET /")
        assert began.wait(TIMEOUT)
    assert done.wait(TIMEOUT)
    assert len(told) == 1


def test_disconnect_after_the_answer(run_asgi: RunAsgi) -> None:
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

    with run_asgi(app, lifespan="off").wire() as client:
        assert client.ask("GET /").body == b"ok"
        assert done.wait(TIMEOUT)
        assert told == [{"type": "http.disconnect"}] * 2
        assert client.ask("GET /").body == b"ok"


def test_a_receive_that_is_cancelled_loses_nothing(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.create_task(receive())  # type: ignore[arg-type]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.sleep(1), 0.001)
        first = await receive()
        assert first["more_body"]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(receive(), 0.01)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        rest = await read(receive)
        await send({"type": "http.response.body", "body": first["body"] + rest})

    with run_asgi(app, lifespan="off").wire() as client:
        client.request("POST /", "Transfer-Encoding: chunked")
        client.send(b"3\r\nabc\r\n")
        client.head()
        client.send(b"3\r\ndef\r\n0\r\n\r\n")
        assert client.chunk() == b"abcdef"


def test_huge_bodies_take_no_memory(run_asgi: RunAsgi) -> None:
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

    with run_asgi(app, lifespan="off").wire() as client:
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


def test_a_body_is_read_with_credit(run_asgi: RunAsgi) -> None:
    gate = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while not gate.is_set():
            await asyncio.sleep(0.01)
        await respond(send, str(len(await read(receive))).encode())

    with run_asgi(app, lifespan="off").wire() as client:
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


def test_the_answer_waits_for_a_slow_client(run_asgi: RunAsgi) -> None:
    sent = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200})
        for _ in range(500):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
            sent += 1
        await send({"type": "http.response.body"})

    server = run_asgi(app, lifespan="off")
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
