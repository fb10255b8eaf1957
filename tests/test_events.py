"""Event streams on poll routes: the current value first, then every news, then an orderly end."""

import signal

import pytest

from support.crowd import Crowd
from support.events import Event, EventStream
from support.http import request
from support.upstream import Answer
from support.wait import Stopwatch, until

KEY = "/poll/alice"


@pytest.fixture
def follow(cleanup):
    """Begins a stream."""

    def begin(dwell, target=KEY, last_event_id="", **options):
        stream = EventStream(dwell.address, target, last_event_id, **options)
        return cleanup.enter_context(stream).begin()

    return begin


def cursor(dwell, key=KEY):
    return dwell.get(key).field("Poll-Cursor")


def test_a_stream_begins_with_the_value_and_brings_every_news(backend, follow):
    dwell, cache = backend
    cache.set(KEY, b"one")
    stream = follow(dwell)
    response = stream.response
    assert (response.status, response.field("Cache-Control")) == (200, "no-cache")
    assert response.field("X-Accel-Buffering") == "no"
    assert response.field("Cache-Status") == "dwell; hit"
    assert stream.event() == Event("one", cursor(dwell))
    assert 1000 <= stream.retry_ms <= 5000
    with Stopwatch() as watch:
        cache.set(KEY, b"two\nlines")
        assert stream.event() == Event("two\nlines", cursor(dwell))
    assert watch.seconds < 10, "it is told at once"
    cache.set(KEY, b"two\nlines")
    cache.set(KEY, b"")
    assert stream.event() == Event("", cursor(dwell))
    dwell.await_metric(3, "dwell_stream_events_total")
    assert dwell.metric("dwell_waits_held") == dwell.metric("dwell_streams_open") == 1
    stream.close()
    dwell.await_metric(1, "dwell_streams_ended_total", reason="client")
    dwell.await_waiters(0)


@pytest.mark.parametrize("how", ["field", "last_event_id", "since"])
def test_a_stream_goes_on_behind_the_last_event(backend, follow, how):
    dwell, cache = backend
    cache.set(KEY, b"one")
    known = cursor(dwell)
    if how == "field":
        # What the URL says is of the beginning.
        stream = follow(dwell, f"{KEY}?since=AAAAAAAAAAA", known)
    else:
        stream = follow(dwell, f"{KEY}?{how}={known}")
    dwell.await_waiters(1)
    cache.set(KEY, b"two")
    assert stream.event().data == "two"
    assert follow(dwell, KEY, "no-id-of-ours").event().data == "two"


def test_transports_share_their_cursor(backend, follow):
    dwell, cache = backend
    cache.set(KEY, b"1")
    with follow(dwell) as stream:
        known = stream.event().id
    with dwell.connect() as poll:
        poll.ask(f"{KEY}?since={known}&wait=30")
        dwell.await_metric(0, "dwell_streams_open")
        dwell.await_waiters(1)
        cache.set(KEY, b"2")
        answer = poll.answer()
    assert answer.body == b"2"
    cache.set(KEY, b"3")
    assert follow(dwell, KEY, answer.field("Poll-Cursor")).event().data == "3"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/event-stream, */*;q=0.1", "text/event-stream"),
        ("*/*", "text/plain; charset=utf-8"),
        ("text/event-stream;q=0, text/*", "text/plain; charset=utf-8"),
        ("text/event-stream;q=0.2, text/plain", "text/plain; charset=utf-8"),
    ],
)
def test_a_stream_is_for_those_who_want_one(lone_edge, accept, kind):
    lone_edge.store().set(KEY, b"one")
    with lone_edge.connect() as connection:
        connection.ask(KEY, fields={"Accept": accept})
        assert connection._head().field("Content-Type") == kind
    assert lone_edge.get(KEY, "HEAD", {"Accept": "text/event-stream"}).etag


def test_without_an_application_a_stream_waits_for_the_first_value(lone_edge, follow):
    stream = follow(lone_edge)
    lone_edge.await_waiters(1)
    lone_edge.store().set(KEY, b"first")
    assert stream.event().data == "first"
    # Who had a value is told that it is gone, and has nothing then.
    lone_edge.store().delete(KEY)
    assert stream.event() == Event("", "", "delete")
    lone_edge.store().set(KEY, b"first")
    assert stream.event().data == "first"
    lone_edge.store().delete(KEY)
    assert follow(lone_edge, KEY, stream.id).event().type == "delete"


def test_a_stream_whose_value_goes_is_ended_for_the_applications(backend, app, follow):
    dwell, cache = backend
    app.answer = lambda request: Answer(b"made by the app")
    cache.set(KEY, b"one")
    stream = follow(dwell)
    known = stream.event().id
    cache.delete(KEY)
    assert stream.event() is None
    assert 100 <= stream.retry_ms <= 1000
    again = follow(dwell, KEY, known)
    assert again.event().data == "made by the app"
    assert again.response.field("Cache-Status") == "dwell; fwd=miss"
    # What the application has not stored cannot go away, but news is news.
    cache.set(KEY, b"stored")
    assert again.event().data == "stored"
    seen = {name.lower() for name, _ in app.requests[0].fields}
    assert not seen & {"accept", "last-event-id"}


