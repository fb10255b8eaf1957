"""What external memcached tells of changes: a hint that wakes polls before the sweep would.

The sweep is set so far apart here that it cannot have woken anybody; that it is the truth all the
same is what the other tests of memcached show.
"""

import pytest

KEY = "/poll/alice"


@pytest.fixture
def watching(start_dwell, memcached):
    """An edge that looks for itself once a minute, and otherwise when it is told to."""
    return start_dwell(
        memcached={"servers": [memcached.name], "sweep_interval": "60s", "watch": True}
    )


def await_watch(dwell, state=1):
    dwell.await_metric(state, "dwell_feed_watch_up")


def resyncs(dwell):
    return dwell.metric("dwell_feed_resyncs_total")


def test_a_write_wakes_who_waits_by_what_memcached_tells(watching, memcached):
    client = memcached.client()
    client.set(KEY, b"0")
    with watching.connect() as connection:
        etag = watching.get(KEY).etag
        for value in (b"1", b"2"):
            connection.ask(f"{KEY}?wait=30", fields={"If-None-Match": etag})
            watching.await_waiters(1)
            await_watch(watching)
            before = resyncs(watching)
            client.set(KEY, value)
            answer = connection.answer()
            assert answer.body == value
            etag = answer.etag
    # The look at everything with which a watch begins may have found the first change; nothing but
    # a hint has found the second.
    assert resyncs(watching) == before
    assert watching.metric("dwell_feed_hints_total", outcome="read") >= 1
    assert watching.metric("dwell_memcached_sweeps_total") == 0
