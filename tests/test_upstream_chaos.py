"""Clients and servers leave at every state of a request: all that they held is given back."""

import asyncio
import collections
import contextlib
import os
import random
import signal
import socket
import struct

import pytest

from support import ports
from support.wait import until

SECONDS = float(os.environ.get("DWELL_SOAK_SECONDS", "6"))
CLIENTS = 60
# Each request has ended long before.
PATIENCE_S = 25
OK = b"HTTP/1.1 200 OK\r\n"
UPGRADE = b"Connection: upgrade\r\nUpgrade: echo\r\n"
# What is open or under way now, which is nothing when all have left.
GAUGES = [
    "dwell_connections_open",
    "dwell_waits_held",
    "dwell_polls_held",
    "dwell_streams_open",
    "dwell_tunnels_open",
    "dwell_upstream_outstanding",
    "dwell_upstream_connections_open",
    "dwell_output_bytes",
    "dwell_gathered_bytes",
]


class Application:
    """Does what the path of a request says, and leaves there."""

    def __init__(self, address, seed):
        self.address = address
        self.random = random.Random(seed)
        self.server = None
        self.writers = set()

    async def start(self):
        host, port = self.address
        self.server = await asyncio.start_server(self.serve, host, port, backlog=512)

    async def stop(self):
        self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()
        self.server = None

    async def serve(self, reader, writer):
        self.writers.add(writer)
        try:
            while await self.answer(reader, writer):
                pass
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            self.writers.discard(writer)
            writer.transport.abort()

    async def answer(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split(b" ")[1].decode()
        what = target.split("/")[2].split("?")[0]
        if what == "deaf":
            await asyncio.sleep(self.random.uniform(0, 0.3))
            return False
        await self.read_body(head, reader, writer)
        if what == "hang":
            await asyncio.sleep(self.random.uniform(0, 3))
        elif what == "slow":
            await asyncio.sleep(self.random.uniform(0, 0.2))
        elif what == "half":
            writer.write(OK + b"Content-")
            await writer.drain()
            return False
        elif what == "cut":
            writer.write(OK + b"Content-Length: 100000\r\n\r\n" + bytes(1000))
            await asyncio.sleep(self.random.uniform(0, 0.2))
            return False
        elif what == "large":
            writer.write(OK + b"Content-Length: 3000000\r\n\r\n")
            for _ in range(30):
                writer.write(bytes(100_000))
                await writer.drain()
            return True
        elif what == "events":
            writer.write(OK + b"Content-Type: text/event-stream\r\n\r\n")
            for _ in range(self.random.randrange(40)):
                writer.write(b"data: 1\n\n")
                await writer.drain()
                await asyncio.sleep(0.05)
            return False
        elif what == "switch" and b"pgrade: echo" in head:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\n" + UPGRADE + b"\r\n")
            for _ in range(self.random.randrange(20)):
                writer.write(await reader.read(1000))
                await writer.drain()
            return False
        elif what == "error":
            writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
            return True
        writer.write(OK + b"Content-Length: 2\r\n\r\nok")
        await writer.drain()
        return self.random.random() > 0.2

    async def read_body(self, head, reader, writer):
        lower = head.lower()
        if b"expect: 100" in lower and self.random.random() < 0.7:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if b"chunked" in lower:
            while size := int(await reader.readline(), 16):
                await reader.readexactly(size + 2)
            await reader.readline()
        elif b"content-length: " in lower:
            length = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)


WHAT = ["ok", "slow", "hang", "deaf", "half", "cut", "large", "events", "switch", "error"]