def test_streams_that_miss_share_one_request(edge, app):
    app.hang()
    app.answer = lambda request: Answer(b"made once")
    with Crowd(edge.address, 50) as crowd:
        crowd.send(request(KEY, fields={"Accept": "text/event-stream"}))
        edge.await_misses(app, 50)
        app.release()
        edge.await_metric(50, "dwell_streams_open")
        edge.store().set(KEY, b"and all go on")
        edge.await_metric(100, "dwell_stream_events_total")
    # Loops share nothing, so each of the two may ask once.
    assert len(app.requests) <= 2


def test_what_the_application_refuses_is_no_stream(edge, app, follow):
    app.answer = lambda request: Answer(b"not yours", status=403)
    response = follow(edge).response
    assert (response.status, response.body) == (403, b"not yours")
    app.stop()
    assert follow(edge).response.status == 502


@pytest.mark.parametrize("rule", ["not-found", "keep-waiting"])
def test_what_a_deletion_is_to_a_stream_is_the_routes_to_say(start_dwell, app, follow, rule):
    route = {"prefix": "/poll/", "on_delete": rule}
    dwell = start_dwell(upstream={"url": app.url}, route=[route])
    dwell.store().set(KEY, b"one")
    stream = follow(dwell)
    assert stream.event().data == "one"
    dwell.store().delete(KEY)
    if rule == "not-found":
        assert stream.event().type == "delete"
    dwell.store().set(KEY, b"two")
    assert stream.event() == Event("two", cursor(dwell))
    assert app.requests == []


def test_a_quiet_stream_is_kept_alive_and_ended_in_its_time(start_dwell, follow):
    dwell = start_dwell(limits={"stream_heartbeat": "100ms", "stream_lifetime": "1s"})
    dwell.store().set(KEY, b"one")
    with Stopwatch() as watch:
        stream = follow(dwell)
        blocks = []
        while (block := stream.block()) is not None:
            blocks.append(block)
    assert 0.7 <= watch.seconds < 20
    # As many as the time has room for; a busy machine leaves some out.
    assert 2 <= blocks.count(":") <= 14
    assert blocks[-1].startswith("retry: ")
    dwell.await_metric(1, "dwell_streams_ended_total", reason="lifetime")
    # The end is that of an answer, so the connection goes on.
    assert stream.get(KEY).body == b"one"


def test_streams_are_counted_with_the_waiters(start_dwell, follow):
    dwell = start_dwell(server={"pollers": 1}, limits={"waiters_max": 1})
    dwell.store().set(KEY, b"one")
    assert follow(dwell).event().data == "one"
    refused = follow(dwell).response
    assert (refused.status, dwell.get(KEY).body) == (503, b"one")
    assert 1 <= int(refused.field("Retry-After")) <= 5


def test_streams_outlast_their_memcached(start_dwell, memcached, follow):
    dwell = start_dwell(memcached={"servers": [memcached.name], "sweep_interval": "50ms"})
    memcached.client().set(KEY, b"one")
    before = follow(dwell)
    assert before.event().data == "one"
    memcached.kill()
    # Nobody knows what is there, so who comes now is told nothing yet, not even of a deletion.
    streams = [
        before,
        follow(dwell),
        follow(dwell, KEY, before.id),
        follow(dwell, "/poll/?k=alice"),
    ]
    dwell.await_waiters(4)
    memcached.start_ready()
    memcached.client().set(KEY, b"two")
    for stream in streams:
        events = [stream.event()]
        # A sweep may find the server back and the value not yet.
        while events[-1].type == "delete":
            events.append(stream.event())
        assert events[-1].data == "two"


def test_a_slow_reader_gets_the_newest_and_no_queue(backend, follow):
    dwell, cache = backend
    padding = b"x" * 200_000
    cache.set(KEY, b"0000" + padding)
    slow = follow(dwell, receive_buffer_bytes=4096)
    quick = follow(dwell)
    assert quick.event().data[:4] == "0000"
    for number in range(1, 60):
        cache.set(KEY, b"%04d" % number + padding)
        assert quick.event().data[:4] == f"{number:04}"
    cache.set(KEY, b"last")
    assert quick.event().data == "last"
    assert dwell.metric("dwell_stream_postponed_total") > 0
    seen = []
    while not seen or seen[-1] != "last":
        seen.append(slow.event().data[:4])
    assert len(seen) < 55
    assert seen == sorted(set(seen)), "in order, and none twice"


