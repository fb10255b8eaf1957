"""Polls of several keys: one answer with everything that is new, as JSON."""

import json

import pytest

from support.http import request
from support.upstream import Answer
from support.wait import Stopwatch


def poll(connection, target, method="GET", fields=(), body=None):
    """The status, the cursor and the values of one poll."""
    answer = connection.get(target, method, fields, body)
    cursor = answer.field("Poll-Cursor")
    if answer.status != 200:
        assert answer.body == b""
        return answer.status, cursor, None
    content = json.loads(answer.body)
    assert content["cursor"] == cursor
    assert answer.etag == f'"{cursor}"'
    assert answer.field("Content-Type") == "application/json"
    return answer.status, cursor, content["values"]


def cursor(dwell, key):
    return dwell.get(key).field("Poll-Cursor")


@pytest.mark.parametrize("method", ["GET", "POST", "QUERY"])
def test_one_answer_has_what_the_client_lacks(backend, method, app):
    dwell, cache = backend
    app.answer = lambda request: Answer(status=404)
    cache.set("/poll/a", b'"one"\n')
    cache.set("/poll/b", b"\xff\x00")
    a, b = cursor(dwell, "/poll/a"), cursor(dwell, "/poll/b")
    one, two = {"v": '"one"\n', "c": a}, {"b64": "/wA=", "c": b}
    with dwell.connect() as connection:
        body = b"x=1" if method != "GET" else None
        every = poll(connection, "/poll/?k=a&k=b&k=c&k=a", method, body=body)
        assert every == (200, f"{a}.{b}.", {"a": one, "b": two})
        known = f"/poll/?k=a&k=b&k=c&since={a}.."
        assert poll(connection, known, method, body=body) == (200, f"{a}.{b}.", {"b": two})
        same = poll(connection, f"/poll/?k=a&k=b&k=c&since={a}.{b}.", method, body=body)
        assert same == (204 if method == "POST" else 304, f"{a}.{b}.", None)
        gone = poll(connection, f"/poll/?k=a&k=b&k=c&since={a}.{b}.{a}", method, body=body)
        assert gone == (200, f"{a}.{b}.", {"c": None})


def test_the_tag_of_an_answer_is_a_cursor_too(lone_edge):
    lone_edge.store().set("/poll/a", b"one")
    with lone_edge.connect() as connection:
        first = connection.get("/poll/?k=a&k=b")
        fields = {"If-None-Match": f"W/{first.etag}"}
        for method in ("GET", "HEAD", "QUERY"):
            assert connection.get("/poll/?k=a&k=b", method, fields).status == 304
        # A POST that matches would have to fail, so it does not count.
        assert connection.get("/poll/?k=a&k=b", "POST", fields, b"").status == 200
        waited = connection.get("/poll/?k=a&k=b", "GET", {**fields, "Prefer": "wait=1"})
        assert (waited.status, waited.field("Preference-Applied")) == (304, "wait=1")
        assert waited.etag == first.etag
        assert connection.get("/poll/?k=a&k=b", "GET", {"If-None-Match": "*"}).status == 304
        assert connection.get("/poll/?k=a&k=b", "HEAD").field("Poll-Cursor") == first.etag[1:-1]


def test_any_of_the_keys_ends_the_wait(backend, app):
    dwell, cache = backend
    app.answer = lambda request: Answer(status=404)
    cache.set("/poll/a", b"one")
    a = cursor(dwell, "/poll/a")
    with dwell.connect() as connection:
        connection.send(request(f"/poll/?k=a&k=b&since={a}.&wait=30"))
        dwell.await_waiters(2)
        with Stopwatch() as watch:
            cache.set("/poll/b", b"two")
            answer = json.loads(connection.answer().body)
        assert watch.seconds < 10
        b = cursor(dwell, "/poll/b")
        assert answer == {"cursor": f"{a}.{b}", "values": {"b": {"v": "two", "c": b}}}
        connection.send(request(f"/poll/?k=a&k=b&since={a}.{b}&wait=30"))
        dwell.await_waiters(2)
        cache.delete("/poll/a")
        assert json.loads(connection.answer().body) == {"cursor": f".{b}", "values": {"a": None}}
        assert poll(connection, f"/poll/?k=a&k=b&since=.{b}&wait=200ms") == (204, f".{b}", None)
    dwell.await_waiters(0)


def test_the_keys_of_a_poll_are_one_question_to_memcached(start_dwell, memcached):
    dwell = start_dwell(memcached={"servers": [memcached.name]}, server={"pollers": 1})
    keys = "&".join(f"k={number}" for number in range(64))
    cache = memcached.client()
    cache.set("/poll/7", b"seven")
    before = cache.stats()
    answer = dwell.get(f"/poll/?{keys}")
    after = cache.stats()
    assert json.loads(answer.body)["values"].keys() == {"7"}
    assert after[b"cmd_get"] - before[b"cmd_get"] == 64
    dwell.await_metric(64, "dwell_memcached_lookups_total")


def test_what_makes_no_sense_is_refused(lone_edge):
    too_many = "&".join(f"k={number}" for number in range(65))
    for target, status, text in [
        (f"/poll/?{too_many}", 400, b"more than 64 keys\n"),
        ("/poll/?k=a&wait=soon", 400, b"wait is not a number of seconds: soon\n"),
        (f"/poll/?k={'x' * 250}", 414, b"key exceeds 250 bytes: 256\n"),
        ("/poll/?k=a%20b", 400, b"key has the byte 0x20\n"),
    ]:
        answer = lone_edge.get(target)
        assert (answer.status, answer.body) == (status, text)
    assert lone_edge.get("/poll/?k=a", "PUT").status == 405
    # A name of any kind but a deletion's is a key of polls; streams need that name.
    assert lone_edge.get("/poll/?k=delete").status == 200
    refused = lone_edge.get("/poll/?k=delete", fields={"Accept": "text/event-stream"})
    assert refused.status == 400


def test_a_query_is_a_poll_with_content(start_dwell, app):
    dwell = start_dwell(upstream={"url": app.url}, limits={"poll_body_bytes_max": "1kb"})
    dwell.store().set("/poll/a", b"one")
    answer = dwell.get("/poll/a", "QUERY", body=b"select *")
    assert (answer.status, answer.body) == (200, b"one")
    tag = {"If-None-Match": answer.etag}
    assert dwell.get("/poll/a", "QUERY", tag, b"select *").status == 304
    since = answer.field("Poll-Cursor")
    assert dwell.get(f"/poll/a?since={since}&wait=100ms", "QUERY", body=b"x").status == 204
    assert dwell.get("/poll/a", "QUERY", body=b"x" * 2000).status == 413
    # What is missing is asked of the application, method and content as they are.
    dwell.get("/poll/b", "QUERY", body=b"select b")
    assert (app.requests[0].method, app.requests[0].body) == ("QUERY", b"select b")
    allowed = dwell.get("/poll/a", "PUT").field("Allow")
    assert allowed == "GET, HEAD, POST, QUERY"


def test_queries_share_an_answer_only_without_content(edge, app):
    app.hang()
    with edge.connect() as first, edge.connect() as second:
        first.ask("/poll/b", "QUERY", body=b"1")
        second.ask("/poll/b", "QUERY", body=b"2")
        edge.await_misses(app, 2)
        app.release()
        assert first.answer().status == second.answer().status == 200
    assert sorted(request.body for request in app.requests) == [b"1", b"2"]
