"""What comes and goes leaves nothing behind: no memory, no descriptor, no record."""

import contextlib
import os

import pytest

from support.crowd import Crowd
from support.http import request
from support.upstream import ConnectionServer, Upstream
from support.wait import until

MEGABYTE = 1024 * 1024


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def grows(process, step, rounds=3):
    """How much memory the last of `rounds` calls of `step` took; the first ones warm up."""
    for _ in range(rounds - 1):
        step()
    before = process.resident_bytes()
    step()
    return process.resident_bytes() - before


def test_clients_leave_no_descriptor(backend):
    dwell, cache = backend
    cache.set("/poll/alice", b"value")
    fields = {"If-None-Match": dwell.get("/poll/alice").etag}

    def visit():
        with Crowd(dwell.address, 300) as crowd:
            crowd.send(request("/poll/alice?wait=30", fields=fields))
            dwell.await_waiters(300)
        dwell.await_waiters(0)
        dwell.await_connections(0)

    visit()
    before = descriptors(dwell)
    visit()
    visit()
    # The last scrape's own connection may still be closing.
    until(lambda: descriptors(dwell) <= before, "every descriptor is given back")


class QuickApp(ConnectionServer):
    """An application that answers every request alike, thousands in a second."""

    ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"

    def _serve(self, connection):
        received = b""
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                *heads, received = (received + data).split(b"\r\n\r\n")
                connection.sendall(self.ANSWER * len(heads))


@pytest.fixture
def app(cleanup):
    quick = QuickApp()
    cleanup.callback(quick.close)
    return quick


def test_keys_leave_no_memory(backend):
    dwell, _ = backend

    def ask():
        with contextlib.ExitStack() as stack:
            # Side by side, as each of them waits for the application every time.
            connections = [stack.enter_context(dwell.connect()) for _ in range(20)]
            for start in range(0, 5000, 250):
                connection = connections[start // 250]
                places = range(start, start + 250)
                connection.send(b"".join(request(f"/poll/{'k' * 200}{n}") for n in places))
            for connection in connections:
                for _ in range(250):
                    assert connection.answer().status == 200

    assert grows(dwell, ask) < 2 * MEGABYTE


@pytest.mark.timeout(120)
def test_waits_leave_no_memory(backend):
    dwell, cache = backend
    keys = [f"/poll/{'k' * 200}{place}" for place in range(1000)]
    cache.set_many(dict.fromkeys(keys, b"value"))
    fields = {"If-None-Match": dwell.get(keys[0]).etag}

    def wait():
        with Crowd(dwell.address, len(keys)) as crowd:
            crowd.send_each(lambda n: request(f"{keys[n]}?wait=55", fields=fields))
            dwell.await_waiters(len(keys))
        dwell.await_waiters(0)
        dwell.await_connections(0)

    assert grows(dwell, wait) < 2 * MEGABYTE
    dwell.await_metric(0, "dwell_watched_keys")


def test_bodies_leave_no_memory(start_dwell, cleanup):
    app = Upstream().start()
    cleanup.callback(app.stop)
    edge = start_dwell(upstream={"url": app.url})
    body = b"x" * 500_000

    def upload():
        with edge.connect() as connection:
            for _ in range(20):
                assert connection.get("/upload", "POST", body=body).status == 200
        edge.await_connections(0)
        app.requests.clear()

    assert grows(edge, upload) < 4 * MEGABYTE


def test_an_idle_connection_costs_little(lone_edge):
    lone_edge.store().set("/poll/alice", b"value")
    with Crowd(lone_edge.address, 1000) as warm:
        warm.send(request("/poll/alice"))
        warm.answers()
    before = lone_edge.resident_bytes()
    with Crowd(lone_edge.address, 4000) as crowd:
        crowd.send(request("/poll/alice", fields={"X-Padding": "x" * 8000}))
        crowd.answers()
        # Their requests were large; while they are silent they hold no buffer.
        assert (lone_edge.resident_bytes() - before) / 4000 < 2048
