"""WebSockets on streams of HTTP/2 (RFC 8441): what they are over HTTP/1.1, many on a connection."""

import asyncio
import contextlib
import json
import signal
import struct
import threading

import pytest
import websockets

from support.http2_client import Http2Connection
from support.http2_websocket import Http2WebSocket
from support.upstream import Answer
from support.wait import until
from support.websocket import CLOSE, PING, PONG

KEY = "/poll/alice"
ENABLE_CONNECT_PROTOCOL = 8
CANCEL, NO_ERROR = 8, 0


@pytest.fixture
def dwell(start_dwell):
    return start_dwell(server={"h2c": True, "pollers": 1})


@pytest.fixture
def client(dwell, cleanup):
    return cleanup.enter_context(Http2Connection(dwell.address))


def cursor(dwell, key=KEY):
    return dwell.get(key).field("Poll-Cursor")


def close(socket, code=1000):
    socket.send_frame(struct.pack("!H", code), CLOSE)


def test_it_is_announced(client):
    client.until(client.ask(KEY), lambda stream: stream.status)
    assert client.h2.remote_settings.get(ENABLE_CONNECT_PROTOCOL) == 1


def test_a_socket_begins_with_the_value_and_brings_every_change(dwell, client):
    cache = dwell.store()
    cache.set(KEY, b"one")
    fields = {"sec-websocket-protocol": "other, dwell.v1"}
    socket = Http2WebSocket(client, KEY, fields)
    assert socket.response.status == 200
    assert socket.response.field("sec-websocket-protocol") == "dwell.v1"
    for none in ("connection", "upgrade", "sec-websocket-accept", "content-length"):
        assert socket.response.field(none) is None
    assert socket.hear() == {"v": "one", "c": cursor(dwell)}
    cache.set(KEY, b"two")
    assert socket.hear() == {"v": "two", "c": cursor(dwell)}
    cache.delete(KEY)
    assert socket.hear() == {"c": None}
    assert dwell.metric("dwell_websockets_open") == dwell.metric("dwell_waits_held") == 1
    socket.send_frame(b"are you there?", PING)
    assert socket.frame() == (PONG, b"are you there?")
    close(socket)
    assert socket.hear() == 1000
    socket.end()
    assert socket.has_ended()
    assert socket.stream.reset in (None, NO_ERROR)
    dwell.await_metric(1, "dwell_streams_ended_total", reason="client")
    dwell.await_waiters(0)
    dwell.await_metric(0, "dwell_websockets_open")
    # The connection goes on.
    assert client.get(KEY).status == 404


def test_keys_are_followed_and_given_up(dwell, client):
    cache = dwell.store()
    cache.set("/poll/a", b"one")
    socket = Http2WebSocket(client, "/poll/?k=a&k=b")
    assert socket.hear() == {"k": "a", "v": "one", "c": cursor(dwell, "/poll/a")}
    socket.say(subscribe=["c"])
    cache.set("/poll/c", b"three")
    heard = socket.hear()
    heard = socket.hear() if heard == {"k": "c", "c": None} else heard
    assert heard["v"] == "three"
    socket.say(unsubscribe=["c", "x"])
    assert socket.hear() == {"error": "not subscribed", "k": "x"}
    dwell.await_waiters(2)
    cache.set("/poll/c", b"nobody hears this")
    cache.set("/poll/b", b"two")
    assert socket.hear()["k"] == "b"


def test_what_is_published_reaches_all_who_wait(start_dwell, cleanup):
    route = [{"prefix": "/poll/", "websocket_publish": True}]
    dwell = start_dwell(server={"h2c": True}, route=route)
    client = cleanup.enter_context(Http2Connection(dwell.address))
    first, second = Http2WebSocket(client, "/poll/?k=a"), Http2WebSocket(client, "/poll/a")
    dwell.await_waiters(2)
    first.say(publish={"k": "a", "v": "hello"})
    heard = [first.hear(), first.hear()]
    a = cursor(dwell, "/poll/a")
    assert {"published": "a", "c": a} in heard
    assert {"k": "a", "v": "hello", "c": a} in heard
    assert second.hear() == {"v": "hello", "c": a}


def test_one_write_wakes_all_sockets_of_a_connection(dwell, client):
    sockets = [Http2WebSocket(client, KEY) for _ in range(120)]
    dwell.await_metric(120, "dwell_websockets_open")
    for value in (b"one", b"two"):
        dwell.store().set(KEY, value)
        assert {socket.hear()["v"] for socket in sockets} == {value.decode()}
    client.close()
    dwell.await_waiters(0)
    dwell.await_connections(0)


def test_a_closed_window_gets_the_newest_and_no_queue(dwell, cleanup):
    cache = dwell.store()
    client = cleanup.enter_context(Http2Connection(dwell.address, window_bytes=0))
    socket = Http2WebSocket(client, KEY)
    dwell.await_waiters(1)
    for number in range(200):
        cache.set(KEY, b"%4d" % number + b"v" * 20_000)
        # Each is seen by the loop before the next.
        assert cursor(dwell)
    assert dwell.metric("dwell_output_queued_bytes") < 1 << 20
    client.h2.increment_flow_control_window(1 << 20, socket.number)
    client.h2.increment_flow_control_window(1 << 20)
    client.flush()
    heard = []
    while not heard or heard[-1] != 199:
        heard.append(int(socket.hear()["v"][:4]))
    assert heard == sorted(heard)
    assert len(heard) < 60


