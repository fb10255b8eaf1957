"""Keys over several memcached servers: where libmemcached puts them."""

import pylibmc
import pytest

KEYS = [f"/poll/user{place}" for place in range(400)]


def libmemcached(servers, weights):
    addresses = [f"{server.name}:{weight}" for server, weight in zip(servers, weights, strict=True)]
    return pylibmc.Client(addresses, behaviors={"ketama_weighted": True})


@pytest.mark.parametrize("weights", [(1, 1), (1, 1, 1), (1, 2, 5)])
def test_keys_are_where_libmemcached_puts_them(start_dwell, start_memcached, weights):
    servers = [start_memcached() for _ in weights]
    reference = libmemcached(servers, weights)
    for key in KEYS:
        assert reference.set(key, key.encode())
    held = [int(server.client().stats()[b"curr_items"]) for server in servers]
    assert min(held) > 0
    assert sum(held) == len(KEYS)
    names = [
        server.name if weight == 1 else f"{server.name}={weight}"
        for server, weight in zip(servers, weights, strict=True)
    ]
    dwell = start_dwell(memcached={"servers": names})
    with dwell.connect() as connection:
        wrong = [key for key in KEYS if connection.get(key).body != key.encode()]
    assert wrong == []


def test_a_write_by_libmemcached_wakes_the_waiters_of_every_server(start_dwell, start_memcached):
    servers = [start_memcached(), start_memcached()]
    reference = libmemcached(servers, (1, 1))
    settings = {"servers": [server.name for server in servers], "sweep_interval": "50ms"}
    dwell = start_dwell(memcached=settings)
    connections = {}
    for key in KEYS[:20]:
        reference.set(key, b"old")
        connections[key] = dwell.connect()
        etag = connections[key].get(key).etag
        connections[key].ask(f"{key}?wait=30", fields={"If-None-Match": etag})
    dwell.await_waiters(20)
    for key in KEYS[:20]:
        reference.set(key, key.encode())
    for key, connection in connections.items():
        assert connection.answer().body == key.encode()
        connection.close()
