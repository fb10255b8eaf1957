"""How a client waits for news of a key: by long-polls, on an event stream, or on a WebSocket.

Each takes a client to where it waits over a blocking socket and reads what it is told there.
"""

import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable

from harness import http
from harness.stage import ContenderError

Fields = dict[str, str]

EVENT_STREAM = "text/event-stream"
TEXT_FRAME = 0x81


class Transport(ABC):
    """One way of waiting."""

    @abstractmethod
    def arrive(self, connection: socket.socket, path: str) -> http.Answer:
        """Connects a client to its key; what it is told of it at once.

        Raises:
            ContenderError: it was told nothing.
        """

    @abstractmethod
    def wait(self, connection: socket.socket, path: str, seen: http.Answer) -> None:
        """Asks for something newer than `seen`."""

    @abstractmethod
    def hear(self, connection: socket.socket) -> http.Answer:
        """Reads what a client was told of its key.

        Raises:
            ContenderError: it was told nothing, or what cannot be read.
        """


class LongPolls(Transport):
    """A request that is answered once there is news, and after that the next.

    `waiting_fields` makes the fields of that request from the last answer the client got.
    """

    def __init__(self, waiting_fields: Callable[[http.Answer], Fields] | None = None) -> None:
        self._waiting_fields = waiting_fields

    def arrive(self, connection: socket.socket, path: str) -> http.Answer:
        """Has one poll answered, which does not wait."""
        connection.sendall(http.request(path))
        return self.hear(connection)

    def wait(self, connection: socket.socket, path: str, seen: http.Answer) -> None:
        """Sends the poll that waits."""
        fields = self._waiting_fields(seen) if self._waiting_fields else {}
        connection.sendall(http.request(path, fields))

    def hear(self, connection: socket.socket) -> http.Answer:
        """Reads one answer."""
        answer = http.receive(connection)
        if answer.status != 200:
            raise ContenderError(f"a poll was answered {answer.status}")
        return answer


class Opened(Transport):
    """A connection that is told all news once it is open."""

    def wait(self, connection: socket.socket, path: str, seen: http.Answer) -> None:
        """Asks nothing: it does wait."""


class EventStreams(Opened):
    """One answer that never ends, an event for each news."""

    def arrive(self, connection: socket.socket, path: str) -> http.Answer:
        """Begins the stream and reads the event that tells the value."""
        connection.sendall(http.request(path, {"Accept": EVENT_STREAM}))
        return self.hear(connection)

    def hear(self, connection: socket.socket) -> http.Answer:
        """Reads up to the end of an event with data; the body is that of its last line."""
        received = http.receive_until(connection, lambda text: event_data(text) is not None)
        data = event_data(received)
        assert data is not None
        return http.Answer(200, {}, data, len(received))


class WebSockets(Opened):
    """Frames of JSON, one for each news."""

    def arrive(self, connection: socket.socket, path: str) -> http.Answer:
        """Opens the WebSocket and reads the frame that tells the value."""
        connection.sendall(http.upgrade(path))
        received = http.receive_until(connection, lambda text: http.HEAD_END in text)
        head, _, rest = received.partition(http.HEAD_END)
        status = int(head.split()[1])
        if status != 101:
            raise ContenderError(f"a WebSocket was answered {status}")
        return self._hear(connection, rest)

    def hear(self, connection: socket.socket) -> http.Answer:
        """Reads one frame; the body is its value."""
        return self._hear(connection, b"")

    def _hear(self, connection: socket.socket, rest: bytes) -> http.Answer:
        received = http.receive_until(connection, lambda text: frame(text) is not None, rest)
        payload = frame(received)
        assert payload is not None
        try:
            value = json.loads(payload)["v"]
        except (ValueError, KeyError, TypeError) as error:
            raise ContenderError(f"a WebSocket was told {payload[:40]!r}") from error
        return http.Answer(101, {}, str(value).encode(), len(received))


def event_data(text: bytes) -> bytes | None:
    """The last line of data of a text that ends with an event, or None while it does not.

    Chunks of HTTP may stand between: an event is written as one.
    """
    event, end, _ = text.rpartition(b"\n\n")
    lines = [line for line in event.splitlines() if line.startswith(b"data:")]
    return lines[-1].removeprefix(b"data:").strip() if end and lines else None


def frame(received: bytes) -> bytes | None:
    """The payload of one whole short text frame of a server, None while more is to come.

    Raises:
        ContenderError: it is another kind of frame.
    """
    if len(received) < 2:
        return None
    first, length = received[:2]
    if first != TEXT_FRAME or length > 125:
        raise ContenderError(f"a WebSocket sent {received[:40]!r}")
    return received[2 : 2 + length] if len(received) >= 2 + length else None
