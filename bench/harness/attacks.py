"""How long one client waits for a small value while others ask for as much as they can.

One loop on its embedded store. The victim is a process of its own that asks for a small key every
3 ms on one connection and notes how long each answer takes. Each attack is some tens of kilobytes
of requests, or one change of a large value, by clients that take little of what they are sent.
"""

import argparse
import base64
import json
import multiprocessing
import os
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from harness import accounting
from harness.contenders.edge import Edge, start_edge
from harness.memcached import Writer
from harness.stage import HOST, LOAD_CORE, Stage, favour

VICTIM_PATH = "/poll/victim"
VICTIM_PAUSE_SECONDS = 0.003
# The longest that one attack is looked at, and how long the server has to be idle to be done.
ATTACK_SECONDS_MAX = 15.0
IDLE_SECONDS = 0.3
FLOOD_SECONDS = 3.0
LARGE = 1024 * 1024 - 4096
FEW_BYTES = 4096
OPTIONS = [
    *("--set", "store.bytes_max=512MiB"),
    *("--set", "store.item_bytes_max=1MiB"),
    *("--set", "limits.output_bytes_max=4GiB"),
]


@dataclass
class Attack:
    """The clients of one attack and the server they are connected to."""

    edge: Edge
    writer: Writer
    clients: list[socket.socket]

    def set(self, name: str, value: bytes) -> None:
        """Stores a value under a key of the route."""
        self.writer.set(f"/poll/{name}", value)

    def connect(self, count: int, receive_bytes: int = FEW_BYTES) -> list[socket.socket]:
        """Connects clients whose sockets take so little."""
        made = []
        for _ in range(count):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            client.connect((HOST, self.edge.port))
            made.append(client)
        self.clients += made
        return made

    def ask_all(self, targets: Sequence[str], fields: str = "") -> None:
        """Sends requests, one to a client, all clients being connected before the first."""
        clients = self.connect(len(targets))
        for client, target in zip(clients, targets, strict=True):
            client.sendall(request(target, fields).encode())

    def open_all(self, targets: Sequence[str], fields: str) -> list[socket.socket]:
        """As `ask_all`, and waits until every client has the head of its answer."""
        clients = self.connect(len(targets))
        for client, target in zip(clients, targets, strict=True):
            client.sendall(request(target, fields).encode())
        for client in clients:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(FEW_BYTES)
        return clients

    def hold_all(self, target: str, count: int) -> None:
        """Has polls held by who has the newest value, and waits until they are."""
        client = self.connect(1)[0]
        client.sendall(request(target, "").encode())
        head = client.recv(FEW_BYTES).decode()
        cursor = next(line for line in head.split("\r\n") if line.startswith("Poll-Cursor: "))
        since = cursor.removeprefix("Poll-Cursor: ")
        mark = "&" if "?" in target else "?"
        self.ask_all([f"{target}{mark}since={since}&wait=50s"] * count)
        time.sleep(0.5)


def request(target: str, fields: str) -> str:
    """A GET request."""
    return f"GET {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n"


EVENTS = "Accept: text/event-stream\r\n"
SOCKET = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
)
DEFLATE = SOCKET + "Sec-WebSocket-Extensions: permessage-deflate\r\n"
DEFLATE_9 = SOCKET + "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9\r\n"
LINES = b"\n" * LARGE
CONTROLS = b"\x01" * LARGE


