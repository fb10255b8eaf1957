"""The rates at which a client may ask, and at which one key may be asked for."""

import signal

import pytest

from support.events import EventStream
from support.wait import until
from support.websocket import WebSocket

KEY = "/poll/alice"


def edge_with(start_dwell, **sections):
    route = {"prefix": "/poll/", **sections.pop("route")}
    return start_dwell(route=[route], **sections)


def test_a_client_that_asks_too_often_is_refused(start_dwell):
    edge = edge_with(start_dwell, route={"rate_per_address": "3/h"})
    edge.store().set(KEY, b"value")
    with edge.connect() as connection:
        answers = [connection.get(KEY) for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].body == b"more than 3/1h\n"
    assert int(answers[-1].field("Retry-After")) in range(1100, 1201)
    edge.await_metric(2, "dwell_polls_total", outcome="limited")


@pytest.mark.parametrize("is_stream", [False, True])
def test_each_key_of_a_request_counts(start_dwell, is_stream):
    edge = edge_with(start_dwell, route={"rate_per_address": "10/h"})
    for name in "abcdefgh":
        edge.store().set(f"/poll/{name}", b"value")
    target = "/poll/?" + "&".join(f"k={name}" for name in "abcdefgh")
    if is_stream:
        with EventStream(edge.address, target) as stream:
            assert stream.begin().response.status == 200
    else:
        assert edge.get(target).status == 200
    assert [edge.get("/poll/a").status for _ in range(3)] == [200, 200, 429]


def test_each_key_of_a_handshake_counts(start_dwell):
    edge = edge_with(start_dwell, route={"rate_per_address": "3/h"})
    with WebSocket(edge.address, "/poll/?k=a&k=b&k=c&k=d"):
        answer = edge.get("/poll/a")
        assert answer.status == 429
        # Four were taken of three, so two have to come.
        assert int(answer.field("Retry-After")) in range(2300, 2401)


def test_it_is_told_when_to_come_back(start_dwell):
    edge = edge_with(start_dwell, route={"rate_per_address": "1/2s"})
    edge.store().set(KEY, b"value")

    def refused():
        answer = edge.get(KEY)
        return answer if answer.status == 429 else None

    assert until(refused, "it is refused").field("Retry-After") in ("1", "2")
    until(lambda: edge.get(KEY).status == 200, "there is room again")


def test_a_reload_refills_only_what_it_changes(start_dwell):
    edge = edge_with(start_dwell, route={"rate_per_address": "2/h"})
    edge.store().set(KEY, b"value")
    assert [edge.get(KEY).status for _ in range(3)] == [200, 200, 429]

    def reload(generation, *routes, **sections):
        edge.rewrite(route=list(routes), **sections)
        edge.signal(signal.SIGHUP)
        edge.await_metric(generation, "dwell_config_generation")

    limited = {"prefix": "/poll/", "rate_per_address": "2/h"}
    # Another route takes the place that this one had in the table of routes.
    reload(2, {"prefix": "/poll/longer/"}, limited, limits={"waiters_max": 7})
    assert edge.get(KEY).status == 429
    reload(3, {**limited, "rate_per_address": "3/h"})
    assert [edge.get(KEY).status for _ in range(4)] == [200, 200, 200, 429]


TOKEN = "0123456789abcdef"


def test_publishers(start_dwell):
    edge = edge_with(
        start_dwell,
        route={"publish": True, "rate_per_publisher": "2/h"},
        publish={"token": TOKEN},
    )
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert edge.get(KEY, "PUT", {"Authorization": "Bearer guessed"}, b"x").status == 401
    assert edge.get(KEY, "PUT", bearer, b"value").status == 201
    refused = edge.get(KEY, "DELETE", bearer)
    assert (refused.status, refused.body) == (429, b"more than 2/1h\n")
    assert int(refused.field("Retry-After")) in range(1700, 1801)
    assert [edge.get(KEY).status for _ in range(3)] == [200] * 3, "reading is not counted"
    assert edge.metric("dwell_publishes_total", outcome="limited") == 1


