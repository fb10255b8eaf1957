"""`dwell check --live`: real servers are asked what they are and allow."""

import re
import signal

import pytest

from support import ports
from support.certificates import make_certificate
from support.redis import REDIS, VALKEY, SecureFront
from support.redis_cluster import Cluster
from support.secure_app import server_context
from support.wait import until
from test_redis import run
from test_redis_sentinel import NAME, Group, Sentinel

TOKEN = "a-token-of-thirty-two-characters"
PUBLISHED = f'[publish]\ntoken = ["{TOKEN}"]\n[[route]]\nprefix = "/poll/"\npublish = true\n'


@pytest.fixture(params=[REDIS, VALKEY])
def start_server(request, start_redis):
    """Starts either server."""
    return lambda *options: start_redis(*options, server=request.param)


@pytest.fixture
def check(tmp_path):
    """Checks a configuration; the other servers in it have their time."""

    def check(text):
        config = tmp_path / "a.toml"
        # The limit on open files of the machine is no matter of these tests.
        config.write_text(f"limits.connections_max = 100\n{text}")
        return run("check", "--live", config)

    return check


def redis_section(redis, **options):
    options = {"url": redis.url, "timeout": "5s", "connect_timeout": "5s", **options}
    return section("redis", options)


def section(name, options):
    def show(value):
        return str(value) if isinstance(value, list) else f'"{value}"'

    return f"[{name}]\n" + "".join(f"{key} = {show(it)}\n" for key, it in options.items())


def answers(ended, address, role):
    """Lines with the name, the version and the role of a server."""
    line = rf"^Redis {re.escape(address)}: (redis|valkey) \d+\.\d+\.\d+, {role}$"
    return len(re.findall(line, ended.stdout, re.MULTILINE))


def with_user(redis, tmp_path, *rights):
    """The options of a user with these rights."""
    redis.client().ask("ACL", "SETUSER", "edge", "on", ">secret", *rights)
    (tmp_path / "password").write_text("secret\n")
    return {"username": "edge", "password_file": str(tmp_path / "password")}


@pytest.mark.parametrize("tracking", ["keys", "prefix", "off"])
def test_a_server_that_has_all(start_server, check, tracking):
    redis = start_server()
    ended = check(redis_section(redis, tracking=tracking) + PUBLISHED)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert answers(ended, ports.text(redis.address), "master") == 1
    has_table = "tracking table: 0 of 1000000 keys" in ended.stdout
    assert has_table == (tracking == "keys")
    assert redis.client().ask("DBSIZE") == 0


def test_rights_that_a_user_lacks_are_named(start_server, check, tmp_path):
    redis = start_server()
    rights = ["~/poll/*", "+hello", "+get", "+ping", "+del", "+info"]
    user = with_user(redis, tmp_path, *rights)
    ended = check(redis_section(redis, **user) + PUBLISHED)
    assert ended.returncode == 1
    wanted = ["CLIENT TRACKING", "PTTL of keys such as /poll/dwell-check-", "SET of keys"]
    for words in wanted:
        assert f"refuses {words}" in ended.stderr
    for words in ["EVAL of keys", "CONFIG GET"]:
        assert f"warning: Redis {ports.text(redis.address)}: refuses {words}" in ended.stderr
    assert ended.stderr.count("refuses") == 5
    assert redis.client().ask("DBSIZE") == 0
    # What only warnings are about is good.
    redis.client().ask("ACL", "SETUSER", "edge", "+client|tracking", "+pttl", "+set")
    ended = check(redis_section(redis, **user) + PUBLISHED)
    assert ended.returncode == 0
    assert ended.stderr.count("refuses") == 2
    # Without publishing, nothing is asked that is for it.
    assert "EVAL" not in check(redis_section(redis, **user)).stderr
    # Keys that the user may not read.
    ended = check(redis_section(redis, **user) + '[[route]]\nprefix = "/rooms/"\n')
    assert ended.returncode == 1
    assert "refuses GET of keys such as /rooms/dwell-check-" in ended.stderr


def test_a_server_without_version_three(start_server, check):
    redis = start_server("--rename-command", "HELLO", "")
    ended = check(redis_section(redis))
    assert ended.returncode == 1
    assert "refuses HELLO: ERR unknown command" in ended.stderr
    ended = check(redis_section(redis, tracking="off"))
    assert ended.returncode == 0
    assert "refuses" not in ended.stderr


def test_a_table_that_is_nearly_full(start_server, check):
    redis = start_server("--tracking-table-max-keys", "10")
    client, told = redis.client(), redis.client()
    client.ask("CLIENT", "TRACKING", "ON", "REDIRECT", told.ask("CLIENT", "ID"))
    for number in range(9):
        client.ask("GET", f"/poll/{number}")
    ended = check(redis_section(redis))
    assert ended.returncode == 0
    assert "warning: " in ended.stderr
    assert "tracking table: 9 of 10 keys" in ended.stderr


