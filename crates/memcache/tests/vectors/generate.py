#!/usr/bin/env python3
"""Writes the ring vectors beside this file from the real libmemcached.

Needs `pip install pylibmc` (which brings libmemcached) and the `memcached` program. Each vector
starts its servers on loopback, stores 400 keys through pylibmc with `ketama_weighted`, asks each
server which of them it holds, and writes one line per key: the key, a tab, the server's index.
"""

import pathlib
import socket
import subprocess
import sys
import time

import pylibmc

KEYS = [f"key{i}" for i in range(200)] + [f"/poll/user{i}" for i in range(200)]
RINGS = {
    # name: [(host, port, weight)]
    "equal": [("127.0.0.1", 22122, 1), ("127.0.0.1", 22123, 1), ("127.0.0.1", 22124, 1)],
    "weighted": [("127.0.0.1", 22122, 1), ("127.0.0.1", 22123, 2), ("127.0.0.1", 22124, 5)],
    "default_port": [("127.0.0.2", 11211, 1), ("127.0.0.3", 11211, 3), ("127.0.0.3", 22124, 1)],
    "named": [("localhost", 22122, 2), ("localhost", 22123, 2), ("127.0.0.1", 22124, 3)],
}


def start(host: str, port: int) -> subprocess.Popen:
    address = "127.0.0.1" if host == "localhost" else host
    command = ["memcached", "-u", "nobody", "-l", address, "-p", str(port), "-U", "0"]
    server = subprocess.Popen(command)
    for _ in range(500):
        try:
            socket.create_connection((address, port)).close()
            return server
        except OSError:
            time.sleep(0.01)
    sys.exit(f"memcached does not listen on {address}:{port}")


def held(host: str, port: int) -> set[str]:
    with socket.create_connection((host, port)) as connection:
        connection.sendall(b"get " + " ".join(KEYS).encode() + b"\r\n")
        answer = b""
        while not answer.endswith(b"END\r\n"):
            answer += connection.recv(65536)
    lines = answer.decode().split("\r\n")
    return {line.split()[1] for line in lines if line.startswith("VALUE ")}


def main() -> None:
    here = pathlib.Path(__file__).parent
    for name, ring in RINGS.items():
        servers = [start(host, port) for host, port, _ in ring]
        try:
            addresses = [f"{host}:{port}:{weight}" for host, port, weight in ring]
            client = pylibmc.Client(addresses, behaviors={"ketama_weighted": True})
            for key in KEYS:
                client.set(key, "1")
            where = {key: i for i, (host, port, _) in enumerate(ring) for key in held(host, port)}
        finally:
            for server in servers:
                server.terminate()
                server.wait()
        lines = [
            "# Where libmemcached puts 400 keys with ketama_weighted; made by generate.py with",
            f"# pylibmc {pylibmc.__version__} and libmemcached {pylibmc.libmemcached_version}.",
            *(f"# server {i}: {host} {port} {w}" for i, (host, port, w) in enumerate(ring)),
            *(f"{key}\t{where[key]}" for key in KEYS),
        ]
        (here / f"{name}.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
