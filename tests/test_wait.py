"""Held polls: the client waits for the next value."""

from urllib.parse import quote

import pytest

from support.crowd import Crowd
from support.http import Connection, request
from support.upstream import Answer
from support.wait import Stopwatch

KEY = "/poll/alice"


@pytest.fixture
def held(backend, cleanup):
    """An edge, its cache and a poll held for 30 s on a value the client knows."""
    dwell, cache = backend
    cache.set(KEY, b"5")
    return dwell, cache, hold(dwell, cleanup)


def hold(dwell, cleanup, key=KEY, others=0):
    """One poll that waits beside `others`; returns its connection once it is held."""
    etag = dwell.get(key).etag
    connection = cleanup.enter_context(dwell.connect())
    connection.ask(f"{key}?wait=30", fields={"If-None-Match": etag})
    dwell.await_waiters(others + 1)
    return connection


def test_a_set_answers_the_held_poll(held):
    dwell, cache, poll = held
    with Stopwatch() as watch:
        cache.set(KEY, b"6")
        response = poll.answer()
    assert (response.status, response.body) == (200, b"6")
    # At once from the embedded store, within the sweep interval from memcached.
    assert watch.seconds < 10
    assert response.etag == dwell.get(KEY).etag
    assert "no-store" in response.field("Cache-Control")
    dwell.await_waiters(0)
    assert poll.get(KEY).body == b"6"


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (lambda cache: cache.incr(KEY, 1), b"6"),
        (lambda cache: cache.decr(KEY, 1), b"4"),
        (lambda cache: cache.append(KEY, b"5"), b"55"),
        (lambda cache: cache.prepend(KEY, b"1"), b"15"),
        (lambda cache: cache.replace(KEY, b"7"), b"7"),
        (lambda cache: cache.cas(KEY, b"8", cache.gets(KEY)[1]), b"8"),
        (lambda cache: cache.set(KEY, b""), b""),
    ],
    ids=["incr", "decr", "append", "prepend", "replace", "cas", "empty"],
)
def test_every_change_answers_the_held_poll(held, change, value):
    _, cache, poll = held
    change(cache)
    response = poll.answer()
    assert (response.status, response.body) == (200, value)


@pytest.mark.parametrize(
    "removal",
    [
        lambda cache: cache.delete(KEY),
        lambda cache: cache.flush_all(),
        lambda cache: cache.set(KEY, b"gone at once", expire=-1),
        lambda cache: cache.touch(KEY, 1),
        lambda cache: cache.set(KEY, b"5", expire=1),
    ],
    ids=["delete", "flush_all", "born_expired", "touched_expiry", "expiry"],
)
def test_a_held_poll_whose_value_goes_is_a_miss(held, app, removal):
    dwell, cache, poll = held
    app.answer = lambda request: Answer(b"made by the app")
    removal(cache)
    response = poll.answer()
    assert (response.status, response.body) == (200, b"made by the app")
    assert len(app.requests) == 1
    dwell.await_waiters(0)


def test_all_whose_value_goes_share_one_request(edge, app):
    edge.store().set(KEY, b"5")
    fields = {"If-None-Match": edge.get(KEY).etag}
    app.answer = lambda request: Answer(b"made once")
    with Crowd(edge.address, 100) as crowd:
        crowd.send(request(f"{KEY}?wait=30", fields=fields))
        edge.await_waiters(100)
        edge.store().delete(KEY)
        assert {(status, body) for status, _, body in crowd.answers()} == {(200, b"made once")}
    # Loops share nothing, so each of the two may ask once.
    assert len(app.requests) <= 2
    assert {seen.method for seen in app.requests} == {"GET"}


def test_a_held_post_whose_value_goes_reaches_the_application_with_its_body(edge, app):
    edge.store().set(KEY, b"5")
    etag = edge.get(KEY).etag
    app.answer = lambda request: Answer(b"got " + request.body)
    with edge.connect() as connection:
        connection.ask(f"{KEY}?since={quote(etag)}&wait=30", "POST", body=b"a=1&b=2")
        edge.await_waiters(1)
        edge.store().delete(KEY)
        assert connection.answer("POST").body == b"got a=1&b=2"


