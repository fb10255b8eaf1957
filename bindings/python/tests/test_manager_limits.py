"""The limits and timeouts of a manager."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any

import pytest

from dwell import AsyncManager, Connection, Event, Manager
from support import Loop, answer

# Every option; the stub has their defaults.
OPTIONS = """
max_connections max_requests_per_connection max_header_bytes max_header_fields max_target_bytes
max_body_bytes max_message_bytes header_timeout read_timeout min_body_rate write_timeout
keep_alive_timeout answer_timeout connect_timeout close_timeout ping_interval ping_timeout
"""


def status(reply: bytes) -> int:
    return int(reply.split()[1])


def test_bytes_of_a_head() -> None:
    with Loop(answer, max_header_bytes=200, max_header_fields=3, max_target_bytes=50) as loop:
        listener = loop.listen()
        head = "GET {} HTTP/1.1\r\nHost: a\r\n{}\r\n"
        asks = {
            head.format("/", ""): 200,
            head.format("/", "A: " + "x" * 200 + "\r\n"): 431,
            head.format("/", "A: 1\r\nB: 1\r\nC: 1\r\n"): 431,
            head.format("/" + "x" * 60, ""): 414,
        }
        for request, wanted in asks.items():
            assert status(loop.ask(listener, request.encode())) == wanted, request


def test_defaults_of_a_head() -> None:
    with Loop(answer) as loop:
        listener = loop.listen()
        head = "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n"
        many = "".join(f"A{number}: 1\r\n" for number in range(98))
        assert status(loop.ask(listener, head.format(many).encode())) == 200
        assert status(loop.ask(listener, head.format(many + "B: 1\r\nC: 1\r\n").encode())) == 431
        assert (
            status(loop.ask(listener, head.format("A: " + "x" * 16_000 + "\r\n").encode())) == 200
        )
        assert (
            status(loop.ask(listener, head.format("A: " + "x" * 16_400 + "\r\n").encode())) == 431
        )


def test_bytes_of_a_body() -> None:
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"
    with Loop(answer, max_body_bytes=10) as loop:
        listener = loop.listen()
        assert status(loop.ask(listener, post % (10, b"x" * 10))) == 200
        assert status(loop.ask(listener, post % (11, b"x" * 11))) == 413
    with Loop(answer) as loop:
        assert status(loop.ask(loop.listen(), post % (4_194_305, b""))) == 413
    with Loop(answer, max_body_bytes=None) as loop:
        large = 5_000_000
        assert status(loop.ask(loop.listen(), post % (large, b"x" * large))) == 200


def test_connections() -> None:
    with Loop(answer, max_connections=1) as loop:
        listener = loop.listen()
        with loop.client(listener) as one, loop.client(listener) as two:
            assert status(one.get()) == 200
            assert two.rest() == b""
            assert status(one.get()) == 200


def test_requests_of_a_connection() -> None:
    with (
        Loop(answer, max_requests_per_connection=2) as loop,
        loop.client(loop.listen()) as client,
    ):
        assert b"close" not in client.get()
        assert b"Connection: close" in client.get()
        assert client.rest() == b""


@pytest.mark.parametrize(
    ("name", "sent", "wanted"),
    [
        ("header_timeout", b"GET / HT", 408),
        ("read_timeout", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx", 408),
        ("keep_alive_timeout", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ],
)
def test_times_of_a_client(name: str, sent: bytes, wanted: int) -> None:
    # The defaults are 10, 30 and 75 s.
    with Loop(answer, **{name: 0.3}) as loop, loop.client(loop.listen()) as client:
        began = time.monotonic()
        client.send(sent)
        assert status(client.rest()) == wanted
        assert 0.3 <= time.monotonic() - began < 9


def test_the_time_of_an_answer() -> None:
    with (
        Loop(answer_timeout=0.3) as loop,
        loop.client(loop.listen()) as client,
    ):
        assert status(client.get()) == 503


def test_bytes_of_a_message() -> None:
    def handler(conn: Connection, event: Event, data: Any) -> None:
        if event == Event.HTTP_MSG:
            conn.ws_upgrade(data)

    with Loop(handler, max_message_bytes=10) as loop, loop.client(loop.listen()) as client:
        client.upgrade()
        client.send_frame(1, b"x" * 11)
        first, payload = client.frame()
        assert first & 0x0F == 8
        assert int.from_bytes(payload[:2], "big") == 1009


def test_pings() -> None:
    def handler(conn: Connection, event: Event, data: Any) -> None:
        if event == Event.HTTP_MSG:
            conn.ws_upgrade(data)

    options = {"ping_interval": 0.2, "ping_timeout": 0.2}
    with Loop(handler, **options) as loop, loop.client(loop.listen()) as client:
        client.upgrade()
        assert client.frame()[0] & 0x0F == 9
        # No pong comes.
        client.rest()


@pytest.mark.parametrize("name", OPTIONS.split())
def test_values_that_are_refused(name: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        Manager(**{name: -1})
    with pytest.raises(TypeError):
        Manager(**{name: "x"})


def test_an_unknown_option() -> None:
    with pytest.raises(TypeError, match='Manager has no option "max_size"'):
        Manager(max_size=1)  # type: ignore[call-arg]
    # Those of servers alone are none of a manager.
    with pytest.raises(TypeError, match='Manager has no option "max_queue"'):
        Manager(max_queue=1)  # type: ignore[call-arg]


def test_limits_of_an_async_manager() -> None:
    async def main() -> bytes:
        async with AsyncManager(answer, max_target_bytes=10) as manager:
            listener = manager.listen("http://127.0.0.1:0")
            assert listener.local_addr is not None
            reader, writer = await asyncio.open_connection(*listener.local_addr[:2])
            writer.write(b"GET /too/long/for/it HTTP/1.0\r\n\r\n")
            reply = await reader.read()
            writer.close()
            return reply

    assert status(asyncio.run(main())) == 414
    assert "limits" in inspect.signature(AsyncManager).parameters
