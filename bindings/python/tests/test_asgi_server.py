"""An ASGI server: lifespan, its end, addresses, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from dwell import asgi
from servers import Receive, RunAsgi, Scope, Send, descriptors, echo, respond
from wire import TIMEOUT, until_refused


def test_lifespan(run_asgi: RunAsgi) -> None:
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

    server = run_asgi(app)
    with server.wire() as client:
        for _ in range(2):
            assert client.ask("GET /").body == b"{'pool': 'pool', 'own': 1}"
        assert events == ["lifespan.startup"]
    server.stop()
    assert events == ["lifespan.startup", "lifespan.shutdown"]


def test_lifespan_that_fails(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(RuntimeError, match="no database"):
        run_asgi(app)


def test_lifespan_that_is_unknown(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        assert "state" not in scope
        await respond(send, b"ok")

    with run_asgi(app).wire() as client:
        assert client.ask("GET /").body == b"ok"
    with pytest.raises(RuntimeError, match="knows no lifespan"):
        run_asgi(app, lifespan="on")
    with pytest.raises(ValueError, match="maybe"):
        run_asgi(app, lifespan="maybe")


def test_stopping_lets_requests_finish(run_asgi: RunAsgi) -> None:
    began, gate = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        await asyncio.get_running_loop().run_in_executor(None, gate.wait, TIMEOUT)
        await respond(send, b"finished")

    server = run_asgi(app, lifespan="off")
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


def test_stopping_closes_web_sockets(run_asgi: RunAsgi) -> None:
    server = run_asgi(echo, lifespan="off")
    with server.socket() as client:
        client.send("x")
        client.recv(TIMEOUT)
        ended = asyncio.run_coroutine_threadsafe(server.server.stop(TIMEOUT), server.loop)
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(TIMEOUT)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1001
    assert ended.result(TIMEOUT) is True


def test_stopping_ends_in_time(run_asgi: RunAsgi) -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        try:
            await asyncio.sleep(TIMEOUT)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    server = run_asgi(app, lifespan="off")
    with server.wire() as client:
        client.request("GET /")
        assert began.wait(TIMEOUT)
        assert server.stop(timeout=0.1) is False
        assert cancelled.is_set()
        assert client.is_closed()


def test_unix_sockets(run_asgi: RunAsgi, tmp_path: Path) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["client"] is None
        await respond(send, scope["server"][0].encode())

    path = tmp_path / "socket"
    with run_asgi(app, f"unix:{path}", lifespan="off").wire() as client:
        assert client.ask("GET /").body == str(path).encode()


def test_proxy_headers_from_trusted_addresses(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, f"{scope['client'][0]} {scope['scheme']}".encode())

    headers = ("X-Forwarded-For: 6.6.6.6, 9.9.9.9", "X-Forwarded-Proto: https")
    with run_asgi(app, lifespan="off").wire() as client:
        assert client.ask("GET /", *headers).body == b"127.0.0.1 http"
    with run_asgi(app, lifespan="off", trusted_proxies=["127.0.0.1"]).wire() as client:
        assert client.ask("GET /", *headers).body == b"9.9.9.9 https"


def test_idle_timeouts_end_connections(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"ok")

    server = run_asgi(app, lifespan="off", keep_alive_timeout=1, header_timeout=1)
    with server.wire() as client:
        assert client.ask("GET /").body == b"ok"
        assert client.is_closed()
    with server.wire() as client:
        client.send(b"GET / HT")
        assert client.answer().status == 408


def test_nothing_leaks(run_asgi: RunAsgi) -> None:
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

    server = run_asgi(app, lifespan="off")

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


def test_stopping_lets_background_work_finish(run_asgi: RunAsgi) -> None:
    ended: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"ok")
        try:
            await asyncio.sleep(2)
            ended.append("finished")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    server = run_asgi(app, lifespan="off")
    with server.wire() as client:
        assert client.ask("GET /").body == b"ok"
    assert server.stop(20)
    assert ended == ["finished"]
