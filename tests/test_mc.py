"""`dwell mc`: a memcached client on the command line, and where it looks for keys."""

import subprocess

import pylibmc
import pytest
from pymemcache.client.hash import HashClient

from support import ports
from support.dwell import BINARY

KEYS = [f"key{place}" for place in range(200)] + [f"/poll/user{place}" for place in range(200)]


def run_mc(servers, *words, stdin=None, timeout="10s"):
    flags = [word for server in servers for word in ("--server", server)]
    command = [BINARY, "mc", "--timeout", timeout, *flags, *words]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


def test_the_exit_status_tells_hit_miss_and_error(start_memcached):
    servers = [start_memcached().name]
    assert run_mc(servers, "get", "a").returncode == 1
    assert run_mc(servers, "set", "a", "1").returncode == 0
    found = run_mc(servers, "get", "a")
    assert (found.returncode, found.stdout, found.stderr) == (0, b"1\n", b"")
    assert run_mc(servers, "get", "--raw", "a").stdout == b"1"
    assert run_mc(servers, "add", "a", "2").returncode == 1
    assert run_mc(servers, "incr", "a", "4").stdout == b"5\n"
    assert run_mc(servers, "set", "b", "-", stdin=b"\0piped").returncode == 0
    assert run_mc(servers, "get", "a", "b").stdout == b"a\t5\nb\t\0piped\n"
    assert run_mc(servers, "get", "a", "none").returncode == 1
    assert run_mc(servers, "delete", "a").returncode == 0
    assert run_mc(servers, "delete", "a").returncode == 1


def test_an_error_says_where_it_was():
    server = ports.text(ports.free_address())
    failed = run_mc([server], "get", "a")
    assert failed.returncode == 3
    message = failed.stderr.decode()
    assert message.startswith(f"dwell mc: get on {server}, ")
    assert "connection cannot be made: Connection refused" in message
    assert run_mc([server], "get", "a" * 251).returncode == 3
    assert run_mc([server], "get", "--no-such-flag", "a").returncode == 2
    assert run_mc([server], "get", "a", "b").returncode == 3


def test_a_server_that_does_not_answer_is_given_up(start_memcached):
    server = start_memcached()
    server.pause()
    try:
        failed = run_mc([server.name], "get", "a", timeout="200ms")
        assert failed.returncode == 3
    finally:
        server.resume()


def test_servers_tell_of_themselves(start_memcached):
    servers = [start_memcached().name, start_memcached().name]
    assert run_mc(servers, "ping").stdout.count(b"\n") == 2
    assert b"\tcurr_connections\t" in run_mc(servers, "stats").stdout
    assert b"\tmaxconns\t" in run_mc(servers, "stats", "settings").stdout
    bench = run_mc(servers, "bench", "--operations", "200", "--threads", "2").stdout
    assert bench.startswith(b"operations\t200\n")
    assert run_mc(servers, "flush-all").returncode == 0


def libmemcached(behaviors):
    def store(names, weights):
        servers = [f"{name}:{weight}" for name, weight in zip(names, weights, strict=True)]
        client = pylibmc.Client(servers, behaviors=behaviors)
        for key in KEYS:
            assert client.set(key, key.encode())

    return store


def pymemcache(names, _):
    servers = [(name.split(":")[0], int(name.split(":")[1])) for name in names]
    client = HashClient(servers, default_noreply=False)
    for key in KEYS:
        assert client.set(key, key.encode())


RINGS = [
    ("ketama_weighted", libmemcached({"ketama_weighted": True}), (1, 1, 1)),
    ("ketama_weighted", libmemcached({"ketama_weighted": True}), (1, 2, 5)),
    ("ketama", libmemcached({"ketama": True}), (1, 1, 1)),
    ("modula", libmemcached({}), (1, 1, 1)),
    ("modula_crc", libmemcached({"hash": "crc"}), (1, 1, 1)),
    ("rendezvous", pymemcache, (1, 1, 1)),
]


@pytest.mark.parametrize(("distribution", "store", "weights"), RINGS)
def test_keys_are_where_the_other_client_puts_them(start_memcached, distribution, store, weights):
    names = [start_memcached().name for _ in weights]
    store(names, weights)
    servers = [f"{name}={weight}" for name, weight in zip(names, weights, strict=True)]
    found = run_mc(servers, "--distribution", distribution, "get", *KEYS)
    lines = found.stdout.decode().splitlines()
    assert lines == [f"{key}\t{key}" for key in KEYS]
