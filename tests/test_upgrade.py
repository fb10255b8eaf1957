"""SIGUSR2: another process takes over, and no client notices but by what the process id says."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from support import ports
from support.crowd import Crowd
from support.dwell import BINARY, ROOT, Dwell
from support.http import Connection, request
from support.other_side import Other
from support.process import Process
from support.traffic import TOKEN, Traffic, fill, receive
from support.upgrade import begin, upgrade
from support.wait import PATIENCE_S, accepts, until

KEY = "/poll/alice"
# How many connections the new process has been given, and how many it has not taken.
HANDED_OVER = re.compile(r"given=(\d+) closed=(\d+)")
# Nothing here is to be cut off, however slow the machine is.
LIMITS = {"drain_timeout": "30s"}


@pytest.fixture
def lone_edge(start_dwell):
    return start_dwell(limits=LIMITS)


def test_connections_and_values_go_over(lone_edge, cleanup):
    store = lone_edge.store()
    store.set(KEY, b"value", expire=1000)
    store.set("counter", b"7")
    before = store.gets(KEY)
    with lone_edge.connect() as kept, Connection(lone_edge.admin_address) as admin:
        assert kept.get(KEY).body == b"value"
        assert admin.get("/-/health").status == 200
        successor = upgrade(lone_edge, cleanup)
        assert store.gets(KEY) == before, "the connection of the memcached client goes on"
        assert store.incr("counter", 1) == 8
        answer = kept.get(KEY)
        assert (answer.body, answer.closes) == (b"value", False)
        assert admin.get("/-/health").status == 200
    assert lone_edge.wait() == 0
    assert not successor.has_ended()
    assert lone_edge.get(KEY).body == b"value"
    successor.signal(signal.SIGTERM)
    successor.wait()


def test_waiters_are_sent_to_the_process_that_serves(lone_edge, cleanup):
    store = lone_edge.store()
    store.set(KEY, b"old")
    etag = lone_edge.get(KEY).etag
    with Crowd(lone_edge.address, 300) as crowd:
        crowd.send(request(f"{KEY}?wait=50", fields={"If-None-Match": etag}))
        lone_edge.await_waiters(300)
        upgrade(lone_edge, cleanup)
        store.set(KEY, b"new")
        answers = crowd.answers()
        assert {status for status, _, _ in answers} == {304}
        assert not any(b"\r\nconnection: close" in head.lower() for _, head, _ in answers)
        crowd.send(request(KEY, fields={"If-None-Match": etag}))
        assert {(status, body) for status, _, body in crowd.answers()} == {(200, b"new")}
    assert lone_edge.get(KEY, fields={"If-None-Match": etag}).body == b"new"
    assert lone_edge.wait() == 0


def test_what_has_begun_is_finished(lone_edge, cleanup):
    lone_edge.store().set(KEY, b"value")
    raw = request(KEY)
    middle = len(raw) // 2
    with contextlib.ExitStack() as stack:
        half = stack.enter_context(lone_edge.connect())
        half.send(raw[:middle])
        fresh = stack.enter_context(lone_edge.connect())
        store = stack.enter_context(socket.create_connection(lone_edge.store_address, 10))
        store.sendall(b"set /poll/half 0 0 4\r\nva")
        lone_edge.await_connections(2)
        upgrade(lone_edge, cleanup)
        half.send(raw[middle:])
        assert half.answer().body == b"value"
        assert fresh.get(KEY).body == b"value"
        store.sendall(b"lu\r\nget /poll/half\r\n")
        expected = b"STORED\r\nVALUE /poll/half 0 4\r\nvalu\r\nEND\r\n"
        assert receive(store, len(expected)) == expected
    assert lone_edge.wait() == 0


def test_replies_that_nobody_has_read_come_whole(start_dwell, cleanup, tmp_path):
    """The rest of a retrieval is answered by the new process."""
    path = tmp_path / "store.socket"
    dwell = start_dwell(store={"unix_socket": str(path)}, limits=LIMITS)
    store, keys, data = dwell.store(), [f"large{number}" for number in range(6)], b"x" * 200_000
    for key in keys:
        store.set(key, data)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        # More than a unix socket takes, so what follows waits in the old process.
        client.sendall(f"get {' '.join(keys)}\r\nset last 0 0 1\r\n1\r\n".encode())
        client.recv(1, socket.MSG_PEEK)
        upgrade(dwell, cleanup)
        values = [b"VALUE %s 0 %d\r\n%s\r\n" % (key.encode(), len(data), data) for key in keys]
        expected = b"".join(values) + b"END\r\nSTORED\r\n"
        assert receive(client, len(expected)) == expected
    assert dwell.wait() == 0
    assert dwell.store().get("last") == b"1"


def test_nobody_waits_for_a_process_that_stops_when_it_serves(start_dwell, app, cleanup):
    # The old process ends because nothing is left, not because its time is over.
    limits = {"drain_timeout": "10m", "idle_timeout": "10m"}
    dwell = start_dwell(upstream={"url": app.url}, limits=limits)
    dwell.store().set(KEY, b"value")
    app.hang()
    # Together they have more than the socket between the processes takes.
    count, rest = 100, request(KEY, fields={"Padding": "x" * 3000})
    half = len(rest) - 10
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(dwell.connect()) for _ in range(count)]
        for client in clients:
            client.send(request("/page") + rest[:half])
        app.await_requests(count)
        successor = upgrade(dwell, cleanup)
        successor.pause()
        app.release()
        # All are answered, also when the first ones are on their way to the new process.
        for client in clients:
            assert client.answer().body == b"from the app"
        assert dwell.wait() == 0, "it ends although the new process takes nothing"
        (given, closed) = map(int, HANDED_OVER.search(dwell.output()).groups())
        assert 0 < given < count
        assert closed > 0
        successor.resume()
        served = 0
        for client in clients:
            # The others have been closed by the old process.
            with contextlib.suppress(ConnectionError, EOFError):
                client.send(rest[half:])
                served += client.answer().body == b"value"
        assert served == given, "what was given is served there, and nothing else"


def test_nobody_notices_two_upgrades(start_dwell, cleanup):
    route = {"prefix": "/poll/", "publish": True}
    dwell = start_dwell(route=[route], publish={"token": [TOKEN]}, limits=LIMITS)
    fill(dwell)
    with Traffic(dwell) as traffic:
        until(traffic.has_moved(), "everybody has begun")
        first = upgrade(dwell, cleanup)
        until(traffic.has_moved(), "everybody goes on with the second process")
        assert dwell.wait() == 0
        # It may be upgraded itself once it knows that the process before has gone.
        until(lambda: "the process before this one has ended" in dwell.output(), "it knows")
        upgrade(dwell, cleanup, first)
        until(traffic.has_moved(), "everybody goes on with the third process")
        first.wait()
        traffic.rest()
        until(traffic.has_caught_up, "everybody knows the newest values")
    assert traffic.faults == []


def test_a_program_that_fails_changes_nothing(lone_edge, cleanup):
    lone_edge.store().set(KEY, b"value")
    good = lone_edge.config.read_text()
    lone_edge.config.write_text("[nonsense]\n")
    with lone_edge.connect() as held, lone_edge.connect() as kept:
        held.ask(f"{KEY}?since={kept.get(KEY).etag[1:-1]}&wait=50")
        lone_edge.await_waiters(1)
        begin(lone_edge, cleanup)
        lone_edge.await_metric(1, "dwell_upgrades_failed_total")
        lone_edge.await_output("the new process has ended: exit status: 2")
        lone_edge.config.write_text(good)
        assert kept.get(KEY).body == b"value"
        lone_edge.store().set(KEY, b"new")
        assert held.answer().body == b"new"
    upgrade(lone_edge, cleanup)
    assert lone_edge.wait() == 0


@pytest.fixture
def hangs(tmp_path):
    """The path of the program; `hang` puts one there that does nothing."""
    program = tmp_path / "dwell"
    program.symlink_to(BINARY)

    def hang():
        program.unlink()
        program.write_text("#!/bin/sh\nexec sleep 600\n")
        program.chmod(0o755)

    return program, hang


def test_a_program_that_hangs_is_given_up(start_dwell, cleanup, hangs):
    program, hang = hangs
    # Long enough for this process to start another, however slow the machine is.
    dwell = start_dwell(limits={"upgrade_timeout": "3s"}, program=program)
    dwell.store().set(KEY, b"value")
    hang()
    successor = begin(dwell, cleanup)
    dwell.await_metric(1, "dwell_upgrades_failed_total")
    successor.wait()
    dwell.await_output("takes longer than limits.upgrade_timeout")
    assert dwell.get(KEY).body == b"value"


@pytest.fixture
def fails(tmp_path):
    """As `hangs`, of a program that fails at a step."""
    program = tmp_path / "dwell"
    program.symlink_to(BINARY)
    other_side = ROOT / "tests" / "support" / "other_side.py"

    def fail(step):
        script = tmp_path / f"other..{step}"
        script.write_text(f"#!{sys.executable}\n{other_side.read_text()}")
        script.chmod(0o755)
        program.unlink()
        program.write_text(f'#!/bin/sh\nexec "{script}"\n')
        program.chmod(0o755)

    return program, fail


def test_a_program_that_ends_when_it_is_to_serve_leaves_the_store(start_dwell, cleanup, fails):
    program, fail = fails
    dwell = start_dwell(program=program)
    dwell.store().set(KEY, b"value")
    fail("serve")
    begin(dwell, cleanup).wait()
    dwell.await_metric(1, "dwell_upgrades_failed_total")
    dwell.await_output("the new process has ended: exit status: 0")
    store = dwell.store()
    assert store.get(KEY) == b"value"
    store.set(KEY, b"new")
    assert dwell.get(KEY).body == b"new"


@pytest.fixture
def started(tmp_path):
    """A process that this one starts to be succeeded by it, and this one's end of the channel."""
    edge = Dwell(tmp_path, server={"pollers": 3})
    own, its = socket.socketpair()
    own.settimeout(PATIENCE_S)
    arguments = [BINARY, "serve", "--config", str(edge.config)]

    def start(parent):
        environment = {**os.environ, "DWELL_UPGRADE": str(parent)}
        return subprocess.Popen(
            arguments, stdin=its, stderr=subprocess.PIPE, env=environment, text=True
        )

    with own, its:
        yield start, own


