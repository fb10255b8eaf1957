"""What users of polling and push servers ask for most, each wish a test.

The wishes are those that come up again and again in the trackers of such servers: a state and not a
queue, no wait that is forgotten, no reload that hurts, no memory without a bound. Other tests go
into each matter in depth; here is the promise as its user would put it.
"""

import os
import random
import signal
import threading

import pytest

from support.crowd import Crowd
from support.events import Event, EventStream
from support.http import request
from support.upstream import Answer
from support.wait import until

KEY = "/poll/alice"
MEBIBYTE = 1024 * 1024


def cursor(dwell, key=KEY):
    return dwell.get(key).field("Poll-Cursor")


def test_a_plain_get_is_the_newest_value_and_a_conditional_one_waits_for_the_next(backend):
    dwell, cache = backend
    for value in (b"one", b"two", b"three"):
        cache.set(KEY, value)
    newest = dwell.get(KEY)
    assert newest.body == b"three"
    with dwell.connect() as waiting:
        waiting.ask(KEY, fields={"If-None-Match": newest.etag, "Prefer": "wait=30"})
        dwell.await_waiters(1)
        cache.set(KEY, b"four")
        assert waiting.answer().body == b"four"


def test_no_wait_is_forgotten_with_many_keys(backend):
    """Every one of 500 held polls hears of its own write, in whatever order the writes come."""
    dwell, cache = backend
    keys = [f"/poll/{number}" for number in range(500)]
    cache.set_many(dict.fromkeys(keys, b"old"))
    known = cursor(dwell, keys[0])
    with Crowd(dwell.address, len(keys)) as crowd:
        crowd.send_each(lambda n: request(f"{keys[n]}?since={known}&wait=50"))
        dwell.await_waiters(len(keys))
        for key in random.sample(keys, len(keys)):
            cache.set(key, f"new {key}".encode())
        answers = crowd.answers()
    assert sorted(body for _, _, body in answers) == sorted(f"new {key}".encode() for key in keys)


def test_a_write_between_looking_and_waiting_is_not_lost(lone_edge):
    """Clients ask for the next value again and again while it changes as fast as it can."""
    store, rounds = lone_edge.store(), 300
    store.set(KEY, b"0")

    def write():
        for number in range(1, rounds + 1):
            store.set(KEY, str(number).encode())

    writer = threading.Thread(target=write)
    with lone_edge.connect() as client:
        writer.start()
        known = ""
        while True:
            answer = client.get(f"{KEY}?since={known}&wait=50")
            known = answer.field("Poll-Cursor")
            if answer.body == str(rounds).encode():
                break
    writer.join()


