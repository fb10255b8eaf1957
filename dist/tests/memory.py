"""Shows that a waiting client takes as little memory in the static program as in any other.

usage: memory.py PROGRAM

Where the allocator gets huge pages, a client takes a kilobyte more until they are full.
"""

import os
import pathlib
import resource
import socket
import subprocess
import sys
import time

HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
CLIENTS = 5_000
BYTES_MAX = 600
PATIENCE = 30.0
POLL = b"GET /poll/waits?wait=600 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def connected(port):
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    except ConnectionRefusedError:
        return None


def held(admin):
    """The number of polls that wait."""
    with connected(admin) as stream:
        stream.sendall(
            b"GET /-/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        text = b"".join(iter(lambda: stream.recv(1 << 16), b"")).decode()
    lines = [
        line.split()
        for line in text.splitlines()
        if line.startswith("dwell_waits_held ")
    ]
    return int(float(lines[0][1]))


def anonymous(process):
    """The bytes of its own memory."""
    text = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    (line,) = [
        line.split() for line in text.splitlines() if line.startswith("Anonymous:")
    ]
    return int(line[1]) * 1024


def wait(clients, port, admin, count):
    for _ in range(count):
        client = connected(port)
        client.sendall(POLL)
        clients.append(client)
    until(lambda: held(admin) == len(clients), f"{len(clients)} polls are held")


def show(program):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listen, admin, store = free_port(), free_port(), free_port()
    command = [
        program,
        "serve",
        f"--listen=127.0.0.1:{listen}",
        f"--admin=127.0.0.1:{admin}",
    ]
    command += [f"--store=127.0.0.1:{store}", "--log-level=error"]
    environment = {"PATH": os.environ["PATH"], "DWELL_SERVER_POLLERS": "1"}
    process = subprocess.Popen(command, env=environment)
    clients = []
    try:
        until(lambda: connected(listen), "it listens").close()
        # What is allocated once is not counted.
        wait(clients, listen, admin, 100)
        before = anonymous(process)
        wait(clients, listen, admin, CLIENTS)
        each = (anonymous(process) - before) / CLIENTS
        print(f"a held poll takes {each:.0f} bytes; {before} bytes before")
        assert each < BYTES_MAX, (
            f"a held poll takes {each:.0f} bytes, at most {BYTES_MAX}"
        )
    finally:
        process.kill()
        process.wait()
        for client in clients:
            client.close()


if HUGE_PAGES.exists() and "[always]" in HUGE_PAGES.read_text():
    print("not measured: here the kernel gives huge pages to every program")
else:
    show(sys.argv[1])
