"""The same exchanges with memcached and with the embedded store.

They are those of the store's own tests, in the files `exchanges.txt` (text and meta commands) and
`binary_exchanges.txt`, whose heads describe their forms. A reply that is not memcached's has to be
the one that is listed below its step, with the reason above it.
"""

import contextlib
import os
import re
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.paths import REPOSITORY
from harness.stage import HOST, LOAD_CORE, Stage
from harness.suites import Counted, SuiteError, start_store

FOLDER = REPOSITORY / "crates" / "store_server" / "src" / "tests"
# Names that stand for so many bytes.
LONG = {
    b"K250": b"k" * 250,
    b"K251": b"k" * 251,
    b"O31": b"o" * 31,
    b"O32": b"o" * 32,
    b"HALF": b"x" * 700_000,
    b"BIG": b"x" * 1_048_577,
}
# A command whose reply is unlike any other ends a step.
TEXT_ASKS_END, TEXT_END = b"mg end-of-step k\r\n", b"EN kend-of-step\r\n"
BINARY_END = 0x656E6421
NOOP, VERSION = 0x0A, 0x0B
HEADER = struct.Struct(">BBHBBHIIQ")
TIMEOUT_SECONDS = 10.0
# A server that waits for bytes which are no part of a request has closed, as far as one can see.
BINARY_TIMEOUT_SECONDS = 2.0


@dataclass
class Step:
    """What is sent, and the store's reply where it is not memcached's."""

    sent: str
    listed: str | None = None


@dataclass
class Exchange:
    """One connection."""

    name: str
    steps: list[Step] = field(default_factory=list)


# What a server replies to each step of an exchange.
Speak = Callable[[int, Sequence[Step]], list[str]]


def read(text: str) -> list[Exchange]:
    """The exchanges of a file.

    Raises:
        SuiteError: there are none, one has no step, or a reply stands without a step.
    """
    found: list[Exchange] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("  !"):
            if not found or not found[-1].steps:
                raise SuiteError(f"a reply without a step: {line}")
            found[-1].steps[-1].listed = line[3:].lstrip()
        elif line.startswith("    "):
            if not found:
                raise SuiteError(f"a step without a name: {line}")
            found[-1].steps.append(Step(line[4:]))
        else:
            found.append(Exchange(line))
    if not found or not all(exchange.steps for exchange in found):
        raise SuiteError(f"{len(found)} exchanges, of which some have no step")
    return found


def count() -> list[Counted]:
    """The exchanges of both files, and those with a reply neither memcached's nor listed."""
    cases = listed = 0
    differing: list[str] = []
    with Stage() as stage:
        user = ["-u", "root"] if os.geteuid() == 0 else []
        port = stage.free_port()
        command = ["memcached", "-l", HOST, "-p", str(port), "-U", "0", *user]
        stage.start("memcached", command, LOAD_CORE, [port])
        ours = start_store(stage)
        for file, speak in (("exchanges.txt", text), ("binary_exchanges.txt", binary)):
            for exchange in read((FOLDER / file).read_text()):
                cases += 1
                listed += any(step.listed is not None for step in exchange.steps)
                replies = speak(port, exchange.steps), speak(ours, exchange.steps)
                differing += compare(exchange, *replies, unescaped=speak is text)[:1]
    counts = {"differing": len(differing), "listed": listed, "cases": cases}
    return [Counted("exchanges", counts, differing)]


def compare(
    exchange: Exchange, theirs: Sequence[str], ours: Sequence[str], *, unescaped: bool
) -> list[str]:
    """The steps whose reply is neither memcached's nor listed, a line each."""
    lines = []
    for step, their, our in zip(exchange.steps, theirs, ours, strict=True):
        expected = their if step.listed is None else step.listed
        if step.listed is not None and unescaped:
            expected = unescape(step.listed).decode()
        if our != expected:
            lines.append(f"{exchange.name}: {step.sent}: {our!r}, not {expected!r}"[:300])
    return lines


def unescape(line: str) -> bytes:
    """The bytes of a line with Rust's escapes.

    Raises:
        SuiteError: an escape is unknown.
    """
    plain = {b"r": b"\r", b"n": b"\n", b"t": b"\t"}

    def byte(found: re.Match[bytes]) -> bytes:
        if found[1]:
            return bytes([int(found[1], 16)])
        if found[2] not in plain:
            raise SuiteError(f"an unknown escape in {line}")
        return plain[found[2]]

    return re.sub(rb"\\(?:x([0-9a-f]{2})|(.?))", byte, line.encode(), flags=re.DOTALL)