def test_a_held_poll_whose_value_goes_is_404_without_an_application(lone_edge, cleanup):
    lone_edge.store().set(KEY, b"5")
    poll = hold(lone_edge, cleanup)
    lone_edge.store().delete(KEY)
    assert poll.answer().status == 404


def test_on_delete_can_be_404(start_dwell, app, cleanup):
    route = {"prefix": "/poll/", "on_delete": "not-found"}
    dwell = start_dwell(upstream={"url": app.url}, route=[route])
    dwell.store().set(KEY, b"5")
    poll = hold(dwell, cleanup)
    dwell.store().delete(KEY)
    assert poll.answer().status == 404
    assert app.requests == []


def test_on_delete_can_keep_waiting(start_dwell, app, cleanup):
    route = {"prefix": "/poll/", "on_delete": "keep-waiting"}
    dwell = start_dwell(upstream={"url": app.url}, route=[route])
    dwell.store().set(KEY, b"5")
    poll = hold(dwell, cleanup)
    dwell.store().delete(KEY)
    dwell.store().set(KEY, b"6")
    assert poll.answer().body == b"6"
    assert app.requests == []


def test_equal_bytes_set_again_wake_nobody(held, cleanup):
    dwell, cache, poll = held
    cache.set("/poll/bob", b"1")
    other = hold(dwell, cleanup, "/poll/bob", others=1)
    for _ in range(3):
        cache.set(KEY, b"5")
        # The answer to a later change proves that this one has been looked at.
        value = cache.incr("/poll/bob", 1)
        assert other.answer().body == str(value).encode()
        other = hold(dwell, cleanup, "/poll/bob", others=1)
        assert poll.is_silent()
    cache.set(KEY, b"6")
    assert poll.answer().body == b"6"


def test_a_touch_wakes_nobody(held, cleanup):
    dwell, cache, poll = held
    cache.set("/poll/bob", b"1")
    other = hold(dwell, cleanup, "/poll/bob", others=1)
    cache.touch(KEY, 1000)
    cache.set("/poll/bob", b"2")
    assert other.answer().body == b"2"
    assert poll.is_silent()


def test_a_wait_that_ends_repeats_the_cursor(backend):
    dwell, cache = backend
    cache.set(KEY, b"value")
    etag = dwell.get(KEY).etag
    with dwell.connect() as connection, Stopwatch() as watch:
        response = connection.get(f"{KEY}?wait=1", fields={"If-None-Match": etag})
    assert (response.status, response.body, response.etag) == (304, b"", etag)
    assert response.field("Poll-Cursor") is not None
    # A sixteenth is added at random, so that clients do not come back together.
    assert 0.99 <= watch.seconds < 20
    dwell.await_waiters(0)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_wait_by_query_alone_ends_with_204(lone_edge, method):
    lone_edge.store().set(KEY, b"value")
    etag = lone_edge.get(KEY).etag
    target = f"{KEY}?since={quote(etag)}&wait=1s"
    with lone_edge.connect() as connection:
        response = connection.get(target, method, body=b"" if method == "POST" else None)
        assert (response.status, response.body, response.etag) == (204, b"", etag)
        assert connection.get(KEY).body == b"value"


def test_a_held_post_is_answered(backend, cleanup):
    dwell, cache = backend
    cache.set(KEY, b"5")
    etag = dwell.get(KEY).etag
    connection = cleanup.enter_context(dwell.connect())
    connection.ask(f"{KEY}?since={quote(etag)}&wait=30", "POST", body=b"a=1")
    dwell.await_waiters(1)
    cache.set(KEY, b"6")
    assert connection.answer("POST").body == b"6"


