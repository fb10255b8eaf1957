"""A low limit on open files: clients are refused, and those who operate Dwell are not."""

import contextlib
import select
import socket
import subprocess

import pytest

from support.dwell import BINARY, Dwell
from support.http import request
from support.store import Store
from support.wait import PATIENCE_S, Stopwatch, until

KEY = "/poll/alice"
LIMIT = 64
WARNING = "the limit on open files is too low"
REFUSED = "connections were refused"


@pytest.fixture
def limited(tmp_path, cleanup):
    """An edge that may have few descriptors."""

    def start(process):
        process.arguments = ["prlimit", f"--nofile={LIMIT}:{LIMIT}", *process.arguments]
        cleanup.callback(process.stop)
        return process.start_ready()

    return start


def is_refused(connection):
    """Whether the server ends the connection without an answer."""
    connection.settimeout(PATIENCE_S)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_clients_are_refused_and_operation_goes_on(limited, tmp_path, app, cleanup):
    dwell = limited(Dwell(tmp_path, upstream={"url": app.url}))
    dwell.await_output(WARNING)
    dwell.store().set(KEY, b"old")
    etag = dwell.get(KEY).etag
    clients = []
    for _ in range(120):
        client = socket.create_connection(dwell.address, PATIENCE_S)
        cleanup.callback(client.close)
        clients.append(client)
    wait = request(f"{KEY}?wait=50", fields={"If-None-Match": etag})
    for client in clients:
        # One that was refused may be gone already.
        with contextlib.suppress(OSError):
            client.sendall(wait)
    # Neither hangs: a client is held or told that it is not.
    until(
        lambda: (
            dwell.metric("dwell_connections_refused_total", reason="descriptors")
            + dwell.metric("dwell_waits_held")
            == 120
        ),
        "everybody is held or refused",
    )
    held = int(dwell.metric("dwell_waits_held"))
    assert 8 <= held < LIMIT - 16
    with Stopwatch() as watch:
        assert dwell.admin("/-/health").status == 200
        assert dwell.metric("process_max_fds") == LIMIT
        dwell.store().set(KEY, b"new")
    assert watch.seconds < PATIENCE_S / 2
    answered = 0
    for client in clients:
        if not is_refused(client):
            answered += 1
        client.close()
    assert answered == held
    dwell.await_output(REFUSED)
    assert dwell.output().count(REFUSED) in (1, 2), "once in ten seconds"
    dwell.await_connections(0)
    assert dwell.get(KEY).body == b"new"


def test_a_check_that_reads_no_other_file_warns_of_it(tmp_path):
    file = tmp_path / "dwell.toml"
    file.write_text("")
    limit = ["prlimit", f"--nofile={LIMIT}:{LIMIT}"]
    command = [*limit, BINARY, "check", "--offline", file]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (found.returncode, found.stderr.count(WARNING)) == (0, 1), found.stderr


def test_memcached_clients_are_refused_as_memcached_does(limited, tmp_path, cleanup):
    store = limited(Store(tmp_path, "-c", "1000"))
    store.await_output(WARNING)
    clients = []
    for _ in range(LIMIT):
        client = socket.create_connection(store.address, PATIENCE_S)
        cleanup.callback(client.close)
        clients.append(client)
        if len(clients) == 1:
            # Served before others come: loops accept in no order of their own.
            client.sendall(b"version\r\n")
            assert client.recv(100).startswith(b"VERSION")
    # Which of them those are is for the loops, too.
    told, _, _ = select.select(clients, [], [], PATIENCE_S)
    assert told[0].recv(100) == b"ERROR Too many open connections\r\n"
    store.await_output(REFUSED)
