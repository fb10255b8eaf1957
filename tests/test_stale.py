"""The last known value, where nothing newer is to be had; and what is not asked for again."""

import pytest

from support.upstream import Answer
from support.wait import until

KEY = "/poll/alice"
FAILURES = pytest.mark.parametrize("failure", ["status", "gone"])


def fail(app, failure):
    if failure == "gone":
        app.stop()
    else:
        app.answer = lambda request: Answer(b"broken", 500)


def start(start_dwell, app, memcached=None, **rules):
    sections = {"upstream": {"url": app.url}, "route": [{"prefix": "/poll/", **rules}]}
    if memcached:
        sections["memcached"] = {
            "servers": [memcached.name],
            "sweep_interval": "50ms",
        }
    return start_dwell(server={"pollers": 1}, **sections)


@FAILURES
def test_the_last_answer_is_given_when_the_application_fails(start_dwell, app, failure):
    dwell = start(start_dwell, app, negative="0s")
    fresh = dwell.get(KEY)
    assert fresh.body == b"from the app"
    fail(app, failure)
    stale = dwell.get(KEY)
    assert (stale.status, stale.body) == (200, b"from the app")
    assert stale.field("Poll-Cursor") == fresh.field("Poll-Cursor")
    status = stale.field("Cache-Status")
    assert status.startswith("dwell; fwd=stale")
    assert ("fwd-status=500" in status) == (failure == "status")
    dwell.await_metric(1, "dwell_polls_total", outcome="stale")


@FAILURES
def test_the_last_value_of_memcached_is_given_when_both_fail(start_dwell, app, memcached, failure):
    dwell = start(start_dwell, app, memcached)
    memcached.client().set(KEY, b"value")
    assert dwell.get(KEY).body == b"value"
    memcached.kill()
    fail(app, failure)
    for method in ["GET", "POST"]:
        body = b"" if method == "POST" else None
        with dwell.connect() as connection:
            stale = connection.get(KEY, method, body=body)
        assert (stale.status, stale.body) == (200, b"value")
    memcached.start_ready()
    memcached.client().set(KEY, b"newer")
    until(lambda: dwell.get(KEY).body == b"newer", "memcached answers again")


def test_a_dead_memcached_without_an_application_gives_the_last_value(start_dwell, memcached):
    settings = {"servers": [memcached.name], "sweep_interval": "50ms"}
    dwell = start_dwell(memcached=settings, server={"pollers": 1})
    memcached.client().set(KEY, b"value")
    memcached.client().set("/poll/bob", b"value")
    cursor = dwell.get(KEY).field("Poll-Cursor")
    dwell.get("/poll/bob")
    memcached.client().delete("/poll/bob")
    assert dwell.get("/poll/bob").status == 404
    memcached.kill()
    stale = dwell.get(KEY)
    assert (stale.status, stale.body) == (200, b"value")
    assert stale.field("Cache-Status").startswith("dwell; hit; ttl=-")
    assert dwell.get(f"{KEY}?since={cursor}").status == 304
    # That it was deleted is the last that is known of this one.
    assert dwell.get("/poll/bob").status == 503


def test_who_has_the_stale_value_is_held_on_and_gets_the_next(start_dwell, app, memcached):
    dwell = start(start_dwell, app, memcached)
    memcached.client().set(KEY, b"value")
    cursor = dwell.get(KEY).field("Poll-Cursor")
    memcached.kill()
    app.stop()
    with dwell.connect() as connection:
        connection.ask(f"{KEY}?since={cursor}&wait=25")
        dwell.await_waiters(1)
        memcached.start_ready()
        memcached.client().set(KEY, b"newer")
        assert connection.answer().body == b"newer"


def test_who_has_the_stale_answer_is_held_on_over_the_embedded_store(start_dwell, app):
    dwell = start(start_dwell, app)
    cursor = dwell.get(KEY).field("Poll-Cursor")
    app.stop()
    with dwell.connect() as connection:
        connection.ask(f"{KEY}?since={cursor}&wait=25")
        dwell.await_waiters(1)
        dwell.store().set(KEY, b"newer")
        assert connection.answer().body == b"newer"


