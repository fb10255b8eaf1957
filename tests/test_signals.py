"""Signals that others send: none ends a service that was not told to end."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from support.dwell import Dwell
from support.store import Store
from support.wait import until

KEY = "/poll/alice"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_the_access_log_is_opened_again_without_a_configuration_file(cleanup, tmp_path, number):
    log = tmp_path / "access.log"
    dwell = Dwell(tmp_path)
    server, store = dwell.sections["server"], dwell.sections["store"]
    flags = ["--listen", server["listen"], "--admin", server["admin"], "--store", store["listen"]]
    dwell.arguments = [dwell.arguments[0], "serve", *flags, "--access-log", str(log)]
    cleanup.callback(dwell.stop)
    dwell.start_ready()
    dwell.store().set(KEY, b"value")
    assert dwell.get(KEY).body == b"value"
    until(lambda: log.read_text().count("\n") == 1, "the line is written")
    log.rename(tmp_path / "access.log.1")
    dwell.signal(number)
    until(lambda: "access log opened again" in dwell.output(), "the log is opened again")
    assert dwell.get(KEY).body == b"value"
    until(lambda: log.exists() and log.read_text().count("\n") == 1, "a new file is written")
    if number == signal.SIGHUP:
        dwell.await_output("no --config FILE")
    else:
        assert "no --config FILE" not in dwell.output()


def test_a_store_goes_on_after_a_hangup(cleanup, tmp_path):
    store = Store(tmp_path, "-vv")
    cleanup.callback(store.stop)
    store.start_ready()
    client = store.client()
    client.set("key", b"value")
    store.signal(signal.SIGHUP)
    until(lambda: "no configuration is read again" in store.output(), "the signal is heard")
    assert client.get("key") == b"value"
    store.signal(signal.SIGUSR1)
    assert store.wait() == 0


def can_unshare():
    """Whether a PID namespace can be made here."""
    if not shutil.which("unshare"):
        return False
    tried = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="no PID namespace can be made here")
def test_the_first_process_of_a_container_refuses_to_be_replaced(cleanup, tmp_path):
    dwell = Dwell(tmp_path)
    space = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    dwell.arguments = [*space, *dwell.arguments]
    cleanup.callback(dwell.stop)
    dwell.start_ready()
    dwell.store().set(KEY, b"value")
    children = pathlib.Path(f"/proc/{dwell.pid}/task/{dwell.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGUSR2)
    until(lambda: "it is process 1" in dwell.output(), "the upgrade is refused")
    assert dwell.metric("dwell_upgrades_failed_total") == 1
    assert dwell.get(KEY).body == b"value"
    os.kill(int(children[0]), signal.SIGTERM)
    dwell.wait()
