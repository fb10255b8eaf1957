"""Bytes that are no request: whatever comes, the program stays and serves the next client."""

import random
import socket

import pytest

from support.http import Connection, request
from support.memcached import store_client

KEY = "/poll/alice"
SEEDS = [
    request(KEY),
    request(KEY, "POST", body=b"a=1&b=2"),
    request("/page", "PUT", {"Transfer-Encoding": "chunked"}, b"5\r\nhello\r\n0\r\n\r\n"),
    request(
        f"{KEY}?wait=1&since=AAAAAAAAAAA", fields={"If-None-Match": 'W/"x"', "Prefer": "wait=1"}
    ),
    b"set k 0 0 5\r\nhello\r\nget k\r\nincr k 1\r\n",
    b"ms k 5 T0 F1\r\nhello\r\nmg k v t s\r\nma k N0\r\nmd k q\r\nmn\r\n",
    b"\x80\x00\x00\x01" + bytes(24),
]
PIECES = [b"\r\n", b"\n", b"\0", b" ", b":", b"\xff", b"0", b"-1", b"99999999999", b"\r\n\r\n"]


def garbled(chance):
    """A seed with a few bytes cut, doubled, flipped or put in."""
    data = bytearray(chance.choice(SEEDS))
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            del data[place : place + chance.randint(1, 10)]
        elif kind == 1:
            data[place:place] = chance.choice(PIECES)
        elif kind == 2 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        else:
            data[place:place] = data[place : place + 20]
    return bytes(data)


@pytest.mark.parametrize("listener", ["address", "admin_address", "store_address"])
def test_garbage_harms_nobody(start_dwell, app, listener):
    limits = {"header_timeout": "1s", "body_timeout": "1s", "idle_timeout": "1s"}
    dwell = start_dwell(limits=limits, upstream={"url": app.url})
    chance = random.Random(listener)
    for _ in range(400):
        data = b"".join(garbled(chance) for _ in range(chance.randint(1, 3)))
        with socket.create_connection(getattr(dwell, listener), timeout=30) as client:
            try:
                client.sendall(data)
                if chance.random() < 0.5:
                    client.shutdown(socket.SHUT_WR)
                    client.settimeout(0.01)
                    client.recv(65536)
            except OSError:
                pass
    assert dwell.is_alive()
    dwell.await_connections(0)
    dwell.await_waiters(0)
    dwell.await_metric(0, "dwell_panics_total")
    client = store_client(dwell.store_address)
    client.set(KEY, b"value")
    with Connection(dwell.address) as connection:
        assert connection.get(KEY).body == b"value"
    assert "panicked" not in dwell.output()
