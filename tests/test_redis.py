"""Values in Redis or Valkey: polls, waits that another client's write ends, and publishing.

The sweep is set so far apart here that it cannot have woken anybody.
"""

import subprocess

import pytest

from support.dwell import BINARY
from support.events import EventStream
from support.redis import REDIS, VALKEY
from support.wait import until

KEY = "/poll/alice"
KEPT = {"kept_bytes_max": "64MiB"}
TOKEN = "a-token-of-thirty-two-characters"


@pytest.fixture(params=[REDIS, VALKEY])
def redis(request, start_redis):
    """Either server."""
    return start_redis(server=request.param)


@pytest.fixture
def start_edge(start_dwell, redis):
    """Starts an edge whose values are in the server."""

    def start(**sections):
        options = {"url": redis.url, "sweep_interval": "60s", **sections.pop("redis", {})}
        return start_dwell(redis=options, **sections)

    return start


def hold(dwell, cleanup, key=KEY, others=0):
    """A poll that is held, as it has the value that is there."""
    connection = cleanup.enter_context(dwell.connect())
    etag = dwell.get(key).etag
    connection.ask(f"{key}?wait=50", fields={"If-None-Match": etag} if etag else ())
    dwell.await_waiters(others + 1)
    return connection


def assert_not_swept(dwell):
    assert dwell.metric("dwell_redis_sweeps_total") == 0


def test_a_hit_is_the_value_and_a_miss_is_the_applications(start_edge, redis, app):
    edge, cache = start_edge(upstream={"url": app.url}), redis.client()
    cache.set(KEY, b"5")
    assert edge.get(KEY).body == b"5"
    assert app.requests == []
    assert edge.get("/poll/bob").body == b"from the app"
    assert edge.metric("dwell_redis_lookups_total", outcome="hit") == 1
    # Nobody waits, so the server tracks nothing.
    assert edge.metric("dwell_redis_armed_keys") == 0


def test_the_write_of_another_client_ends_a_wait(start_edge, redis, cleanup):
    edge, cache = start_edge(), redis.client()
    cache.set(KEY, b"0")
    poll = hold(edge, cleanup)
    edge.await_metric(1, "dwell_redis_armed_keys")
    for number in range(1, 30):
        cache.set(KEY, b"%d" % number)
        response = poll.answer()
        assert (response.status, response.body) == (200, b"%d" % number)
        poll.ask(f"{KEY}?wait=50", fields={"If-None-Match": response.etag})
        edge.await_waiters(1)
    assert_not_swept(edge)
    assert edge.metric("dwell_redis_pushes_total", kind="all") == 0


def test_a_wait_for_the_first_value_is_ended_by_it(start_edge, redis, cleanup):
    edge, cache = start_edge(), redis.client()
    poll = hold(edge, cleanup)
    cache.set(KEY, b"first")
    assert poll.answer().body == b"first"
    assert_not_swept(edge)


def test_a_change_is_read_once_however_many_wait(start_edge, redis, cleanup):
    edge, cache = start_edge(server={"pollers": 1}), redis.client()
    cache.set(KEY, b"0")
    polls = [hold(edge, cleanup, others=place) for place in range(50)]
    edge.await_metric(1, "dwell_redis_armed_keys")
    before = edge.metric("dwell_redis_rereads_total")
    cache.set(KEY, b"1")
    assert {poll.answer().body for poll in polls} == {b"1"}
    assert edge.metric("dwell_redis_rereads_total") == before + 1


def reads(cache):
    """The values that the server was asked for."""
    lines = cache.ask("INFO", "commandstats").decode().splitlines()
    calls = [line for line in lines if line.startswith("cmdstat_get:")]
    return int(calls[0].split("=")[1].split(",")[0]) if calls else 0


