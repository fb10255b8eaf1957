"""What external memcached tells of changes: a hint that wakes polls before the sweep would.

The sweep is set so far apart here that it cannot have woken anybody, except where a test says so;
that it is the truth all the same is what the other tests of memcached show.
"""

import contextlib
import socket

import pytest

from support.wait import PATIENCE_S, until

KEY = "/poll/alice"
LONG = "60s"
# As memcached has it.
WATCHERS_MAX = 20


def serve(start_dwell, *servers, sweep=LONG, **sections):
    settings = {"servers": [server.name for server in servers], "sweep_interval": sweep}
    return start_dwell(memcached={**settings, "watch": True}, **sections)


@pytest.fixture
def watching(start_dwell, memcached):
    """An edge that looks for itself once a minute, and otherwise when it is told to."""
    return serve(start_dwell, memcached)


@contextlib.contextmanager
def held(dwell, key=KEY):
    """A poll that is held, as it has the value that is there."""
    with dwell.connect() as connection:
        etag = dwell.get(key).etag
        connection.ask(f"{key}?wait=50", fields={"If-None-Match": etag})
        dwell.await_waiters(1)
        yield connection


def resyncs(dwell, *reasons):
    name = "dwell_feed_resyncs_total"
    if not reasons:
        return dwell.metric(name)
    return sum(dwell.metric(name, reason=reason) for reason in reasons)


def hints(dwell):
    """Words of changes to keys that polls wait for; a storm of them is one read after another."""
    return sum(dwell.metric("dwell_feed_hints_total", outcome=of) for of in ("read", "joined"))


def await_watch(dwell, servers=1):
    """Waits until the servers tell of changes, and what they said at first has been compared."""
    dwell.await_metric(servers, "dwell_feed_watch_up")
    until(lambda: resyncs(dwell, "connected") >= 2 * servers, "everything is looked at first")


def await_resync(dwell, reason):
    until(lambda: resyncs(dwell, reason) > 0, f"everything is looked at: {reason}")


def await_sweep(dwell):
    until(lambda: dwell.metric("dwell_memcached_sweeps_total") > 0, "the edge looks by itself")


def assert_swept_nothing(dwell):
    assert dwell.metric("dwell_memcached_sweeps_total") == 0


def send(memcached, data):
    """Commands that are not answered; they are with the server's kernel when this returns."""
    connection = socket.create_connection(memcached.address, timeout=PATIENCE_S)
    connection.sendall(data)
    return connection


def silent_set(key, value):
    return b"set %s 0 0 %d noreply\r\n%s\r\n" % (key.encode(), len(value), value)


def test_a_write_wakes_who_waits_by_what_memcached_tells(watching, memcached):
    client = memcached.client()
    client.set(KEY, b"0")
    with watching.connect() as connection:
        etag = watching.get(KEY).etag
        for value in (b"1", b"2"):
            connection.ask(f"{KEY}?wait=30", fields={"If-None-Match": etag})
            watching.await_waiters(1)
            await_watch(watching)
            before = resyncs(watching)
            client.set(KEY, value)
            answer = connection.answer()
            assert answer.body == value
            etag = answer.etag
    # The look at everything with which a watch begins may have found the first change; nothing but
    # a hint has found the second.
    assert resyncs(watching) == before
    assert hints(watching) >= 1
    assert_swept_nothing(watching)


def test_a_burst_that_loses_lines_wakes_all_the_same(watching, memcached):
    client = memcached.client()
    client.set(KEY, b"before")
    filler = [silent_set(f"/other/{place}", b"x") for place in range(20_000)]
    filler.insert(10_000, silent_set(KEY, b"within"))

    def told_or_lost():
        # What a slow reader has missed is said when there is something to say again.
        client.set("/other/more", b"x")
        return sum(watching.metric(f"dwell_feed_lines{of}_total") for of in ("", "_lost"))

    with held(watching) as connection:
        await_watch(watching)
        with send(memcached, b"".join(filler)):
            assert connection.answer().body == b"within"
            # Later polls keep the feed asking for statistics, which is where the loss is seen.
            with held(watching):
                until(lambda: told_or_lost() >= len(filler), lambda: f"all: {told_or_lost()}")
    if watching.metric("dwell_feed_lines_lost_total") > 0:
        assert resyncs(watching, "dropped", "skipped") >= 1
    assert_swept_nothing(watching)


def test_what_is_never_told_is_seen_in_the_statistics(watching, memcached):
    client = memcached.client()
    client.set(KEY, b"5")
    with held(watching) as connection:
        await_watch(watching)
        client.incr(KEY, 1)
        assert connection.answer().body == b"6"
    await_resync(watching, "untold")
    with held(watching) as connection:
        client.decr(KEY, 2)
        assert connection.answer().body == b"4"
    assert_swept_nothing(watching)


def test_the_same_content_wakes_nobody(watching, memcached):
    client = memcached.client()
    client.set(KEY, b"0")
    client.set("/poll/count", b"1")
    with held(watching) as connection:
        await_watch(watching)
        client.set(KEY, b"0")
        until(lambda: hints(watching) >= 1, "the write is told of")
        client.touch(KEY, 1000)
        # Makes the edge look at everything, and so at what was touched.
        client.incr("/poll/count", 1)
        await_resync(watching, "untold")
        assert connection.is_silent()
        client.set(KEY, b"1")
        assert connection.answer().body == b"1"
    assert_swept_nothing(watching)


