"""The asyncio memcached client under TLS, beside the real memcached and servers that misbehave."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dwell import memcache
from dwell.memcache import AsyncClient
from test_memcache import CERTIFICATE, DATA, KEY, TIMEOUT, Memcached
from test_memcache_aio import Peer, run, silent
from test_memcache_aio import pytestmark as needs_memcached

pytestmark = needs_memcached


@pytest.fixture(scope="module")
def server() -> Iterator[Memcached]:
    server = Memcached.secure()
    yield server
    server.stop()


def secure(address: Any, **options: Any) -> AsyncClient:
    given = {"timeout": TIMEOUT, "connect_timeout": TIMEOUT, "tls_ca": CERTIFICATE, **options}
    return AsyncClient(address, tls=True, **given)


def test_values_of_every_size() -> None:
    # One that no other test is connected to.
    server = Memcached.secure()

    async def main() -> None:
        async with secure(server.address) as client:
            before = int((await client.stats())["total_connections"])
            for value in (b"", b"x", b"x" * 16_384, b"x" * 16_385, b"x" * 1_000_000):
                await client.set("key", value)
                assert await client.get("key") == value
            # Some records, whose boundaries are within commands and within replies.
            values = {f"key-{number}": b"y" * 2_000 for number in range(300)}
            assert await client.set_many(values) == []
            assert await client.get_many(values) == values
            stats = await client.stats()
            assert int(stats["total_connections"]) == before, "one connection for all"

    try:
        run(main())
    finally:
        server.stop()


def test_many_operations_at_a_time(server: Memcached) -> None:
    async def main() -> None:
        async with secure(server.address, max_pool_size=3) as client:
            keys = [f"many-{number}" for number in range(200)]
            await asyncio.gather(*(client.set(key, key * 100) for key in keys))
            values = await asyncio.gather(*(client.get(key) for key in keys))
            assert values == [(key * 100).encode() for key in keys]

    run(main())


def test_a_certificate_of_our_own_is_sent() -> None:
    authority = f"ssl_ca_cert={CERTIFICATE}"
    pair = (f"ssl_chain_cert={CERTIFICATE}", "-o", f"ssl_key={KEY}", "-o", "ssl_verify_mode=2")
    shown = {"tls_ca": CERTIFICATE, "tls_certificate": CERTIFICATE, "tls_key": KEY}
    server = Memcached("-Z", "-o", *pair, "-o", authority, tls=True, **shown)

    async def main() -> None:
        async with secure(server.address, **shown) as client:
            assert await client.set("key", "value")
        async with secure(server.address) as client:
            with pytest.raises(memcache.MemcacheError):
                await client.set("key", "value")

    try:
        run(main())
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"tls_server_name": "elsewhere.test"},
            "certificate of elsewhere.test is refused: it is for other names: ",
        ),
        ({"tls_ca": DATA / "other.pem"}, "certificate of 127.0.0.1 is refused: .*not trusted"),
    ],
)
def test_a_certificate_that_is_refused(
    server: Memcached, options: dict[str, Any], reason: str
) -> None:
    async def main() -> None:
        async with secure(server.address, **options) as client:
            failed = await asyncio.gather(
                *(client.get(key) for key in ("a", "b", "c")), return_exceptions=True
            )
        for error in failed:
            with pytest.raises(memcache.MemcacheConnectError, match=reason) as raised:
                raise error
            assert raised.value.server == server.address
            assert not raised.value.is_ambiguous

    run(main())


def test_a_plain_server_is_told_apart() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"ERROR\r\n")
        await reader.read(-1)

    async def main() -> None:
        async with Peer(answer) as peer, secure(peer.address) as client:
            with pytest.raises(memcache.MemcacheConnectError, match=r"127\.0\.0\.1 does not speak"):
                await client.get("key")

    run(main())


def test_a_handshake_that_stalls_ends_in_time() -> None:
    async def main() -> None:
        async with Peer(silent) as peer:
            async with secure(peer.address, connect_timeout=0.3) as client:
                with pytest.raises(memcache.MemcacheConnectError, match=r"not made in 0\.3 s"):
                    await client.get("key")
            async with secure(peer.address, timeout=0.3) as client:
                with pytest.raises(memcache.MemcacheTimeoutError) as raised:
                    await client.get("key")
                assert not raised.value.is_ambiguous

    run(main())


def test_a_server_that_leaves_within_the_handshake() -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def main() -> None:
        async with Peer(leave) as peer, secure(peer.address) as client:
            with pytest.raises(memcache.MemcacheConnectError) as raised:
                await client.get("key")
            assert not raised.value.is_ambiguous

    run(main())


class SecurePeer(Peer):
    """A server that speaks TLS by Python's `ssl`, of this version alone."""

    def __init__(self, handle: Any, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        super().__init__(handle)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(CERTIFICATE, KEY)
        self.context.minimum_version = self.context.maximum_version = version

    async def __aenter__(self) -> SecurePeer:
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0, ssl=self.context)
        self.address = self.server.sockets[0].getsockname()
        return self


async def misses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readline():
        writer.write(b"END\r\n")
        await writer.drain()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions(version: ssl.TLSVersion) -> None:
    async def main() -> None:
        async with SecurePeer(misses, version) as peer, secure(peer.address) as client:
            for _ in range(3):
                assert await client.get("key") is None
            assert peer.connections == 1

    run(main())


def test_a_server_that_says_that_it_leaves_is_connected_to_again() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"END\r\n")

    async def main() -> None:
        async with SecurePeer(once) as peer, secure(peer.address) as client:
            for number in range(1, 4):
                assert await client.get("key") is None
                assert peer.connections == number

    run(main())


def test_closing_is_told() -> None:
    ends: asyncio.Queue[bytes] = asyncio.Queue()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"END\r\n")
        # Without `close_notify` this is a ConnectionResetError, or an ssl.SSLEOFError.
        ends.put_nowait(await reader.read(-1))

    async def main() -> None:
        async with SecurePeer(note) as peer:
            async with secure(peer.address) as client:
                assert await client.get("key") is None
            assert await ends.get() == b""

    run(main())


def test_a_record_that_is_broken_is_no_reply() -> None:
    async def spoil(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        raw = writer.get_extra_info("socket")
        # Behind the back of `ssl`, on a socket that has room.
        socket = raw.dup()
        socket.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        socket.close()
        await reader.read(-1)

    async def main() -> None:
        async with SecurePeer(spoil) as peer, secure(peer.address) as client:
            with pytest.raises(memcache.MemcacheUnexpectedCloseError, match="decrypted") as raised:
                await client.get("key")
            assert raised.value.is_ambiguous

    run(main())


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"tls_ca": CERTIFICATE}, ValueError, "tls_ca has no effect without tls=True"),
        ({"tls": True, "tls_ca": Path("/no/such")}, FileNotFoundError, "/no/such"),
        ({"tls": True, "tls_key": KEY}, ValueError, "tls_certificate and tls_key need one another"),
        ({"tls_context": ssl.create_default_context()}, TypeError, "use tls=True, with tls_ca"),
    ],
)
def test_options_that_are_wrong(
    options: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        AsyncClient("127.0.0.1:11211", **options)
