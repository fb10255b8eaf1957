"""Upgrade becomes a tunnel: the application's own WebSockets, and anything else."""

import asyncio
import contextlib
import signal
import socket

import pytest
import websockets

from support import ports
from support.http import request
from support.raw_app import field
from support.wait import until

UPGRADE = {"Connection": "keep-alive, Upgrade", "Upgrade": "chat/1"}
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat/1\r\n"
    b"X-Chat: yes\r\n\r\n"
)


@pytest.fixture
def tunnel(start_dwell, raw, cleanup):
    """Both ends of a connection that has changed its protocol."""

    def start(early=b"", first=b"", **settings):
        dwell = start_dwell(
            upstream={"url": raw.url, **settings},
            server={"pollers": 1},
            limits={"drain_timeout": "3s"},
        )
        client = cleanup.enter_context(dwell.connect())
        client.send(request("/chat", fields=UPGRADE) + early)
        app = raw.accept()
        cleanup.callback(app.close)
        head = app.read_head()
        assert (field(head, "Connection"), field(head, "Upgrade")) == (b"Upgrade", b"chat/1")
        app.send(SWITCHED + first)
        response = client._head()
        assert (response.status, response.field("Upgrade")) == (101, "chat/1")
        assert (response.field("Connection"), response.field("X-Chat")) == ("upgrade", "yes")
        return dwell, client, app

    return start


def test_bytes_pass_both_ways(tunnel):
    _, client, app = tunnel()
    for number in range(20):
        client.send(b"ping %d" % number)
        assert app.read(len(b"ping %d" % number)) == b"ping %d" % number
        app.send(b"pong %d" % number)
        assert client._take(len(b"pong %d" % number)) == b"pong %d" % number


def test_a_tunnel_is_a_connection_of_a_client(tunnel):
    dwell, client, app = tunnel()
    dwell.await_metric(1, "dwell_tunnels_open")
    dwell.await_connections(1)
    client.close()
    app.close()
    dwell.await_metric(0, "dwell_tunnels_open")
    dwell.await_connections(0)


def test_what_was_said_early_is_heard(tunnel):
    _, client, app = tunnel(early=b"I begin", first=b"so do I")
    assert app.read(7) == b"I begin"
    assert client._take(7) == b"so do I"


def test_an_end_passes_and_the_other_direction_goes_on(tunnel):
    dwell, client, app = tunnel()
    client.send(b"that is all")
    client.socket.shutdown(socket.SHUT_WR)
    assert app.read(11) == b"that is all"
    assert app.socket.recv(1) == b""
    app.send(b"not from here")
    assert client._take(13) == b"not from here"
    app.end_sending()
    assert client.read_to_end() == b""
    dwell.await_metric(0, "dwell_upstream_connections_open")


def test_an_end_of_the_application_passes_too(tunnel):
    _, client, app = tunnel()
    app.send(b"that is all")
    app.end_sending()
    assert client.read_to_end() == b"that is all"
    client.send(b"not from here")
    assert app.read(13) == b"not from here"


@pytest.mark.parametrize("who", ["client", "app"])
def test_a_reset_passes(tunnel, who):
    _, client, app = tunnel()
    linger = b"\1\0\0\0\0\0\0\0"
    one, other = (client, app) if who == "client" else (app, client)
    one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    one.close()
    with pytest.raises(ConnectionResetError):
        other.socket.recv(1)


@pytest.mark.parametrize("who", ["client", "app"])
def test_who_does_not_read_stops_the_other(tunnel, who):
    dwell, client, app = tunnel()
    reader, writer = (client, app) if who == "client" else (app, client)
    writer.socket.settimeout(1)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 200 << 20:
            sent += writer.socket.send(b"x" * 65536)
    assert sent < 32 << 20
    assert dwell.memory_bytes() < 64 << 20
    take = reader._take if who == "client" else reader.read
    assert take(sent) == b"x" * sent


def test_a_silent_tunnel_is_closed(tunnel):
    _, client, app = tunnel(tunnel_timeout="1s")
    app.send(b"alive")
    assert client._take(5) == b"alive"
    assert client.is_ended()
    assert app.is_cut()


