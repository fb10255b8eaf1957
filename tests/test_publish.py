"""Values stored and removed over HTTP."""

import pytest

from support.http import Connection, request

TOKEN = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"
KNOWN = {"Authorization": f"Bearer {TOKEN}"}
KEY = "/live/alice"


def options(**sections):
    route = {"prefix": "/live/", "publish": True}
    return {"route": [route], "publish": {"token": [TOKEN, OTHER]}, **sections}


@pytest.fixture(params=["embedded", "memcached", "redis"])
def edge(request, start_dwell):
    """An edge of each kind on which the keys under /live/ are published."""
    if request.param == "embedded":
        return start_dwell(**options())
    if request.param == "redis":
        redis = request.getfixturevalue("start_redis")()
        return start_dwell(**options(redis={"url": redis.url}))
    memcached = request.getfixturevalue("memcached")
    servers = {"servers": [memcached.name], "sweep_interval": "50ms"}
    return start_dwell(**options(memcached=servers))


def admin(edge, target, method="GET", fields=KNOWN, body=None):
    with Connection(edge.admin_address) as connection:
        return connection.get(target, method, fields, body)


def put(edge, body, fields=(), target=KEY, method="PUT"):
    return edge.get(target, method, {**KNOWN, **dict(fields)}, body)


def test_a_value_is_created_replaced_and_removed(edge):
    created = put(edge, b"one")
    assert (created.status, created.body) == (201, b"")
    answer = edge.get(KEY)
    assert (answer.status, answer.body) == (200, b"one")
    assert answer.field("Poll-Cursor") == created.field("Poll-Cursor")
    assert answer.etag == created.etag
    replaced = put(edge, b"two", method="POST")
    assert replaced.status == 204
    assert edge.get(KEY).field("Poll-Cursor") == replaced.field("Poll-Cursor")
    assert edge.get(KEY, "DELETE", KNOWN).status == 204
    assert edge.get(KEY, "DELETE", KNOWN).status == 404
    assert edge.get(KEY).status == 404
    counts = {"stored": 2, "deleted": 1, "missing": 1}
    for outcome, count in counts.items():
        edge.await_metric(count, "dwell_publishes_total", outcome=outcome)


def test_it_wakes_whoever_waits(edge, cleanup):
    put(edge, b"one")
    cursor = edge.get(KEY).field("Poll-Cursor")
    held = cleanup.enter_context(edge.connect())
    held.ask(f"{KEY}?since={cursor}&wait=30")
    edge.await_waiters(1)
    assert put(edge, b"two").status == 204
    assert held.answer().body == b"two"


@pytest.mark.parametrize(
    ("fields", "challenge"),
    [
        ({}, 'Bearer realm="dwell publish"'),
        (
            {"Authorization": f"Bearer {TOKEN}0"},
            'Bearer realm="dwell publish", error="invalid_token"',
        ),
        ({"Authorization": f"Basic {TOKEN}"}, 'Bearer realm="dwell publish"'),
    ],
)
def test_nobody_publishes_without_a_token(edge, fields, challenge):
    for method in ("PUT", "POST", "DELETE"):
        answer = edge.get(KEY, method, fields, b"x")
        assert (answer.status, answer.field("WWW-Authenticate")) == (401, challenge)
    for method in ("GET", "PUT", "DELETE"):
        answer = admin(edge, "/-/keys/k", method, fields)
        assert (answer.status, answer.field("WWW-Authenticate")) == (401, challenge)
    assert edge.get(KEY).status == 404


def test_each_of_several_tokens_is_good(edge):
    for token in (TOKEN, OTHER):
        assert put(edge, b"x", {"Authorization": f"bearer {token}"}).status in (201, 204)


def test_a_value_has_a_lifetime(edge):
    assert put(edge, b"x", target=f"{KEY}?ttl=1").status == 201
    held = edge.get(f"{KEY}?since={edge.get(KEY).field('Poll-Cursor')}&wait=10")
    assert held.status == 404
    answer = put(edge, b"x", target=f"{KEY}?ttl=soon")
    assert answer.status == 400
    assert answer.body == b"ttl is not a number of seconds from 1 to 315360000: soon\n"


