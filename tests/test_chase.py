"""Clients that follow a value which changes all the time: no change may be lost for good."""

import random
import threading

from support.events import EventStream
from support.http import Connection
from support.upstream import Answer

KEY = "/poll/counter"
CLIENTS = 16
# A lost wake-up would show as a poll that waits this long for nothing.
WAIT_S = 20


class Follower(threading.Thread):
    """Polls from value to value until it has seen `last`."""

    def __init__(self, address, last, key=KEY):
        super().__init__(daemon=True)
        self.address, self.last, self.key = address, last, key
        self.seen = []
        self.error = None
        self.start()

    def run(self):
        try:
            self._follow()
        except Exception as error:  # shown by the thread that joins
            self.error = error

    def _follow(self):
        etag = '"none"'
        with Connection(self.address, timeout_s=WAIT_S * 2) as connection:
            while not self.seen or self.seen[-1] != self.last:
                target = f"{self.key}?wait={WAIT_S}"
                response = connection.get(target, fields={"If-None-Match": etag})
                assert response.status == 200, f"{response.status} after {self.seen[-3:]}"
                self.seen.append(int(response.body))
                etag = response.etag


def finish(followers):
    for follower in followers:
        follower.join(WAIT_S)
        assert not follower.is_alive(), f"stuck after {follower.seen[-3:]}"
        assert follower.error is None, follower.error


def test_everyone_reaches_the_last_value(backend):
    dwell, cache = backend
    cache.set(KEY, b"0")
    followers = [Follower(dwell.address, 1000) for _ in range(CLIENTS)]
    for _ in range(1000):
        cache.incr(KEY, 1)
    finish(followers)
    for follower in followers:
        # Values may be skipped, for the latest wins, but never come out of order or twice.
        assert follower.seen == sorted(set(follower.seen))


def test_everyone_reaches_the_last_of_values_a_little_apart(backend):
    dwell, cache = backend
    cache.set(KEY, b"0")
    followers = [Follower(dwell.address, 50) for _ in range(CLIENTS)]
    with Connection(dwell.address) as pacer:
        etag = pacer.get(KEY).etag
        for _ in range(50):
            # Each change comes when one client at least has the one before.
            cache.incr(KEY, 1)
            response = pacer.get(f"{KEY}?wait={WAIT_S}", fields={"If-None-Match": etag})
            assert response.status == 200
            etag = response.etag
    finish(followers)


def test_a_value_that_comes_and_goes_is_followed(backend, app):
    dwell, cache = backend
    cache.set(KEY, b"0")
    followers = [Follower(dwell.address, 200) for _ in range(CLIENTS)]
    # The application has no news: who misses asks again.
    app.answer = lambda request: Answer(b"-1", fields=(("ETag", '"none"'),))
    for value in range(1, 201):
        cache.delete(KEY)
        cache.set(KEY, str(value))
    finish(followers)


class Wanderer(Follower):
    """Follows by a stream and by long polls in turn, from one to the other at random."""

    def _follow(self):
        self.known, self.random = "", random.Random(self.ident)
        while not self.seen or self.seen[-1] != self.last:
            (self._stream if self.random.random() < 0.5 else self._poll)()

    def _stream(self):
        with EventStream(self.address, self.key, self.known, timeout_s=WAIT_S * 2) as stream:
            assert stream.begin().response.status == 200
            for _ in range(self.random.randrange(1, 5)):
                event = stream.event()
                if event is None:
                    return
                self._told(event.data, event.id)
                if self.seen[-1] == self.last:
                    return

    def _poll(self):
        with Connection(self.address, timeout_s=WAIT_S * 2) as connection:
            response = connection.get(f"{self.key}?since={self.known}&wait={WAIT_S}")
            assert response.status == 200, f"{response.status} after {self.seen[-3:]}"
            self._told(response.body, response.field("Poll-Cursor"))

    def _told(self, value, known):
        assert known != self.known, f"told twice of {value}"
        self.seen.append(int(value))
        self.known = known


def test_everyone_reaches_the_last_value_by_changing_transports(backend):
    dwell, cache = backend
    cache.set(KEY, b"0")
    followers = [Wanderer(dwell.address, 600) for _ in range(CLIENTS)]
    for _ in range(600):
        cache.incr(KEY, 1)
    finish(followers)
    for follower in followers:
        assert follower.seen == sorted(set(follower.seen))
    dwell.await_waiters(0)