class Client:
    """Asks for one thing after another, and leaves at some point of each."""

    def __init__(self, address, seed):
        self.address = address
        self.random = random.Random(seed)
        self.asked = 0

    async def run(self, is_over):
        while not is_over.is_set():
            with contextlib.suppress(OSError, EOFError):
                await self.once()
            self.asked += 1

    async def once(self):
        reader, writer = await asyncio.open_connection(*self.address, limit=1 << 16)
        try:
            await self.ask(reader, writer)
        finally:
            if self.random.random() < 0.5:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, linger
                )
            writer.close()

    def request(self, what):
        """A head, and its body in pieces."""
        chance, choice = self.random.random, self.random.choice
        prefix = choice(["/page", "/poll", "/page"])
        query = "" if chance() < 0.5 else f"?n={self.random.randrange(4)}"
        method = choice(["GET", "GET", "GET", "POST", "PUT", "HEAD"])
        fields = f"Host: a\r\nX-Forwarded-For: 192.0.2.{self.random.randrange(6)}\r\n"
        if what == "switch":
            method = "GET"
            fields += UPGRADE.decode()
        if chance() < 0.2:
            fields += "Cookie: a=b\r\n"
        body = []
        if method in ("POST", "PUT"):
            length = choice([10, 1000, 70_000, 300_000])
            if chance() < 0.5:
                fields += "Transfer-Encoding: chunked\r\n"
                body = [b"3e8\r\n" + bytes(1000) + b"\r\n"] * (length // 1000) + [b"0\r\n\r\n"]
            else:
                fields += f"Content-Length: {length}\r\n"
                piece = bytes(min(length, 10_000))
                body = [piece] * (length // len(piece))
            if chance() < 0.2:
                fields += "Expect: 100-continue\r\n"
        return f"{method} {prefix}/{what}{query} HTTP/1.1\r\n{fields}\r\n".encode(), body

    async def ask(self, reader, writer):
        chance, pause = self.random.random, self.random.uniform
        what = self.random.choice(WHAT)
        head, body = self.request(what)
        leaves = self.random.choice(["never", "head", "body", "soon", "late", "half"])
        writer.write(head[: len(head) // 2] if leaves == "head" and chance() < 0.2 else head)
        await writer.drain()
        if leaves == "head":
            await asyncio.sleep(pause(0, 0.1))
            return
        for place, piece in enumerate(body):
            if leaves == "body" and place * 2 >= len(body):
                await asyncio.sleep(pause(0, 0.1))
                return
            writer.write(piece)
            await writer.drain()
        if leaves == "half":
            writer.write_eof()
        wait = {"soon": pause(0, 0.05), "late": pause(0, 1)}.get(leaves, 2)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while await reader.read(1 << 16):
                    if what == "switch" and leaves != "half":
                        writer.write(b"ping")


async def well_behaved(address, is_over, found):
    """Each of its requests is answered, by whatever status."""
    fields = "Host: a\r\nX-Forwarded-For: 198.51.100.1\r\nConnection: close\r\n"
    while not is_over.is_set():
        reader, writer = await asyncio.open_connection(*address)
        target = random.choice(["/page/ok", "/poll/ok", "/poll/none"])
        writer.write(f"GET {target} HTTP/1.1\r\n{fields}\r\n".encode())
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await reader.read()
            found[answer.split(b" ")[1] if answer else b"none"] += 1
        except TimeoutError:
            found[b"hung"] += 1
        writer.close()
        await asyncio.sleep(0.02)


async def chaos(dwell, applications, seed):
    chance = random.Random(seed)
    is_over = asyncio.Event()
    for application in applications:
        await application.start()
    found = collections.Counter()
    clients = [Client(dwell.address, f"{seed}-{number}") for number in range(CLIENTS)]
    good = [well_behaved(dwell.address, is_over, found) for _ in range(3)]
    tasks = [asyncio.create_task(run) for run in [*good, *(one.run(is_over) for one in clients)]]
    end = asyncio.get_running_loop().time() + SECONDS
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(chance.uniform(0.1, 0.5))
        application = chance.choice(applications)
        match chance.randrange(4):
            case 0:
                if application.server:
                    await application.stop()
            case 1:
                bounds = {"connections_max": chance.randrange(2, 9)}
                dwell.rewrite(upstream={**bounds, "transfers_max": chance.randrange(6)})
                os.kill(dwell.pid, signal.SIGHUP)
        await asyncio.sleep(chance.uniform(0.1, 0.5))
        for application in applications:
            if not application.server:
                await application.start()
    is_over.set()
    await asyncio.gather(*tasks)
    asked = sum(client.asked for client in clients)
    return asked, found


@pytest.mark.parametrize("pollers", [1, 2])
def test_what_leaves_at_any_state_is_counted_no_more(start_dwell, pollers):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    applications = [Application(ports.free_address(), number) for number in range(2)]
    upstream = {
        "url": [f"http://{ports.text(application.address)}" for application in applications],
        "connections_max": 6,
        "transfers_max": 4,
        "queue_max": 16,
        "queue_timeout": "1s",
        "header_timeout": "2s",
        "total_timeout": "5s",
        "idle_timeout": "1s",
        "answer_bytes_max": "1MiB",
    }
    server = {"pollers": pollers, "trusted_proxies": "127.0.0.1"}
    dwell = start_dwell(upstream=upstream, server=server)
    asked, found = asyncio.run(chaos(dwell, applications, seed))
    assert asked > CLIENTS
    assert found[b"200"] > 0
    assert found.keys() <= {b"200", b"502", b"503", b"504"}, found

    def left():
        return {name: count for name in GAUGES if (count := dwell.metric(name))}

    until(lambda: not left(), lambda: f"all have left, but {left()}")
