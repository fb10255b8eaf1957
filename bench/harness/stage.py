"""Starting and stopping programs for one measurement.

Everything a contender starts belongs to a `Stage`; leaving the stage ends every process by its
process id, whatever happened in between.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from harness import accounting

SERVER_CORE = 0
LOAD_CORE = 1
READY_TIMEOUT_SECONDS = 10.0
STOP_TIMEOUT_SECONDS = 5.0
HOST = "127.0.0.1"


class ContenderError(Exception):
    """A contender did not start, or does not answer as it should; the message says how."""


def favour(pid: int) -> None:
    """Prefers the session of a process to all others of the machine, where the system lets us.

    A server that waits for its core while somebody compiles is measured as slow otherwise, and wrk
    counts every request that it would have sent meanwhile as one that waited.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-19")


class Program:
    """A running program, pinned to one core."""

    def __init__(self, name: str, arguments: Sequence[str], core: int, log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            # taskset replaces itself by the program, so the process id stays the same.
            self._process = subprocess.Popen(
                ["taskset", "-c", str(core), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        favour(self._process.pid)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_ready(self, port: int) -> None:
        """Waits until the program listens on `port`, without a connection that it would hear of.

        Raises:
            ContenderError: it ended first, or `READY_TIMEOUT_SECONDS` have passed.
        """
        give_up = time.monotonic() + READY_TIMEOUT_SECONDS
        while time.monotonic() < give_up:
            if self._process.poll() is not None:
                status = self._process.returncode
                raise ContenderError(f"{self.name} ended with {status}: {self.last_words()}")
            if accounting.is_listening(port):
                return
            time.sleep(0.02)
        raise ContenderError(f"{self.name} does not listen on port {port}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of what the program wrote, for error messages."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or "it wrote nothing"

    def stop(self) -> None:
        """Ends the program and what it started: asked first, then killed."""
        tree = accounting.process_tree(self.pid)
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for child in tree[1:]:
            # The start time tells a child that outlived its parent from a stranger that got its id.
            now = accounting.read_stat(child.pid)
            if now is not None and now.start_ticks == child.start_ticks:
                os.kill(child.pid, signal.SIGKILL)


class Stage:
    """The programs, ports and files of one measurement."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.directory = Path(tempfile.mkdtemp(prefix="dwell-bench-"))
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._names = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def on_exit(self, action: Callable[[], None]) -> None:
        """Has something done when the stage is left, before the programs started so far end."""
        self._stack.callback(action)

    def free_port(self) -> int:
        """A port of 127.0.0.1 nobody listens on just now."""
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            return int(probe.getsockname()[1])

    def start(
        self, name: str, arguments: Sequence[str], core: int, ports: Sequence[int]
    ) -> Program:
        """Starts a program and waits until it listens on all of `ports`.

        Raises:
            ContenderError: the program is not there or does not get ready.
        """
        if shutil.which(arguments[0]) is None:
            raise ContenderError(f"{arguments[0]} is not there")
        self._names += 1
        log = self.directory / f"{name}-{self._names}.log"
        program = Program(name, arguments, core, log)
        self._stack.callback(program.stop)
        for port in ports:
            program.wait_ready(port)
        return program
