"""Listening sockets that a service manager has made, passed as systemd does."""

import contextlib
import socket
import subprocess
import sys

import pytest

from support import ports
from support.dwell import Dwell
from support.http import Connection
from support.memcached import store_client
from support.process import _WITH_PARENT
from support.wait import until

KEY = "/poll/alice"

# Becomes the program with the given descriptors as 3, 4 and so on.
LAUNCH = """
import fcntl, os, sys
names, descriptors, *command = sys.argv[1:]
kept = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 100) for number in descriptors.split(",")]
for place, descriptor in enumerate(kept, 3):
    os.dup2(descriptor, place)
    os.close(descriptor)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(kept)), LISTEN_FDNAMES=names)
os.execv(command[0], command)
"""


class Activated(Dwell):
    """`dwell serve` with sockets that listen before it starts."""

    def __init__(self, folder, sockets, **sections):
        super().__init__(folder, **sections)
        self.sockets = sockets

    def start(self):
        descriptors = [listener.fileno() for listener in self.sockets.values()]
        launch = [sys.executable, "-c", LAUNCH, ":".join(self.sockets)]
        launch.append(",".join(map(str, descriptors)))
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                _WITH_PARENT + launch + self.arguments,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        for listener in self.sockets.values():
            listener.close()
        return self


@pytest.fixture
def activate(cleanup, tmp_path):
    """Makes a process that gets the given sockets; it is not started."""

    def make(sockets, **sections):
        dwell = Activated(tmp_path, sockets, **sections)
        cleanup.callback(dwell.stop)
        return dwell

    return make


def listening(address=("127.0.0.1", 0)):
    return socket.create_server(address)


@pytest.mark.parametrize("pollers", [1, 3])
def test_who_connects_before_the_start_is_served(activate, tmp_path, pollers):
    path = tmp_path / "store.socket"
    unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    unix.bind(str(path))
    unix.listen()
    sockets = {name: listening() for name in ("web", "admin", "store")}
    addresses = {name: sockets[name].getsockname() for name in sockets}
    texts = {name: ports.text(address) for name, address in addresses.items()}
    dwell = activate(
        {**sockets, "path": unix},
        server={"listen": texts["web"], "admin": texts["admin"], "pollers": pollers},
        store={"listen": texts["store"], "unix_socket": str(path)},
    )
    with contextlib.ExitStack() as early:
        clients = [early.enter_context(Connection(addresses["web"])) for _ in range(8)]
        admin = early.enter_context(Connection(addresses["admin"]))
        store = store_client(addresses["store"])
        early.callback(store.close)
        dwell.start()
        until(lambda: "inherited" in dwell.output(), "the sockets are taken")
        store.set(KEY, b"value")
        assert [client.get(KEY).body for client in clients] == [b"value"] * 8
        assert admin.get("/-/health").status == 200
    by_path = store_client(str(path))
    assert by_path.get(KEY) == b"value"
    by_path.close()
    output = dwell.output()
    assert all(f"name={name}" in output or f'name="{name}"' in output for name in texts), output
    dwell.stop()
    assert path.exists(), "the file is the service manager's"


def test_other_addresses_are_bound(activate):
    web = listening()
    dwell = activate({"web": web}, server={"listen": ports.text(web.getsockname())})
    dwell.address = web.getsockname()
    dwell.start_ready()
    dwell.store().set(KEY, b"value")
    assert dwell.get(KEY).body == b"value"


def test_a_socket_that_nobody_would_accept_from_stops_the_start(activate):
    web = listening()
    address = ports.text(web.getsockname())
    dwell = activate({"web": web}).start()
    assert dwell.wait() == 1
    assert f"passed socket {address} (web) is not one of" in dwell.output()


def test_what_cannot_listen_stops_the_start(activate):
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    dwell = activate({"web": datagrams}).start()
    assert dwell.wait() == 1
    assert "passed socket number 0 cannot be listened on" in dwell.output()
