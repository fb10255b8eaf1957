"""SIGTERM and SIGINT: held polls are answered, work under way is finished, the exit code is 0."""

import signal
import socket

import pytest

from support.crowd import Crowd
from support.http import request
from support.wait import Stopwatch, accepts, until

KEY = "/poll/alice"
STOP = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
DRAIN_S = 20


@pytest.fixture
def lone_edge(start_dwell):
    """One that may drain for so long that whoever waits for the end of that is found out."""
    return start_dwell(limits={"drain_timeout": f"{DRAIN_S}s"})


@STOP
def test_an_idle_process_ends_at_once(lone_edge, number):
    with lone_edge.connect() as idle, Stopwatch() as watch:
        assert idle.get(KEY).status == 404
        lone_edge.signal(number)
        assert lone_edge.wait() == 0
        assert idle.is_ended()
    assert watch.seconds < DRAIN_S / 2


@STOP
def test_held_polls_are_answered_and_closed(edge, number):
    edge.store().set(KEY, b"value")
    etag = edge.get(KEY).etag
    by_field = request(f"{KEY}?wait=50", fields={"If-None-Match": etag})
    by_query = request(f"{KEY}?wait=50&since={etag.strip(chr(34))}")
    with Crowd(edge.address, 100) as first, Crowd(edge.address, 100) as second:
        first.send(by_field)
        second.send(by_query)
        edge.await_waiters(200)
        with Stopwatch() as watch:
            edge.signal(number)
            answers = first.answers(), second.answers()
            assert edge.wait() == 0
        # They were to wait for 50 s.
        assert watch.seconds < 25
    for expected, crowd in zip((304, 204), answers, strict=True):
        assert {status for status, _, _ in crowd} == {expected}
        for _, head, _ in crowd:
            assert b"\r\nconnection: close" in head.lower()
            assert etag.encode() in head


def test_a_drain_is_logged_once_with_the_waits_of_all_loops(start_dwell):
    edge = start_dwell(server={"pollers": 3})
    edge.store().set(KEY, b"value")
    cursor = edge.get(KEY).etag.strip(chr(34))
    with Crowd(edge.address, 60) as crowd:
        crowd.send(request(f"{KEY}?wait=50&since={cursor}"))
        edge.await_waiters(60)
        edge.signal(signal.SIGTERM)
        crowd.answers()
        assert edge.wait() == 0
    [line] = [line for line in edge.output().splitlines() if "draining" in line]
    assert 0 <= int(line.rpartition("waiting=")[2]) <= 60


def test_a_request_under_way_is_finished(start_dwell, app):
    edge = start_dwell(upstream={"url": app.url}, limits={"drain_timeout": f"{DRAIN_S}s"})
    app.hang()
    with edge.connect() as connection:
        connection.ask("/page")
        app.await_requests(1)
        edge.signal(signal.SIGTERM)
        until(lambda: not accepts(edge.address), "no new client is let in")
        app.release()
        response = connection.answer()
        assert (response.body, response.closes) == (b"from the app", True)
        assert connection.is_ended()
    assert edge.wait() == 0


def test_what_does_not_end_in_time_is_cut_off(start_dwell, app):
    dwell = start_dwell(upstream={"url": app.url}, limits={"drain_timeout": "500ms"})
    app.hang()
    with dwell.connect() as connection, Stopwatch() as watch:
        connection.ask("/page")
        app.await_requests(1)
        dwell.signal(signal.SIGTERM)
        assert dwell.wait() == 0
        assert connection.is_ended()
    assert 0.4 <= watch.seconds < 20


def test_a_half_sent_request_does_not_hold_the_process(lone_edge):
    with lone_edge.connect() as connection, Stopwatch() as watch:
        connection.send(b"GET /poll/al")
        lone_edge.await_connections(1)
        lone_edge.signal(signal.SIGTERM)
        assert lone_edge.wait() == 0
    assert watch.seconds < DRAIN_S / 2


def test_clients_of_the_store_are_let_go(lone_edge):
    with socket.create_connection(lone_edge.store_address, timeout=DRAIN_S) as client:
        client.sendall(b"set k 0 0 1\r\nx\r\n")
        assert client.recv(100) == b"STORED\r\n"
        lone_edge.signal(signal.SIGTERM)
        assert client.recv(100) == b""
    assert lone_edge.wait() == 0


def test_a_signal_ends_a_long_sleep_at_once(lone_edge):
    # Nothing is armed, so the loops sleep without an end.
    with Stopwatch() as watch:
        lone_edge.signal(signal.SIGTERM)
        assert lone_edge.wait() == 0
    assert watch.seconds < DRAIN_S / 2


def test_the_ports_are_free_afterwards(lone_edge):
    lone_edge.signal(signal.SIGTERM)
    lone_edge.wait()
    again = lone_edge.start_ready()
    assert again.get(KEY).status == 404
