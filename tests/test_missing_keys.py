"""Keys without a value of WebSockets, of streams and polls of several keys: the application is
asked for each as a poll of it would ask, and once for all who miss on it.
"""

import json

import pytest

from support.events import EventStream
from support.upstream import Answer
from support.wait import until
from support.websocket import WebSocket

KEY = "/poll/alice"
BOTH = "/poll/?k=alice&k=bob"


def value_of(request):
    """An application that has a value of every key."""
    return Answer(b"the value of " + request.target.encode())


@pytest.fixture
def connect(cleanup):
    """Opens a WebSocket."""

    def begin(dwell, target=KEY, fields=()):
        return cleanup.enter_context(WebSocket(dwell.address, target, fields))

    return begin


@pytest.fixture
def follow(cleanup):
    """Opens a stream of events."""

    def begin(dwell, target, known=""):
        return cleanup.enter_context(EventStream(dwell.address, target, known)).begin()

    return begin


def test_everybody_who_misses_on_a_key_shares_one_request(backend, app, connect, follow):
    dwell, cache = backend
    app.answer = value_of
    cache.set("/poll/bob", b"stored")
    app.hang()
    with dwell.connect() as poll, dwell.connect() as several:
        poll.ask(KEY)
        several.ask(BOTH)
        single, socket = connect(dwell), connect(dwell, BOTH)
        stream = follow(dwell, BOTH)
        dwell.await_misses(app, 5)
        app.release()
        value = b"the value of " + app.requests[0].target.encode()
        assert poll.answer().body == value
        cursors = {dwell.get("/poll/bob").field("Poll-Cursor"), single.hear()["c"]}
        answer = several.answer()
        assert set(answer.field("Poll-Cursor").split(".")) == cursors
        assert answer.field("Cache-Status") == "dwell; fwd=miss"
        values = json.loads(answer.body)["values"]
        assert {name: told["v"] for name, told in values.items()} == {
            "alice": value.decode(),
            "bob": "stored",
        }
    heard = [socket.hear(), socket.hear()]
    assert {told["k"]: told["v"] for told in heard} == {"alice": value.decode(), "bob": "stored"}
    events = [stream.event(), stream.event()]
    assert {it.type: it.data for it in events} == {"alice": value.decode(), "bob": "stored"}
    assert len(app.requests) == 1
    # From here on the cache has the word.
    cache.set(KEY, b"newer")
    assert single.hear()["v"] == "newer"
    assert socket.hear()["v"] == "newer"
    assert stream.event().data == "newer"


def test_the_request_is_a_poll_of_that_key(edge, app, connect):
    app.answer = value_of
    fields = {"Cookie": "session=1", "Accept": "text/html"}
    socket = connect(edge, "/poll/?k=alice&room=7&since=AAAAAAAAAAA", fields)
    assert socket.hear()["v"] == "the value of /poll/alice?room=7"
    asked = app.requests[0]
    assert (asked.method, asked.field("Cookie")) == ("GET", "session=1")
    for name in ("Upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Accept"):
        assert asked.field(name) is None
    assert asked.field("X-Forwarded-For") == "127.0.0.1"
    # A key that is named later is asked for by nobody in particular.
    socket.say(subscribe=["bob"])
    assert socket.hear() == {
        "k": "bob",
        "v": "the value of /poll/bob",
        "c": edge.get("/poll/bob").field("Poll-Cursor"),
    }
    asked = app.requests[1]
    assert (asked.target, asked.field("Cookie")) == ("/poll/bob", None)
    assert asked.field("X-Forwarded-For") == "127.0.0.1"


def test_what_fills_the_cache_is_told_once(start_dwell, app, connect):
    fields = (("Cache-Control", "max-age=60"),)
    app.answer = lambda request: Answer(b"filled", fields=fields)
    dwell = start_dwell(
        upstream={"url": app.url},
        route=[{"prefix": "/poll/", "fill": True}],
    )
    socket = connect(dwell)
    assert socket.hear()["v"] == "filled"
    until(lambda: dwell.get(KEY).field("Cache-Status") == "dwell; hit", "the cache has it")
    dwell.store().set(KEY, b"stored")
    assert socket.hear()["v"] == "stored"
    assert len(app.requests) == 1


def test_stale_values_stand_in_for_an_application_that_fails(start_dwell, app, connect):
    app.answer = value_of
    route = {"prefix": "/poll/", "stale_if_error": "1h", "negative": "1h"}
    dwell = start_dwell(upstream={"url": app.url}, route=[route])
    known = dwell.get(KEY)
    app.answer = lambda request: Answer(b"no", status=500)
    socket, both = connect(dwell), connect(dwell, BOTH)
    assert socket.hear()["v"] == both.hear()["v"] == known.body.decode()
    since = known.field("Poll-Cursor")
    with dwell.connect() as poll:
        answer = poll.get(f"/poll/?k=alice&since={since}")
        assert answer.status == 304
        # For a key of which nothing was ever known there is no stand-in.
        assert poll.get("/poll/?k=carol").status == 503


def test_what_the_application_has_not_is_not_there(backend, app, connect):
    dwell, cache = backend
    app.answer = lambda request: Answer(status=404)
    cache.set("/poll/bob", b"stored")
    known = dwell.get("/poll/bob").field("Poll-Cursor")
    socket = connect(dwell, f"{KEY}?since={known}")
    assert socket.hear() == {"c": None}
    answer = dwell.get(f"{BOTH}&since={known}.{known}")
    assert json.loads(answer.body) == {"cursor": f".{known}", "values": {"alice": None}}
    assert len(app.requests) == 2
