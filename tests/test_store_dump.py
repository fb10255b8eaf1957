"""Listings of keys, by the programs that people use for it."""

import subprocess

import pytest

from support import ports
from support.store import Store

TOOL = "/usr/share/memcached/scripts/memcached-tool"
KEYS = {f"key-{number}" for number in range(2000)} | {"with:colon/and%25", "last"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"), "-t", "2")
    try:
        client = store.start_ready().client()
        for key in KEYS:
            client.set(key, b"value of " + key.encode(), expire=1000, flags=3)
        yield store
    finally:
        store.stop()


def run(*words):
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_memcached_tool_lists_keys(store):
    lines = run(TOOL, ports.text(store.address), "keys")
    assert len(lines) == len(KEYS)
    assert "key=key-7" in {line.split()[0] for line in lines}
    assert len(run(TOOL, ports.text(store.address), "keys", 10)) == 10


def test_memcached_tool_dumps_what_can_be_stored_again(store):
    lines = run(TOOL, ports.text(store.address), "dump")
    adds = [line.split() for line in lines if line.startswith("add ")]
    assert {key for _, key, *_ in adds} == KEYS
    assert {flags for _, _, flags, *_ in adds} == {"3"}
    assert lines[1::2] == [f"value of {line.split()[1]}" for line in lines[::2]]


def test_memcdump_lists_keys(store):
    assert set(run("memcdump", f"--servers={ports.text(store.address)}")) == KEYS
