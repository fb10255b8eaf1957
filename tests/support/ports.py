"""Free ports on loopback."""

import itertools
import os
import socket

HOST = "127.0.0.1"

# Below the range from which the kernel takes the ports of outgoing connections, so that none of
# the thousands of clients started here can hold a port that a server is about to take.
_FIRST, _LAST = 12_000, 30_000
# Runs beside one another look in different places, and the workers of one run share none.
_WORKERS, _worker = 2, int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_RANGE = range(_FIRST + _worker % _WORKERS, _LAST, _WORKERS)
_places = itertools.count(os.getpid() * 7919)


def free_address():
    """An address nobody listens at, not handed out before in this run."""
    for _ in _RANGE:
        port = _RANGE[next(_places) % len(_RANGE)]
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return HOST, port
    raise AssertionError("no free port")


def text(address):
    """`host:port`."""
    return f"{address[0]}:{address[1]}"
