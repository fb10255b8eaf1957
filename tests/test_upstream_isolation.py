"""One URL of the application fails, or one client asks for a lot: the others are served."""

import datetime
import itertools
import re
import threading

import pytest

from support.upstream import Answer, Upstream
from support.wait import until

OK = b"HTTP/1.1 200 OK\r\n"
FIELD = b"X-Field: value\r\n"
# One event loop, so that all requests meet in one place; and clients by `X-Forwarded-For`.
SERVER = {"pollers": 1, "trusted_proxies": "127.0.0.1"}
COUNT = 300


@pytest.fixture
def stuck(cleanup):
    """An event for which the application waits; it is set when the test ends."""
    event = threading.Event()
    cleanup.callback(event.set)
    return event


def hang_slow(app, stuck):
    """Has the application answer no target with `slow` in it before the test ends."""

    def answer(request):
        if "slow" in request.target:
            stuck.wait(60)
        return Answer()

    app.answer = answer


def stream_long(app, stuck):
    """Has the application answer `/long` with a stream that does not end before the test does."""

    def pieces():
        yield OK + b"Content-Type: text/event-stream\r\n\r\ndata: first\n\n"
        stuck.wait(60)

    app.answer = lambda request: Answer(raw=pieces()) if request.target == "/long" else Answer()


def by(client):
    return {"X-Forwarded-For": client}


def statuses(dwell, target, count, fields=()):
    with dwell.connect() as connection:
        return [connection.get(target, fields=fields).status for _ in range(count)]


