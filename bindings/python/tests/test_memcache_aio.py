"""The asyncio memcached client, beside the real memcached and servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import doctest
import gc
import os
import random
import socket
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import dwell._memcache_aio
from dwell import memcache
from dwell.memcache import AsyncClient, Client
from test_memcache import KEYS, OPTIONS, TIMEOUT, Memcached
from test_memcache import pytestmark as needs_memcached

# A socket that nobody closed is a warning of the collector, which `run` calls.
pytestmark = [
    needs_memcached,
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Memcached]:
    server = Memcached()
    yield server
    server.stop()


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine; nothing may be left to be closed by chance, and nothing hangs."""
    result = asyncio.run(asyncio.wait_for(main, 3 * TIMEOUT))
    gc.collect()
    return result


@contextlib.asynccontextmanager
async def connected(server: Memcached, **options: Any) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.address, **{"timeout": TIMEOUT, **options}) as client:
        await client.flush_all()
        yield client


class Peer:
    """A server in the test's own loop: `handle` has each connection, and sees its requests."""

    def __init__(
        self, handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> None:
        self.handle = handle
        self.connections = 0
        self.tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Peer:
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.address = self.server.sockets[0].getsockname()
        return self

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.handle(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def __aexit__(self, *error: object) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)


def test_every_operation(server: Memcached) -> None:
    async def main() -> None:
        async with connected(server) as client:
            assert await client.get("key") is None
            assert await client.get("key", "other") == "other"
            assert await client.set("key", "value") is True
            assert await client.get(b"key") == b"value"
            assert await client.add("key", b"x") is False
            assert await client.add("key", b"x", noreply=True) is True
            assert await client.replace("missing", b"x") is False
            assert await client.append("key", b">") is True
            assert await client.prepend("key", b"<") is True
            value, cas = await client.gets("key")
            assert value == b"<value>"
            assert await client.gets("missing", b"d", 7) == (b"d", 7)
            assert cas is not None
            assert await client.cas("key", b"two", cas) is True
            assert await client.cas("key", b"three", cas) is False
            assert await client.cas("missing", b"x", cas) is None
            assert await client.gat("key", 100) == b"two"
            assert await client.gat("missing", 100, b"d") == b"d"
            assert (await client.gats("key", 100))[0] == b"two"
            assert await client.touch("key", 10) is True
            assert await client.touch("missing") is False
            assert await client.delete("key") is True
            assert await client.delete("key") is False
            assert await client.incr("number", 1) is None
            await client.set("number", 10)
            assert await client.incr("number", 5) == 15
            assert await client.decr("number", 20) == 0
            assert await client.incr("number", 1, noreply=True) is None
            await client.set("gone", b"x", expire=-1)
            assert await client.get("gone") is None
            assert (await client.version()).startswith(b"1.")
            assert int((await client.stats())["curr_connections"]) > 0
            assert "evictions" in await client.stats("settings")
            assert await client.flush_all() is True

    run(main())


def test_many(server: Memcached) -> None:
    async def main() -> None:
        other = Memcached()
        try:
            addresses = [server.address, other.address]
            async with AsyncClient(addresses, timeout=TIMEOUT) as client:
                await client.flush_all()
                items = {f"key-{number}": f"{number}".encode() for number in range(500)}
                assert await client.set_many(items) == []
                assert await client.get_many([*items, "missing"]) == items
                found = await client.gets_many(["key-1", "missing"])
                assert list(found) == ["key-1"]
                assert await client.cas("key-1", b"new", found["key-1"][1]) is True
                assert await client.get_many([]) == {}
                large = {"large": b"x" * 1_048_576, "small": b"x"}
                assert await client.set_many(large) == ["large"]
                assert {client.server_of(key) for key in items} == {0, 1}
                # The blocking client finds them in the same places.
                assert Client(addresses, timeout=TIMEOUT).get("key-2") == b"2"
                assert set(await client.version_by_server()) == set(addresses)
                assert set(await client.stats_by_server()) == set(addresses)
                with pytest.raises(memcache.MemcacheClientError, match="stats_by_server"):
                    await client.stats()
                with pytest.raises(memcache.MemcacheClientError, match="2"):
                    await client.raw_command("version")
                assert await client.delete_many(list(items)) is True
                assert await client.get_many(items) == {}
        finally:
            other.stop()

    run(main())


def test_large_values(server: Memcached) -> None:
    async def main() -> None:
        async with connected(server) as client:
            value = random.randbytes(1_000_000)
            await client.set("key", value)
            assert await client.get("key") == value
            with pytest.raises(memcache.MemcacheIllegalInputError, match="1048577"):
                await client.set("key", b"x" * 1_048_577)
            with pytest.raises(memcache.MemcacheServerError, match="too large"):
                await client.set("key", b"x" * 1_048_576)
            assert await client.get("key") is None

    run(main())


def test_a_socket_of_the_file_system(tmp_path: Path) -> None:
    directory = Path("/tmp") if os.getuid() == 0 else tmp_path
    server = Memcached(path=directory / f"dwell-test-aio-{os.getpid()}.sock")

    async def main() -> None:
        async with connected(server) as client:
            await client.set("key", b"x")
            assert await client.get("key") == b"x"

    try:
        run(main())
    finally:
        server.stop()


def test_serde_and_prefix(server: Memcached) -> None:
    async def main() -> None:
        async with connected(server, serde=memcache.JsonSerde(), key_prefix="a:") as client:
            await client.set("key", {"x": [1]})
            assert await client.get("key") == {"x": [1]}
            assert await client.get_many(["key"]) == {"key": {"x": [1]}}
        assert Client(server.address, timeout=TIMEOUT).get("a:key") == b'{"x":[1]}'

    run(main())


@pytest.mark.parametrize(("key", "error", "message"), KEYS)
def test_wrong_keys(server: Memcached, key: Any, error: type[Exception], message: str) -> None:
    async def main() -> None:
        async with connected(server) as client:
            operations: list[Callable[[], Awaitable[Any]]] = [
                lambda: client.get(key),
                lambda: client.set(key, b"x"),
                lambda: client.incr(key, 1),
                lambda: client.get_many([key]),
            ]
            for operation in operations:
                with pytest.raises(error, match=message):
                    await operation()

    run(main())


@pytest.mark.parametrize(("options", "error", "message"), OPTIONS)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {"servers": "127.0.0.1:11211", **options}
    with pytest.raises(error, match=message):
        AsyncClient(**given)
    with pytest.raises(ValueError, match="max_pool_size"):
        AsyncClient("127.0.0.1:11211", max_pool_size=0)


def test_raw_commands(server: Memcached) -> None:
    async def main() -> None:
        async with connected(server) as client:
            assert await client.raw_command("set key 0 0 2\r\nhi") == b"STORED"
            assert await client.raw_command(b"get key", b"END\r\n") == b"VALUE key 0 2\r\nhi\r\n"
            assert await client.raw_command("get missing", "END\r\n") == b""
            with pytest.raises(memcache.MemcacheUnknownCommandError):
                await client.raw_command("nonsense", "END\r\n")
            for wrong in (("", "\r\n"), ("version", "")):
                with pytest.raises(memcache.MemcacheIllegalInputError, match="empty"):
                    await client.raw_command(*wrong)

    run(main())


@pytest.mark.parametrize(
    "operation",
    [
        lambda client: client.get("key"),
        lambda client: client.get_many(["key", "other"]),
        lambda client: client.set("key", b"y" * 1_000_000),
        lambda client: client.raw_command("version"),
        lambda client: client.version(),
    ],
)
def test_a_server_that_never_answers(operation: Callable[[AsyncClient], Awaitable[Any]]) -> None:
    async def main() -> None:
        async with Peer(silent) as peer, AsyncClient(peer.address, timeout=0.4) as client:
            began = time.monotonic()
            with pytest.raises(memcache.MemcacheTimeoutError) as caught:
                await operation(client)
            # Neither twice the time nor any of the waits that the peer would go on for.
            assert 0.39 <= time.monotonic() - began < 5
            assert caught.value.is_ambiguous is True
            assert caught.value.elapsed >= 0.39

    run(main())


def test_a_server_that_drips() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        for byte in b"VALUE key 0 300\r\n" + b"x" * 300:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    async def main() -> None:
        async with Peer(drip) as peer, AsyncClient(peer.address, timeout=0.4) as client:
            began = time.monotonic()
            with pytest.raises(memcache.MemcacheTimeoutError):
                await client.get("key")
            # All of it would have taken 15 seconds.
            assert time.monotonic() - began < 10

    run(main())


def test_a_slow_operation_ends_no_other(server: Memcached) -> None:
    async def main() -> None:
        async with (
            Peer(silent) as peer,
            AsyncClient([server.address, peer.address], timeout=1) as client,
        ):
            made: list[int] = []

            async def store(key: str) -> bool:
                try:
                    return await client.set(key, b"x")
                except memcache.MemcacheTimeoutError:
                    made.append(peer.connections)
                    raise

            keys = [f"key-{number}" for number in range(50)]
            results = await asyncio.gather(*map(store, keys), return_exceptions=True)
            for key, result in zip(keys, results, strict=True):
                if client.server_of(key) == 0:
                    assert result is True
                else:
                    # With a connection of the eight, or without one.
                    assert isinstance(result, memcache.MemcacheTimeoutError)
            # Those that began later may have connections of those that have ended.
            assert made[0] <= 8

    run(main())


def test_bytes_of_any_size_are_one_reply() -> None:
    async def one_by_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            for byte in b"VALUE key 0 5\r\nEND\r\n\r\nEND\r\n":
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)

    async def main() -> None:
        async with Peer(one_by_one) as peer, AsyncClient(peer.address, timeout=TIMEOUT) as client:
            for _ in range(3):
                assert await client.get("key") == b"END\r\n"
            assert peer.connections == 1

    run(main())


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"nonsense\r\n", memcache.MemcacheUnknownError),
        (b"STORED\r\n", memcache.MemcacheUnknownError),
        (b"VALUE other 0 1\r\nx\r\nEND\r\n", memcache.MemcacheUnknownError),
        (b"END\r\nEND\r\n", memcache.MemcacheUnknownError),
        (b"VALUE key 0 2000000\r\n", memcache.MemcacheUnknownError),
        (b"ERROR Too many open connections\r\n", memcache.MemcacheConnectError),
        (b"", memcache.MemcacheUnexpectedCloseError),
    ],
)
def test_a_connection_out_of_step_is_not_used_again(reply: bytes, error: type[Exception]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():
            writer.write(reply)
            await writer.drain()
            if reply:
                await reader.read(-1)

    async def main() -> None:
        async with Peer(answer) as peer, AsyncClient(peer.address, timeout=TIMEOUT) as client:
            for attempt in (1, 2):
                with pytest.raises(error):
                    await client.get("key")
                assert peer.connections == attempt

    run(main())


def test_an_error_line_keeps_the_connection() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(b"SERVER_ERROR on purpose\r\n")

    async def main() -> None:
        async with Peer(refuse) as peer, AsyncClient(peer.address, timeout=TIMEOUT) as client:
            for _ in range(3):
                with pytest.raises(memcache.MemcacheServerError, match="on purpose"):
                    await client.get("key")
            assert peer.connections == 1

    run(main())


def test_a_server_that_is_killed_and_comes_back() -> None:
    server = Memcached()

    async def main() -> None:
        async with AsyncClient(server.address, timeout=TIMEOUT) as client:
            await client.set("key", b"x")
            await asyncio.gather(*(client.get("key") for _ in range(20)))
            server.stop()
            for _ in range(5):
                with pytest.raises(memcache.MemcacheConnectError):
                    await client.get("key")

    run(main())


def test_a_connection_that_ended_while_idle_is_made_again() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():
            writer.write(b"END\r\n")
            await writer.drain()

    async def main() -> None:
        async with Peer(once) as peer, AsyncClient(peer.address, timeout=TIMEOUT) as client:
            for number in range(1, 6):
                # The end of a connection is seen by the exchange that meets it, or before.
                assert await client.get("key") is None
                assert await client.get("key") is None
                assert peer.connections == 2 * number

    run(main())


def test_what_cannot_be_repeated_is_not_sent_twice() -> None:
    lines: list[bytes] = []

    async def close_on_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(b"1\r\n")
        lines.append(await reader.readline())

    async def main() -> None:
        async with (
            Peer(close_on_second) as peer,
            AsyncClient(peer.address, timeout=TIMEOUT) as client,
        ):
            assert await client.incr("key", 1) == 1
            with pytest.raises(memcache.MemcacheUnexpectedCloseError) as caught:
                await client.incr("key", 1)
            assert caught.value.is_ambiguous is True
            assert lines == [b"incr key 1\r\n"] * 2

    run(main())


def test_a_cancelled_operation_leaves_its_answer_to_no_other() -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            key = line.split()[1]
            if key == b"slow":
                asked.set()
                await answered.wait()
            writer.write(b"VALUE %s 0 4\r\n%s\r\nEND\r\n" % (key, key[:4]))

    async def main() -> None:
        global asked, answered
        asked, answered = asyncio.Event(), asyncio.Event()
        async with (
            Peer(late) as peer,
            AsyncClient(peer.address, timeout=TIMEOUT, max_pool_size=1) as client,
        ):
            slow = asyncio.create_task(client.get("slow"))
            await asked.wait()
            behind = asyncio.create_task(client.get("fast"))
            gone = asyncio.create_task(client.get("gone"))
            await asyncio.sleep(0)
            gone.cancel()
            slow.cancel()
            answered.set()
            assert await behind == b"fast"
            for task in (slow, gone):
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert peer.connections == 2

    run(main())


asked: asyncio.Event
answered: asyncio.Event


def test_tasks_that_are_cancelled_at_random_read_no_wrong_answer(server: Memcached) -> None:
    async def main() -> None:
        async with connected(server, max_pool_size=3) as client:
            for number in range(50):
                await client.set(f"key-{number}", f"value-{number}")
            chance = random.Random(7)
            wrong = []

            async def work() -> None:
                for _ in range(40):
                    number = chance.randrange(50)
                    value = await client.get(f"key-{number}")
                    if value != f"value-{number}".encode():
                        wrong.append((number, value))

            tasks = [asyncio.create_task(work()) for _ in range(40)]
            while not all(task.done() for task in tasks):
                chance.choice(tasks).cancel()
                for _ in range(chance.randrange(20)):
                    await asyncio.sleep(0)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert wrong == []
            assert all(
                result is None or isinstance(result, asyncio.CancelledError) for result in results
            )
            assert await client.get("key-1") == b"value-1"

    run(main())


def test_many_tasks_share_few_connections(server: Memcached) -> None:
    async def main() -> None:
        async with connected(server, max_pool_size=4) as client:

            async def work(name: int) -> None:
                key = f"task-{name}"
                await client.set(key, key)
                assert await client.get(key) == key.encode()

            before = int((await client.stats())["total_connections"])
            await asyncio.gather(*(work(name) for name in range(1000)))
            # One was there, and the statistics came on it.
            assert int((await client.stats())["total_connections"]) - before <= 3

    run(main())


def test_many_tasks_before_a_dead_server() -> None:
    async def main() -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            address = holder.getsockname()
            async with AsyncClient(address, timeout=TIMEOUT) as client:
                results = await asyncio.gather(
                    *(client.get("key") for _ in range(1000)), return_exceptions=True
                )
                for result in results:
                    assert isinstance(result, memcache.MemcacheConnectError)
                    assert result.is_ambiguous is False
            async with AsyncClient(address, timeout=TIMEOUT, ignore_exc=True) as client:
                assert await client.get("key", b"d") == b"d"
                assert await client.get_many(["key"]) == {}

    run(main())


def test_a_name_that_nothing_has() -> None:
    async def main() -> None:
        async with AsyncClient("host.invalid:1", timeout=TIMEOUT, connect_timeout=10) as client:
            with pytest.raises(memcache.MemcacheConnectError, match=r"host\.invalid"):
                await client.get("key")

    run(main())


def test_failover_goes_to_the_next_server(server: Memcached) -> None:
    async def main() -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            host, port = holder.getsockname()
            addresses = [server.address, f"{host}:{port}"]
            async with AsyncClient(addresses, timeout=TIMEOUT, failover=True) as client:
                for number in range(20):
                    await client.set(f"key-{number}", b"x")
                    assert await client.get(f"key-{number}") == b"x"
                assert {client.server_of(f"key-{number}") for number in range(20)} == {0, 1}

    run(main())


def test_a_closed_client(server: Memcached) -> None:
    async def main() -> None:
        async with Peer(silent) as peer:
            client = AsyncClient(peer.address, timeout=TIMEOUT, max_pool_size=1)
            tasks = [asyncio.create_task(client.get("key")) for _ in range(3)]
            while not peer.connections:
                await asyncio.sleep(0)
            await client.close()
            for task in tasks:
                with pytest.raises(memcache.MemcacheError):
                    await task
            with pytest.raises(RuntimeError, match="closed"):
                await client.get("key")
            await client.close()

    run(main())


def test_another_loop_and_a_closed_one(server: Memcached) -> None:
    client = AsyncClient(server.address, timeout=TIMEOUT)

    async def store() -> None:
        await client.set("key", b"x")
        # As if the server had ended it: a loop that is closed leaves its sockets open.
        for link in client._pools[0]._links:
            link.transport.abort()

    async def read() -> None:
        assert await client.get("key") == b"x"
        await client.close()

    with pytest.raises(RuntimeError, match="no running event loop"):
        client.get("key").send(None)
    asyncio.run(store())
    with asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))
        asyncio.run(read())

    held = AsyncClient(server.address, timeout=TIMEOUT)
    with asyncio.Runner() as runner:
        runner.run(held.version())
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.run(held.version())
        runner.run(held.close())


