"""Clients of every kind at once, none of which takes a failure: each is one that users would see.

Every value is a number that only grows. What was acknowledged to a writer is the least that a poll
which is sent afterwards may be answered with.
"""

import contextlib
import socket
import threading

from support.events import EventStream
from support.http import Connection
from support.websocket import WebSocket

TOKEN = "token-of-the-publisher"
KEYS = ("/poll/by-memcached", "/poll/by-http")
PATIENCE_S = 30


class Traffic:
    """Clients that run until they are stopped; `faults` is what they have seen go wrong."""

    def __init__(self, dwell):
        self.dwell = dwell
        self.faults = []
        self.acknowledged = dict.fromkeys(KEYS, 0)
        self.seen = {}
        self.rounds = {}
        self._open = {}
        self._rests = False
        self._is_over = threading.Event()
        clients = {"memcached": self._write, "http": self._publish}
        for key in KEYS:
            clients[f"poll {key}"] = lambda name, key=key: self._poll(name, key)
            clients[f"long-poll {key}"] = lambda name, key=key: self._wait(name, key)
            clients[f"stream {key}"] = lambda name, key=key: self._follow(name, key)
            clients[f"socket {key}"] = lambda name, key=key: self._listen(name, key)
        self._threads = [
            threading.Thread(target=self._run, args=client, daemon=True)
            for client in clients.items()
        ]
        self.names = list(clients)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for open_socket in self._open.values():
            # Who waits for news need not wait any more.
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def has_moved(self):
        """A function that says whether every client has had success since now."""
        before = dict(self.rounds)
        return lambda: (
            self.faults
            or all(self.rounds.get(name, 0) > before.get(name, 0) for name in self.names)
        )

    def has_caught_up(self):
        """Whether every client knows the newest values."""
        return self.faults or all(
            value >= self.acknowledged[name.split()[1]] for name, value in self.seen.items()
        )

    def rest(self):
        """Stops those who write; the others go on."""
        self._rests = True

    def _run(self, name, client):
        try:
            while not self._is_over.is_set():
                client(name)
        except Exception as error:  # Whatever it is, a user would see it.
            if self._is_over.is_set():
                return
            self.faults.append(f"{name}: {error!r}")

    def _told(self, name, value, floor=0):
        before = self.seen.get(name, 0)
        assert value >= max(before, floor), f"{value} after {before}, at least {floor}"
        self.seen[name] = value
        self.rounds[name] = self.rounds.get(name, 0) + 1

    def _goes_on(self):
        return not (self._is_over.is_set() or self._rests)

    def _write(self, name):
        key = KEYS[0]
        with socket.create_connection(self.dwell.store_address, PATIENCE_S) as client:
            while self._goes_on():
                value = self.acknowledged[key] + 1
                data = str(value).encode()
                client.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(data), data))
                reply = receive(client, len(b"STORED\r\n"))
                assert reply == b"STORED\r\n", reply
                self.acknowledged[key] = value
                self.rounds[name] = self.rounds.get(name, 0) + 1
        self._is_over.wait(0.01)

    def _publish(self, name):
        key = KEYS[1]
        fields = {"Authorization": f"Bearer {TOKEN}"}
        with Connection(self.dwell.address, PATIENCE_S) as client:
            while self._goes_on():
                value = self.acknowledged[key] + 1
                answer = client.get(key, "PUT", fields, str(value).encode())
                if answer.status == 503:
                    assert answer.field("Retry-After") == "0", answer
                    continue
                assert answer.status in (201, 204), answer
                self.acknowledged[key] = value
                self.rounds[name] = self.rounds.get(name, 0) + 1
                if answer.closes:
                    return
        self._is_over.wait(0.01)

    def _poll(self, name, key):
        with Connection(self.dwell.address, PATIENCE_S) as client:
            while not self._is_over.is_set():
                floor = self.acknowledged[key]
                answer = client.get(key)
                assert answer.status == 200, answer
                self._told(name, int(answer.body), floor)
                if answer.closes:
                    return

    def _wait(self, name, key):
        cursor = ""
        with Connection(self.dwell.address, PATIENCE_S) as client:
            while not self._is_over.is_set():
                answer = client.get(f"{key}?wait=1s{cursor}")
                assert answer.status in (200, 204), answer
                if answer.status == 200:
                    self._told(name, int(answer.body))
                    cursor = f"&since={answer.field('Poll-Cursor')}"
                if answer.closes:
                    return

    def _follow(self, name, key):
        stream = EventStream(self.dwell.address, key, timeout_s=PATIENCE_S)
        self._open[name] = stream.socket
        try:
            stream.begin()
            assert stream.response.status == 200, stream.response
            while not self._is_over.is_set():
                event = stream.event()
                if event is None:
                    return
                self._told(name, int(event.data))
        finally:
            stream.close()

    def _listen(self, name, key):
        client = WebSocket(self.dwell.address, key, timeout_s=PATIENCE_S)
        self._open[name] = client.socket
        try:
            assert client.response.status == 101, client.response
            while not self._is_over.is_set():
                heard = client.hear()
                if heard == 1001:
                    return
                self._told(name, int(heard["v"]))
        finally:
            client.close()


def receive(client, count):
    """Exactly `count` bytes from a socket, fewer only at its end."""
    data = b""
    while len(data) < count and (piece := client.recv(count - len(data))):
        data += piece
    return data


def fill(dwell):
    """Gives every key its first value."""
    for key in KEYS:
        dwell.store().set(key, b"0")
