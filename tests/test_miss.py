"""A poll whose key has no value: the application answers."""

import pytest

from support.http import request
from support.upstream import Answer

KEY = "/poll/alice"


def test_a_miss_is_the_applications_answer(backend, app):
    dwell, _ = backend
    app.answer = lambda request: Answer(b"made now", fields=(("Content-Type", "text/x-app"),))
    response = dwell.get(f"{KEY}?x=1")
    assert (response.status, response.body) == (200, b"made now")
    assert response.field("Content-Type") == "text/x-app"
    assert "fwd=miss" in response.field("Cache-Status").replace(" ", "")
    assert [(seen.method, seen.target) for seen in app.requests] == [("GET", f"{KEY}?x=1")]


def test_a_post_miss_carries_its_body(backend, app):
    dwell, _ = backend
    app.answer = lambda request: Answer(b"got " + request.body)
    body = bytes(range(256)) * 200
    with dwell.connect() as connection:
        fields = {"Content-Type": "application/x-thing"}
        response = connection.get(KEY, "POST", fields, body)
        assert (response.status, response.body) == (200, b"got " + body)
        assert connection.get(KEY, "POST", body=b"").body == b"got "
    assert app.requests[0].field("Content-Type") == "application/x-thing"
    assert [seen.method for seen in app.requests] == ["POST", "POST"]


def test_a_chunked_post_miss_carries_its_body(edge, app):
    body = b"5;name=value\r\nhello\r\n1\r\n,\r\n6\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n"
    response = edge.get(KEY, "POST", {"Transfer-Encoding": "chunked"}, body)
    assert response.status == 200
    assert app.requests[0].body == b"hello, world"


def test_expect_continue_is_answered_before_the_body(edge, app):
    with edge.connect() as connection:
        head = request(KEY, "POST", {"Expect": "100-continue", "Content-Length": "5"})
        connection.send(head)
        assert connection.answer().status == 100
        connection.send(b"later")
        assert connection.answer().status == 200
        assert connection.get(KEY).status == 200
    assert app.requests[0].body == b"later"
    assert app.requests[0].field("Expect") is None


def test_the_applications_value_has_the_cursor_it_will_have_in_the_cache(edge, app):
    app.answer = lambda request: Answer(b"value")
    answered = edge.get(KEY)
    edge.store().set(KEY, b"value")
    cursor = answered.field("Poll-Cursor")
    assert cursor == edge.get(KEY).field("Poll-Cursor")
    assert edge.get(f"{KEY}?since={cursor}").status == 304


@pytest.mark.parametrize(("target", "method"), [(KEY, "HEAD"), ("/page", "GET")])
def test_an_answer_without_a_value_has_no_cursor(edge, app, target, method):
    assert edge.get(target, method).field("Poll-Cursor") is None
    app.answer = lambda request: Answer(b"not found", 404)
    assert edge.get(KEY).field("Poll-Cursor") is None


def test_a_head_miss_reaches_the_application_as_it_is(edge, app):
    with edge.connect() as connection:
        response = connection.get(KEY, "HEAD")
        assert (response.status, response.body) == (200, b"")
        assert connection.get(KEY).body == b"from the app"
    assert [seen.method for seen in app.requests] == ["HEAD", "GET"]


@pytest.mark.parametrize("status", [201, 204, 302, 304, 404, 418, 500, 503])
def test_the_applications_status_passes_through(edge, app, status):
    app.answer = lambda request: Answer(b"as it is", status, (("X-App", "1"),))
    with edge.connect() as connection:
        response = connection.get(KEY, "POST", body=b"")
        assert (response.status, response.field("X-App")) == (status, "1")
        assert response.body == (b"" if status in (204, 304) else b"as it is")
        assert connection.get(KEY, "POST", body=b"").status == status


def test_a_miss_without_an_application_is_404(lone_edge):
    response = lone_edge.get(KEY)
    assert response.status == 404
    assert b"<html" not in response.body


def test_parallel_misses_of_one_key_are_one_request(edge, app, cleanup):
    app.hang()
    count = 100
    clients = [cleanup.enter_context(edge.connect()) for _ in range(count)]
    for client in clients:
        client.ask(KEY)
    edge.await_misses(app, count)
    app.release()
    for client in clients:
        response = client.answer()
        assert (response.status, response.body) == (200, b"from the app")
    assert len(app.requests) == 1


def test_a_storm_of_a_thousand_is_one_request_over_all_loops(start_dwell, app, cleanup):
    dwell = start_dwell(upstream={"url": app.url}, server={"pollers": 4})
    app.hang()
    clients = [cleanup.enter_context(dwell.connect()) for _ in range(1000)]
    for client in clients:
        client.ask(KEY)
    dwell.await_misses(app, 1000)
    app.release()
    for client in clients:
        response = client.answer()
        assert (response.status, response.body) == (200, b"from the app")
    assert len(app.requests) == 1


def test_a_storm_on_an_answer_for_one_client_asks_for_each(start_dwell, app, cleanup):
    dwell = start_dwell(upstream={"url": app.url}, server={"pollers": 4})
    app.answer = lambda request: Answer(b"yours", fields=(("Set-Cookie", "a=b"),))
    app.hang()
    clients = [cleanup.enter_context(dwell.connect()) for _ in range(40)]
    for client in clients:
        client.ask(KEY)
    dwell.await_misses(app, 40)
    app.release()
    for client in clients:
        assert client.answer().body == b"yours"
    assert len(app.requests) == 40


def test_misses_of_different_keys_are_requests_of_their_own(edge, app, cleanup):
    app.answer = lambda request: Answer(request.target.encode())
    clients = [cleanup.enter_context(edge.connect()) for _ in range(20)]
    for place, client in enumerate(clients):
        client.ask(f"{KEY}/{place}")
    for place, client in enumerate(clients):
        assert client.answer().body == f"{KEY}/{place}".encode()
    assert len(app.requests) == 20


def test_parallel_posts_are_not_merged(edge, app, cleanup):
    app.answer = lambda request: Answer(b"got " + request.body)
    clients = [cleanup.enter_context(edge.connect()) for _ in range(5)]
    for place, client in enumerate(clients):
        client.ask(KEY, "POST", body=str(place).encode())
    for place, client in enumerate(clients):
        assert client.answer().body == f"got {place}".encode()
    assert len(app.requests) == 5


def test_parallel_posts_are_merged_where_the_route_says_so(start_dwell, app, cleanup):
    route = {"prefix": "/poll/", "coalesce_post": True}
    dwell = start_dwell(upstream={"url": app.url}, route=[route], server={"pollers": 1})
    app.hang()
    clients = [cleanup.enter_context(dwell.connect()) for _ in range(10)]
    for client in clients:
        client.ask(KEY, "POST", body=b"same")
    dwell.await_misses(app, 10)
    app.release()
    assert {client.answer().status for client in clients} == {200}
    assert len(app.requests) == 1


def test_the_application_may_fill_the_cache_itself(edge, app):
    def answer(request):
        edge.store().set(KEY, b"from now on")
        return Answer(b"this once")

    app.answer = answer
    assert edge.get(KEY).body == b"this once"
    assert edge.get(KEY).body == b"from now on"
    assert len(app.requests) == 1
