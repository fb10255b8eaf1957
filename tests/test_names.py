"""Host names that get another address while the process serves: a reload looks them up again.

The process has a hosts file of its own, in a mount namespace of its own.
"""

import shutil
import signal
import subprocess

import pytest

from support import ports
from support.dwell import Dwell
from support.http import request
from support.memcached import Memcached, store_client
from support.redis import REDIS, VALKEY, Redis
from support.upstream import Answer, Upstream
from support.wait import until

KEY = "/poll/alice"
BIND = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
HOSTS = ("127.0.0.1", "127.0.0.2")


def can_have_hosts(tmp_path):
    """Whether a process can have a hosts file of its own here."""
    if not shutil.which("unshare"):
        return False
    hosts = tmp_path / "tried"
    hosts.write_text("127.0.0.1 tried.test\n")
    tried = [*BIND, str(hosts), "true"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


class Named:
    """A process for which `app.test` and `cache.test` have the addresses that a test wants."""

    def __init__(self, folder, **sections):
        self.hosts = folder / "hosts"
        self.resolve(app=HOSTS[0], cache=HOSTS[0])
        self.dwell = Dwell(folder, **sections)
        self.dwell.arguments = [*BIND, str(self.hosts), *self.dwell.arguments]

    def resolve(self, **addresses):
        # Not replaced: the mount is of this very file.
        lines = [f"{address} {name}.test\n" for name, address in addresses.items() if address]
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(lines))

    def reload(self):
        generation = self.dwell.metric("dwell_config_generation")
        self.dwell.signal(signal.SIGHUP)
        self.dwell.await_metric(generation + 1, "dwell_config_generation")


@pytest.fixture
def named(cleanup, tmp_path):
    if not can_have_hosts(tmp_path):
        pytest.skip("no mount namespace can be made here")

    def start(**sections):
        named = Named(tmp_path, **sections)
        cleanup.callback(named.dwell.stop)
        named.dwell.start_ready()
        return named

    return start


@pytest.fixture
def apps(cleanup):
    """Two applications at one port, each at one of `HOSTS`; each says which it is."""
    port = ports.free_address()[1]
    apps = []
    for host in HOSTS:
        app = Upstream()
        app.address = (host, port)
        app.answer = lambda _, host=host: Answer(host.encode())
        cleanup.callback(app.start().stop)
        apps.append(app)
    return apps


def test_the_application_is_where_its_name_is(named, apps):
    port = apps[0].address[1]
    it = named(upstream={"url": f"http://app.test:{port}"})
    dwell = it.dwell
    assert dwell.get("/page").body == HOSTS[0].encode()
    apps[0].hang()
    with dwell.connect() as under_way:
        under_way.ask("/page")
        apps[0].await_requests(2)
        it.resolve(app=HOSTS[1])
        it.reload()
        dwell.await_output(f"address={HOSTS[1]}:{port}")
        assert dwell.get("/page").body == HOSTS[1].encode()
        apps[0].gate.set()
        assert under_way.answer().body == HOSTS[0].encode(), "what was sent there is answered"
    # A name that is gone keeps its address, and the file is read all the same.
    it.resolve()
    dwell.rewrite(limits={"waiters_max": 0})
    it.reload()
    dwell.await_output("the address before stays: cannot resolve app.test")
    assert dwell.get("/page").body == HOSTS[1].encode()
    assert dwell.get(f"{KEY}?wait=30").status == 200, "the miss is answered by the application"
    assert dwell.metric("dwell_config_last_reload_successful") == 1
    # One that has never had an address is a mistake.
    dwell.rewrite(upstream={"url": f"http://other.test:{port}"})
    refused = dwell.metric("dwell_config_reloads_total", outcome="refused")
    dwell.signal(signal.SIGHUP)
    dwell.await_metric(refused + 1, "dwell_config_reloads_total", outcome="refused")
    assert dwell.get("/page").body == HOSTS[1].encode()


def test_an_address_that_stays_keeps_its_connections(named, apps):
    port = apps[0].address[1]
    it = named(upstream={"url": f"http://app.test:{port}"}, server={"pollers": 1})
    assert it.dwell.get("/page").status == 200
    assert it.dwell.metric("dwell_upstream_connections_open") == 1
    # Another one beside it, in front or behind, is no reason to leave.
    for hosts in (HOSTS, HOSTS[::-1]):
        it.hosts.write_text("".join(f"{host} app.test\n" for host in hosts))
        it.reload()
        assert it.dwell.metric("dwell_upstream_connections_open") == 1
        assert it.dwell.get("/page").body == HOSTS[0].encode()


