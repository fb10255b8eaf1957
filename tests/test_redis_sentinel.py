"""The primary that real Sentinels name, before and after it was lost.

The sweep is set so far apart here that it wakes nobody while the server tells of changes. While a
loop has no tracking connection, its keys are swept every 250 ms.
"""

import contextlib

import pytest

from support import ports
from support.certificates import make_certificate
from support.process import Process
from support.redis import REDIS, VALKEY, Redis, RedisClient, Refused, SecureFront, program
from support.secure_app import server_context
from support.wait import until

NAME = "mine"
KEY = "/poll/alice"
TOKEN = "a-token-of-thirty-two-characters"
FIELDS = {"Authorization": f"Bearer {TOKEN}"}
# As Sentinels take it: they are quick to give a server up, and to try again.
WATCH = "down-after-milliseconds {name} 1000\nsentinel failover-timeout {name} 3000"


class Sentinel(Process):
    """One Sentinel that watches a primary."""

    def __init__(self, folder, server, primary, quorum):
        self.address = ports.free_address()
        port = self.address[1]
        config = folder / f"sentinel-{port}.conf"
        watch = WATCH.format(name=NAME)
        config.write_text(
            f"bind {ports.HOST}\nport {port}\ndir {folder}\n"
            f"sentinel monitor {NAME} {ports.HOST} {primary[1]} {quorum}\nsentinel {watch}\n"
        )
        log = folder / f"sentinel-{port}.log"
        super().__init__([program(server), config, "--sentinel"], log, folder=folder)

    @property
    def url(self):
        return f"redis://{ports.text(self.address)}"

    def start_ready(self):
        return self.start_listening(self.address)

    def stop(self):
        if self.is_alive():
            self.kill()

    def ask(self, *words):
        return RedisClient(self.address).ask("SENTINEL", *words)

    def primary(self):
        """The port of the primary."""
        return int(self.ask("GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def counts(self):
        """Replicas and other Sentinels that it knows."""
        reply = self.ask("MASTER", NAME)
        facts = dict(zip(reply[::2], reply[1::2], strict=True))
        return int(facts[b"num-slaves"]), int(facts[b"num-other-sentinels"])


class Group:
    """A primary, its replica and three Sentinels."""

    def __init__(self, folder, cleanup, server):
        self.servers = [Redis(folder, server=server) for _ in range(2)]
        for one in self.servers:
            cleanup.callback(one.stop)
            one.start_ready()
        first, second = self.servers
        second.client().ask("REPLICAOF", ports.HOST, first.address[1])
        until(lambda: b"master_link_status:up" in info(second), "the replica follows")
        self.sentinels = [Sentinel(folder, server, first.address, 2) for _ in range(3)]
        for one in self.sentinels:
            cleanup.callback(one.stop)
            one.start_ready()
        known = (1, 2)
        until(
            lambda: all(one.counts() == known for one in self.sentinels), "the Sentinels have met"
        )

    @property
    def urls(self):
        return [one.url for one in self.sentinels]

    def of_port(self, port):
        return next(one for one in self.servers if one.address[1] == port)

    def primary(self):
        return self.of_port(self.sentinels[-1].primary())

    def await_other_primary(self, before):
        """Waits until all Sentinels name another one, and it is one."""
        port = before.address[1]
        until(lambda: all(one.primary() != port for one in self.sentinels), "another is named")
        after = self.primary()
        until(lambda: b"role:master" in info(after), "it is the primary")
        return after


def info(server):
    return server.client().ask("INFO", "replication")


@pytest.fixture(params=[REDIS, VALKEY])
def group(request, tmp_path, cleanup):
    return Group(tmp_path, cleanup, request.param)


@pytest.fixture
def start_edge(start_dwell):
    def start(urls, **options):
        redis = {"sentinels": urls, "sentinel_name": NAME, "sweep_interval": "60s"}
        # What is kept in memory is of one primary.
        redis |= {"timeout": "5s", "connect_timeout": "5s", "probe": "100ms"}
        redis |= {"kept_bytes_max": "1MiB"}
        return start_dwell(
            redis={**redis, **options},
            publish={"token": [TOKEN]},
            route=[{"prefix": "/poll/", "publish": True, "on_delete": "keep-waiting"}],
        )

    return start


def hold(edge, cleanup, key, others):
    connection = cleanup.enter_context(edge.connect())
    etag = edge.get(key).etag
    connection.ask(f"{key}?wait=50", fields={"If-None-Match": etag} if etag else ())
    edge.await_waiters(others + 1)
    return connection


def test_a_primary_that_is_killed_is_followed_by_another(group, start_edge, cleanup):
    edge, before = start_edge(group.urls), group.primary()
    keys = [f"/poll/{number}" for number in range(20)]
    for key in keys[:10]:
        assert edge.get(key, "PUT", FIELDS, b"before").status == 201
    # The replica has them as well.
    assert before.client().ask("WAIT", 1, 10_000) == 1
    polls = [hold(edge, cleanup, key, others) for others, key in enumerate(keys)]
    edge.await_metric(len(keys), "dwell_redis_armed_keys")
    before.kill()
    seen = set()

    def refuses():
        seen.add(edge.get(KEY, "PUT", FIELDS, b"lost").status)
        return 503 in seen

    until(refuses, "a publisher is refused while there is no primary")
    after = group.await_other_primary(before)
    cache = after.client()
    # News that came before the edge was there, for keys with and without a value.
    for key in keys[::2]:
        cache.set(key, b"after")
    for poll in polls[::2]:
        assert poll.answer().body == b"after"

    # The other loop may have to try once more.
    def is_published(key):
        seen.add(edge.get(key, "PUT", FIELDS, b"published").status)
        return after.client().get(key) == b"published"

    for key in keys[1::2]:
        until(lambda key=key: is_published(key), "it is published again")
    for poll in polls[1::2]:
        assert poll.answer().body == b"published"
    wanted = [b"after", b"published"] * 10
    assert [edge.get(key).body for key in keys] == wanted
    # The new primary tells of changes.
    poll = hold(edge, cleanup, KEY, 0)
    edge.await_metric(1, "dwell_redis_armed_keys")
    cache.set(KEY, b"told")
    assert poll.answer().body == b"told"
    # 502 is for what was sent when the primary was lost.
    assert seen <= {201, 204, 502, 503}, seen


def test_a_primary_that_has_become_a_replica_is_left(group, start_edge, cleanup):
    edge, before = start_edge(group.urls), group.primary()
    poll = hold(edge, cleanup, KEY, 0)
    edge.await_metric(1, "dwell_redis_armed_keys")

    def begun():
        with contextlib.suppress(Refused):
            return group.sentinels[0].ask("FAILOVER", NAME) == b"OK"

    until(begun, "a failover begins")
    after = group.await_other_primary(before)
    after.client().set(KEY, b"after")
    assert poll.answer().body == b"after"
    until(lambda: b"role:slave" in info(before), "the old one has become a replica")
    until(lambda: edge.get(KEY, "PUT", FIELDS, b"x").status == 204, "it is published")
    until(lambda: after.client().get(KEY) == b"x", "on the new one")


def test_sentinels_that_are_gone_are_passed_over(group, start_edge, cleanup):
    for one in group.sentinels[:2]:
        one.kill()
    edge = start_edge(group.urls)
    primary = group.primary()
    primary.client().set(KEY, b"1")
    until(lambda: edge.get(KEY).status == 200, "the third one is asked")
    poll = hold(edge, cleanup, KEY, 0)
    primary.client().set(KEY, b"2")
    assert poll.answer().body == b"2"
    place = f"{NAME} by Sentinel {group.urls[0]}"
    assert place in edge.admin("/-/health").body.decode()


@pytest.fixture(params=[REDIS, VALKEY])
def lone_sentinel(request, start_redis, tmp_path, cleanup):
    """A Sentinel, and the server that it takes for the primary."""
    server = start_redis(server=request.param)
    sentinel = Sentinel(tmp_path, request.param, server.address, 1).start_ready()
    cleanup.callback(sentinel.stop)
    return sentinel, server


def test_a_replica_that_is_named_is_not_used(lone_sentinel, start_edge, start_redis):
    sentinel, server = lone_sentinel
    other = start_redis()
    server.client().ask("REPLICAOF", ports.HOST, other.address[1])
    edge = start_edge([sentinel.url])
    server.client().ask("GET", KEY)
    edge.await_output("the server is not the primary, but a replica")
    assert edge.get(KEY).status == 503
    server.client().ask("REPLICAOF", "NO", "ONE")
    until(lambda: edge.get(KEY).status == 404, "it is used when it is the primary")


def test_both_connections_of_a_loop_are_to_one_primary(
    lone_sentinel, start_edge, start_redis, cleanup
):
    sentinel, server = lone_sentinel
    other = start_redis()
    edge = start_edge([sentinel.url])
    keys = [f"/poll/{number}" for number in range(8)]
    for key in keys:
        server.client().set(key, b"server")
    polls = [hold(edge, cleanup, key, number) for number, key in enumerate(keys)]
    edge.await_metric(8, "dwell_redis_armed_keys")
    edge.await_metric(8 * len(b"server"), "dwell_redis_kept_bytes")
    sentinel.ask("REMOVE", NAME)
    sentinel.ask("MONITOR", NAME, ports.HOST, other.address[1], 1)
    # Those that track are left alone: the edge itself finds that they are to the wrong server.
    plain, _ = dwells(server)
    assert len(plain) == 2
    for each in plain:
        server.client().ask("CLIENT", "KILL", "ID", each)
    for key in keys:
        other.client().set(key, b"other")
    for poll in polls:
        assert poll.answer().body == b"other"
    # Nothing that was read on the other server is left.
    assert {edge.get(key).body for key in keys} == {b"other"}


def dwells(server):
    """The ids of the connections of an edge to a server: plain ones, and those that track."""
    clients = server.client().ask("CLIENT", "LIST").decode().splitlines()
    facts = [dict(fact.split("=", 1) for fact in line.split() if "=" in fact) for line in clients]
    ours = [each for each in facts if each["name"] == "dwell"]
    tracking = {each["id"] for each in ours if "t" in each["flags"]}
    return {each["id"] for each in ours} - tracking, tracking


def test_sentinels_that_disagree_do_not_pull_a_loop_apart(
    lone_sentinel, start_edge, start_redis, tmp_path, cleanup
):
    sentinel, server = lone_sentinel
    other = start_redis()
    disagrees = Sentinel(tmp_path, REDIS, other.address, 1).start_ready()
    cleanup.callback(disagrees.stop)
    edge = start_edge([sentinel.url, disagrees.url])
    polls = []
    # The system chooses the loop of each client: there are polls until each loop has one.
    while len(dwells(server)[1]) < 2:
        number = len(polls)
        assert number < 64, "all polls are in one loop"
        polls.append(hold(edge, cleanup, f"/poll/{number}", number))
        edge.await_metric(number + 1, "dwell_redis_armed_keys")
    plain, before = dwells(server)
    assert (len(plain), len(before)) == (2, 2)
    # Those that come back ask no Sentinel: the next one would name the other server.
    for each in before:
        server.client().ask("CLIENT", "KILL", "ID", each)

    def are_back():
        now = dwells(server)[1]
        return len(now) == 2 and not now & before

    until(are_back, "they are back")
    assert dwells(server)[0] == plain, "the others have stayed"
    for number, poll in enumerate(polls):
        server.client().set(f"/poll/{number}", b"news")
        assert poll.answer().body == b"news"


def test_a_name_that_no_sentinel_knows_is_told(lone_sentinel, start_edge):
    sentinel, _ = lone_sentinel
    edge = start_edge([sentinel.url], sentinel_name="other")
    edge.await_output("the Sentinel knows no primary of the name other")
    assert edge.get(KEY).status == 503


def test_sentinels_and_the_primary_are_under_tls(lone_sentinel, start_edge, tmp_path, cleanup):
    sentinel, server = lone_sentinel
    pair = make_certificate(tmp_path, "redis", "redis.test")
    fronts = [SecureFront(each.address, server_context(*pair)) for each in (sentinel, server)]
    for front in fronts:
        cleanup.callback(front.start().close)
    # The Sentinel names the one that speaks TLS.
    of_sentinel, of_server = fronts
    sentinel.ask("REMOVE", NAME)
    sentinel.ask("MONITOR", NAME, ports.HOST, of_server.address[1], 1)
    options = {"tls_ca": str(pair[0]), "tls_server_name": "redis.test"}
    edge = start_edge([of_sentinel.url], **options)
    poll = hold(edge, cleanup, KEY, 0)
    server.client().set(KEY, b"1")
    assert poll.answer().body == b"1"
    assert edge.metric("dwell_redis_handshakes_total", outcome="done") >= 2
