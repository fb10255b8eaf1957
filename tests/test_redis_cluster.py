"""Real clusters of Redis and Valkey: every key has a primary of its own, and it may change.

The sweep is set so far apart here that it wakes nobody while the servers announce changes.
"""

import contextlib
import itertools
import json
import socket
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from support import ports
from support.certificates import make_certificate
from support.events import EventStream
from support.redis import REDIS, VALKEY, SecureFront
from support.redis_cluster import SLOTS, Cluster, slot_of
from support.secure_app import server_context
from support.wait import until

TOKEN = "a-token-of-thirty-two-characters"
FIELDS = {"Authorization": f"Bearer {TOKEN}"}
# Keys that one poll may name, and those that an event loop reads in a second while a slot moves.
KEYS_MAX, READS_PER_SECOND = 64, 20_000
MANY = 10_000
KEYS = [f"/poll/{number}" for number in range(24)]


@pytest.fixture(params=[REDIS, VALKEY], scope="module")
def of_module(request):
    """One cluster for all tests, as its start takes seconds."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        yield Cluster(Path(folder), stack, request.param)


@pytest.fixture
def cluster(of_module):
    of_module.reset()
    yield of_module
    for node in of_module.nodes:
        if node.is_alive():
            node.resume()


@pytest.fixture
def start_edge(start_dwell):
    def start(urls, pollers=0, **options):
        redis = {"cluster": urls, "sweep_interval": "60s", "kept_bytes_max": "1MiB"}
        redis |= {"timeout": "5s", "connect_timeout": "5s", "probe": "100ms"}
        return start_dwell(
            server={"pollers": pollers},
            redis={**redis, **options},
            publish={"token": [TOKEN]},
            route=[{"prefix": "/poll/", "publish": True, "on_delete": "keep-waiting"}],
        )

    return start


def hold(edge, cleanup, key, others=0):
    """A poll that is held, as it has the value that is there."""
    connection = cleanup.enter_context(edge.connect())
    etag = edge.get(key).etag
    connection.ask(f"{key}?wait=50", fields={"If-None-Match": etag} if etag else ())
    edge.await_waiters(others + 1)
    return connection


def beside(key):
    """Another key of the same slot."""
    others = (f"/poll/other{number}" for number in itertools.count())
    return next(other for other in others if slot_of(other) == slot_of(key))


def hold_all(edge, cleanup, keys):
    polls = {key: hold(edge, cleanup, key, place) for place, key in enumerate(keys)}
    edge.await_metric(len(keys), "dwell_redis_armed_keys")
    return polls


def test_polls_are_woken_by_a_client_of_the_cluster(cluster, start_edge, cleanup):
    edge = start_edge(cluster.urls)
    assert len({cluster.primary_of(key) for key in KEYS}) == 3
    for key in KEYS[::2]:
        cluster.set(key, "before")
    polls = hold_all(edge, cleanup, KEYS)
    for key, poll in polls.items():
        cluster.set(key, f"news of {key}")
        assert poll.answer().body == f"news of {key}".encode()
    assert edge.metric("dwell_redis_primaries") == 3
    with EventStream(edge.admin_address, "/-/dashboard/events").begin() as stream:
        stream.event()
        shown = json.loads(stream.event().data)["servers"]
    assert len(shown) == 3
    for node in cluster.primaries():
        server = ports.text(node.address)
        assert edge.metric("dwell_redis_primary_up", server=server) == 1
        assert {"name": server, "state": "up"} in shown
    assert edge.metric("dwell_redis_missing_slots") == 0
    assert edge.metric("dwell_redis_redirects_total", kind="moved") == 0
    assert '"state":"up"' in edge.admin("/-/health").body.decode()


def test_what_is_published_goes_to_the_primary_of_its_key(cluster, start_edge, cleanup):
    # Any one server is enough to know of the others.
    edge = start_edge(cluster.urls[1])
    polls = hold_all(edge, cleanup, KEYS)
    for key, poll in polls.items():
        assert edge.get(key, "PUT", FIELDS, b"1").status == 201
        assert poll.answer().body == b"1"
        assert cluster.primary_of(key).client().get(key) == b"1"
        assert edge.get(key, "PUT", FIELDS, b"2").status == 204
        fields = {**FIELDS, "If-Match": edge.get(key).etag}
        assert edge.get(key, "PUT", fields, b"3").status == 204
        assert edge.get(key, "PUT", fields, b"4").status == 412
        assert edge.get(key).body == b"3"
    for key in KEYS:
        assert edge.get(key, "DELETE", FIELDS).status == 204
        assert cluster.primary_of(key).client().get(key) is None


@pytest.mark.parametrize("tracking", ["prefix", "off"])
def test_other_ways_to_find_changes(cluster, start_edge, cleanup, tracking):
    edge = start_edge(cluster.urls, tracking=tracking)
    polls = {key: hold(edge, cleanup, key, place) for place, key in enumerate(KEYS)}
    for key, poll in polls.items():
        cluster.set(key, key)
        assert poll.answer().body == key.encode()


@pytest.mark.parametrize("tracking", ["keys", "prefix", "off"])
def test_keys_of_a_slot_that_moves_are_followed(cluster, start_edge, cleanup, tracking):
    edge = start_edge(cluster.urls, tracking=tracking)
    # One with a value, one without.
    keys = [KEYS[0], beside(KEYS[0])]
    source = cluster.primary_of(KEYS[0])
    target = cluster.other_primary(source)
    source.client().set(keys[0], b"before")
    polls = {keys[0]: hold(edge, cleanup, keys[0])}
    cluster.begin_move(KEYS[0], source, target)
    polls[keys[1]] = hold(edge, cleanup, keys[1], 1)
    cluster.move_keys(KEYS[0], source, target)
    # The keys are at the target, and the slot is not.
    for key in keys:
        cluster.set(key, "moving")
        assert polls[key].answer().body == b"moving"
        assert edge.get(key).body == b"moving"
        assert edge.get(key, "PUT", FIELDS, b"published").status == 204
        assert edge.get(key).body == b"published"
    polls = {key: hold(edge, cleanup, key, place) for place, key in enumerate(keys)}
    assert edge.metric("dwell_redis_redirects_total", kind="ask") > 0
    cluster.end_move(KEYS[0], source, target)
    for key in keys:
        target.client().set(key, b"after")
        assert polls[key].answer().body == b"after"
        assert edge.get(key, "PUT", FIELDS, b"last").status == 204
        assert target.client().get(key) == b"last"


def test_a_key_without_a_value_is_waited_for_where_its_slot_is_now(cluster, start_edge, cleanup):
    edge = start_edge(cluster.urls)
    polls = hold_all(edge, cleanup, KEYS[:8])
    for key in KEYS[:8]:
        cluster.move(key)
    # No server tells that it has moved.
    for key, poll in polls.items():
        cluster.set(key, "after")
        assert poll.answer().body == b"after"


@pytest.mark.parametrize("tracking", ["keys", "prefix"])
def test_a_first_value_is_found_while_its_slot_moves(cluster, start_edge, cleanup, tracking):
    edge = start_edge(cluster.urls, tracking=tracking, cluster_interval="100ms")
    key = KEYS[0]
    source = cluster.primary_of(key)
    target = cluster.other_primary(source)
    polls = hold_all(edge, cleanup, [key, beside(key)])
    cluster.begin_move(key, source, target)
    # The keys are created at the target, and the source has never had them.
    for name, poll in polls.items():
        cluster.set(name, "first")
        assert poll.answer().body == b"first"
    assert source.client().ask("CLUSTER", "COUNTKEYSINSLOT", slot_of(key)) == 0


def test_a_move_that_is_given_up_loses_nothing(cluster, start_edge, cleanup):
    edge = start_edge(cluster.urls)
    key = KEYS[0]
    source = cluster.primary_of(key)
    target = cluster.other_primary(source)
    cluster.begin_move(key, source, target)
    poll = hold(edge, cleanup, key)
    for node in (source, target):
        node.client().ask("CLUSTER", "SETSLOT", slot_of(key), "STABLE")
    cluster.set(key, "there")
    assert poll.answer().body == b"there"


def test_ten_thousand_keys_of_a_slot_that_moves_are_all_followed(cluster, start_edge, cleanup):
    """Their reads while it moves are paced, and no wait is left behind."""
    edge = start_edge(cluster.urls, pollers=1, cluster_interval="100ms")
    names = [f"{{many}}{number}" for number in range(MANY)]
    source = cluster.primary_of("many")
    target = cluster.other_primary(source)
    client = source.client()
    # Every second key has a value.
    client.set_many({f"/poll/{name}": b"0" for name in names[::2]})
    groups = [names[at : at + KEYS_MAX] for at in range(0, MANY, KEYS_MAX)]
    polls = [hold_group(edge, cleanup, group) for group in groups]
    edge.await_metric(MANY, "dwell_redis_armed_keys")
    before, began = edge.metric("dwell_redis_rereads_total"), time.monotonic()

    def read():
        return edge.metric("dwell_redis_rereads_total") - before

    cluster.begin_move("many", source, target)
    slot = slot_of("many")
    while moved := client.ask("CLUSTER", "GETKEYSINSLOT", slot, 500):
        client.ask("MIGRATE", *target.address, "", 0, 10_000, "KEYS", *moved)
    # First values are created at the target, and what has moved there is changed.
    first, changed = groups[0][1], groups[1][0]
    for name, poll in ((first, polls[0]), (changed, polls[1])):
        cluster.set(f"/poll/{name}", "moving")
        assert poll.answer_of(name) == "moving"
    until(lambda: read() > 10 * MANY, "they are read again and again")
    cluster.end_move("many", source, target)
    edge.await_metric(MANY - 2 * KEYS_MAX, "dwell_redis_armed_keys")
    reads = read()
    elapsed = time.monotonic() - began
    # At the beginning, before they are many, and at the end, each key is read sooner.
    assert reads <= READS_PER_SECOND * elapsed + 4 * MANY
    # The target announces each change, whatever a sweep reads that has begun before it did.
    announced = edge.metric("dwell_redis_pushes_total", kind="waited")
    rest = list(zip(groups, polls, strict=True))[2:]
    for group, poll in rest:
        name = group[len(group) // 2 + 1]
        target.client().set(f"/poll/{name}", b"after")
        assert poll.answer_of(name) == "after"
    announced = edge.metric("dwell_redis_pushes_total", kind="waited") - announced
    assert announced >= len(rest)


class Group:
    """One poll that waits for several keys."""

    def __init__(self, connection, target):
        self.connection, self.target = connection, target

    def answer_of(self, name):
        return json.loads(self.connection.answer().body)["values"][name]["v"]


def hold_group(edge, cleanup, names):
    """A poll that has all values there are, and waits."""
    connection = cleanup.enter_context(edge.connect())
    target = "/poll/?" + "&".join(f"k={quote(name)}" for name in names)
    cursor = json.loads(connection.get(target).body)["cursor"]
    connection.ask(f"{target}&since={cursor}&wait=50")
    return Group(connection, target)


def test_values_are_never_older_while_a_slot_moves_to_and_fro(cluster, start_edge, cleanup):
    edge = start_edge(cluster.urls)
    key, is_over, seen = KEYS[0], threading.Event(), []

    def follow():
        connection = cleanup.enter_context(edge.connect())
        etag = None
        while not seen or seen[-1] < 60:
            fields = {"If-None-Match": etag} if etag else ()
            connection.ask(f"{key}?wait=20", fields=fields)
            answer = connection.answer()
            if answer.status == 200:
                seen.append(int(answer.body))
                etag = answer.etag
        is_over.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    for number in range(1, 61):
        if number % 10 == 0:
            cluster.move(key)
        cluster.set(key, str(number))
    assert is_over.wait(30), seen
    assert seen == sorted(seen), seen


def test_a_primary_that_is_killed_is_followed_by_its_replica(cluster, start_edge, cleanup):
    edge = start_edge(cluster.urls, timeout="1s")
    before = cluster.primary_of(KEYS[0])
    others = [key for key in KEYS if cluster.primary_of(key) is not before]
    lost = [key for key in KEYS if cluster.primary_of(key) is before]
    for key in KEYS[::2]:
        cluster.set(key, "before")
    assert before.client().ask("WAIT", 1, 10_000) == 1
    after = cluster.replica_of(before)
    polls = hold_all(edge, cleanup, KEYS)
    before.kill()
    # The other primaries have theirs meanwhile.
    for key in others:
        assert edge.get(key, "PUT", FIELDS, b"meanwhile").status in (201, 204)
        assert polls[key].answer().body == b"meanwhile"
    until(lambda: after.info("replication")["role"] == "master", "the replica is the primary")
    until(lambda: after.info("cluster")["cluster_state"] == "ok", "it serves")
    for key in lost[::2]:
        after.client().set(key, b"after")
        assert polls[key].answer().body == b"after"
    for key in lost[1::2]:
        until(
            lambda key=key: edge.get(key, "PUT", FIELDS, b"published").status in (201, 204),
            "it is published again",
        )
        assert polls[key].answer().body == b"published"


def test_a_primary_that_is_paused_keeps_the_others_from_nothing(cluster, start_edge, cleanup):
    edge = start_edge(cluster.urls, timeout="500ms")
    paused = cluster.primary_of(KEYS[0])
    others = [key for key in KEYS if cluster.primary_of(key) is not paused]
    waited = [key for key in KEYS if cluster.primary_of(key) is paused]
    polls = hold_all(edge, cleanup, KEYS)
    after = cluster.replica_of(paused)
    paused.pause()
    for key in others:
        assert edge.get(key, "PUT", FIELDS, b"1").status == 201
        assert polls[key].answer().body == b"1"
    until(lambda: after.info("replication")["role"] == "master", "the replica is the primary")
    until(lambda: after.info("cluster")["cluster_state"] == "ok", "it serves")
    for key in waited[::2]:
        after.client().set(key, b"2")
        assert polls[key].answer().body == b"2"
    # What it still thinks to have is of the past.
    paused.resume()
    for key in waited[1::2]:
        after.client().set(key, b"3")
        assert polls[key].answer().body == b"3"
        assert edge.get(key).body == b"3"


def test_keys_of_a_slot_that_nobody_has_are_misses_and_others_are_not(cluster, start_edge, cleanup):
    edge = start_edge(cluster.urls, cluster_interval="100ms")
    key = KEYS[0]
    owner, slot = cluster.primary_of(key), slot_of(KEYS[0])
    others = [other for other in KEYS[1:] if slot_of(other) != slot]
    cluster.set(key, "before")
    for node in cluster.nodes:
        node.client().ask("CLUSTER", "DELSLOTS", slot)
    try:
        edge.await_metric(1, "dwell_redis_missing_slots")
        until(lambda: edge.get(key).status == 503, "it is a miss")
        assert edge.get(key, "PUT", FIELDS, b"1").status == 503
        for other in others:
            assert edge.get(other, "PUT", FIELDS, b"1").status == 201
        said = edge.output().count("slots of the Redis cluster have no primary")
        assert said == edge.output().count("missing_slots=1") <= 2
        waiting = cleanup.enter_context(edge.connect())
        waiting.ask(f"{others[0]}?wait=50", fields={"If-None-Match": edge.get(others[0]).etag})
        edge.await_waiters(1)
        cluster.primary_of(others[0]).client().set(others[0], b"2")
        assert waiting.answer().body == b"2"
    finally:
        owner.client().ask("CLUSTER", "ADDSLOTS", slot)
    until(lambda: edge.get(key).status == 200, "it is there again")
    edge.await_metric(0, "dwell_redis_missing_slots")


def test_servers_that_are_no_use_are_passed_over(cluster, start_edge, raw_server, cleanup):
    nonsense = f"redis://{ports.text(raw_server)}"
    gone = f"redis://{ports.text(ports.free_address())}"
    edge = start_edge([gone, nonsense, cluster.urls[2]], connect_timeout="500ms")
    until(lambda: edge.get(KEYS[0]).status == 404, "one of them knows the others")
    polls = hold_all(edge, cleanup, KEYS[:6])
    for key, poll in polls.items():
        cluster.set(key, "1")
        assert poll.answer().body == b"1"


@pytest.fixture
def raw_server(cleanup):
    """Replies to whatever it is sent with what is no list of slots."""
    listener = socket.create_server((ports.HOST, 0))
    cleanup.callback(listener.close)

    def serve(connection):
        with contextlib.suppress(OSError), connection:
            while connection.recv(65536):
                connection.sendall(b"%1\r\n+role\r\n+master\r\n*1\r\n:7\r\n*1\r\n:7\r\n")

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=[connection], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()


RIGHTS = ["+hello", "+get", "+pttl", "+ping", "+client|tracking", "+set", "+del"]
RIGHTS += ["+info", "+config|get", "+cluster|slots", "+cluster|info", "+cluster|nodes", "+asking"]


def with_user(nodes, folder):
    """The options of a user of all servers, who has the rights that are documented."""
    for node in nodes:
        node.client().ask("ACL", "SETUSER", "edge", "on", ">se cret", "~*", *RIGHTS)
        node.client().ask("ACL", "LOG", "RESET")
    (folder / "password").write_text("se cret\n")
    return {"username": "edge", "password_file": str(folder / "password")}


def users(node):
    """The users of the connections of edges to a server."""
    clients = node.client().ask("CLIENT", "LIST").decode().splitlines()
    facts = [dict(fact.split("=", 1) for fact in line.split() if "=" in fact) for line in clients]
    return {each["user"] for each in facts if each["name"] == "dwell"}


def test_the_rights_that_are_documented_are_enough(cluster, start_edge, cleanup, tmp_path):
    edge = start_edge(cluster.urls, **with_user(cluster.nodes, tmp_path))
    polls = hold_all(edge, cleanup, KEYS)
    for key, poll in polls.items():
        assert edge.get(key, "PUT", FIELDS, b"1").status == 201
        assert poll.answer().body == b"1"
    # Half a move has a server ask another one.
    source = cluster.primary_of(KEYS[0])
    target = cluster.other_primary(source)
    cluster.begin_move(KEYS[0], source, target)
    cluster.move_keys(KEYS[0], source, target)
    assert edge.get(KEYS[0]).body == b"1"
    assert edge.get(KEYS[0], "DELETE", FIELDS).status == 204
    assert edge.metric("dwell_redis_redirects_total", kind="ask") > 0
    for node in cluster.primaries():
        assert users(node) == {"edge"}
        assert node.client().ask("ACL", "LOG") == []


def under_tls(folder, cleanup, server, pair):
    """A cluster whose servers name one another under TLS, and their URLs."""
    if server == REDIS:
        cluster = Cluster(folder, cleanup, server, replicas=0, pair=pair)
        return cluster, [node.tls_url for node in cluster.nodes]
    # The Valkey of the tests was built without TLS: another process speaks it in front.
    cluster, urls = Cluster(folder, cleanup, server, replicas=0), []
    for node in cluster.nodes:
        front = SecureFront(node.address, server_context(*pair)).start()
        cleanup.callback(front.close)
        urls.append(front.url)
        node.client().ask("CONFIG", "SET", "cluster-announce-port", front.address[1])
    announced = {int(url.rpartition(":")[2]) for url in urls}
    for node in cluster.nodes:
        until(
            lambda node=node: {each[2][1] for each in slots_of(node)} == announced,
            "every server names the others so",
        )
    return cluster, urls


def slots_of(node):
    return node.client().ask("CLUSTER", "SLOTS")


@pytest.mark.parametrize("server", [REDIS, VALKEY])
def test_a_cluster_under_tls_with_a_user(start_edge, cleanup, tmp_path, server):
    pair = make_certificate(tmp_path, "redis", "redis.test")
    cluster, urls = under_tls(tmp_path, cleanup, server, pair)
    user = with_user(cluster.nodes, tmp_path)
    for node in cluster.nodes if server == REDIS else ():
        node.client().ask("CONFIG", "SET", "port", 0)
    trust = {"tls_ca": str(pair[0]), "tls_server_name": "redis.test"}
    edge = start_edge(urls[:1], pollers=1, **trust, **user)
    polls = hold_all(edge, cleanup, KEYS)
    for key, poll in polls.items():
        assert edge.get(key, "PUT", FIELDS, b"1").status == 201
        assert poll.answer().body == b"1"
    # Two connections to each primary.
    edge.await_metric(6, "dwell_redis_handshakes_total", outcome="done")
    for url in urls:
        server = url.removeprefix("rediss://")
        assert edge.metric("dwell_redis_primary_up", server=server) == 1
    assert "Redis does not" not in edge.output()
    other = start_edge(urls, **{**trust, "tls_server_name": "other.test"}, **user)
    assert other.get(KEYS[0]).status == 503
    other.await_output("other.test is refused: it is for other names: redis.test")


def test_a_server_without_a_cluster_is_told(start_redis, start_edge):
    edge = start_edge([start_redis().url])
    edge.await_output("the Redis cluster does not return its slots")
    edge.await_output("cluster support disabled")
    assert '"state":"down"' in edge.admin("/-/health").body.decode()


def test_slots_are_counted_as_the_servers_count_them(cluster):
    for key in KEYS:
        assert cluster.nodes[0].client().ask("CLUSTER", "KEYSLOT", key) == slot_of(key)
    assert SLOTS == 16_384
