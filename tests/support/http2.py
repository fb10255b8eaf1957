"""HTTP/2 in two hands: a well-behaved client of the library `h2`, and one that sends any frame."""

import contextlib
import socket
import struct

import h2.connection
import h2.events

from support.wait import PATIENCE_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
HEADER_BYTES = 9


def frame(kind, flags=0, stream=0, payload=b""):
    head = struct.pack(">IBBI", len(payload) << 8 | kind, flags, 0, stream)
    # The length has three bytes, so the fourth is the type, and a byte is too many behind it.
    return head[:5] + head[6:] + payload


def window(stream, increment):
    return frame(WINDOW_UPDATE, stream=stream, payload=struct.pack(">I", increment))


def reset(stream, code=8):
    return frame(RST_STREAM, stream=stream, payload=struct.pack(">I", code))


def settings(*pairs):
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", *pair) for pair in pairs))


# What a client begins with.
OPENING = PREFACE + settings()
# The same, of one that takes no bodies, or a byte of each.
CLOSED = PREFACE + settings((4, 0))
NARROW = PREFACE + settings((4, 1))


def text(data):
    """A string of a field block, as it is."""
    assert len(data) < 127
    return bytes([len(data)]) + data


def field(name, value):
    """A field line that goes into no table."""
    return b"\0" + text(name) + text(value)


def block(*lines, path=b"/", method=b"GET", authority=b"a"):
    """The block of a request, with further lines."""
    pseudo = [(b":method", method), (b":scheme", b"http"), (b":path", path)]
    if authority is not None:
        pseudo.append((b":authority", authority))
    return b"".join(field(*line) for line in [*pseudo, *lines])


def headers(stream, payload, flags=END_HEADERS | END_STREAM):
    return frame(HEADERS, flags, stream, payload)


class Rogue:
    """A connection on which any bytes are sent."""

    def __init__(self, address, opening=OPENING):
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.received = b""
        self.is_open = True
        self.send(opening)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Sends it, unless the server has ended the connection; returns whether it has not."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.is_open = False
        return self.is_open

    def next(self):
        """The next frame as (kind, flags, stream, payload); None at the end of the connection."""
        while len(self.received) < (size := self._size()):
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self.received += data
        kind, flags, stream = struct.unpack(">BBI", self.received[3:HEADER_BYTES])
        payload = self.received[HEADER_BYTES:size]
        self.received = self.received[size:]
        return kind, flags, stream, payload

    def _size(self):
        if len(self.received) < HEADER_BYTES:
            return HEADER_BYTES
        return HEADER_BYTES + int.from_bytes(self.received[:3])

    def until(self, kind, stream=0):
        """The payload of the next frame of this type on this stream."""
        while (got := self.next()) is not None:
            if got[0] == kind and got[2] == stream:
                return got[3]
            assert got[0] != GOAWAY, f"the connection ends: {got[3][4:8]}"
        raise AssertionError("the connection has ended")

    def go_away(self):
        """The code of the last GOAWAY before the connection ends."""
        code = None
        while (got := self.next()) is not None:
            if got[0] == GOAWAY:
                code = int.from_bytes(got[3][4:8])
        return code

    def reset_of(self, stream):
        return int.from_bytes(self.until(RST_STREAM, stream))


class Client:
    """A client that keeps to the rules, one request at a time."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.state = h2.connection.H2Connection()
        self.state.initiate_connection()
        self._flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.socket.close()

    def _flush(self):
        self.socket.sendall(self.state.data_to_send())

    def get(self, path="/"):
        """The status and the body of an answer."""
        stream = self.state.get_next_available_stream_id()
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", path)]
        self.state.send_headers(stream, fields, end_stream=True)
        self._flush()
        status, body = None, b""
        while True:
            data = self.socket.recv(65536)
            assert data, "the connection has ended"
            for event in self.state.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    names = {bytes(name): bytes(value) for name, value in event.headers}
                    status = int(names[b":status"])
                elif isinstance(event, h2.events.DataReceived):
                    body += event.data
                    size = event.flow_controlled_length
                    self.state.acknowledge_received_data(size, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    self._flush()
                    return status, body
                else:
                    ended = (h2.events.ConnectionTerminated, h2.events.StreamReset)
                    assert not isinstance(event, ended), event
            self._flush()
