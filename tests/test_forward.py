"""Requests that are no polls: they pass through untouched."""

import pytest

from support.http import request
from support.upstream import Answer

HOP_BY_HOP = ("connection", "keep-alive", "te", "transfer-encoding", "upgrade", "trailer")


def test_a_request_passes_through_as_it_is(edge, app):
    fields = [
        ("Host", "www.example.org"),
        ("User-Agent", "a test"),
        ("Cookie", "a=b; c=d"),
        ("Accept", "text/html;q=0.9, */*;q=0.1"),
        ("X-Twice", "1"),
        ("X-Twice", "2"),
        ("Authorization", "Basic YTpi"),
    ]
    body = b"\x00\xff" * 1000
    assert edge.get("/api/items?x=%2F&y=a+b", "PUT", fields, body).status == 200
    seen = app.requests[0]
    assert (seen.method, seen.target, seen.body) == ("PUT", "/api/items?x=%2F&y=a+b", body)
    for field in fields:
        assert field in seen.fields


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "X-OWN"])
def test_every_method_passes_through(edge, app, method):
    body = b"body" if method in ("POST", "PUT", "PATCH") else None
    assert edge.get("/api", method, body=body).body == b"from the app"
    assert (app.requests[0].method, app.requests[0].body) == (method, body or b"")


def test_an_answer_passes_through_as_it_is(edge, app):
    fields = (
        ("Content-Type", "application/x-thing"),
        ("Set-Cookie", "a=b"),
        ("Set-Cookie", "c=d; Path=/"),
        ("ETag", '"of the app"'),
        ("Cache-Control", "max-age=60"),
    )
    body = bytes(range(256)) * 4000
    app.answer = lambda request: Answer(body, 418, fields)
    with edge.connect() as connection:
        response = connection.get("/teapot")
        assert (response.status, response.body) == (418, body)
        for field in fields:
            assert field in response.fields
        assert connection.get("/again").body == body


def test_head_passes_through(edge, app):
    with edge.connect() as connection:
        response = connection.get("/page", "HEAD")
        assert (response.status, response.field("Content-Length")) == (200, "12")
        assert connection.get("/page").body == b"from the app"


def test_fields_of_one_connection_stay_on_it(edge, app):
    fields = [
        ("Connection", "keep-alive, X-Private"),
        ("X-Private", "for the edge alone"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("X-Public", "for the app"),
    ]
    assert edge.get("/api", fields=fields).status == 200
    names = {name.lower() for name, _ in app.requests[0].fields}
    assert "x-public" in names
    assert "x-private" not in names
    assert "te" not in names


def test_a_chunked_body_passes_through(edge, app):
    chunks = b"".join(b"%x\r\n%s\r\n" % (size, b"x" * size) for size in (1, 10, 4096, 30_000))
    body = chunks + b"0\r\n\r\n"
    assert edge.get("/upload", "POST", {"Transfer-Encoding": "chunked"}, body).status == 200
    assert app.requests[0].body == b"x" * 34_107


def test_connections_to_the_application_are_kept(edge, app):
    with edge.connect() as connection:
        for _ in range(20):
            assert connection.get("/api").status == 200
    edge.await_metric(1, "dwell_upstream_connections_open")


def test_a_path_that_only_resembles_the_prefix_is_no_poll(edge, app):
    edge.store().set("/polling", b"no poll")
    edge.store().set("/x/poll/alice", b"no poll")
    assert edge.get("/polling").body == b"from the app"
    assert edge.get("/x/poll/alice").body == b"from the app"


def test_prefixes_may_be_several_and_the_longest_wins(start_dwell, app):
    routes = [
        {"prefix": "/poll/"},
        {"prefix": "/poll/plain/", "content_type": "text/x-plain"},
        {"prefix": "/live/"},
    ]
    dwell = start_dwell(upstream={"url": app.url}, route=routes)
    for key in ("/poll/a", "/poll/plain/a", "/live/a"):
        dwell.store().set(key, b"value")
        assert dwell.get(key).body == b"value"
    assert dwell.get("/poll/plain/a").field("Content-Type") == "text/x-plain"


def test_without_an_application_it_is_404(lone_edge):
    with lone_edge.connect() as connection:
        for method, body in (("GET", None), ("POST", b"body"), ("DELETE", None)):
            response = connection.get("/api", method, body=body)
            assert response.status == 404
            assert b"<html" not in response.body


def test_the_admin_pages_are_not_on_the_public_listener(edge, lone_edge, app):
    assert lone_edge.get("/-/metrics").status == 404
    assert edge.get("/-/metrics").body == b"from the app"


def test_absolute_form_is_understood(edge, app):
    edge.store().set("/poll/alice", b"value")
    with edge.connect() as connection:
        connection.send(request("http://edge.test/poll/alice?x=1"))
        assert connection.answer().body == b"value"