def text(port: int, steps: Sequence[Step]) -> list[str]:
    """The replies in the text protocol, each up to the end of its step or of the connection."""
    replies = []
    with socket.create_connection((HOST, port), timeout=TIMEOUT_SECONDS) as connection:
        for step in steps:
            sent = unescape(step.sent)
            for name, long in LONG.items():
                sent = sent.replace(name, long)
            reply = b""
            # The server may have closed while this is sent; what it replied before counts.
            with contextlib.suppress(ConnectionError):
                connection.sendall(sent + TEXT_ASKS_END)
            while not reply.endswith(TEXT_END) and (piece := received(connection)):
                reply += piece
            replies.append(normal(reply.removesuffix(TEXT_END)))
    return replies


def received(connection: socket.socket) -> bytes:
    """What comes next, or nothing at the end."""
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


def normal(reply: bytes) -> str:
    """A reply without what may differ.

    That is the version, the cas unique of `gets`, and the padding of a number, which memcached
    leaves out if another of its threads happens to hold the item.
    """
    lines, is_number = [], False
    for line in reply.decode(errors="replace").replace("\r\n", "\r\n\0").split("\0"):
        words, was_number = line.rstrip().split(" "), is_number
        is_number = words[:2] == ["VALUE", "n"] and len(words) == 4
        if words[0] == "VERSION":
            line = "VERSION\r\n"
        elif is_number:
            line = f"VALUE n {words[2]}\r\n"
        elif words[0] == "VALUE" and len(words) == 5:
            line = " ".join([*words[:4], "CAS"]) + "\r\n"
        elif was_number:
            line = line.rstrip() + "\r\n"
        lines.append(line)
    return "".join(lines)


def binary(port: int, steps: Sequence[Step]) -> list[str]:
    """The replies in the binary protocol, each up to that of a no-op or the connection's end."""
    replies = []
    with socket.create_connection((HOST, port), timeout=BINARY_TIMEOUT_SECONDS) as connection:
        for step in steps:
            with contextlib.suppress(ConnectionError):
                connection.sendall(request(step.sent) + frame(NOOP, BINARY_END, 0, b"", b"", b""))
            replies.append(" | ".join(shown(lambda count: exactly(connection, count))))
    return replies


def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes, or fewer at the end and where no more come."""
    taken = b""
    with contextlib.suppress(ConnectionResetError, TimeoutError):
        while len(taken) < count and (piece := connection.recv(count - len(taken))):
            taken += piece
    return taken


def shown(take: Callable[[int], bytes]) -> Iterator[str]:
    """The replies of a step as text; cas uniques are only told from 0, versions from nothing."""
    while True:
        header = take(HEADER.size)
        if len(header) < HEADER.size:
            yield "closed"
            return
        _, opcode, key_length, extras_length, _, status, length, opaque, cas = HEADER.unpack(header)
        if opaque == BINARY_END:
            return
        body = take(length)
        if len(body) != length:
            raise SuiteError("a reply is cut short")
        extras, rest = body[:extras_length], body[extras_length:]
        key, value = rest[:key_length], rest[key_length:]
        if opcode == VERSION:
            said = "VERSION"
        else:
            said = f"{len(value)} bytes" if len(value) > 100 else escaped(value)
        bytes_of_extras = ", ".join(f"{byte:02x}" for byte in extras)
        yield (
            f"{opcode:02x} {status:x} extras=[{bytes_of_extras}]"
            f" key={escaped(key[:1] if len(key) > 100 else key)} value={said}{' cas' * bool(cas)}"
        )


def escaped(data: bytes) -> str:
    """Bytes as Rust's `escape_ascii` shows them."""
    named = {0x09: r"\t", 0x0A: r"\n", 0x0D: r"\r", 0x22: r"\"", 0x27: r"\'", 0x5C: r"\\"}
    plain = range(0x20, 0x7F)
    return "".join(
        named.get(byte) or (chr(byte) if byte in plain else f"\\x{byte:02x}") for byte in data
    )


def request(line: str) -> bytes:
    """The bytes of one request: opcode, extras, key, value and perhaps a cas unique."""
    opcode, extras, key, value, *rest = line.split(" ")
    cas = int(rest[1]) if rest[:1] == ["cas"] else 0
    digits = "".join(re.findall("[0-9a-fA-F]", extras))
    return frame(int(opcode, 16), 7, cas, bytes.fromhex(digits), repeated(key), repeated(value))


def repeated(word: str) -> bytes:
    """A key or value: `-` is nothing, `*N` behind it repeats it."""
    if word == "-":
        return b""
    part, star, times = word.partition("*")
    return unescape(part) * (int(times) if star else 1)


def frame(opcode: int, opaque: int, cas: int, extras: bytes, key: bytes, value: bytes) -> bytes:
    """One request of the binary protocol."""
    body = extras + key + value
    head = HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, len(body), opaque, cas)
    return head + body
