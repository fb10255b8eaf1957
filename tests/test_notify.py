"""systemd's notification protocol, with a socket in the place of the service manager."""

import os
import signal
import socket

import pytest

from support.upgrade import upgrade

KEY = "/poll/alice"


class Manager:
    """Hears what the process says."""

    def __init__(self, name):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(10)
        self.socket.bind(name)

    def message(self):
        """The next message as a dictionary."""
        lines = self.socket.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture(params=["file", "abstract"])
def manager(request, cleanup, tmp_path, monkeypatch):
    if request.param == "file":
        name = path = str(tmp_path / "notify")
    else:
        name, path = f"\0dwell-test-{os.getpid()}", f"@dwell-test-{os.getpid()}"
    manager = Manager(name)
    cleanup.callback(manager.socket.close)
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    return manager


def test_it_is_told_of_the_start_a_reload_and_the_end(manager, start_dwell):
    dwell = start_dwell()
    assert manager.message() == {"READY": "1", "STATUS": "serving"}
    dwell.signal(signal.SIGHUP)
    reloading = manager.message()
    assert reloading["RELOADING"] == "1"
    assert int(reloading["MONOTONIC_USEC"]) > 0
    assert manager.message() == {"READY": "1", "STATUS": "serving"}
    dwell.config.write_text("[nonsense]\n")
    dwell.signal(signal.SIGHUP)
    assert "RELOADING" in manager.message()
    refused = manager.message()
    assert refused["READY"] == "1", "it serves on by the file before"
    assert "refused" in refused["STATUS"]
    dwell.signal(signal.SIGTERM)
    assert manager.message()["STOPPING"] == "1"
    assert dwell.wait() == 0


def test_the_watchdog_hears_an_idle_process(manager, start_dwell, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    dwell = start_dwell()
    assert manager.message()["READY"] == "1"
    for _ in range(5):
        assert manager.message() == {"WATCHDOG": "1"}
    assert dwell.get(KEY).status == 404


def test_a_manager_that_has_gone_disturbs_nobody(manager, start_dwell, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "40000")
    manager.socket.close()
    dwell = start_dwell()
    assert dwell.get(KEY).status == 404


def test_the_service_manager_is_told_which_process_serves(start_dwell, cleanup, manager):
    dwell = start_dwell()
    assert manager.message()["READY"] == "1"
    successor = upgrade(dwell, cleanup)
    assert manager.message() == {"MAINPID": str(successor.pid)}
    assert manager.message() == {"READY": "1", "STATUS": "serving"}
    assert dwell.wait() == 0
    dwell.get(KEY)
    successor.signal(signal.SIGTERM)
    assert manager.message()["STOPPING"] == "1", "nothing came from the process before"


def test_the_watchdog_hears_a_process_that_stands_still(start_dwell, cleanup, manager, monkeypatch):
    # Longer than this takes: the loops themselves say nothing.
    monkeypatch.setenv("WATCHDOG_USEC", str(3600 * 1_000_000))
    dwell = start_dwell()
    assert manager.message()["READY"] == "1"
    successor = upgrade(dwell, cleanup)
    assert manager.message() == {"WATCHDOG": "1"}
    assert manager.message() == {"MAINPID": str(successor.pid)}
