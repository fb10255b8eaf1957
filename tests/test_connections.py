"""Connections: kept, pipelined, closed, and left by their clients."""

import socket

import pytest

from support.http import request
from support.upstream import Answer
from support.wait import Stopwatch

KEY = "/poll/alice"


@pytest.fixture
def hit(edge):
    """The edge with a value at KEY."""
    edge.store().set(KEY, b"value")
    return edge


def test_a_connection_is_kept(hit):
    with hit.connect() as connection:
        for _ in range(200):
            response = connection.get(KEY)
            assert (response.status, response.closes) == (200, False)
    hit.await_connections(0)


def test_pipelined_requests_are_answered_in_order(hit, app):
    app.answer = lambda request: Answer(request.method.encode() + request.target.encode())
    script = [
        (KEY, "GET", None, b"value"),
        ("/poll/miss1", "GET", None, b"GET/poll/miss1"),
        ("/page", "POST", b"body", b"POST/page"),
        (KEY, "HEAD", None, b""),
        (KEY, "POST", b"a=1", b"value"),
        ("/poll/miss2", "POST", b"b=2", b"POST/poll/miss2"),
        (KEY, "GET", None, b"value"),
    ] * 10
    with hit.connect() as connection:
        connection.send(b"".join(request(step[0], step[1], body=step[2]) for step in script))
        for target, method, _, body in script:
            assert connection.answer(method).body == body, (method, target)


def test_a_request_may_come_a_byte_at_a_time(hit):
    with hit.connect() as connection:
        for byte in request(KEY, "POST", {"X-Field": "value"}, b"body") + request(KEY):
            connection.send(bytes([byte]))
        assert connection.answer().body == b"value"
        assert connection.answer().body == b"value"


def test_an_empty_line_before_a_request_is_let_pass(hit):
    with hit.connect() as connection:
        connection.send(b"\r\n" + request(KEY))
        assert connection.answer().body == b"value"


@pytest.mark.parametrize("target", [KEY, "/page"], ids=["poll", "forward"])
def test_connection_close_closes(hit, target):
    with hit.connect() as connection:
        response = connection.get(target, fields={"Connection": "close"})
        assert (response.status, response.closes) == (200, True)
        assert connection.is_ended()


@pytest.mark.parametrize("target", [KEY, "/page"], ids=["poll", "forward"])
def test_http_1_0_closes(hit, target):
    with hit.connect() as connection:
        connection.send(f"GET {target} HTTP/1.0\r\n\r\n".encode())
        response = connection.answer()
        assert response.status == 200
        assert response.field("Transfer-Encoding") is None
        assert connection.is_ended()


def test_http_1_0_may_ask_to_be_kept(hit):
    with hit.connect() as connection:
        for _ in range(3):
            connection.send(request(KEY, fields={"Connection": "keep-alive"}, version="HTTP/1.0"))
            response = connection.answer()
            assert response.body == b"value"
            assert response.field("Connection").lower() == "keep-alive"


def test_the_last_request_of_a_connection_is_told_so(start_dwell):
    dwell = start_dwell(limits={"requests_per_connection_max": 3})
    dwell.store().set(KEY, b"value")
    with dwell.connect() as connection:
        assert [connection.get(KEY).closes for _ in range(3)] == [False, False, True]
        assert connection.is_ended()


def test_an_idle_connection_is_closed_without_a_word(start_dwell):
    dwell = start_dwell(limits={"idle_timeout": "1s"})
    dwell.store().set(KEY, b"value")
    with Stopwatch() as watch, dwell.connect() as used, dwell.connect() as silent:
        assert used.get(KEY).body == b"value"
        assert used.is_ended()
        assert silent.read_to_end() in (b"",) or b" 408 " in silent.buffer
    assert 0.99 <= watch.seconds < 20


