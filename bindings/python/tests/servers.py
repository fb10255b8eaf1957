"""Servers of the tests, small apps for them, and what this process holds meanwhile."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from websockets.sync.client import ClientConnection, connect

from dwell import asgi, wsgi
from wire import TIMEOUT, Wire

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

Environ = dict[str, Any]
Start = Callable[..., Any]
WsgiApp = Callable[[Environ, Start], Any]


class RunningAsgi:
    """An ASGI server on a loop on a thread of its own."""

    def __init__(self, app: AsgiApp, url: str, options: dict[str, Any]) -> None:
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


RunAsgi = Callable[..., RunningAsgi]
RunWsgi = Callable[..., wsgi.Server]


async def respond(send: Send, body: bytes = b"", status: int = 200, headers: Any = ()) -> None:
    """Sends a whole answer (ASGI)."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read(receive: Receive) -> bytes:
    """The whole body of a request (ASGI)."""
    pieces = []
    while True:
        message = await receive()
        assert message["type"] == "http.request", message
        pieces.append(message["body"])
        if not message["more_body"]:
            return b"".join(pieces)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI app that sends each message of a WebSocket back, and fails at all else."""
    if scope["type"] != "websocket":
        return
    assert (await receive()) == {"type": "websocket.connect"}
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send(message | {"type": "websocket.send"})


def text(start: Start, body: bytes, status: str = "200 OK") -> list[bytes]:
    """Answers with text (WSGI)."""
    start(status, [("Content-Type", "text/plain")])
    return [body]


def wire(server: wsgi.Server) -> Wire:
    """A connection to a WSGI server."""
    return Wire(server.addresses[0])


def resident() -> int:
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors() -> int:
    """Descriptors that this process has open."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
