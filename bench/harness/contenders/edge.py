"""The polling edge, answering from a store or from the application behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness import memcached, redis
from harness.contenders.base import BODY, HIT_KEYS, HIT_PATH, MISS_KEYS, Contender, Running
from harness.contenders.plain import start_floor
from harness.paths import release_directory
from harness.stage import HOST, LOAD_CORE, SERVER_CORE, Program, Stage

# As many as nginx keeps open: more than wrk opens.
KEEPALIVE_CONNECTIONS = 128


@dataclass(frozen=True)
class Edge:
    """A running `dwell serve`; `store_port` is where keys are written."""

    program: Program
    port: int
    store_port: int
    admin_port: int


def start_edge(
    stage: Stage,
    memcached_ports: list[int],
    upstream_port: int | None = None,
    options: Sequence[str] = (),
    redis_port: int | None = None,
) -> Edge:
    """Starts `dwell serve` with one loop on the server's core.

    Shape: on the embedded store if there is neither memcached nor Redis; `options` are further ones
    of the command line.
    """
    port, admin_port = stage.free_port(), stage.free_port()
    arguments = [str(release_directory() / "dwell"), "serve", "--listen", f"{HOST}:{port}"]
    arguments += ["--admin", f"{HOST}:{admin_port}", "--pollers", "1"]
    ready = [port, admin_port]
    if memcached_ports:
        store_port = memcached_ports[0]
        for server_port in memcached_ports:
            arguments += ["--memcached", f"{HOST}:{server_port}"]
    elif redis_port is not None:
        store_port = redis_port
        arguments += ["--redis", f"redis://{HOST}:{redis_port}"]
    else:
        store_port = stage.free_port()
        ready.append(store_port)
        arguments += ["--store", f"{HOST}:{store_port}"]
    if upstream_port is not None:
        arguments += ["--upstream", f"http://{HOST}:{upstream_port}"]
        arguments += ["--set", f"upstream.idle_max={KEEPALIVE_CONNECTIONS}"]
    program = stage.start("dwell", [*arguments, *options], SERVER_CORE, ready)
    return Edge(program, port, store_port, admin_port)


class EdgeHit(Contender):
    """A poll answered from the embedded store or from memcached."""

    ours = True
    traced = True

    def __init__(
        self, name: str, label: str, servers: int, many_keys: bool, note: str = ""
    ) -> None:
        self.name = name
        self.label = label
        self.note = note
        self._servers = servers
        self._many_keys = many_keys

    def start(self, stage: Stage) -> Running:
        """Starts the edge and fills its store, or every memcached server, with the keys."""
        ports = [memcached.start(stage) for _ in range(self._servers)]
        edge = start_edge(stage, ports)
        keys = HIT_KEYS.paths() if self._many_keys else [HIT_PATH]
        for port in ports or [edge.store_port]:
            memcached.fill(port, keys, BODY)
        return Running(edge.program, edge.port, HIT_PATH, HIT_KEYS if self._many_keys else None)


class EdgeRedis(Contender):
    """A poll answered from Redis."""

    name = "edge_redis_keys"
    label = "dwell edge, Redis, 1,000 keys"
    ours = True
    traced = True
    note = "its target divides it by `nginx_memcached_keys`"

    def start(self, stage: Stage) -> Running:
        """Starts Redis with the keys, and the edge."""
        port = redis.start(stage)
        edge = start_edge(stage, [], redis_port=port)
        client = redis.Client(port)
        client.set_all(HIT_KEYS.paths(), BODY)
        client.close()
        return Running(edge.program, edge.port, HIT_PATH, HIT_KEYS)


class EdgeMiss(Contender):
    """A poll for a key nobody has stored, answered by the application."""

    ours = True
    traced = True

    def __init__(self, name: str, label: str, servers: int) -> None:
        self.name = name
        self.label = label
        self._servers = servers

    def start(self, stage: Stage) -> Running:
        """Starts the application on the load generator's core and the edge before it."""
        ports = [memcached.start(stage) for _ in range(self._servers)]
        _, upstream_port = start_floor(stage, LOAD_CORE)
        edge = start_edge(stage, ports, upstream_port)
        return Running(edge.program, edge.port, MISS_KEYS.path(0), MISS_KEYS)
