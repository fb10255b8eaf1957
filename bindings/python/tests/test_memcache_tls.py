"""The memcached client under TLS, beside the real memcached."""

from __future__ import annotations

import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dwell import memcache
from dwell.memcache import Client
from test_memcache import CERTIFICATE, DATA, KEY, TIMEOUT, Memcached

pytestmark = pytest.mark.skipif(not shutil.which("memcached"), reason="memcached is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[Memcached]:
    server = Memcached.secure()
    yield server
    server.stop()


def secure(server: Memcached, **options: Any) -> Client:
    given = {"timeout": TIMEOUT, "connect_timeout": TIMEOUT, "tls_ca": CERTIFICATE, **options}
    return Client(server.address, tls=True, **given)


def test_values_of_every_size(server: Memcached) -> None:
    client = secure(server)
    for value in (b"", b"x", b"x" * 16_384, b"x" * 1_000_000):
        client.set("key", value)
        assert client.get("key") == value
    # Some records, whose boundaries are within commands.
    values = {f"key-{number}": b"y" * 2_000 for number in range(100)}
    assert client.set_many(values) == []
    assert client.get_many(values) == values


def test_a_certificate_of_our_own_is_sent(server: Memcached) -> None:
    client = secure(server, tls_certificate=str(CERTIFICATE), tls_key=str(KEY))
    assert client.set("key", "value")


def test_another_name_is_refused_and_told(server: Memcached) -> None:
    assert secure(server, tls_server_name="dwell.test").set("key", "value")
    client = secure(server, tls_server_name="elsewhere.test")
    reason = "certificate of elsewhere.test is refused: it is for other names: "
    with pytest.raises(memcache.MemcacheConnectError, match=reason) as raised:
        client.get("key")
    assert raised.value.server == server.address
    assert not raised.value.is_ambiguous


def test_an_unknown_issuer_is_refused(server: Memcached) -> None:
    client = secure(server, tls_ca=DATA / "other.pem")
    with pytest.raises(memcache.MemcacheConnectError, match="not trusted"):
        client.get("key")


def test_a_handshake_that_stalls_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options: dict[str, Any] = {
            "timeout": TIMEOUT,
            "connect_timeout": 0.3,
            "tls_ca": CERTIFICATE,
        }
        client = Client(silent.getsockname(), tls=True, **options)
        began = time.monotonic()
        with pytest.raises(memcache.MemcacheTimeoutError) as raised:
            client.get("key")
        assert 0.3 <= time.monotonic() - began < TIMEOUT / 2
        assert not raised.value.is_ambiguous


def test_an_answer_that_stalls_ends_in_time() -> None:
    server = Memcached.secure()
    try:
        client = secure(server, timeout=4.0)
        client.set("key", "value")
        server.pause()
        with pytest.raises(memcache.MemcacheTimeoutError) as raised:
            client.get("key")
        assert raised.value.elapsed >= 4.0
        assert raised.value.is_ambiguous
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"tls_ca": CERTIFICATE}, ValueError, "tls_ca has no effect without tls=True"),
        ({"tls_key": KEY}, ValueError, "tls_key has no effect without tls=True"),
        ({"tls": True, "tls_ca": KEY}, ValueError, r"tls_ca: .*key\.pem: certificate cannot be"),
        ({"tls": True, "tls_ca": Path("/no/such")}, FileNotFoundError, "/no/such"),
        ({"tls": True, "tls_key": KEY}, ValueError, "tls_certificate and tls_key need one another"),
        (
            {"tls": True, "tls_certificate": CERTIFICATE, "tls_key": DATA / "other_key.pem"},
            ValueError,
            r"other_key\.pem",
        ),
        ({"tls": True, "tls_server_name": "a b"}, ValueError, "neither a host name nor"),
        ({"tls_context": ssl.create_default_context()}, TypeError, "use tls=True, with tls_ca"),
    ],
)
def test_options_that_are_wrong(
    options: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        Client("127.0.0.1:11211", **options)
