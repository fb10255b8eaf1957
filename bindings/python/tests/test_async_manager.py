"""`AsyncManager` on asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from dwell import AsyncManager, Event, Manager
from support import port_of

PATIENCE_S = 60


def run(coroutine):
    """Runs a test's coroutine, which fails when it takes too long."""
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


def answer(conn, event, data):
    """Answers every request."""
    if event == Event.HTTP_MSG:
        conn.reply(200, data.uri)


async def get(port: int, target: str = "/") -> bytes:
    """The answer to a request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {target} HTTP/1.0\r\n\r\n".encode())
    data = await reader.read()
    writer.close()
    return data.partition(b"\r\n\r\n")[2]


def test_requests_are_served_by_the_loop_alone():
    async def main():
        async with AsyncManager(answer) as manager:
            assert manager.running
            threads = set(threading.enumerate())
            port = port_of(manager.listen("http://127.0.0.1:0"))
            answers = await asyncio.gather(*(get(port, f"/{n}") for n in range(50)))
            assert answers == [f"/{n}".encode() for n in range(50)]
            # Those of other tests may end meanwhile.
            assert set(threading.enumerate()) <= threads
            assert isinstance(manager.manager, Manager)
        assert not manager.running
        assert manager._manager is None

    run(main())


def test_a_coroutine_answers_later():
    async def main():
        async def slow(conn, uri):
            await asyncio.sleep(0)
            conn.reply(200, f"slow {uri}")

        def handler(conn, event, data):
            if event == Event.HTTP_MSG:
                manager.schedule(slow(conn, data.uri))

        async with AsyncManager(handler) as manager:
            port = port_of(manager.listen("http://127.0.0.1:0"))
            assert await get(port, "/a") == b"slow /a"

    run(main())


def test_timers_ring_although_nothing_else_happens():
    async def main():
        rung = asyncio.Event()
        async with AsyncManager() as manager:
            began = time.monotonic()
            manager.timer_add(20, rung.set)
            await rung.wait()
            assert 0.02 <= time.monotonic() - began < 20
            rung.clear()
            # Set on the manager itself, behind the loop's back.
            manager.manager.timer_add(20, rung.set)
            await rung.wait()

    run(main())


def test_wakeups_and_calls_from_threads():
    async def main():
        told = asyncio.Event()
        seen = []

        def handler(conn, event, data):
            if event == Event.WAKEUP:
                seen.append((data, threading.get_ident()))
                told.set()

        async with AsyncManager(handler) as manager:

            def other():
                listener = manager.listen("http://127.0.0.1:0")
                manager.wakeup(listener.id, b"\0")
                manager.schedule(lambda: seen.append("scheduled"))
                manager.schedule(note())

            async def note():
                seen.append("noted")

            await asyncio.to_thread(other)
            await told.wait()
            while len(seen) < 3:
                await asyncio.sleep(0)
            assert (b"\0", threading.get_ident()) in seen
            assert {"scheduled", "noted"} < set(seen)

    run(main())


def test_what_is_done_between_polls_is_done_at_once():
    async def main():
        closed = asyncio.Event()
        held = []

        def handler(conn, event, data):
            if event == Event.HTTP_MSG:
                held.append(conn)
                got.set()
            elif event == Event.CLOSE and not conn.is_listening:
                closed.set()

        got = asyncio.Event()
        async with AsyncManager(handler) as manager:
            port = port_of(manager.listen("http://127.0.0.1:0"))
            request = asyncio.create_task(get(port))
            await got.wait()
            held[0].reply(200, "from a task")
            assert await request == b"from a task"
            await closed.wait()
            closed.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            got.clear()
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            await got.wait()
            held[-1].close()
            assert await reader.read() == b""
            await closed.wait()
            writer.close()

    run(main())


def test_a_websocket_between_two_managers():
    async def main():
        told = asyncio.Queue()

        def server(conn, event, data):
            if event == Event.HTTP_MSG:
                conn.ws_upgrade(data)
            elif event == Event.WS_MSG:
                conn.ws_send(data.text.upper())

        def client(conn, event, data):
            if event == Event.WS_OPEN:
                conn.ws_send("hello")
            elif event == Event.WS_MSG:
                told.put_nowait(data.text)

        async with AsyncManager(server) as one, AsyncManager() as two:
            port = port_of(one.listen("http://127.0.0.1:0"))
            two.ws_connect(f"ws://127.0.0.1:{port}/", client)
            assert await told.get() == "HELLO"

    run(main())


def test_before_the_start_and_after_the_end():
    manager = AsyncManager(answer, 50, None, shutdown_timeout=1)
    assert not manager.running
    for call in [
        lambda: manager.listen("http://127.0.0.1:0"),
        lambda: manager.connect("http://127.0.0.1:1"),
        lambda: manager.wakeup(1),
        lambda: manager.timer_add(1, print),
        lambda: manager.schedule(print),
        lambda: manager.manager,
    ]:
        with pytest.raises(RuntimeError, match="AsyncManager is not started"):
            call()

    async def main():
        async with manager:
            with pytest.raises(RuntimeError, match="started already"):
                await manager.__aenter__()
        async with manager:
            manager.listen("http://127.0.0.1:0")

    run(main())


def test_a_handler_that_closes_the_manager_ends_it():
    async def main():
        async with AsyncManager() as manager:
            manager.timer_add(0, manager.manager.close)
            while manager.running:
                await asyncio.sleep(0)

    run(main())


def test_exceptions():
    async def main():
        errors = []

        def handler(conn, event, data):
            if event == Event.OPEN:
                raise KeyError("oops")

        async with AsyncManager(handler, error_handler=errors.append) as manager:
            manager.listen("http://127.0.0.1:0")
        assert [type(error) for error in errors] == [KeyError]

    run(main())

    async def interrupted():
        async with AsyncManager() as manager:

            def ring():
                raise SystemExit(3)

            manager.timer_add(0, ring)
            await asyncio.sleep(PATIENCE_S)

    with pytest.raises(SystemExit):
        run(interrupted())


def test_an_idle_loop_does_nothing():
    async def main():
        async with AsyncManager(answer) as manager:
            manager.listen("http://127.0.0.1:0")
            await asyncio.sleep(0)
            polls = []
            poll = manager._poll
            manager._loop.remove_reader(manager._descriptor)
            manager._loop.add_reader(manager._descriptor, lambda: (polls.append(1), poll()))
            before = os.times()
            await asyncio.sleep(0.2)
            after = os.times()
            assert len(polls) <= 2
            assert after.user - before.user < 0.1

    run(main())
