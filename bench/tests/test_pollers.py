import socket
import time

import pytest

from harness.pollers import Arrivals
from harness.stage import ContenderError


def test_arrivals_are_counted_once_per_socket() -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    arrivals = Arrivals([ours for ours, _ in pairs])
    start = time.monotonic()
    for _, theirs in pairs:
        theirs.sendall(b"one")
        theirs.sendall(b"more")
    first, last = arrivals.wait_all(1)
    assert start <= first <= last
    arrivals.close()
    for pair in pairs:
        for end in pair:
            end.close()


def test_a_waiter_that_hears_nothing_is_an_error() -> None:
    quiet, other = socket.socketpair()
    arrivals = Arrivals([quiet])
    with pytest.raises(ContenderError, match="0 of 1 waiters"):
        arrivals.wait_all(0.01)
    arrivals.close()
    quiet.close()
    other.close()
