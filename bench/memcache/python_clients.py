"""The Python clients, over the same sequence as `dwell-bench-memcache`.

usage: python_clients.py list | mixed CONTENDER SERVER ITERATIONS | fault CONTENDER SERVER
"""

import resource
import sys
import time

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


CONTENDERS = {
    "dwell_python": dwell_client,
    "pymemcache_none": lambda server, _: pymemcache_client(server, None),
    "pymemcache": pymemcache_client,
    "pylibmc_default": lambda server, _: pylibmc_client(server, None),
    "pylibmc": pylibmc_client,
}


def mixed(name: str, server: str, iterations: int) -> None:
    """Does the sequence; prints wall and processor time, and switches, per operation."""
    client = CONTENDERS[name](server, TIMEOUT)
    for key in KEYS:
        client.set(key, VALUE)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for _ in range(iterations):
        for key in KEYS:
            client.set(key, VALUE)
        for key in KEYS:
            client.get(key)
        for key in KEYS:
            client.set(key, VALUE)
            client.get(key)
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
    try:
        found = CONTENDERS[name](server, FAULT_TIMEOUT).get("key")
        # pylibmc shows a timeout as a key that is not there.
        ended = "miss" if found is None else "success"
    except Exception:
        ended = "error"
    print(f"{time.perf_counter() - started:.3f} {ended}")


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
