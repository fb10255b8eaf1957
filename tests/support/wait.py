"""Waiting for a condition, always with an end."""

import socket
import time

PAUSE_S = 0.005


def until(condition, what, timeout_s=10.0):
    """Calls `condition` until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(PAUSE_S)


def accepts(address):
    """Whether something accepts connections at `address`."""
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


class Stopwatch:
    """Measures the seconds spent in a `with` block."""

    def __enter__(self):
        self.start = time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.start
