"""WebSockets on streams of HTTP/2 (RFC 8441), many of them on one connection."""

import contextlib

from h2.exceptions import StreamClosedError

from support.http import Response
from support.websocket import Frames


class Http2WebSocket(Frames):
    """One WebSocket; `response` is the answer to its handshake."""

    def __init__(self, client, target, fields=(), **pseudo):
        self.client = client
        self.used = 0
        head = {
            ":method": "CONNECT",
            ":protocol": "websocket",
            ":scheme": "http",
            ":path": target,
            ":authority": "localhost",
            "sec-websocket-version": "13",
            **pseudo,
            **dict(fields),
        }
        head = [(name.lower(), value) for name, value in head.items() if value is not None]
        self.number = client.ask_by(head, is_whole=False)
        self.stream = client.streams[self.number]
        client.until(self.number, lambda stream: stream.status or stream.is_over)
        stream = self.stream
        self.response = Response("HTTP/2", stream.status, "", stream.fields, b"")

    def send(self, data):
        self.client.send_body(self.number, data, is_last=False)

    def end(self):
        """Ends the client's side of the stream, unless the server has closed it."""
        with contextlib.suppress(StreamClosedError):
            self.client.h2.end_stream(self.number)
        self.client.flush()

    def reset(self):
        self.client.h2.reset_stream(self.number, 8)
        self.client.flush()

    def has_ended(self):
        """Reads until the server has ended the stream; true if that was in order."""
        return self.client.until(self.number, lambda stream: stream.is_over).has_ended

    def _take(self, count):
        end = self.used + count
        self.client.until(self.number, lambda stream: len(stream.body) >= end)
        data = self.stream.body[self.used : end]
        self.used = end
        return data
