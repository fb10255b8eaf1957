"""The cache backend for Django, on the real memcached."""

from __future__ import annotations

import asyncio
import datetime
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache.backends.base import InvalidCacheKey
from django.core.cache.backends.memcached import PyMemcacheCache

from dwell import memcache
from dwell.django import MemcachedCache
from test_memcache import Memcached

pytestmark = pytest.mark.skipif(not shutil.which("memcached"), reason="memcached is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[Memcached]:
    memcached = Memcached()
    yield memcached
    memcached.process.kill()
    memcached.process.wait()


@pytest.fixture
def cache(server: Memcached) -> MemcachedCache:
    cache = MemcachedCache(server.address, {"OPTIONS": {"timeout": 20}})
    cache.clear()
    return cache


VALUES = [
    b"bytes",
    "text \u20ac",
    5,
    -5,
    2**70,
    True,
    None,
    1.5,
    ("a", {"b": [1, 2]}),
    datetime.date(2026, 1, 2),
    "",
    b"",
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_as_they_were(cache: MemcachedCache, value: Any) -> None:
    cache.set("key", value)
    found = cache.get("key", "missing")
    assert found == value
    assert type(found) is type(value)


def test_reading_and_deleting(cache: MemcachedCache) -> None:
    assert cache.get("key") is None
    assert cache.get("key", 7) == 7
    assert cache.add("key", 1) is True
    assert cache.add("key", 2) is False
    assert cache.get("key") == 1
    assert "key" in cache
    assert cache.delete("key") is True
    assert cache.delete("key") is False
    assert not cache.has_key("key")
    assert cache.get_or_set("key", lambda: 3) == 3


def test_counting(cache: MemcachedCache) -> None:
    cache.set("n", 40)
    assert cache.incr("n", 2) == 42
    assert cache.decr("n") == 41
    assert cache.incr("n", -1) == 40
    assert cache.get("n") == 40
    with pytest.raises(ValueError, match="not found"):
        cache.incr("none")
    with pytest.raises(ValueError, match="not found"):
        cache.decr("none")


def test_many(cache: MemcachedCache) -> None:
    assert cache.set_many({"a": 1, "b": [2], "\u20ac": 3}) == []
    assert cache.get_many(["a", "b", "\u20ac", "none"]) == {"a": 1, "b": [2], "\u20ac": 3}
    cache.delete_many(["a", "b"])
    assert cache.get_many(["a", "b", "\u20ac"]) == {"\u20ac": 3}
    cache.clear()
    assert cache.get_many(["\u20ac"]) == {}


def test_timeouts(cache: MemcachedCache) -> None:
    cache.set("gone", 1, timeout=0)
    assert cache.get("gone") is None
    cache.set("stays", 1, timeout=None)
    cache.set("later", 1, timeout=40 * 24 * 3600)
    assert cache.get_many(["stays", "later"]) == {"stays": 1, "later": 1}
    assert cache.touch("stays", 100) is True
    assert cache.touch("none", 100) is False
    assert cache.touch("later", 0) is True
    assert cache.get("later") is None
    cache.set("soon", 1, timeout=1)
    deadline = time.monotonic() + 20
    while cache.get("soon") is not None:
        assert time.monotonic() < deadline


def test_versions_and_prefixes(server: Memcached, cache: MemcachedCache) -> None:
    cache.set("key", "one")
    cache.set("key", "two", version=2)
    assert cache.get("key") == "one"
    assert cache.get("key", version=2) == "two"
    assert cache.incr_version("key", 2) == 3
    assert cache.get("key", version=3) == "one"
    assert cache.get("key") is None
    params = {"KEY_PREFIX": "other", "VERSION": 2, "OPTIONS": {"timeout": 20}}
    other = MemcachedCache(server.address, params)
    assert other.get("key") is None
    other.set("key", "three")
    assert cache.get("key", version=2) == "two"
    assert memcache.Client(server.address, timeout=20).get("other:2:key") == b"three"


def test_keys_that_cannot_be_sent(cache: MemcachedCache) -> None:
    for key in ("a key", "x" * 251):
        with pytest.raises(InvalidCacheKey):
            cache.set(key, 1)


def test_a_value_that_is_too_large_removes_the_old_one(cache: MemcachedCache) -> None:
    cache.set("key", "old")
    cache.set("key", b"x" * 2_000_000)
    assert cache.get("key") is None
    assert len(cache.set_many({"small": 1, "large": b"x" * 2_000_000})) == 1


def test_values_of_django_s_own_backend(server: Memcached, cache: MemcachedCache) -> None:
    own = PyMemcacheCache(server.address, {})
    for number, value in enumerate(VALUES):
        own.set(f"own{number}", value)
        assert cache.get(f"own{number}") == value
        cache.set(f"ours{number}", value)
        assert own.get(f"ours{number}") == value


def test_backends_share_a_client(server: Memcached) -> None:
    params = {"OPTIONS": {"timeout": 5, "no_delay": True, "use_pooling": True}}
    clients: list[Any] = []

    def use() -> None:
        clients.append(MemcachedCache(server.address, params)._cache)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clients) == 4
    assert len(set(map(id, clients))) == 1
    other = MemcachedCache(server.address, {"OPTIONS": {"timeout": 6}})
    assert other._cache is not clients[0]


def test_a_server_that_is_down() -> None:
    down = "127.0.0.1:1"
    with pytest.raises(memcache.MemcacheConnectError):
        MemcachedCache(down, {}).get("key")
    assert MemcachedCache(down, {"OPTIONS": {"ignore_exc": True}}).get("key", 7) == 7


def test_methods_for_coroutines(cache: MemcachedCache) -> None:
    async def main() -> Any:
        await cache.aset("key", 1)
        await cache.aincr("key")
        return await cache.aget_many(["key", "none"])

    assert asyncio.run(main()) == {"key": 2}


SETTINGS = """
import sys
from django.conf import settings
place = {"BACKEND": "dwell.django.MemcachedCache", "LOCATION": sys.argv[1]}
place |= {"OPTIONS": {"timeout": 20}}
settings.configure(CACHES={"default": place | {"KEY_PREFIX": "p", "TIMEOUT": 60}})
import django
django.setup()
from django.core.cache import cache, caches
from django.core import signals
cache.set("key", {"a": 1})
signals.request_finished.send(sender=None)
assert caches["default"].get("key") == {"a": 1}
from django.contrib.sessions.backends.cache import SessionStore
session = SessionStore()
session["user"] = 5
session.save()
assert SessionStore(session.session_key)["user"] == 5
print("good")
"""


def test_as_django_configures_it(server: Memcached, tmp_path: Path) -> None:
    # As root, it runs as a user who may not write to folders of tests.
    directory = Path("/tmp") if os.getuid() == 0 else tmp_path
    socket = Memcached(path=directory / f"dwell-test-django-{os.getpid()}.sock")
    try:
        for location in (server.address, f"unix:{socket.address}"):
            done = subprocess.run(
                [sys.executable, "-c", SETTINGS, location],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.stdout == "good\n", done.stderr
    finally:
        socket.process.kill()
        socket.process.wait()
