"""A new configuration under load: what fails meanwhile, and who of those who wait is sent away.

wrk asks for a value again and again on its connections while others are held in long-polls for
another key. Each new configuration is asked for by SIGHUP once the one before it is in force.
"""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from harness import accounting, http, wrk
from harness.boards import EdgeBoard, NchanBoard
from harness.contenders.base import HIT_PATH
from harness.measure import Method, Row, Sample, Step
from harness.pollers import Pollers
from harness.stage import HOST, ContenderError, Stage
from harness.waiting import SHARED_PATH, VALUE, settle

# Longer than a reload takes; the load of one is measured before the next.
PAUSE_SECONDS = 0.2
TAKEN_TIMEOUT_SECONDS = 10.0
LOOK_SECONDS = 0.01
CONFIGURATION = """
[[route]]
prefix = "/poll/"
content_type = "text/x-generation-{generation}"
"""


class ReloadedEdge(EdgeBoard):
    """`dwell serve --config`, whose file has another content type each time."""

    def __init__(self, stage: Stage) -> None:
        self._file = stage.directory / "dwell.toml"
        self._generation = 0
        self._write()
        super().__init__(stage, options=["--config", str(self._file)])

    def reload(self) -> None:
        """Writes the file anew, asks for it to be read, and waits until answers go by it."""
        self._write()
        os.kill(self.program.pid, signal.SIGHUP)
        wanted = f"text/x-generation-{self._generation}"
        url = f"http://{HOST}:{self.port}{HIT_PATH}"
        await_true(lambda: http.fetch(url).fields.get("content-type") == wanted)

    def _write(self) -> None:
        self._generation += 1
        beside = self._file.with_suffix(".new")
        beside.write_text(CONFIGURATION.format(generation=self._generation))
        beside.rename(self._file)


class ReloadedNchan(NchanBoard):
    """nginx with nchan, whose worker is replaced by another."""

    def reload(self) -> None:
        """Asks for the configuration to be read, and waits for a new worker."""
        before = self._workers()
        os.kill(self.program.pid, signal.SIGHUP)
        await_true(lambda: bool(self._workers() - before))

    def _workers(self) -> set[int]:
        return {process.pid for process in accounting.process_tree(self.program.pid)[1:]}


def await_true(is_so: Callable[[], bool]) -> None:
    """Waits until something is so.

    Raises:
        ContenderError: it was not in `TAKEN_TIMEOUT_SECONDS`.
    """
    give_up = time.monotonic() + TAKEN_TIMEOUT_SECONDS
    while not is_so():
        if time.monotonic() > give_up:
            raise ContenderError("a new configuration was not taken")
        time.sleep(LOOK_SECONDS)


def under_load(
    make_board: Callable[[Stage], ReloadedEdge | ReloadedNchan], method: Method
) -> Sample:
    """What failed of a load, and how many held polls were answered, while nothing was written.

    Raises:
        ContenderError: the server did not start, or did not take a configuration.
    """
    with Stage() as stage:
        board = make_board(stage)
        stage.on_exit(board.close)
        board.fill([SHARED_PATH, HIT_PATH], VALUE)
        url = f"http://{HOST}:{board.port}{HIT_PATH}"
        paths = [SHARED_PATH] * method.storm_clients
        with Pollers(board.port, paths, board.transport) as held, ThreadPoolExecutor(1) as pool:
            held.open()
            held.hold()
            settle(board.program.pid)
            held.require_silence()
            load = pool.submit(wrk.run, url, method.seconds, None)
            reloads = 0
            while not load.done():
                board.reload()
                reloads += 1
                time.sleep(PAUSE_SECONDS)
            report = load.result()
            return {
                "failures": report.failures,
                "held_lost": held.disturbed(),
                "reloads": reloads,
                "requests": report.requests,
                "p99_us": report.p99_us,
                "held": len(paths),
                "errors": report.errors,
            }


def steps(method: Method) -> list[Step]:
    """A row for each server."""
    return [
        (
            Row("reload_edge", "dwell edge, SIGHUP", ours=True),
            partial(under_load, ReloadedEdge, method),
        ),
        (
            Row("reload_nchan", "nginx with nchan, SIGHUP", ours=False),
            partial(under_load, ReloadedNchan, method),
        ),
    ]
