"""The embedded store and memcached under the same load, and with the same trace.

The load comes from `bench/store`, a Rust program that keeps eight connections busy with batches
prepared beforehand and only counts bytes while the clock runs, so that the server is what works.
"""

import json
import subprocess
from collections.abc import Sequence

from harness import accounting, memcached
from harness.contenders import Contender, Running
from harness.measure import Method, Row, Sample, in_turn
from harness.paths import BENCH, REPOSITORY, release_directory
from harness.stage import HOST, LOAD_CORE, SERVER_CORE, ContenderError, Stage

# What is asked for, with the word for tables; `mixed` is nine gets to a set.
MODES = {"mixed": "90/10", "gets": "gets", "sets": "sets", "multi": "16-key gets"}
MEMORY_MEGABYTES = 64
TRACE_REQUESTS = 4_000_000
FILL_KEY_BYTES, FILL_VALUE_BYTES = 21, 100
TIMEOUT_SECONDS = 300


def build() -> bool:
    """Builds the generator; whether it worked."""
    target = str(release_directory().parent)
    manifest = str(BENCH / "store" / "Cargo.toml")
    command = ["cargo", "build", "--release", "--quiet", "--locked"]
    command += ["--manifest-path", manifest, "--target-dir", target]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 0


def name_of(server: str, mode: str) -> str:
    """The name of a row: the mixed load is the plain one."""
    return server if mode == "mixed" else f"{server}_{mode}"


class EmbeddedStore(Contender):
    """`dwell store` with one loop."""

    ours = True

    def __init__(self, name: str, label: str) -> None:
        self.name = name
        self.label = label

    def start(self, stage: Stage) -> Running:
        """Starts a store of its own."""
        port = stage.free_port()
        command = [str(release_directory() / "dwell"), "store", "-t", "1"]
        command += ["-l", HOST, "-p", str(port), "-m", str(MEMORY_MEGABYTES)]
        program = stage.start("dwell", command, SERVER_CORE, [port])
        return Running(program, port, "")


class Memcached(Contender):
    """memcached with one thread."""

    def __init__(self, name: str, label: str, note: str = "") -> None:
        self.name = name
        self.label = label
        self.note = note

    def start(self, stage: Stage) -> Running:
        """Starts memcached on the server's core."""
        program, port = memcached.start_on(stage, SERVER_CORE)
        return Running(program, port, "")


def generate(*words: object) -> dict[str, float]:
    """Runs the generator on its core and returns what it found.

    Raises:
        ContenderError: it failed, or the server did.
    """
    program = str(release_directory() / "dwell-bench-store")
    command = ["taskset", "-c", str(LOAD_CORE), program, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    if done.returncode != 0:
        raise ContenderError(f"the load failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def sample(running: Running, mode: str, method: Method) -> Sample:
    """One round of one kind of load; the CPU time of the server counts, as everywhere."""
    seconds = method.seconds / 2
    if method.warm_up_seconds:
        generate("load", running.port, mode, method.warm_up_seconds / 2)
    pid = running.program.pid
    cpu = accounting.fine_cpu_seconds(pid)
    report = generate("load", running.port, mode, seconds)
    cpu = accounting.fine_cpu_seconds(pid) - cpu
    operations = report["operations"]
    return {
        "us_per_operation": cpu / operations * 1e6,
        "operations_per_cpu_second": operations / cpu,
        "operations_per_second": operations / report["seconds"],
        "operations": operations,
        "cpu_seconds": cpu,
    }


def run(method: Method) -> list[Row]:
    """Both servers in turn, one kind of load after the other."""
    rows: list[Row] = []
    for mode, words in MODES.items():
        note = "writes to the socket once per get, Dwell once per read" if mode == "mixed" else ""
        contenders = (
            EmbeddedStore(name_of("store_edge", mode), f"dwell store, {words}"),
            Memcached(name_of("store_memcached", mode), f"memcached -t 1, {words}", note),
        )
        rows += in_turn(
            contenders, method.rounds, lambda running, _, mode=mode: sample(running, mode, method)
        )
    return rows


CACHES: Sequence[Contender] = (
    EmbeddedStore("cache_edge", "dwell store"),
    Memcached("cache_memcached", "memcached -t 1"),
)


def trace_sample(running: Running, method: Method) -> Sample:
    """What the same memory keeps: the hits of two traces."""
    requests = TRACE_REQUESTS if method.rounds > 1 else TRACE_REQUESTS // 10
    found: Sample = {}
    for kind in ("zipf", "scan"):
        found[f"{kind}_hit_ratio"] = generate("trace", running.port, kind, requests)["hit_ratio"]
        memcached.flush(running.port)
    return found


def fill_sample(running: Running) -> Sample:
    """The overhead of an item when the memory is full; the server held nothing before."""
    fill = generate("fill", running.port, FILL_KEY_BYTES, FILL_VALUE_BYTES)
    return {"overhead_bytes": fill["overhead_bytes"], "items": fill["items"]}


def run_caches(method: Method) -> list[Row]:
    """Both servers with the same memory; the traces are the same every time, so one round."""
    rows = in_turn(CACHES, 1, lambda running, _: trace_sample(running, method))
    fills = in_turn(CACHES, 1, lambda running, _: fill_sample(running))
    for row, fill in zip(rows, fills, strict=True):
        row.problems += fill.problems
        for traced, filled in zip(row.samples, fill.samples, strict=False):
            traced.update(filled)
    return rows
