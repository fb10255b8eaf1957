"""Clients that are slow, or never read: they pay for it, and nobody else."""

import select

import pytest

from support.crowd import Crowd
from support.http import request
from support.wait import Stopwatch, until

KEY = "/poll/alice"
TIMEOUT = "500ms"


@pytest.fixture
def impatient(start_dwell, app):
    """An edge with short limits on time."""
    limits = {"header_timeout": TIMEOUT, "body_timeout": TIMEOUT, "write_timeout": TIMEOUT}
    return start_dwell(limits=limits, upstream={"url": app.url})


def drip(connection, data):
    """Sends a byte now and then until the server answers; returns the answer."""
    readable = select.poll()
    readable.register(connection.socket, select.POLLIN)
    for byte in data:
        if readable.poll(50):
            break
        connection.send(bytes([byte]))
    return connection.answer()


def is_refused_in_time(connection, data, then):
    connection.send(data)
    with Stopwatch() as watch:
        response = drip(connection, then)
        assert (response.status, response.closes) == (408, True)
        assert connection.is_ended()
    assert 0.45 <= watch.seconds < 20


def test_a_head_that_drips_is_408(impatient, app):
    with impatient.connect() as connection:
        is_refused_in_time(connection, b"GET ", b"/poll/" + b"x" * 200)
    assert app.requests == []


def test_a_head_that_stops_is_408(impatient):
    with impatient.connect() as connection:
        is_refused_in_time(connection, request(KEY)[:-2], b"")


@pytest.mark.parametrize("target", [KEY, "/page"], ids=["poll", "forward"])
def test_a_body_that_drips_is_408(impatient, target):
    head = request(target, "POST", {"Content-Length": "1000"})
    with impatient.connect() as connection:
        is_refused_in_time(connection, head, b"x" * 200)


def test_a_chunked_body_that_stops_is_408(impatient):
    head = request(KEY, "POST", {"Transfer-Encoding": "chunked"})
    with impatient.connect() as connection:
        is_refused_in_time(connection, head + b"5\r\nhel", b"")


def test_the_deadlines_that_clients_miss_are_counted(impatient):
    def missed(kind):
        return impatient.metric("dwell_client_timeouts_total", kind=kind)

    impatient.store().set(KEY, b"x" * 1_000_000)
    with impatient.connect() as head, impatient.connect() as body:
        head.send(b"GET ")
        body.send(request(KEY, "POST", {"Content-Length": "5"}))
        assert (head.answer().status, body.answer().status) == (408, 408)
    with impatient.connect(receive_buffer_bytes=4096) as deaf:
        deaf.send(request(KEY) * 40)
        impatient.await_metric(1, "dwell_client_timeouts_total", kind="write")
    assert missed("request") == 2


def test_slow_heads_burn_nothing(start_dwell):
    dwell = start_dwell(limits={"header_timeout": "30s"})
    dwell.store().set(KEY, b"value")
    with Crowd(dwell.address, 500) as crowd:
        crowd.send(b"GET /poll/al")
        dwell.await_connections(500)
        # What came before may not be quite over yet.
        until(lambda: dwell.cpu_share(1) < 0.05, "half a head costs nothing")
        crowd.send(b"ice HTTP/1.1\r\nHost: edge.test\r\n\r\n")
        assert {body for _, _, body in crowd.answers()} == {b"value"}


def test_a_client_that_never_reads_is_closed_and_slows_nobody(start_dwell):
    impatient = start_dwell(limits={"write_timeout": "2s"}, server={"pollers": 1})
    store = impatient.store()
    store.set(KEY, b"x" * 1_000_000)
    store.set("/poll/small", b"value")
    with impatient.connect(receive_buffer_bytes=4096) as deaf, impatient.connect() as other:
        deaf.send(request(KEY) * 40)
        impatient.await_connections(2)
        answered = 0

        def is_closed():
            nonlocal answered
            assert other.get("/poll/small").body == b"value"
            answered += 1
            return impatient.metric("dwell_connections_open") == 1

        until(is_closed, "the client that never reads is closed")
        # If it kept the loop for its two seconds there would be one.
        assert answered >= 5
        # What it did not take was not piled up either.
        assert impatient.resident_bytes() < 200_000_000
    impatient.await_connections(0)


def test_a_client_that_reads_slowly_gets_everything(start_dwell):
    # Slow for the server, as it takes so little at a time; yet it never halts for this long.
    impatient = start_dwell(limits={"write_timeout": "5s"})
    value = bytes(range(256)) * 3900
    impatient.store().set(KEY, value)
    with impatient.connect(receive_buffer_bytes=16_384) as connection:
        connection.send(request(KEY) * 5)
        for _ in range(5):
            assert connection.answer().body == value


def test_a_flood_on_one_connection_leaves_room_for_another(start_dwell):
    dwell = start_dwell(server={"pollers": 1})
    dwell.store().set(KEY, b"value")
    with dwell.connect() as flood, dwell.connect() as other:
        flood.socket.setblocking(False)
        burst = request(KEY) * 200
        seconds = []
        for _ in range(50):
            try:
                flood.socket.send(burst)
                flood.socket.recv(1 << 20)
            except BlockingIOError:
                pass
            with Stopwatch() as watch:
                assert other.get(KEY).body == b"value"
            seconds.append(watch.seconds)
        # The machine itself may halt once or twice.
        assert sorted(seconds)[40] < 1


def test_ten_thousand_changes_to_a_watched_key_cost_one_answer_each_poll(start_dwell):
    dwell = start_dwell()
    store = dwell.store()
    store.set(KEY, b"0")
    with dwell.connect() as connection:
        connection.ask(f"{KEY}?wait=30", fields={"If-None-Match": dwell.get(KEY).etag})
        dwell.await_waiters(1)
        for value in range(1, 2001):
            store.set(KEY, str(value), noreply=True)
        assert connection.answer().status == 200
        assert connection.is_silent()
        store.set(KEY, b"last")
        assert connection.get(KEY).body == b"last"
