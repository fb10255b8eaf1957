"""The Python clients, over the same sequence as `dwell-bench-memcache`.

The asyncio client awaits each operation before the next, as the others wait for it.

usage: python_clients.py list | mixed CONTENDER SERVER ITERATIONS | fault CONTENDER SERVER
"""

import asyncio
import resource
import sys
import time
from typing import Any

import dwell.memcache
import pylibmc
import pymemcache

TIMEOUT = 5
FAULT_TIMEOUT = 0.4
VALUE = b"\x04\x08[\x00"
KEYS = [f"namespace:{name}" for name in ("Short", "Sym1-2-3::45" * 8, "Long" * 40)]


def pymemcache_client(server: str, timeout: float | None) -> pymemcache.Client:
    """pymemcache, waiting for every answer."""
    host, port = server.split(":")
    address = (host, int(port))
    return pymemcache.Client(
        address, connect_timeout=timeout, timeout=timeout, no_delay=True, default_noreply=False
    )


def pylibmc_client(server: str, timeout: float | None) -> pylibmc.Client:
    """pylibmc, which is libmemcached."""
    behaviors = {"tcp_nodelay": True}
    if timeout is not None:
        # The one that bounds anything: `receive_timeout` is ignored.
        behaviors["_poll_timeout"] = int(timeout * 1000)
    return pylibmc.Client([server], behaviors=behaviors)


def dwell_client(server: str, timeout: float | None) -> dwell.memcache.Client:
    """Dwell's client from Python."""
    return dwell.memcache.Client(server, timeout=timeout)


def asyncio_client(server: str, timeout: float | None) -> dwell.memcache.AsyncClient:
    """Dwell's client for asyncio."""
    return dwell.memcache.AsyncClient(server, timeout=timeout)


CONTENDERS = {
    "dwell_asyncio": asyncio_client,
    "dwell_python": dwell_client,
    "pymemcache_none": lambda server, _: pymemcache_client(server, None),
    "pymemcache": pymemcache_client,
    "pylibmc_default": lambda server, _: pylibmc_client(server, None),
    "pylibmc": pylibmc_client,
}


def sequence(client: Any, iterations: int) -> None:  # noqa: ANN401
    """The sequence, by a client that waits."""
    for _ in range(iterations):
        for key in KEYS:
            client.set(key, VALUE)
        for key in KEYS:
            client.get(key)
        for key in KEYS:
            client.set(key, VALUE)
            client.get(key)


async def sequence_awaited(client: dwell.memcache.AsyncClient, iterations: int) -> None:
    """The sequence, by the client for asyncio."""
    for _ in range(iterations):
        for key in KEYS:
            await client.set(key, VALUE)
        for key in KEYS:
            await client.get(key)
        for key in KEYS:
            await client.set(key, VALUE)
            await client.get(key)


def mixed(name: str, server: str, iterations: int) -> None:
    """Does the sequence; prints wall and processor time, and switches, per operation."""
    client = CONTENDERS[name](server, TIMEOUT)
    if isinstance(client, dwell.memcache.AsyncClient):
        asyncio.run(mixed_awaited(client, iterations))
        return
    sequence(client, 1)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    sequence(client, iterations)
    report(before, started, iterations)


async def mixed_awaited(client: dwell.memcache.AsyncClient, iterations: int) -> None:
    """`mixed`, by the client for asyncio."""
    async with client:
        await sequence_awaited(client, 1)
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        await sequence_awaited(client, iterations)
        report(before, started, iterations)


def report(before: resource.struct_rusage, started: float, iterations: int) -> None:
    """Prints what the sequence took."""
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    operations = iterations * 12
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    switches = after.ru_nvcsw - before.ru_nvcsw
    micros = 1e6 / operations
    print(f"{wall * micros:.3f} {processor * micros:.3f} {switches / operations:.3f}")


def fault(name: str, server: str) -> None:
    """Asks a server that does not answer properly; prints how long that took, and its end."""
    started = time.perf_counter()
    client = CONTENDERS[name](server, FAULT_TIMEOUT)
    try:
        if isinstance(client, dwell.memcache.AsyncClient):
            found = asyncio.run(found_by(client))
        else:
            found = client.get("key")
        # pylibmc shows a timeout as a key that is not there.
        ended = "miss" if found is None else "success"
    except Exception:
        ended = "error"
    print(f"{time.perf_counter() - started:.3f} {ended}")


async def found_by(client: dwell.memcache.AsyncClient) -> bytes | None:
    """What the client for asyncio finds."""
    async with client:
        value: bytes | None = await client.get("key")
        return value


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["list"]:
            print("\n".join(CONTENDERS))
        case ["mixed", contender, address, count]:
            mixed(contender, address, int(count))
        case ["fault", contender, address]:
            fault(contender, address)
        case _:
            sys.exit(__doc__)
