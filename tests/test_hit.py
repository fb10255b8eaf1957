"""A poll whose key has a value."""

import re

from support.events import EventStream
from support.http import Connection
from support.upstream import Answer

ETAG = re.compile(r'"[A-Za-z0-9_-]{11}"')
KEY = "/poll/alice"


def test_a_hit_is_the_value(backend):
    dwell, cache = backend
    cache.set(KEY, b"news for alice")
    response = dwell.get(KEY)
    assert (response.status, response.body) == (200, b"news for alice")
    assert response.field("Content-Type") == "text/plain; charset=utf-8"
    assert response.field("Content-Length") == "14"
    assert "hit" in response.field("Cache-Status")


def test_the_query_is_no_part_of_the_key(backend):
    dwell, cache = backend
    cache.set(KEY, b"value")
    assert dwell.get(f"{KEY}?x=1&_=1732222").body == b"value"


def test_the_path_is_the_key_as_it_is_written(backend):
    dwell, cache = backend
    for key in ("/poll/a%20b", "/poll/../x", "/poll//a;b=c", "/poll/~(!$&'*+,:@)"):
        cache.set(key, key)
        assert dwell.get(key).body == key.encode()
        assert dwell.get(f"{key}?q").body == key.encode()


def test_a_get_with_a_body_is_a_hit_too(backend):
    dwell, cache = backend
    cache.set(KEY, b"value")
    with dwell.connect() as connection:
        assert connection.get(KEY, body=b"GET /hidden HTTP/1.1\r\n\r\n").body == b"value"
        assert connection.get(KEY).body == b"value"


def test_a_hit_does_not_reach_the_application(backend, app):
    dwell, cache = backend
    cache.set(KEY, b"value")
    assert dwell.get(KEY).status == 200
    assert app.requests == []


def test_a_post_hit_is_the_value(backend, app):
    dwell, cache = backend
    cache.set(KEY, b"value")
    with dwell.connect() as connection:
        for _ in range(2):
            response = connection.get(KEY, "POST", body=b"a=1&b=2")
            assert (response.status, response.body) == (200, b"value")
    assert app.requests == []


def test_head_has_the_head_of_get(backend):
    dwell, cache = backend
    cache.set(KEY, b"value")
    with dwell.connect() as connection:
        get, head = connection.get(KEY), connection.get(KEY, "HEAD")
        assert (head.status, head.body) == (200, b"")
        for name in ("ETag", "Content-Type", "Content-Length", "Poll-Cursor"):
            assert head.field(name) == get.field(name)
        assert connection.get(KEY).body == b"value"


def test_an_empty_value_is_an_empty_200(backend, app):
    dwell, cache = backend
    cache.set(KEY, b"")
    response = dwell.get(KEY)
    assert (response.status, response.body) == (200, b"")
    assert response.field("Content-Length") == "0"
    assert app.requests == []


def test_an_empty_value_is_204_where_the_route_says_so(start_dwell):
    dwell = start_dwell(route=[{"prefix": "/poll/", "empty": "204"}])
    dwell.store().set(KEY, b"")
    assert dwell.get(KEY).status == 204


def test_any_bytes_come_back_as_stored(backend):
    dwell, cache = backend
    value = bytes(range(256)) * 256 + b"\r\nEND\r\nVALUE x 0 1\r\n"
    cache.set(KEY, value)
    assert dwell.get(KEY).body == value


def test_the_cursor_is_an_entity_tag_and_a_second_field(backend):
    dwell, cache = backend
    cache.set(KEY, b"value")
    response = dwell.get(KEY)
    assert ETAG.fullmatch(response.etag)
    assert response.field("Poll-Cursor").strip('"') == response.etag.strip('"')
    exposed = response.field("Access-Control-Expose-Headers").lower()
    assert "poll-cursor" in exposed


def test_the_cursor_depends_on_the_content_alone(start_dwell, memcached):
    embedded = start_dwell()
    external = start_dwell(memcached={"servers": [memcached.name]})
    etags = set()
    for dwell, cache in ((embedded, embedded.store()), (external, memcached.client())):
        for key in (KEY, "/poll/bob"):
            cache.set(key, b"old")
            cache.set(key, b"same value")
            etags.add(dwell.get(key).etag)
    assert len(etags) == 1
    embedded.store().set(KEY, b"another value")
    assert embedded.get(KEY).etag not in etags


def test_immediate_answers_may_be_kept_only_by_the_browser_itself(backend):
    dwell, cache = backend
    cache.set(KEY, b"value")
    kept = dwell.get(KEY).field("Cache-Control")
    assert "no-store" in kept or ("private" in kept and "no-cache" in kept)
    assert "no-store" in dwell.get(f"{KEY}?wait=1").field("Cache-Control")


def test_the_key_of_a_route_can_be_a_template(start_dwell):
    route = {"prefix": "/inbox", "key": "inbox:{query.user}:{cookie.session}"}
    dwell = start_dwell(route=[route])
    dwell.store().set("inbox:alice:s1", b"for alice")
    found = dwell.get("/inbox?x=1&user=alice", fields={"Cookie": "a=b; session=s1"})
    assert (found.status, found.body) == (200, b"for alice")
    assert dwell.get("/inbox?user=alice").status == 400


def test_a_key_longer_than_memcached_takes_is_414(backend):
    dwell, cache = backend
    longest = "/poll/" + "k" * 244
    cache.set(longest, b"long")
    assert dwell.get(longest).body == b"long"
    assert dwell.get(longest + "k").status == 414


def test_other_methods_are_told_what_polls(edge, app):
    response = edge.get("/poll/alice", "PUT", body=b"x")
    assert response.status == 405
    allowed = {method.strip() for method in response.field("Allow").split(",")}
    assert allowed >= {"GET", "HEAD", "POST"}
    assert app.requests == []


def test_no_browser_takes_a_value_for_something_else(start_dwell, app):
    token = {"Authorization": "Bearer 3c1f0c5e9f6b4d1a"}
    dwell = start_dwell(upstream={"url": app.url}, publish={"token": token["Authorization"][7:]})
    dwell.store().set("/poll/alice", b"<script>alert(1)</script>")
    app.answer = lambda request: Answer(b"<b>page</b>", fields=(("Content-Type", "text/html"),))
    for target in ("/poll/alice", "/poll/?k=alice"):
        for method in ("GET", "POST", "HEAD"):
            body = b"" if method == "POST" else None
            answer = dwell.get(target, method, body=body)
            assert (answer.status, answer.field("X-Content-Type-Options")) == (200, "nosniff")
    with EventStream(dwell.address, "/poll/alice").begin() as stream:
        assert stream.response.field("X-Content-Type-Options") == "nosniff"
    with Connection(dwell.admin_address) as admin:
        kept = admin.get("/-/keys//poll/alice", fields=token)
    assert kept.field("X-Content-Type-Options") == "nosniff"
    # What the application answers is the application's.
    assert dwell.get("/poll/bob").field("X-Content-Type-Options") is None
