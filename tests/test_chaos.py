"""Everything fails in turn, and whoever watches a key ends on its newest value.

Writers, watchers of every transport, and a network between all parts that is cut, stalls and drips.
When it has healed, every watcher comes to the value that is stored, none was ever told twice of the
same one, and the process is as small as it was. `make chaos` is the same for half an hour.
"""

import dataclasses
import os
import random
import threading
import time

import pytest

from support.dwell import Dwell
from support.faults import FaultProxy
from support.memcached import Memcached, store_client
from support.process import Process
from support.upstream import Answer, Upstream
from support.wait import until
from support.watchers import Watcher

SECONDS = float(os.environ.get("DWELL_SOAK_SECONDS", "9"))
KEYS = [f"/poll/{number}" for number in range(6)]
WATCHERS = 24
MEBIBYTE = 1024 * 1024


@dataclasses.dataclass
class World:
    """All parts, and the networks between them by name."""

    dwell: Process
    cache_address: tuple
    networks: dict
    watchers: list

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.dwell.pid}/fd"))


class Writer:
    """Writes every key again and again, beside the faults: it has a network of its own."""

    def __init__(self, address):
        self.address = address
        self.count = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        client = store_client(self.address)
        while not self._is_over.wait(0.02):
            self.count += 1
            client.set(random.choice(KEYS), f"value {self.count}".encode())
            if self.count % 50 == 0:
                client.delete(random.choice(KEYS))
        client.close()

    def stop(self):
        self._is_over.set()
        self._thread.join(20)


@pytest.fixture(params=["embedded", "memcached"])
def world(request, tmp_path, cleanup):
    app = Upstream().start()
    cleanup.callback(app.stop)
    app.answer = lambda request: Answer(b"of the application")
    networks = {"application": FaultProxy(app.address)}
    sections = {
        "upstream": {"url": "http://{}:{}".format(*networks["application"].address)},
        "limits": {"drain_timeout": "2s"},
    }
    if request.param == "memcached":
        memcached = Memcached(tmp_path)
        cleanup.callback(memcached.stop)
        memcached.start_ready()
        networks["cache"] = FaultProxy(memcached.address)
        sections["memcached"] = {
            "servers": ["{}:{}".format(*networks["cache"].address)],
            "sweep_interval": "50ms",
            "timeout": "200ms",
        }
    dwell = Dwell(tmp_path, **sections)
    cleanup.callback(dwell.stop)
    networks["clients"] = FaultProxy(dwell.address)
    for network in networks.values():
        network.start()
        cleanup.callback(network.stop)
    dwell.start_ready()
    address = memcached.address if request.param == "memcached" else dwell.store_address
    watchers = []
    for number in range(WATCHERS):
        # Half of them have a network that never fails.
        server = networks["clients"].address if number % 2 else dwell.address
        keys = [KEYS[number % len(KEYS)], KEYS[(number + 1) % len(KEYS)]]
        watchers.append(Watcher(server, keys, seed=number))
    return World(dwell, address, networks, watchers)


def a_round(world, seconds):
    """Faults for so long, then peace; everybody has to come to what is stored."""
    writer = Writer(world.cache_address)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        network = random.choice(list(world.networks.values()))
        getattr(network, random.choice(["cut", "stall", "drip"]))()
        time.sleep(random.uniform(0.05, 0.5))
        network.heal()
        time.sleep(random.uniform(0, 0.2))
    writer.stop()
    client = store_client(world.cache_address)
    final = {key: f"final {key} {writer.count}".encode() for key in KEYS}
    client.set_many(final)
    client.close()

    def late():
        return [
            (watcher.seed, watcher.values)
            for watcher in world.watchers
            if watcher.values != {key: final[key] for key in watcher.keys}
        ]

    until(lambda: not late(), "every watcher has the newest values", timeout_s=30)


@pytest.mark.timeout(SECONDS * 4 + 120)
def test_whatever_fails_everybody_ends_on_the_newest_value(world, cleanup):
    for watcher in world.watchers:
        cleanup.callback(watcher.stop)
        watcher.start()
    rounds = max(3, round(SECONDS / 60))
    sizes = []
    for _ in range(rounds):
        a_round(world, SECONDS / rounds)
        sizes.append((world.dwell.resident_bytes(), world.descriptors()))
    faults = [fault for watcher in world.watchers for fault in watcher.faults]
    assert faults == []
    assert min(watcher.told for watcher in world.watchers) > rounds
    # What exists once exists after the first round.
    assert sizes[-1][0] - sizes[0][0] < 4 * MEBIBYTE, sizes
    assert sizes[-1][1] - sizes[0][1] < 2 * WATCHERS, sizes
    for watcher in world.watchers:
        watcher.stop()
    for watcher in world.watchers:
        watcher.join()
    world.dwell.await_waiters(0)
    world.dwell.await_connections(0)
