"""`dwell store` in the place of memcached: its flags, files and ways in."""

import itertools
import os
import pathlib
import pwd
import signal
import socket
import subprocess
import tempfile

import pytest
from pymemcache.exceptions import MemcacheServerError

from support import ports
from support.dwell import BINARY
from support.memcached import Memcached, store_client
from support.process import Process
from support.store import Store
from support.wait import accepts, until

UNKNOWN = b"CLIENT_ERROR unauthenticated\r\n"


def run(*words, program=(BINARY, "store")):
    """Runs the program to its end."""
    command = [*program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def start(cleanup, tmp_path):
    """Starts `dwell store` with flags beside its port."""

    def start(*flags, program=None):
        store = Store(tmp_path, *flags, program=program)
        cleanup.callback(store.stop)
        return store.start_ready()

    return start


def talk(address, *pieces):
    """Sends pieces one after the other; what comes back for each, empty when it was closed."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as connection:
        connection.settimeout(30)
        connection.connect(address)
        replies = []
        for piece in pieces:
            connection.sendall(piece)
            try:
                replies.append(connection.recv(1 << 16))
            except ConnectionResetError:
                replies.append(b"")
        return replies


def test_help_and_version_are_what_suites_look_for():
    assert run("-h").stdout.splitlines()[0].startswith("memcached 1.6.18")
    assert run("-V").stdout.startswith("memcached 1.6.18")
    assert run("--version").returncode == 0


def test_a_link_named_memcached_is_memcached(start, tmp_path):
    link = tmp_path / "memcached"
    link.symlink_to(BINARY)
    assert run("-V", program=(link,)).stdout.startswith("memcached 1.6.18")
    store = start("-U", "0", "-l", "127.0.0.1", program=link)
    assert store.client().version().startswith(b"1.6.18")


def test_the_port_is_told_where_memcached_tells_it(cleanup, tmp_path, monkeypatch):
    file = tmp_path / "port"
    monkeypatch.setenv("MEMCACHED_PORT_FILENAME", str(file))
    store = Process([BINARY, "store", "-p", "-1"], tmp_path / "log").start()
    cleanup.callback(store.stop)
    until(file.exists, "the port is told")
    words = file.read_text().split()
    assert words[:2] == ["TCP", "INET:"]
    assert store_client(("127.0.0.1", int(words[2]))).set("k", b"1") is True
    assert not (tmp_path / "port.lck").exists()


def test_what_means_nothing_is_said_once(start):
    store = start("-k", "-L", "-f", "1.25")
    store.client().set("k", b"1")
    until(lambda: "mean nothing here" in store.output(), "it is said")
    said = [line for line in store.output().splitlines() if "mean nothing here" in line]
    assert len(said) == 1
    assert all(flag in said[0] for flag in ("-k", "-L", "-f"))


def test_without_cas_every_cas_unique_is_0(start):
    client = start("-C").client()
    client.set("k", b"1")
    assert client.gets("k") == (b"1", b"0")
    assert client.cas("k", b"2", b"0") is False


def test_commands_per_turn_are_what_the_flag_says(start):
    client = start("-R", "7").client()
    assert client.stats("settings")[b"reqs_per_event"] == 7


def test_root_becomes_the_user_who_is_named(cleanup, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    nobody = pwd.getpwnam("nobody")
    secret = tmp_path / "users"
    secret.write_text("a:b\n")
    secret.chmod(0o600)
    # Others have to pass through the folders of the tests to reach this one.
    folder = pathlib.Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    path = folder / "store.sock"
    flags = ["-u", "nobody", "-s", path, "-Y", secret, "--snapshot", folder / "items"]
    store = Process([BINARY, "store", *flags], tmp_path / "log")
    cleanup.callback(store.stop)
    store.start_listening(path)
    login = b"set login 0 0 3\r\na b\r\n"
    until(lambda: talk(str(path), login) == [b"STORED\r\n"], "it answers")
    for thread in pathlib.Path(f"/proc/{store.pid}/task").iterdir():
        status = (thread / "status").read_text().splitlines()
        told = {line.split(":")[0]: line.split()[1:] for line in status}
        assert told["Uid"] == [str(nobody.pw_uid)] * 4
        assert told["Gid"] == [str(nobody.pw_gid)] * 4
        assert told["Groups"] == [str(nobody.pw_gid)]
    assert path.stat().st_uid == nobody.pw_uid
    store.stop()
    assert (folder / "items").stat().st_uid == nobody.pw_uid
    assert (folder / "items").stat().st_mode & 0o777 == 0o600


def test_the_pid_file_may_be_one_that_only_root_writes(cleanup, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    folder = tmp_path / "of-root"
    folder.mkdir(mode=0o755)
    pid_file = folder / "pid"
    address = ports.free_address()
    done = run("-d", "-p", address[1], "-m", "64", "-u", "nobody", "-P", pid_file)
    assert (done.returncode, done.stderr) == (0, "")
    pid = int(pid_file.read_text())
    cleanup.callback(lambda: pathlib.Path(f"/proc/{pid}").exists() and os.kill(pid, signal.SIGKILL))
    # It listens a moment before it drops the rights of root.
    process, user = pathlib.Path(f"/proc/{pid}"), pwd.getpwnam("nobody").pw_uid
    until(lambda: process.stat().st_uid == user, "it is nobody")
    assert store_client(address).set("k", b"1") is True
    os.kill(pid, signal.SIGTERM)
    until(lambda: not accepts(address), "it ends")


def test_the_names_and_passwords_are_read_again(start, tmp_path):
    users = tmp_path / "users"
    users.write_text("alice:old\n")
    store = start("-Y", users)
    alice = socket.create_connection(store.address, timeout=30)

    def ask(line, connection=None):
        if connection is None:
            return talk(store.address, line)[0]
        connection.sendall(line)
        return connection.recv(1024)

    def login(password):
        token = b"alice " + password
        return b"set login 0 0 %d\r\n%s\r\n" % (len(token), token)

    assert ask(login(b"old"), alice) == b"STORED\r\n"
    users.write_text("alice:new\n")
    store.signal(signal.SIGHUP)
    until(lambda: ask(login(b"new")) == b"STORED\r\n", "the new password is known")
    assert ask(login(b"old")).startswith(b"CLIENT_ERROR authentication failure")
    assert ask(b"set k 0 0 1\r\nv\r\n", alice) == b"STORED\r\n", "who is in stays"
    users.write_text("nonsense\n")
    store.signal(signal.SIGHUP)
    until(lambda: "the credentials before stay" in store.output(), "it is said")
    store.await_output("line 1 is not name:password")
    assert ask(login(b"new")) == b"STORED\r\n"


def test_a_user_that_is_not_there_is_said():
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    done = run("-p", "-1", "-u", "no-such-user")
    assert done.returncode == 1
    assert "no such user: no-such-user" in done.stderr


def test_a_snapshot_that_cannot_be_written_is_said_at_the_start(tmp_path):
    done = run("-p", "-1", "--snapshot", tmp_path / "no" / "items")
    assert done.returncode == 1
    assert "items" in done.stderr


def test_what_can_never_be_a_snapshot_is_said_at_the_start(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, what in ((fifo, "a FIFO"), (tmp_path, "a directory"), ("/dev/null", "a device")):
        done = run("-p", "-1", "--snapshot", path)
        assert done.returncode == 1
        assert f"it is {what}, not a file" in done.stderr


@pytest.mark.parametrize("words", [["-S"], ["-Z"], ["-l", "0.0.0.0"], ["-o", "nonsense"]])
def test_what_would_be_unsafe_is_refused(words):
    done = run("-p", "-1", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("dwell store: ")


def test_other_addresses_need_a_word_more(start):
    store = start("-l", "0.0.0.0", "--allow-remote")
    assert store.client().set("k", b"1") is True


def test_several_addresses(cleanup, tmp_path):
    first, second = ports.free_address(), ports.free_address()
    addresses = f"{ports.text(first)},{ports.text(second)}"
    store = Process([BINARY, "store", "-l", addresses], tmp_path / "log")
    cleanup.callback(store.stop)
    store.start_listening(first, second)
    store_client(first).set("k", b"1")
    assert store_client(second).get("k") == b"1"


def test_a_unix_socket_is_instead_of_the_network(cleanup, tmp_path):
    path = tmp_path / "store.sock"
    port = ports.free_address()
    flags = ["-s", path, "-a", "600", "-p", port[1]]
    store = Process([BINARY, "store", *flags], tmp_path / "log")
    cleanup.callback(store.stop)
    store.start_listening(path)
    assert store_client(str(path)).set("k", b"1")
    assert path.stat().st_mode & 0o777 == 0o600
    assert not accepts(port)
    conns = store_client(str(path)).stats("conns")
    assert f"unix:{path}".encode() in conns.values()
    store.stop()
    assert not path.exists()


def set_each(client, keys, value):
    """Sets `k0`, `k1` and so on to the same value."""
    for key in keys:
        client.set(f"k{key}", value)


def test_evictions_may_be_off(start):
    client = start("-M", "-m", "8").client()
    keys, value = itertools.count(), b"x" * 10_000
    with pytest.raises(MemcacheServerError, match="out of memory"):
        set_each(client, keys, value)
    assert next(keys) > 600
    assert client.get("k0") == value
    stats = client.stats()
    assert stats[b"evictions"] == 0
    assert stats[b"store_no_memory"] == 1
    client.delete("k0")
    assert client.set("k0", value) is True


def test_flush_all_may_be_off(start):
    store = start("-F")
    replies = talk(store.address, b"set k 0 0 1\r\n1\r\n", b"flush_all\r\n", b"get k\r\n")
    assert replies[1] == b"CLIENT_ERROR flush_all not allowed\r\n"
    assert replies[2].startswith(b"VALUE")


def test_shutdown_is_obeyed_only_where_it_is_allowed(start):
    store = start()
    assert talk(store.address, b"shutdown\r\n") == [b"ERROR: shutdown not enabled\r\n"]
    store = start("-A")
    assert talk(store.address, b"shutdown\r\n") == [b""]
    assert store.wait() == 0


def test_one_protocol_only(start):
    noop = bytes([0x80, 0x0A]) + bytes(22)
    assert talk(start("-B", "ascii").address, noop) == [b""]
    assert talk(start("-B", "binary").address, b"version\r\n") == [b""]
    replies = talk(start("-B", "auto").address, noop)
    assert replies[0][:2] == b"\x81\x0a"


def test_silent_connections_may_be_closed(start):
    store = start("-o", "idle_timeout=1")
    assert talk(store.address, b"version\r\n", b"")[1] == b""


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1\r\n", b"POST /x HTTP/1.0\r\n"])
def test_http_is_closed_unanswered_as_memcached_does(start, memcached, request_line):
    for address in (memcached.address, start().address):
        assert talk(address, request_line + b"Host: x\r\n\r\n") == [b""]


LOGINS = {
    "before": [b"get k\r\n"],
    "version": [b"version\r\n"],
    "wrong": [b"set x 0 0 11\r\nalice guess\r\n", b"get k\r\n"],
    "no_password": [b"set x 0 0 5\r\nalice\r\n"],
    "right": [
        b"set x 0 0 12\r\nalice secret\r\n",
        b"get x\r\n",
        b"set k 0 0 1\r\n1\r\n",
        b"get k\r\n",
    ],
    "second_name": [b"set x 0 0 8\r\nbob pass\r\n", b"mn\r\n"],
    "again": [b"set x 0 0 7\r\nbob no!\r\n", b"set x 0 0 8\r\nbob pass\r\n", b"mn\r\n"],
}


@pytest.mark.parametrize("name", LOGINS)
def test_logging_in_is_as_with_memcached(start, cleanup, tmp_path, name):
    users = tmp_path / "users"
    users.write_text("alice:secret\nbob:pass\n")
    memcached = Memcached(tmp_path)
    memcached.arguments += ["-Y", str(users)]
    cleanup.callback(memcached.stop)
    theirs = talk(memcached.start_ready().address, *LOGINS[name])
    ours = talk(start("-Y", users).address, *LOGINS[name])
    assert ours == theirs
    assert (UNKNOWN in ours) == (name in ("before", "version", "wrong"))


def test_nobody_unknown_holds_memory_or_speaks_binary(start, tmp_path):
    users = tmp_path / "users"
    users.write_text("alice:secret\n")
    store = start("-Y", users)
    assert talk(store.address, bytes([0x80, 0x0A]) + bytes(22)) == [b""]
    large = b"set x 0 0 1000000\r\n" + b"x" * 1_000_000 + b"\r\n"
    assert talk(store.address, large) == [UNKNOWN]


def test_a_file_of_logins_that_is_none_stops_the_start(tmp_path):
    users = tmp_path / "users"
    users.write_text("alice\n")
    done = run("-p", "-1", "-Y", users)
    assert done.returncode == 1
    assert "line 1 is not name:password" in done.stderr


def test_items_survive_a_restart(start, tmp_path):
    file = tmp_path / "items"
    store = start("--snapshot", file)
    client = store.client()
    client.set("k", b"value", flags=7)
    client.set("gone", b"x", expire=1)
    for number in range(1000):
        client.set(f"k{number}", b"x" * number)
    _, unique = client.gets("k")
    store.signal(signal.SIGTERM)
    assert store.wait() == 0
    client = start("--snapshot", file).client()
    assert client.gets("k") == (b"value", unique)
    assert client.get("k999") == b"x" * 999
    until(lambda: client.get("gone") is None, "its time goes on")


def test_an_item_may_take_half_of_the_memory(start):
    client = start("-m", "64", "-I", "32m").client()
    value = bytes(32 * 1024 * 1024 - 100)
    assert client.set("large", value)
    assert client.get("large") == value
    assert client.stats("settings")[b"item_size_max"] == 32 * 1024 * 1024
    client.cache_memlimit(16)
    assert client.stats("settings")[b"item_size_max"] == 8 * 1024 * 1024


def test_a_damaged_snapshot_is_kept_aside(start, tmp_path):
    file = tmp_path / "items"
    store = start("--snapshot", file)
    store.client().set("k", b"value")
    store.signal(signal.SIGTERM)
    store.wait()
    content = bytearray(file.read_bytes())
    content[30] ^= 1
    file.write_bytes(content)
    store = start("--snapshot", file)
    assert store.client().get("k") is None
    until(lambda: "its checksum is wrong; it is now" in store.output(), "it is said")
    (aside,) = tmp_path.glob("items.damaged-*")
    assert aside.read_bytes() == content
    store.signal(signal.SIGTERM)
    assert store.wait() == 0
    assert file.exists(), "the next snapshot takes its place"


def test_a_killed_process_leaves_the_old_snapshot(start, tmp_path):
    file = tmp_path / "items"
    store = start("--snapshot", file)
    store.client().set("k", b"old")
    store.signal(signal.SIGTERM)
    store.wait()
    store = start("--snapshot", file)
    store.client().set("k", b"new")
    store.kill()
    left = tmp_path / f"items.{store.pid}.new"
    left.write_bytes(b"DWELLMEM")
    assert start("--snapshot", file).client().get("k") == b"old"
    assert not left.exists(), "what it has left of an unfinished one is removed"


def test_the_background_and_its_pid_file(cleanup, tmp_path):
    address, pid_file = ports.free_address(), tmp_path / "pid"
    done = run("-d", "-p", address[1], "-P", pid_file, "-A")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pid = int(pid_file.read_text())
    cleanup.callback(lambda: pathlib.Path(f"/proc/{pid}").exists() and os.kill(pid, signal.SIGKILL))
    assert store_client(address).set("k", b"1") is True
    talk(address, b"shutdown\r\n")
    until(lambda: not pid_file.exists(), "the pid file goes with its process")
    assert run("-d", "-p", address[1], "-m", "0").returncode == 2


def test_a_background_that_cannot_listen_is_told(start):
    port = start().address[1]
    done = run("-d", "-p", port, "-s", "/nowhere/at/all.sock")
    assert done.returncode == 1
    assert "the daemon has ended" in done.stderr


def test_top_shows_what_happens(start):
    store = start()
    client = store.client()
    client.set("favourite", b"1")
    for _ in range(500):
        client.get("favourite")
    client.get("none")
    done = run(ports.text(store.address), "--once", program=(BINARY, "top"))
    assert done.returncode == 0
    text = done.stdout
    for part in ["hit ratio 99.8 %", "memory", "waiters  0 polls", "favourite", "p99 us"]:
        assert part in text, text
    done = run(ports.text(ports.free_address()), "--once", program=(BINARY, "top"))
    assert (done.returncode, "refused" in done.stderr) == (1, True)


def test_top_logs_in_and_finds_unix_sockets(cleanup, tmp_path):
    users, path = tmp_path / "users", tmp_path / "store.sock"
    users.write_text("alice:secret\n")
    store = Process([BINARY, "store", "-s", path, "-Y", users], tmp_path / "log")
    cleanup.callback(store.stop)
    store.start_listening(path)
    top = (BINARY, "top")
    assert run(path, "--once", program=top).returncode == 1
    done = run(path, "--once", "--auth-file", users, program=top)
    assert done.returncode == 0, done.stderr
    assert "0 items" in done.stdout
