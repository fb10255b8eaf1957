"""A client of HTTP/2 that says what it has read of each stream."""

import dataclasses
import socket

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes, Settings

from support.http import Response
from support.wait import PATIENCE_S

# The client checks nothing of what it sends: tests send what no client should.
CONFIG = H2Configuration(
    header_encoding="utf-8",
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)

HEADER_BYTES = 9
GOAWAY = 7


@dataclasses.dataclass
class Stream:
    """What has come on one stream."""

    interim: list = dataclasses.field(default_factory=list)
    status: int | None = None
    fields: list = dataclasses.field(default_factory=list)
    body: bytes = dataclasses.field(default=b"", repr=False)
    trailers: list = dataclasses.field(default_factory=list)
    has_ended: bool = False
    reset: int | None = None
    unacknowledged: int = 0

    @property
    def is_over(self):
        return self.has_ended or self.reset is not None


class Http2Connection:
    """One connection. `window_bytes` is what the client takes of each body before it says more.

    Without TLS by prior knowledge, or on a `secure` socket.
    """

    def __init__(self, address=None, window_bytes=None, source=None, secure=None):
        self.streams = {}
        self.buffer = b""
        self.last_streams = []
        self.goaway_code = None
        self.is_closed = False
        self.takes_bodies = window_bytes is None
        self.h2 = H2Connection(CONFIG)
        if window_bytes is not None:
            values = {SettingCodes.INITIAL_WINDOW_SIZE: window_bytes}
            self.h2.local_settings = Settings(client=True, initial_values=values)
        self.h2.initiate_connection()
        source = source and (source, 0)
        self.scheme = "http" if secure is None else "https"
        self.socket = secure or socket.create_connection(address, PATIENCE_S, source)
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def ask(self, target, method="GET", fields=(), body=None, **pseudo):
        """Sends one request; returns the number of its stream."""
        fields = fields.items() if isinstance(fields, dict) else fields
        head = [
            (":method", method),
            (":scheme", pseudo.pop("scheme", self.scheme)),
            (":path", target),
            (":authority", pseudo.pop("authority", "localhost")),
            *((f":{name}", value) for name, value in pseudo.items()),
            *((name.lower(), value) for name, value in fields),
        ]
        if body is not None:
            head.append(("content-length", str(len(body))))
        return self.ask_by([line for line in head if line[1] is not None], body)

    def ask_by(self, head, body=None, is_whole=True):
        """Sends the head of a request as it is given, and the body that is there."""
        number = self.h2.get_next_available_stream_id()
        self.streams[number] = Stream()
        self.h2.send_headers(number, head, end_stream=is_whole and not body)
        if body:
            self.send_body(number, body, is_whole)
        self.flush()
        return number

    def send_body(self, number, body, is_last=True):
        """Sends a body as far and as fast as the server takes it, unless the answer is over."""
        while body and not self.streams[number].is_over:
            room = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)
            if room <= 0:
                self.flush()
                self.read()
                continue
            piece, body = body[:room], body[room:]
            self.h2.send_data(number, piece, end_stream=is_last and not body)
        self.flush()

    def get(self, target, method="GET", fields=(), body=None, **pseudo):
        """Sends one request and reads its answer."""
        return self.answer(self.ask(target, method, fields, body, **pseudo))

    def answer(self, number):
        """Reads one answer to its end."""
        stream = self.until(number, lambda stream: stream.is_over)
        # A reset without an error says that the rest of the request is not wanted.
        assert stream.has_ended, f"the stream was reset: {stream.reset}"
        return Response("HTTP/2", stream.status, "", stream.fields, stream.body)

    def until(self, number, condition):
        """Reads until a condition holds of a stream; returns the stream."""
        stream = self.streams[number]
        while not condition(stream):
            assert not self.is_closed, f"closed before its time: {stream}"
            self.read()
        return stream

    def read_to_end(self):
        """Reads until the server closes."""
        while not self.is_closed:
            self.read()

    def take(self, number):
        """Lets the server go on with a body of which a whole window was sent."""
        stream = self.streams[number]
        count, stream.unacknowledged = stream.unacknowledged, 0
        if count:
            self.h2.acknowledge_received_data(count, number)
        self.flush()

    def read(self):
        """Reads once."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.is_closed = True
            return
        for event in self.h2.receive_data(self._without_goaway(data)):
            self._note(event)
        self.flush()

    def _without_goaway(self, data):
        """The whole frames that are here, but for those of GOAWAY: `h2` takes none behind one."""
        self.buffer += data
        kept = b""
        while len(self.buffer) >= HEADER_BYTES:
            end = HEADER_BYTES + int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < end:
                break
            frame, self.buffer = self.buffer[:end], self.buffer[end:]
            if frame[3] == GOAWAY:
                self.last_streams.append(int.from_bytes(frame[9:13], "big"))
                self.goaway_code = int.from_bytes(frame[13:17], "big")
            else:
                kept += frame
        return kept

    def _note(self, event):
        stream = self.streams.get(getattr(event, "stream_id", None))
        match event:
            case _ if stream is None:
                pass
            case InformationalResponseReceived():
                stream.interim.append(event.headers)
            case ResponseReceived():
                stream.status = int(event.headers[0][1])
                stream.fields = event.headers[1:]
            case DataReceived():
                stream.body += event.data
                stream.unacknowledged += event.flow_controlled_length
                # Also of the last piece, for the window of the connection.
                if self.takes_bodies:
                    self.take(event.stream_id)
            case TrailersReceived():
                stream.trailers = event.headers
            case StreamEnded():
                stream.has_ended = True
            case StreamReset():
                stream.reset = int(event.error_code)
