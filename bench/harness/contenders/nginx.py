"""nginx doing the same work: a constant, a value from memcached, an application's answer.

One worker on the server's core, no access log, keep-alive to clients and, except where a row says
otherwise, to memcached and to the application.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from harness import memcached
from harness.contenders.base import BODY, HIT_KEYS, HIT_PATH, MISS_KEYS, Contender, Running
from harness.contenders.plain import start_floor
from harness.stage import HOST, LOAD_CORE, SERVER_CORE, Program, Stage

FRAME = """
{modules}
daemon off;
{user}
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log error;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    default_type text/plain;
    tcp_nodelay on;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {upstreams}
    server {{
        listen {host}:{port} backlog=4096;
        {locations}
    }}
}}
"""

UPSTREAM = """
    upstream {name} {{
        {placement}
        {servers}
        {keepalive}
    }}
"""

MEMCACHED_LOCATION = """
        location /poll/ {
            set $memcached_key $uri;
            memcached_pass cache;
            error_page 404 502 504 = @application;
        }
"""

APPLICATION_LOCATION = """
        location %s {
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }
"""

# More connections than wrk opens, so that none is closed for want of room.
KEEPALIVE = "keepalive 128; keepalive_requests 1000000000; keepalive_timeout 300s;"


def upstream(name: str, ports: list[int], keepalive: bool) -> str:
    """An `upstream` block; keys over several servers are placed by its consistent hash."""
    return UPSTREAM.format(
        name=name,
        placement="hash $memcached_key consistent;" if len(ports) > 1 else "",
        servers=" ".join(f"server {HOST}:{port} max_fails=0;" for port in ports),
        keepalive=KEEPALIVE if keepalive else "",
    )


def start_nginx(
    stage: Stage, upstreams: str, locations: str, modules: Sequence[Path] = ()
) -> tuple[Program, int]:
    """Starts nginx on the server's core with these parts of a configuration."""
    port = stage.free_port()
    configuration = stage.directory / "nginx.conf"
    configuration.write_text(
        FRAME.format(
            modules="\n".join(f"load_module {module};" for module in modules),
            user="user root;" if os.geteuid() == 0 else "",
            directory=stage.directory,
            host=HOST,
            port=port,
            upstreams=upstreams,
            locations=locations,
        )
    )
    arguments = ["nginx", "-p", str(stage.directory), "-c", str(configuration)]
    # Until it has read its own configuration, nginx complains to a log of the system's.
    arguments += ["-e", str(stage.directory / "error.log")]
    return stage.start("nginx", arguments, SERVER_CORE, [port]), port


class NginxReturn(Contender):
    """`return 200`: nginx at its cheapest."""

    name = "nginx_return"
    label = "nginx, return 200"
    traced = True

    def start(self, stage: Stage) -> Running:
        """Starts nginx with the answer in its configuration."""
        locations = f'location / {{ return 200 "{BODY.decode()}"; }}'
        program, port = start_nginx(stage, "", locations)
        return Running(program, port, HIT_PATH)


class NginxMemcached(Contender):
    """`memcached_pass`: the value from memcached, or after a miss the application's answer."""

    traced = True

    def __init__(
        self,
        name: str,
        label: str,
        *,
        servers: int = 1,
        keepalive: bool = True,
        many_keys: bool = False,
        miss: bool = False,
        plotted: bool = True,
        note: str = "",
    ) -> None:
        self.name = name
        self.label = label
        self.note = note
        self.plotted = plotted
        self._servers = servers
        self._keepalive = keepalive
        self._keys = MISS_KEYS if miss else HIT_KEYS if many_keys else None
        self._miss = miss

    def start(self, stage: Stage) -> Running:
        """Starts memcached, the application and nginx, and fills memcached unless it is to miss."""
        ports = [memcached.start(stage) for _ in range(self._servers)]
        _, application_port = start_floor(stage, LOAD_CORE)
        if not self._miss:
            for port in ports:
                memcached.fill(port, self._keys.paths() if self._keys else [HIT_PATH], BODY)
        upstreams = upstream("cache", ports, self._keepalive)
        upstreams += upstream("application", [application_port], keepalive=True)
        locations = MEMCACHED_LOCATION + APPLICATION_LOCATION % "@application"
        program, port = start_nginx(stage, upstreams, locations)
        return Running(program, port, HIT_PATH, self._keys)


class NginxProxy(Contender):
    """`proxy_pass`: every request to the application, no cache asked."""

    name = "nginx_proxy"
    label = "nginx, proxy_pass"
    traced = True
    note = "asks no store first"

    def start(self, stage: Stage) -> Running:
        """Starts the application and nginx before it."""
        _, application_port = start_floor(stage, LOAD_CORE)
        upstreams = upstream("application", [application_port], keepalive=True)
        program, port = start_nginx(stage, upstreams, APPLICATION_LOCATION % "/")
        return Running(program, port, MISS_KEYS.path(0), MISS_KEYS)
