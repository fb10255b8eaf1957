"""HTTP/2 under TLS among clients that stall, break off or upgrade: others are served, and nothing
stays of them."""

import concurrent.futures
import contextlib
import socket
import ssl

import pytest

from support.http import BODILESS
from support.http2_client import Http2Connection
from support.http2_websocket import Http2WebSocket
from support.secure import Secure
from support.upgrade import upgrade
from support.websocket import CLOSE

KEY = "/poll/alice"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MEGABYTE = 1024 * 1024


def stalled(secure, place):
    """A connection that has gone a part of the way, and says no more."""
    steps = place % 4
    plain = socket.create_connection(secure.address, timeout=20)
    if steps == 0:
        return plain
    if steps == 1:
        # The beginning of a ClientHello.
        plain.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        return plain
    context = secure.context_for("h2", "http/1.1")
    connection = context.wrap_socket(plain, server_hostname="one.test")
    assert connection.selected_alpn_protocol() == "h2"
    if steps == 3:
        # The preface, and the beginning of the settings.
        connection.sendall(PREFACE + b"\x00\x00\x06\x04")
    return connection


def test_a_thousand_that_stall_keep_nobody_out(start_dwell, tmp_path, cleanup):
    limits = {"header_timeout": "3s", "idle_timeout": "3s"}
    secure = Secure(start_dwell, tmp_path, tls={"http2": True}, limits=limits)
    secure.edge.store().set(KEY, b"value")
    with secure.http2() as client:
        assert client.get(KEY).body == b"value"
    secure.edge.await_connections(0)
    before = secure.edge.memory_bytes()
    with contextlib.ExitStack() as stack:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for connection in pool.map(lambda place: stalled(secure, place), range(1000)):
                stack.callback(connection.close)
        with secure.http2() as client:
            assert client.get(KEY).body == b"value"
            assert Http2WebSocket(client, KEY).hear()["v"] == "value"
        assert secure.edge.memory_bytes() - before < 64 * MEGABYTE
        # Each is closed by a deadline of its phase, though none of them ends by itself.
        secure.edge.await_connections(0)


@pytest.mark.parametrize(
    ("offered", "agreed", "sent", "answer"),
    [
        (["h2"], "h2", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x00\x00\x08\x07"),
        (["http/1.1"], "http/1.1", PREFACE, b"HTTP/1.1 "),
        ([], None, PREFACE, b"HTTP/1.1 "),
        (
            ["spdy/3", "http/1.1"],
            "http/1.1",
            b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 404",
        ),
    ],
)
def test_who_says_one_thing_and_speaks_another(
    start_dwell, tmp_path, offered, agreed, sent, answer
):
    secure = Secure(start_dwell, tmp_path, tls={"http2": True})
    context = secure.context_for(*offered) if offered else secure.context()
    with secure.connect(context=context) as connection:
        assert connection.selected_alpn_protocol() == agreed
        connection.sendall(sent)
        came = b""
        while answer not in came:
            piece = connection.recv(65536)
            assert piece, came
            came += piece
    with pytest.raises(ssl.SSLError, match="alert no application protocol"):
        secure.connect(context=secure.context_for("spdy/3", "h3"))
    secure.edge.await_connections(0)


@pytest.mark.parametrize("tls", [False, True])
def test_an_upgrade_ends_what_streams_hold(start_dwell, tmp_path, cleanup, tls):
    limits = {"drain_timeout": "30s"}
    if tls:
        secure = Secure(start_dwell, tmp_path, tls={"http2": True}, limits=limits)
        edge, connect = secure.edge, secure.http2
    else:
        edge = start_dwell(server={"h2c": True}, limits=limits)

        def connect():
            return Http2Connection(edge.address)

    edge.store().set(KEY, b"value")
    with connect() as client:
        sockets = [Http2WebSocket(client, KEY) for _ in range(40)]
        assert {it.hear()["v"] for it in sockets} == {"value"}
        cursor = client.get(KEY).field("poll-cursor")
        polls = [client.ask(f"{KEY}?wait=30&since={cursor}") for _ in range(40)]
        edge.await_waiters(80)
        upgrade(edge, cleanup)
        for number in polls:
            assert client.answer(number).status in (200, *BODILESS)
        for it in sockets:
            assert it.hear() == 1001
            it.send_frame((1001).to_bytes(2, "big"), CLOSE)
            it.end()
            assert it.has_ended()
        client.read_to_end()
        assert client.goaway_code == 0
    # The one that follows has the key, and takes sockets on streams.
    with connect() as client:
        again = Http2WebSocket(client, KEY)
        assert again.hear()["v"] == "value"
        edge.store().set(KEY, b"news")
        assert again.hear()["v"] == "news"


def test_an_upgrade_is_not_held_up_by_clients_that_take_nothing(start_dwell, cleanup):
    edge = start_dwell(server={"h2c": True}, limits={"drain_timeout": "20s"})
    edge.store().set(KEY, b"v" * 100_000)
    with Http2Connection(edge.address, window_bytes=0) as client:
        for _ in range(20):
            Http2WebSocket(client, KEY)
        for _ in range(20):
            client.ask(KEY)
        edge.await_metric(20, "dwell_websockets_open")
        upgrade(edge, cleanup)
        # It reads, and opens no window.
        client.read_to_end()
    with Http2Connection(edge.address) as client:
        assert client.get(KEY).body == b"v" * 100_000
