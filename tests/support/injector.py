"""A proxy in front of a server, which sends clients what a test wants in the server's stream."""

import asyncio
import contextlib
import threading

from support import ports
from support.wait import PATIENCE_S


class Injector:
    """Passes bytes on, both ways."""

    def __init__(self, target):
        self.target = target
        self.address = None
        self.clients = set()
        self.loop = asyncio.new_event_loop()
        self.is_ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self):
        return f"redis://{ports.text(self.address)}"

    def start(self):
        self.thread.start()
        assert self.is_ready.wait(PATIENCE_S)
        return self

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)

    def inject(self, wire, ends=False):
        """Sends this on each connection, at the end of what the server has sent so far, and closes
        them behind it if it `ends`. Returns the number of connections."""
        sent = asyncio.run_coroutine_threadsafe(self._inject(wire, ends), self.loop)
        return sent.result(PATIENCE_S)

    def silence(self):
        """Passes nothing on any more on the connections that there are, and closes none, as where
        the network has lost them. New ones are served."""
        for client in set(self.clients):
            client.is_lost.set()

    def _run(self):
        serve = asyncio.start_server(self._serve, ports.HOST, 0)
        server = self.loop.run_until_complete(serve)
        self.address = server.sockets[0].getsockname()
        self.is_ready.set()
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self.loop.run_until_complete(task)
        self.loop.close()

    async def _inject(self, wire, ends):
        clients = list(self.clients)
        for client in clients:
            client.writer.write(wire)
            if ends:
                client.writer.close()
        return len(clients)

    async def _serve(self, reader, writer):
        client = _Client(writer)
        to_read, to_write = await asyncio.open_connection(*self.target)
        self.clients.add(client)
        ways = [(reader, to_write), (to_read, writer)]
        tasks = [asyncio.ensure_future(client.pass_on(*way)) for way in ways]
        # Where one side has closed, the other is closed as well.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.clients.discard(client)
        for end in (writer, to_write):
            end.close()
        for task in tasks:
            task.cancel()


class _Client:
    def __init__(self, writer):
        self.writer = writer
        self.is_lost = threading.Event()

    async def pass_on(self, reader, writer):
        with contextlib.suppress(OSError):
            while part := await reader.read(65536):
                if not self.is_lost.is_set():
                    writer.write(part)
                    await writer.drain()
        while self.is_lost.is_set():
            await asyncio.sleep(3600)
