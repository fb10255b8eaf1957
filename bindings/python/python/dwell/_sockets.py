"""Listening sockets for one process or many."""

from __future__ import annotations

import errno
import os
import socket
import stat
from dataclasses import dataclass
from urllib.parse import urlsplit

BACKLOG = 2048
# Permissions of a unix socket: who may connect is for those of its folder to say.
SOCKET_MODE = 0o666


@dataclass(frozen=True)
class Address:
    """Where a server listens: a host and port, the path of a unix socket, or a descriptor.

    Attributes:
        is_secure: Whether clients are under TLS.
    """

    host: str = ""
    port: int = 0
    path: str = ""
    mode: int = SOCKET_MODE
    # Of an inherited socket, which is taken over.
    descriptor: int | None = None
    is_secure: bool = False

    @classmethod
    def parse(cls, url: str, mode: int = SOCKET_MODE) -> Address:
        """Reads ``https://host:port``, ``http:``, ``unix:/path`` or ``fd:3``.

        The ``mode`` is of unix sockets.

        Raises:
            TypeError, ValueError: For anything else.
        """
        if not isinstance(mode, int):
            raise TypeError(f"socket_mode must be an integer: {mode!r}")
        if not 0 <= mode <= 0o777:
            raise ValueError(f"socket_mode is out of range: {mode:#o}")
        if url.startswith("unix:"):
            path = url.removeprefix("unix:")
            path = path.removeprefix("//")
            if not path:
                raise ValueError(f"no path in {url!r}; write unix:/run/app.sock")
            return cls(path=path, mode=mode)
        if url.startswith("fd:"):
            number = url.removeprefix("fd:").removeprefix("//")
            if not (number.isascii() and number.isdigit()):
                raise ValueError(f"no descriptor in {url!r}; write fd:3")
            return cls(descriptor=int(number))
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https"):
            raise ValueError(f"scheme is not http, https, unix or fd: {url!r}")
        if parts.path not in ("", "/") or parts.query:
            raise ValueError(f"a server has no path: {url!r}")
        try:
            port = parts.port
        except ValueError:
            raise ValueError(f"no port from 0 to 65535 in {url!r}") from None
        return cls(
            host=parts.hostname or "",
            port=8000 if port is None else port,
            is_secure=parts.scheme == "https",
        )

    def __str__(self) -> str:
        if self.descriptor is not None:
            return f"fd:{self.descriptor}"
        if self.path:
            return f"unix:{self.path}"
        host = self.host or "*"
        scheme = "https" if self.is_secure else "http"
        return (
            f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"
        )


