"""Worker processes: started, watched, replaced one by one, and stopped in order."""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

logger = logging.getLogger("dwell")

# The exit status of a worker whose code has changed on disk.
RELOAD = 3
# A worker that lived for less is not started again at once.
HASTY = 1.0
# Seconds beyond the graceful timeout after which a process that still hangs is ended.
SLACK = 10.0
# Seconds after which it is ended when it was asked again.
AT_ONCE = 2.0
# The watchdog takes no shorter time.
MOMENT = 0.001
# What the end is asked for by, in place of a signal's number.
_WISH = b"\0"
# Signs of life that a worker gives in each worker timeout.
BEATS = 4
_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}


class SignalEvent:
    """An event that a signal handler may set, whatever it interrupts.

    The handler runs between two steps of the main thread. `threading.Event` has a lock that the
    main thread may hold there, when it sets the event itself or a signal before this one does: the
    handler would wait for ever.
    """

    def __init__(self) -> None:
        self._is_set = False
        # Held until the event is set.
        self._lock = threading.Lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Sets it, and wakes those who wait."""
        self._is_set = True
        self._release()

    def wait(self, timeout: float = -1) -> bool:
        """Waits until it is set, at most ``timeout`` seconds; whether it is set."""
        if not self._is_set and self._lock.acquire(timeout=timeout):
            # For the next one who waits.
            self._release()
        return self._is_set

    def _release(self) -> None:
        # Whoever waits may have released it already.
        with contextlib.suppress(RuntimeError):
            self._lock.release()


class Stop:
    """The wish that this process ends: in order at first, at once when it is repeated.

    A process that hangs in the application cannot end by itself. So the interpreter's watchdog ends
    it with status 1, and shows where its threads are: ``AT_ONCE`` seconds after the repetition, and
    ``patience`` seconds after the first wish.

    Args:
        patience: ``None`` where the process belongs to somebody else, who goes on behind the
            server.
    """

    def __init__(self, patience: float | None = None) -> None:
        self._patience = patience
        self.signals = [signal.SIGINT, signal.SIGTERM]
        self._is_armed = False
        # Times at which the watchdog ends the process, each set once: by the first wish, and by its
        # repetition.
        self._ends: dict[int, float] = {}
        self.asked = SignalEvent()
        self.at_once = False
        # One step counts, so a signal that interrupts another one is a repetition of it.
        self._wishes = itertools.count()
        self.status = 0
        self._listeners: list[Callable[[], object]] = []
        # Asks the supervisor for a successor, where there is one.
        self.succeed: Callable[[], None] = lambda: None
        self._waker = os.pipe()
        for end in self._waker:
            os.set_blocking(end, False)

    def ask(self, *_: object) -> None:
        """Asks for the end; may be used as a signal handler, which interrupts this too."""
        repetitions = next(self._wishes)
        if repetitions:
            self.at_once = True
        seconds = AT_ONCE if repetitions else self._patience
        # Not at each further one: it would wind the watchdog up again.
        if repetitions < 2 and seconds is not None:
            self._ends[repetitions] = time.monotonic() + seconds
        self.asked.set()
        if repetitions < 2:
            self._arm_end()
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker[1], _WISH)
        for listener in self._listeners:
            listener()

    def wait(self) -> None:
        """Waits until the end is asked for.

        A signal that comes just before the wait ends it too: it is written to what is waited for.
        Whoever was told of signals before is told of them still.
        """
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.set_wakeup_fd(self._waker[1], warn_on_full_buffer=False) if is_main else -1
        try:
            while not self.asked.is_set():
                select.select([self._waker[0]], [], [])
                self._pass_on(before)
        finally:
            if is_main:
                signal.set_wakeup_fd(before)
                self._pass_on(before)

    def _pass_on(self, descriptor: int) -> None:
        """Takes what wakes this process, and writes signals to a descriptor that has one.

        What that does not take is lost, as the interpreter's own bytes are.
        """
        with contextlib.suppress(BlockingIOError):
            while True:
                heard = os.read(self._waker[0], 1024).replace(_WISH, b"")
                if heard and descriptor != -1:
                    with contextlib.suppress(OSError):
                        os.write(descriptor, heard)

    def beat(self, seconds: float) -> None:
        """Ends the process as one that hangs, unless this is called again within ``seconds``.

        Once the end is asked for, the times of that hold.
        """
        self._arm(seconds)
        # It is asked for before its own watchdog is armed, so one of the two arms that last.
        if self.asked.is_set():
            self._arm_end()

    def wear(self, requests: int) -> tuple[int, int]:
        """Has this process succeeded by another one when it has served so many requests.

        Returns:
            What a server takes as its ``wear``: the number, and the descriptor that it writes to
            then.
        """
        worn, end = os.pipe()

        def watch() -> None:
            is_worn = os.read(worn, 1)
            os.close(worn)
            if is_worn and not self.asked.is_set():
                self.succeed()

        threading.Thread(target=watch, name="dwell-wear", daemon=True).start()
        return requests, end

    def _arm_end(self) -> None:
        """Arms for the earliest end. A signal that interrupts this may add one."""
        count = 0
        while count != len(self._ends):
            count = len(self._ends)
            left = min(self._ends.copy().values()) - time.monotonic()
            self._arm(max(left, MOMENT))

    def _arm(self, seconds: float) -> None:
        self._is_armed = True
        # Nothing of this needs the interpreter, which the application may hold for ever.
        faulthandler.dump_traceback_later(min(seconds, 1e6), exit=True, file=2)

    def close(self) -> None:
        """Gives its descriptors back.

        Of a process of our own that was asked twice, the watchdog stays: threads of the application
        may keep it.
        """
        if self._is_armed and not (self.at_once and self._patience is not None):
            faulthandler.cancel_dump_traceback_later()
        for end in self._waker:
            os.close(end)

    def tell(self, listener: Callable[[], object]) -> None:
        """Calls ``listener`` whenever the end is asked for, from whatever thread."""
        self._listeners.append(listener)
        if self.asked.is_set():
            listener()

    def end(self) -> None:
        """The server has ended by itself; no repetition of a wish."""
        if not self.asked.is_set():
            self.ask()

    def reload(self) -> None:
        """Asks for the end so that the process is started anew."""
        self.status = RELOAD
        self.ask()

    def on_signals(self) -> Callable[[], None]:
        """Ends by its signals from now on; the result undoes it.

        Does nothing in other threads than the main one, which alone hears signals.
        """
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        before = [(number, signal.signal(number, self.ask)) for number in self.signals]

        def restore() -> None:
            for number, handler in before:
                signal.signal(number, handler)

        return restore


# What a worker does: serves the sockets of its place until it is asked to stop; calls the second
# argument when clients are served.
Work = Callable[[int, Callable[[], None], Stop], None]


@dataclass
class _Worker:
    pid: int
    place: int
    # What it tells: a line when it serves, and another one when it wants a successor.
    told: int
    started: float = field(default_factory=time.monotonic)
    is_leaving: bool = False


class Supervisor:
    """Keeps a number of worker processes running until it is told to stop.

    SIGTERM and SIGINT stop it, in order; a second one at once. SIGHUP replaces the workers one by
    one: each new one serves before its predecessor is asked to leave, so no client is refused.
    """

    def __init__(
        self,
        work: Work,
        processes: int,
        graceful_timeout: float,
        started: Callable[[], None],
        renew: Callable[[], bool] = lambda: True,
    ) -> None:
        """Supervises.

        Args:
            started: Called before the workers are started, when a signal is kept for them already.
            renew: Reads what the workers share anew, before they are replaced for SIGHUP; false
                where it cannot be used, and the workers stay as they are.
        """
        self._work = work
        self._started = started
        self._renew = renew
        self._processes = processes
        self._graceful_timeout = graceful_timeout
        self._workers: dict[int, _Worker] = {}
        self._stopping: float | None = None
        self._due: list[tuple[float, int]] = []

    def run(self) -> int:
        """Runs until everything has ended; returns the exit status."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        # Ends for those who read it when this process ends, however it does.
        self._life = os.pipe()
        try:
            self._started()
            for place in range(self._processes):
                if not self._start(place):
                    is_wanted = self._stopping is not None
                    if not is_wanted:
                        logger.error("a worker has ended before it could serve")
                    self._stop()
                    self._run()
                    return 0 if is_wanted else 1
            self._run()
            return 0
        finally:
            for end in self._life:
                os.close(end)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _run(self) -> None:
        while self._workers or (self._due and self._stopping is None):
            self._handle(signal.sigtimedwait(_SIGNALS, self._patience()))

    def _handle(self, received: signal.struct_siginfo | None) -> None:
        number = received.si_signo if received else None
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop()
        elif number == signal.SIGHUP and self._stopping is None and self._renew():
            self._replace(list(self._workers.values()))
        self._reap()
        if self._stopping is None:
            worn = [worker for worker in self._workers.values() if _has_told(worker.told)]
            self._replace(worn)
        now = time.monotonic()
        if self._stopping is not None and now >= self._stopping:
            self._send_all(signal.SIGKILL)
            self._stopping = now + 1
        if self._stopping is None:
            due = [place for at, place in self._due if at <= now]
            self._due = [(at, place) for at, place in self._due if at > now]
            for place in due:
                if not self._start(place):
                    self._due.append((time.monotonic() + HASTY, place))

    def _patience(self) -> float:
        now = time.monotonic()
        moments = [at for at, _ in self._due]
        if self._stopping is not None:
            moments = [self._stopping]
        return max(0.0, min(moments, default=now + 3600) - now)

    def _stop(self) -> None:
        again = self._stopping is not None
        # The workers keep to the time by themselves; this is for those that cannot.
        patience = self._graceful_timeout + SLACK + 1
        self._stopping = time.monotonic() + (0 if again else patience)
        self._send_all(signal.SIGTERM)

    def _send_all(self, number: signal.Signals) -> None:
        for pid in list(self._workers):
            _send(pid, number)

    def _replace(self, workers: list[_Worker]) -> None:
        for worker in workers:
            if worker.is_leaving:
                continue
            if not self._start(worker.place):
                logger.error("the new worker does not start; the old one goes on")
                return
            worker.is_leaving = True
            _send(worker.pid, signal.SIGTERM)

    def _start(self, place: int) -> bool:
        """Starts a worker and waits until it serves; false when it ended instead."""
        told, teller = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(told)
            os.close(self._life[1])
            stop = Stop(self._graceful_timeout + SLACK)
            _be_worker(self._work, place, teller, self._life[0], stop)
        os.close(teller)
        self._workers[pid] = _Worker(pid, place, told)
        # There is a byte to read, or the end, when the worker serves or has ended.
        while not select.select([told], [], [], 0.1)[0]:
            if signal.sigtimedwait({signal.SIGTERM, signal.SIGINT}, 0):
                self._stop()
                _send(pid, signal.SIGKILL)
        return os.read(told, 1) == b"\n"

    def _reap(self) -> None:
        for pid, worker in list(self._workers.items()):
            waited, status = os.waitpid(pid, os.WNOHANG)
            if waited == 0:
                continue
            del self._workers[pid]
            os.close(worker.told)
            if worker.is_leaving or self._stopping is not None:
                continue
            code = os.waitstatus_to_exitcode(status)
            now = time.monotonic()
            hasty = code != RELOAD and now - worker.started < HASTY
            if code not in (0, RELOAD):
                ended = f"status {code}" if code > 0 else signal.Signals(-code).name
                logger.error("worker %d ended with %s; another one is started", pid, ended)
            self._due.append((now + HASTY if hasty else now, worker.place))