def test_a_replica_takes_no_writes(start_server, check):
    primary, redis = start_server(), start_server()
    redis.client().ask("REPLICAOF", ports.HOST, primary.address[1])
    until(lambda: b"master_link_status:up" in redis.client().ask("INFO", "replication"), "it is")
    ended = check(redis_section(redis) + PUBLISHED)
    assert ended.returncode == 1
    assert "refuses SET of keys such as /poll/" in ended.stderr
    assert "READONLY" in ended.stderr
    assert answers(ended, ports.text(redis.address), "replica") == 1


def test_a_server_that_is_not_there_or_has_stopped(start_server, check):
    redis = start_server()
    redis.signal(signal.SIGSTOP)
    ended = check(redis_section(redis, timeout="200ms", connect_timeout="200ms"))
    assert ended.returncode == 1
    assert f"dwell: Redis {ports.text(redis.address)}: no reply in time" in ended.stderr
    redis.kill()
    ended = check(redis_section(redis))
    assert ended.returncode == 1
    assert "connection refused or not made in time" in ended.stderr


def test_a_wrong_password_is_said_in_the_words_of_the_server(start_server, check, tmp_path):
    redis = start_server()
    user = with_user(redis, tmp_path, "~*", "+@all")
    (tmp_path / "password").write_text("wrong\n")
    ended = check(redis_section(redis, **user))
    assert ended.returncode == 1
    assert "server refuses the connection: WRONGPASS" in ended.stderr
    assert "wrong\n" not in ended.stderr


def test_a_server_under_tls(start_server, check, tmp_path, cleanup):
    pair = make_certificate(tmp_path, "redis", "redis.test")
    front = SecureFront(start_server().address, server_context(*pair))
    cleanup.callback(front.start().close)
    trust = {"tls_ca": str(pair[0]), "tls_server_name": "redis.test"}
    ended = check(redis_section(front, **trust))
    assert ended.returncode == 0, ended.stderr
    assert answers(ended, ports.text(front.address), "master") == 1
    ended = check(redis_section(front, **{**trust, "tls_server_name": "other.test"}))
    assert ended.returncode == 1
    assert "no TLS handshake: " in ended.stderr


def sentinels_section(urls, name=NAME):
    times = {"timeout": "5s", "connect_timeout": "5s"}
    return section("redis", {"sentinels": urls, "sentinel_name": name, **times})


@pytest.mark.parametrize("server", [REDIS, VALKEY])
def test_sentinels_and_what_they_name(check, tmp_path, cleanup, server):
    group = Group(tmp_path, cleanup, server)
    ended = check(sentinels_section(group.urls) + PUBLISHED)
    assert ended.returncode == 0, ended.stderr
    primary = ports.text(group.primary().address)
    assert ended.stdout.count(f"names {primary} as {NAME}") == 3
    assert answers(ended, primary, "master") == 1
    # One is gone, and one does not know the name.
    gone, other = group.sentinels[:2]
    gone.kill()
    other.ask("REMOVE", NAME)
    ended = check(sentinels_section(group.urls) + PUBLISHED)
    assert ended.returncode == 1
    assert f"Sentinel {ports.text(gone.address)}: connection refused" in ended.stderr
    words = f"the Sentinel knows no primary of the name {NAME}"
    assert f"Sentinel {ports.text(other.address)}: server refuses the connection: {words}" in (
        ended.stderr
    )
    assert ended.stdout.count(f"names {primary} as {NAME}") == 1


def test_sentinels_that_name_two_primaries(check, tmp_path, cleanup, start_redis):
    servers = [start_redis(), start_redis()]
    sentinels = [Sentinel(tmp_path, REDIS, one.address, 1).start_ready() for one in servers]
    for one in sentinels:
        cleanup.callback(one.stop)
    ended = check(sentinels_section([one.url for one in sentinels]))
    assert ended.returncode == 0
    assert f"warning: {NAME}: the Sentinels name different primaries" in ended.stderr
    for one in servers:
        assert answers(ended, ports.text(one.address), "master") == 1


def test_a_fault_of_the_primary_is_not_that_of_the_sentinel(check, tmp_path, cleanup, start_redis):
    server = start_redis("--requirepass", "secret")
    sentinel = Sentinel(tmp_path, REDIS, server.address, 1).start_ready()
    cleanup.callback(sentinel.stop)
    at, named = ports.text(server.address), ports.text(sentinel.address)

    def fault():
        ended = check(sentinels_section([sentinel.url]))
        assert ended.returncode == 1
        assert f"Sentinel {named}: names {at} as {NAME}" in ended.stdout
        assert "Sentinel" not in ended.stderr
        return ended.stderr

    assert f"dwell: Redis {at}: server refuses the connection: NOAUTH" in fault()
    server.kill()
    assert f"dwell: Redis {at}: connection refused or not made in time" in fault()


