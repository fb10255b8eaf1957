"""A manager that speaks HTTP/2: each stream is a connection of its own to its handler."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dwell import WEBSOCKET_OP_TEXT, Connection, Event, Manager, TlsOpts
from http2_client import Http2, StreamSocket
from support import port_of
from wire import TIMEOUT

DATA = Path(__file__).parents[3] / "crates" / "tls" / "tests" / "data"
INTERNAL_ERROR = 2


class Served:
    """A manager that is polled by a thread of its own."""

    def __init__(
        self, url: str, handler: Callable[..., None] | None = None, **options: Any
    ) -> None:
        self.handler = handler or self.answer
        self.waiting: list[Connection] = []
        self.told: dict[int, list[Event]] = {}
        self.ended = threading.Event()
        tls = options.pop("tls", None)
        self.manager = Manager(self.handle, **options)
        self.listener = self.manager.listen(url, tls=tls)
        self.address = ("127.0.0.1", port_of(self.listener))
        self.thread = threading.Thread(target=self.poll)
        self.thread.start()

    def poll(self) -> None:
        while not self.ended.is_set():
            self.manager.poll(20)
        self.manager.close()

    def handle(self, conn: Connection, event: Event, data: Any) -> None:
        self.told.setdefault(conn.id, []).append(event)
        self.handler(conn, event, data)

    def answer(self, conn: Connection, event: Event, data: Any) -> None:
        if event != Event.HTTP_MSG:
            return
        if data.uri == "/wait":
            self.waiting.append(conn)
        elif data.uri == "/release":
            # The one that came last is answered first.
            for waiting in reversed(self.waiting):
                waiting.reply(200, str(waiting.id))
            self.waiting = []
            conn.reply(200, "released")
        elif data.uri == "/close":
            conn.close()
        else:
            conn.reply(200, data.body_bytes or data.proto)

    def end(self) -> None:
        self.ended.set()
        self.thread.join(TIMEOUT)


@pytest.fixture
def served() -> Iterator[Served]:
    server = Served("http://127.0.0.1:0", h2c=True)
    yield server
    server.end()


def test_streams(served: Served) -> None:
    with Http2(served.address) as peer:
        assert peer.get("/").body == b"HTTP/2"
        body = b"b" * 100_000
        assert peer.get("/", method="POST", body=body).body == body
        asked = [peer.ask("/wait") for _ in range(50)]
        assert peer.get("/release").body == b"released"
        ids = [peer.answer(number).body for number in asked]
        assert len(set(ids)) == 50
        closed = peer.ask("/close")
        assert peer.until(closed, lambda stream: stream.reset is not None).reset == INTERNAL_ERROR
        assert peer.get("/").body == b"HTTP/2"
    served.end()
    for told in served.told.values():
        assert told[-1] == Event.CLOSE
    events = served.told[int(ids[0])]
    assert events == [Event.OPEN, Event.ACCEPT, Event.HTTP_HDRS, Event.HTTP_MSG, Event.CLOSE]


def test_a_reset_closes_the_stream(served: Served) -> None:
    with Http2(served.address) as peer:
        asked = peer.ask("/wait")
        # Answered behind the one that waits.
        assert peer.get("/").body == b"HTTP/2"
        (conn,) = served.waiting
        # One that is closed has none.
        number = conn.id
        peer.reset(asked)
        while Event.CLOSE not in served.told[number]:
            assert peer.get("/").body == b"HTTP/2"


def test_curl_under_tls() -> None:
    tls = TlsOpts(cert=str(DATA / "certificate.pem"), key=str(DATA / "key.pem"))
    server = Served("https://127.0.0.1:0", http2=True, tls=tls)
    try:
        for flag, version in (("--http2", b"HTTP/2"), ("--http1.1", b"HTTP/1.1")):
            command = ["curl", "-sS", "-k", flag, f"https://127.0.0.1:{server.address[1]}/"]
            ran = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
            assert ran.stdout == version, ran.stderr
    finally:
        server.end()


def test_it_is_off_by_default() -> None:
    server = Served("http://127.0.0.1:0")
    try:
        with Http2(server.address) as peer:
            peer.rest()
    finally:
        server.end()
    assert Event.HTTP_MSG not in {event for told in server.told.values() for event in told}


@pytest.mark.parametrize("option", ["h2c", "http2"])
def test_the_option_is_a_truth_value(option: str) -> None:
    with pytest.raises(TypeError):
        Manager(lambda *_: None, **{option: "yes"})


@pytest.mark.parametrize("tls", [False, True])
def test_a_websocket_on_a_stream(tls: bool) -> None:
    options: dict[str, Any] = {"h2c": True}
    if tls:
        files = TlsOpts(cert=str(DATA / "certificate.pem"), key=str(DATA / "key.pem"))
        options = {"http2": True, "tls": files}

    def handle(conn: Connection, event: Event, data: Any) -> None:
        if event == Event.HTTP_MSG and data.uri == "/socket":
            conn.ws_upgrade(data)
        elif event == Event.HTTP_MSG:
            conn.reply(200, "plain")
        elif event == Event.WS_MSG:
            conn.ws_send(data.text, WEBSOCKET_OP_TEXT)

    server = Served("https://127.0.0.1:0" if tls else "http://127.0.0.1:0", handle, **options)
    try:
        with Http2(server.address, tls=tls) as peer:
            sockets = [StreamSocket(peer, "/socket") for _ in range(3)]
            assert [socket.stream.status for socket in sockets] == [200] * 3
            for number, socket in enumerate(sockets):
                socket.send(f"hello {number} " + "x" * 70_000)
            for number, socket in enumerate(sockets):
                assert socket.recv() == f"hello {number} " + "x" * 70_000
            assert peer.get("/").body == b"plain"
            sockets[0].close()
            sockets[0].end()
            peer.reset(sockets[1].number)
            sockets[2].send("still here")
            assert sockets[2].recv() == "still here"
    finally:
        server.end()
    for told in server.told.values():
        assert told[-1] == Event.CLOSE
    assert [told for told in server.told.values() if Event.WS_OPEN in told][0][:5] == [
        Event.OPEN,
        Event.ACCEPT,
        Event.HTTP_HDRS,
        Event.HTTP_MSG,
        Event.WS_OPEN,
    ]
