"""``python -m dwell`` as a program of its own, and applications for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

from wire import TIMEOUT

WSGI = """
import os, threading
gate = threading.Event()
def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/wait":
        os.write(1, b"waiting\\n")
        gate.wait(20)
    if path == "/release":
        gate.set()
    if path == "/die":
        os._exit(9)
    start_response("200 OK", [("X-Pid", str(os.getpid()))])
    return [os.path.basename(__file__).encode(), b" ", environ["REMOTE_ADDR"].encode()]
"""

ASGI = """
import asyncio, os
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            os.write(1, kind.encode() + b"\\n")
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                return
    if scope["path"] == "/wait":
        os.write(1, b"waiting\\n")
        await asyncio.sleep(0.5)
    headers = [(b"x-pid", str(os.getpid()).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"asgi"})
"""


class Program:
    """A server that runs, with the lines that it prints."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        command = [sys.executable, "-u", "-m", "dwell", *arguments]
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            env=os.environ | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
            **options,
        )
        self.lines: Queue[str | None] = Queue()
        # Cleared, it leaves what the program prints in the pipe.
        self.reads = threading.Event()
        self.reads.set()
        self.seen: list[str] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
            self.reads.wait()
        self.lines.put(None)

    def wait_for(self, text: str) -> str:
        """Waits until a line with this text is printed."""
        while True:
            line = self.lines.get(timeout=TIMEOUT)
            if line is None:
                raise AssertionError("it has ended: " + "\n".join(self.seen))
            self.seen.append(line)
            if text in line:
                return line

    def address(self) -> tuple[str, int]:
        """Waits until it serves."""
        line = self.wait_for(" on http://")
        self.wait_for("Ctrl+C")
        port = line.split("http://127.0.0.1:")[1].split(":")[0]
        return "127.0.0.1", int(port)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def interrupt(self) -> None:
        """As Ctrl+C at a terminal, which all its processes hear."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        """Waits for its end; what it printed is in ``seen``."""
        status = self.process.wait(TIMEOUT)
        while (line := self.lines.get(timeout=TIMEOUT)) is not None:
            self.seen.append(line)
        return status


Start = Callable[..., Program]