def test_keys_are_tried_as_their_route_makes_them(start_server, check, tmp_path):
    redis = start_server()
    rights = ["~user:*:in", "+@all"]
    user = with_user(redis, tmp_path, *rights)
    route = '[[route]]\nprefix = "/in/"\nkey = "{key}"\n'
    ended = check(redis_section(redis, **user) + route.format(key="user:{query.id}:in"))
    assert ended.returncode == 0, ended.stderr
    # A client may ask for any of these.
    ended = check(redis_section(redis, **user) + route.format(key="user:{query.id}:out"))
    assert ended.returncode == 1
    assert "refuses GET of keys such as user:dwell-check-" in ended.stderr


def test_memcached_and_the_application(check, memcached, app):
    servers = section("memcached", {"servers": [ports.text(memcached.address)]})
    application = section("upstream", {"url": f"http://{ports.text(app.address)}"})
    ended = check(servers + application)
    assert ended.returncode == 0, ended.stderr
    assert f"memcached {ports.text(memcached.address)}: memcached 1." in ended.stdout
    assert "accepts connections" in ended.stdout
    closed = ports.text(ports.free_address())
    servers = section("memcached", {"servers": [closed]})
    ended = check(servers + section("upstream", {"url": f"http://{closed}"}))
    assert ended.returncode == 1
    assert f"dwell: memcached {closed}: does not answer" in ended.stderr
    assert "upstream http://" in ended.stderr
    # The application is no memcached.
    servers = section("memcached", {"servers": [ports.text(app.address)]})
    ended = check(servers)
    assert ended.returncode == 1
    assert "does not answer" in ended.stderr


def test_it_is_not_asked_together_with_what_asks_nothing(tmp_path):
    for flag in ["--offline", "--print"]:
        ended = run("check", "--live", flag, tmp_path / "a.toml")
        assert ended.returncode == 2
        assert "cannot be used with" in ended.stderr


@pytest.fixture(params=[REDIS, VALKEY])
def lone_cluster(request, tmp_path, cleanup):
    return Cluster(tmp_path, cleanup, request.param, replicas=0)


def test_every_primary_of_a_cluster_is_asked(lone_cluster, check):
    first = lone_cluster.nodes[0]

    def live():
        urls = [first.url]
        options = {"cluster": urls, "timeout": "5s", "connect_timeout": "5s"}
        return check(section("redis", options) + PUBLISHED)

    ended = live()
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    for node in lone_cluster.nodes:
        assert answers(ended, ports.text(node.address), "master") == 1
    place = f"Redis cluster of {first.url}"
    assert f"{place}: 3 primaries\n" in ended.stdout
    assert all(node.client().ask("DBSIZE") == 0 for node in lone_cluster.nodes)
    # A slot that nobody has, and a user who may not ask for any.
    for node in lone_cluster.nodes:
        node.client().ask("CLUSTER", "DELSLOTS", 7)
    ended = live()
    assert ended.returncode == 1
    assert f"{place}: 1 slots have no primary" in ended.stderr
    questions = ["slots", "info", "nodes"]
    rights = [f"-cluster|{question}" for question in questions]
    first.client().ask("ACL", "SETUSER", "default", *rights)
    ended = live()
    assert ended.returncode == 1
    for question in questions:
        assert f"refuses CLUSTER {question.upper()}: NOPERM" in ended.stderr


def test_a_server_without_a_cluster_is_a_fault(start_server, check):
    ended = check(section("redis", {"cluster": [start_server().url]}))
    assert ended.returncode == 1
    assert "refuses CLUSTER SLOTS: ERR This instance has cluster support disabled" in ended.stderr


@pytest.mark.parametrize("kind", ["cluster", "sentinels"])
def test_a_server_without_an_address_is_told(check, tmp_path, cleanup, start_redis, kind):
    gone = "redis://server.invalid:1"
    if kind == "cluster":
        known = Cluster(tmp_path, cleanup, REDIS, replicas=0).urls[0]
        text = section("redis", {"cluster": [gone, known], "timeout": "5s"})
    else:
        sentinel = Sentinel(tmp_path, REDIS, start_redis().address, 1).start_ready()
        cleanup.callback(sentinel.stop)
        text = sentinels_section([gone, sentinel.url])
    ended = check(text)
    assert ended.returncode == 0, ended.stderr
    told = f"a server is left out: cannot resolve server.invalid:1 (redis.{kind}): "
    assert "warning: Redis " in ended.stderr
    assert told in ended.stderr
    # Where none has an address, nothing starts.
    ended = check(text.replace("127.0.0.1", "other.invalid"))
    assert ended.returncode == 1
    assert f"(redis.{kind})" in ended.stderr
