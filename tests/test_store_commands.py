"""The memcached commands as pymemcache uses them."""

import time

import pytest
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

from support.either import store_address  # noqa: F401 -- a fixture
from support.memcached import store_client
from support.wait import until


@pytest.fixture
def client(store_address):  # noqa: F811
    client = store_client(store_address)
    client.flush_all()
    yield client
    client.close()


def test_set_and_get(client):
    assert client.set("k", b"value") is True
    assert client.get("k") == b"value"
    assert client.get("none") is None


def test_any_bytes_are_a_value(client):
    value = bytes(range(256)) * 4000
    client.set("k", value)
    assert client.get("k") == value
    client.set("k", b"")
    assert client.get("k") == b""


def test_many_keys_at_once(client):
    values = {f"k{place}": str(place).encode() for place in range(500)}
    assert client.set_many(values) == []
    assert client.get_many([*values, "none"]) == values
    found = client.gets_many(["k1", "none"])
    assert found["k1"][0] == b"1"
    assert client.delete_many(["k1", "k2"]) is True
    assert client.get_many(["k1", "k2", "k3"]) == {"k3": b"3"}


def test_add_and_replace(client):
    assert client.replace("k", b"1") is False
    assert client.add("k", b"2") is True
    assert client.add("k", b"3") is False
    assert client.replace("k", b"4") is True
    assert client.get("k") == b"4"


def test_append_and_prepend(client):
    assert client.append("k", b"x") is False
    assert client.prepend("k", b"x") is False
    client.set("k", b"2")
    assert client.append("k", b"3") is True
    assert client.prepend("k", b"1") is True
    assert client.get("k") == b"123"


def test_cas(client):
    assert client.cas("k", b"x", b"1") is None
    client.set("k", b"1")
    value, unique = client.gets("k")
    assert value == b"1"
    assert client.cas("k", b"2", unique) is True
    assert client.cas("k", b"3", unique) is False
    assert client.get("k") == b"2"


def test_every_write_changes_the_cas_unique_and_a_touch_does_not(client):
    seen = set()
    writes = [
        lambda: client.set("k", b"1"),
        lambda: client.set("k", b"1"),
        lambda: client.incr("k", 1),
        lambda: client.append("k", b"1"),
        lambda: client.cas("k", b"1", client.gets("k")[1]),
    ]
    for place, write in enumerate(writes):
        write()
        seen.add(client.gets("k")[1])
        assert len(seen) == place + 1
    client.touch("k", 100)
    client.raw_command("gat 100 k", b"END\r\n")
    assert client.gets("k")[1] in seen


def test_delete(client):
    client.set("k", b"1")
    assert client.delete("k") is True
    assert client.delete("k") is False
    assert client.get("k") is None


def test_incr_and_decr(client):
    assert client.incr("k", 1) is None
    client.set("k", b"10")
    assert client.incr("k", 5) == 15
    assert client.decr("k", 1) == 14
    assert client.decr("k", 100) == 0
    client.set("k", b"18446744073709551615")
    assert client.incr("k", 2) == 1


def test_decr_keeps_the_length(client):
    client.set("k", b"10")
    assert client.decr("k", 1) == 9
    assert client.get("k") == b"9 "
    assert client.incr("k", 1) == 10


def test_arithmetic_on_text_is_an_error(client):
    client.set("k", b"text")
    with pytest.raises(MemcacheClientError, match="non-numeric"):
        client.incr("k", 1)


def test_flags_are_kept(store_address):  # noqa: F811
    from pymemcache import serde

    client = Client(store_address, serde=serde.pickle_serde, default_noreply=False)
    value = {"a": [1, 2.5, "text"]}
    client.set("k", value)
    assert client.get("k") == value
    client.set("k", 5)
    assert client.get("k") == 5
    client.close()


