"""The program that is put in a successor's place, and the one that starts one, as frames.

Run as a program it is a successor that fails at the step which its name has behind the last dot,
and says in `Ready` what it takes: the part of the name before that, in hexadecimal.
"""

import socket
import struct
import sys

KINDS = ("", "Hello", "Listener", "Listeners", "Ready", "Store", "Taken", "Serve", "Connection")
KINDS += ("TrustedConnection", "Serving", "SecureConnection", "TicketKeys")


class Other:
    """One end of the channel."""

    def __init__(self, channel):
        self.channel = channel

    def send(self, kind, mark=0, data=b""):
        head = struct.pack("<BBHI", KINDS.index(kind), mark, 0, len(data))
        self.channel.sendall(head + data)

    def _read(self, count):
        data = b""
        while len(data) < count:
            more = self.channel.recv(count - len(data))
            if not more:
                raise SystemExit(0)
            data += more
        return data

    def receive(self):
        """The name of the next frame."""
        kind, _, _, length = struct.unpack("<BBHI", self._read(8))
        self._read(length)
        return KINDS[kind]

    def skip_to(self, kind):
        while self.receive() != kind:
            pass


def succeed(until, takes):
    other = Other(socket.socket(fileno=0))
    other.skip_to("Listeners")
    other.send("Ready", 0, takes)
    if until == "deaf":
        # Until it is killed.
        other.skip_to("Serve")
        other.skip_to("Serve")
    other.skip_to("Store")
    other.send("Taken")
    other.skip_to("Serve")


if __name__ == "__main__":
    *_, said, step = sys.argv[0].split(".")
    succeed(step, bytes.fromhex(said))
