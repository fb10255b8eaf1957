"""Changes that the server announces for all keys with a beginning (`redis.tracking = "prefix"`).

The sweep is set so far apart here that it cannot have woken anybody, except where the server does
not announce changes.
"""

import signal

import pytest

from support.events import EventStream
from support.redis import REDIS, VALKEY
from support.wait import until
from test_redis import run

KEY = "/poll/alice"
TOKEN = "a-token-of-thirty-two-characters"
FIELDS = {"Authorization": f"Bearer {TOKEN}"}
KEPT = {"kept_bytes_max": "1MiB"}


@pytest.fixture(params=[REDIS, VALKEY])
def redis(request, start_redis):
    return start_redis(server=request.param)


@pytest.fixture
def start_edge(start_dwell, redis):
    def start(**options):
        values = {"url": redis.url, "tracking": "prefix", "tracking_prefixes": ["/poll/", "user:"]}
        values |= {"sweep_interval": "60s", "timeout": "1s", "connect_timeout": "1s"}
        routes = [
            {"prefix": "/poll/", "on_delete": "keep-waiting", "publish": True},
            {"prefix": "/users/", "on_delete": "keep-waiting", "key": "user:{query.id}"},
            {"prefix": "/rooms/", "on_delete": "keep-waiting"},
        ]
        values |= {"probe": "100ms", **options}
        return start_dwell(redis=values, publish={"token": [TOKEN]}, route=routes)

    return start


def hold(dwell, cleanup, key=KEY, others=0):
    """A poll that is held, as it has the value that is there."""
    connection = cleanup.enter_context(dwell.connect())
    etag = dwell.get(key).etag
    wait = "&wait=50" if "?" in key else "?wait=50"
    connection.ask(key + wait, fields={"If-None-Match": etag} if etag else ())
    dwell.await_waiters(others + 1)
    return connection


@pytest.mark.parametrize("kept", [{}, KEPT], ids=["read", "kept"])
def test_a_write_ends_a_wait(start_edge, redis, cleanup, kept):
    edge, cache = start_edge(**kept), redis.client()
    for number in range(20):
        poll = hold(edge, cleanup)
        cache.set(KEY, b"%d" % number)
        assert poll.answer().body == b"%d" % number
        assert edge.get(KEY).body == b"%d" % number
    poll = hold(edge, cleanup, "/users/?id=7")
    cache.set("user:7", b"x")
    assert poll.answer().body == b"x"
    stats = cache.ask("INFO", "stats").decode()
    assert "tracking_total_keys:0\r\n" in stats
    assert "tracking_total_prefixes:2\r\n" in stats


def test_everybody_is_given_the_last_of_a_burst(start_edge, redis, cleanup):
    edge, cache = start_edge(), redis.client()
    cache.set(KEY, b"0")
    streams = [cleanup.enter_context(EventStream(edge.address, KEY)).begin() for _ in range(5)]
    assert {stream.event().data for stream in streams} == {"0"}
    for number in range(1, 2001):
        cache.set(KEY, b"%d" % number)
    for stream in streams:
        until(lambda stream=stream: stream.event().data == "2000", "the last comes")


def test_a_published_value_is_what_is_read_next(start_edge, redis, cleanup):
    edge = start_edge(**KEPT)
    poll = hold(edge, cleanup)
    for number in range(20):
        body = b"%d" % number
        assert edge.get(KEY, "PUT", FIELDS, body).status in {201, 204}
        assert edge.get(KEY).body == body
    assert poll.answer().status == 200


def test_a_value_that_expires_is_found_on_time(start_edge, redis, cleanup):
    edge, cache = start_edge(), redis.client()
    cache.ask("SET", KEY, b"1", "PX", 300)
    stale = edge.get(KEY)
    assert stale.body == b"1"
    poll = cleanup.enter_context(edge.connect())
    poll.ask(f"{KEY}?wait=50", fields={"If-None-Match": stale.etag})
    until(lambda: cache.get(KEY) is None, "it expires")
    cache.set(KEY, b"2")
    assert poll.answer().body == b"2"


