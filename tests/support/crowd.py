"""Thousands of clients at once, on one epoll loop."""

import select
import socket
import struct
import time

from support.wait import PATIENCE_S

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Crowd:
    """`count` connections that each send the same request and wait for one answer."""

    def __init__(self, address, count):
        self.address = address
        self.buffers = {}
        self.sockets = {}
        self.epoll = select.epoll()
        for _ in range(count):
            self._connect()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    def _connect(self):
        # A blocking connect: the next client comes when the listener has room for it.
        client = socket.create_connection(self.address, timeout=PATIENCE_S)
        # Leaves no port behind in TIME_WAIT, and is the rudest way for a client to go.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        client.setblocking(False)
        self.sockets[client.fileno()] = client
        self.buffers[client.fileno()] = b""
        self.epoll.register(client.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def send(self, data):
        """Every client sends `data`, which is small enough for any send buffer."""
        self.send_each(lambda place: data)

    def send_each(self, make):
        """Client number `place` sends `make(place)`."""
        for place, client in enumerate(self.sockets.values()):
            data = make(place)
            assert client.send(data) == len(data)

    def leave(self, count=None):
        """The first `count` clients (all, by default) go away without a word."""
        for descriptor in list(self.sockets)[:count]:
            self.epoll.unregister(descriptor)
            self.sockets.pop(descriptor).close()
            self.buffers.pop(descriptor)

    def answers(self, timeout_s=PATIENCE_S):
        """Reads until every client has one whole answer; returns them as (status, head, body)."""
        deadline = time.monotonic() + timeout_s
        done = {}
        while len(done) < len(self.sockets):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"{len(done)} of {len(self.sockets)} answered in {timeout_s} s"
            for descriptor, _ in self.epoll.poll(left_s, 4096):
                if self._read(descriptor):
                    answer = _parse(self.buffers[descriptor])
                    if answer is not None:
                        done[descriptor] = answer
                        self.buffers[descriptor] = b""
        return list(done.values())

    def _read(self, descriptor):
        try:
            data = self.sockets[descriptor].recv(65536)
        except BlockingIOError:
            return False
        if not data:
            # An answer that ends with the connection; silence is found by the deadline.
            self.epoll.modify(descriptor, 0)
        self.buffers[descriptor] += data
        return bool(data)


def _parse(data):
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    status = int(head.split(b" ", 2)[1])
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and status not in (204, 304):
            length = int(value)
    return (status, head, body) if len(body) >= length else None