def texts(count: int) -> list[bytes]:
    """Values that differ and that a compressor has work with."""
    words = [f"{number * 2654435761 % 4294967296:08x}" for number in range(LARGE // 16)]
    text = " ".join(words).encode()
    return [(text * 2)[number : number + LARGE] for number in range(count)]


def frame(payload: str) -> bytes:
    """A text frame of a client."""
    data = payload.encode()
    length = len(data)
    head = (
        struct.pack("!BB", 0x81, 0x80 | length)
        if length < 126
        else (struct.pack("!BBH", 0x81, 0x80 | 126, length))
    )
    return head + bytes(4) + data


def shared(value: bytes, targets: Sequence[str], fields: str) -> Callable[[Attack], None]:
    """Many ask for one large value."""

    def attack(at: Attack) -> None:
        at.set("big", value)
        at.ask_all(targets, fields)

    return attack


def distinct(value: bytes, target: str, fields: str, count: int) -> Callable[[Attack], None]:
    """As many large values, each asked for once."""

    def attack(at: Attack) -> None:
        for number in range(count):
            at.set(f"big{number}", str(number).encode() + value[16:])
        at.ask_all([target.format(f"big{number}") for number in range(count)], fields)

    return attack


def changed(value: bytes, target: str, fields: str, count: int) -> Callable[[Attack], None]:
    """Many follow one key, which gets a large value."""

    def attack(at: Attack) -> None:
        at.set("big", b"small")
        at.open_all([target] * count, fields)
        at.set("big", value)

    return attack


def changed_polls(value: bytes, target: str, count: int) -> Callable[[Attack], None]:
    """As `changed`, for polls that are held."""

    def attack(at: Attack) -> None:
        at.set("big", b"small")
        at.hold_all(target, count)
        at.set("big", value)

    return attack


def subscribing(at: Attack) -> None:
    """WebSockets that take up and give up many keys, again and again."""
    names = json.dumps([f"n{number}" for number in range(64)])
    both = frame(f'{{"subscribe":{names}}}') + frame(f'{{"unsubscribe":{names}}}')
    flood(at.open_all(["/poll/"] * 20, SOCKET), both * 16)


def pipelining(target: str, count: int, value: bytes) -> Callable[[Attack], None]:
    """Clients that ask for as much as they can, again and again, and read it."""

    def attack(at: Attack) -> None:
        for number in range(64):
            at.set(f"n{number}", value)
        flood(at.connect(count, 1 << 20), request(target, "").encode() * 16)

    return attack


def flood(clients: list[socket.socket], data: bytes) -> None:
    """Sends as much as the server takes, and reads what comes."""
    for client in clients:
        client.setblocking(False)
    rests = dict.fromkeys(clients, data)
    end = time.monotonic() + FLOOD_SECONDS
    while time.monotonic() < end and rests:
        for client in list(rests):
            try:
                rests[client] = rests[client][client.send(rests[client]) :] or data
            except BlockingIOError:
                pass
            except OSError:
                del rests[client]
            with suppress(OSError):
                client.recv(1 << 20)


def deflated_bombs(at: Attack) -> None:
    """WebSockets that send what inflates a thousandfold."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = deflater.compress(b" " * 60_000) + deflater.flush(zlib.Z_SYNC_FLUSH)
    bomb = bomb.removesuffix(b"\x00\x00\xff\xff")
    one = struct.pack("!BBH", 0xC1, 0x80 | 126, len(bomb)) + bytes(4) + bomb
    flood(at.open_all(["/poll/"] * 20, DEFLATE), one * 64)


ATTACKS: dict[str, Callable[[Attack], None]] = {
    "nothing": lambda _: None,
    "200 streams of 1 MiB of line ends": shared(LINES, ["/poll/big"] * 200, EVENTS),
    "100 streams, each of its own": distinct(LINES, "/poll/{}", EVENTS, 100),
    "200 WebSockets, deflate, 1 MiB": shared(texts(1)[0], ["/poll/big"] * 200, DEFLATE),
    "100 WebSockets, deflate, each its own": distinct(texts(1)[0], "/poll/{}", DEFLATE, 100),
    "200 ?k= of 1 MiB of control characters": shared(CONTROLS, ["/poll/?k=big"] * 200, ""),
    "100 ?k=, each of its own": distinct(CONTROLS, "/poll/?k={}", "", 100),
    "200 GETs of 1 MiB": shared(CONTROLS, ["/poll/big"] * 200, ""),
    "1 MiB to 300 WebSockets, window 9": changed(texts(1)[0], "/poll/big", DEFLATE_9, 300),
    "1 MiB to 300 WebSockets, deflate": changed(texts(1)[0], "/poll/big", DEFLATE, 300),
    "1 MiB to 500 streams": changed(LINES, "/poll/big", EVENTS, 500),
    "1 MiB to 500 streams of ?k=": changed(LINES, "/poll/?k=big", EVENTS, 500),
    "1 MiB to 500 polls": changed_polls(CONTROLS, "/poll/big", 500),
    "1 MiB to 500 ?k= polls": changed_polls(CONTROLS, "/poll/?k=big", 500),
    "20 WebSockets, 64 keys up and down": subscribing,
    "10 pipeline ?k= of 64 keys, 4 KiB": pipelining(
        "/poll/?" + "&".join(f"k=n{number}" for number in range(64)), 10, b"\x01" * 4000
    ),
    "10 pipeline GETs": pipelining("/poll/n1", 10, b"small"),
    "20 WebSockets, deflate bombs": deflated_bombs,
}


def ask_and_note(port: int, pipe: Connection) -> None:
    """The victim: asks until it is told to end, and tells how long its answers took."""
    os.setsid()
    favour(os.getpid())
    os.sched_setaffinity(0, {LOAD_CORE})
    asks = request(VICTIM_PATH, "").encode()
    waits = []
    with socket.create_connection((HOST, port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not pipe.poll():
            began = time.monotonic()
            client.sendall(asks)
            answer = b""
            while not answer.endswith(b"victim"):
                answer += client.recv(4096)
            waits.append((time.monotonic() - began) * 1000)
            time.sleep(VICTIM_PAUSE_SECONDS)
    pipe.send(waits)


def resident_mib(pid: int, name: str) -> int:
    """A figure of the memory of a process (proc(5)): `VmRSS` or `VmHWM`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) // 1024


def cpu_seconds(pid: int) -> float:
    """User and system time."""
    stat = accounting.read_stat(pid)
    return stat.cpu_seconds if stat else 0.0


def await_idle(pid: int, began: float) -> None:
    """Waits until the server has nothing to do any more."""
    while time.monotonic() < began + ATTACK_SECONDS_MAX:
        before = cpu_seconds(pid)
        time.sleep(IDLE_SECONDS)
        # The victim goes on asking, which takes a tick now and then.
        if cpu_seconds(pid) - before <= IDLE_SECONDS / 3:
            return


def measure(name: str) -> list[str]:
    """One attack on a server that was started for it."""
    with Stage() as stage:
        edge = start_edge(stage, [], options=OPTIONS)
        pid = edge.program.pid
        attack = Attack(edge, Writer(edge.store_port), [])
        attack.set("victim", b"victim")
        ours, theirs = multiprocessing.Pipe()
        victim = multiprocessing.Process(target=ask_and_note, args=(edge.port, theirs))
        victim.start()
        time.sleep(0.3)
        cpu, began = cpu_seconds(pid), time.monotonic()
        ATTACKS[name](attack)
        await_idle(pid, began)
        cpu = cpu_seconds(pid) - cpu
        ours.send(None)
        waits = sorted(ours.recv())
        victim.join()
        peak = resident_mib(pid, "VmHWM")
        for client in attack.clients:
            client.close()
        time.sleep(3)
        after = resident_mib(pid, "VmRSS")
    figures = [waits[len(waits) // 2], waits[-1]]
    return [name, *(f"{figure:.1f}" for figure in figures), f"{cpu:.2f}", str(peak), str(after)]


def run(arguments: Sequence[str]) -> int:
    """Measures all attacks, or those whose names contain the text of `--only`."""
    parser = argparse.ArgumentParser(prog="bench/run-attacks", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="attacks with this in the name")
    parser.add_argument("--rounds", type=int, default=1, help="times each is measured (1)")
    options = parser.parse_args(arguments)
    heads = ["attack", "median ms", "worst ms", "CPU s", "peak MiB", "after MiB"]
    print(f"{heads[0]:40}", *(f"{head:>10}" for head in heads[1:]), flush=True)
    for name in ATTACKS:
        for _ in range(options.rounds if options.only in name else 0):
            first, *figures = measure(name)
            print(f"{first:40}", *(f"{figure:>10}" for figure in figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
