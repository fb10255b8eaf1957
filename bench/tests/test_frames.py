import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness import frames
from harness.frames import Connection, Streams, frame
from harness.stage import HOST, ContenderError

SETTINGS = frame(frames.SETTINGS, 0, 0, b"")
END = frames.END_STREAM | frames.END_HEADERS


def answer(stream: int, body: bytes, status: bytes = b"\x88") -> bytes:
    head = frame(frames.HEADERS, frames.END_HEADERS, stream, status)
    return head + frame(frames.DATA, frames.END_STREAM, stream, body)


class Server:
    """Accepts connections; the test sends on them."""

    def __init__(self, stack: ExitStack) -> None:
        self._listener = stack.enter_context(socket.create_server((HOST, 0)))
        self._stack = stack
        self.port = self._listener.getsockname()[1]

    def accept(self) -> socket.socket:
        return self._stack.enter_context(self._listener.accept()[0])


@pytest.fixture
def server() -> Iterator[Server]:
    with ExitStack() as stack:
        yield Server(stack)


def test_a_request_is_a_frame_of_literals() -> None:
    sent = frames.request(3, "/a", {"Prefer": "wait=1"})
    length = len(sent) - frames.FRAME_BYTES
    assert sent[: frames.FRAME_BYTES] == bytes([0, 0, length, 1, END, 0, 0, 0, 3])
    assert b"\0\7:method\3GET" in sent
    assert sent.endswith(b"\0\6prefer\6wait=1")


def test_answers_are_read_from_frames_in_any_pieces(server: Server) -> None:
    connection = Connection(server.port)
    theirs = server.accept()
    whole = SETTINGS + answer(1, b"one") + answer(3, b"")
    for byte in whole:
        theirs.sendall(bytes([byte]))
    assert connection.take(2) == ([b"one", b""], len(whole))
    connection.socket.close()
    assert theirs.makefile("rb").read().endswith(frame(frames.SETTINGS, frames.ACK, 0, b""))


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (SETTINGS + answer(1, b"", b"\x8d"), "is not 200"),
        (SETTINGS + frame(7, 0, 0, bytes(8)), "type 7"),
        (SETTINGS + answer(1, b"") + answer(3, b""), "2 answers"),
        (SETTINGS, "ended before"),
    ],
)
def test_what_is_no_answer_is_refused(server: Server, sent: bytes, message: str) -> None:
    connection = Connection(server.port)
    theirs = server.accept()
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    with connection.socket, pytest.raises(ContenderError, match=message):
        connection.take(1)


def test_arrivals_wait_for_the_last_byte_of_each_connection(server: Server) -> None:
    theirs: list[socket.socket] = []

    def serve() -> None:
        for _ in range(2):
            theirs.append(server.accept())
            theirs[-1].sendall(SETTINGS + answer(1, b"first"))

    thread = threading.Thread(target=serve)
    thread.start()
    with Streams(server.port, 2, 2) as streams:
        streams.open("/a")
        thread.join()
        streams.hold("/a", {})
        streams.require_silence()
        told = answer(3, b"news") + answer(5, b"news")
        arrivals = streams.arrivals(len(told))
        for connection in theirs:
            connection.sendall(told[:-1])
        with pytest.raises(ContenderError, match="2 connections miss"):
            arrivals.wait_all(0)
        with pytest.raises(ContenderError, match="not kept waiting"):
            streams.require_silence()
        for connection in theirs:
            connection.sendall(told[-1:])
        first, last = arrivals.wait_all(10)
        assert 0 < first <= last
        arrivals.close()
        assert streams.take_answers(b"news") == len(told)
