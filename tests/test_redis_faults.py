"""Faults of Redis and Valkey: no wait may be left without the newest value.

The sweep is set so far apart here that it cannot have woken anybody, except where the server does
not announce changes.
"""

import signal

import pytest

from support.redis import REDIS, VALKEY
from support.wait import until

KEY = "/poll/alice"


@pytest.fixture(params=[REDIS, VALKEY])
def start_server(request, start_redis):
    """Starts either server."""
    return lambda *options: start_redis(*options, server=request.param)


@pytest.fixture
def start_edge(start_dwell):
    """Starts an edge whose values are in a server."""

    def start(redis, **options):
        defaults = {"url": redis.url, "sweep_interval": "60s", "timeout": "1s", "probe": "100ms"}
        # A value that is gone ends no wait, so that only the next one does.
        route = [{"prefix": "/poll/", "on_delete": "keep-waiting"}]
        redis = {**defaults, "connect_timeout": "1s", **options}
        return start_dwell(redis=redis, route=route)

    return start


def hold(dwell, cleanup, key=KEY, others=0):
    """A poll that is held, as it has the value that is there."""
    connection = cleanup.enter_context(dwell.connect())
    etag = dwell.get(key).etag
    connection.ask(f"{key}?wait=50", fields={"If-None-Match": etag} if etag else ())
    dwell.await_waiters(others + 1)
    return connection


def test_killed_connections_lose_nothing(start_server, start_edge, cleanup):
    redis = start_server()
    edge, cache = start_edge(redis), redis.client()
    for number in range(5):
        poll = hold(edge, cleanup)
        cache.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        cache.set(KEY, b"%d" % number)
        assert poll.answer().body == b"%d" % number
        until(lambda: edge.get(KEY).status == 200, "lookups work again")


def test_a_server_that_was_stopped_is_read_anew(start_server, start_edge, cleanup):
    redis = start_server()
    edge, cache = start_edge(redis), redis.client()
    cache.set(KEY, b"0")
    poll = hold(edge, cleanup)
    edge.await_metric(1, "dwell_redis_armed_keys")
    redis.signal(signal.SIGSTOP)
    edge.await_metric(0, "dwell_redis_armed_keys")
    redis.signal(signal.SIGCONT)
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"


def test_a_server_that_was_killed_has_lost_its_values(start_server, start_edge, cleanup):
    redis = start_server()
    edge = start_edge(redis)
    redis.client().set(KEY, b"0")
    poll = hold(edge, cleanup)
    redis.kill()
    until(lambda: b'"state":"down"' in edge.admin("/-/health").body, "the server is missed")
    assert edge.get("/poll/bob").status == 503
    assert "ttl=-" in edge.get(KEY).field("Cache-Status")
    redis.start_ready()
    redis.client().set(KEY, b"1")
    assert poll.answer().body == b"1"
    assert edge.output().count("Redis does not answer") <= 4


def test_a_flush_wakes_who_waits(start_server, start_edge, cleanup):
    redis = start_server()
    edge, cache = start_edge(redis), redis.client()
    cache.set(KEY, b"0")
    poll = hold(edge, cleanup)
    cache.flush_all()
    until(lambda: edge.metric("dwell_redis_pushes_total", kind="all") > 0, "it is announced")
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"


def test_a_small_tracking_table_loses_nothing(start_server, start_edge, cleanup):
    redis = start_server("--tracking-table-max-keys", "8")
    edge, cache = start_edge(redis), redis.client()
    polls = [hold(edge, cleanup, f"/poll/{place}", others=place) for place in range(30)]
    for place, poll in enumerate(polls):
        cache.set(f"/poll/{place}", b"%d" % place)
        assert poll.answer().body == b"%d" % place


def test_reads_for_nothing_are_slowed_down_and_said_once(start_server, start_edge, cleanup):
    redis = start_server("--tracking-table-max-keys", "8")
    edge, cache = start_edge(redis), redis.client()
    polls = [hold(edge, cleanup, f"/poll/{place}", others=place) for place in range(30)]
    until(lambda: "raise tracking-table-max-keys" in edge.output(), "the log says so")
    assert edge.metric("dwell_redis_unchanged_rereads_total") >= 2000
    for place, poll in enumerate(polls):
        cache.set(f"/poll/{place}", b"%d" % place)
        assert poll.answer().body == b"%d" % place
    assert edge.output().count("raise tracking-table-max-keys") <= 2


def is_swept(edge, reason):
    """Whether the log says once a loop that changes are not announced."""
    said = [line for line in edge.output().splitlines() if "does not announce changes" in line]
    assert len(said) <= 2, said
    return any(reason in line for line in said)


def test_a_server_of_version_two_is_swept(start_server, start_edge, cleanup):
    redis = start_server("--rename-command", "HELLO", "")
    edge, cache = start_edge(redis), redis.client()
    cache.set(KEY, b"0")
    poll = hold(edge, cleanup)
    until(lambda: is_swept(edge, "unknown command"), "the log says so")
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"
    assert edge.metric("dwell_redis_tracking_loops") == 0


def test_a_user_who_may_not_track_is_swept(start_server, start_edge, cleanup, tmp_path):
    redis = start_server()
    cache = redis.client()
    cache.ask("ACL", "SETUSER", "edge", "on", ">secret", "~*", "+@all", "-client")
    (tmp_path / "password").write_text("secret\n")
    edge = start_edge(redis, username="edge", password_file=str(tmp_path / "password"))
    poll = hold(edge, cleanup)
    until(lambda: is_swept(edge, "NOPERM"), "the log says so")
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"


