"""The memcached client, beside the real memcached."""

from __future__ import annotations

import contextlib
import doctest
import fcntl
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dwell import memcache
from dwell.memcache import Client

pytestmark = pytest.mark.skipif(not shutil.which("memcached"), reason="memcached is not installed")

TIMEOUT = 30.0

DATA = Path(__file__).parents[3] / "crates/tls/tests/data"
# A certificate for 127.0.0.1 and dwell.test, which is its own authority.
CERTIFICATE = DATA / "certificate.pem"
KEY = DATA / "key.pem"


# Below the range from which the kernel takes the ports of connections: one of those is another
# one's before memcached takes it.
PORTS = itertools.cycle(range(10_000, 12_000))

# A byte a port: the process that has locked it may listen there, whatever runs beside it. The
# system takes the locks back when the process ends.
TAKEN = os.open(
    os.path.join(tempfile.gettempdir(), f"dwell-test-memcached-{os.getuid()}"),
    os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
    0o600,
)


def free_port() -> int:
    """A port without a listener, neither the last one given out nor one of another process."""
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            fcntl.lockf(TAKEN, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class Memcached:
    """A memcached of the test's own, on a unix socket or a port."""

    def __init__(self, *arguments: str, path: Path | None = None, **options: Any) -> None:
        if path is not None:
            self.address = str(path)
            listen = ["-s", str(path)]
        else:
            port = free_port()
            self.address = f"127.0.0.1:{port}"
            listen = ["-l", "127.0.0.1", "-p", str(port)]
        user = ["-u", "nobody"] if os.getuid() == 0 else []
        command = ["memcached", "-U", "0", *user, *listen, *arguments]
        self.process = subprocess.Popen(command)
        deadline = time.monotonic() + TIMEOUT
        client = Client(self.address, timeout=TIMEOUT, connect_timeout=TIMEOUT, **options)
        while True:
            try:
                client.version()
                return
            except memcache.MemcacheConnectError:
                assert self.process.poll() is None, "memcached has ended"
                assert time.monotonic() < deadline, "memcached does not start"

    @classmethod
    def secure(cls) -> Memcached:
        """One that speaks TLS alone."""
        pair = (f"ssl_chain_cert={CERTIFICATE}", "-o", f"ssl_key={KEY}")
        return cls("-Z", "-o", *pair, tls=True, tls_ca=CERTIFICATE)

    def pause(self) -> None:
        """Stops the process: it still accepts connections, and never answers."""
        self.process.send_signal(signal.SIGSTOP)
        # The call returns before every thread of the process has stopped.
        deadline = time.monotonic() + TIMEOUT
        threads = list(Path(f"/proc/{self.process.pid}/task").iterdir())
        while not all(") T " in (thread / "stat").read_text() for thread in threads):
            assert time.monotonic() < deadline, "memcached does not stop"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server() -> Iterator[Memcached]:
    server = Memcached()
    yield server
    server.stop()


@pytest.fixture
def client(server: Memcached) -> Client:
    client = Client(server.address, timeout=TIMEOUT)
    client.flush_all()
    return client


def test_values(client: Client) -> None:
    assert client.get("key") is None
    assert client.get("key", "other") == "other"
    assert client.set("key", "value") is True
    assert client.get("key") == b"value"
    assert client.get(b"key") == b"value"
    for value in (b"", b"\0\r\n\xff", b"x" * 1_000_000):
        client.set("key", value)
        assert client.get("key") == value
    client.set("key", 12)
    assert client.get("key") == b"12"
    assert client.delete("key") is True
    assert client.delete("key") is False
    assert client.delete("key", noreply=True) is True


def test_conditions(client: Client) -> None:
    assert client.replace("key", b"x") is False
    assert client.append("key", b"x") is False
    assert client.add("key", b"b") is True
    assert client.add("key", b"b") is False
    assert client.add("key", b"b", noreply=True) is True
    assert client.append("key", b"c") is True
    assert client.prepend("key", b"a") is True
    assert client.get("key") == b"abc"
    assert client.replace("key", b"new") is True
    assert client.get("key") == b"new"


def test_cas(client: Client) -> None:
    assert client.gets("key") == (None, None)
    assert client.gets("key", b"d", 7) == (b"d", 7)
    assert client.cas("key", b"x", 1) is None
    client.set("key", b"one")
    value, cas = client.gets("key")
    assert value == b"one"
    assert cas is not None
    assert client.cas("key", b"two", cas) is True
    assert client.cas("key", b"three", cas) is False
    _, cas = client.gets("key")
    assert client.cas("key", b"four", str(cas)) is True
    _, cas = client.gets("key")
    assert client.cas("key", b"five", str(cas).encode()) is True
    assert client.get("key") == b"five"
    with pytest.raises(ValueError, match="soon"):
        client.cas("key", b"x", "soon")


def test_counters(client: Client) -> None:
    assert client.incr("number", 1) is None
    client.set("number", 10)
    assert client.incr("number", 5) == 15
    assert client.decr("number", 20) == 0
    assert client.incr("number", 2**64 - 1) == 2**64 - 1
    client.set("text", "text")
    with pytest.raises(memcache.MemcacheClientError, match="non-numeric"):
        client.incr("text", 1)


def test_many(client: Client) -> None:
    items = {f"key-{number}": f"{number}".encode() for number in range(500)}
    assert client.set_many(items) == []
    assert client.get_many(items) == items
    assert client.get_multi([*items, "missing"]) == items
    assert client.get_many([]) == {}
    found = client.gets_many(["key-1", "missing"])
    assert list(found) == ["key-1"]
    value, cas = found["key-1"]
    assert value == b"1"
    assert client.cas("key-1", b"new", cas) is True
    assert client.set_multi({"large": b"x" * 1_048_576, "small": b"x"}) == ["large"]
    assert client.delete_many(list(items)) is True
    assert client.get_many(items) == {}


def test_expiry(client: Client) -> None:
    client.set("gone", b"x", expire=-1)
    assert client.get("gone") is None
    client.set("past", b"x", expire=int(time.time()) - 10)
    assert client.get("past") is None
    client.set("future", b"x", expire=int(time.time()) + 1000)
    assert client.get("future") == b"x"
    client.set("key", b"x", expire=100)
    assert client.touch("key", 200) is True
    assert client.touch("missing", 200) is False
    assert client.gat("key", -1) == b"x"
    assert client.gat("key", 10, default=b"d") == b"d"
    client.set("key", b"x")
    value, cas = client.gats("key", 100)
    assert value == b"x"
    assert cas == client.gets("key")[1]


def test_mapping(client: Client) -> None:
    client["key"] = b"value"
    assert client["key"] == b"value"
    del client["key"]
    with pytest.raises(KeyError, match="key"):
        client["key"]


def test_facts(client: Client) -> None:
    assert client.version().startswith(b"1.")
    assert int(client.stats()["curr_connections"]) > 0
    assert "evictions" in client.stats("settings")
    assert client.flush_all() is True
    client.quit()
    client.close()
    assert client.get("key") is None


def test_serde(server: Memcached) -> None:
    values: list[Any] = [b"bytes", "t\u00e9xt", 12, {"a": [1, None]}, None, True]
    for serde in (memcache.JsonSerde(), memcache.PickleSerde()):
        client = Client(server.address, serde=serde, timeout=TIMEOUT)
        for value in values:
            client.set("key", value)
            assert client.get("key") == value
        client.set_many({"a": 1, "b": [2]})
        assert client.get_many(["a", "b"]) == {"a": 1, "b": [2]}

    class Failing:
        def serialize(self, key: Any, value: Any) -> tuple[bytes, int]:
            raise LookupError("on purpose")

        def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
            return flags

    client = Client(server.address, serde=Failing(), timeout=TIMEOUT)
    with pytest.raises(LookupError, match="on purpose"):
        client.set("key", "x")
    Client(server.address, timeout=TIMEOUT).set("key", "x", flags=77)
    assert client.get("key") == 77


def test_prefix(server: Memcached) -> None:
    plain = Client(server.address, timeout=TIMEOUT)
    client = Client(server.address, key_prefix="app:", timeout=TIMEOUT)
    client.set_many({"a": b"1", b"b": b"2"})
    assert plain.get_many(["app:a", "app:b"]) == {"app:a": b"1", "app:b": b"2"}
    assert client.get_many(["a", b"b"]) == {"a": b"1", b"b": b"2"}


KEYS: list[tuple[Any, type[Exception], str]] = [
    ("", memcache.MemcacheIllegalInputError, "empty"),
    ("a b", memcache.MemcacheIllegalInputError, "key"),
    ("a\r\nflush_all", memcache.MemcacheIllegalInputError, "key"),
    ("x" * 251, memcache.MemcacheIllegalInputError, "250"),
    ("\u00e9", memcache.MemcacheIllegalInputError, "ASCII"),
    (7, TypeError, "7"),
    (None, TypeError, "None"),
]


@pytest.mark.parametrize(("key", "error", "message"), KEYS)
def test_wrong_keys(client: Client, key: Any, error: type[Exception], message: str) -> None:
    operations: list[Callable[[], Any]] = [
        lambda: client.get(key),
        lambda: client.set(key, b"x"),
        lambda: client.incr(key, 1),
        lambda: client.get_many([key]),
    ]
    for operation in operations:
        with pytest.raises(error, match=message):
            operation()


def test_unicode_keys(server: Memcached) -> None:
    options = {"allow_unicode_keys": True, "long_keys": "hash", "timeout": TIMEOUT}
    client = Client(server.address, **options)
    for key in ("\u00e9", "x" * 300):
        client.set(key, b"x")
        assert client.get(key) == b"x"


OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"servers": []}, ValueError, "server"),
    ({"servers": "host:port"}, ValueError, "host:port"),
    ({"servers": 7}, TypeError, "7"),
    ({"servers": "host=0"}, ValueError, "0"),
    ({"timeout": 0}, ValueError, "0"),
    ({"timeout": float("nan")}, ValueError, "NaN"),
    ({"distribution": "random"}, ValueError, "random"),
    ({"long_keys": "cut"}, ValueError, "cut"),
    ({"key_prefix": 7}, TypeError, "7"),
    ({"time_out": 1}, TypeError, "time_out"),
]


