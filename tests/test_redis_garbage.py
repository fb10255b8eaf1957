"""What no Redis or Valkey sends, in the stream of a real one: it costs the connection alone.

The sweep is set so far apart here that it cannot have woken anybody.
"""

import pytest

from support.injector import Injector
from support.redis import REDIS, VALKEY

KEY = "/poll/alice"
# What may come of it: one list, and the buffers of the loops.
MEMORY_BYTES = 48 << 20
TORN = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$11\r\n/poll/al"
GARBAGE = {
    "no type": b"/garbage\r\n",
    "reply to no command": b"+OK\r\n",
    "push inside a reply": b"*2\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n:1\r\n",
    "nested lists": b"*1\r\n" * 10_000,
    "nested pushes": b">1\r\n" * 10_000,
    "endless list": b">2\r\n$10\r\ninvalidate\r\n*9999999\r\n" + b"$5\r\nabcde\r\n" * 1_000_000,
    "list without an end": b">2\r\n$10\r\ninvalidate\r\n*?\r\n" + b"$5\r\nabcde\r\n" * 1_000,
    "value without an end": b"$?\r\n;5\r\nabcde\r\n",
    "line without an end": b"+" + b"x" * (8 << 20),
    "length beyond all bounds": b">2\r\n$10\r\ninvalidate\r\n*99999999999999999999\r\n",
}


@pytest.fixture(params=[REDIS, VALKEY])
def redis(request, start_redis):
    return start_redis(server=request.param)


@pytest.fixture
def between(redis, cleanup):
    injector = Injector(redis.address)
    cleanup.callback(injector.stop)
    return injector.start()


@pytest.fixture
def edge(start_dwell, between):
    options = {"url": between.url, "sweep_interval": "60s", "probe": "200ms", "timeout": "2s"}
    route = [{"prefix": "/poll/", "on_delete": "keep-waiting"}]
    return start_dwell(redis=options, route=route, server={"pollers": 1})


def hold(edge, cleanup, key=KEY, others=0):
    """A poll that is held, as it has the value that is there."""
    connection = cleanup.enter_context(edge.connect())
    etag = edge.get(key).etag
    connection.ask(f"{key}?wait=50", fields={"If-None-Match": etag} if etag else ())
    edge.await_waiters(others + 1)
    return connection


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_breaks_the_protocol_costs_the_connection_alone(
    edge, redis, between, cleanup, garbage
):
    cache = redis.client()
    cache.set(KEY, b"0")
    held, other = hold(edge, cleanup), hold(edge, cleanup, "/poll/bob", 1)
    edge.await_metric(2, "dwell_redis_armed_keys")
    before = edge.memory_bytes()
    count = between.inject(GARBAGE[garbage])
    edge.await_metric(count, "dwell_redis_protocol_errors_total")
    edge.await_output("malformed or unexpected reply")
    cache.set(KEY, b"1")
    assert held.answer().body == b"1"
    edge.await_metric(1, "dwell_redis_armed_keys")
    cache.set("/poll/bob", b"2")
    assert other.answer().body == b"2", "it is registered on the connection that came after"
    assert edge.get(KEY).body == b"1"
    assert edge.memory_bytes() - before < MEMORY_BYTES
    assert edge.metric("dwell_redis_sweeps_total") == 0


@pytest.mark.parametrize("ends", [True, False], ids=["cut", "silent"])
def test_a_push_that_is_torn_is_made_up_for(edge, redis, between, cleanup, ends):
    """The server's stream ends, or goes on with what cannot be its rest."""
    cache = redis.client()
    cache.set(KEY, b"0")
    held = hold(edge, cleanup)
    edge.await_metric(1, "dwell_redis_armed_keys")
    between.inject(TORN, ends)
    cache.set(KEY, b"1")
    assert held.answer().body == b"1"
    assert edge.get(KEY).body == b"1"
    assert edge.metric("dwell_redis_sweeps_total") == 0


def test_a_value_that_never_ends_is_given_up(edge, redis, between, cleanup):
    """Nothing breaks the protocol: the sign of life that the edge asks for never comes."""
    cache = redis.client()
    held = hold(edge, cleanup)
    edge.await_metric(1, "dwell_redis_armed_keys")
    between.inject(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$900000\r\nabc")
    cache.set(KEY, b"1")
    assert held.answer().body == b"1"
    assert edge.metric("dwell_redis_sweeps_total") == 0


def test_a_network_that_loses_the_connections_is_missed(edge, redis, between, cleanup):
    """Neither side is told that the other one is out of reach."""
    cache = redis.client()
    cache.set(KEY, b"0")
    held = hold(edge, cleanup)
    edge.await_metric(1, "dwell_redis_armed_keys")
    between.silence()
    cache.set(KEY, b"1")
    assert held.answer().body == b"1"
    edge.await_output("no reply in time")
    assert edge.get(KEY).body == b"1"
    assert edge.metric("dwell_redis_sweeps_total") <= 1, "while it was made again"