def test_a_tunnel_lives_until_the_end_of_the_drain(tunnel):
    dwell, client, app = tunnel()
    dwell.signal(signal.SIGTERM)
    until(lambda: dwell.admin("/-/health").status == 503, "it drains")
    client.send(b"still here")
    assert app.read(10) == b"still here"
    assert client.is_ended()
    assert app.is_cut()
    until(lambda: not dwell.is_alive(), "it has ended")


def test_a_refusal_is_an_answer_like_any_other(start_dwell, raw):
    dwell = start_dwell(upstream={"url": raw.url})
    with dwell.connect() as client:
        client.send(request("/chat", fields=UPGRADE))
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            app.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
            assert client.answer().body == b"no"
            client.send(request("/next"))
            assert app.read_head().startswith(b"GET /next ")


@pytest.mark.parametrize("protocols", [b"Upgrade: other/1\r\n", b"", b"Upgrade: chat/1, b\r\n"])
def test_a_switch_to_what_was_not_asked_for_is_502(start_dwell, raw, protocols):
    dwell = start_dwell(upstream={"url": raw.url})
    with dwell.connect() as client:
        client.send(request("/chat", fields=UPGRADE))
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            app.send(SWITCHED.replace(b"Upgrade: chat/1\r\n", protocols))
            assert client.answer().status == 502
            assert app.is_cut()
    dwell.await_metric(1, "dwell_upstream_requests_total", outcome="bad_answer")
    assert dwell.metric("dwell_tunnels_open") == 0


def test_the_protocol_may_be_one_of_several_and_in_other_letters(start_dwell, raw):
    dwell = start_dwell(upstream={"url": raw.url})
    with dwell.connect() as client:
        client.send(request("/", fields={**UPGRADE, "Upgrade": "other/2, CHAT/1"}))
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            app.send(SWITCHED)
            assert client._head().status == 101


@pytest.mark.parametrize(
    "sent",
    [
        request("/", fields={"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}),
        request("/", fields={"Connection": "Upgrade", "Upgrade": "H2C"}),
        request("/", fields={"Connection": "Upgrade", "Upgrade": "websocket, h2c"}),
        request("/", fields={"Upgrade": "websocket"}),
        request("/", "POST", fields={"Connection": "Upgrade", "Upgrade": "chat/1"}, body=b"a"),
        request("/", fields=UPGRADE).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["h2c", "capitals", "list", "not nominated", "with a body", "HTTP/1.0"],
)
def test_what_cannot_be_passed_is_not_asked_for(start_dwell, raw, sent):
    dwell = start_dwell(upstream={"url": raw.url})
    with dwell.connect() as client:
        client.send(sent)
        with contextlib.closing(raw.accept()) as app:
            head = app.read_head()
            assert field(head, "Upgrade") is None
            assert field(head, "HTTP2-Settings") is None
            app.send(SWITCHED)
            assert client.answer().status == 502


APP = """
async def app(scope, receive, send):
    assert scope["type"] == "websocket"
    await receive()
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": event["text"][::-1]})
"""


@pytest.fixture
def uvicorn(tmp_path, cleanup):
    import sys

    from support.process import Process

    (tmp_path / "reversing.py").write_text(APP)
    address = ports.free_address()
    arguments = [
        *(sys.executable, "-m", "uvicorn", "--app-dir", tmp_path, "reversing:app"),
        *("--host", address[0], "--port", address[1], "--log-level", "warning"),
    ]
    process = Process(arguments, tmp_path / "uvicorn.log")
    cleanup.callback(process.stop)
    return process.start_listening(address), address


def test_websockets_of_a_real_application(start_dwell, uvicorn):
    _, address = uvicorn
    dwell = start_dwell(upstream={"url": f"http://{ports.text(address)}"})

    async def talk():
        url = dwell.url("/anything").replace("http", "ws")
        async with websockets.connect(url) as one, websockets.connect(url) as other:
            for size in (0, 1, 1000, 300_000):
                text = "abc" * size
                await one.send(text)
                await other.send(text + "d")
                assert await one.recv() == text[::-1]
                assert await other.recv() == "d" + text[::-1]
            await one.ping()

    asyncio.run(asyncio.wait_for(talk(), 30))
