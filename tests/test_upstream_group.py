"""Several servers have the application: which is asked, and what if one fails."""

import pytest

from support.upstream import Answer, ScriptedUpstream, Upstream
from support.wait import until

KEY = "/poll/alice"


@pytest.fixture
def apps(cleanup):
    """Two servers of one application."""
    pair = [Upstream().start(), Upstream().start()]
    for app in pair:
        cleanup.callback(app.stop)
    return pair


@pytest.fixture
def edge(start_dwell, apps):
    # Each loop finds out by itself which server answers.
    settings = {"url": [app.url for app in apps], "failures_max": 3}
    return start_dwell(upstream=settings, server={"pollers": 1})


def ask(dwell, count, method="GET", target="/page"):
    with dwell.connect() as connection:
        body = b"x" if method == "POST" else None
        return [connection.get(target, method, body=body).status for _ in range(count)]


def test_requests_are_spread(edge, apps):
    assert ask(edge, 64) == [200] * 64
    assert sum(len(app.requests) for app in apps) == 64
    assert all(len(app.requests) > 8 for app in apps)


def test_a_busy_server_is_spared(edge, apps, cleanup):
    busy, _ = apps
    busy.hang()
    held = []

    def has_come_to_the_busy_one():
        held.append(cleanup.enter_context(edge.connect()))
        held[-1].ask("/page")
        until(lambda: sum(len(app.requests) for app in apps) == len(held), "it has come somewhere")
        return busy.requests

    until(has_come_to_the_busy_one, "it gets one")
    before = len(busy.requests)
    assert ask(edge, 32) == [200] * 32
    assert len(busy.requests) == before
    busy.release()
    assert {connection.answer().status for connection in held} == {200}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_dead_server_costs_no_request(edge, apps, method):
    apps[0].stop()
    assert ask(edge, 40, method) == [200] * 40
    up = {app.url: edge.metric("dwell_upstream_server_up", server=app.url) for app in apps}
    assert up == {apps[0].url: 0, apps[1].url: 1}
    assert edge.metric("dwell_upstream_requests_total", outcome="moved") >= 3


def test_a_server_that_comes_back_is_asked_again(edge, apps):
    apps[0].stop()
    assert ask(edge, 40) == [200] * 40
    apps[0].start()
    before = len(apps[0].requests)
    until(lambda: ask(edge, 1) == [200] and len(apps[0].requests) > before + 3, "it is asked again")


def test_a_post_is_never_sent_twice(cleanup, start_dwell):
    cutting = [ScriptedUpstream(b""), ScriptedUpstream(b"")]
    for app in cutting:
        cleanup.callback(app.close)
    dwell = start_dwell(upstream={"url": [app.url for app in cutting]})
    assert ask(dwell, 1, "POST") == [502]
    assert sum(app.connections for app in cutting) == 1
    assert ask(dwell, 1) == [502]
    assert sum(app.connections for app in cutting) == 3


def test_when_all_have_failed_each_request_tries_them(start_dwell, apps):
    settings = {"url": [app.url for app in apps], "failures_max": 2}
    dwell = start_dwell(upstream=settings, server={"pollers": 1})
    for app in apps:
        app.stop()
    assert ask(dwell, 12) == [502] * 12
    assert dwell.metric("dwell_upstream_server_up") == 0
    for app in apps:
        app.start()
    assert ask(dwell, 12) == [200] * 12


def test_when_all_health_checks_fail_requests_are_refused_at_once(start_dwell, apps):
    health = {"health_path": "/well", "health_interval": "200ms", "failures_max": 2}
    settings = {"url": [app.url for app in apps], **health}
    dwell = start_dwell(upstream=settings, server={"pollers": 1})
    for app in apps:
        app.answer = lambda request: Answer(b"", 500)
    dwell.await_metric(0, "dwell_upstream_server_up")
    response = dwell.get("/page")
    assert (response.status, response.body) == (503, b"upstream: no server answers\n")
    assert 1 <= int(response.field("Retry-After")) <= 5
    for app in apps:
        app.answer = lambda request: Answer()
    until(lambda: ask(dwell, 1) == [200], "they are asked again")


def test_hits_do_not_care(edge, apps):
    for app in apps:
        app.stop()
    ask(edge, 20)
    edge.store().set(KEY, b"value")
    assert edge.get(KEY).body == b"value"


def test_a_sick_server_is_found_by_its_health_path(start_dwell, apps):
    sick = apps[0]

    def answer(request):
        return Answer(b"", 500 if request.target == "/well" else 200)

    sick.answer = answer
    health = {"health_path": "/well", "health_interval": "500ms", "failures_max": 2}
    settings = {"url": [app.url for app in apps], **health}
    dwell = start_dwell(upstream=settings, server={"pollers": 1})
    dwell.await_metric(0, "dwell_upstream_server_up", server=sick.url)
    pages = [request for request in sick.requests if request.target == "/page"]
    assert ask(dwell, 20) == [200] * 20
    assert [request for request in sick.requests if request.target == "/page"] == pages
    sick.answer = lambda request: Answer()
    dwell.await_metric(1, "dwell_upstream_server_up", server=sick.url)


def test_a_full_queue_is_503_and_a_wait_in_it_is_bounded(start_dwell, apps, cleanup):
    settings = {"connections_max": 1, "queue_max": 1, "queue_timeout": "2s"}
    dwell = start_dwell(upstream={"url": apps[0].url, **settings}, server={"pollers": 1})
    apps[0].hang()
    clients = [cleanup.enter_context(dwell.connect()) for _ in range(3)]
    clients[0].ask("/a")
    apps[0].await_requests(1)
    clients[1].ask("/b")
    dwell.await_metric(2, "dwell_upstream_outstanding")
    refused = clients[2].get("/c")
    assert (refused.status, refused.body) == (503, b"upstream: requests waiting exceed 1\n")
    late = clients[1].answer()
    assert late.status == 503
    assert int(late.field("Retry-After")) >= 1
    assert b"no connection became free" in late.body
    apps[0].release()
    assert clients[0].answer().status == 200
