"""Clients that read little or nothing of what they asked for: what they cost has a bound."""

import contextlib
import time

import pytest

from support.events import EventStream
from support.http import Connection, request
from support.upstream import Answer
from support.wait import until

LARGE = 1_000_000
FEW_BYTES, PART_BYTES = 4096, 65_536
ROUNDS, READERS_PER_ROUND = 3, 3
OUTPUT_BYTES_MAX = 8 << 20
MISS_BYTES = 6_000_000
EVENTS = {"Accept": "text/event-stream"}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
# One megabyte becomes seven and six of it, and three.
LINES, CONTROLS, INVALID = b"\n" * LARGE, b"\x01" * LARGE, b"\xff" * LARGE
FORMS = {
    "poll": ("/poll/{}", {}, CONTROLS),
    "several": ("/poll/?k={}", {}, CONTROLS),
    "stream": ("/poll/{}", EVENTS, LINES),
    "stream-invalid": ("/poll/{}", EVENTS, INVALID),
    "stream-several": ("/poll/?k={}", EVENTS, LINES),
    "websocket": ("/poll/{}", UPGRADE, CONTROLS),
    "websocket-several": ("/poll/?k={}", UPGRADE, CONTROLS),
    "miss": ("/poll/{}", {}, None),
}


def ask(dwell, target, fields, receive_buffer_bytes=FEW_BYTES):
    """A client whose socket takes little of what it asks for."""
    reader = Connection(dwell.address, receive_buffer_bytes=receive_buffer_bytes)
    # The system may have room for the first answers.
    reader.send(request(target, fields=fields) * (1 if fields else 8))
    return reader


@pytest.mark.parametrize("form", FORMS)
def test_what_nobody_reads_has_a_bound(start_dwell, app, cleanup, form):
    app.answer = lambda _: Answer(body=b"x" * MISS_BYTES)
    dwell = start_dwell(
        limits={"output_bytes_max": OUTPUT_BYTES_MAX},
        store={"bytes_max": "256MiB", "item_bytes_max": "1MiB"},
        upstream={"url": app.url},
        server={"pollers": 2},
    )
    target, fields, value = FORMS[form]
    store = dwell.store()
    store.set("/poll/good", b"0")
    good = cleanup.enter_context(EventStream(dwell.address, "/poll/good"))
    good.begin()
    assert good.event().data == "0"
    for round_number in range(1, ROUNDS + 1):
        for number in range(READERS_PER_ROUND):
            name = f"{round_number}-{number}"
            if value:
                # Each has a key of its own, so that none is shared.
                store.set(f"/poll/{name}", name.encode() + value[16:])
            cleanup.enter_context(ask(dwell, target.format(name), fields))
        # A client that reads is told everything.
        store.set("/poll/good", str(round_number).encode())
        assert good.event().data == str(round_number)
        assert dwell.get("/poll/good").body == str(round_number).encode()
    until(lambda: dwell.metric("dwell_output_cuts_total") > 0, "the slowest are cut off")
    until(lambda: dwell.metric("dwell_output_bytes") <= OUTPUT_BYTES_MAX, "there is room again")
    # The last that came have not waited for as long as the others.
    assert dwell.metric("dwell_connections_open") > 1


@pytest.mark.parametrize("form", ["several", "stream", "websocket"])
def test_who_takes_a_little_now_and_then_is_closed(start_dwell, form):
    limits = {"write_timeout": "1s", "write_rate_min": 1_000_000_000}
    dwell = start_dwell(limits=limits, store={"item_bytes_max": "1MiB"})
    target, fields, value = FORMS[form]
    dwell.store().set("/poll/big", value)
    taken = 0
    with ask(dwell, target.format("big"), fields, PART_BYTES) as reader:

        def is_closed():
            nonlocal taken
            time.sleep(0.02)
            with contextlib.suppress(ConnectionResetError):
                taken += len(reader.socket.recv(PART_BYTES))
            return dwell.metric("dwell_client_timeouts_total", kind="write") == 1

        until(is_closed, "it is closed")
    assert taken < 6 * LARGE
    dwell.await_connections(0)
