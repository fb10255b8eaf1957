"""The memory that the process takes, against `-m`."""

import pathlib
import random
import socket

import pytest

from support.store import Store
from support.wait import until

MIB = 1 << 20

BOUND = 64 * MIB

# The program without its own file, whose pages count as resident too: builds for tests have more
# of them than those that docs/store-memory.md is about.
ITSELF = 8 * MIB

VALUE_MAX = MIB - 300


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path, "-m", BOUND // MIB, "-t", 2)
    store.start_ready()
    yield store
    store.stop()


def resident(store):
    """Bytes in memory that no file has."""
    status = pathlib.Path(f"/proc/{store.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def set_all(connection, reader, sets):
    """Sets keys to values of so many bytes, in batches whose end is waited for."""
    batch = []
    for key, length in sets:
        batch.append(f"set {key} 0 0 {length} noreply\r\n".encode())
        batch.append(b"v" * length + b"\r\n")
        if sum(map(len, batch)) > 4 * MIB:
            batch.append(b"mn\r\n")
            connection.sendall(b"".join(batch))
            assert reader.readline() == b"MN\r\n"
            batch.clear()
    batch.append(b"mn\r\n")
    connection.sendall(b"".join(batch))
    assert reader.readline() == b"MN\r\n"


def any_length(random_):
    """From 1 byte to nearly 1 MiB, as likely short by a factor as long by it."""
    return min(int(2 ** random_.uniform(0, 20)), VALUE_MAX)


# It moves 1.4 GB through one connection: a minute of a core that is shared, never a wait.
@pytest.mark.timeout(400)
def test_the_process_stays_within_its_memory_whatever_the_sizes(store, record_property):
    random_ = random.Random(2009)
    phases = {
        "all sizes": [any_length(random_) for _ in range(6000)],
        "uniform": [random_.randrange(1, VALUE_MAX) for _ in range(400)],
        "small": [random_.randrange(1, 900) for _ in range(40000)],
        "a page or two": [random_.randrange(1000, 7000) for _ in range(25000)],
        "large": [VALUE_MAX] * 150,
        "all sizes again": [any_length(random_) for _ in range(6000)],
    }
    before = resident(store)
    looks, above = 0, []
    with socket.create_connection(store.address, timeout=60) as connection:
        reader = connection.makefile("rb")
        for name, lengths in phases.items():
            keys = len(lengths) // 2
            sets = [(f"key-{random_.randrange(keys)}", length) for length in lengths]
            for start in range(0, len(sets), len(sets) // 4):
                set_all(connection, reader, sets[start : start + len(sets) // 4])
                taken = resident(store)
                looks += 1
                if taken > BOUND * 1.15 + ITSELF:
                    above.append(f"{name}: {taken / MIB:.1f} MiB")
        # `make conformance` counts them.
        record_property("looks", looks)
        record_property("exceeded", len(above))
        assert above == []
        connection.sendall(b"stats\r\n")
        lines = iter(reader.readline, b"END\r\n")
        statistics = dict(line.split()[1:3] for line in lines)
        assert BOUND * 0.8 < int(statistics[b"bytes"]) <= BOUND
        assert int(statistics[b"evictions"]) > 1000
        connection.sendall(b"flush_all\r\n")
        assert reader.readline() == b"OK\r\n"
        # A thread of its own gives it back.
        until(
            lambda: resident(store) <= before + 8 * MIB,
            lambda: f"{resident(store) / MIB:.1f} MiB go down to {before / MIB:.1f}",
        )