def test_all_threads_run_before_it_says_that_it_could_serve(started):
    start, own = started
    with start(os.getpid()) as child:
        other = Other(own)
        other.send("Hello", 0, bytes([1]))
        other.send("Listeners")
        assert other.receive() == "Ready"
        tasks = pathlib.Path(f"/proc/{child.pid}/task")

        def names():
            return {(task / "comm").read_text().strip() for task in tasks.iterdir()}

        # A thread gives itself its name; this one waits to be given the items meanwhile.
        until(lambda: {"loop-1", "loop-2", "upgrade"} <= names(), "all threads run")
        own.close()
        child.communicate(timeout=PATIENCE_S)
        assert child.returncode != 0


def test_a_process_whose_parent_has_ended_does_not_serve(started):
    start, _ = started
    with start(os.getpid() + 1) as child:
        _, errors = child.communicate(timeout=PATIENCE_S)
        assert child.returncode != 0
        assert "it is not the parent" in errors


def test_nobody_stands_still_for_a_program_that_is_deaf(start_dwell, cleanup, fails):
    program, fail = fails
    dwell = start_dwell(limits={"upgrade_timeout": "1h"}, program=program)
    dwell.store().set(KEY, b"value")
    fail("deaf")
    successor = begin(dwell, cleanup)
    dwell.await_metric(1, "dwell_upgrades_failed_total")
    dwell.await_output("giving it the items: nothing has moved for 2s")
    successor.wait()
    assert dwell.get(KEY).body == b"value"


