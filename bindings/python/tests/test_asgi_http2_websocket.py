"""ASGI 3: WebSockets on streams of HTTP/2 (RFC 8441)."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from h2.settings import SettingCodes

from http2_client import Http2, StreamSocket
from servers import Receive, RunAsgi, Scope, Send, resident, respond
from wire import TIMEOUT

DATA = Path(__file__).parents[3] / "crates" / "tls" / "tests" / "data"
CANCEL, REFUSED_STREAM = 8, 7


def tls_files() -> dict[str, str]:
    names = {"ssl_certfile": "certificate.pem", "ssl_keyfile": "key.pem"}
    return {option: str(DATA / name) for option, name in names.items()}


async def accepts(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends what comes back, and the path first; answers what is no WebSocket."""
    if scope["type"] == "http":
        await respond(send, b"ok")
        return
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": scope["path"]})
    while (message := await receive())["type"] == "websocket.receive":
        await send(message | {"type": "websocket.send"})


@pytest.mark.parametrize("tls", [False, True])
def test_scope_acceptance_and_echo(run_asgi: RunAsgi, tls: bool) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await receive()
        headers = [(b"x-own", b"1"), (b"set-cookie", b"a=b")]
        await send({"type": "websocket.accept", "subprotocol": "two", "headers": headers})
        while (message := await receive())["type"] == "websocket.receive":
            await send(message | {"type": "websocket.send"})

    options = {"http2": True, **tls_files()} if tls else {"h2c": True}
    server = run_asgi(app, lifespan="off", **options)
    with Http2(server.server.addresses[0], tls=tls) as peer:
        offer = ("sec-websocket-protocol", "one, two")
        socket = StreamSocket(peer, "/chat?x=1", [offer, ("origin", "https://test")])
        assert peer.h2.remote_settings[SettingCodes.ENABLE_CONNECT_PROTOCOL] == 1
        assert socket.stream.status == 200
        fields = dict(socket.stream.fields)
        assert (fields["x-own"], fields["set-cookie"]) == ("1", "a=b")
        assert fields["sec-websocket-protocol"] == "two"
        assert not fields.keys() & {"connection", "upgrade", "sec-websocket-accept"}
        for message in ("text", "", "\u2713" * 50_000, b"bytes", b"", os.urandom(900_000)):
            socket.send(message)
            assert socket.recv() == message
        socket.close(4001, "bye")
        assert socket.closed() == (4001, "")
        socket.end()
        own = peer.socket.getsockname()
    (scope,) = scopes
    assert (scope["type"], scope["http_version"]) == ("websocket", "2")
    assert scope["scheme"] == ("wss" if tls else "ws")
    assert (scope["path"], scope["query_string"]) == ("/chat", b"x=1")
    assert scope["subprotocols"] == ["one", "two"]
    assert scope["client"] == own
    assert (b"host", b"test") in scope["headers"]
    assert ("tls" in scope["extensions"]) == tls


def test_many_sockets_and_requests_share_a_connection(run_asgi: RunAsgi) -> None:
    server = run_asgi(accepts, lifespan="off", h2c=True)
    with Http2(server.server.addresses[0]) as peer:
        sockets = [StreamSocket(peer, f"/{number}") for number in range(120)]
        for socket in sockets:
            socket.send(b"x" * 3000)
        for number, socket in enumerate(sockets):
            assert socket.recv() == f"/{number}"
            assert socket.recv() == b"x" * 3000
        assert peer.get("/").body == b"ok"


REFUSALS: list[tuple[str, list[Any], int, bytes]] = [
    ("close", [{"type": "websocket.close"}], 403, b""),
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
    # It would be taken for a WebSocket.
    (
        "denial by success",
        [
            {"type": "websocket.http.response.start", "status": 204},
            {"type": "websocket.http.response.body"},
        ],
        501,
        b"",
    ),
    ("send", [{"type": "websocket.send", "text": "x"}], 500, b""),
    ("subprotocol", [{"type": "websocket.accept", "subprotocol": "other"}], 500, b""),
]


