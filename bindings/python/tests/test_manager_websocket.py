"""WebSocket through `Manager`."""

from __future__ import annotations

import struct

import pytest

from dwell import (
    WEBSOCKET_OP_BINARY,
    WEBSOCKET_OP_CLOSE,
    WEBSOCKET_OP_PING,
    WEBSOCKET_OP_PONG,
    WEBSOCKET_OP_TEXT,
    Event,
    WsMessage,
)
from support import Loop, fields_of, port_of


def echo(conn, event, data):
    """Sends back what comes, as it came."""
    if event == Event.HTTP_MSG:
        conn.ws_upgrade(data)
    elif event == Event.WS_MSG:
        conn.ws_send(data.data, data.flags & 15)


def test_echo():
    with Loop(echo) as loop, loop.client(loop.listen("ws://127.0.0.1:0")) as client:
        assert client.upgrade().startswith(b"HTTP/1.1 101 ")
        for opcode, payload in [
            (1, "héllo".encode()),
            (2, b"\0\xff"),
            (1, b""),
            (2, bytes(70_000)),
        ]:
            client.send_frame(opcode, payload)
            assert client.frame() == (0x80 | opcode, payload)
        client.send_frame(1, b"one ", fin=False)
        client.send_frame(0, b"two")
        assert client.frame() == (0x81, b"one two")
        client.send_frame(9, b"ping")
        assert client.frame() == (0x8A, b"ping")
        client.send_frame(8, struct.pack("!H", 1000) + b"bye")
        assert client.frame() == (0x88, struct.pack("!H", 1000))
        loop.until_told(Event.CLOSE)
        assert loop.events(2)[:5] == ["OPEN", "ACCEPT", "HTTP_HDRS", "HTTP_MSG", "READ"]
        assert "WS_OPEN" in loop.events(2)


def test_what_a_message_says_and_when():
    kept = []

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            assert not conn.is_websocket
            conn.ws_upgrade(message)
        elif event == Event.WS_OPEN:
            assert conn.is_websocket
            kept.append(
                (message.method, message.uri, message.query, message.header("X-A"), message)
            )
            conn.ws_send("welcome")
        elif event in (Event.WS_MSG, Event.WS_CTL):
            kept.append((message.data, message.text, message.flags, bool(message), message))

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.upgrade("/chat?room=1", "X-A: 1\r\n")
        assert client.frame() == (0x81, b"welcome")
        client.send_frame(1, b"text")
        client.send_frame(2, b"\xff")
        client.send_frame(9, b"?")
        client.send_frame(8, struct.pack("!H", 4000) + b"why")
        loop.until(lambda: len(kept) == 5)
    assert kept[0][:4] == ("GET", "/chat", "room=1", "1")
    assert [told[:4] for told in kept[1:]] == [
        (b"text", "text", 0x81, True),
        (b"\xff", "\udcff", 0x82, True),
        (b"?", "?", 0x89, True),
        (struct.pack("!H", 4000) + b"why", "\x0f\udca0why", 0x88, True),
    ]
    assert not kept[0][4]
    for message in [told[4] for told in kept[1:]] + [WsMessage()]:
        assert (message.data, message.text, message.flags, bool(message)) == (b"", "", 0, False)


