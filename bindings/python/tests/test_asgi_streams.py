"""Answers that go on: when their head leaves, and what ends them when their client does."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from servers import Receive, RunAsgi, Scope, Send, respond
from wire import TIMEOUT, Wire


class Ears:
    """A middleware around everything: what applications raise is what it would report."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.raised: list[BaseException] = []
        self.done = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        except BaseException as error:
            self.raised.append(error)
            raise
        finally:
            self.done.set()


class Source:
    """A generator that has an event now and then, or never again."""

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.ended = threading.Event()

    def has_ended(self) -> bool:
        """Waits for it; a generator whose reader is cancelled may be left to the collector."""
        deadline = time.monotonic() + TIMEOUT
        while not self.ended.wait(0.05) and time.monotonic() < deadline:
            gc.collect()
        return self.ended.is_set()

    async def events(self) -> AsyncIterator[str]:
        try:
            yield "data: first\n\n"
            while True:
                await asyncio.sleep(self.pause)
                yield "data: next\n\n"
        finally:
            self.ended.set()


def starlette_app(source: Source, wrapped: bool) -> Any:
    applications = pytest.importorskip("starlette.applications")
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse, StreamingResponse
    from starlette.routing import Route

    async def events(request: Any) -> Any:
        return StreamingResponse(source.events(), media_type="text/event-stream")

    async def upload(request: Any) -> Any:
        return PlainTextResponse(str(len(await request.body())))

    async def pass_on(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    middleware = [Middleware(BaseHTTPMiddleware, dispatch=pass_on)] if wrapped else []
    routes = [Route("/events", events), Route("/upload", upload, methods=["POST"])]
    return applications.Starlette(routes=routes, middleware=middleware)


def fastapi_app(source: Source, wrapped: bool) -> Any:
    fastapi = pytest.importorskip("fastapi")
    sse = pytest.importorskip("fastapi.sse")
    app = fastapi.FastAPI()

    async def events() -> AsyncIterator[str]:
        async for event in source.events():
            yield event

    app.get("/events", response_class=sse.EventSourceResponse)(events)
    if wrapped:

        async def pass_on(request: Any, call_next: Any) -> Any:
            return await call_next(request)

        app.middleware("http")(pass_on)
    return app


@pytest.mark.parametrize("pause", [3600, 0.001], ids=["idle", "busy"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "middleware"])
@pytest.mark.parametrize("make", [starlette_app, fastapi_app], ids=["starlette", "fastapi"])
def test_streams_end_with_their_client(
    run_asgi: RunAsgi, caplog: Any, make: Any, wrapped: bool, pause: float
) -> None:
    source = Source(pause)
    ears = Ears(make(source, wrapped))
    with caplog.at_level(logging.WARNING):
        server = run_asgi(ears, lifespan="off")
        with server.wire() as client:
            client.request("GET /events", "Accept: text/event-stream")
            assert client.head().status == 200
            assert b"first" in client.chunk()
        assert source.has_ended(), "the generator lives on"
        assert ears.done.wait(TIMEOUT)
        server.stop()
    assert ears.raised == []
    assert caplog.records == []


def test_clients_that_leave_before_a_whole_answer_raise_nothing(
    run_asgi: RunAsgi, caplog: Any
) -> None:
    left = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        left.set()
        await respond(send, b"too late")

    ears = Ears(app)
    with caplog.at_level(logging.WARNING):
        server = run_asgi(ears, lifespan="off")
        with server.wire() as client:
            client.request("GET /")
        assert left.wait(TIMEOUT)
        assert ears.done.wait(TIMEOUT)
        server.stop()
    assert ears.raised == []
    assert caplog.records == []


def test_an_upload_that_is_given_up_is_no_fault(run_asgi: RunAsgi, caplog: Any) -> None:
    ears = Ears(starlette_app(Source(1), False))
    with caplog.at_level(logging.WARNING):
        server = run_asgi(ears, lifespan="off")
        with server.wire() as client:
            client.request("POST /upload", "Content-Length: 1000000", body=b"x" * 100_000)
        assert ears.done.wait(TIMEOUT)
        server.stop()
    assert [type(error).__name__ for error in ears.raised] == ["ClientDisconnect"]
    assert caplog.records == []


def test_a_stream_that_listens_to_nobody_ends_too(run_asgi: RunAsgi, caplog: Any) -> None:
    """It never waits either: the loop must get its turn, and `send` say it in the end."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})

    ears = Ears(app)
    with caplog.at_level(logging.WARNING):
        server = run_asgi(ears, lifespan="off")
        with server.wire() as client:
            client.request("GET /")
            client.head()
        assert ears.done.wait(TIMEOUT)
        server.stop()
    assert [type(error) for error in ears.raised] == [ConnectionResetError]
    assert caplog.records == []


def test_a_client_that_leaves_while_it_is_written_to(run_asgi: RunAsgi) -> None:
    """The write notices it, and only a turn of the loop tells of it."""
    clients: list[Wire] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        while True:
            if clients:
                clients.pop().close()
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    ears = Ears(app)
    server = run_asgi(ears, lifespan="off")
    client = server.wire()
    clients.append(client)
    client.request("GET /")
    assert ears.done.wait(TIMEOUT)
    assert [type(error) for error in ears.raised] == [ConnectionResetError]


def test_who_was_told_may_send_on(run_asgi: RunAsgi) -> None:
    done = threading.Event()
    turns: list[int] = []

    async def count() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        counting = asyncio.ensure_future(count())
        await send({"type": "http.response.start", "status": 200})
        for _ in range(10):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await send({"type": "http.response.body"})
        counting.cancel()
        done.set()

    with run_asgi(app, lifespan="off").wire() as client:
        client.request("GET /")
    assert done.wait(TIMEOUT)
    assert len(turns) >= 5, "others have no turn while somebody sends to nobody"


@pytest.mark.parametrize("length", [None, 4])
def test_the_head_does_not_wait_for_the_body(run_asgi: RunAsgi, length: int | None) -> None:
    go = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % length)] if length else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while not go.is_set():
            await asyncio.sleep(0.001)
        await send({"type": "http.response.body", "body": b"body"})

    with run_asgi(app, lifespan="off").wire() as client:
        for _ in range(2):
            go.clear()
            client.request("GET /")
            answer = client.head()
            assert answer.status == 200
            go.set()
            if length:
                assert client.file.read(4) == b"body"
            else:
                assert (client.chunk(), client.chunk()) == (b"body", b"")
                client.fields()
        go.clear()
        client.request("HEAD /")
        assert client.head().status == 200
        go.set()
        client.request("GET /")
        assert client.head().status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="segments are counted by Linux")
def test_a_small_answer_leaves_in_one_write(run_asgi: RunAsgi) -> None:
    def segments(client: Wire) -> int:
        info = client.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
        return int.from_bytes(info[152:156], sys.byteorder)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Neither what comes before the head nor the call itself gives way to the loop.
        await asyncio.sleep(0)
        await respond(send, b"small")

    with run_asgi(app, lifespan="off").wire() as client:
        for number in range(1, 11):
            assert client.ask("GET /").body == b"small"
            assert segments(client) == number


def test_a_file_behind_a_head_that_has_left(run_asgi: RunAsgi, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1000)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"256000")] if scope["path"] == "/sized" else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await asyncio.sleep(0.01)
        await send({"type": "http.response.pathsend", "path": str(path)})

    with run_asgi(app, lifespan="off").wire() as client:
        for target in ("/sized", "/chunked", "/sized"):
            assert client.ask(f"GET {target}").body == path.read_bytes()
            assert client.ask(f"HEAD {target}").status == 200


@pytest.mark.parametrize("pieces", [[b"12345"], [b"123", b"45"], [b"1234", b"5"]])
def test_a_body_beyond_its_length_is_told(
    run_asgi: RunAsgi, caplog: Any, pieces: list[bytes]
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in pieces:
            last = piece is pieces[-1]
            await send({"type": "http.response.body", "body": piece, "more_body": not last})

    ears = Ears(app)
    with caplog.at_level(logging.ERROR):
        server = run_asgi(ears, lifespan="off")
        with server.wire() as client:
            if len(pieces) == 1:
                # Nothing was sent so far: the client learns that there is no answer.
                assert client.ask("GET /").status == 500
            else:
                client.request("GET /")
                assert client.head().status == 200
                with contextlib.suppress(ConnectionResetError):
                    client.file.read()
        assert ears.done.wait(TIMEOUT)
        server.stop()
    assert [type(error) for error in ears.raised] == [RuntimeError]
    assert "longer than its Content-Length" in caplog.text


def test_an_answer_to_head_may_bring_its_body(run_asgi: RunAsgi, caplog: Any) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"12345", headers=[(b"content-length", b"4")])

    with run_asgi(app, lifespan="off").wire() as client:
        assert client.ask("HEAD /").header("content-length") == "4"


def test_after_the_answer_there_is_no_body(run_asgi: RunAsgi) -> None:
    """An application that has answered without its body is not given it afterwards."""
    told: list[Any] = []
    done = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"no")
        told.append(await receive())
        done.set()

    with run_asgi(app, lifespan="off").wire() as client:
        assert client.ask("POST /", "Content-Length: 4", body=b"body").body == b"no"
        assert done.wait(TIMEOUT)
    assert told == [{"type": "http.disconnect"}]
