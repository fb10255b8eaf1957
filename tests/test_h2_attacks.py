"""Attacks on HTTP/2: each ends by its own fault, in little memory, and others are served."""

import os
import pathlib
import struct

import pytest

from support import ports
from support.http2 import (
    CLOSED,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    NARROW,
    OPENING,
    PING,
    PRIORITY,
    Client,
    Rogue,
    block,
    field,
    frame,
    headers,
    reset,
    settings,
    window,
)
from support.process import Process

ROOT = pathlib.Path(__file__).resolve().parents[1]
SERVER = pathlib.Path(os.environ.get("DWELL_H2C", ROOT / "target/debug/examples/h2c"))
PROTOCOL_ERROR, REFUSED_STREAM, CALM = 1, 7, 0xB
MEGABYTE = 1024 * 1024
# Streams that a client may have open.
STREAMS = 128


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The example with HTTP/2 without TLS."""
    address = ports.free_address()
    log = tmp_path_factory.mktemp("h2c") / "h2c.log"
    process = Process([SERVER, ports.text(address)], log)
    try:
        process.start_listening(address)
        process.address = address
        yield process
    finally:
        process.stop()


@pytest.fixture
def others(server):
    """A client that is served before an attack, behind it, and whenever it asks meanwhile; the
    attack takes no more than a few megabytes."""
    with Client(server.address) as client:
        assert client.get() == (200, b"hello, world\n")
        before = server.memory_bytes()
        yield client
        assert client.get() == (200, b"hello, world\n")
        assert server.memory_bytes() - before < 8 * MEGABYTE


def odd(count, first=1):
    return range(first, first + 2 * count, 2)


def flood(server, others, pieces, opening=OPENING):
    """Sends all pieces, or as many as the server takes; returns the code by which it ends."""
    with Rogue(server.address, opening) as rogue:
        for number, piece in enumerate(pieces):
            if number % 20 == 0:
                assert others.get()[0] == 200
            if not rogue.send(piece):
                break
        return rogue.go_away()


def get(stream, path=b"/", **more):
    return headers(stream, block(path=path, **more))


# A stream whose body goes on, and which an error of its client ends.
MADE_TO_RESET = headers(1, block(method=b"POST"), END_HEADERS) + window(1, 0)

FLOODS = {
    "2019-9511 data dribble": [get(1, b"/big/100000"), *[window(1, 1) * 50] * 200],
    "2019-9512 ping": [frame(PING, payload=b"12345678") * 100] * 200,
    "2019-9513 priority loop": [frame(PRIORITY, 0, 1, struct.pack(">IB", 3, 9)) * 100] * 200,
    "2019-9514 reset": [headers(stream, b"\x82", END_HEADERS) for stream in odd(400)],
    "2019-9515 settings": [settings((4, 1 << 20)) * 100] * 200,
    "2019-9516 empty headers": [
        get(stream, authority=None) + headers(stream, field(b"", b"")) for stream in odd(400)
    ],
    "2019-9518 empty frames": [
        headers(1, block(method=b"POST"), END_HEADERS),
        *[frame(DATA, 0, 1) * 100] * 200,
    ],
    "RUSTSEC-2026-0258 empty padded frames": [
        headers(1, block(method=b"POST"), END_HEADERS),
        *[frame(DATA, 8, 1, b"\x02\0\0") * 100] * 200,
    ],
    "2023-44487 rapid reset": [get(stream, b"/big/0") + reset(stream) for stream in odd(400)],
    "continuation flood": [
        headers(1, block(), 0),
        *[frame(CONTINUATION, 0, 1, field(b"x", b"y" * 100) * 9)] * 200,
    ],
    "empty continuation flood": [headers(1, block(), 0), *[frame(CONTINUATION, 0, 1)] * 200],
    "2025-8671 made to reset by a window of 0": [
        get(stream, b"/big/100") + window(stream, 0) for stream in odd(400)
    ],
    "2025-8671 made to reset by too much of a window": [
        get(stream, b"/big/100") + window(stream, (1 << 31) - 1) for stream in odd(400)
    ],
    "2025-8671 made to reset by data behind the end": [
        get(stream, b"/big/100") + frame(DATA, END_STREAM, stream, b"d") for stream in odd(400)
    ],
    "unknown frames": [frame(0x77) * 100] * 200,
    "fields of a stream that was reset": [
        MADE_TO_RESET,
        *[headers(1, b"\x90" * 16_000)] * 800,
    ],
    "data of a stream that was reset": [
        MADE_TO_RESET,
        *[frame(DATA, 0, 1, b"d") * 100] * 200,
    ],
    "ends of a stream that was reset": [
        MADE_TO_RESET,
        *[frame(DATA, END_STREAM, 1) * 100] * 200,
    ],
    "windows of a stream that has ended": [get(1), *[window(1, 1024) * 100] * 200],
    "windows of a connection that sends nothing": [window(0, 1024) * 100] * 200,
}
# Their answers stay, so that there is something to reset.
HELD = ("2019-9511", "2023-44487", "2025-8671")


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_its_connection(server, others, name):
    opening = NARROW if name.startswith(HELD) else OPENING
    assert flood(server, others, FLOODS[name], opening) == CALM


# A field of 4,000 bytes that goes into the table, and is then named by one byte.
BOMB = b"\x40\x01x\x7f" + bytes([0x80 | (3873 & 0x7F), 3873 >> 7]) + b"b" * 4000
CRUMBS = b"\x40\x06cookie\x00" + b"\xbe" * 8000


@pytest.mark.parametrize("fields", [BOMB + b"\xbe" * 8000, CRUMBS], ids=["2016-6581", "2026-49975"])
def test_fields_of_one_byte_are_counted_as_what_they_say(server, others, fields):
    rogues = [Rogue(server.address, CLOSED) for _ in range(10)]
    for rogue in rogues:
        for stream in odd(STREAMS):
            rogue.send(headers(stream, block() + fields[:16_000]))
        # The bodies of its answers stay, as they have no window.
        assert b"431" in rogue.until(HEADERS, odd(STREAMS)[-1])
        assert others.get()[0] == 200
    for rogue in rogues:
        rogue.socket.close()


def test_answers_for_a_closed_window_are_bounded(server):
    """CVE-2019-9517: large answers, and a client that takes nothing of them."""
    before = server.memory_bytes()
    with Rogue(server.address, CLOSED) as rogue, Client(server.address) as others:
        for stream in odd(100):
            rogue.send(get(stream, b"/big/1000000"))
        # 16 MiB, and the answer that goes beyond them.
        assert rogue.reset_of(odd(100)[-1]) == REFUSED_STREAM
        assert others.get() == (200, b"hello, world\n")
        assert server.memory_bytes() - before < 24 * MEGABYTE


MALFORMED = {
    "capitals": block((b"Name", b"v")),
    "a line end in a value": block((b"x", b"v\r\nhost: b")),
    "a bare line feed": block((b"x", b"v\nhost: b")),
    "a zero": block((b"x", b"v\0")),
    "a space before a value": block((b"x", b" v")),
    "a colon in a name": block((b"x:y", b"v")),
    "a space in a name": block((b"x ", b"v")),
    "a line end in a name": block((b"x\r\ny", b"v")),
    "no name": block((b"", b"v")),
    "transfer-encoding": block((b"transfer-encoding", b"chunked")),
    "connection": block((b"connection", b"close")),
    "keep-alive": block((b"keep-alive", b"timeout=5")),
    "proxy-connection": block((b"proxy-connection", b"close")),
    "upgrade": block((b"upgrade", b"websocket")),
    "te": block((b"te", b"trailers, gzip")),
    "two authorities": block() + field(b":authority", b"b"),
    "an authority twice": field(b":authority", b"a") + block(),
    "another host": block((b"host", b"b")),
    "two hosts": block((b"host", b"a"), (b"host", b"a")),
    "no host": block(authority=None),
    "an empty authority": block(authority=b""),
    "a user in the authority": block(authority=b"user@a"),
    "a path in the authority": block(authority=b"a/b"),
    "no path": field(b":method", b"GET") + field(b":scheme", b"http") + field(b":authority", b"a"),
    "an empty path": block(path=b""),
    "a path without a slash": block(path=b"x"),
    "a path of a whole URI": block(path=b"http://b/"),
    "a star of GET": block(path=b"*"),
    "a space in the path": block(path=b"/ HTTP/1.1"),
    "a line end in the path": block(path=b"/\r\nhost: b"),
    "a line end in the method": block(method=b"GET /x HTTP/1.1\r\nhost: b"),
    "an empty method": block(method=b""),
    "a status": block() + field(b":status", b"200"),
    "an unknown pseudo-header field": block() + field(b":x", b"y"),
    "a pseudo-header field behind a field": field(b"x", b"y") + block(),
    "a length of nothing": block((b"content-length", b"5")),
    "two lengths": block((b"content-length", b"0"), (b"content-length", b"0")),
    "a signed length": block((b"content-length", b"+0")),
    "a list of lengths": block((b"content-length", b"0, 0")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_would_be_another_request_in_http1_is_refused(server, name):
    with Rogue(server.address) as rogue:
        rogue.send(headers(1, MALFORMED[name]))
        assert rogue.reset_of(1) == PROTOCOL_ERROR
        # The connection, and its table of fields, are as they were.
        rogue.send(get(3))
        assert b"hello" in rogue.until(DATA, 3)


def test_resets_leave_no_work_for_a_slow_application(start_dwell, raw):
    """Ten thousand requests, each of which is reset at once."""
    dwell = start_dwell(server={"h2c": True, "pollers": 1}, upstream={"url": raw.url})
    dwell.store().set("/poll/a", b"value")
    assert dwell.get("/poll/a").body == b"value"
    before = dwell.memory_bytes()
    pairs = [get(stream, b"/slow") + reset(stream) for stream in odd(250)]
    for _ in range(40):
        with Rogue(dwell.address) as rogue:
            rogue.send(b"".join(pairs))
            assert rogue.go_away() == CALM
        assert dwell.get("/poll/a").body == b"value"
    assert dwell.memory_bytes() - before < 8 * MEGABYTE
    dwell.await_metric(0, "dwell_upstream_connections_open")
    dwell.await_connections(0)