def test_a_held_head_is_answered_without_a_body(lone_edge, cleanup):
    lone_edge.store().set(KEY, b"5")
    etag = lone_edge.get(KEY).etag
    connection = cleanup.enter_context(lone_edge.connect())
    connection.ask(f"{KEY}?wait=30", "HEAD", {"If-None-Match": etag})
    lone_edge.await_waiters(1)
    lone_edge.store().set(KEY, b"longer")
    response = connection.answer("HEAD")
    assert (response.status, response.field("Content-Length")) == (200, "6")
    assert connection.get(KEY).body == b"longer"


def test_prefer_asks_for_a_wait(lone_edge):
    lone_edge.store().set(KEY, b"value")
    etag = lone_edge.get(KEY).etag
    fields = {"If-None-Match": etag, "Prefer": "respond-async, wait=1"}
    with Stopwatch() as watch:
        response = lone_edge.get(KEY, fields=fields)
    assert response.status == 304
    assert response.field("Preference-Applied") == "wait=1"
    assert 0.99 <= watch.seconds < 20


def test_a_wait_is_cut_to_the_routes_longest(start_dwell):
    dwell = start_dwell(route=[{"prefix": "/poll/", "wait_max": "1s"}])
    dwell.store().set(KEY, b"value")
    fields = {"If-None-Match": dwell.get(KEY).etag, "Prefer": "wait=1000"}
    with Stopwatch() as watch:
        response = dwell.get(KEY, fields=fields)
    assert (response.status, response.field("Preference-Applied")) == (304, "wait=1")
    assert watch.seconds < 30


def test_a_wait_without_a_known_value_is_answered_at_once(lone_edge):
    lone_edge.store().set(KEY, b"value")
    with Stopwatch() as watch:
        assert lone_edge.get(f"{KEY}?wait=30").body == b"value"
        fields = {"If-None-Match": '"AAAAAAAAAAA"'}
        assert lone_edge.get(f"{KEY}?wait=30", fields=fields).body == b"value"
    assert watch.seconds < 20


def test_a_wait_for_a_key_nobody_has_is_a_miss_at_once(edge):
    with Stopwatch() as watch:
        assert edge.get(f"{KEY}?wait=30").body == b"from the app"
    assert watch.seconds < 20


def test_without_an_application_a_wait_gets_the_first_value(lone_edge):
    with lone_edge.connect() as connection:
        connection.ask(f"{KEY}?wait=30")
        lone_edge.await_waiters(1)
        lone_edge.store().set(KEY, b"first")
        assert connection.answer().body == b"first"


def test_without_an_application_a_wait_for_the_first_value_ends_with_204(lone_edge):
    with lone_edge.connect() as connection, Stopwatch() as watch:
        assert connection.get(f"{KEY}?wait=1").status == 204
        # Who knew a value is told at once that it is gone.
        fields = {"If-None-Match": '"AAAAAAAAAAA"'}
        assert connection.get(f"{KEY}?wait=30", fields=fields).status == 404
    assert 0.99 <= watch.seconds < 20


def test_requests_after_a_held_one_wait_their_turn(lone_edge):
    lone_edge.store().set(KEY, b"5")
    etag = lone_edge.get(KEY).etag
    with lone_edge.connect() as connection:
        connection.ask(f"{KEY}?wait=30", fields={"If-None-Match": etag})
        lone_edge.await_waiters(1)
        connection.ask("/poll/none")
        with Connection(lone_edge.address) as other:
            assert other.get(KEY).body == b"5"
        assert connection.is_silent()
        lone_edge.store().set(KEY, b"6")
        assert connection.answer().body == b"6"
        assert connection.answer().status == 404


def test_a_write_is_seen_by_the_waiters_of_every_loop(lone_edge, cleanup):
    lone_edge.store().set(KEY, b"5")
    polls = [hold(lone_edge, cleanup, others=others) for others in range(16)]
    lone_edge.store().set(KEY, b"6")
    assert {poll.answer().body for poll in polls} == {b"6"}
