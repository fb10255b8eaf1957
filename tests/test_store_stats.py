"""`stats`: memcached's names, because exporters ask for them by name, and honest figures."""

import socket

import pytest

from support import ports
from support.memcached import Memcached, store_client
from support.store import Store
from support.wait import until


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """memcached and the embedded store, with the same items."""
    folder = tmp_path_factory.mktemp("servers")
    servers = [Memcached(folder), Store(folder, "-t", "2")]
    try:
        for server in servers:
            client = server.start_ready().client()
            for number in range(10):
                client.set(f"k{number}", b"x" * 100)
                client.get(f"k{number}")
            client.get("none")
        yield [server.client() for server in servers]
    finally:
        for server in servers:
            server.stop()


# Names that are not shown, with the reason; a name must not be here without one.
MISSING = {}


@pytest.mark.parametrize("topic", ["", "settings", "items", "slabs", "sizes"])
def test_every_name_of_memcached_is_there_in_its_order(both, topic):
    theirs, ours = (list(client.stats(*topic.split())) for client in both)
    if topic in ("items", "slabs"):
        # Classes have numbers of their own; here all items are in one.
        theirs = [name for name in theirs if not name[:1].isdigit() or b":" in name]
        number = theirs[0].split(b":")[0 if topic == "slabs" else 1]
        swap = (number + b":", b"1:")
        theirs = [name.replace(*swap) for name in theirs]
    expected = [name for name in theirs if name.decode() not in MISSING]
    assert [name for name in expected if name not in ours] == []
    assert [name for name in ours if name not in theirs] == []
    assert ours == expected


def test_the_counters_agree(both):
    theirs, ours = (client.stats() for client in both)
    for name in [
        b"cmd_get",
        b"cmd_set",
        b"get_hits",
        b"get_misses",
        b"curr_items",
        b"total_items",
        b"delete_hits",
        b"evictions",
        b"limit_maxbytes",
        b"threads",
    ]:
        assert ours[name] == theirs[name], name


def test_settings_agree_where_they_mean_the_same(both):
    theirs, ours = (client.stats("settings") for client in both)
    for name in [
        b"maxbytes",
        b"udpport",
        b"evictions",
        b"domain_socket",
        b"umask",
        b"cas_enabled",
        b"binding_protocol",
        b"auth_enabled_sasl",
        b"auth_enabled_ascii",
        b"item_size_max",
        b"maxconns_fast",
        b"flush_enabled",
        b"shutdown_command",
        b"idle_timeout",
        b"ssl_enabled",
    ]:
        assert ours[name] == theirs[name], name


@pytest.fixture
def store(cleanup, tmp_path):
    store = Store(tmp_path)
    cleanup.callback(store.stop)
    return store.start_ready()


def test_connections_are_shown_with_their_peers(store):
    client = store.client()
    client.version()
    connections = client.stats("conns")
    own = ports.text(client.sock.getsockname())
    (number,) = [
        name.split(b":")[0] for name, value in connections.items() if value == f"tcp:{own}".encode()
    ]
    assert connections[number + b":listen_addr"] == f"tcp:{ports.text(store.address)}".encode()
    assert connections[number + b":state"] == b"conn_parse_cmd"
    other = store_client(store.address)
    other.version()
    assert len(client.stats("conns")) == 8
    other.close()
    until(lambda: len(client.stats("conns")) == 4, "the other connection is gone")


def test_reset_sets_counters_to_zero_and_gauges_not(store):
    client = store.client()
    client.set("k", b"1")
    client.get("k")
    with socket.create_connection(store.address) as raw:
        raw.sendall(b"stats reset\r\n")
        assert raw.recv(100) == b"RESET\r\n"
    stats = client.stats()
    assert (stats[b"cmd_get"], stats[b"cmd_set"], stats[b"curr_items"]) == (0, 0, 1)


def test_the_hottest_keys_stand_out(store):
    client = store.client()
    for number in range(2000):
        client.get("hot")
        if number % 4 == 0:
            client.get(f"cold{number}")
    stats = client.stats("dwell")
    assert stats[b"hot:0:key"] == b"hot"
    assert int(stats[b"hot:0:reads"]) > 1000
    assert int(stats[b"command:get:count"]) == 2500
    assert float(stats[b"command:get:p99_us"]) > 0


def test_a_counter_a_command_in_the_metrics(lone_edge):
    client = lone_edge.store()
    client.set("k", b"1")
    client.get("k")
    client.get_many(["a", "b"])
    client.incr("k", 1)
    client.delete("k")
    for command, count in {"set": 1, "get": 2, "incr": 1, "delete": 1, "cas": 0}.items():
        lone_edge.await_metric(count, "dwell_store_commands_total", command=command)
    for _ in range(64):
        client.get("k")
    name = "dwell_store_command_duration_seconds_count"
    assert lone_edge.metric(name, command="get") >= 1