def test_a_server_that_no_longer_tracks_is_swept_soon(start_server, start_edge, cleanup, tmp_path):
    redis = start_server()
    cache = redis.client()
    cache.ask("ACL", "SETUSER", "edge", "on", ">secret", "~*", "+@all")
    (tmp_path / "password").write_text("secret\n")
    edge = start_edge(redis, username="edge", password_file=str(tmp_path / "password"))
    poll = hold(edge, cleanup)
    edge.await_metric(1, "dwell_redis_armed_keys")
    cache.ask("ACL", "SETUSER", "edge", "-client")
    cache.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    until(lambda: is_swept(edge, "NOPERM"), "the log says so")
    # The sweep while it tracked is a minute apart: the next one does not wait for that.
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"
    assert edge.metric("dwell_redis_sweeps_total") > 0


def test_sweeps_alone_find_changes(start_server, start_edge, cleanup):
    redis = start_server()
    edge, cache = start_edge(redis, tracking="off"), redis.client()
    poll = hold(edge, cleanup)
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"
    assert edge.metric("dwell_redis_pushes_total") == 0


def test_a_wrong_password_is_said_in_the_words_of_the_server(start_server, start_edge, tmp_path):
    redis = start_server("--requirepass", "right")
    (tmp_path / "password").write_text("wrong")
    edge = start_edge(redis, password_file=str(tmp_path / "password"))
    assert edge.get(KEY).status == 503
    until(lambda: "WRONGPASS" in edge.output(), "the log says so")
    assert "wrong\n" not in edge.output()


def test_a_value_of_another_type_is_missing_until_it_is_a_string(start_server, start_edge, cleanup):
    redis = start_server()
    edge, cache = start_edge(redis), redis.client()
    cache.ask("LPUSH", KEY, "x")
    assert edge.get(KEY).status == 404
    poll = hold(edge, cleanup)
    assert edge.metric("dwell_redis_unusable_values_total", kind="wrong_type") >= 2
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"


def test_a_value_over_the_limit_costs_no_other_key_its_answer(start_server, start_edge, cleanup):
    redis = start_server()
    edge, cache = start_edge(redis, value_bytes_max="1KiB"), redis.client()
    poll = hold(edge, cleanup)
    other = hold(edge, cleanup, "/poll/bob", others=1)
    cache.set(KEY, b"x" * 500_000)
    until(
        lambda: edge.metric("dwell_redis_unusable_values_total", kind="too_large") > 0,
        "it is counted",
    )
    cache.set("/poll/bob", b"1")
    assert other.answer().body == b"1"
    assert edge.get(KEY).status == 503
    cache.set(KEY, b"small")
    assert poll.answer().body == b"small"


def test_a_full_server_refuses_what_is_published(start_server, start_dwell):
    redis = start_server("--maxmemory", "1")
    token = "a-token-of-thirty-two-characters"
    edge = start_dwell(
        redis={"url": redis.url},
        publish={"token": [token]},
        route=[{"prefix": "/poll/", "publish": True}],
    )
    for _ in range(5):
        response = edge.get(KEY, "PUT", {"Authorization": f"Bearer {token}"}, b"1")
        assert response.status == 507
    until(lambda: "OOM command not allowed" in edge.output(), "the log says so")
    assert edge.output().count("OOM command not allowed") <= 2


@pytest.fixture
def put(start_dwell):
    """Starts an edge before a server, and publishes there."""
    token = "a-token-of-thirty-two-characters"

    def start(redis, **options):
        edge = start_dwell(
            redis={"url": redis.url, **options},
            publish={"token": [token]},
            route=[{"prefix": "/poll/", "publish": True}],
        )
        return lambda: edge.get(KEY, "PUT", {"Authorization": f"Bearer {token}"}, b"1")

    return start


def test_a_publisher_is_told_what_may_pass(start_server, put, tmp_path):
    redis = start_server()
    cache = redis.client()
    cache.ask("ACL", "SETUSER", "edge", "on", ">secret", "~*", "+@all")
    (tmp_path / "password").write_text("secret\n")
    put = put(redis, username="edge", password_file=str(tmp_path / "password"))
    assert put().status == 201
    cache.ask("REPLICAOF", "127.0.0.1", 9)
    response = put()
    assert (response.status, response.field("Retry-After")) == (503, "1")
    cache.ask("REPLICAOF", "NO", "ONE")
    until(lambda: put().status == 204, "it takes writes again")
    cache.ask("ACL", "SETUSER", "edge", "-set")
    # Another loop may still be about to connect anew.
    until(lambda: put().status == 502, "it says that it may not")


def test_a_put_is_one_command(start_server, put):
    redis = start_server()
    put = put(redis)
    assert [put().status for _ in range(3)] == [201, 204, 204]
    assert redis.client().stats()[b"cmd_set"] == 3


def test_a_table_that_is_nearly_full_is_said(start_server, start_edge, cleanup):
    redis = start_server("--tracking-table-max-keys", "10")
    first = start_edge(redis)
    polls = [hold(first, cleanup, f"/poll/{place}", others=place) for place in range(9)]
    until(lambda: tracked(redis.client()) == 9, "the server remembers them")
    # It asks when it begins to wait, and not again for half a minute.
    second = start_edge(redis)
    polls.append(hold(second, cleanup, "/poll/0"))
    second.await_output("is nearly full")
    assert "keys_max=10" in second.output()
    assert "is nearly full" not in start_edge(redis, tracking="prefix").output()


def tracked(cache):
    lines = cache.ask("INFO", "stats").decode().splitlines()
    return next(int(line.split(":")[1]) for line in lines if "tracking_total_keys" in line)