def test_a_key_that_is_waited_for_is_read_once_for_all(start_edge, redis, cleanup):
    edge, cache = start_edge(server={"pollers": 1}, redis=KEPT), redis.client()
    cache.set(KEY, b"0")
    etag = edge.get(KEY).etag
    poll = cleanup.enter_context(edge.connect())
    poll.ask(f"{KEY}?wait=50", fields={"If-None-Match": etag})
    edge.await_metric(1, "dwell_redis_armed_keys")
    assert reads(cache) == 2, "one for each request, and none more"
    for _ in range(20):
        assert edge.get(KEY).body == b"0"
        assert edge.get(KEY, fields={"If-None-Match": etag}).status == 304
    assert reads(cache) == 2
    assert edge.metric("dwell_redis_kept_hits_total") == 40
    assert edge.metric("dwell_redis_kept_bytes") == 1
    # More polls that wait, and what ends them, cost one read.
    others = [hold(edge, cleanup, others=1 + place) for place in range(5)]
    cache.set(KEY, b"1")
    assert {one.answer().body for one in [poll, *others]} == {b"1"}
    assert reads(cache) == 3


def test_what_is_kept_is_dropped_with_the_connection(start_edge, redis, cleanup):
    edge, cache = start_edge(server={"pollers": 1}, redis=KEPT), redis.client()
    cache.set(KEY, b"0")
    hold(edge, cleanup)
    edge.await_metric(1, "dwell_redis_kept_bytes")
    redis.kill()
    until(lambda: "ttl=-" in edge.get(KEY).field("Cache-Status"), "it is stale")
    assert edge.metric("dwell_redis_kept_bytes") == 0


def test_nothing_is_kept_unless_it_is_switched_on(start_edge, redis, cleanup):
    edge, cache = start_edge(server={"pollers": 1}), redis.client()
    cache.set(KEY, b"0")
    hold(edge, cleanup)
    edge.await_metric(1, "dwell_redis_armed_keys")
    before = reads(cache)
    assert [edge.get(KEY).body for _ in range(5)] == [b"0"] * 5
    assert reads(cache) == before + 5


def test_a_value_that_was_published_is_what_is_read_next(start_edge, redis, cleanup):
    sections = {"publish": {"token": [TOKEN]}, "route": [{"prefix": "/poll/", "publish": True}]}
    edge = start_edge(server={"pollers": 1}, **sections)
    fields = {"Authorization": f"Bearer {TOKEN}"}
    edge.get(KEY, "PUT", fields, b"0")
    streams = [cleanup.enter_context(EventStream(edge.address, KEY)).begin() for _ in range(3)]
    assert streams[0].event().data == "0"
    edge.await_metric(1, "dwell_redis_armed_keys")
    for number in range(1, 50):
        assert edge.get(KEY, "PUT", fields, b"%d" % number).status == 204
        assert edge.get(KEY).body == b"%d" % number


def test_a_stream_that_the_application_begins_hears_what_others_heard_before(
    start_edge, redis, app, cleanup
):
    edge, cache = start_edge(upstream={"url": app.url}, server={"pollers": 1}), redis.client()
    app.hang()
    late = cleanup.enter_context(EventStream(edge.address, KEY))
    app.await_requests(1)
    cache.set(KEY, b"stored")
    early = cleanup.enter_context(EventStream(edge.address, KEY)).begin()
    assert early.event().data == "stored"
    edge.await_metric(1, "dwell_redis_armed_keys")
    app.release()
    assert late.begin().event().data in ("from the app", "stored")
    if late.id != early.id:
        assert late.event().data == "stored"
    assert_not_swept(edge)


def test_the_same_value_again_wakes_nobody(start_edge, redis, cleanup):
    edge, cache = start_edge(), redis.client()
    cache.set(KEY, b"0")
    poll = hold(edge, cleanup)
    cache.set(KEY, b"0")
    cache.ask("EXPIRE", KEY, 1000)
    until(lambda: edge.metric("dwell_redis_pushes_total", kind="waited") > 0, "it is announced")
    edge.await_waiters(1)
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"


def test_several_keys_wait_together(start_edge, redis, cleanup):
    edge, cache = start_edge(), redis.client()
    poll = cleanup.enter_context(edge.connect())
    poll.ask("/poll/?k=a&k=b&k=c&wait=50")
    edge.await_metric(3, "dwell_redis_armed_keys")
    cache.set("/poll/c", b"news")
    response = poll.answer()
    assert response.status == 200
    assert b"news" in response.body
    assert_not_swept(edge)