def test_a_full_store_takes_what_is_new_and_lets_go_of_what_is_old(start_dwell):
    dwell = start_dwell(store={"bytes_max": "16MiB"})
    store, value = dwell.store(), os.urandom(MEBIBYTE // 8)
    for number in range(300):
        assert store.set(f"/poll/{number}", value)
    assert dwell.get("/poll/299").body == value
    assert dwell.get("/poll/0").status == 404
    assert dwell.resident_bytes() < 64 * MEBIBYTE


def test_a_poll_by_post_is_answered_from_the_cache(backend, app):
    dwell, cache = backend
    cache.set(KEY, b"value")
    assert dwell.get(KEY, method="POST", body=b"a=1").body == b"value"
    assert app.requests == []


def test_whoever_has_the_value_is_told_so_instead_of_being_sent_it(backend):
    dwell, cache = backend
    cache.set(KEY, b"x" * 100_000)
    answer = dwell.get(f"{KEY}?since={cursor(dwell)}")
    assert (answer.status, answer.body) == (304, b"")


@pytest.mark.parametrize("end", ["expiry", "delete", "flush"])
def test_the_end_of_a_value_is_news(backend, app, end):
    dwell, cache = backend
    app.answer = lambda request: Answer(b"made anew")
    cache.set(KEY, b"value")
    with dwell.connect() as waiting:
        waiting.ask(f"{KEY}?since={cursor(dwell)}&wait=50")
        dwell.await_waiters(1)
        if end == "delete":
            cache.delete(KEY)
        elif end == "flush":
            cache.flush_all()
        else:
            cache.touch(KEY, 1)
        assert waiting.answer().body == b"made anew"


def test_whoever_comes_to_a_stream_is_told_how_it_is_now(backend):
    dwell, cache = backend
    cache.set(KEY, b"how it is")
    with EventStream(dwell.address, KEY) as stream:
        assert stream.begin().event() == Event("how it is", cursor(dwell))


@pytest.mark.parametrize("unknown", ["AAAAAAAAAAA", "urn:uuid:5e94c686", "1700000000:3", "x" * 500])
def test_a_cursor_that_nobody_knows_is_not_waited_on(backend, unknown):
    dwell, cache = backend
    cache.set(KEY, b"value")
    assert dwell.get(f"{KEY}?since={unknown}&wait=50").body == b"value"
    with EventStream(dwell.address, KEY, last_event_id=unknown) as stream:
        assert stream.begin().event().data == "value"


def test_a_thousand_waits_are_no_request_to_the_application(backend, app):
    dwell, cache = backend
    cache.set(KEY, b"value")
    known = cursor(dwell)
    with Crowd(dwell.address, 1000) as crowd:
        crowd.send(request(f"{KEY}?since={known}&wait=1"))
        assert len(crowd.answers()) == 1000
    assert app.requests == []


def test_what_is_too_large_is_said_and_the_rest_is_not_lost(lone_edge):
    store = lone_edge.store()
    store.set(KEY, b"before")
    with pytest.raises(Exception, match="too large"):
        store.set(KEY, b"x" * (2 * MEBIBYTE))
    store.set(KEY, b"after")
    assert lone_edge.get(KEY).body == b"after"


def test_a_slow_client_costs_nobody_and_ends_on_the_newest_value(lone_edge):
    store = lone_edge.store()
    large = b"x" * 200_000
    store.set(KEY, large + b"0")
    with EventStream(lone_edge.address, KEY, receive_buffer_bytes=4096) as slow:
        slow.begin()
        before = lone_edge.resident_bytes()
        for number in range(1, 100):
            store.set(KEY, large + str(number).encode())
        assert lone_edge.resident_bytes() - before < 10 * MEBIBYTE
        seen = 0
        while not (event := slow.event()).data.endswith("x99"):
            seen += 1
        assert event.id == cursor(lone_edge)
        assert seen < 30, "it was told the past"


def test_days_of_coming_and_going_leave_no_memory(lone_edge):
    """In small: the same visits again and again, after which the process is as it was."""
    store = lone_edge.store()
    store.set(KEY, b"value")
    known = cursor(lone_edge)

    def visit():
        for number in range(10):
            with Crowd(lone_edge.address, 200) as crowd:
                crowd.send(request(f"{KEY}?since={known}&wait=50"))
                lone_edge.await_waiters(200)
                store.set(KEY, f"visit {number}".encode())
                assert len(crowd.answers()) == 200
                store.set(KEY, b"value")
        lone_edge.await_connections(0)

    visit()
    before = lone_edge.resident_bytes()
    visit()
    visit()
    assert lone_edge.resident_bytes() - before < MEBIBYTE


def test_seven_tabs_are_not_one_too_many(lone_edge):
    """Browsers open six connections to a host; one of them is enough for as many keys."""
    store = lone_edge.store()
    names = [f"tab{number}" for number in range(7)]
    target = "/poll/?" + "&".join(f"k={name}" for name in names)
    with EventStream(lone_edge.address, target) as stream:
        stream.begin()
        for name in names:
            store.set(f"/poll/{name}", name.encode())
            event = stream.event()
            assert (event.type, event.data) == (name, name)


def test_a_failure_of_one_part_is_over_when_it_is(backend, app, request):
    """Nothing has to be restarted after the cache or the application has been away."""
    dwell, cache = backend
    app.stop()
    assert dwell.get("/poll/gone").status == 502
    app.start()
    until(lambda: dwell.get("/poll/gone").status == 200, "the application is found again")
    if "memcached" in request.node.name:
        memcached = request.getfixturevalue("memcached")
        memcached.pause()
        assert dwell.get(KEY).body == b"from the app", "memcached was not waited for"
        memcached.signal(signal.SIGCONT)
        until(lambda: cache.set(KEY, b"back"), "memcached is back")
        until(lambda: dwell.get(KEY).body == b"back", "it is found again")
