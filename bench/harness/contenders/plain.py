"""The floors, and the engine with a handler that says hello."""

from harness import memcached
from harness.contenders.base import BODY, HIT_KEYS, HIT_PATH, Contender, Running
from harness.paths import release_directory
from harness.stage import HOST, SERVER_CORE, Program, Stage


def start_floor(stage: Stage, core: int) -> tuple[Program, int]:
    """Starts the floor program; it is also the upstream of the miss rows."""
    port = stage.free_port()
    arguments = [str(release_directory() / "dwell-bench-floor"), str(port)]
    return stage.start("floor", arguments, core, [port]), port


class Floor(Contender):
    """The bare epoll loop of bench/floor."""

    name = "floor"
    label = "bare epoll loop (the floor)"
    traced = True
    note = "parses nothing"

    def start(self, stage: Stage) -> Running:
        """Starts the floor on the server's core."""
        program, port = start_floor(stage, SERVER_CORE)
        return Running(program, port, HIT_PATH)


class LookupFloor(Contender):
    """The bare epoll loop that asks memcached, with a key for each request."""

    name = "memcached_floor"
    label = "bare loop of lookups (the floor), 1,000 keys"
    traced = True
    note = "looks for targets and line ends alone"

    def start(self, stage: Stage) -> Running:
        """Starts memcached with all keys, and the floor on the server's core."""
        memcached_port, port = memcached.start(stage), stage.free_port()
        memcached.fill(memcached_port, HIT_KEYS.paths(), BODY)
        command = str(release_directory() / "dwell-bench-lookups")
        arguments = [command, str(port), str(memcached_port)]
        program = stage.start("lookups", arguments, SERVER_CORE, [port])
        return Running(program, port, HIT_KEYS.path(0), HIT_KEYS)


class EngineHello(Contender):
    """The engine's `hello` example."""

    name = "engine_hello"
    label = "dwell engine, Rust handler"
    ours = True
    traced = True

    def start(self, stage: Stage) -> Running:
        """Starts the example on the server's core."""
        port = stage.free_port()
        arguments = [str(release_directory() / "examples" / "hello"), f"{HOST}:{port}"]
        program = stage.start("engine-hello", arguments, SERVER_CORE, [port])
        return Running(program, port, HIT_PATH)
