"""Which contenders meet in which table."""

from dataclasses import dataclass

from harness.contenders import (
    Contender,
    Design2009,
    EdgeHit,
    EdgeMiss,
    EdgeRedis,
    EngineHello,
    Floor,
    LookupFloor,
    NginxFile,
    NginxMemcached,
    NginxProxy,
    NginxReturn,
    NginxReturn304,
    Unchanged,
)


@dataclass(frozen=True)
class Group:
    """Contenders measured in turn with the same load, and shown in one table."""

    name: str
    title: str
    contenders: tuple[Contender, ...]


EDGE_EMBEDDED = EdgeHit(
    "edge_embedded", "dwell edge, embedded store, one key", servers=0, many_keys=False
)
EDGE_MEMCACHED = EdgeHit(
    "edge_memcached",
    "dwell edge, memcached, one key",
    servers=1,
    many_keys=False,
    note="lookups of one turn for one key can share an answer",
)
NGINX_MEMCACHED = NginxMemcached("nginx_memcached", "nginx, memcached_pass, one key")

REQUEST_GROUPS = (
    Group(
        "answer",
        "An answer of 13 bytes, a program's own or a stored one",
        (
            Floor(),
            EngineHello(),
            EDGE_EMBEDDED,
            EdgeHit(
                "edge_embedded_keys",
                "dwell edge, embedded store, 1,000 keys",
                servers=0,
                many_keys=True,
            ),
            NginxReturn(),
        ),
    ),
    Group(
        "unchanged",
        "A poll that has the newest value already: 304",
        (
            Unchanged("edge_unchanged", "dwell edge, embedded store, one key", EDGE_EMBEDDED),
            Unchanged(
                "nginx_unchanged", "nginx, a file", NginxFile(), note="with `open_file_cache`"
            ),
            NginxReturn304(),
        ),
    ),
    Group(
        "memcached",
        "The value from memcached or Redis (on the load generator's core)",
        (
            LookupFloor(),
            EDGE_MEMCACHED,
            NGINX_MEMCACHED,
            EdgeHit(
                "edge_memcached_keys",
                "dwell edge, memcached, 1,000 keys",
                servers=1,
                many_keys=True,
            ),
            EdgeRedis(),
            NginxMemcached(
                "nginx_memcached_keys", "nginx, memcached_pass, 1,000 keys", many_keys=True
            ),
            EdgeHit(
                "edge_memcached_two",
                "dwell edge, 2 memcached, 1,000 keys",
                servers=2,
                many_keys=True,
            ),
            NginxMemcached(
                "nginx_memcached_two",
                "nginx, 2 memcached, 1,000 keys",
                servers=2,
                many_keys=True,
                note="keys placed by `hash ... consistent`",
            ),
            Design2009(),
            NginxMemcached(
                "nginx_memcached_close",
                "nginx, memcached_pass, no keepalive",
                keepalive=False,
                plotted=False,
                note="as configured by default: a new connection to memcached per request",
            ),
        ),
    ),
    Group(
        "miss",
        "A key nobody has stored: the answer of the application behind",
        (
            EdgeMiss("edge_miss", "dwell edge, miss in the embedded store", servers=0),
            NginxProxy(),
            EdgeMiss("edge_memcached_miss", "dwell edge, miss in memcached", servers=1),
            NginxMemcached(
                "nginx_memcached_miss",
                "nginx, memcached_pass, then proxy_pass",
                miss=True,
                note="`error_page 404 = @application`",
            ),
        ),
    ),
)

# A connection per request, as in 2009.
AB_CONTENDERS: tuple[Contender, ...] = (
    EDGE_EMBEDDED,
    EDGE_MEMCACHED,
    NGINX_MEMCACHED,
    Design2009(),
)

# Who holds the idle keep-alive connections.
IDLE_CONTENDERS: tuple[Contender, ...] = (EDGE_EMBEDDED, EngineHello(), Floor(), NginxReturn())