def test_a_forked_process(server: Memcached) -> None:
    async def main() -> None:
        async with connected(server) as client:
            await client.set("parent", b"1")
            receiver, sender = os.pipe()
            pid = os.fork()
            if pid == 0:
                status = b"no"
                with contextlib.suppress(BaseException):
                    asyncio.run(child(client))
                    status = b"ok"
                os.write(sender, status)
                os._exit(0)
            os.close(sender)
            # The parent's connection is its own still, while the child lives and after.
            assert await client.get("parent") == b"1"
            assert os.read(receiver, 2) == b"ok"
            os.waitpid(pid, 0)
            os.close(receiver)
            assert await client.get("child") == b"2"
            assert await client.get("parent") == b"1"

    async def child(client: AsyncClient) -> None:
        await client.set("child", b"2")
        assert await client.get("parent") == b"1"
        await client.close()

    # Newer versions warn of a fork in a process with threads.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        run(main())


def test_no_operation_arms_a_timer_or_makes_a_task(
    server: Memcached, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def counted(loop: asyncio.AbstractEventLoop, name: str) -> None:
        real = getattr(loop, name)

        def call(*given: Any, **more: Any) -> Any:
            called.append(name)
            return real(*given, **more)

        monkeypatch.setattr(loop, name, call)

    async def main() -> None:
        async with connected(server) as client:
            await client.get("key")
            for name in ("call_at", "create_task"):
                counted(asyncio.get_running_loop(), name)
            for _ in range(100):
                await client.get("key")
            monkeypatch.undo()
        # The one timer of all may have gone off meanwhile.
        assert called in ([], ["call_at"])

    run(main())


def test_examples_of_the_module(server: Memcached) -> None:
    names = {"memcached": server.address}
    results = doctest.testmod(dwell._memcache_aio, extraglobs=names)
    assert results.attempted >= 3
    assert results.failed == 0
