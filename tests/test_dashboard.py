"""The dashboard on the admin listener: its stream of figures, and its page in a real browser."""

import json
import re
import signal
import socket

import pytest

from support import ports
from support.events import EventStream
from support.http import Connection
from support.wait import until
from support.websocket import WebSocket

# One browser for all.
pytestmark = pytest.mark.xdist_group("browser")

PAGE, EVENTS = "/-/", "/-/dashboard/events"
KEY = "/poll/alice"
VIEWERS_MAX = 32

# Whatever the policy of the page forbids, and every error in it, is remembered.
WATCH = """
addEventListener("securitypolicyviolation", (event) => {
  (window.faults ??= []).push(`${event.violatedDirective}: ${event.blockedURI}`);
});
addEventListener("error", (event) => (window.faults ??= []).push(event.message));
addEventListener("unhandledrejection", (event) => (window.faults ??= []).push(`${event.reason}`));
"""
STATE = "document.getElementById('state-text').textContent"


def viewer(dwell):
    return EventStream(dwell.admin_address, EVENTS).begin()


def history(stream):
    event = stream.event()
    assert event.type == "history"
    return json.loads(event.data)


def figures(stream):
    event = stream.event()
    assert event.type == "message"
    return json.loads(event.data)


def open_page(browser, dwell, **options):
    url = f"http://{ports.text(dwell.admin_address)}{PAGE}"
    page = browser.page(url, before=WATCH, **options)
    page.wait_for(f"{STATE} !== 'connecting'")
    return page


def row(page, table, name):
    """The value in the row of this name."""
    rows = dict(
        page.run(
            f"[...document.querySelectorAll('#{table} tr')]"
            ".map((row) => [row.querySelector('th').innerText, row.lastChild.innerText])"
        )
    )
    return rows[name]


def await_row(page, table, name, value):
    until(lambda: row(page, table, name) == value, f"{name} is {value}")