def test_conditions(edge):
    def conditional(name, value, body=b"x", method="PUT"):
        return put(edge, body, {name: value}, method=method).status

    assert conditional("If-Match", "*") == 412
    assert conditional("If-None-Match", "*", b"one") == 201
    assert conditional("If-None-Match", "*") == 412
    one = edge.get(KEY).etag
    assert conditional("If-Match", one, b"two") == 204
    assert conditional("If-Match", one, b"three") == 412
    assert edge.get(KEY).body == b"two"
    assert conditional("If-Match", one, None, "DELETE") == 412
    assert conditional("If-Match", edge.get(KEY).etag, None, "DELETE") == 204
    assert conditional("If-Match", one, None, "DELETE") == 412
    assert conditional("If-None-Match", one) == 400


def test_what_would_be_stored_otherwise_than_meant(edge):
    assert put(edge, b"x", {"Content-Encoding": "gzip"}).status == 415
    assert put(edge, b"x", {"Content-Range": "bytes 0-0/2"}).status == 400
    assert edge.get(KEY).status == 404


def test_the_admin_listener_has_every_key(edge):
    assert admin(edge, "/-/keys/%2Flive%2Fa", "PUT", body=b"one").status == 201
    answer = edge.get("/live/a")
    assert answer.body == b"one"
    read = admin(edge, "/-/keys//live/a")
    assert (read.status, read.body, read.etag) == (200, b"one", answer.etag)
    assert admin(edge, "/-/keys//live/a", "HEAD").field("Content-Length") == "3"
    assert admin(edge, "/-/keys//live/a", "DELETE").status == 204
    assert admin(edge, "/-/keys//live/a").status == 404
    assert admin(edge, "/-/keys/a%", "PUT", body=b"").status == 400
    assert admin(edge, "/-/keys/a%20b", "PUT", body=b"").status == 400
    assert admin(edge, "/-/keys/", "PUT", body=b"").status == 400
    assert admin(edge, "/-/keys/" + "a" * 251, "PUT", body=b"").status == 414
    assert admin(edge, "/-/keys/a", "PATCH", body=b"").status == 405


def test_a_value_that_is_too_large(start_dwell):
    edge = start_dwell(
        **options(publish={"token": TOKEN, "value_bytes_max": "1kb"}),
    )
    assert put(edge, b"x" * 1024).status == 201
    assert put(edge, b"x" * 1025).status == 413
    # Whoever may not publish is not listened to for long.
    with edge.connect() as connection:
        connection.send(request(KEY, "PUT", {"Content-Length": "70000"}))
        assert connection.answer().status == 413


def test_memcached_refuses_a_value(start_dwell, memcached):
    edge = start_dwell(
        **options(
            memcached={"servers": [memcached.name]},
            publish={"token": TOKEN, "value_bytes_max": "4mb"},
        ),
    )
    answer = put(edge, b"x" * (2 << 20))
    assert (answer.status, answer.body) == (507, b"memcached refuses the value\n")


def test_memcached_does_not_answer(start_dwell, start_memcached):
    memcached = start_memcached()
    edge = start_dwell(**options(memcached={"servers": [memcached.name], "timeout": "1s"}))
    assert put(edge, b"one").status == 201
    memcached.pause()
    answer = put(edge, b"two")
    assert answer.status == 502
    assert answer.body.startswith(b"memcached ")


def test_a_poll_route_without_publish_is_as_it_was(start_dwell):
    edge = start_dwell(publish={"token": TOKEN})
    answer = edge.get("/poll/alice", "PUT", KNOWN, b"x")
    assert (answer.status, answer.field("Allow")) == (405, "GET, HEAD, POST, QUERY")


def test_without_a_token_there_is_no_publishing(start_dwell):
    edge = start_dwell()
    assert admin(edge, "/-/keys/a", "PUT", body=b"").status == 403