def test_kinds_of_messages_and_their_faults():
    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            conn.ws_upgrade(data, {"X-A": "1"})
        elif event == Event.WS_OPEN:
            conn.ws_send("text")
            conn.ws_send(b"bytes", WEBSOCKET_OP_TEXT)
            conn.ws_send(bytearray(b"\0"), WEBSOCKET_OP_BINARY)
            conn.ws_send(b"?", WEBSOCKET_OP_PING)
            conn.ws_send(b"!", WEBSOCKET_OP_PONG)
            for arguments, kind in [
                ((b"\xff", WEBSOCKET_OP_TEXT), ValueError),
                ((bytes(126), WEBSOCKET_OP_PING), ValueError),
                ((b"", 3), ValueError),
                ((b"", 0), ValueError),
                ((struct.pack("!H", 1005), WEBSOCKET_OP_CLOSE), ValueError),
                ((5,), TypeError),
            ]:
                with pytest.raises(kind):
                    conn.ws_send(*arguments)
            with pytest.raises(ValueError, match="close code may not be sent: 999"):
                conn.ws_close(999)
            with pytest.raises(RuntimeError, match="another protocol"):
                conn.reply(200)
            conn.ws_close(4001, "enough")

    with Loop(handler, error_handler=print) as loop, loop.client(loop.listen()) as client:
        assert fields_of(client.upgrade())["x-a"] == "1"
        frames = [client.frame() for _ in range(6)]
        assert frames == [
            (0x81, b"text"),
            (0x81, b"bytes"),
            (0x82, b"\0"),
            (0x89, b"?"),
            (0x8A, b"!"),
            (0x88, struct.pack("!H", 4001) + b"enough"),
        ]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"400"),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n\r\n",
            b"400",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            b"Origin: http://elsewhere\r\n\r\n",
            b"403",
        ),
    ],
)
def test_a_handshake_that_is_refused(request_bytes, status):
    with Loop(echo) as loop, loop.client(loop.listen()) as client:
        client.send(request_bytes)
        assert client.take_until(b"\r\n\r\n").startswith(b"HTTP/1.1 " + status)


def test_options_of_the_handshake():
    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            conn.ws_upgrade(data, subprotocols=["v2", "v1"], check_origin=False)

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        offer = "Sec-WebSocket-Protocol: v1, v2\r\nOrigin: http://elsewhere\r\n"
        assert fields_of(client.upgrade(extra=offer))["sec-websocket-protocol"] == "v2"


def test_bad_upgrades():
    kept = []

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            with pytest.raises(ValueError, match="illegal character"):
                conn.ws_upgrade(message, {"A": "b\r\n"})
            kept.append((conn, message))
            conn.reply(200)
            with pytest.raises(RuntimeError, match="answer already"):
                conn.ws_upgrade(message)

    with Loop(handler, error_handler=print) as loop, loop.client(loop.listen()) as client:
        assert client.get().startswith(b"HTTP/1.1 200")
        conn, message = kept[0]
        with pytest.raises(ValueError, match="no longer valid"):
            conn.ws_upgrade(message)
        with pytest.raises(RuntimeError, match="another protocol"):
            conn.ws_send("x")


def test_broadcast_to_all_from_a_handler_and_a_timer():
    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            conn.ws_upgrade(data)
        elif event == Event.WS_MSG:
            for other in loop.manager.connections:
                if other.is_websocket and other is not conn:
                    other.ws_send(data.text)

    with Loop(handler) as loop:
        listener = loop.listen()
        clients = [loop.client(listener) for _ in range(5)]
        for client in clients:
            client.upgrade()
        loop.until_told(Event.WS_OPEN, 5)
        clients[0].send_frame(1, b"hello")
        for client in clients[1:]:
            assert client.frame() == (0x81, b"hello")

        def tick():
            for conn in loop.manager.connections:
                if conn.is_websocket:
                    conn.ws_send("tick")

        loop.manager.timer_add(0, tick)
        for client in clients:
            assert client.frame() == (0x81, b"tick")
            client.socket.close()


def test_a_client_of_ones_own():
    told = []

    def client(conn, event, data):
        if event == Event.WS_OPEN:
            conn.ws_send("from here")
        elif event == Event.WS_MSG:
            told.append((data.text, data.flags, conn.is_client))
            conn.ws_close()
        elif event in (Event.ERROR, Event.CLOSE):
            told.append(event)

    with Loop(echo) as loop:
        port = port_of(loop.listen())
        loop.manager.ws_connect(f"ws://127.0.0.1:{port}/", client)
        loop.until(lambda: Event.CLOSE in told)
    assert told == [("from here", 0x81, True), Event.CLOSE]
