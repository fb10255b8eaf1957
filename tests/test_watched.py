"""Who watches what, as the admin listener tells it."""

import json

import pytest

from support.http import Connection
from support.wait import until


def watched(edge, query=""):
    response = edge.admin(f"/-/watched{query}")
    assert response.status == 200, response.body
    return json.loads(response.body)


def hold(edge, cleanup, key, count=1):
    fields = {"If-None-Match": edge.get(key).etag}
    for _ in range(count):
        cleanup.enter_context(edge.connect()).ask(f"{key}?wait=30", fields=fields)


def line(key, polls=0, streams=0):
    watchers = polls + streams
    return {
        "key": key,
        "watchers": watchers,
        "polls": polls,
        "streams": streams,
        "websockets": 0,
    }


def test_nobody_watches_at_first(lone_edge):
    assert watched(lone_edge) == {
        "keys": [],
        "total": {"keys": 0, "watchers": 0},
        "loops": {"asked": 2, "answered": 2},
    }


def test_watchers_of_all_loops_are_added_up(backend, cleanup):
    edge, store = backend
    for key, count in (("/poll/a", 3), ("/poll/b", 12), ("/poll/other/c", 1)):
        store.set(key, b"value")
        hold(edge, cleanup, key, count)
    stream = cleanup.enter_context(edge.connect())
    stream.ask("/poll/a", fields={"Accept": "text/event-stream"})
    edge.await_metric(17, "dwell_waits_held")
    answer = watched(edge)
    lines = [line("/poll/b", polls=12), line("/poll/a", polls=3, streams=1)]
    assert answer["keys"] == [*lines, line("/poll/other/c", polls=1)]
    assert answer["total"] == {"keys": 3, "watchers": 17}
    assert answer["loops"] == {"asked": 2, "answered": 2}
    # The list is cut, and the sums are not.
    answer = watched(edge, "?limit=1")
    assert answer["keys"] == lines[:1]
    assert answer["total"] == {"keys": 3, "watchers": 17}
    answer = watched(edge, "?prefix=%2Fpoll%2Fother%2F")
    assert answer["keys"] == [line("/poll/other/c", polls=1)]
    assert answer["total"] == {"keys": 1, "watchers": 1}


def test_whoever_leaves_watches_no_more(lone_edge, cleanup):
    lone_edge.store().set("/poll/a", b"value")
    fields = {"If-None-Match": lone_edge.get("/poll/a").etag}
    with lone_edge.connect() as connection:
        connection.ask("/poll/a?wait=30", fields=fields)
        until(lambda: watched(lone_edge)["total"]["watchers"] == 1, "one watches")
        lone_edge.store().set("/poll/a", b"other")
        connection.answer()
    assert watched(lone_edge)["keys"] == []


@pytest.mark.parametrize("limit", ["0", "10001", "-1", "x", ""])
def test_a_limit_has_bounds(lone_edge, limit):
    response = lone_edge.admin(f"/-/watched?limit={limit}")
    assert response.status == 400
    assert b"10000" in response.body


def test_it_is_only_read(lone_edge):
    with Connection(lone_edge.admin_address) as connection:
        assert connection.get("/-/watched", "POST", body=b"").status == 405


def test_an_operator_who_hangs_up_is_forgotten(lone_edge):
    for _ in range(20):
        with Connection(lone_edge.admin_address) as connection:
            connection.ask("/-/watched")
    until(lambda: lone_edge.admin("/-/watched").status == 200, "there is room again")
