"""The embedded store keeps to its bounds."""

import shutil
import socket
import subprocess

import pytest

from support.either import store_address  # noqa: F401 -- a fixture

MEGABYTE = 1024 * 1024


def test_the_store_never_takes_more_than_it_may(start_dwell, record_property):
    dwell = start_dwell(store={"bytes_max": "4mb"})
    client = dwell.store()
    before = dwell.resident_bytes()
    counted = []
    for place in range(4000):
        client.set(f"k{place}", b"x" * 10_000, noreply=True)
        if place % 100 == 99:
            assert client.get(f"k{place}") is not None
            counted.append(dwell.metric("dwell_store_bytes"))
    client.set("last", b"value")
    assert client.get("last") == b"value"
    above = [taken for taken in counted if taken > 4 * MEGABYTE]
    # `make conformance` counts them.
    record_property("looks", len(counted))
    record_property("exceeded", len(above))
    assert above == []
    dwell.await_metric(4 * MEGABYTE, "dwell_store_bytes_max")
    assert dwell.metric("dwell_store_evictions_total") > 3000
    assert dwell.resident_bytes() - before < 40 * MEGABYTE


def test_what_is_read_often_outlives_a_scan(start_dwell):
    dwell = start_dwell(store={"bytes_max": "4mb"})
    client = dwell.store()
    often = [f"often{place}" for place in range(20)]
    for key in often:
        client.set(key, b"x" * 1000)
    for place in range(2000):
        if place % 10 == 0:
            client.get_many(often)
        client.set(f"once{place}", b"x" * 10_000, noreply=True)
    assert len(client.get_many(often)) >= 18


def test_an_evicted_value_is_a_change_for_those_who_wait(start_dwell, app, cleanup):
    dwell = start_dwell(store={"bytes_max": "2mb"}, upstream={"url": app.url})
    client = dwell.store()
    client.set("/poll/alice", b"value")
    etag = dwell.get("/poll/alice").etag
    poll = cleanup.enter_context(dwell.connect())
    poll.ask("/poll/alice?wait=30", fields={"If-None-Match": etag})
    dwell.await_waiters(1)
    for place in range(2000):
        client.set(f"k{place}", b"x" * 10_000, noreply=True)
    assert client.get("k1999") is not None
    # Either it stayed because it is watched, or the poll was answered as a miss.
    if client.get("/poll/alice") is None:
        assert poll.answer().body == b"from the app"
    else:
        client.set("/poll/alice", b"new")
        assert poll.answer().body == b"new"


def test_connections_of_the_store_are_bounded(start_dwell, cleanup):
    dwell = start_dwell(store={"connections_max": 4}, server={"pollers": 1})
    for _ in range(4):
        client = cleanup.enter_context(socket.create_connection(dwell.store_address, timeout=5))
        client.sendall(b"mn\r\n")
        assert client.recv(10) == b"MN\r\n"
    with socket.create_connection(dwell.store_address, timeout=5) as over:
        try:
            over.sendall(b"mn\r\n")
            answer = over.recv(100)
        except ConnectionError:
            answer = b""
    assert answer in (b"", b"ERROR Too many open connections\r\n")
    assert dwell.get("/poll/none").status == 404


@pytest.mark.skipif(not shutil.which("memccapable"), reason="needs libmemcached-tools")
def test_libmemcacheds_own_conformance_test(store_address):  # noqa: F811
    host, port = store_address
    command = ["memccapable", "-h", host, "-p", str(port), "-a", "-t", "5"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "All tests passed" in result.stdout
