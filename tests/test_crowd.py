"""Many clients on one key."""

import resource

import pytest

from support.crowd import Crowd
from support.http import request
from support.wait import Stopwatch, until

KEY = "/poll/news"


def held_poll(dwell, wait="55"):
    """The request of a client that knows the current value."""
    return request(f"{KEY}?wait={wait}", fields={"If-None-Match": dwell.get(KEY).etag})


def test_five_hundred_clients_of_one_key_all_get_the_value(backend):
    dwell, cache = backend
    cache.set(KEY, b"old")
    with Crowd(dwell.address, 500) as crowd:
        for value in (b"first", b"second"):
            crowd.send(held_poll(dwell))
            dwell.await_waiters(500)
            cache.set(KEY, value)
            answers = crowd.answers()
            assert {(status, body) for status, _, body in answers} == {(200, value)}
            dwell.await_waiters(0)


def test_five_hundred_keys_are_watched_at_once(backend):
    dwell, cache = backend
    keys = [f"/poll/user{place}" for place in range(500)]
    cache.set_many(dict.fromkeys(keys, b"old"))
    etag = dwell.get(keys[0]).etag
    with Crowd(dwell.address, len(keys)) as crowd:
        fields = {"If-None-Match": etag}
        crowd.send_each(lambda place: request(f"{keys[place]}?wait=55", fields=fields))
        dwell.await_waiters(len(keys))
        dwell.await_metric(len(keys), "dwell_watched_keys")
        cache.set_many({key: key for key in keys})
        bodies = {body.decode() for _, _, body in crowd.answers()}
        assert bodies == set(keys)
    dwell.await_metric(0, "dwell_watched_keys")


def test_clients_that_leave_are_forgotten(backend):
    dwell, cache = backend
    cache.set(KEY, b"old")
    with Crowd(dwell.address, 100) as crowd:
        crowd.send(held_poll(dwell))
        dwell.await_waiters(100)
        crowd.leave(60)
        dwell.await_waiters(40)
        cache.set(KEY, b"new")
        assert len(crowd.answers()) == 40
    dwell.await_waiters(0)
    # The scrape comes over the admin listener, so no client is left.
    dwell.await_connections(0)


def test_a_client_that_says_goodbye_is_forgotten(backend):
    dwell, cache = backend
    cache.set(KEY, b"old")
    with dwell.connect() as connection:
        connection.send(held_poll(dwell))
        dwell.await_waiters(1)
    dwell.await_waiters(0)


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 11_000, reason="needs 11,000 descriptors"
)
@pytest.mark.timeout(180)
def test_ten_thousand_held_polls_are_answered_by_one_write(start_dwell):
    count = 10_000
    dwell = start_dwell()
    store = dwell.store()
    store.set(KEY, b"old")
    with Crowd(dwell.address, count) as crowd:
        crowd.send(held_poll(dwell))
        dwell.await_metric(count, "dwell_waits_held")
        # What came before may not be quite over yet.
        until(lambda: dwell.cpu_share(1) < 0.1, "waiting costs nothing")
        with Stopwatch() as watch:
            store.set(KEY, b"new")
            answers = crowd.answers(60)
        assert len(answers) == count
        assert {(status, body) for status, _, body in answers} == {(200, b"new")}
        assert watch.seconds < 30
        dwell.await_waiters(0)
        assert dwell.get(KEY).body == b"new"
    dwell.await_connections(0)
