"""`dwell explain`: what a poll would get, from where, and why."""

import json
import subprocess

from support import ports
from support.dwell import BINARY
from support.http import Connection
from support.redis import RedisClient

KEY = "/poll/a"


def run(*arguments):
    command = [BINARY, "explain", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def explain(edge, *arguments):
    """What the process says, by topic."""
    ended = run(*arguments, "--json", "--admin", ports.text(edge.admin_address))
    assert ended.returncode == 0, ended.stderr
    explanation = json.loads(ended.stdout)
    assert explanation["is_live"]
    return {topic["name"]: topic for topic in explanation["topics"]}


def gets(topics):
    return [answer["gets"] for answer in topics["answers"]["facts"]["answers"]]


def test_a_value_is_described_for_each_kind_of_cache(backend):
    edge, store = backend
    store.set(KEY, b"value", expire=500)
    cursor = edge.get(KEY).etag.strip('"')
    topics = explain(edge, "GET", KEY)
    assert topics["route"]["facts"]["prefix"] == "/poll/"
    assert topics["key"]["facts"] == {"key": KEY, "template": "{path}"}
    value = topics["value"]["facts"]
    assert (value["there"], value["bytes"], value["cursor"]) == (True, 5, cursor)
    # A reply of Redis has neither.
    if not isinstance(store, RedisClient):
        assert 0 < value["ttl"] <= 500
        assert value["cas"] > 0
    assert gets(topics) == ["hit", "hit", "unchanged", "wait"]


def test_the_words_are_what_a_poll_then_gets(backend, app):
    edge, store = backend
    store.set(KEY, b"value")
    etag = edge.get(KEY).etag
    assert gets(explain(edge, KEY, "-H", f"If-None-Match: {etag}"))[0] == "unchanged"
    assert edge.get(KEY, fields={"If-None-Match": etag}).status == 304
    assert gets(explain(edge, KEY, "-H", 'If-None-Match: "other"'))[0] == "hit"
    assert gets(explain(edge, "/poll/none"))[0] == "miss"
    topics = explain(edge, "/poll/none")
    assert topics["value"]["facts"]["there"] is False
    assert topics["upstream"]["facts"]["urls"] == [app.url]
    # Nobody was asked for that.
    assert app.requests == []


def test_a_miss_leaves_out_what_is_said(edge, app):
    target = "/poll/miss?room=1&since=x"
    fields = {"X-Tenant": "2", "Range": "bytes=0-1"}
    given = [part for item in fields.items() for part in ("-H", ": ".join(item))]
    miss = explain(edge, target, *given)["miss"]["facts"]
    assert miss == {"shared": True, "target": "/poll/miss?room=1", "left_out": list(fields)}
    edge.get(target, fields=fields)
    assert app.requests[0].target == miss["target"]
    assert [app.requests[0].field(name) for name in fields] == [None, None]
    own = explain(edge, target, "-H", "Cookie: user=1", *given)["miss"]["facts"]
    assert own == {"shared": False}
    edge.get(target, fields={"Cookie": "user=1", **fields})
    assert app.requests[1].field("X-Tenant") == "2"


def test_those_who_wait_on_all_loops_are_counted(backend, cleanup):
    edge, store = backend
    store.set(KEY, b"value")
    fields = {"If-None-Match": edge.get(KEY).etag}
    for _ in range(9):
        cleanup.enter_context(edge.connect()).ask(f"{KEY}?wait=30", fields=fields)
    stream = cleanup.enter_context(edge.connect())
    stream.ask(KEY, fields={"Accept": "text/event-stream"})
    edge.await_waiters(10)
    watchers = explain(edge, KEY)["watchers"]["facts"]["watchers"]
    assert watchers == {"polls": 9, "streams": 1, "websockets": 0}


def test_the_server_of_the_ring_is_named_and_how_it_is(start_dwell, memcached):
    dead = ports.text(ports.free_address())
    servers = [memcached.name, dead]
    edge = start_dwell(memcached={"servers": servers})
    seen = {}
    for number in range(60):
        topics = explain(edge, f"/poll/{number}")
        says = topics["store"]["says"][0]
        server = next(name for name in servers if name in says)
        seen[server] = topics["value"]["facts"]["there"]
        if len(seen) == 2:
            break
    assert seen == {memcached.name: False, dead: None}


def test_a_key_says_what_it_lacks(start_dwell):
    route = {"prefix": "/poll/", "key": "{path}:{cookie.user}", "rate_per_key": "5/s"}
    edge = start_dwell(route=[route])
    topics = explain(edge, "/poll/me")
    assert topics["key"]["facts"]["lacks"] == ["{cookie.user}"]
    assert "value" not in topics
    topics = explain(edge, "/poll/me", "-H", "Cookie: user=alice")
    assert topics["key"]["facts"]["key"] == "/poll/me:alice"
    assert topics["limits"]["facts"]["rate_per_key"] == "5/1s"


def test_what_is_no_poll_is_said_to_be_none(edge, app):
    topics = explain(edge, "POST", "/page")
    assert list(topics) == ["route", "upstream"]
    assert topics["route"]["facts"]["prefix"] is None


def test_people_read_a_text(lone_edge):
    lone_edge.store().set(KEY, b"value")
    ended = run("GET", KEY, "--admin", ports.text(lone_edge.admin_address))
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert lines[0] == f"GET {KEY}"
    assert " ".join(lines[1].split()) == "route /poll/, the only one that begins the path"
    assert "5 bytes, cursor" in ended.stdout


def test_without_a_process_the_configuration_speaks_and_says_so(tmp_path):
    nobody = ports.text(ports.free_address())
    ended = run(KEY, "--admin", nobody)
    assert ended.returncode == 0
    assert "no process was asked" in ended.stdout
    file = tmp_path / "dwell.toml"
    file.write_text('[[route]]\nprefix = "/x/"\n')
    ended = run("/x/y", "--config", file, "--json")
    explanation = json.loads(ended.stdout)
    assert not explanation["is_live"]
    assert explanation["topics"][0]["facts"]["prefix"] == "/x/"
    file.write_text("[[route]]\nprefx = 1\n")
    assert run("/x/y", "--config", file).returncode == 2


def test_what_is_no_request_is_refused(lone_edge):
    admin = ports.text(lone_edge.admin_address)
    for wrong in (["no-slash"], ["/poll/a?wait=x"], ["GET", KEY, "-H", "no colon"]):
        ended = run(*wrong, "--admin", admin)
        assert ended.returncode == 1, ended.stdout
        assert ended.stderr.startswith("dwell explain: ")
    assert lone_edge.admin("/-/explain").status == 400
    with Connection(lone_edge.admin_address) as connection:
        assert connection.get("/-/explain?target=/poll/a", "POST", body=b"").status == 405


def test_it_says_if_the_next_change_is_announced(start_dwell, start_redis, cleanup):
    redis = start_redis()
    edge = start_dwell(redis={"url": redis.url}, server={"pollers": 1})
    redis.client().set(KEY, b"1")
    assert "nothing waits for the key here" in str(explain(edge, KEY))
    etag = edge.get(KEY).etag
    cleanup.enter_context(edge.connect()).ask(f"{KEY}?wait=30", fields={"If-None-Match": etag})
    edge.await_metric(1, "dwell_redis_armed_keys")
    assert "the next change of the key is announced" in str(explain(edge, KEY))