FAULTS = {
    "crash": [],
    "malformed": [OK + b"X: 1\r\n folded: 2\r\nContent-Length: 0\r\n\r\n"],
    "long_head": [OK + b"X-Long: " + b"x" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n"],
    "many_fields": [OK + FIELD * 128 + b"Content-Length: 0\r\n\r\n"],
    "silence": None,
}


@pytest.fixture(params=FAULTS)
def faulty(request, cleanup, stuck):
    """Two servers of an application in which `/bad` has a fault."""
    pieces = FAULTS[request.param]

    def answer(request):
        if not request.target.startswith("/bad"):
            return Answer()
        if pieces is None:
            stuck.wait(60)
        return Answer(raw=pieces or [])

    servers = [Upstream().start(), Upstream().start()]
    for server in servers:
        server.answer = answer
        cleanup.callback(server.stop)
    return servers


def test_one_bad_url_in_a_row_does_not_stop_the_others(start_dwell, faulty, cleanup):
    upstream = {"url": faulty[0].url, "header_timeout": "1s"}
    dwell = start_dwell(upstream=upstream, server=SERVER)
    for _ in range(3):
        clients = [cleanup.enter_context(dwell.connect()) for _ in range(8)]
        for client in clients:
            client.ask("/bad")
        assert {client.answer().status for client in clients} <= {502, 504}
        assert statuses(dwell, "/good", 3) == [200] * 3
    assert dwell.metric("dwell_upstream_server_up", server=faulty[0].url) == 1


@pytest.mark.parametrize("servers", [1, 2])
def test_under_attack_by_one_bad_url_all_good_requests_are_served(
    start_dwell, faulty, stuck, cleanup, servers
):
    faulty = faulty[:servers]
    # Good requests are answered within it by a server of threads that attackers keep busy.
    upstream = {"url": [server.url for server in faulty], "header_timeout": "4s"}
    dwell = start_dwell(upstream=upstream, server=SERVER)
    assert statuses(dwell, "/good", 20, by("192.0.2.1")) == [200] * 20
    is_over = threading.Event()
    cleanup.callback(is_over.set)

    def attack(number):
        with dwell.connect() as connection:
            for count in itertools.count():
                if is_over.is_set():
                    return
                target = f"/bad?{number}-{count}"
                connection.get(target, fields=by(f"198.51.100.{number}"))

    attackers = [threading.Thread(target=attack, args=(number,)) for number in range(8)]
    for attacker in attackers:
        attacker.start()
    try:
        before = 20 + 8
        until(lambda: sum(len(server.requests) for server in faulty) > before, "it has begun")
        assert statuses(dwell, "/good", 200, by("192.0.2.1")) == [200] * 200
        # At most one line a second and server, however often failures and answers take turns.
        dwell.await_output("upstream does not answer")
        lines = [line for line in dwell.output().splitlines() if "does not answer" in line]
        times = {}
        for line in lines:
            at = datetime.datetime.fromisoformat(line.split()[0])
            times.setdefault(re.search(r"server=(\S+)", line)[1], []).append(at)
        assert len(times) <= servers
        for of_server in times.values():
            for before, after in itertools.pairwise(of_server):
                assert (after - before).total_seconds() > 0.9
    finally:
        is_over.set()
        stuck.set()
        for attacker in attackers:
            attacker.join()


@pytest.mark.parametrize("target", ["/page/", "/poll/"], ids=["forward", "poll"])
@pytest.mark.parametrize("kind", ["events", "download"])
def test_answers_that_last_leave_connections_to_the_others(
    start_dwell, app, stuck, cleanup, kind, target
):
    block = bytes(1 << 20)

    def pieces():
        if kind == "events":
            yield OK + b"Content-Type: text/event-stream\r\n\r\ndata: first\n\n"
            stuck.wait(60)
        else:
            yield OK + b"Content-Length: 20971520\r\n\r\n"
            for _ in range(20):
                yield block

    def answer(request):
        is_long = request.target.startswith(target)
        return Answer(raw=pieces()) if is_long else Answer()

    app.answer = answer
    # The last of them are queued until the answers to the first have begun. An answer that kept its
    # connection would keep it for longer than this timeout.
    upstream = {"url": app.url, "queue_timeout": "25s", "answer_bytes_max": "1MiB"}
    dwell = start_dwell(upstream=upstream, server=SERVER)
    for number in range(COUNT):
        # A window that is full soon.
        client = cleanup.enter_context(dwell.connect(receive_buffer_bytes=4096))
        client.ask(f"{target}{number}")
    assert statuses(dwell, "/good", 20) == [200] * 20
    app.await_requests(COUNT + 20)
    assert dwell.metric("dwell_upstream_connections_open") >= COUNT
    assert statuses(dwell, "/good", 20) == [200] * 20


def test_transfers_beyond_their_bound_count_among_the_connections(start_dwell, app, stuck, cleanup):
    stream_long(app, stuck)
    bounds = {"connections_max": 2, "transfers_max": 3, "queue_timeout": "1s"}
    dwell = start_dwell(upstream={"url": app.url, **bounds}, server=SERVER)
    clients = [cleanup.enter_context(dwell.connect()) for _ in range(5)]
    for client in clients:
        client.ask("/long")
        assert b"200 OK" in client.socket.recv(65536)
    refused = dwell.get("/good")
    assert (refused.status, refused.body) == (
        503,
        b"upstream: no connection became free within 1s\n",
    )
    # Any of them that ends makes room, and a later one takes its place among the transfers.
    clients.pop().close()
    until(lambda: dwell.get("/good").status == 200, "there is room")


@pytest.mark.parametrize("target", ["/slow/", "/poll/slow-"], ids=["forward", "poll"])
def test_one_client_whose_requests_hang_leaves_connections_to_others(
    start_dwell, app, stuck, cleanup, target
):
    hang_slow(app, stuck)
    dwell = start_dwell(upstream={"url": app.url, "queue_timeout": "3s"}, server=SERVER)
    for number in range(COUNT):
        client = cleanup.enter_context(dwell.connect())
        client.ask(f"{target}{number}", fields=by("198.51.100.1"))
    dwell.await_metric(COUNT, "dwell_upstream_outstanding")
    assert statuses(dwell, "/good", 20, by("192.0.2.1")) == [200] * 20
    assert dwell.metric("dwell_upstream_outstanding") > 200


@pytest.mark.parametrize("pollers", [1, 2])
@pytest.mark.parametrize("target", ["/poll/popular", "/poll/?k=popular"])
def test_a_client_with_a_long_line_that_asks_first_delays_nobody(
    start_dwell, app, stuck, cleanup, pollers, target
):
    have_joined = threading.Event()
    cleanup.callback(have_joined.set)

    def answer(request):
        event = stuck if "slow" in request.target else have_joined
        event.wait(60)
        return Answer()

    app.answer = answer
    bounds = {"connections_max": 12 * pollers, "queue_timeout": "50s"}
    upstream = {"url": app.url, **bounds, "header_timeout": "60s"}
    dwell = start_dwell(upstream=upstream, server={**SERVER, "pollers": pollers})
    one = "198.51.100.1"
    for number in range(60):
        client = cleanup.enter_context(dwell.connect())
        client.ask(f"/page/slow-{number}", fields=by(one))
    dwell.await_metric(60, "dwell_upstream_outstanding")
    first = cleanup.enter_context(dwell.connect())
    first.ask(target, fields=by(one))
    dwell.await_metric(61, "dwell_upstream_outstanding")
    others = [cleanup.enter_context(dwell.connect(timeout_s=20)) for _ in range(6)]
    for number, other in enumerate(others):
        other.ask(target, fields=by(f"192.0.2.{number}"))
    # One that came behind the answer would make a request of its own.
    dwell.await_metric(6, "dwell_upstream_requests_total", outcome="coalesced")
    have_joined.set()
    assert [other.answer().status for other in others] == [200] * 6
    assert first.answer().status == 200
    assert sum("popular" in request.target for request in app.requests) == 1
    dwell.await_metric(60, "dwell_upstream_outstanding")


def test_one_clients_transfers_leave_some_to_others(start_dwell, app, stuck, cleanup):
    stream_long(app, stuck)
    bounds = {"connections_max": 10, "transfers_max": 20, "queue_timeout": "2s"}
    dwell = start_dwell(upstream={"url": app.url, **bounds}, server=SERVER)

    def streams(count, client):
        clients = [cleanup.enter_context(dwell.connect()) for _ in range(count)]
        for one in clients:
            one.ask("/long", fields=by(client))
        return clients

    streams(40, "198.51.100.1")
    # 17 transfers, 9 of the other connections, and the rest wait and are turned away.
    dwell.await_metric(17 + 9, "dwell_upstream_outstanding")
    streams(1, "192.0.2.1")
    streams(1, "192.0.2.2")
    dwell.await_metric(17 + 9 + 2, "dwell_upstream_outstanding")
    # Had those two counted among the other connections, there would be none for this.
    assert statuses(dwell, "/good", 5, by("192.0.2.3")) == [200] * 5


def test_polls_of_many_keys_leave_places_to_other_clients(start_dwell, app, cleanup):
    bounds = {"connections_max": 4, "queue_max": 100}
    dwell = start_dwell(upstream={"url": app.url, **bounds}, server=SERVER)
    app.hang()
    pollers = [cleanup.enter_context(dwell.connect()) for _ in range(20)]
    for number, poller in enumerate(pollers):
        keys = "&".join(f"k=key-{number}-{key}" for key in range(64))
        poller.ask(f"/poll/?{keys}", fields=by("198.51.100.1"))
    dwell.await_metric(4 + 100, "dwell_upstream_outstanding")
    others = [cleanup.enter_context(dwell.connect()) for _ in range(10)]
    for number, other in enumerate(others):
        target = "/page" if number % 2 else f"/poll/other-{number}"
        other.ask(target, fields=by(f"192.0.2.{number}"))
    # All of these have been read by the turn that answers a later one.
    dwell.store().set("/poll/hit", b"value")
    assert dwell.get("/poll/hit").body == b"value"
    app.release()
    assert [other.answer().status for other in others] == [200] * 10
    theirs = [place for place, it in enumerate(app.requests) if "key-" not in it.target]
    # They take turns: each of them is asked before most of what came earlier.
    assert max(theirs) < 50, theirs
    assert {poller.answer().status for poller in pollers} <= {200, 503}


@pytest.mark.parametrize("target", ["/page", "/poll/alice"])
def test_the_bounds_of_an_answers_head_are_told(start_dwell, app, target):
    pieces = {}
    app.answer = lambda request: Answer(raw=[pieces["now"]])
    limits = {"answer_head_bytes_max": "1KiB", "answer_header_count_max": 5}
    dwell = start_dwell(upstream={"url": app.url, "failures_max": 1, **limits})

    def told(answer):
        pieces["now"] = answer
        response = dwell.get(target, "POST", body=b"x")
        return response.status, response.body

    # The application closes after each answer: unannounced, the next request may go there.
    end = b"Connection: close\r\nContent-Length: 0\r\n\r\n"
    assert told(OK + FIELD * 3 + end) == (200, b"")
    assert told(OK + FIELD * 4 + end) == (502, b"upstream: answer has more than 5 fields\n")
    fits = b"X: ".ljust(1024 - len(OK) - len(end) - 2, b"x") + b"\r\n"
    assert told(OK + fits + end) == (200, b"")
    assert told(OK + b"X" + fits + end)[0] == 502
    status, text = told(OK + b"X: " + b"x" * 70_000 + b"\r\n" + end)
    assert status == 502
    assert text.startswith(b"upstream: answer head exceeds 1024 bytes: "), text
