"""`limits.connections_per_address`: an address with so many connections gets no other one."""

import signal
import socket
import struct

import pytest

from support.http import request
from support.http2_client import Http2Connection
from support.upgrade import upgrade
from support.wait import until
from support.websocket import WebSocket

KEY = "/poll/alice"
OF_ANOTHER = "127.0.0.2"
MAX = 3
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat/1\r\n\r\n"


@pytest.fixture
def crowded(start_dwell, raw):
    """An edge where an address has three connections at most."""

    def start(**server):
        dwell = start_dwell(
            limits={"connections_per_address": MAX, "drain_timeout": "30s"},
            upstream={"url": raw.url},
            server=server,
        )
        dwell.store().set(KEY, b"value")
        dwell.await_connections(0)
        return dwell

    return start


def is_served(dwell, **options):
    """True if one more connection is served; one that is refused is closed without an answer."""
    with dwell.connect(**options) as connection:
        try:
            connection.ask(KEY)
            return connection.answer().body == b"value"
        except (ConnectionError, EOFError, AssertionError):
            assert connection.buffer == b""
            return False


def assert_full(dwell):
    assert not is_served(dwell)
    assert is_served(dwell, source=OF_ANOTHER)


def reset(connection):
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_one_more_is_closed_at_once_and_told(crowded, cleanup):
    dwell = crowded()
    kept = [cleanup.enter_context(dwell.connect()) for _ in range(MAX)]
    assert {connection.get(KEY).body for connection in kept} == {b"value"}
    for _ in range(5):
        assert_full(dwell)
    labels = {"reason": "connections_per_address"}
    dwell.await_metric(5, "dwell_connections_refused_total", **labels)
    dwell.await_metric(5, "dwell_connections_refused_total")
    assert {connection.get(KEY).body for connection in kept} == {b"value"}
    # A thread of its own writes the log.
    until(lambda: labels["reason"] in dwell.output(), "the log has the limit")
    told = [line for line in dwell.output().splitlines() if labels["reason"] in line]
    assert len(told) == 1
    assert "127.0.0.1" in told[0]
    kept[0].close()
    until(lambda: is_served(dwell), "there is a place again")


def idle(dwell, raw):
    connection = dwell.connect()
    assert connection.get(KEY).body == b"value"
    return connection


def within_a_head(dwell, raw):
    connection = dwell.connect()
    connection.send(b"GET / HTTP/1.1\r\nHo")
    return connection


def held(dwell, raw):
    connection = dwell.connect()
    etag = connection.get(KEY).etag
    connection.ask(f"{KEY}?wait=50", fields={"If-None-Match": etag})
    return connection


def streaming(dwell, raw):
    connection = dwell.connect()
    connection.ask(KEY, fields={"Accept": "text/event-stream"})
    assert connection._head().status == 200
    return connection


def websocket(dwell, raw):
    client = WebSocket(dwell.address, KEY)
    assert client.response.status == 101
    return client


def tunnel(dwell, raw):
    client = dwell.connect()
    client.send(request("/chat", fields={"Connection": "Upgrade", "Upgrade": "chat/1"}))
    app = raw.accept()
    app.read_head()
    app.send(SWITCHED)
    assert client._head().status == 101
    return client


@pytest.mark.parametrize("end", [reset, lambda connection: connection.close()])
@pytest.mark.parametrize("begin", [idle, within_a_head, held, streaming, websocket, tunnel])
def test_the_place_is_given_back_however_it_ends(crowded, raw, begin, end):
    dwell = crowded()
    for _ in range(3):
        clients = [begin(dwell, raw) for _ in range(MAX)]
        dwell.await_connections(MAX)
        assert_full(dwell)
        for client in clients:
            end(client)
        dwell.await_connections(0)


def test_connections_of_a_trusted_proxy_are_not_counted(crowded, cleanup):
    dwell = crowded(trusted_proxies=["127.0.0.1"])
    kept = [cleanup.enter_context(dwell.connect()) for _ in range(3 * MAX)]
    assert {connection.get(KEY).body for connection in kept} == {b"value"}
    other = [cleanup.enter_context(dwell.connect(source=OF_ANOTHER)) for _ in range(MAX)]
    assert {connection.get(KEY).body for connection in other} == {b"value"}
    assert not is_served(dwell, source=OF_ANOTHER)


def test_a_successor_counts_what_it_takes_over(crowded, cleanup):
    dwell = crowded()
    kept = [cleanup.enter_context(dwell.connect()) for _ in range(MAX)]
    assert {connection.get(KEY).body for connection in kept} == {b"value"}
    upgrade(dwell, cleanup)
    assert dwell.wait() == 0
    assert {connection.get(KEY).body for connection in kept} == {b"value"}
    assert_full(dwell)
    kept[0].close()
    until(lambda: is_served(dwell), "there is a place again")


def test_a_reload_changes_the_bound_and_closes_nobody(crowded, cleanup):
    dwell = crowded()
    kept = [cleanup.enter_context(dwell.connect()) for _ in range(MAX)]
    assert {connection.get(KEY).body for connection in kept} == {b"value"}

    def reload(generation, bound):
        dwell.rewrite(limits={"connections_per_address": bound})
        dwell.signal(signal.SIGHUP)
        dwell.await_metric(generation, "dwell_config_generation")

    reload(2, MAX + 1)
    until(lambda: is_served(dwell), "the other place is there")
    reload(3, 1)
    assert {connection.get(KEY).body for connection in kept} == {b"value"}
    kept[0].close()
    kept[1].close()
    dwell.await_connections(1)
    assert_full(dwell)
    reload(4, "off")
    assert is_served(dwell)


def test_requests_of_http2_count_as_connections_do(crowded):
    dwell = crowded(h2c=True)
    with Http2Connection(dwell.address) as client:
        cursor = client.get(KEY).field("poll-cursor")
        held = [client.ask(f"{KEY}?wait=50&since={cursor}") for _ in range(MAX)]
        dwell.await_waiters(MAX)
        refused = client.get(KEY)
        assert refused.status == 429
        assert int(refused.field("retry-after")) > 0
        assert_full(dwell)
        dwell.await_metric(1, "dwell_bad_requests_total", status="429")
        # A place is there again when one of them has ended.
        client.h2.reset_stream(held[0], 8)
        client.flush()
        assert client.get(KEY).body == b"value"
        dwell.await_waiters(MAX - 1)
        dwell.store().set(KEY, b"other")
        assert [client.answer(number).body for number in held[1:]] == [b"other"] * (MAX - 1)
        dwell.store().set(KEY, b"value")
        # The connection has a place of its own.
        with dwell.connect() as second, dwell.connect() as third:
            assert second.get(KEY).body == third.get(KEY).body == b"value"
            assert_full(dwell)
            assert client.get(KEY).body == b"value"
            client.ask(f"{KEY}?wait=50&since={cursor}")
            dwell.await_waiters(1)
            assert client.get(KEY).status == 429
    dwell.await_connections(0)
    until(lambda: is_served(dwell), "all places are there again")