@FAILURES
def test_nothing_is_given_where_that_is_off(start_dwell, app, failure):
    dwell = start(start_dwell, app, stale_if_error="0s")
    assert dwell.get(KEY).status == 200
    fail(app, failure)
    assert dwell.get(KEY).status >= 500


@pytest.mark.parametrize(
    "fields",
    [
        (("Cache-Control", "private"),),
        (("Cache-Control", "no-store"),),
        (("Cache-Control", "max-age=9, must-revalidate"),),
        (("Cache-Control", "stale-if-error=0"),),
        (("Set-Cookie", "a=b"),),
        (("Vary", "Cookie"),),
    ],
    ids=["private", "no_store", "must_revalidate", "by_name", "cookie", "vary"],
)
def test_what_may_not_be_given_stale_is_not(start_dwell, app, fields):
    dwell = start(start_dwell, app)
    app.answer = lambda request: Answer(b"once", fields=fields)
    assert dwell.get(KEY).body == b"once"
    fail(app, "status")
    assert dwell.get(KEY).status == 500


def test_nobody_is_given_what_was_made_for_another(start_dwell, app):
    dwell = start(start_dwell, app)
    token = {"Authorization": "Bearer x"}
    assert dwell.get(KEY, "GET", token).status == 200
    fail(app, "status")
    assert dwell.get(KEY).status == 500
    assert dwell.get(KEY, "GET", token).status == 500


def test_a_404_ends_what_was_known(start_dwell, app):
    dwell = start(start_dwell, app)
    assert dwell.get(KEY).status == 200
    app.answer = lambda request: Answer(b"gone", 404)
    assert dwell.get(KEY).status == 404
    fail(app, "status")
    assert dwell.get(KEY).status == 500


@FAILURES
def test_a_key_that_failed_is_not_asked_for_again_at_once(start_dwell, app, failure):
    dwell = start(start_dwell, app, negative="1h")
    fail(app, failure)
    first = dwell.get(KEY)
    before = len(app.requests)
    with dwell.connect() as connection:
        for _ in range(10):
            again = connection.get(KEY)
            assert (again.status, again.body) == (first.status, first.body)
        assert connection.get("/poll/bob").status == first.status
    assert len(app.requests) - before == (failure == "status")
    dwell.await_metric(10, "dwell_upstream_requests_total", outcome="remembered")


def test_a_key_that_failed_is_asked_for_again_in_the_end(start_dwell, app):
    dwell = start(start_dwell, app, negative="100ms")
    fail(app, "status")
    assert dwell.get(KEY).status == 500
    app.answer = lambda request: Answer()
    until(lambda: dwell.get(KEY).status == 200, "it is asked for again")


def test_who_comes_with_a_name_of_their_own_is_always_sent_on(start_dwell, app):
    dwell = start(start_dwell, app, negative="1h")
    fail(app, "status")
    assert dwell.get(KEY).status == 500
    app.answer = lambda request: Answer(b"yours")
    assert dwell.get(KEY, "GET", {"Authorization": "Bearer x"}).body == b"yours"
    assert dwell.get(KEY).status == 500


@pytest.mark.parametrize(("setting", "requests"), [("0s", 5), ("1h", 1)])
def test_a_404_is_remembered_where_the_route_says_so(start_dwell, app, setting, requests):
    dwell = start(start_dwell, app, negative_not_found=setting)
    app.answer = lambda request: Answer(b"no such thing", 404)
    for _ in range(5):
        response = dwell.get(KEY)
        assert (response.status, response.body) == (404, b"no such thing")
    assert len(app.requests) == requests


def test_a_long_refusal_is_remembered_in_short(start_dwell, app):
    dwell = start(start_dwell, app, negative="1h")
    app.answer = lambda request: Answer(b"x" * 100_000, 500)
    assert len(dwell.get(KEY).body) == 100_000
    again = dwell.get(KEY)
    assert again.status == 500
    assert len(again.body) < 100
