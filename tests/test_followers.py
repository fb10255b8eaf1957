"""The model of the cursor, against the running program: clients that change their transport while
values are written at random, and servers that are restarted under them.

Which transport a client takes and what is written is decided by seeds, which a failure names.
"""

import contextlib
import random

import pytest

from support.dwell import Dwell
from support.memcached import Memcached
from support.wait import until
from support.watchers import Watcher

KEYS = [f"/poll/{name}" for name in "abc"]
WATCHERS = 8


class World:
    """The edge, and memcached where the store is not embedded."""

    def __init__(self, folder, cleanup, has_memcached):
        self.memcached = None
        sections = {"limits": {"drain_timeout": "200ms"}}
        if has_memcached:
            self.memcached = Memcached(folder)
            cleanup.callback(self.memcached.stop)
            self.memcached.start_ready()
            sections["memcached"] = {
                "servers": [self.memcached.name],
                "sweep_interval": "20ms",
            }
        else:
            sections["store"] = {"snapshot": str(folder / "items")}
        self.dwell = Dwell(folder, **sections)
        cleanup.callback(self.dwell.stop)
        self.dwell.start_ready()

    def cache(self):
        return self.memcached.client() if self.memcached else self.dwell.store()

    def restart_edge(self):
        """Ends it in order, and begins anew: the values stay."""
        self.dwell.stop()
        self.dwell.start_ready()

    def restart_memcached(self):
        """Kills it: the values go, and versions begin anew."""
        if self.memcached:
            self.memcached.kill()
            self.memcached.start_ready()


def write(world, random, count):
    """Writes at random; returns what there is then."""
    cache, values = world.cache(), {}
    for number in range(count):
        key = random.choice(KEYS)
        if random.random() < 0.15:
            cache.delete(key)
            values[key] = None
        else:
            values[key] = f"value {random.randrange(5)} {number // 7}".encode()
            cache.set(key, values[key])
    values |= {key: f"the end of {key}".encode() for key in KEYS if not values.get(key)}
    cache.set_many(values)
    cache.close()
    return values


@pytest.mark.parametrize("kind", ["embedded", "memcached"])
def test_everybody_ends_on_the_newest_values_and_is_told_nothing_twice(tmp_path, cleanup, kind):
    world = World(tmp_path, cleanup, kind == "memcached")
    chance = random.Random(7)
    watchers = [Watcher(world.dwell.address, KEYS, seed) for seed in range(WATCHERS)]
    for watcher in watchers:
        cleanup.callback(watcher.stop)
        watcher.start()
    for restart in (world.restart_edge, world.restart_memcached, lambda: None):
        write(world, chance, 60)
        restart()
        values = write(world, chance, 60)

        def late(values=values):
            return [(it.seed, it.values) for it in watchers if it.values != values]

        with contextlib.suppress(AssertionError):
            until(lambda: not late(), "everybody has the newest values", timeout_s=30)
        assert late() == [], values
    assert [fault for watcher in watchers for fault in watcher.faults] == []
    for watcher in watchers:
        watcher.stop()
    for watcher in watchers:
        watcher.join()
    world.dwell.await_waiters(0)