def test_one_stream_follows_several_keys(backend, follow, app):
    dwell, cache = backend
    app.answer = lambda request: Answer(status=404)
    cache.set("/poll/a", b"1")
    cache.set("/poll/b", b"2")
    stream = follow(dwell, "/poll/?k=a&k=b&k=c")
    first = [stream.event(), stream.event()]
    assert {(event.type, event.data) for event in first} == {("a", "1"), ("b", "2")}
    ids = cursor(dwell, "/poll/a"), cursor(dwell, "/poll/b"), ""
    assert stream.id == ".".join(ids)
    cache.set("/poll/c", b"3")
    event = stream.event()
    assert (event.type, event.data) == ("c", "3")
    # A part of the id is the cursor of a poll.
    known = stream.id.split(".")
    assert dwell.get(f"/poll/c?since={known[2]}").status == 304
    dwell.await_metric(1, "dwell_streams_open")
    dwell.await_metric(3, "dwell_waits_held")
    stream.close()
    dwell.await_waiters(0)
    cache.set("/poll/b", b"22")
    cache.delete("/poll/a")
    again = follow(dwell, "/poll/?k=a&k=b&k=c", stream.id)
    news = [again.event(), again.event()]
    assert {(event.type, event.data) for event in news} == {("delete", "a"), ("b", "22")}
    known = stream.id.split(".")
    assert again.id == f".{cursor(dwell, '/poll/b')}.{known[2]}"
    # An id of other keys says nothing of these.
    assert follow(dwell, "/poll/?k=c", stream.id).event().data == "3"


def test_a_stream_follows_so_many_keys_and_no_more(lone_edge, follow):
    keys = "&".join(f"k={number}" for number in range(64))
    stream = follow(lone_edge, f"/poll/?{keys}")
    lone_edge.await_waiters(64)
    lone_edge.store().set("/poll/63", b"the last")
    assert stream.event().type == "63"
    assert len(stream.id) == 63 + 11
    for target in (f"/poll/?{keys}&k=64", "/poll/?k=delete"):
        assert follow(lone_edge, target).response.status == 400
    assert follow(lone_edge, f"/poll/?k={'x' * 250}").response.status == 414
    assert follow(lone_edge, "/poll/?k=a%0Ab").response.status == 400


def test_each_key_of_a_stream_counts_as_a_waiter(start_dwell, follow):
    dwell = start_dwell(server={"pollers": 1}, limits={"waiters_max": 3})
    follow(dwell, "/poll/?k=a&k=b")
    dwell.await_waiters(2)
    assert follow(dwell, "/poll/?k=a&k=b").response.status == 503
    assert follow(dwell, "/poll/?k=a").response.status == 200


def test_a_slow_reader_of_several_keys_gets_the_newest(backend, follow):
    dwell, cache = backend
    size = 200_000
    for key in "ab":
        cache.set(f"/poll/{key}", b"0" * size)
    slow = follow(dwell, "/poll/?k=a&k=b", receive_buffer_bytes=4096)
    quick = follow(dwell, "/poll/b")
    assert quick.event().data[0] == "0"
    for number in range(1, 40):
        cache.set("/poll/b", str(number % 10).encode() * size)
        assert quick.event().data[0] == str(number % 10)
    cache.set("/poll/b", b"last")
    seen = []
    while not seen or seen[-1] != ("b", "last"):
        event = slow.event()
        seen.append((event.type, event.data[:4]))
    assert len(seen) < 35
    assert [data for kind, data in seen if kind == "a"] == ["0000"]


def test_a_drain_ends_streams_in_order(edge):
    edge.store().set(KEY, b"one")
    streams = [EventStream(edge.address, KEY) for _ in range(300)]
    for stream in streams:
        assert stream.begin().event().data == "one"
    edge.await_waiters(300)
    with Stopwatch() as watch:
        edge.signal(signal.SIGTERM)
        for stream in streams:
            assert stream.event() is None
            assert 1000 <= stream.retry_ms <= 5000
            assert stream.is_ended()
            stream.close()
        assert edge.wait() == 0
    assert watch.seconds < 30


def test_an_idle_stream_takes_little_memory(start_dwell):
    dwell = start_dwell(server={"pollers": 1})
    dwell.store().set(KEY, b"one")
    asked = request(KEY, fields={"Accept": "text/event-stream"})
    with Crowd(dwell.address, 1000) as warm:
        warm.send(asked)
        dwell.await_metric(1000, "dwell_streams_open")
    dwell.await_waiters(0)
    count = 5000
    before = dwell.resident_bytes()
    with Crowd(dwell.address, count) as crowd:
        crowd.send(asked)
        dwell.await_metric(count, "dwell_streams_open")
        until(lambda: dwell.metric("dwell_stream_events_total") == 1000 + count, "all are told")
        each = (dwell.resident_bytes() - before) / count
        print(f"{each:.0f} bytes of each of {count} streams")
        assert each <= 384


def test_a_stream_that_leaves_takes_nobody_along(lone_edge, cleanup):
    # The first stream and the first of several keys have the same place in their tables.
    store = lone_edge.store()
    one = cleanup.enter_context(EventStream(lone_edge.address, "/poll/a")).begin()
    several = EventStream(lone_edge.address, "/poll/?k=a&k=b").begin()
    cleanup.enter_context(several)
    lone_edge.await_waiters(3)
    one.close()
    lone_edge.await_waiters(2)
    store.set("/poll/b", b"still told")
    assert several.event().data == "still told"
