import socket

import pytest

from harness import http
from harness.stage import ContenderError


def receive(*pieces: bytes) -> http.Answer:
    """What `http.receive` makes of bytes that arrive in these pieces."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for piece in pieces:
            theirs.sendall(piece)
        theirs.shutdown(socket.SHUT_WR)
        return http.receive(ours)


def test_request_ends_its_head() -> None:
    assert http.request("/poll/a", {"Prefer": "wait=50"}) == (
        b"GET /poll/a HTTP/1.1\r\nHost: 127.0.0.1\r\nPrefer: wait=50\r\n\r\n"
    )


def test_answer_is_read_whole() -> None:
    answer = receive(b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Le', b"ngth: 5\r\n\r\nhel", b"lo")
    assert (answer.status, answer.body, answer.fields["etag"]) == (200, b"hello", '"x"')
    assert answer.wire_bytes == len(
        b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 5\r\n\r\nhello'
    )


def test_answer_without_content() -> None:
    assert receive(b"HTTP/1.1 304 Not Modified\r\n\r\n").status == 304


def test_answer_cut_short_is_an_error() -> None:
    with pytest.raises(ContenderError, match="closed before"):
        receive(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")


def test_answer_of_unknown_length_is_an_error() -> None:
    with pytest.raises(ContenderError, match="without Content-Length"):
        receive(b"HTTP/1.1 200 OK\r\n\r\nhello")