@pytest.mark.parametrize(
    ("messages", "status", "body"), [row[1:] for row in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_refusals(run_asgi: RunAsgi, messages: list[Any], status: int, body: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await respond(send, b"ok")
            return
        await receive()
        for message in messages:
            await send(message)

    server = run_asgi(app, lifespan="off", h2c=True)
    with Http2(server.server.addresses[0]) as peer:
        socket = StreamSocket(peer)
        assert socket.stream.status == status
        assert peer.answer(socket.number).body == body
        assert peer.get("/").body == b"ok"


def test_a_bad_handshake_never_reaches_the_app(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("called")

    server = run_asgi(app, lifespan="off", h2c=True)
    head = [(":method", "CONNECT"), (":scheme", "http"), (":path", "/"), (":authority", "test")]
    with Http2(server.server.addresses[0]) as peer:
        for fields, status in (
            ([(":protocol", "websocket"), ("sec-websocket-version", "8")], 426),
            ([(":protocol", "websocket")], 426),
            ([(":protocol", "connect-udp"), ("sec-websocket-version", "13")], 501),
        ):
            pseudo, rest = fields[:1], fields[1:]
            asked = peer.ask_by([*head, *pseudo, *rest], ends=False)
            assert peer.answer(asked).status == status


@pytest.mark.parametrize("how", ["close", "end", "reset", "cut"])
def test_the_client_leaves(run_asgi: RunAsgi, how: str) -> None:
    ends: Queue[Any] = Queue()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        ends.put(await receive())
        with pytest.raises(ConnectionResetError):
            await send({"type": "websocket.send", "text": "too late"})
        ends.put("refused")

    server = run_asgi(app, lifespan="off", h2c=True)
    with Http2(server.server.addresses[0]) as peer:
        socket = StreamSocket(peer)
        if how == "close":
            socket.close(4001, "bye")
        elif how == "end":
            peer.h2.end_stream(socket.number)
            peer.flush()
        elif how == "reset":
            peer.reset(socket.number)
        else:
            peer.socket.close()
        code, reason = (4001, "bye") if how == "close" else (1006, "")
        message = {"type": "websocket.disconnect", "code": code, "reason": reason}
        assert ends.get(timeout=TIMEOUT) == message
        assert ends.get(timeout=TIMEOUT) == "refused"


def test_a_client_leaves_while_the_app_decides(run_asgi: RunAsgi) -> None:
    told: Queue[Any] = Queue()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await respond(send, b"ok")
            return
        await receive()
        told.put("asked")
        told.put(await receive())
        with pytest.raises(ConnectionResetError):
            await send({"type": "websocket.accept"})
        told.put("refused")

    server = run_asgi(app, lifespan="off", h2c=True)
    with Http2(server.server.addresses[0]) as peer:
        head = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http")]
        head += [(":path", "/"), (":authority", "test"), ("sec-websocket-version", "13")]
        number = peer.ask_by(head, ends=False)
        assert told.get(timeout=TIMEOUT) == "asked"
        peer.reset(number)
        assert told.get(timeout=TIMEOUT)["type"] == "websocket.disconnect"
        assert told.get(timeout=TIMEOUT) == "refused"
        assert peer.get("/").body == b"ok"


def test_apps_whose_sockets_were_reset_count_until_they_return(run_asgi: RunAsgi) -> None:
    gate = asyncio.Event()
    begun: Queue[bool] = Queue()
    ended: Queue[bool] = Queue()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await respond(send, b"ok")
            return
        await receive()
        await send({"type": "websocket.accept"})
        begun.put(True)
        await gate.wait()
        ended.put(True)

    server = run_asgi(app, lifespan="off", h2c=True)
    with Http2(server.server.addresses[0]) as peer:
        for _ in range(128):
            socket = StreamSocket(peer)
            assert socket.stream.status == 200
            assert begun.get(timeout=TIMEOUT)
            peer.reset(socket.number)
        assert StreamSocket(peer).stream.reset == REFUSED_STREAM
        server.loop.call_soon_threadsafe(gate.set)
        for _ in range(128):
            assert ended.get(timeout=TIMEOUT)
        assert StreamSocket(peer).stream.status == 200


def test_an_app_that_fails_closes_with_1011(run_asgi: RunAsgi, caplog: Any) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        raise LookupError("on purpose")

    server = run_asgi(app, lifespan="off", h2c=True)
    with Http2(server.server.addresses[0]) as peer, caplog.at_level(logging.ERROR):
        assert StreamSocket(peer).closed() == (1011, "")
        server.stop()
    assert "LookupError: on purpose" in caplog.text


def test_messages_wait_for_a_slow_app(run_asgi: RunAsgi) -> None:
    gate = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await respond(send, b"ok")
            return
        await receive()
        await send({"type": "websocket.accept"})
        await gate.wait()
        total = 0
        while total < 200 * 10_000:
            total += len((await receive())["bytes"])
        await send({"type": "websocket.send", "text": str(total)})
        await receive()

    server = run_asgi(app, lifespan="off", h2c=True)
    with Http2(server.server.addresses[0]) as peer:
        socket = StreamSocket(peer)
        before = resident()
        sent = 0
        # What the windows take now, and a while later, when the loop has read what it reads.
        while peer.room(socket.number) >= 10_020:
            socket.send(b"x" * 10_000)
            sent += 1
            assert peer.get("/").body == b"ok"
        assert sent < 30
        assert resident() - before < 20_000_000
        server.loop.call_soon_threadsafe(gate.set)
        for _ in range(200 - sent):
            socket.send(b"x" * 10_000)
        assert socket.recv() == str(200 * 10_000)


def test_sending_waits_for_a_slow_client(run_asgi: RunAsgi) -> None:
    sent = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        if scope["type"] == "http":
            await respond(send, str(sent).encode())
            return
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(300):
            await send({"type": "websocket.send", "bytes": b"x" * 10_000})
            sent += 1
        await receive()

    server = run_asgi(app, lifespan="off", h2c=True)
    with Http2(server.server.addresses[0], window=30_000) as peer:
        socket = StreamSocket(peer)
        before, held = b"", b"0"
        while before != held:
            before, held = held, peer.get("/").body
            peer.take(max(peer.streams))
        assert int(held) < 50
        for _ in range(300):
            while not socket.messages:
                if socket.stream.held:
                    peer.take(socket.number)
                socket._read()
            assert socket.recv() == b"x" * 10_000


def test_a_stop_closes_with_1001(run_asgi: RunAsgi) -> None:
    server = run_asgi(accepts, lifespan="off", h2c=True)
    with Http2(server.server.addresses[0]) as peer:
        socket = StreamSocket(peer)
        assert socket.recv() == "/"
        ended = threading.Thread(target=server.stop)
        ended.start()
        assert socket.closed() == (1001, "server stops")
        socket.end()
        peer.rest()
        assert peer.is_told_to_go
        ended.join(TIMEOUT)
