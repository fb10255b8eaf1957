"""The real memcached."""

import os

from pymemcache.client.base import Client

from support import ports
from support.process import Process
from support.wait import PATIENCE_S


class Memcached(Process):
    """One memcached server on a port of its own, started with `extra` options."""

    def __init__(self, folder, *extra):
        self.address = ports.free_address()
        port = self.address[1]
        user = ["-u", "root"] if os.geteuid() == 0 else []
        options = ["-l", ports.HOST, "-p", port, "-U", "0", "-t", "2", "-c", "4096"]
        super().__init__(["memcached", *options, *user, *extra], folder / f"memcached-{port}.log")

    @property
    def name(self):
        """`host:port`."""
        return ports.text(self.address)

    def stop(self):
        """Ends it at once: asked politely, it waits for the next second of its clock."""
        if self.is_alive():
            self.kill()

    def start_ready(self):
        return self.start_listening(self.address)

    def client(self):
        return store_client(self.address)


def store_client(address):
    """A pymemcache client that waits for every reply."""
    return Client(address, default_noreply=False, timeout=PATIENCE_S, connect_timeout=PATIENCE_S)
