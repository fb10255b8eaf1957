"""A client of WebSockets on poll routes, strict about what a server may send."""

import base64
import hashlib
import json
import os
import struct

from support.http import Connection, request

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Frames:
    """Frames of a client over any way for bytes: `send(bytes)` and `_take(count)`."""

    pings = 0

    def send_frame(self, payload, opcode=TEXT):
        mask = os.urandom(4)
        length = len(payload)
        if length < 126:
            size = struct.pack("!B", 0x80 | length)
        elif length < 1 << 16:
            size = struct.pack("!BH", 0x80 | 126, length)
        else:
            size = struct.pack("!BQ", 0x80 | 127, length)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        self.send(bytes([0x80 | opcode]) + size + mask + masked)

    def say(self, **content):
        """Sends one frame of a client."""
        self.send_frame(json.dumps(content).encode())

    def frame(self):
        """The opcode and payload of the next frame."""
        first, second = self._take(2)
        assert first & 0xF0 == 0x80
        assert second < 0x80
        length = second
        if length == 126:
            (length,) = struct.unpack("!H", self._take(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._take(8))
        return first & 0x0F, self._take(length)

    def hear(self):
        """The content of the next message, pings answered; or the code of the end."""
        while True:
            opcode, payload = self.frame()
            if opcode == TEXT:
                return json.loads(payload)
            if opcode == CLOSE:
                return struct.unpack("!H", payload[:2])[0]
            assert opcode == PING
            self.pings += 1
            self.send_frame(payload, PONG)


class WebSocket(Frames, Connection):
    """One WebSocket; `response` is the answer to its handshake."""

    def __init__(self, address, target, fields=(), **options):
        super().__init__(address, **options)
        key = base64.b64encode(os.urandom(16))
        handshake = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key.decode(),
        }
        self.send(request(target, fields={**handshake, **dict(fields)}))
        self.response = self._head()
        if self.response.status == 101:
            digest = base64.b64encode(hashlib.sha1(key + _MAGIC).digest())
            assert self.response.field("Sec-WebSocket-Accept") == digest.decode()
        else:
            self.response.body = self._body(self.response, "GET")