class Listening:
    """The sockets of a server: a group of as many as there are processes for each address.

    Every process has a socket of its own on a TCP port, so the kernel spreads the clients; a unix
    socket, or one that is inherited, is shared by all. The sockets live where they were made: a
    process that is started anew goes on with those of the one before, and no client is refused
    meanwhile.

    Args:
        is_secure: Whether clients are under TLS, at all of the addresses.
    """

    def __init__(
        self, addresses: list[Address], processes: int, *, is_secure: bool = False
    ) -> None:
        self.is_secure = is_secure
        if not is_secure and any(address.is_secure for address in addresses):
            raise ValueError("https needs ssl_certfile, a file with the certificate")
        self.groups: list[list[socket.socket]] = [[] for _ in range(processes)]
        self.addresses: list[Address] = []
        self._files: list[tuple[str, tuple[int, int]]] = []
        try:
            for address in addresses:
                self._listen(address, processes)
        except OSError as error:
            self.close()
            where = str(address)
            text = f"Failed to listen on '{where}': {os.strerror(error.errno or 0)}"
            raise RuntimeError(text) from error

    def _listen(self, address: Address, processes: int) -> None:
        if address.descriptor is not None:
            self._inherit(address.descriptor)
            return
        if address.path:
            self._listen_unix(address, processes)
            self.addresses.append(address)
            return
        family, host = _resolve(address.host, address.port)
        # A bind without SO_REUSEPORT fails where anybody listens, even one who shares the port.
        claim = _bind(family, host, address.port, share=False)
        port = claim.getsockname()[1]
        claim.close()
        for group in self.groups:
            bound = _bind(family, host, port, share=True)
            # All processes share this state of a socket, and none may wait in `accept`.
            bound.setblocking(False)
            bound.listen(BACKLOG)
            group.append(bound)
        self.addresses.append(Address(host=host, port=port, is_secure=self.is_secure))

    def _listen_unix(self, address: Address, processes: int) -> None:
        path = address.path
        if _is_stale(path):
            os.unlink(path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(path)
            # Nobody can connect before it listens.
            os.chmod(path, address.mode)
        except OSError:
            bound.close()
            raise
        status = os.stat(path)
        self._files.append((path, (status.st_dev, status.st_ino)))
        bound.setblocking(False)
        bound.listen(BACKLOG)
        self._share(bound)

    def _inherit(self, descriptor: int) -> None:
        """Takes a socket over that somebody else has bound, and may go on to use."""
        bound = socket.socket(fileno=descriptor)
        try:
            if bound.type != socket.SOCK_STREAM or bound.family not in _FAMILIES:
                raise OSError(errno.EPROTOTYPE, os.strerror(errno.EPROTOTYPE))
            # Programs that the application starts must not hold it.
            bound.set_inheritable(False)
            bound.setblocking(False)
            # It may listen already; if not, it does now.
            bound.listen(BACKLOG)
            name = bound.getsockname()
        except OSError:
            bound.close()
            raise
        if bound.family == socket.AF_UNIX:
            path = os.fsdecode(name).replace("\0", "@", 1)
            self.addresses.append(Address(path=path))
        else:
            self.addresses.append(Address(host=name[0], port=name[1], is_secure=self.is_secure))
        self._share(bound)

    def _share(self, bound: socket.socket) -> None:
        """Gives all processes one socket."""
        self.groups[0].append(bound)
        for group in self.groups[1:]:
            group.append(bound.dup())

    def group(self, index: int) -> list[tuple[int, bool]]:
        """Descriptors for one process, which closes them, and whether each is a unix socket."""
        group = self.groups[index]
        return [(os.dup(bound.fileno()), bound.family == socket.AF_UNIX) for bound in group]

    def close(self) -> None:
        """Stops listening and removes the files of unix sockets that are still ours."""
        for group in self.groups:
            for bound in group:
                bound.close()
            group.clear()
        for path, identity in self._files:
            try:
                status = os.stat(path)
                if (status.st_dev, status.st_ino) == identity:
                    os.unlink(path)
            except OSError:
                pass
        self._files.clear()


_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)

# The first descriptor of socket activation. Source: sd_listen_fds(3).
_ACTIVATED = 3


def activated_sockets() -> list[Address]:
    """The sockets that systemd, or another supervisor, has opened for this process.

    The variables that tell of them are removed, as they are of no other process.
    """
    told = {name: os.environ.get(name, "") for name in ("LISTEN_PID", "LISTEN_FDS")}
    if told["LISTEN_PID"] != str(os.getpid()) or not told["LISTEN_FDS"].isdecimal():
        return []
    for name in (*told, "LISTEN_FDNAMES"):
        os.environ.pop(name, None)
    count = int(told["LISTEN_FDS"])
    return [Address(descriptor=_ACTIVATED + number) for number in range(count)]


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    if not host:
        return socket.AF_INET, "0.0.0.0"
    flags = socket.AI_PASSIVE
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        raise OSError(errno.EADDRNOTAVAIL, f"no such host: {host}") from error
    family, _, _, _, address = found[0]
    return family, str(address[0])


def _bind(family: socket.AddressFamily, host: str, port: int, *, share: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def _is_stale(path: str) -> bool:
    """Whether the file is a socket that nobody listens on."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
