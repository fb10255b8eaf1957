"""`dwell reload`, `dwell stop` and `dwell upgrade`: the process of a pid file, and no other."""

import concurrent.futures
import fcntl
import os
import pathlib
import pwd
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

from support import ports
from support.dwell import BINARY
from support.process import Process
from support.upgrade import Successor
from support.wait import PATIENCE_S, until

KEY = "/poll/alice"


def run(*arguments, **variables):
    environment = {"PATH": os.environ["PATH"], **variables}
    command = [BINARY, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


@pytest.fixture
def edge(start_dwell, tmp_path):
    """A process with a pid file."""
    edge = start_dwell(server={"pid_file": str(tmp_path / "dwell.pid")})
    edge.pid_file = tmp_path / "dwell.pid"
    # It is written after the listeners are open.
    own = f"{edge.pid}\n"
    until(lambda: edge.pid_file.exists() and edge.pid_file.read_text() == own, "it is written")
    edge.report = tmp_path / "dwell.pid.results"
    until(edge.report.exists, "the process serves")
    return edge


@pytest.fixture
def bystander():
    """A process that any signal of these commands would end."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    assert child.poll() is None
    child.stdin.close()
    child.wait(PATIENCE_S)


def test_a_process_is_found_by_its_file_until_it_has_ended(edge):
    assert edge.pid_file.read_text() == f"{edge.pid}\n"
    result = run("stop", "--pid-file", edge.pid_file)
    assert (result.returncode, result.stdout) == (0, f"process {edge.pid} has ended\n")
    assert edge.wait() == 0
    assert not edge.pid_file.exists()
    for command in ("reload", "stop", "upgrade"):
        result = run(command, "--pid-file", edge.pid_file)
        assert result.returncode == 1
        expected = f"dwell {command}: no process serves with {edge.pid_file}\n"
        assert (result.stdout, result.stderr) == ("", expected)


def test_a_reload_checks_the_file_first(edge):
    edge.rewrite(route=[{"prefix": "/other/"}])
    result = run("reload", "--config", edge.config)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"process {edge.pid} has applied its configuration as generation 2\n"
    until(lambda: edge.get("/other/x").status == 404, "the new route is there")
    edge.await_metric(2, "dwell_config_generation")
    edge.config.write_text("[server]\nlitsen = 1\n")
    for command in ("reload", "upgrade"):
        for flags in ([], ["--pid-file", edge.pid_file]):
            result = run(command, "--config", edge.config, *flags)
            assert result.returncode == 2
            assert "did you mean `listen`?" in result.stderr
    assert edge.metric("dwell_config_reloads_total", outcome="refused") == 0
    # What has become of the file does not keep a process from being stopped.
    named = {"DWELL_CONFIG": str(edge.config)}
    assert run("stop", "--pid-file", edge.pid_file, **named).returncode == 0
    assert edge.wait() == 0


def test_a_reload_returns_its_own_result(edge):
    assert edge.report.stat().st_mode & 0o777 == 0o600
    edge.config.write_text("[server]\nlitsen = 1\n")
    # The command does not know the file, so that the process finds the mistake.
    result = run("reload", "--pid-file", edge.pid_file)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"dwell reload: process {edge.pid} keeps the configuration")
    assert "did you mean `listen`?" in result.stderr
    # What was wrong before is not the result of the next one.
    edge.rewrite(server={"pid_file": str(edge.pid_file), "pollers": 3})
    result = run("reload", "--pid-file", edge.pid_file)
    assert result.returncode == 0
    assert result.stdout == f"process {edge.pid} has applied its configuration as generation 2\n"
    expected = "dwell: warning: server.pollers needs a restart: the value before stays\n"
    assert result.stderr == expected
    taken = socket.create_server(("127.0.0.1", 0))
    with taken:
        port = taken.getsockname()[1]
        edge.rewrite(server={"listen": f"127.0.0.1:{port}", "pid_file": str(edge.pid_file)})
        result = run("reload", "--config", edge.config)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"127.0.0.1:{port}" in result.stderr
    assert edge.metric("dwell_config_reloads_total", outcome="refused") == 2
    assert run("stop", "--pid-file", edge.pid_file).returncode == 0
    assert not edge.report.exists()


def test_two_reloads_at_once_each_have_a_result(edge):
    with concurrent.futures.ThreadPoolExecutor(8) as several:
        results = list(several.map(lambda _: run("reload", "--config", edge.config), range(8)))
    assert [result.returncode for result in results] == [0] * 8, results
    generations = {int(result.stdout.split()[-1]) for result in results}
    edge.await_metric(max(generations), "dwell_config_generation")


def test_a_reload_without_a_result_has_an_end(edge):
    os.kill(edge.pid, signal.SIGSTOP)
    result = run("reload", "--pid-file", edge.pid_file, "--timeout", "1")
    assert (result.returncode, result.stdout) == (1, "")
    expected = f"process {edge.pid} has no result after 1 s: its log will have it"
    assert result.stderr == f"dwell reload: {expected}\n"
    result = run("reload", "--pid-file", edge.pid_file, "--timeout", "0")
    expected = f"process {edge.pid} reads its configuration again; its log has the result\n"
    assert (result.returncode, result.stdout) == (0, expected)
    # Nor does the report of another process pass for one.
    edge.report.write_text(edge.report.read_text().replace(str(edge.pid), "1"))
    command = [BINARY, "reload", "--pid-file", edge.pid_file]
    waiting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    edge.signal(signal.SIGKILL)
    edge.wait()
    _, error = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 1
    ends = (
        f"process {edge.pid} has ended without a result",
        f"no process serves with {edge.pid_file}",
    )
    assert error in [f"dwell reload: {end}\n" for end in ends]


def test_a_process_without_a_file_looks_names_up(tmp_path, cleanup):
    pid_file = tmp_path / "store.pid"
    assert run("store", "-d", "-p", "-1", "-P", pid_file).returncode == 0
    until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the file is written")
    pid = int(pid_file.read_text())
    cleanup.callback(Successor(pid).stop)
    result = run("reload", "--pid-file", pid_file)
    expected = (
        f"process {pid} serves without a configuration file: it has looked names up again; its log "
        "has the results of its other files\n"
    )
    assert (result.returncode, result.stdout) == (0, expected)


def test_the_file_of_the_configuration_is_found_without_a_flag(edge):
    for variables in (
        {"DWELL_CONFIG": str(edge.config)},
        {"DWELL_SERVER_PID_FILE": str(edge.pid_file)},
    ):
        assert run("reload", **variables).returncode == 0
    result = run("reload")
    assert result.returncode == 2
    assert "dwell reload: no pid file: name it in --pid-file" in result.stderr


def test_a_file_that_was_left_behind_reaches_no_process(edge, bystander, tmp_path):
    edge.signal(signal.SIGKILL)
    edge.wait()
    assert edge.pid_file.read_text() == f"{edge.pid}\n"
    stale = tmp_path / "stale.pid"
    stale.write_text(f"{bystander.pid}\n")
    # Nor does it help that the process uses the file, or has locked all of it for itself.
    held = tmp_path / "held.pid"
    held.write_text(f"{bystander.pid}\n")
    with held.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        for path in (edge.pid_file, stale, held):
            for command in ("reload", "stop", "upgrade"):
                result = run(command, "--pid-file", path)
                assert (result.returncode, result.stdout) == (1, ""), path
                assert str(path) in result.stderr
    for text in ("", "0\n", "-1\n", "nonsense\n", f"{2**32 + bystander.pid}\n"):
        stale.write_text(text)
        assert run("stop", "--pid-file", stale).returncode == 1


def test_an_upgrade_ends_with_the_process_that_serves(edge, cleanup):
    edge.store().set(KEY, b"value")
    result = run("upgrade", "--config", edge.config)
    assert result.returncode == 0, result.stderr
    successor = int(edge.pid_file.read_text())
    cleanup.callback(Successor(successor).stop)
    assert successor != edge.pid
    assert result.stdout == f"process {successor} serves in the place of {edge.pid}\n"
    assert edge.wait() == 0
    assert edge.pid_file.read_text() == f"{successor}\n"
    assert edge.get(KEY).body == b"value"
    result = run("reload", "--config", edge.config)
    expected = f"process {successor} has applied its configuration as generation 2\n"
    assert (result.returncode, result.stdout) == (0, expected)
    result = run("stop", "--config", edge.config)
    assert (result.returncode, result.stdout) == (0, f"process {successor} has ended\n")
    assert not edge.pid_file.exists()


def test_a_stop_that_waits_has_an_end(edge):
    os.kill(edge.pid, signal.SIGSTOP)
    result = run("stop", "--pid-file", edge.pid_file, "--timeout", "1")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"dwell stop: process {edge.pid} still drains after 1 s\n"
    os.kill(edge.pid, signal.SIGCONT)
    assert edge.wait() == 0


def test_an_upgrade_that_fails_is_told(edge):
    edge.config.write_text("[server]\nlitsen = 1\n")
    for _ in range(2):
        result = run("upgrade", "--pid-file", edge.pid_file)
        assert (result.returncode, result.stdout) == (1, "")
        expected = f"dwell upgrade: process {edge.pid} still serves: the new process has ended"
        assert result.stderr.startswith(expected)
    os.kill(edge.pid, signal.SIGSTOP)
    # What failed before is not the result of this one.
    result = run("upgrade", "--pid-file", edge.pid_file, "--timeout", "1")
    os.kill(edge.pid, signal.SIGCONT)
    expected = f"process {edge.pid} still serves after 1 s: its log has the reason"
    assert result.stderr == f"dwell upgrade: {expected}\n"
    assert edge.pid_file.read_text() == f"{edge.pid}\n"
    edge.await_output("the upgrade is given up")
    assert run("stop", "--pid-file", edge.pid_file).returncode == 0


def test_an_upgrade_writes_the_file_of_a_process_that_was_root(cleanup, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    nobody = pwd.getpwnam("nobody")
    folder = pathlib.Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    pid_file, address = folder / "dwell.pid", ports.free_address()
    flags = ["--listen", ports.text(address), "--store", "off", "--admin", "off"]
    flags += ["--set", "server.user=nobody", "--pid-file", pid_file]
    edge = Process([BINARY, "serve", *flags], tmp_path / "log", folder=folder)
    cleanup.callback(edge.stop)
    edge.start_listening(address)
    until(lambda: pathlib.Path(f"/proc/{edge.pid}").stat().st_uid == nobody.pw_uid, "it is nobody")
    assert pid_file.stat().st_uid == 0
    result = run("upgrade", "--pid-file", pid_file)
    assert result.returncode == 0, result.stderr + edge.output()
    successor = int(pid_file.read_text())
    cleanup.callback(Successor(successor).stop)
    assert (successor == edge.pid, pid_file.stat().st_uid) == (False, nobody.pw_uid)
    assert edge.wait() == 0
    assert run("reload", "--pid-file", pid_file).returncode == 0
    assert (folder / "dwell.pid.results").stat().st_uid == nobody.pw_uid
    assert run("stop", "--pid-file", pid_file).returncode == 0
    assert list(folder.glob("dwell.pid*")) == []


def test_a_pid_file_that_cannot_be_written_ends_the_start(tmp_path):
    absent = tmp_path / "none" / "dwell.pid"
    listen = ["--listen", "127.0.0.1:0", "--store", "off", "--admin", "off"]
    for command in (["serve"], ["check"]):
        result = run(*command, *listen, "--pid-file", absent)
        assert result.returncode == 1
        assert f"cannot write {absent}: " in result.stderr
    victim, link = tmp_path / "victim", tmp_path / "link.pid"
    victim.write_text("precious")
    link.symlink_to(victim)
    assert run("serve", *listen, "--pid-file", link).returncode == 1
    assert victim.read_text() == "precious"


def test_the_store_can_be_stopped_too(tmp_path, cleanup):
    pid_file = tmp_path / "store.pid"
    assert run("store", "-d", "-p", "-1", "-P", pid_file).returncode == 0
    until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the file is written")
    pid = int(pid_file.read_text())
    cleanup.callback(Successor(pid).stop)
    result = run("stop", "--pid-file", pid_file)
    assert (result.returncode, result.stdout) == (0, f"process {pid} has ended\n")
