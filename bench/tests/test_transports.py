import socket
import time
from collections.abc import Iterator

import pytest

from harness.pollers import Pollers
from harness.stage import HOST, ContenderError
from harness.transports import EventStreams, LongPolls, WebSockets, event_data, frame


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_an_event_is_whole_behind_its_empty_line() -> None:
    assert event_data(b": hi\n\n") is None
    assert event_data(b": hi\n\nid: 1\ndata: one") is None
    assert event_data(b": hi\n\nid: 1\ndata: one\n\n") == b"one"
    assert event_data(b"1a\r\nretry: 9\nid: 2\ndata: two\n\n\r\n") == b"two"


def test_a_frame_is_whole_by_its_length() -> None:
    assert frame(b"\x81") is None
    assert frame(b"\x81\x03ab") is None
    assert frame(b"\x81\x03abc") == b"abc"
    with pytest.raises(ContenderError, match="a WebSocket sent"):
        frame(b"\x88\x02\x03\xe8")


def test_a_stream_is_told_the_value_and_then_news(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    theirs.sendall(head + b"id: 1\ndata: one\n\n")
    streams = EventStreams()
    assert streams.arrive(ours, "/poll/a").body == b"one"
    assert b"Accept: text/event-stream\r\n" in theirs.recv(1000)
    theirs.sendall(b"id: 2\ndata: two\n\n")
    assert streams.hear(ours).body == b"two"


def test_a_websocket_is_told_the_value_and_then_news(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.sendall(b'HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x09{"v":"1"}')
    sockets = WebSockets()
    assert sockets.arrive(ours, "/poll/a").body == b"1"
    assert b"Upgrade: websocket\r\n" in theirs.recv(1000)
    theirs.sendall(b'\x81\x09{"v":"2"}')
    assert sockets.hear(ours).body == b"2"
    theirs.sendall(b'\x81\x0a{"c":null}')
    with pytest.raises(ContenderError, match="a WebSocket was told"):
        sockets.hear(ours)


def test_a_refused_websocket_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
    with pytest.raises(ContenderError, match="answered 503"):
        WebSockets().arrive(ours, "/poll/a")


def test_a_poll_waits_by_the_fields_of_its_board(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.sendall(b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 3\r\n\r\none')
    polls = LongPolls(lambda seen: {"If-None-Match": seen.fields["etag"]})
    seen = polls.arrive(ours, "/poll/a")
    theirs.recv(1000)
    polls.wait(ours, "/poll/a", seen)
    assert b'If-None-Match: "1"\r\n' in theirs.recv(1000)
    theirs.sendall(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(ContenderError, match="answered 410"):
        polls.hear(ours)


def test_whoever_was_told_something_or_was_closed_no_longer_waits() -> None:
    with socket.create_server((HOST, 0)) as listener:
        with Pollers(listener.getsockname()[1], ["/poll/a"] * 3) as pollers:
            pollers.connect()
            accepted = [listener.accept()[0] for _ in range(3)]
            pollers.require_silence()
            accepted[0].sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            accepted[1].close()
            give_up = time.monotonic() + 5
            while pollers.disturbed() < 2:
                assert time.monotonic() < give_up
            with pytest.raises(ContenderError, match="2 of 3 clients"):
                pollers.require_silence()
        for connection in accepted:
            connection.close()