def test_a_held_poll_is_not_idle(start_dwell):
    # The wait is longer than both, and both are longer than it takes to send the request.
    dwell = start_dwell(limits={"idle_timeout": "1s", "header_timeout": "1s"})
    dwell.store().set(KEY, b"value")
    fields = {"If-None-Match": dwell.get(KEY).etag}
    with dwell.connect() as connection:
        assert connection.get(f"{KEY}?wait=2", fields=fields).status == 304


def test_a_client_that_is_done_sending_still_gets_its_answers(hit):
    with hit.connect() as connection:
        connection.send(request(KEY) + request("/page") + request(KEY))
        connection.socket.shutdown(socket.SHUT_WR)
        bodies = [connection.answer().body for _ in range(3)]
        assert bodies == [b"value", b"from the app", b"value"]
        assert connection.is_ended()


def test_a_held_poll_of_a_client_that_is_done_sending_is_not_kept_for_ever(hit):
    fields = {"If-None-Match": hit.get(KEY).etag}
    with hit.connect() as connection:
        connection.ask(f"{KEY}?wait=30", fields=fields)
        hit.await_waiters(1)
        connection.socket.shutdown(socket.SHUT_WR)
        hit.store().set(KEY, b"changed")
        answer = connection.read_to_end()
        assert answer == b"" or answer.endswith(b"changed")
    hit.await_waiters(0)
    hit.await_connections(0)


def test_a_connection_cut_within_a_request_is_forgotten(hit):
    for part in (b"", b"GET", request(KEY)[:-2], request(KEY, "POST", body=b"1234")[:-1]):
        with hit.connect() as connection:
            connection.send(part)
    hit.await_connections(0)
    assert hit.get(KEY).body == b"value"


def test_connections_over_the_limit_are_refused_and_the_others_served(start_dwell):
    dwell = start_dwell(limits={"connections_max": 5}, server={"pollers": 1})
    dwell.store().set(KEY, b"value")
    kept = [dwell.connect() for _ in range(5)]
    for connection in kept:
        assert connection.get(KEY).body == b"value"
    with dwell.connect() as over:
        try:
            over.ask(KEY)
            answer = over.read_to_end()
        except OSError:
            answer = b""
        assert answer == b"" or b" 503 " in answer.partition(b"\r\n")[0]
    for connection in kept:
        assert connection.get(KEY).body == b"value"
        connection.close()
    dwell.await_connections(0)
    assert dwell.get(KEY).body == b"value"


def test_polls_over_the_limit_are_told_when_to_come_back(start_dwell, cleanup):
    dwell = start_dwell(limits={"waiters_max": 2}, server={"pollers": 1})
    dwell.store().set(KEY, b"value")
    fields = {"If-None-Match": dwell.get(KEY).etag}
    held = [cleanup.enter_context(dwell.connect()) for _ in range(2)]
    for connection in held:
        connection.ask(f"{KEY}?wait=30", fields=fields)
    dwell.await_waiters(2)
    with dwell.connect() as over:
        response = over.get(f"{KEY}?wait=30", fields=fields)
        assert response.status == 503
        assert 1 <= int(response.field("Retry-After")) <= 5
        # What needs no waiting is still served.
        assert over.get(KEY).body == b"value"
        assert over.get(KEY, fields=fields).status == 304
        # Further ones are counted, and told later.
        for _ in range(3):
            assert over.get(f"{KEY}?wait=30", fields=fields).status == 503
    dwell.await_output("limits.waiters_max is reached: requests get 503, and WebSockets an error")
    [told] = [line for line in dwell.output().splitlines() if "waiters_max is reached" in line]
    assert "refused=1 limit=2 per_loop=2" in told
    assert dwell.metric("dwell_polls_total", outcome="refused") == 4
    dwell.store().set(KEY, b"changed")
    assert {connection.answer().body for connection in held} == {b"changed"}
    dwell.await_waiters(0)
    with dwell.connect() as connection:
        fields = {"If-None-Match": dwell.get(KEY).etag}
        assert connection.get(f"{KEY}?wait=1", fields=fields).status == 304