def test_one_upgrade_at_a_time(start_dwell, cleanup, hangs):
    program, hang = hangs
    dwell = start_dwell(limits={"upgrade_timeout": "1h"}, program=program)
    hang()
    successor = begin(dwell, cleanup)
    dwell.signal(signal.SIGUSR2)
    until(lambda: "no upgrade: one is in progress" in dwell.output(), "it is ignored")
    successor.signal(signal.SIGKILL)
    dwell.await_metric(1, "dwell_upgrades_failed_total")
    dwell.await_output("the new process has ended: signal: 9")
    assert dwell.get(KEY).status == 404


def test_a_program_that_is_not_there_changes_nothing(start_dwell, tmp_path):
    program = tmp_path / "dwell"
    program.symlink_to(BINARY)
    dwell = start_dwell(program=program)
    program.unlink()
    dwell.signal(signal.SIGUSR2)
    dwell.await_metric(1, "dwell_upgrades_failed_total")
    dwell.await_output("the program cannot be started")
    assert dwell.get(KEY).status == 404


def test_the_configuration_is_that_of_now(lone_edge, cleanup):
    """Listeners come, go and stay, and so does the number of loops."""
    gone, other = lone_edge.address, ports.free_address()
    lone_edge.store().set(KEY, b"value")
    with lone_edge.connect() as kept:
        assert kept.get(KEY).body == b"value"
        lone_edge.rewrite(server={"listen": ports.text(other), "pollers": 3})
        upgrade(lone_edge, cleanup)
        assert kept.get(KEY).body == b"value", "who came by the old address stays"
    with Connection(other) as client:
        assert client.get(KEY).body == b"value"
    assert lone_edge.wait() == 0
    assert not accepts(gone)
    assert lone_edge.metric("dwell_loops") == 3