def test_a_deletion_wakes(watching, memcached):
    client = memcached.client()
    client.set(KEY, b"0")
    with held(watching) as connection:
        await_watch(watching)
        client.delete(KEY)
        assert connection.answer().status == 404
    assert_swept_nothing(watching)


def test_flush_all_wakes(watching, memcached):
    client = memcached.client()
    client.set(KEY, b"0")

    def is_flushed():
        # By its clock of seconds, memcached may take the item for younger than the flush.
        client.flush_all()
        return client.get(KEY) is None

    with held(watching) as connection:
        await_watch(watching)
        until(is_flushed, "the item is gone")
        assert connection.answer().status == 404
    await_resync(watching, "flushed")
    assert_swept_nothing(watching)


def test_expiry_is_found_by_the_sweep(start_dwell, memcached):
    dwell = serve(start_dwell, memcached, sweep="50ms")
    client = memcached.client()
    client.set(KEY, b"0")
    with held(dwell) as connection:
        await_sweep(dwell)
        client.touch(KEY, 1)
        assert connection.answer().status == 404


def test_a_restart_with_the_same_versions_again_wakes(start_dwell, memcached):
    route = [{"prefix": "/poll/", "on_delete": "keep-waiting"}]
    dwell = serve(start_dwell, memcached, route=route)
    memcached.client().set(KEY, b"first life")
    _, version = memcached.client().gets(KEY)
    with held(dwell) as connection:
        await_watch(dwell)
        memcached.kill()
        memcached.start_ready()
        memcached.client().set(KEY, b"second life")
        assert memcached.client().gets(KEY) == (b"second life", version)
        assert connection.answer().body == b"second life"
    assert_swept_nothing(dwell)


def test_a_server_without_versions_is_read_when_it_tells(start_dwell, start_memcached):
    memcached = start_memcached("-C")
    dwell = serve(start_dwell, memcached)
    client = memcached.client()
    client.set(KEY, b"1")
    assert client.gets(KEY)[1] == b"0"
    with held(dwell) as connection:
        await_watch(dwell)
        client.set(KEY, b"2")
        assert connection.answer().body == b"2"
    with held(dwell) as connection:
        client.incr(KEY, 1)
        assert connection.answer().body == b"3"
    assert_swept_nothing(dwell)


@pytest.fixture(params=["-W", "crowded"])
def refusing(request, cleanup, start_memcached):
    """A server that does not let itself be watched, or not by one more."""
    if request.param == "-W":
        return start_memcached("-W")
    memcached = start_memcached()
    for _ in range(WATCHERS_MAX):
        watcher = cleanup.enter_context(send(memcached, b"watch mutations\r\n"))
        assert watcher.recv(16) == b"OK\r\n"
    return memcached


def test_a_server_that_refuses_is_swept(start_dwell, refusing):
    dwell = serve(start_dwell, refusing, sweep="50ms")
    client = refusing.client()
    client.set(KEY, b"0")
    up = f'dwell_feed_watch_up{{server="{refusing.name}"}}'
    with held(dwell) as connection:
        until(lambda: dwell.metrics().get(up) == 0, lambda: f"{up} is 0: {dwell.metrics()}")
        await_sweep(dwell)
        client.set(KEY, b"1")
        assert connection.answer().body == b"1"
    dwell.await_output("does not let itself be watched")
    assert hints(dwell) == 0


def test_a_server_of_the_ring_is_replaced(start_dwell, start_memcached):
    servers = [start_memcached(), start_memcached()]
    route = [{"prefix": "/poll/", "on_delete": "keep-waiting"}]
    dwell = serve(start_dwell, *servers, route=route)
    homes = {}
    for place in range(40):
        key = f"/poll/{place}"
        for index, server in enumerate(servers):
            server.client().set(key, b"on %d" % index)
        homes[int(dwell.get(key).body.split()[1])] = key
    stays, goes = homes[0], homes[1]
    with held(dwell, goes) as replaced:
        await_watch(dwell, len(servers))
        servers[1].kill()
        dwell.await_metric(1, "dwell_feed_watch_up")
        with dwell.connect() as other:
            etag = dwell.get(stays).etag
            other.ask(f"{stays}?wait=50", fields={"If-None-Match": etag})
            dwell.await_waiters(2)
            servers[0].client().set(stays, b"told meanwhile")
            assert other.answer().body == b"told meanwhile"
        assert replaced.is_silent()
        servers[1].start_ready()
        servers[1].client().set(goes, b"by the new one")
        assert replaced.answer().body == b"by the new one"
    assert_swept_nothing(dwell)


def test_what_a_halted_server_takes_wakes_when_it_goes_on(watching, memcached):
    memcached.client().set(KEY, b"0")
    with held(watching) as connection:
        await_watch(watching)
        memcached.pause()
        with send(memcached, silent_set(KEY, b"1")):
            assert connection.is_silent()
            memcached.resume()
            assert connection.answer().body == b"1"
    assert_swept_nothing(watching)
