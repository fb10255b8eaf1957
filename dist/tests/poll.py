"""Starts `COMMAND serve`, and shows that it answers a poll.

usage: poll.py COMMAND...

The store gets a key, a client polls it, `COMMAND health` says ok, and SIGTERM ends the process with
status 0. The environment is empty but for PATH, so that nothing of this machine is needed.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

PATIENCE = 30.0


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def connect(port, process):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"the program does not listen: status {process.poll()}")
            time.sleep(0.05)


def show(command):
    listen, admin, store = free_port(), free_port(), free_port()
    environment = {"PATH": os.environ["PATH"]}
    addresses = [f"--listen=127.0.0.1:{listen}", f"--admin=127.0.0.1:{admin}"]
    serve = [
        *command,
        "serve",
        *addresses,
        f"--store=127.0.0.1:{store}",
        "--log-level=error",
    ]
    # A group of its own: the command may be one that starts the program in a namespace.
    process = subprocess.Popen(serve, env=environment, start_new_session=True)
    try:
        with connect(store, process) as stream:
            stream.sendall(b"set /poll/installed 0 0 5\r\nhello\r\n")
            stored = stream.recv(100)
            assert stored == b"STORED\r\n", stored
        connect(listen, process).close()
        url = f"http://127.0.0.1:{listen}/poll/installed"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            body = answer.read()
            assert body == b"hello", body
            assert answer.headers["Poll-Cursor"], answer.headers
        health = [*command, "health", f"--admin=127.0.0.1:{admin}"]
        subprocess.run(health, env=environment, check=True, stdout=subprocess.DEVNULL)
        os.killpg(process.pid, signal.SIGTERM)
        status = process.wait(PATIENCE)
        assert status == 0, f"status {status}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


show(sys.argv[1:])