def test_frames_of_publishers(start_dwell, cleanup):
    edge = edge_with(start_dwell, route={"websocket_publish": True, "rate_per_publisher": "2/h"})
    first, second = (cleanup.enter_context(WebSocket(edge.address, "/poll/?k=a")) for _ in range(2))
    for value in ("1", "2", "3"):
        first.say(publish={"k": "b", "v": value})
    heard = [first.hear() for _ in range(3)]
    assert [frame.get("published") for frame in heard] == ["b", "b", None]
    assert heard[2] == {"error": "more than 2/1h", "k": "b"}
    second.say(publish={"k": "b", "v": "4"})
    assert second.hear()["published"] == "b", "each connection for itself"


def test_the_loops_count_together(start_dwell):
    edge = edge_with(start_dwell, route={"rate_per_address": "8/h"}, server={"pollers": 4})
    edge.store().set(KEY, b"value")
    statuses = [edge.get(KEY).status for _ in range(24)]
    assert statuses == [200] * 8 + [429] * 16
    assert int(edge.get(KEY).field("Retry-After")) in range(400, 451)


def test_who_a_client_is_only_a_trusted_proxy_says(start_dwell):
    route = {"rate_per_address": "1/h"}
    edge = edge_with(start_dwell, route=route, server={"trusted_proxies": ["127.0.0.0/8"]})
    edge.store().set(KEY, b"value")

    def ask(hops):
        return edge.get(KEY, fields={"X-Forwarded-For": hops}).status

    assert [ask("1.2.3.4"), ask("1.2.3.4"), ask("1.2.3.5")] == [200, 429, 200]
    assert ask("9.9.9.9, 1.2.3.4") == 429, "what a client wrote itself changes nothing"
    assert [ask("2001:db8:1:2::1"), ask("2001:db8:1:2:3::4")] == [200, 429]
    assert ask("2001:db8:1:3::1") == 200
    stranger = edge_with(start_dwell, route=route)
    stranger.store().set(KEY, b"value")
    statuses = [
        stranger.get(KEY, fields={"X-Forwarded-For": f"1.2.3.{last}"}).status for last in range(3)
    ]
    assert statuses == [200, 429, 429]


def test_one_key(start_dwell):
    edge = edge_with(start_dwell, route={"rate_per_key": "2/h"})
    for key in ("/poll/a", "/poll/b"):
        edge.store().set(key, b"value")
        assert [edge.get(key).status for _ in range(3)] == [200, 200, 429]
    assert edge.get("/poll/?k=c&k=a").status == 429
    assert edge.get("/poll/?k=d&k=e").status == 200


def test_routes_count_for_themselves(start_dwell):
    routes = [
        {"prefix": "/a/", "rate_per_address": "1/h"},
        {"prefix": "/b/", "rate_per_address": "1/h"},
        {"prefix": "/c/"},
    ]
    edge = start_dwell(route=routes)
    for route, statuses in (("/a/", [404, 429]), ("/b/", [404, 429]), ("/c/", [404, 404])):
        assert [edge.get(f"{route}k").status for _ in range(2)] == statuses


def test_twenty_thousand_addresses_take_no_memory(start_dwell):
    edge = edge_with(
        start_dwell,
        route={"rate_per_address": "1/h"},
        server={"trusted_proxies": "127.0.0.1"},
        limits={"rate_buckets": 1024},
    )
    edge.store().set(KEY, b"value")

    def resident():
        return edge.metric("process_resident_memory_bytes")

    def ask(numbers):
        requests = b"".join(
            b"GET %b HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 10.%d.%d.%d\r\n\r\n"
            % (KEY.encode(), number >> 16, number >> 8 & 255, number & 255)
            for number in numbers
        )
        with edge.connect(timeout_s=60) as connection:
            connection.send(requests)
            return [connection.answer().status for _ in numbers]

    refused = ask(range(500)).count(429)
    before = resident()
    for first in range(500, 20_000, 500):
        refused += ask(range(first, first + 500)).count(429)
    # Two of a million are taken for one another.
    assert refused <= 5
    until(lambda: resident() - before < 8 << 20, "memory stays within 8 MiB")
    assert ask([19_999]) == [429], "who came last is known"
