"""Connections that a manager opens, and connections without HTTP."""

from __future__ import annotations

import base64
import socket

import pytest

from dwell import Event, Manager
from support import Client, Loop, port_of


def test_a_client_of_ones_own():
    server = Loop(lambda conn, event, data: event == Event.HTTP_MSG and conn.reply(200, data.uri))
    told = []

    def client(conn, event, data):
        if event == Event.CONNECT:
            conn.http_request("GET", "/first", {"X-A": "1"})
        elif event == Event.HTTP_MSG:
            told.append((data.status(), data.body_bytes, data.method, conn.is_client))
            if len(told) == 1:
                conn.http_request("POST", "/second", body="x")
            else:
                conn.close()

    with server as loop:
        port = port_of(loop.listen())
        loop.manager.connect(f"http://127.0.0.1:{port}", client)
        loop.until(lambda: len(told) == 2)
        # As programs written for the reference do it.
        raw = []

        def plain(conn, event, data):
            if event == Event.CONNECT:
                conn.send("GET /raw HTTP/1.1\r\nHost: h\r\n")
                conn.http_basic_auth("user", "pass")
                conn.send(b"\r\n")
            elif event == Event.HTTP_MSG:
                raw.append(data.body_text)

        loop.manager.connect(f"http://127.0.0.1:{port}", plain)
        loop.until(lambda: raw)
    assert told == [(200, b"/first", "", True), (200, b"/second", "", True)]
    assert raw == ["/raw"]


def test_basic_auth_of_a_client_reaches_the_server():
    seen = []
    with Loop(
        lambda c, e, m: (
            e == Event.HTTP_MSG and (seen.append(m.header("authorization")), c.reply(200))
        )
    ) as loop:
        port = port_of(loop.listen())

        def client(conn, event, data):
            if event == Event.CONNECT:
                conn.send("GET / HTTP/1.1\r\nHost: h\r\n")
                conn.http_basic_auth("user", "p:ss")
                conn.send("\r\n")

        loop.manager.connect(f"http://127.0.0.1:{port}", client)
        loop.until(lambda: seen)
    scheme, credentials = seen[0].split()
    assert (scheme, base64.b64decode(credentials)) == ("Basic", b"user:p:ss")


def test_a_connection_that_is_refused_is_an_error():
    told = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with Manager() as manager:
            manager.connect(f"http://127.0.0.1:{port}", lambda c, e, d: told.append((e.name, d)))
            while ("CLOSE", None) not in told:
                manager.poll(100)
    assert [name for name, _ in told] == ["OPEN", "ERROR", "CLOSE"]
    assert "refused" in told[1][1]


def test_raw_bytes():
    def handler(conn, event, data):
        if event == Event.READ:
            assert data is None
            assert conn.recv_len == len(conn.recv_data()) > 0
            assert conn.is_readable
            text = conn.recv_data()
            whole = text.rfind(b"\n") + 1
            conn.send(text[:whole].upper())
            conn.keep(len(text) - whole)

    with Loop(handler) as loop:
        listener = loop.listen("tcp://127.0.0.1:0")
        with loop.client(listener) as client:
            client.send(b"one\ntw")
            assert client.take(4) == b"ONE\n"
            client.send(b"o\n")
            assert client.take(4) == b"TWO\n"
            client.socket.shutdown(socket.SHUT_WR)
            assert client.rest() == b""


@pytest.mark.parametrize(
    ("url", "http", "speaks"), [("tcp://", True, True), ("http://", False, False)]
)
def test_http_overrides_the_scheme(url, http, speaks):
    with Loop(lambda c, e, d: e == Event.READ and c.is_readable and c.send("raw")) as loop:
        listener = loop.listen(f"{url}127.0.0.1:0", http=http)
        client = Client(loop, port_of(listener))
        with client:
            client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            if speaks:
                loop.until_told(Event.HTTP_MSG)
            else:
                assert client.take(3) == b"raw"
