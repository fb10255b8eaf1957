"""The embedded store alone."""

from support import ports
from support.dwell import BINARY
from support.memcached import store_client
from support.process import Process


class Store(Process):
    """`dwell store` with memcached's flags, on a port of its own unless they say otherwise."""

    def __init__(self, folder, *flags, program=None):
        self.address = ports.free_address()
        port = self.address[1]
        command = [program] if program else [BINARY, "store"]
        super().__init__([*command, "-p", port, *flags], folder / f"store-{port}.log")

    def start_ready(self):
        return self.start_listening(self.address)

    def client(self):
        return store_client(self.address)
