"""An application that a test plays by hand, byte by byte."""

import re
import socket
import struct

from support import ports
from support.wait import PATIENCE_S


class RawApp:
    """Listens, and hands out its connections."""

    def __init__(self):
        self.listener = socket.create_server(ports.free_address(), backlog=128)
        self.listener.settimeout(PATIENCE_S)
        self.address = self.listener.getsockname()

    @property
    def url(self):
        return f"http://{ports.text(self.address)}"

    def accept(self, **options):
        connection, _ = self.listener.accept()
        return RawConnection(connection, **options)

    def is_alone(self):
        """Whether nobody has connected."""
        self.listener.settimeout(0)
        try:
            self.listener.accept()[0].close()
            return False
        except BlockingIOError:
            return True
        finally:
            self.listener.settimeout(PATIENCE_S)

    def close(self):
        self.listener.close()


class RawConnection:
    """One connection of the edge to the application."""

    def __init__(self, connection, receive_buffer_bytes=None):
        self.socket = connection
        self.socket.settimeout(PATIENCE_S)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def read_head(self):
        """The next request's head, its empty line included."""
        return self.read_until(b"\r\n\r\n")

    def read_until(self, end):
        while end not in self.buffer:
            self._more()
        taken, found, self.buffer = self.buffer.partition(end)
        return taken + found

    def read(self, count):
        while len(self.buffer) < count:
            self._more()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send(self, data):
        self.socket.sendall(data)

    def is_cut(self):
        """Whether the edge has closed it, sending nothing more; waits for that."""
        try:
            return self.buffer == b"" and self.socket.recv(65536) == b""
        except ConnectionResetError:
            return True

    def end_sending(self):
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        """Goes away as a killed process does that had not read everything."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()

    def _more(self):
        chunk = self.socket.recv(65536)
        if not chunk:
            raise EOFError(f"the edge has closed the connection, after {self.buffer[:200]!r}")
        self.buffer += chunk


def field(head, name):
    """The value of the only field of this name in a head, or None."""
    values = re.findall(rb"(?im)^" + name.encode() + rb":[ \t]*(.*?)[ \t]*\r$", head)
    assert len(values) < 2, f"{name} came {len(values)} times"
    return values[0] if values else None