def test_the_page_may_run_nothing_but_its_own(lone_edge):
    response = lone_edge.admin(PAGE)
    assert response.status == 200
    assert response.field("Content-Type") == "text/html; charset=utf-8"
    policy = response.field("Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2
    assert "unsafe" not in policy
    with Connection(lone_edge.admin_address) as connection:
        assert connection.get(PAGE, "HEAD").body == b""
        assert connection.get(PAGE, "POST", body=b"").status == 405
        assert connection.get(EVENTS, "POST", body=b"").status == 405


def test_the_figures_come_every_second(lone_edge):
    with viewer(lone_edge) as stream:
        assert history(stream) == []
        first = figures(stream)
        second = figures(stream)
        assert 1000 <= second["numbers"]["at"] - first["numbers"]["at"] < 10_000
        lone_edge.store().set(KEY, b"value")
        lone_edge.get(KEY)
        # On a busy machine figures may have been on their way already.
        while second["numbers"]["polls"]["hit"] == first["numbers"]["polls"]["hit"]:
            second = figures(stream)
    assert second["numbers"]["polls"]["hit"] - first["numbers"]["polls"]["hit"] == 1
    assert second["numbers"]["store"]["items"] == 1
    assert second["upstreams"] == []


def test_a_second_viewer_begins_with_the_past_of_the_first(lone_edge):
    with viewer(lone_edge) as first:
        history(first)
        seen = [figures(first)["numbers"]["at"] for _ in range(3)]
        with viewer(lone_edge) as second:
            past = [numbers["at"] for numbers in history(second)]
            assert past[:3] == seen
            now, ours = figures(second)["numbers"]["at"], seen[-1]
            assert now >= past[-1]
            while ours < now:
                ours = figures(first)["numbers"]["at"]
            assert ours == now
            # From here on both are sent the same.
            assert figures(first)["numbers"]["at"] == figures(second)["numbers"]["at"]


def test_the_past_is_forgotten_when_nobody_looks(lone_edge):
    with viewer(lone_edge) as stream:
        history(stream)
        figures(stream)

    def is_forgotten():
        with viewer(lone_edge) as stream:
            return history(stream) == []

    until(is_forgotten, "the first viewer has left")


def test_viewers_are_bounded(lone_edge, cleanup):
    streams = [cleanup.enter_context(viewer(lone_edge)) for _ in range(VIEWERS_MAX)]
    assert all(history(stream) is not None for stream in streams)
    refused = cleanup.enter_context(viewer(lone_edge)).response
    assert (refused.status, refused.field("Retry-After")) == (503, "10")
    assert lone_edge.admin("/-/health").status == 200
    streams[0].close()

    def is_let_in():
        with viewer(lone_edge) as stream:
            return stream.response.status == 200

    until(is_let_in, "the place of who has left is free")


def test_who_drains_says_so(start_dwell, cleanup):
    lone_edge = start_dwell(limits={"drain_timeout": "20s"})
    lone_edge.store().set(KEY, b"value")
    fields = {"If-None-Match": lone_edge.get(KEY).etag}
    stream = cleanup.enter_context(viewer(lone_edge))
    history(stream)
    assert figures(stream)["draining"] is False
    # A request that is not complete keeps the server for as long as it may drain.
    slow = cleanup.enter_context(lone_edge.connect())
    slow.send(b"GET / HTTP/1.1\r\n")
    cleanup.enter_context(lone_edge.connect()).ask(f"{KEY}?wait=30", fields=fields)
    lone_edge.await_waiters(1)
    lone_edge.signal(15)
    # Those of before may still be on their way; the stream ends with the process.
    until(lambda: figures(stream)["draining"], "it says so")


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_shows_what_happens(edge, app, browser, cleanup, tmp_path, width, height, dark):
    page = open_page(browser, edge, width=width, height=height, dark=dark)
    cleanup.callback(page.close)
    store = edge.store()
    store.set(KEY, b"value")
    fields = {"If-None-Match": edge.get(KEY).etag}
    edge.get("/poll/nobody")
    for _ in range(3):
        cleanup.enter_context(edge.connect()).ask(f"{KEY}?wait=30", fields=fields)
    cleanup.enter_context(EventStream(edge.address, KEY).begin())
    await_row(page, "waiters", "long-polls", "3")
    await_row(page, "waiters", "event streams", "1")
    cleanup.enter_context(WebSocket(edge.address, KEY))
    await_row(page, "waiters", "WebSockets", "1")
    await_row(page, "connections", "streams", "2")
    await_row(page, "connections", "held polls", "3")
    assert row(page, "cache", "items") == "1"
    # How long it took to answer, as something was asked of it.
    until(lambda: re.search(r"^> 10 s$| m?s$", row(page, "upstream", app.url)), "its time is shown")
    assert "slowest first" in page.text("#upstream-note")
    assert page.text("#state-text") == "live"
    assert page.run("document.querySelectorAll('#polls-chart path').length") > 0
    # Nothing is wider than the screen, and nothing was forbidden or failed.
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("window.faults ?? []") == []
    page.screenshot(tmp_path / "dashboard.png")


def test_responses_are_shown_by_status_and_the_title_tells_processes_apart(
    edge, app, browser, cleanup
):
    page = open_page(browser, edge)
    cleanup.callback(page.close)
    app.stop()
    edge.store().set(KEY, b"value")
    assert edge.get(KEY).status == 200
    assert edge.get("/page").status == 502
    shown = (
        "[...document.querySelectorAll('#responses-legend li:not([hidden])')].map(e => e.innerText)"
    )
    until(
        lambda: [text[:3] for text in page.run(shown)] == ["2xx", "5xx"],
        "the two classes are shown",
    )
    assert page.run("document.querySelectorAll('#responses-chart path').length") > 0
    # Behind a tunnel, the dashboards of several machines have one address.
    place = f"{socket.gethostname()} · {ports.text(edge.admin_address)}"
    page.wait_for(f"document.title === '0 waiting · {place} · Dwell'")
    assert page.text("#facts").startswith(f"{place} · version ")
    assert " of " in row(page, "process", "open files")
    # An hour has the same readings in steps of ten seconds.
    page.run("document.getElementById('range').click()")
    assert page.text(".begin") == "1 h ago"
    assert page.run("coarse.length") >= 1
    page.run("document.getElementById('range').click()")
    assert page.text(".begin") == "2 min ago"
    assert page.run("window.faults ?? []") == []


def cells(page, table, name):
    """The values in the row of this name, of a table with columns."""
    rows = page.run(
        f"[...document.querySelectorAll('#{table} tr')]"
        ".map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    return {row[0]: row[1:] for row in rows}.get(name)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_routes_and_listeners_have_their_figures(start_dwell, browser, cleanup, width, dark):
    dwell = start_dwell(
        route=[{"prefix": "/poll/"}, {"prefix": "/live/", "publish": True}],
        publish={"token": "0123456789abcdef"},
    )
    dwell.store().set(KEY, b"value")
    fields = {"If-None-Match": dwell.get(KEY).etag}
    for _ in range(3):
        cleanup.enter_context(dwell.connect()).ask(f"{KEY}?wait=30", fields=fields)
    cleanup.enter_context(EventStream(dwell.address, "/live/bob").begin())
    dwell.await_waiters(4)
    assert dwell.get("/live/nobody").status == 404
    with dwell.connect() as client:
        assert client.get("/live/alice", "PUT", body=b"value").status == 401
    page = open_page(browser, dwell, width=width, dark=dark)
    cleanup.callback(page.close)
    until(lambda: (cells(page, "routes", "/poll/") or [""] * 2)[1] == "3", "three polls wait")
    assert cells(page, "routes", "/live/")[1] == "1"
    assert "1 response" in page.text("#routes-note").replace("responses", "response")
    address = ports.text(dwell.address)
    # Those that wait, and the one that follows the page, are open.
    opened = dwell.metric("dwell_listener_connections_open", listener=address)
    assert opened == dwell.metric("dwell_connections_open") >= 4
    until(lambda: cells(page, "listeners", address)[0] == str(int(opened)), "they are shown")
    # What was refused, and what is held, came by this listener.
    assert int(cells(page, "listeners", address)[-1]) >= 7
    with dwell.connect() as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert client.answer().status == 400
    until(
        lambda: page.text("#listeners-note").startswith("So far 1 request rejected"),
        "what was rejected is shown",
    )
    assert cells(page, "listeners", address)[2] != "0/s"
    assert cells(page, "listeners", address)[3] == "0/s"
    refused = dwell.metric("dwell_listener_bad_requests_total", listener=address)
    assert refused == dwell.metric("dwell_bad_requests_total") == 1
    by_class = {"listener": address, "status_class": "4xx"}
    assert dwell.metric("dwell_listener_responses_total", **by_class) == 3
    # Rates are of what comes while the page is open.
    until(
        lambda: dwell.get(KEY).status == 200 and cells(page, "routes", "/poll/")[2] == "100 %",
        "the share of the cache is shown",
    )
    until(lambda: cells(page, "routes", "/poll/")[3].endswith("s"), "the response time is shown")
    assert cells(page, "routes", "/live/")[3] == "–"
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("window.faults ?? []") == []


def facts(page, table):
    """The rows of a table of names with texts."""
    rows = page.run(
        f"[...document.querySelectorAll('#{table} tr')]"
        ".map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    return dict(rows)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_configuration_and_its_reloads_are_shown(start_dwell, browser, cleanup, width):
    secret = "0123456789abcdef"
    dwell = start_dwell(publish={"token": secret}, limits={"waiters_max": 77})
    page = open_page(browser, dwell, width=width)
    cleanup.callback(page.close)
    until(lambda: facts(page, "config").get("last reload") == "none", "no reload is shown")
    assert facts(page, "config")["file"].endswith(".toml")
    assert facts(page, "config")["generation"] == "1, that of the start"
    assert "leaves room for" in facts(page, "config")["connections"]
    assert "control group" in facts(page, "config")["memory"]
    assert page.run("document.querySelectorAll('.mark').length") == 0

    dwell.rewrite(server={"pollers": 7}, publish={"token": secret}, limits={"waiters_max": 78})
    dwell.signal(signal.SIGHUP)
    dwell.await_metric(2, "dwell_config_generation")
    until(lambda: facts(page, "config")["generation"] == "2", "the new one is shown")
    assert facts(page, "config")["last reload"].startswith("applied ")
    assert facts(page, "config")["needs a restart"] == "server.pollers"
    assert "waiters_max is 78" in page.text("#waiters-note")

    dwell.rewrite(publish={"token": "hunter2"})
    dwell.signal(signal.SIGHUP)
    until(
        lambda: facts(page, "config")["last reload"].startswith("refused "),
        "the reload that was refused is shown",
    )
    assert "token = (hidden)" in facts(page, "config")["last reload"]
    assert facts(page, "config")["generation"] == "2"
    marks = "document.querySelectorAll('#polls-chart .mark.reload title').length"
    until(lambda: page.run(marks) == 2, "both reloads are marked")
    shown = page.run("document.body.innerText")
    assert secret not in shown
    assert "hunter2" not in shown
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("window.faults ?? []") == []


def test_a_reload_changes_which_routes_there_are(start_dwell, cleanup):
    dwell = start_dwell(route=[{"prefix": "/poll/"}, {"prefix": "/old/"}])
    stream = cleanup.enter_context(EventStream(dwell.address, "/old/a").begin())
    dwell.await_waiters(1)
    with viewer(dwell) as first:
        history(first)
        routes = {route["name"]: route for route in figures(first)["numbers"]["routes"]}
    assert {name: route["waiting"] for name, route in routes.items()} == {"/old/": 1, "/poll/": 0}
    dwell.rewrite(route=[{"prefix": "/poll/"}, {"prefix": "/new/"}])
    dwell.signal(signal.SIGHUP)
    dwell.await_metric(2, "dwell_config_generation")
    cleanup.enter_context(EventStream(dwell.address, "/new/a").begin())
    dwell.await_waiters(2)

    def waiting():
        with viewer(dwell) as second:
            history(second)
            found = figures(second)["numbers"]["routes"]
        return {route["name"]: route["waiting"] for route in found}

    until(lambda: waiting() == {"/old/": 1, "/poll/": 0, "/new/": 1}, "each has its own")
    stream.close()
    until(lambda: waiting() == {"/old/": 0, "/poll/": 0, "/new/": 1}, "it has left")


def test_a_route_has_the_time_of_each_response_once(start_dwell, app):
    dwell = start_dwell(
        upstream={"url": app.url}, route=[{"prefix": "/poll/"}, {"prefix": "/other/"}]
    )
    dwell.store().set(KEY, b"value")
    fields = {"If-None-Match": dwell.get(KEY).etag}
    assert dwell.get(KEY).status == 200
    with dwell.connect() as client:
        assert client.get(f"{KEY}?wait=1", fields=fields).status == 304
    dwell.get("/poll/nobody")

    def times():
        name = "dwell_route_request_duration_seconds_count"
        text = dwell.admin("/-/metrics").body.decode()
        return dict(re.findall(rf'^{name}{{route="(.*?)"}} (\d+)', text, re.M))

    # Two hits and a response of the application; the held poll has none.
    until(lambda: times() == {"/poll/": "3", "/other/": "0"}, "each response is counted once")


def test_a_server_that_is_left_out_has_the_reason(start_dwell, app, browser, cleanup):
    nobody = f"http://{ports.text(ports.free_address())}"
    dwell = start_dwell(upstream={"url": [app.url, nobody], "failures_max": 1})
    page = open_page(browser, dwell)
    cleanup.callback(page.close)
    reasons = "[...document.querySelectorAll('#upstream tr.reason')].map((row) => row.innerText)"

    def is_left_out():
        dwell.get("/page")
        return any("Left out" in text for text in page.run(reasons))

    until(is_left_out, "the one without a server is left out")
    [reason] = page.run(reasons)
    assert "refused" in reason, reason
    shown = "document.getElementById('events').innerText"
    page.wait_for(f"{shown}.includes('upstream is left out')")
    assert nobody.removeprefix("http://") in page.run(shown)
    assert page.run("window.faults ?? []") == []


def test_events_of_the_process_are_shown(start_dwell, memcached, browser, cleanup):
    dwell = start_dwell(memcached={"servers": [memcached.name]}, log={"level": "off"})
    page = open_page(browser, dwell, width=390)
    cleanup.callback(page.close)
    shown = "document.getElementById('events').innerText"
    dwell.signal(signal.SIGHUP)
    page.wait_for(f"{shown}.includes('configuration read')")
    dwell.get(KEY)
    memcached.kill()

    def is_lost():
        dwell.get(KEY)
        return re.search("memcached (does not answer|has closed)", page.run(shown))

    until(is_lost, "the store is lost")
    events = json.loads(dwell.admin("/-/events").body)["events"]
    numbers = [event["number"] for event in events]
    assert numbers == sorted(numbers)
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("window.faults ?? []") == []


def test_a_page_has_what_was_before_it_was_opened(lone_edge, browser, cleanup):
    lone_edge.store().set(KEY, b"value")
    for _ in range(20):
        lone_edge.get(KEY)
    past = json.loads(lone_edge.admin("/-/history").body)
    assert past["interval_ms"] == 10_000
    readings = past["readings"]
    assert readings[-1]["polls"]["hit"] >= 20
    assert len(readings) >= 2
    assert readings[0]["at"] <= readings[-1]["at"]
    assert len(readings[-1]["request_duration"]) == len(past["bounds"]) + 1
    page = open_page(browser, lone_edge)
    cleanup.callback(page.close)
    page.wait_for("coarse.length >= 2")
    page.run("document.getElementById('range').click()")
    hits = page.run("coarse.map((reading) => reading.polls.hit ?? 0)")
    # The first reading is of the start, before anything was asked.
    assert hits[0] == 0
    assert hits[-1] >= 20
    assert page.run("document.querySelectorAll('#polls-chart path').length") > 0
    assert page.run("window.faults ?? []") == []


def test_watched_keys_are_found_and_explained(lone_edge, browser, cleanup):
    lone_edge.store().set(KEY, b"value")
    fields = {"If-None-Match": lone_edge.get(KEY).etag}
    for _ in range(3):
        cleanup.enter_context(lone_edge.connect()).ask(f"{KEY}?wait=30", fields=fields)
    cleanup.enter_context(EventStream(lone_edge.address, "/poll/bob").begin())
    lone_edge.await_waiters(4)
    page = open_page(browser, lone_edge)
    cleanup.callback(page.close)
    page.run("document.querySelector('#search button').click()")
    until(
        lambda: page.run("document.querySelectorAll('#watched tr').length") == 2, "both are there"
    )
    assert row(page, "watched", KEY) == "3"
    assert page.text("#watched-note") == "2 keys with 4 watchers."
    page.run("document.querySelector('#watched tr').click()")
    page.wait_for("document.querySelectorAll('#explained tr').length > 3")
    assert row(page, "explained", "value").startswith("5 bytes, cursor ")
    page.run("document.getElementById('prefix').value = '/nothing'")
    page.run("document.querySelector('#search button').click()")
    page.wait_for("document.getElementById('watched-note').textContent.startsWith('0 keys')")
    assert page.run("window.faults ?? []") == []


def test_a_reader_of_screens_finds_names(lone_edge, browser, cleanup):
    page = open_page(browser, lone_edge)
    cleanup.callback(page.close)
    page.wait_for(f"{STATE} === 'live'")
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    found = {}
    for node in tree:
        if not node["ignored"]:
            name = node.get("name", {}).get("value", "")
            found.setdefault(node["role"]["value"], []).append(name)
    assert "Pause" in found["button"]
    assert all(found["image"])
    assert all(found["table"])
    assert {"Polls a second", "Hottest keys", "Upstream"} <= set(found["heading"])
    assert "status" in found


def test_a_server_that_has_gone_and_come_back(start_dwell, browser, cleanup):
    dwell = start_dwell()
    page = open_page(browser, dwell)
    cleanup.callback(page.close)
    page.wait_for(f"{STATE} === 'live'")
    dwell.kill()
    page.wait_for("document.querySelector('main.stale') !== null")
    assert "no answer" in page.text("#state")
    dwell.start_ready()
    page.wait_for(f"{STATE} === 'live' && document.querySelector('main.stale') === null")


def test_it_is_paused_by_the_keyboard(lone_edge, browser, cleanup):
    page = open_page(browser, lone_edge)
    cleanup.callback(page.close)
    page.wait_for(f"{STATE} === 'live'")
    page.run("document.getElementById('pause').focus()")
    page.press("Enter")
    page.wait_for(f"{STATE} === 'paused'")
    assert page.run("stream") is None
    page.press("Enter")
    page.wait_for(f"{STATE} === 'live'")


def test_a_cache_that_is_down_is_told(start_dwell, browser, cleanup):
    nobody = ports.text(ports.free_address())
    dwell = start_dwell(memcached={"servers": [nobody]})
    dwell.get(KEY)
    page = open_page(browser, dwell)
    cleanup.callback(page.close)
    await_row(page, "cache", nobody, "down")
    page.wait_for(f"{STATE} === '1 of 1 memcached server down'")
    assert page.text("#upstream-note").startswith("No application")
    assert "No memcached server answers" in page.text("#cache-note")


def test_a_redis_is_called_so(start_dwell, start_redis, browser, cleanup):
    redis = start_redis()
    dwell = start_dwell(redis={"url": redis.url, "timeout": "1s"})
    dwell.get(KEY)
    page = open_page(browser, dwell)
    cleanup.callback(page.close)
    page.wait_for(f"{STATE} === 'live'")
    await_row(page, "cache", redis.url, "up")
    assert "Redis; it announces changes" in page.text("#cache-note")
    redis.kill()
    page.wait_for(f"{STATE} === '1 of 1 Redis server down'")
    assert "No Redis server answers" in page.text("#cache-note")