@pytest.mark.parametrize(("options", "error", "message"), OPTIONS)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    options = dict(options)
    servers = options.pop("servers", "127.0.0.1:11211")
    with pytest.raises(error, match=message):
        Client(servers, **options)


def test_a_large_value(client: Client) -> None:
    with pytest.raises(memcache.MemcacheIllegalInputError, match="1048577"):
        client.set("key", b"x" * 1_048_577)
    with pytest.raises(memcache.MemcacheServerError, match="too large"):
        client.set("key", b"x" * 1_048_576)


def test_the_tree_of_exceptions() -> None:
    assert issubclass(memcache.MemcacheIllegalInputError, memcache.MemcacheClientError)
    assert issubclass(memcache.MemcacheUnknownCommandError, memcache.MemcacheClientError)
    assert issubclass(memcache.MemcacheUnexpectedCloseError, memcache.MemcacheServerError)
    assert issubclass(memcache.MemcacheTimeoutError, TimeoutError)
    assert issubclass(memcache.MemcacheConnectError, ConnectionError)
    for name in memcache.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(memcache, name), memcache.MemcacheError)


def test_raw_commands(client: Client) -> None:
    assert client.raw_command("set key 0 0 2\r\nhi") == b"STORED"
    assert client.raw_command(b"get key", b"END\r\n") == b"VALUE key 0 2\r\nhi\r\n"
    assert client.raw_command("get missing", "END\r\n") == b""
    assert client.raw_command("version").startswith(b"VERSION 1.")
    assert client.raw_command("mn") == b"MN"
    # Whatever the token is, and the connection that follows is a new one.
    with pytest.raises(memcache.MemcacheUnknownCommandError):
        client.raw_command("nonsense", "END\r\n")
    with pytest.raises(memcache.MemcacheClientError, match="bad data chunk"):
        client.raw_command("set key 0 0 2\r\nlong")
    assert client.get("key") == b"hi"


