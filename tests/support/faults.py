"""A network that fails: a TCP proxy between two parts, with faults that come and go."""

import contextlib
import selectors
import socket
import threading

from support import ports
from support.wait import PATIENCE_S

CHUNK = 65536


class FaultProxy:
    """Passes connections on to `target` as long as nothing is wrong.

    `cut` ends every connection by reset and refuses new ones, `stall` leaves connections open and
    passes nothing on, `drip` passes a few bytes at a time, and `heal` ends whatever there is.
    """

    def __init__(self, target):
        self.target = target
        self.address = ports.free_address()
        self._fault = None
        self._pairs = {}
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._listener = None
        self._is_ending = False
        self._has_obeyed = threading.Event()

    def start(self):
        self._listener = socket.create_server(self.address, backlog=1024)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self):
        self._is_ending = True
        self._order(None)
        self._thread.join(10)

    def cut(self):
        self._order("cut")

    def stall(self):
        self._order("stall")

    def drip(self):
        self._order("drip")

    def heal(self):
        self._order(None)

    def _order(self, fault):
        """Returns when it is so: what is passed on afterwards is so by the new rule."""
        with self._lock:
            self._has_obeyed.clear()
            self._fault = fault
            self._wake.send(b"x")
            self._has_obeyed.wait(PATIENCE_S)

    def _run(self):
        while not self._is_ending:
            # While nothing is passed on, readiness would only spin.
            pause = 0.02 if self._fault in ("stall", "drip") else None
            ready = self._selector.select(pause)
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._woken:
                    self._woken.recv(CHUNK)
                    self._obey()
                elif self._fault != "stall":
                    self._pass_on(key.fileobj)
            if pause and ready:
                threading.Event().wait(pause)
        for end in list(self._pairs):
            self._close(end)
        self._listener.close()
        # Whoever waits for that waits for nothing more.
        self._has_obeyed.set()

    def _obey(self):
        if self._fault == "cut":
            for end in list(self._pairs):
                self._close(end)
        self._has_obeyed.set()

    def _accept(self):
        with contextlib.suppress(BlockingIOError):
            client, _ = self._listener.accept()
            if self._fault == "cut":
                client.close()
                return
            try:
                server = socket.create_connection(self.target, timeout=5)
            except OSError:
                client.close()
                return
            for end, other in ((client, server), (server, client)):
                end.setblocking(True)
                end.settimeout(5)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._pairs[end] = other
                self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, end):
        other = self._pairs.get(end)
        if other is None:
            return
        try:
            data = end.recv(7 if self._fault == "drip" else CHUNK)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        self._close(end)

    def _close(self, end):
        """Ends a connection at both ends, unless that has happened already."""
        other = self._pairs.pop(end, None)
        if other is None:
            return
        del self._pairs[other]
        for one in (end, other):
            self._selector.unregister(one)
            one.close()
