"""memcached fails, and polls are still answered: by the application, and soon."""

import pytest

from support.wait import Stopwatch, until

KEY = "/poll/alice"


@pytest.fixture
def fragile(start_dwell, memcached, app):
    """An edge with short limits on memcached."""
    settings = {
        "servers": [memcached.name],
        "timeout": "500ms",
        "connect_timeout": "500ms",
        "sweep_interval": "50ms",
        "failures_max": 3,
    }
    dwell = start_dwell(memcached=settings, upstream={"url": app.url}, server={"pollers": 1})
    memcached.client().set(KEY, b"value")
    # Not at the first try where the machine halts for longer than the limits.
    until(lambda: dwell.get(KEY).body == b"value", "memcached answers")
    return dwell


def test_a_dead_memcached_is_a_miss_and_a_new_one_is_used(fragile, memcached, app):
    memcached.kill()
    for _ in range(5):
        with Stopwatch() as watch:
            response = fragile.get(KEY)
        assert (response.status, response.body) == (200, b"from the app")
        assert watch.seconds < 10
    memcached.start_ready()
    memcached.client().set(KEY, b"back")
    until(lambda: fragile.get(KEY).body == b"back", "memcached answers again")


@pytest.mark.parametrize("target", [KEY, f"{KEY}?since=lVXoVVxi3P0&wait=25"])
def test_a_dead_memcached_without_an_application_is_503(start_dwell, memcached, target):
    dwell = start_dwell(memcached={"servers": [memcached.name]})
    memcached.kill()
    response = dwell.get(target)
    assert response.status == 503
    assert 1 <= int(response.field("Retry-After")) <= 5
    assert b"<html" not in response.body


def test_an_edge_starts_before_its_memcached(start_dwell, memcached, app):
    memcached.kill()
    settings = {"servers": [memcached.name]}
    dwell = start_dwell(memcached=settings, upstream={"url": app.url})
    assert dwell.get(KEY).body == b"from the app"
    memcached.start_ready()
    memcached.client().set(KEY, b"there now")
    until(lambda: dwell.get(KEY).body == b"there now", "memcached is found")


def test_a_silent_memcached_costs_one_timeout_and_then_nothing(fragile, memcached, app):
    def timeouts():
        return fragile.metric("dwell_memcached_lookups_total", outcome="timeout")

    def costs_nothing():
        before = timeouts()
        assert fragile.get(KEY).body == b"from the app"
        return timeouts() == before

    memcached.pause()
    with Stopwatch() as first:
        assert fragile.get(KEY).body == b"from the app"
    assert first.seconds < 10
    until(costs_nothing, "the server is left alone after its failures")
    before = timeouts()
    with fragile.connect() as connection:
        for _ in range(100):
            assert connection.get(KEY).body == b"from the app"
    # A probe in between may cost one.
    assert timeouts() - before <= 2
    memcached.resume()
    until(lambda: fragile.get(KEY).body == b"value", "memcached answers again")


def test_a_silent_memcached_is_seen_in_health_and_metrics(fragile, memcached, app):
    def failures():
        names = ("timeout", "error")
        return sum(fragile.metric("dwell_memcached_lookups_total", outcome=n) for n in names)

    before = failures()
    memcached.pause()

    def is_told():
        fragile.get(KEY)
        return b"degraded" in fragile.admin("/-/health").body

    # Not every poll is a failure: while a new connection is tried none is asked.
    until(is_told, "it is seen")
    assert failures() > before


def test_waiters_outlive_a_restart_of_memcached(fragile, memcached, app):
    etag = until(lambda: fragile.get(KEY).etag, "memcached answers")
    with fragile.connect() as connection:
        connection.ask(f"{KEY}?wait=30", fields={"If-None-Match": etag})
        fragile.await_waiters(1)
        memcached.kill()
        memcached.start_ready()
        memcached.client().set(KEY, b"after the restart")
        # Gone with the old process, the value is a miss; kept through the gap, it is the new one.
        assert connection.answer().body in (b"after the restart", b"from the app")


def test_a_stopped_memcached_slows_nobody_on_another_server(start_dwell, start_memcached, app):
    servers = [start_memcached(), start_memcached()]
    settings = {"servers": [server.name for server in servers], "timeout": "3s"}
    dwell = start_dwell(memcached=settings, upstream={"url": app.url})
    keys = [f"/poll/{place}" for place in range(40)]
    for server in servers:
        for key in keys:
            server.client().set(key, server.name)
    homes = {key: dwell.get(key).body.decode() for key in keys}
    assert set(homes.values()) == {server.name for server in servers}
    servers[0].pause()
    for key in keys:
        if homes[key] == servers[1].name:
            with Stopwatch() as watch:
                assert dwell.get(key).body.decode() == servers[1].name
            assert watch.seconds < 2
    key = next(key for key in keys if homes[key] == servers[0].name)
    assert dwell.get(key).body == b"from the app"


def test_a_server_that_speaks_no_memcached_is_a_miss(start_dwell, app):
    # The application answers a memcached request with an HTTP error.
    name = app.url.removeprefix("http://")
    settings = {"servers": [name], "timeout": "300ms"}
    dwell = start_dwell(memcached=settings, upstream={"url": app.url})
    for _ in range(3):
        assert dwell.get(KEY).body == b"from the app"