WRONG_COMMANDS: list[tuple[tuple[Any, Any], type[Exception], str]] = [
    (("", "\r\n"), memcache.MemcacheIllegalInputError, "empty"),
    (("version", ""), memcache.MemcacheIllegalInputError, "empty"),
    (("version \u00e9", "\r\n"), memcache.MemcacheIllegalInputError, "ASCII"),
    ((7, "\r\n"), TypeError, "7"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG_COMMANDS)
def test_wrong_raw_commands(
    client: Client, arguments: tuple[Any, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        client.raw_command(*arguments)


def test_raw_commands_are_bounded(server: Memcached) -> None:
    client = Client(server.address, timeout=TIMEOUT, max_value_bytes=100)
    Client(server.address, timeout=TIMEOUT).set("key", b"x" * 4200)
    with pytest.raises(memcache.MemcacheUnknownError, match="4196"):
        client.raw_command("get key", "END\r\n")
    client = Client([server.address, "127.0.0.1:1"], timeout=TIMEOUT)
    with pytest.raises(memcache.MemcacheIllegalInputError, match="2"):
        client.raw_command("version")


@pytest.fixture
def deaf() -> Iterator[tuple[str, int]]:
    """An address that is taken, so that nobody else listens there, and refuses connections."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()


def test_a_dead_server(deaf: tuple[str, int]) -> None:
    address = deaf
    client = Client(address)
    with pytest.raises(memcache.MemcacheConnectError) as caught:
        client.get("key")
    assert caught.value.server == f"{address[0]}:{address[1]}"
    assert caught.value.operation == "get"
    assert caught.value.is_ambiguous is False
    with pytest.raises(memcache.MemcacheConnectError):
        client.set("key", b"x")
    forgiving = Client(address, ignore_exc=True)
    assert forgiving.get("key", b"d") == b"d"
    assert forgiving.get_many(["key"]) == {}


@pytest.mark.parametrize(
    "operation",
    [
        lambda client: client.get("key"),
        lambda client: client.get_many(["key", "other"]),
        lambda client: client.set("key", b"y"),
        lambda client: client.raw_command("version"),
    ],
)
def test_a_stalled_server_keeps_nobody_longer_than_the_timeout(
    operation: Callable[[Client], Any],
) -> None:
    server = Memcached()
    try:
        client = Client(server.address, timeout=2)
        client.set("key", b"x")
        server.pause()
        began = time.monotonic()
        with pytest.raises(memcache.MemcacheTimeoutError) as caught:
            operation(client)
        # Neither the default nor twice the timeout, with room for what a busy machine adds.
        assert 1.99 <= time.monotonic() - began < 3.9
        assert caught.value.is_ambiguous is True
        assert 1.99 <= caught.value.elapsed < 3.9
    finally:
        server.stop()


def test_a_server_that_drips() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            connection.recv(100)
            for byte in b"VALUE key 0 300\r\n" + b"x" * 300:
                try:
                    connection.send(bytes([byte]))
                except OSError:
                    break
                if ended.wait(0.05):
                    break
            connection.close()

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with pytest.raises(memcache.MemcacheTimeoutError):
            Client(listener.getsockname(), timeout=0.4).get("key")
        # All of it would have taken 15 seconds.
        assert time.monotonic() - began < 10
        ended.set()
        thread.join(TIMEOUT)


def test_the_interpreter_is_free_while_an_operation_waits() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = Client(listener.getsockname(), timeout=TIMEOUT)
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(client.get("key")))
        thread.start()
        # This runs, though the other thread waits for the answer.
        connection, _ = listener.accept()
        assert connection.recv(100) == b"get key\r\n"
        connection.sendall(b"VALUE key 0 2\r\nhi\r\nEND\r\n")
        thread.join(TIMEOUT)
        connection.close()
        assert results == [b"hi"]


def test_threads(server: Memcached) -> None:
    client = Client(server.address, timeout=TIMEOUT)
    errors: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for number in range(200):
                key = f"{name}-{number}"
                client.set(key, key)
                assert client.get(key) == key.encode()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert errors == []


def test_fork(server: Memcached) -> None:
    client = Client(server.address, timeout=TIMEOUT)
    client.set("parent", b"1")
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            client.set("child", b"2")
            os.write(sender, b"ok" if client.get("parent") == b"1" else b"no")
        finally:
            os._exit(0)
    os.close(sender)
    assert client.get("parent") == b"1"
    assert os.read(receiver, 2) == b"ok"
    os.waitpid(pid, 0)
    os.close(receiver)
    assert client.get("child") == b"2"


def test_several_servers(server: Memcached, tmp_path: Path) -> None:
    directory = Path("/tmp") if os.getuid() == 0 else tmp_path
    path = directory / f"dwell-test-{os.getpid()}.sock"
    other = Memcached(path=path)
    try:
        client = Client([server.address, other.address], timeout=TIMEOUT)
        items = {f"key-{number}": b"x" for number in range(200)}
        assert client.set_many(items) == []
        assert client.get_many(items) == items
        places = {client.server_of(key) for key in items}
        assert places == {0, 1}
        for key in items:
            address = [server.address, other.address][client.server_of(key)]
            alone = Client(address, timeout=TIMEOUT)
            assert alone.get(key) == b"x"
        assert set(client.stats_by_server()) == {server.address, other.address}
        with pytest.raises(memcache.MemcacheClientError, match="stats_by_server"):
            client.stats()
        with pytest.raises(memcache.MemcacheClientError, match="version_by_server"):
            client.version()
    finally:
        other.stop()


def test_keys_are_where_pymemcache_puts_them(server: Memcached) -> None:
    hash_client = pytest.importorskip("pymemcache.client.hash")
    other = Memcached()
    try:
        addresses = [server.address, other.address]
        theirs = hash_client.HashClient(addresses, default_noreply=False)
        ours = Client(addresses, distribution="rendezvous", timeout=TIMEOUT)
        for number in range(200):
            theirs.set(f"key-{number}", str(number))
        for number in range(200):
            assert ours.get(f"key-{number}") == str(number).encode()
    finally:
        other.stop()


def test_nothing_leaks(client: Client) -> None:
    value = os.urandom(1000)
    key = "a-key-of-its-own"
    client.set(key, value)
    counts = []
    for _ in range(3):
        for _ in range(300):
            client.set(key, value)
            client.get(key)
            client.get_many([key])
            client.set_many({key: value})
        counts.append((sys.getrefcount(value), sys.getrefcount(key)))
    assert counts[0] == counts[1] == counts[2]


def test_examples_of_the_module(server: Memcached) -> None:
    results = doctest.testmod(memcache, extraglobs={"memcached": server.address})
    assert results.attempted > 5
    assert results.failed == 0
