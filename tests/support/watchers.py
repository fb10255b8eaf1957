"""Clients that follow a key over any transport, as programs do, and check what they are told."""

import contextlib
import random
import threading

from support.events import EventStream
from support.http import Connection

FAILURES = (OSError, EOFError, ValueError, AssertionError)
WAIT_S = 3


class Watcher:
    """Follows `key` at `address` until it is stopped; `value` is the newest it was told.

    It changes its transport from time to time and goes on with the cursor it has. `faults` lists
    what no client should ever see.
    """

    def __init__(self, address, key, seed):
        self.address, self.key = address, key
        self.value = self.cursor = None
        self.told = 0
        self.faults = []
        self._random = random.Random(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        """Ends it after the answer or the event that it waits for."""
        self._is_over.set()

    def join(self):
        self._thread.join(20)
        assert not self._thread.is_alive(), "a watcher does not end"

    def _run(self):
        while not self._is_over.is_set():
            turn = self._random.choice([self._poll, self._long_poll, self._stream])
            try:
                turn()
            except FAILURES:
                self._is_over.wait(self._random.uniform(0.01, 0.2))

    def _take(self, value, cursor, is_from_cache):
        """A value was told."""
        if is_from_cache and cursor == self.cursor:
            self.faults.append(f"{self.key} was told twice of {value!r}")
        self.value, self.cursor = value, cursor
        self.told += 1

    def _ask(self, connection, wait):
        since = f"&since={self.cursor}" if self.cursor else ""
        answer = connection.get(f"{self.key}?wait={wait}{since}")
        if answer.status == 200:
            cached = "hit" in answer.field("Cache-Status")
            self._take(answer.body, answer.field("Poll-Cursor"), cached)
        elif answer.status not in (204, 304, 404, 502, 503, 504):
            self.faults.append(f"{self.key}: status {answer.status}")
        elif answer.status == 404 or answer.status >= 500:
            raise EOFError(f"status {answer.status}")

    def _poll(self):
        with Connection(self.address, timeout_s=WAIT_S) as connection:
            self._ask(connection, 0)
        self._is_over.wait(self._random.uniform(0.01, 0.1))

    def _long_poll(self):
        with Connection(self.address, timeout_s=2 * WAIT_S) as connection:
            for _ in range(self._random.randrange(1, 10)):
                self._ask(connection, WAIT_S)
                if self._is_over.is_set():
                    return

    def _stream(self):
        opened = EventStream(self.address, self.key, self.cursor or "", timeout_s=2 * WAIT_S)
        with contextlib.closing(opened) as stream:
            stream.begin()
            if stream.response.field("Content-Type") != "text/event-stream":
                raise EOFError(f"status {stream.response.status}")
            # The first event of a stream that missed is the application's.
            from_cache = "hit" in stream.response.field("Cache-Status")
            for _ in range(self._random.randrange(1, 20)):
                event = stream.event()
                if event is None or self._is_over.is_set():
                    return
                if event.type == "delete":
                    self.cursor = None
                else:
                    self._take(event.data.encode(), event.id, from_cache)
                from_cache = True
