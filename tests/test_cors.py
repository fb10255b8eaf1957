"""Which web pages may read the answers of a route."""

import pytest

from support.upstream import Answer

KEY = "/poll/alice"
PAGE = {"Origin": "https://app.example"}
OTHER = {"Origin": "https://evil.example"}
ALLOW = "Access-Control-Allow-Origin"


@pytest.fixture
def listed(start_dwell, app):
    route = {
        "prefix": "/poll/",
        "cors_origins": ["https://app.example", "http://localhost:5173"],
        "cors_credentials": True,
    }
    return start_dwell(route=[route], upstream={"url": app.url})


def said(answer):
    return (answer.field(ALLOW), answer.field("Access-Control-Allow-Credentials"))


def test_a_listed_page_may_read_every_answer(listed, app):
    listed.store().set(KEY, b"value")
    hit = listed.get(KEY, fields=PAGE)
    cursor = hit.field("Poll-Cursor")
    answers = [
        (200, hit),
        (304, listed.get(KEY, fields={**PAGE, "If-None-Match": hit.etag})),
        (204, listed.get(f"{KEY}?since={cursor}&wait=50ms", fields=PAGE)),
        (400, listed.get(f"{KEY}?wait=soon", fields=PAGE)),
        (405, listed.get(KEY, "PATCH", PAGE)),
        (200, listed.get("/poll/missing", fields=PAGE)),
    ]
    for status, answer in answers:
        assert (answer.status, *said(answer)) == (status, PAGE["Origin"], "true")
        assert "Origin" in answer.all("Vary")
    app.stop()
    failed = listed.get("/poll/never-answered", fields=PAGE)
    assert (failed.status, *said(failed)) == (502, PAGE["Origin"], "true")


def test_another_page_may_not_and_caches_are_told(listed):
    listed.store().set(KEY, b"value")
    for fields in (OTHER, {}, {"Origin": "null"}):
        answer = listed.get(KEY, fields=fields)
        assert (answer.status, *said(answer)) == (200, None, None)
        assert answer.all("Vary") == ["Origin"]


def test_a_poll_that_was_held_is_answered_for_its_page(listed, cleanup):
    for key in (KEY, "/poll/bob"):
        listed.store().set(key, b"one")
    cursor = listed.get(KEY).field("Poll-Cursor")
    held = {}
    for name, fields in (("page", PAGE), ("other", OTHER)):
        held[name] = cleanup.enter_context(listed.connect())
        held[name].ask(f"{KEY}?since={cursor}&wait=30", fields=fields)
    both = cleanup.enter_context(listed.connect())
    both.ask(f"/poll/?k=alice&k=bob&since={cursor}.{cursor}&wait=30", fields=PAGE)
    listed.await_waiters(4)
    listed.store().set(KEY, b"two")
    assert said(held["page"].answer()) == (PAGE["Origin"], "true")
    assert said(held["other"].answer()) == (None, None)
    assert said(both.answer()) == (PAGE["Origin"], "true")


def test_a_stream_too(listed, cleanup):
    listed.store().set(KEY, b"one")
    fields = {**PAGE, "Accept": "text/event-stream"}
    stream = cleanup.enter_context(listed.connect())
    stream.ask(KEY, fields=fields)
    head = stream._head()
    assert (head.status, *said(head)) == (200, PAGE["Origin"], "true")


def test_the_applications_own_fields_give_way(listed, app):
    own = ((ALLOW, "*"), ("access-control-allow-credentials", "false"), ("Vary", "Accept"))
    app.answer = lambda request: Answer(b"x", fields=own)
    answer = listed.get(KEY, fields=PAGE)
    assert said(answer) == (PAGE["Origin"], "true")
    assert answer.all("Vary") == ["Accept", "Origin"]
    # What is no poll is the application's business alone.
    assert listed.get("/page", fields=PAGE).all(ALLOW) == ["*"]


def preflight(edge, origin, target=KEY, **asks):
    fields = {
        **origin,
        "Access-Control-Request-Method": asks.get("method", "GET"),
        "Access-Control-Request-Headers": asks.get("headers", "if-none-match,prefer"),
    }
    return edge.get(target, "OPTIONS", fields)


def test_a_preflight_is_answered_at_the_edge(listed, app):
    answer = preflight(listed, PAGE)
    assert (answer.status, *said(answer)) == (204, PAGE["Origin"], "true")
    assert answer.field("Access-Control-Allow-Methods") == "GET, HEAD, POST, QUERY"
    assert answer.field("Access-Control-Allow-Headers") == "if-none-match,prefer"
    assert answer.field("Access-Control-Max-Age") == "600"
    refused = preflight(listed, OTHER)
    assert (refused.status, *said(refused)) == (204, None, None)
    assert refused.field("Access-Control-Allow-Methods") is None
    assert app.requests == []
    # Without a question there is nothing to answer.
    assert listed.get(KEY, "OPTIONS", PAGE).status == 405


def test_any_page(start_dwell):
    edge = start_dwell(route=[{"prefix": "/poll/", "cors_origins": "*"}])
    edge.store().set(KEY, b"value")
    for fields in ({}, PAGE, OTHER):
        answer = edge.get(KEY, fields=fields)
        assert (*said(answer), answer.field("Vary")) == ("*", None, None)
    assert preflight(edge, OTHER).field(ALLOW) == "*"


def test_without_the_option_nothing_is_said(start_dwell):
    edge = start_dwell()
    edge.store().set(KEY, b"value")
    answer = edge.get(KEY, fields=PAGE)
    assert (*said(answer), answer.field("Vary")) == (None, None, None)
    assert preflight(edge, PAGE).status == 405