def test_an_address_that_has_just_come_goes_over_too(lone_edge, cleanup):
    other = ports.free_address()
    lone_edge.rewrite(server={"listen": [ports.text(lone_edge.address), ports.text(other)]})
    lone_edge.signal(signal.SIGHUP)
    until(lambda: accepts(other), "it is bound, if not yet every loop's")
    upgrade(lone_edge, cleanup)
    with Connection(other) as client:
        assert client.get(KEY).status == 404
    assert lone_edge.wait() == 0


def test_with_memcached_there_is_no_store_to_carry(start_dwell, app, memcached, cleanup):
    servers = {"servers": [memcached.name], "sweep_interval": "50ms"}
    dwell = start_dwell(upstream={"url": app.url}, memcached=servers, limits=LIMITS)
    memcached.client().set(KEY, b"value")
    app.hang()
    with dwell.connect() as kept, dwell.connect() as held, dwell.connect() as under_way:
        etag = kept.get(KEY).etag
        held.ask(f"{KEY}?wait=50", fields={"If-None-Match": etag})
        dwell.await_waiters(1)
        under_way.ask("/page")
        app.await_requests(1)
        upgrade(dwell, cleanup)
        assert kept.get(KEY).body == b"value"
        assert held.answer().status == 304
        app.release()
        answer = under_way.answer()
        assert (answer.body, answer.closes) == (b"from the app", False)
        assert under_way.get(KEY).body == b"value"
    assert dwell.wait() == 0
    assert dwell.get(KEY).body == b"value"


def test_the_unix_socket_and_those_who_said_who_they_are(start_dwell, cleanup, tmp_path):
    path, auth = tmp_path / "store.socket", tmp_path / "auth"
    auth.write_text("alice:secret\n")
    store = {"unix_socket": str(path), "auth_file": str(auth)}
    dwell = start_dwell(store=store, limits=LIMITS)
    with socket.socket(socket.AF_UNIX) as known, socket.socket(socket.AF_UNIX) as unknown:
        for client in (known, unknown):
            client.settimeout(10)
            client.connect(str(path))
        known.sendall(b"set auth 0 0 12\r\nalice secret\r\nset k 0 0 1\r\nx\r\n")
        assert receive(known, 16) == b"STORED\r\n" * 2
        successor = upgrade(dwell, cleanup)
        known.sendall(b"get k\r\n")
        expected = b"VALUE k 0 1\r\nx\r\nEND\r\n"
        assert receive(known, len(expected)) == expected
        unknown.sendall(b"get k\r\n")
        assert unknown.recv(100).startswith(b"CLIENT_ERROR")
    assert dwell.wait() == 0
    assert path.exists(), "the file is the new process's"
    successor.signal(signal.SIGTERM)
    successor.wait()
    assert not path.exists()


def test_the_snapshot_is_written_by_the_last(start_dwell, cleanup, tmp_path):
    path = tmp_path / "items"
    dwell = start_dwell(store={"snapshot": str(path)})
    dwell.store().set("a", b"1")
    successor = upgrade(dwell, cleanup)
    dwell.store().set("b", b"2")
    assert dwell.wait() == 0
    assert not path.exists()
    successor.signal(signal.SIGTERM)
    successor.wait()
    again = dwell.start_ready().store()
    assert (again.get("a"), again.get("b")) == (b"1", b"2")