def test_a_value_that_expires_ends_the_wait_on_time(start_edge, redis, cleanup):
    edge, cache = start_edge(route=[{"prefix": "/poll/", "on_delete": "not-found"}]), redis.client()
    # Expired keys that nobody reads go a little at a time: the edge does not wait for that.
    cache.ask("CONFIG", "SET", "hz", 1)
    cache.ask("SET", KEY, "5", "PX", 300)
    poll = hold(edge, cleanup)
    assert poll.answer().status == 404
    assert_not_swept(edge)


def test_two_edges_share_what_is_published_on_one(start_edge, redis, cleanup):
    sections = {"publish": {"token": [TOKEN]}, "route": [{"prefix": "/poll/", "publish": True}]}
    one, other = start_edge(**sections), start_edge(**sections)
    fields = {"Authorization": f"Bearer {TOKEN}"}
    cache = redis.client()

    def put(value, target=KEY, **more):
        return one.get(target, "PUT", {**fields, **more}, value).status

    assert put(b"1") == 201
    poll = hold(other, cleanup)
    assert put(b"2") == 204
    assert poll.answer().body == b"2"
    assert (one.get(KEY).body, cache.get(KEY)) == (b"2", b"2")
    etag = one.get(KEY).etag
    assert put(b"3", **{"If-Match": '"AAAAAAAAAAA"'}) == 412
    assert put(b"3", **{"If-Match": etag}) == 204
    assert put(b"4", **{"If-None-Match": "*"}) == 412
    assert put(b"4", f"{KEY}?ttl=100s") == 204
    assert 0 < cache.ask("TTL", KEY) <= 100
    assert one.get(KEY, "DELETE", {**fields, "If-Match": etag}).status == 412
    assert one.get(KEY, "DELETE", fields).status == 204
    assert one.get(KEY, "DELETE", fields).status == 404
    assert cache.get(KEY) is None


def test_health_says_where_the_values_are(start_edge, redis):
    edge = start_edge()
    until(lambda: b'"state":"up"' in edge.admin("/-/health").body, "the server answers")
    body = edge.admin("/-/health").body.decode()
    assert '"values":"redis","memcached":[]' in body
    assert redis.url in body


def run(*arguments):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, check=False)


SENTINEL = ("--set", "redis.sentinel_name=a", "--set", "redis.sentinels=redis://a")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--redis", "redis://a", "--memcached", "b:1"), "redis.url and memcached.servers"),
        (("--redis", "redis://a", "--store", "127.0.0.1:1"), "redis.url and store.listen"),
        (("--redis", "redis://a", "--set", "redis.tls_ca=/a"), "`redis.url` is not for TLS"),
        (("--redis", "redis://:secret@a"), "redis.password_file"),
        (("--set", "redis.sentinel_name=a"), "need one another"),
        ((*SENTINEL, "--redis", "redis://a"), "named twice"),
        ((*SENTINEL, "--memcached", "b:1"), "redis.sentinels and memcached.servers"),
        ((*SENTINEL, "--store", "127.0.0.1:1"), "redis.sentinels and store.listen"),
        ((*SENTINEL, "--set", "redis.tls_ca=/a"), "`redis.sentinels` is not for TLS"),
        (
            ("--set", "redis.sentinel_name=a", "--set", "redis.sentinels=rediss://a"),
            "needs `redis.tls_server_name`",
        ),
        (
            (
                *SENTINEL,
                "--set",
                f"publish.token={TOKEN}",
                "--set",
                "publish.value_bytes_max=32MiB",
            ),
            "`publish.value_bytes_max` exceeds 16MiB",
        ),
    ],
    ids=[
        *("memcached", "store", "tls", "password"),
        *("name", "twice", "sentinel-memcached", "sentinel-store", "sentinel-ca"),
        *("sentinel-tls", "sentinel-size"),
    ],
)
def test_what_cannot_be_is_refused_at_the_start(flags, words):
    ended = run("serve", *flags)
    assert ended.returncode != 0
    assert words in ended.stderr
    assert "secret@" not in ended.stderr.replace(flags[1], "")


def test_sentinels_are_all_under_tls_or_none(tmp_path):
    config = tmp_path / "a.toml"
    sentinels = ["redis://127.0.0.1:1", "rediss://127.0.0.1:2"]
    config.write_text(f'[redis]\nsentinel_name = "a"\nsentinels = {sentinels}\n')
    ended = run("check", config)
    assert ended.returncode != 0
    assert "are reached under TLS, and some are not" in ended.stderr