def work_in(
    processes: int | None,
    work: Work,
    started: Callable[[], None],
    graceful_timeout: float,
    is_program: bool,
    renew: Callable[[], bool] = lambda: True,
) -> int:
    """Works in so many processes, or in this one; returns the exit status.

    Args:
        started: Called when this process serves, or before its workers are started.
        is_program: Whether this process is ended where the application hangs.
        renew: As of `Supervisor`.
    """
    if processes is not None:
        return Supervisor(work, processes, graceful_timeout, started, renew).run()
    stop = Stop(graceful_timeout + SLACK if is_program else None)
    restore = stop.on_signals()
    try:
        work(0, started, stop)
    finally:
        restore()
        stop.close()
    return stop.status


def workers_for(
    workers: int | None, worker_timeout: float | None, limit_max_requests: int | None
) -> int | None:
    """The number of workers: one at least where any is to be replaced.

    Raises:
        ValueError: For an option that is out of range.
    """
    if worker_timeout is not None and not worker_timeout > 0:
        raise ValueError(f"worker_timeout is out of range: {worker_timeout}")
    if limit_max_requests is not None and limit_max_requests < 1:
        raise ValueError(f"limit_max_requests is out of range: {limit_max_requests}")
    is_replaced = worker_timeout is not None or limit_max_requests is not None
    return workers or (1 if is_replaced else None)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _has_told(told: int) -> bool:
    """Whether a worker wants a successor; the end of one is no word."""
    return bool(select.select([told], [], [], 0)[0]) and os.read(told, 1) == b"\n"


def _be_worker(work: Work, place: int, teller: int, life: int, stop: Stop) -> None:
    """Works in the process that was forked off, and ends it."""
    status = 1
    supervisor = os.getppid()

    def succeed() -> None:
        os.write(teller, b"\n")
        if os.getppid() == supervisor:
            # It looks at what workers have told whenever a child has changed.
            os.kill(supervisor, signal.SIGCHLD)

    stop.succeed = succeed
    try:
        # Ctrl+C reaches the whole group of processes, and the supervisor passes it on: together
        # they would be a repetition. What is started from here has its default again.
        stop.signals.remove(signal.SIGINT)
        signal.signal(signal.SIGINT, lambda *_: None)
        stop.on_signals()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        _end_with_parent(life, stop)
        work(place, lambda: _tell(teller), stop)
        status = stop.status
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads that are still in the app would keep an orderly end waiting for ever.
        os._exit(status)


def _tell(teller: int) -> None:
    os.write(teller, b"\n")


def _end_with_parent(life: int, stop: Stop) -> None:
    """Ends a worker whose parent was killed."""

    def watch() -> None:
        os.read(life, 1)
        stop.ask()

    threading.Thread(target=watch, name="dwell-parent", daemon=True).start()
