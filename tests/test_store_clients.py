"""The same session by every client that could be had, with memcached and with the embedded store.

What a client shows its program is what counts, so the transcripts are compared, not bytes.
"""

import pathlib
import shutil
import subprocess

import bmemcached
import pylibmc
import pytest
from pymemcache.client.base import Client

from support import ports
from support.memcached import Memcached
from support.store import Store

CLIENTS = pathlib.Path(__file__).parent / "clients"


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """memcached and the embedded store."""
    folder = tmp_path_factory.mktemp("servers")
    both = [Memcached(folder), Store(folder)]
    try:
        yield [server.start_ready() for server in both]
    finally:
        for server in both:
            server.stop()


def shown(action):
    """What a call gives, or the error it raises."""
    try:
        value = action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(value, (bytes, str)) and len(value) > 100:
        return f"{len(value)} of {type(value).__name__}"
    return repr(value)


def pymemcache_session(address):
    client = Client(address, default_noreply=False, timeout=5)
    client.flush_all()
    yield shown(lambda: client.set("k", b"value"))
    yield shown(lambda: client.get("k"))
    yield shown(lambda: client.get("none"))
    yield shown(lambda: client.add("k", b"other"))
    yield shown(lambda: client.replace("k", b"new"))
    yield shown(lambda: client.append("k", b"er"))
    yield shown(lambda: client.prepend("k", b"re"))
    yield shown(lambda: client.get_many(["k", "none"]))
    yield shown(lambda: client.set("n", b"41"))
    yield shown(lambda: client.incr("n", 1))
    yield shown(lambda: client.decr("n", 100))
    yield shown(lambda: client.get("n"))
    yield shown(lambda: client.incr("none", 1))
    yield shown(lambda: client.incr("k", 1))
    _, unique = client.gets("k")
    yield shown(lambda: client.cas("k", b"by cas", unique))
    yield shown(lambda: client.cas("k", b"too late", unique))
    yield shown(lambda: client.touch("k", 100))
    yield shown(lambda: client.gat("k", 100))
    yield shown(lambda: client.set("k", b"x", expire=-1))
    yield shown(lambda: client.get("k"))
    yield shown(lambda: client.set_many({"a": b"1", "b": b"2"}))
    yield shown(lambda: client.delete_many(["a", "b", "c"]))
    yield shown(lambda: client.set("long", b"y" * 1_000_000))
    yield shown(lambda: client.get("long"))
    yield shown(lambda: client.set("big", b"z" * 1_048_576))
    yield shown(lambda: client.delete("long"))
    yield shown(lambda: client.delete("long"))
    yield shown(lambda: client.raw_command(b"mg k v", b"\r\n"))
    yield shown(lambda: {b"cmd_get", b"curr_items", b"evictions"} <= set(client.stats()))
    yield shown(lambda: client.verbosity(1) if hasattr(client, "verbosity") else None)


def pylibmc_session(address, *, binary):
    client = pylibmc.Client([ports.text(address)], binary=binary, behaviors={"cas": True})
    client.flush_all()
    yield shown(lambda: client.set("k", "value"))
    yield shown(lambda: client.get("k"))
    yield shown(lambda: client.get("none"))
    yield shown(lambda: client.add("k", "other"))
    yield shown(lambda: client.replace("k", "new"))
    yield shown(lambda: client.replace("none", "new"))
    yield shown(lambda: client.append("k", "er"))
    yield shown(lambda: client.prepend("k", "re"))
    yield shown(lambda: client.get_multi(["k", "none"]))
    yield shown(lambda: client.set("n", 41))
    yield shown(lambda: client.incr("n", 1))
    yield shown(lambda: client.decr("n", 100))
    yield shown(lambda: client.incr("none", 1))
    _, unique = client.gets("k")
    yield shown(lambda: client.cas("k", "by cas", unique))
    yield shown(lambda: client.cas("k", "too late", unique))
    yield shown(lambda: client.touch("k", 100))
    yield shown(lambda: client.set_multi({"a": "1", "b": "2"}))
    yield shown(lambda: client.delete_multi(["a", "b"]))
    yield shown(lambda: client.set("long", b"y" * 1_000_000))
    yield shown(lambda: client.get("long"))
    yield shown(lambda: client.set("big", b"z" * 1_048_576))
    yield shown(lambda: client.delete("k"))
    yield shown(lambda: client.delete("k"))
    yield shown(lambda: {"cmd_get", "curr_items"} <= set(client.get_stats()[0][1]))


def bmemcached_session(address):
    client = bmemcached.Client([ports.text(address)], socket_timeout=5)
    client.flush_all()
    yield shown(lambda: client.set("k", "value"))
    yield shown(lambda: client.get("k"))
    yield shown(lambda: client.get("none"))
    yield shown(lambda: client.add("k", "other"))
    yield shown(lambda: client.replace("k", "new"))
    yield shown(lambda: client.get_multi(["k", "none"]))
    yield shown(lambda: client.set_multi({"a": "1", "b": "2"}))
    yield shown(lambda: client.incr("n", 1, default=41))
    yield shown(lambda: client.incr("n", 1, default=41))
    yield shown(lambda: client.decr("n", 100))
    _, unique = client.gets("k")
    yield shown(lambda: client.cas("k", "by cas", unique))
    yield shown(lambda: client.cas("k", "too late", unique))
    yield shown(lambda: client.get("k"))
    yield shown(lambda: client.set("long", b"y" * 1_000_000))
    yield shown(lambda: client.get("long"))
    yield shown(lambda: client.set("big", b"z" * 1_048_576, compress_level=0))
    yield shown(lambda: client.delete("k"))
    yield shown(lambda: client.delete("k"))
    yield shown(lambda: "curr_items" in next(iter(client.stats().values())))
    client.disconnect_all()


SESSIONS = {
    "pymemcache": pymemcache_session,
    "pylibmc": lambda address: pylibmc_session(address, binary=False),
    "pylibmc_binary": lambda address: pylibmc_session(address, binary=True),
    "bmemcached": bmemcached_session,
}


@pytest.mark.parametrize("name", SESSIONS)
def test_python_clients(servers, name):
    memcached, store = (list(SESSIONS[name](server.address)) for server in servers)
    assert store == memcached
    assert len(store) >= 15
    # The session itself is right: what was set was read.
    assert "value" in store[1]


PROGRAMS = {
    "node_memcached": ("node", "node/memcached.js", "node/node_modules"),
    "node_memjs": ("node", "node/memjs.js", "node/node_modules"),
    "gomemcache": ("go", "go/main.go", "go/go.sum"),
    "dalli": ("ruby", "session.rb", "session.rb"),
}


def transcript(language, program, address):
    command = {
        "node": ["node", program.name],
        "go": ["go", "run", "."],
        "ruby": ["ruby", "-W0", program.name],
    }[language]
    done = subprocess.run(
        [*command, ports.text(address)],
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.replace(ports.text(address), "SERVER").splitlines()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", PROGRAMS)
def test_clients_of_other_languages(servers, name):
    language, program, library = PROGRAMS[name]
    if not shutil.which(language):
        pytest.skip(f"{language} is not installed")
    if not (CLIENTS / library).exists():
        pytest.skip("scripts/install-clients has not been run")
    if (
        language == "ruby"
        and subprocess.run(["ruby", "-e", "require 'dalli'"], check=False).returncode
    ):
        pytest.skip("dalli is not installed")
    memcached, store = (
        transcript(language, CLIENTS / program, server.address) for server in servers
    )
    assert store == memcached
    assert len(store) >= 20
    assert any("value" in line for line in store[:5])