def test_without_a_file_names_are_looked_up_as_well(named, apps):
    port = apps[0].address[1]
    it = named()
    dwell = it.dwell
    dwell.stop()
    server, store = dwell.sections["server"], dwell.sections["store"]
    flags = ["--listen", server["listen"], "--admin", server["admin"], "--store", store["listen"]]
    at = dwell.arguments.index("--config")
    dwell.arguments = [*dwell.arguments[:at], *flags, "--upstream", f"http://app.test:{port}"]
    dwell.start_ready()
    assert dwell.get("/page").body == HOSTS[0].encode()
    it.resolve(app=HOSTS[1])
    it.reload()
    assert dwell.get("/page").body == HOSTS[1].encode()
    # Nothing has changed: nothing is applied.
    dwell.signal(signal.SIGHUP)
    until(lambda: dwell.output().count("no server has another address") == 1, "it is done")
    assert dwell.metric("dwell_config_generation") == 2


@pytest.mark.parametrize("watch", [False, True])
def test_memcached_is_where_its_name_is(named, cleanup, tmp_path, watch):
    port = ports.free_address()[1]
    for host in HOSTS:
        folder = tmp_path / host
        folder.mkdir()
        server = Memcached(folder)
        server.arguments[server.arguments.index("-l") + 1] = host
        server.arguments[server.arguments.index("-p") + 1] = str(port)
        server.address = (host, port)
        cleanup.callback(server.stop)
        server.start_ready()
        store_client(server.address).set(KEY, host.encode())
    it = named(memcached={"servers": f"cache.test:{port}", "watch": watch})
    dwell = it.dwell
    first = dwell.get(KEY)
    assert first.body == HOSTS[0].encode()
    with dwell.connect() as held:
        held.send(request(f"{KEY}?wait=50", fields={"If-None-Match": first.etag}))
        dwell.await_waiters(1)
        it.resolve(cache=HOSTS[1])
        it.reload()
        assert held.answer().body == HOSTS[1].encode(), "a held poll has what is there"
    assert dwell.get(KEY).body == HOSTS[1].encode()
    with dwell.connect() as held:
        held.send(request(f"{KEY}?wait=50", fields={"If-None-Match": dwell.get(KEY).etag}))
        dwell.await_waiters(1)
        store_client((HOSTS[1], port)).set(KEY, b"new")
        assert held.answer().body == b"new"


@pytest.mark.parametrize("server", [REDIS, VALKEY])
def test_redis_is_where_its_name_is(named, cleanup, tmp_path, server):
    """What a held poll and a WebSocket wait for is read at the new address, and told by it."""
    port = ports.free_address()[1]
    servers = []
    for host in HOSTS:
        redis = Redis(tmp_path, "--protected-mode", "no", server=server)
        at = redis.arguments.index("--port")
        redis.arguments[at + 1] = str(port)
        redis.arguments[redis.arguments.index("--bind") + 1] = host
        redis.address = (host, port)
        cleanup.callback(redis.stop)
        redis.start_ready()
        redis.client().set(KEY, host.encode())
        servers.append(redis)
    it = named(redis={"url": f"redis://cache.test:{port}", "sweep_interval": "60s"})
    dwell = it.dwell
    first = dwell.get(KEY)
    assert first.body == HOSTS[0].encode()

    def hold(path, fields=()):
        connection = cleanup.enter_context(dwell.connect())
        connection.send(request(f"{path}?wait=50", fields=fields))
        return connection

    held = hold(KEY, {"If-None-Match": first.etag})
    absent = hold("/poll/absent")
    dwell.await_waiters(2)
    dwell.await_metric(2, "dwell_redis_armed_keys")
    it.resolve(cache=HOSTS[1])
    it.reload()
    dwell.await_output(f"address={HOSTS[1]}:{port}")
    assert held.answer().body == HOSTS[1].encode(), "a held poll has what is there"
    servers[1].client().set("/poll/absent", b"first")
    assert absent.answer().body == b"first"
    assert dwell.get(KEY).body == HOSTS[1].encode()
    until(lambda: len(connections(servers[0])) == 1, "nothing is left at the old address")
    held = hold(KEY, {"If-None-Match": dwell.get(KEY).etag})
    dwell.await_waiters(1)
    servers[1].client().set(KEY, b"new")
    assert held.answer().body == b"new"
    assert dwell.metric("dwell_redis_sweeps_total") == 0
    # The old one may go: nothing depends on it.
    servers[0].kill()
    it.reload()
    assert dwell.get(KEY).body == b"new"


def connections(redis):
    return redis.client().ask("CLIENT", "LIST").splitlines()


def test_sentinels_and_servers_of_a_cluster_without_an_address_are_left_out(
    named, cleanup, tmp_path
):
    """A reload takes the others, as a start does."""
    redis = Redis(tmp_path)
    cleanup.callback(redis.stop)
    redis.start_ready()
    port = redis.address[1]
    it = named(redis={"cluster": [f"redis://cache.test:{port}", f"redis://none.test:{port}"]})
    it.dwell.await_output("a server of Redis is left out: cannot resolve none.test")
    it.resolve(cache=HOSTS[1])
    it.reload()
    it.dwell.await_output(f"address={HOSTS[1]}:{port}")
