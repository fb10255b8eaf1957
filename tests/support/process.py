"""Child processes that are ended by their own pid, whatever happens."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

from support.wait import PATIENCE_S, accepts, until

# The kernel ends the child when this process dies, so not even a killed run leaves servers behind.
_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def is_paused(pid):
    """Whether every thread of a process has stopped."""
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    try:
        stats = [(thread / "stat").read_text() for thread in threads]
    except (FileNotFoundError, ProcessLookupError):
        # A thread that was about to end has done so meanwhile.
        return False
    # The state follows the name, which may itself hold spaces and brackets.
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


class Process:
    """One server under test, its output kept in a file."""

    def __init__(self, arguments, log, folder=None):
        self.arguments = [str(argument) for argument in arguments]
        self.log = pathlib.Path(log)
        self.folder = folder
        self.child = None

    def start(self):
        """Starts the process without waiting for anything."""
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                _WITH_PARENT + self.arguments,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def start_listening(self, *addresses):
        """Starts the process and waits until it accepts connections at all `addresses`."""
        self.start()
        for address in addresses:
            self.await_port(address)
        return self

    def await_port(self, address):
        """Waits until the process accepts connections at `address`."""
        until(lambda: self._is_ready(address), f"{self.arguments[0]} listens at {address}")

    def _is_ready(self, address):
        is_ready = accepts(address)
        # Another program may accept connections there, and be the reason why this one has ended.
        if self.child.poll() is not None:
            raise AssertionError(f"ended with {self.child.returncode}:\n{self.output()}")
        return is_ready

    @property
    def pid(self):
        return self.child.pid

    def memory_bytes(self):
        """Memory that is in use now, as the kernel counts it."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def is_alive(self):
        return self.child is not None and self.child.poll() is None

    def signal(self, number):
        os.kill(self.child.pid, number)

    def pause(self):
        """Stops the process: it still accepts connections, and never answers."""
        self.signal(signal.SIGSTOP)
        # The call returns before every thread of the process has stopped.
        until(lambda: is_paused(self.pid), f"{self.arguments[0]} stops")

    def resume(self):
        """Lets the process run on."""
        self.signal(signal.SIGCONT)

    def wait(self, timeout_s=PATIENCE_S):
        """Waits for the process to end by itself; returns its exit code."""
        return self.child.wait(timeout_s)

    def kill(self):
        """Ends the process as a crash would."""
        self.signal(signal.SIGKILL)
        self.child.wait(PATIENCE_S)

    def stop(self):
        """Ends the process, politely first."""
        if not self.is_alive():
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self.child.wait(2)
        except subprocess.TimeoutExpired:
            self.kill()

    def output(self):
        """Everything written so far to standard output and standard error."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def await_output(self, text):
        """Waits until `text` is written; a log has a thread of its own, so it may come late."""
        until(lambda: text in self.output(), lambda: f"{text!r} is written: {self.output()}")

    def cpu_seconds(self):
        """User and system time used so far."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        """Memory in use."""
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_share(self, seconds):
        """The part of one core used during the next `seconds`."""
        before, start = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_seconds() - before) / (time.monotonic() - start)