def test_touch_and_get_and_touch(client):
    assert client.touch("k", 100) is False
    client.set("k", b"1", expire=1000)
    assert client.touch("k", 100) is True
    assert client.raw_command("gat 100 k none", b"END\r\n") == b"VALUE k 0 1\r\n1\r\n"
    assert client.raw_command("gats 100 k", b"END\r\n").startswith(b"VALUE k 0 1 ")
    assert client.touch("k", -1) is True
    assert client.get("k") is None


def test_expiry_times(client):
    now = int(time.time())
    lasting = {"never": 0, "relative": 2_592_000, "absolute": now + 1000}
    past = {"negative": -1, "absolute_past": now - 1000, "just_absolute": 2_592_001}
    for key, expire in (lasting | past).items():
        assert client.set(key, b"x", expire=expire) is True
    assert set(client.get_many([*lasting, *past])) == set(lasting)


def test_a_value_goes_when_its_time_is_over(client):
    client.set("k", b"x", expire=1)
    client.set("long", b"x", expire=100)
    until(lambda: client.get("k") is None, "the value expires", timeout_s=4)
    assert client.get("long") == b"x"
    assert client.add("k", b"new") is True


def test_flush_all(client):
    client.set("k", b"old")
    assert client.flush_all() is True
    assert client.get("k") is None
    client.set("k", b"in the same second")
    assert client.get("k") == b"in the same second"


def test_a_flush_to_come(client):
    client.set("k", b"old")
    assert client.flush_all(delay=2) is True
    assert client.get("k") == b"old"
    until(lambda: client.get("k") is None, "the flush comes", timeout_s=5)
    # memcached may take what is written in the second of the flush with it.
    until(lambda: client.set("k", b"new") and client.get("k"), "the flush is over", timeout_s=5)


def test_noreply_is_silent_and_done(store_address):  # noqa: F811
    client = Client(store_address, default_noreply=True, timeout=5)
    client.set("k", b"5")
    client.append("k", b"0")
    client.incr("k", 1, noreply=True)
    assert client.get("k") == b"51"
    client.touch("k", 100)
    client.replace("k", b"7")
    client.add("k", b"8")
    client.delete("none")
    assert client.get("k") == b"7"
    client.delete("k")
    assert client.get("k") is None
    client.flush_all()
    client.close()


def test_a_value_too_large_is_refused_and_the_old_one_dropped(client):
    client.set("k", b"old")
    with pytest.raises(MemcacheServerError, match="too large"):
        client.set("k", b"x" * 1_100_000)
    assert client.get("k") is None
    with pytest.raises(MemcacheServerError, match="too large"):
        client.add("other", b"x" * 1_100_000)
    assert client.set("k", b"x" * 1_000_000) is True


def test_stats(client):
    client.set("k", b"1")
    client.get("k")
    client.get("none")
    stats = client.stats()
    names = ["pid", "uptime", "time", "version", "curr_items", "bytes", "limit_maxbytes"]
    names += ["curr_connections", "total_connections", "cmd_get", "cmd_set"]
    names += ["get_hits", "get_misses", "evictions", "threads"]
    assert {name.encode() for name in names} <= stats.keys()
    assert stats[b"curr_items"] == 1
    assert stats[b"limit_maxbytes"] == 64 * 1024 * 1024


def test_stats_of_other_kinds_are_answered(client):
    for argument in ("settings", "items", "slabs"):
        assert isinstance(client.stats(argument), dict)


def test_version_and_verbosity(client):
    assert client.version()[:1].isdigit()
    assert client.cache_memlimit(64) is True
    assert client.raw_command("verbosity 1") == b"OK"


def test_quit_closes(client):
    client.quit()
    assert client.get("none") is None


def test_many_clients_at_once(store_address):  # noqa: F811
    clients = [store_client(store_address) for _ in range(100)]
    for place, client in enumerate(clients):
        client.set(f"c{place}", str(place))
    for place, client in enumerate(reversed(clients)):
        assert client.get(f"c{place}") == str(place).encode()
    for client in clients:
        client.close()