def test_faults_lose_nothing(start_edge, redis, cleanup):
    edge, cache = start_edge(), redis.client()
    keys = [f"/poll/{number}" for number in range(12)]
    polls = [hold(edge, cleanup, key, others) for others, key in enumerate(keys)]
    cache.flush_all()
    until(lambda: edge.metric("dwell_redis_pushes_total", kind="all") > 0, "it is announced")
    cache.set(keys[0], b"flushed")
    assert polls[0].answer().body == b"flushed"
    for place in range(1, 6):
        cache.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        cache.set(keys[place], b"killed")
        assert polls[place].answer().body == b"killed"
    until(lambda: edge.metric("dwell_redis_armed_keys") == 6, "all are told of again")
    redis.signal(signal.SIGSTOP)
    edge.await_metric(0, "dwell_redis_armed_keys")
    redis.signal(signal.SIGCONT)
    cache.set(keys[6], b"stopped")
    assert polls[6].answer().body == b"stopped"
    redis.kill()
    edge.await_metric(0, "dwell_redis_tracking_loops")
    redis.start_ready()
    for key in keys[7:]:
        redis.client().set(key, b"again")
    assert {poll.answer().body for poll in polls[7:]} == {b"again"}


def test_a_key_that_no_prefix_covers_is_read_often(start_edge, redis, cleanup):
    edge, cache = start_edge(**KEPT), redis.client()
    for number in range(3):
        poll = hold(edge, cleanup, "/rooms/1")
        cache.set("/rooms/1", b"%d" % number)
        assert poll.answer().body == b"%d" % number
        assert edge.get("/rooms/1").body == b"%d" % number
    assert edge.metric("dwell_redis_kept_hits_total") == 0


def test_writes_that_nobody_waits_for_cost_no_read(start_edge, redis, cleanup):
    edge, cache = start_edge(), redis.client()
    poll = hold(edge, cleanup)
    edge.await_metric(1, "dwell_redis_armed_keys")
    before = edge.metric("dwell_redis_rereads_total")
    for number in range(50):
        cache.set(f"/poll/other-{number}", b"x")
        cache.set(f"/elsewhere/{number}", b"x")
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"
    assert edge.metric("dwell_redis_pushes_total", kind="unwaited") >= 50
    assert edge.metric("dwell_redis_rereads_total") == before + 1


def test_a_user_who_may_not_track_is_swept(start_edge, redis, cleanup, tmp_path):
    cache = redis.client()
    cache.ask("ACL", "SETUSER", "edge", "on", ">secret", "~*", "+@all", "-client")
    (tmp_path / "password").write_text("secret\n")
    edge = start_edge(username="edge", password_file=str(tmp_path / "password"))
    poll = hold(edge, cleanup)
    until(lambda: "does not announce changes" in edge.output(), "the log says so")
    assert edge.metric("dwell_redis_refused_loops") >= 1
    cache.set(KEY, b"1")
    assert poll.answer().body == b"1"
    cache.ask("ACL", "SETUSER", "edge", "+client|tracking")


@pytest.mark.parametrize(
    ("prefixes", "words"),
    [
        (["/poll/", "/poll/a"], "`/poll/a` begins with `/poll/`"),
        (["a", "a"], "`a` begins with `a`"),
        ([""], "every key begins with nothing"),
        (["a b"], "no key begins with `a b`"),
        ([f"{number}:" for number in range(10, 75)], "more than 64 prefixes: 65"),
    ],
    ids=["longer", "twice", "empty", "space", "many"],
)
def test_prefixes_that_redis_refuses_are_refused_at_the_start(tmp_path, prefixes, words):
    config = tmp_path / "a.toml"
    config.write_text(f'[redis]\ntracking = "prefix"\ntracking_prefixes = {prefixes}\n')
    ended = run("check", config)
    assert ended.returncode == 2
    assert words in ended.stderr


def test_prefixes_without_effect_and_routes_without_a_prefix_are_warned_of(tmp_path):
    config = tmp_path / "a.toml"
    redis = 'url = "redis://127.0.0.1:1"\ntracking_prefixes = ["/poll/", "user:"]\n'
    routes = "".join(
        f'[[route]]\nprefix = "{prefix}"\nkey = "{key}"\n'
        for prefix, key in [
            *[("/poll/", "{path}"), ("/poll/deep/", "{path}"), ("/users/", "user:{cookie.id}")],
            *[("/rooms/", "{path}"), ("/mine/", "{cookie.id}"), ("/poll/uri/", "{uri}")],
        ]
    )
    config.write_text(f"[redis]\n{redis}{routes}")
    assert "has no effect without redis.tracking" in run("check", config).stderr
    config.write_text(f'[redis]\ntracking = "prefix"\n{redis}{routes}')
    ended = run("check", config)
    assert ended.returncode == 0
    for prefix in ["/rooms/", "/mine/", "/poll/uri/"]:
        assert f"does not cover all keys of the route `{prefix}`" in ended.stderr
    assert ended.stderr.count("does not cover") == 3