def uniques_of(client, numbers):
    """What `gets` gives of the keys that are there, each value by its length."""
    found = client.gets_many([f"full-{number}" for number in numbers])
    items = {int(key.removeprefix("full-")): item for key, item in found.items()}
    return {number: (len(value), unique) for number, (value, unique) in items.items()}


def test_a_full_store_loses_nothing_on_its_way(start_dwell, cleanup, tmp_path):
    path = tmp_path / "items"
    dwell = start_dwell(store={"snapshot": str(path), "bytes_max": "16MiB"})
    client = dwell.store()
    count = 0
    while int(client.stats()[b"evictions"]) < 200:
        batch = range(count, count + 50)
        # All orders of magnitude from 1 B to 512 KiB alike.
        powers = {number: 1 << number * 7 % 20 for number in batch}
        sizes = {number: power - number % 3 * power // 4 for number, power in powers.items()}
        client.set_many({f"full-{number}": b"v" * size for number, size in sizes.items()})
        client.get_many([f"full-{number // 2}" for number in batch])
        count += 50
    there = uniques_of(client, range(count))
    assert count - 1 in there
    successor = upgrade(dwell, cleanup)
    after = dwell.store()
    assert uniques_of(after, there) == there
    assert dwell.wait() == 0
    successor.signal(signal.SIGTERM)
    successor.wait()
    again = dwell.start_ready()
    restarted = again.store()
    assert uniques_of(restarted, there) == there
    # With half of the room the rest is counted and logged, and the newest is there.
    again.signal(signal.SIGTERM)
    assert again.wait() == 0
    dwell.rewrite(store={"snapshot": str(path), "bytes_max": "8MiB"})
    smaller = dwell.start_ready()
    left = set(uniques_of(smaller.store(), there))
    smaller.await_output(f"left_out={len(there) - len(left)} items={len(there)}")
    assert 0 < len(left) < len(there)
    assert max(there) in left


def test_a_snapshot_that_cannot_be_written_ends_the_upgrade(start_dwell, cleanup, tmp_path):
    path = tmp_path / "items"
    dwell = start_dwell(store={"snapshot": str(path)})
    dwell.store().set("a", b"1")
    missing = tmp_path / "missing" / "items"
    dwell.rewrite(store={"snapshot": str(missing)})
    begin(dwell, cleanup)
    dwell.await_metric(1, "dwell_upgrades_failed_total")
    dwell.await_output(f"snapshot {missing}: ")
    assert dwell.store().get("a") == b"1"
    dwell.signal(signal.SIGTERM)
    assert dwell.wait() == 0
    assert path.exists()


def test_items_that_the_new_process_has_no_store_for_are_kept(start_dwell, cleanup, tmp_path):
    path = tmp_path / "items"
    dwell = start_dwell(store={"snapshot": str(path)}, limits={"drain_timeout": "1s"})
    dwell.store().set("a", b"1")
    store = dwell.sections.pop("store")
    dwell.rewrite(memcached={"servers": [ports.text(ports.free_address())]})
    successor = upgrade(dwell, cleanup)
    assert dwell.wait() == 0
    assert path.exists()
    successor.signal(signal.SIGTERM)
    successor.wait()
    del dwell.sections["memcached"]
    dwell.rewrite(store=store)
    assert dwell.start_ready().store().get("a") == b"1"


def test_the_file_of_the_process_id_follows(cleanup, tmp_path):
    path, address = tmp_path / "pid", ports.free_address()
    arguments = [BINARY, "store", "-p", address[1], "-l", address[0], "-P", path, "-v"]
    store = Process(arguments, tmp_path / "store.log")
    cleanup.callback(store.stop)
    store.start_listening(address)
    until(lambda: path.exists() and path.read_text() == f"{store.pid}\n", "it is written")
    successor = upgrade(store, cleanup)
    assert store.wait() == 0
    until(lambda: path.read_text() == f"{successor.pid}\n", "it names the new one")
    successor.signal(signal.SIGTERM)
    successor.wait()
    assert not path.exists()
