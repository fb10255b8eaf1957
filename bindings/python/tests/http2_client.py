"""A client of HTTP/2, by prior knowledge or under TLS: many requests on one connection."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import StreamClosedError
from h2.settings import SettingCodes, Settings
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from wire import TIMEOUT

# Nothing is checked of what is sent: tests send what no client should.
CONFIG = H2Configuration(
    header_encoding="latin-1",
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)
HEADER_BYTES = 9
GOAWAY = 7

Fields = list[tuple[str, str]]


@dataclass
class Stream:
    """What has come on one stream."""

    interim: list[Fields] = field(default_factory=list)
    status: int | None = None
    fields: Fields = field(default_factory=list)
    body: bytes = field(default=b"", repr=False)
    trailers: Fields = field(default_factory=list)
    has_ended: bool = False
    reset: int | None = None
    held: int = 0

    def names(self) -> set[str]:
        """The names of its fields."""
        return {name for name, _ in self.fields}


class Http2:
    """One connection. With ``window`` it takes no more of each body than it is told to; with
    ``tls`` it agrees on HTTP/2 by ALPN."""

    def __init__(
        self, address: tuple[str, int], window: int | None = None, tls: bool = False
    ) -> None:
        self.streams: dict[int, Stream] = {}
        self.window = window
        self.is_told_to_go = False
        self.is_closed = False
        self.buffer = b""
        self.h2 = H2Connection(CONFIG)
        if window is not None:
            values = {SettingCodes.INITIAL_WINDOW_SIZE: window}
            self.h2.local_settings = Settings(client=True, initial_values=values)
        self.h2.initiate_connection()
        self.socket = socket.create_connection(address, TIMEOUT)
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket)
            assert self.socket.selected_alpn_protocol() == "h2"
        self.flush()

    def __enter__(self) -> Http2:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def ask(
        self,
        target: str,
        method: str = "GET",
        fields: Fields = [],  # noqa: B006
        body: bytes = b"",
        trailers: Fields | None = None,
        ends: bool = True,
    ) -> int:
        """Begins a request; returns the number of its stream."""
        head = [
            (":method", method),
            (":scheme", "http"),
            (":path", target),
            (":authority", "test"),
            *fields,
        ]
        number = self.ask_by(head, ends and not body and trailers is None)
        if body:
            self.send(number, body, ends and trailers is None)
        if trailers is not None:
            self.h2.send_headers(number, trailers, end_stream=True)
            self.flush()
        return number

    def ask_by(self, head: Fields, ends: bool = True) -> int:
        """Sends the head of a request as it is given."""
        number = self.h2.get_next_available_stream_id()
        self.streams[number] = Stream()
        self.h2.send_headers(number, head, end_stream=ends)
        self.flush()
        return number

    def send(self, number: int, body: bytes, ends: bool = True) -> None:
        """Sends a body as the server takes it."""
        while True:
            room = min(self.room(number), self.h2.max_outbound_frame_size)
            piece, body = body[:room], body[room:]
            if piece or (ends and not body):
                self.h2.send_data(number, piece, end_stream=ends and not body)
                self.flush()
            if not body:
                return
            if not self.room(number):
                self.read()

    def room(self, number: int) -> int:
        """The bytes that the server takes of a body now: its settings may have taken some back."""
        return max(0, int(self.h2.local_flow_control_window(number)))

    def reset(self, number: int) -> None:
        """Gives a request up."""
        self.h2.reset_stream(number, ErrorCodes.CANCEL)
        self.flush()

    def get(self, target: str, **options: Any) -> Stream:
        """The answer to one request."""
        return self.answer(self.ask(target, **options))

    def answer(self, number: int) -> Stream:
        """The whole answer on a stream."""
        stream = self.until(number, lambda stream: stream.has_ended or stream.reset is not None)
        assert stream.has_ended, f"it was reset: {stream}"
        return stream

    def until(self, number: int, condition: Callable[[Stream], object]) -> Stream:
        """Reads until a condition holds of a stream."""
        stream = self.streams[number]
        while not condition(stream):
            assert not self.is_closed, f"closed before its time: {stream}"
            self.read()
        return stream

    def take(self, number: int) -> None:
        """Lets the server go on with a body of which a whole window has come."""
        stream = self.streams[number]
        self.h2.acknowledge_received_data(stream.held, number)
        stream.held = 0
        self.flush()

    def rest(self) -> None:
        """Reads until the server closes."""
        while not self.is_closed:
            self.read()

    def read(self) -> None:
        """Reads once."""
        data = self.socket.recv(65536)
        self.is_closed = not data
        for event in self.h2.receive_data(self._without_goaway(data)):
            self._note(event)
        if not self.is_closed:
            self.flush()

    def _without_goaway(self, data: bytes) -> bytes:
        """The whole frames that are here, but for those of GOAWAY: `h2` takes none behind one."""
        self.buffer += data
        kept = b""
        while len(self.buffer) >= HEADER_BYTES:
            end = HEADER_BYTES + int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < end:
                break
            frame, self.buffer = self.buffer[:end], self.buffer[end:]
            if frame[3] == GOAWAY:
                self.is_told_to_go = True
            else:
                kept += frame
        return kept

    def flush(self) -> None:
        """Sends what the protocol has to send."""
        self.socket.sendall(self.h2.data_to_send())

    def _note(self, event: Event) -> None:
        stream = self.streams.get(getattr(event, "stream_id", 0) or 0)
        if stream is None:
            return
        if isinstance(event, InformationalResponseReceived):
            stream.interim.append(event.headers)
        elif isinstance(event, ResponseReceived):
            stream.status = int(event.headers[0][1])
            stream.fields = event.headers[1:]
        elif isinstance(event, DataReceived):
            stream.body += event.data
            stream.held += event.flow_controlled_length
            if self.window is None and not event.stream_ended:
                self.take(event.stream_id)
        elif isinstance(event, TrailersReceived):
            stream.trailers = event.headers
        elif isinstance(event, StreamEnded):
            stream.has_ended = True
        elif isinstance(event, StreamReset):
            stream.reset = int(event.error_code)


class StreamSocket:
    """A WebSocket on a stream (RFC 8441); ``stream`` has the answer to its handshake."""

    def __init__(self, peer: Http2, target: str = "/", fields: Fields = []) -> None:  # noqa: B006
        self.peer = peer
        self.protocol = Protocol(Side.CLIENT, state=State.OPEN)
        self.read = 0
        self.messages: list[str | bytes] = []
        head = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":path", target),
            (":authority", "test"),
            ("sec-websocket-version", "13"),
        ]
        self.number = peer.ask_by([*head, *fields], ends=False)
        self.stream = peer.until(
            self.number, lambda stream: stream.status or stream.reset is not None
        )

    def send(self, message: str | bytes) -> None:
        """Sends a message."""
        if isinstance(message, str):
            self.protocol.send_text(message.encode())
        else:
            self.protocol.send_binary(message)
        self.flush()

    def flush(self) -> None:
        """Sends what the protocol has to send."""
        for data in self.protocol.data_to_send():
            if data:
                self.peer.send(self.number, data, ends=False)

    def recv(self) -> str | bytes:
        """The next message."""
        while not self.messages:
            self._read()
        return self.messages.pop(0)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes in order."""
        self.protocol.send_close(code, reason)
        self.flush()
        self.closed()

    def closed(self) -> tuple[int, str]:
        """The code and the reason with which the server closes."""
        while self.protocol.close_rcvd is None:
            self._read()
        return self.protocol.close_rcvd.code, self.protocol.close_rcvd.reason

    def end(self) -> None:
        """Ends this side of the stream, unless it is closed, and waits for the other one's end."""
        with contextlib.suppress(StreamClosedError):
            self.peer.h2.end_stream(self.number)
        self.peer.flush()
        self.peer.answer(self.number)

    def _read(self) -> None:
        self.peer.until(
            self.number,
            lambda stream: len(stream.body) > self.read or stream.has_ended or stream.reset,
        )
        data = self.stream.body[self.read :]
        assert data, f"it has ended: {self.stream}"
        self.read += len(data)
        self.protocol.receive_data(data)
        for event in self.protocol.events_received():
            assert isinstance(event, Frame)
            assert event.fin, "messages come in one frame"
            if event.opcode in (Opcode.TEXT, Opcode.BINARY):
                payload = bytes(event.data)
                self.messages.append(payload.decode() if event.opcode == Opcode.TEXT else payload)
        self.flush()
