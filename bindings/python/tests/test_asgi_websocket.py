"""ASGI 3 over the wire: WebSockets."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from queue import Queue
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from servers import Receive, RunAsgi, Scope, Send, echo, resident
from wire import TIMEOUT


def test_web_socket_echo(run_asgi: RunAsgi) -> None:
    with run_asgi(echo).socket() as client:
        for message in ("text", "", "\u2713" * 50_000, b"bytes", b"", os.urandom(900_000)):
            client.send(message)
            assert client.recv(TIMEOUT) == message
        for number in range(300):
            client.send(f"{number}")
        for number in range(300):
            assert client.recv(TIMEOUT) == f"{number}"


def test_web_socket_scope_and_acceptance(run_asgi: RunAsgi) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await receive()
        headers = [(b"x-own", b"1"), (b"set-cookie", b"a=b")]
        await send({"type": "websocket.accept", "subprotocol": "two", "headers": headers})
        await send({"type": "websocket.send", "text": "hello"})
        await receive()

    server = run_asgi(app, lifespan="off")
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


def test_web_socket_is_not_accepted_before_the_app_does(run_asgi: RunAsgi) -> None:
    gate = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await asyncio.get_running_loop().run_in_executor(None, gate.wait, TIMEOUT)
        await send({"type": "websocket.accept"})
        await receive()

    with run_asgi(app, lifespan="off").wire() as client:
        client.request_web_socket()
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(TIMEOUT)
        client.file = client.socket.makefile("rb")
        gate.set()
        answer = client.head()
        assert answer.status == 101
        assert answer.header("Sec-WebSocket-Accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_a_message_that_is_too_long_is_told_at_once(run_asgi: RunAsgi) -> None:
    told: Queue[Any] = Queue()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        told.put(await receive())
        with pytest.raises(ConnectionResetError):
            await send({"type": "websocket.send", "text": "too late"})
        told.put("refused")

    with run_asgi(app, lifespan="off", max_message_bytes=1000).wire() as client:
        client.request_web_socket()
        assert client.head().status == 101
        client.send(b"\x82\xfe" + (1001).to_bytes(2, "big") + bytes(4 + 1001))
        began = time.monotonic()
        # The client answers the close frame as late as it likes.
        message = told.get(timeout=TIMEOUT)
        assert time.monotonic() - began < 5
        assert message["type"] == "websocket.disconnect"
        assert message["code"] == 1009
        assert told.get(timeout=TIMEOUT) == "refused"
        assert client.file.read(1) == b"\x88"


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
def test_web_socket_refusals(
    run_asgi: RunAsgi, messages: list[Any], status: int, body: bytes
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        for message in messages:
            await send(message)

    with pytest.raises(InvalidStatus) as caught, run_asgi(app, lifespan="off").socket():
        pass
    assert caught.value.response.status_code == status
    assert (caught.value.response.body or b"") == body


def test_a_bad_handshake_never_reaches_the_app(run_asgi: RunAsgi) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("called")

    server = run_asgi(app, lifespan="off")
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
def test_the_app_closes(run_asgi: RunAsgi, message: dict[str, Any], code: int, reason: str) -> None:
    after: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close"} | message)
        after.append(await receive())
        with pytest.raises(ConnectionResetError):
            await send({"type": "websocket.send", "text": "x"})

    server = run_asgi(app, lifespan="off")
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
        ("bad", 1002, "reserved bit set"),
    ],
)
def test_the_client_closes(run_asgi: RunAsgi, how: str, code: int, reason: str) -> None:
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

    server = run_asgi(app, lifespan="off")
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


def test_an_app_that_fails_closes_with_1011(run_asgi: RunAsgi, caplog: Any) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        raise LookupError("on purpose")

    server = run_asgi(app, lifespan="off")
    with server.socket() as client, caplog.at_level(logging.ERROR):
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(TIMEOUT)
        server.stop()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1011
    assert "LookupError: on purpose" in caplog.text


def test_messages_wait_for_a_slow_app(run_asgi: RunAsgi) -> None:
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

    server = run_asgi(app, lifespan="off")
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


def test_sending_waits_for_a_slow_client(run_asgi: RunAsgi) -> None:
    sent = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(300):
            await send({"type": "websocket.send", "bytes": b"x" * 100_000})
            sent += 1
        await receive()

    server = run_asgi(app, lifespan="off")
    with server.wire() as client:
        client.request_web_socket()
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


def test_limits_of_messages(run_asgi: RunAsgi) -> None:
    with run_asgi(echo, max_message_bytes=1000).socket() as client:
        client.send("x" * 1000)
        assert client.recv(TIMEOUT) == "x" * 1000
        client.send("x" * 1001)
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(TIMEOUT)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009