def test_a_client_that_resets_is_forgotten(dwell, client):
    first, second = Http2WebSocket(client, KEY), Http2WebSocket(client, KEY)
    dwell.await_waiters(2)
    first.reset()
    dwell.await_waiters(1)
    second.end()
    dwell.await_waiters(0)
    assert second.has_ended()
    assert client.get(KEY).status == 404


def test_what_is_no_handshake_is_refused(dwell, client):
    refused = {
        403: Http2WebSocket(client, KEY, {"origin": "http://elsewhere.example"}),
        426: Http2WebSocket(client, KEY, {"sec-websocket-version": "8"}),
        501: Http2WebSocket(client, KEY, **{":protocol": "connect-udp"}),
    }
    assert {status: it.response.status for status, it in refused.items()} == {
        status: status for status in refused
    }
    plain = [(":method", "CONNECT"), (":authority", "localhost:80")]
    assert client.answer(client.ask_by(plain)).status == 501
    assert client.get(KEY).status == 404
    dwell.await_metric(0, "dwell_websockets_open")


def test_sockets_on_streams_count_as_connections(start_dwell, cleanup):
    dwell = start_dwell(server={"h2c": True, "pollers": 1}, limits={"connections_max": 3})
    client = cleanup.enter_context(Http2Connection(dwell.address))
    first, _ = Http2WebSocket(client, KEY), Http2WebSocket(client, KEY)
    assert Http2WebSocket(client, KEY).response.status == 503
    assert dwell.metric("dwell_connections_refused_total", reason="connections_max") == 1
    # A request is no connection.
    assert client.get(KEY).status == 404
    first.reset()
    dwell.await_metric(1, "dwell_websockets_open")
    assert Http2WebSocket(client, KEY).response.status == 200


@pytest.mark.parametrize("missing", [":scheme", ":path", ":authority"])
def test_a_malformed_one_ends_its_stream(client, missing):
    assert Http2WebSocket(client, KEY, **{missing: None}).stream.reset == 1
    assert client.get(KEY).status == 404


def test_sockets_end_with_the_server(dwell, client):
    sockets = [Http2WebSocket(client, KEY) for _ in range(3)]
    dwell.await_waiters(3)
    dwell.signal(signal.SIGTERM)
    for socket in sockets:
        assert socket.hear() == 1001
        close(socket, 1001)
        socket.end()
    client.read_to_end()
    assert client.goaway_code == NO_ERROR
    assert dwell.wait() == 0


def test_the_access_log_has_the_handshake(start_dwell, cleanup, tmp_path):
    log = tmp_path / "access.log"
    dwell = start_dwell(server={"h2c": True}, log={"access": str(log)})
    client = cleanup.enter_context(Http2Connection(dwell.address))
    Http2WebSocket(client, KEY)
    lines = until(lambda: log.exists() and log.read_text().splitlines(), "a line is written")
    line = json.loads(lines[0])
    assert (line["method"], line["status"], line["protocol"]) == ("GET", 101, "HTTP/2")


@pytest.fixture
def echo():
    """An application of HTTP/1.1 that speaks WebSocket."""
    started, port, ends = threading.Event(), [], []
    loop = asyncio.new_event_loop()

    async def talk(connection):
        async for message in connection:
            await connection.send(message)
        ends.append(connection.close_code)

    async def serve():
        async with websockets.serve(talk, "127.0.0.1", 0, subprotocols=["chat"]) as server:
            port.append(server.sockets[0].getsockname()[1])
            started.set()
            await asyncio.Event().wait()

    task = loop.create_task(serve())

    def run():
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    yield f"http://127.0.0.1:{port[0]}", ends
    loop.call_soon_threadsafe(task.cancel)
    thread.join()


def test_those_of_the_application_are_forwarded(start_dwell, cleanup, echo):
    url, ends = echo
    dwell = start_dwell(server={"h2c": True}, upstream={"url": url})
    client = cleanup.enter_context(Http2Connection(dwell.address))
    socket = Http2WebSocket(client, "/chat", {"sec-websocket-protocol": "chat"})
    assert socket.response.status == 200
    assert socket.response.field("sec-websocket-protocol") == "chat"
    assert socket.response.field("sec-websocket-accept") is None
    for size in (0, 5, 70_000):
        socket.send_frame(b"x" * size)
        assert socket.frame()[1] == b"x" * size
    dwell.await_metric(1, "dwell_tunnels_open")
    close(socket)
    assert socket.hear() == 1000
    assert socket.has_ended()
    socket.end()
    until(lambda: ends == [1000], "the application has seen the end")
    dwell.await_metric(0, "dwell_tunnels_open")


@pytest.mark.parametrize(("status", "expected"), [(200, 501), (404, 404)])
def test_an_application_that_does_not_switch(start_dwell, cleanup, app, status, expected):
    app.answer = lambda request: Answer(status=status, body=b"a page")
    dwell = start_dwell(server={"h2c": True}, upstream={"url": app.url})
    client = cleanup.enter_context(Http2Connection(dwell.address))
    # A 200 would say that there is a WebSocket.
    assert Http2WebSocket(client, "/chat").response.status == expected
