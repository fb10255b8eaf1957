"""``python -m dwell``: processes, signals, reload and messages."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dwell._reload import Watcher, pause_after
from programs import WSGI, Start
from wire import TIMEOUT, Wire, until_refused


@pytest.mark.parametrize(("module", "word"), [("web", "WSGI"), ("aweb:app", "ASGI")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serving_and_stopping(start: Start, module: str, word: str, number: signal.Signals) -> None:
    program = start(module, "--port", "0")
    address = program.address()
    assert word in program.seen[-2]
    with Wire(address) as client:
        assert client.ask("GET /").status == 200
        program.send(number)
        assert program.end() == 0
        assert client.is_closed()
    assert not any("Traceback" in line for line in program.seen)


@pytest.mark.parametrize("module", ["web", "aweb"])
def test_requests_under_way_are_finished(start: Start, module: str) -> None:
    program = start(module, "--port", "0", "--threads", "2")
    address = program.address()
    with Wire(address) as client, Wire(address) as other:
        other.ask("GET /")
        client.request("GET /wait")
        program.wait_for("waiting")
        if module == "web":
            # Sent before the signal, so that it is read before the server drains.
            other.request("GET /release")
        program.send(signal.SIGTERM)
        answer = client.answer()
        assert answer.status == 200
    assert program.end() == 0


@pytest.mark.parametrize("module", ["web", "aweb"])
def test_an_interrupt_is_one_signal_to_workers(start: Start, module: str) -> None:
    program = start(module, "--port", "0", "--workers", "1", "--threads", "2")
    address = program.address()
    with Wire(address) as client, Wire(address) as other:
        other.ask("GET /")
        client.request("GET /wait")
        program.wait_for("waiting")
        if module == "web":
            other.request("GET /release")
        program.interrupt()
        assert client.answer().status == 200
    assert program.end() == 0


def test_a_second_signal_ends_at_once(start: Start) -> None:
    program = start("web", "--port", "0")
    address = program.address()
    with Wire(address) as client:
        client.request("GET /wait")
        program.wait_for("waiting")
        program.send(signal.SIGTERM)
        until_refused(address)
        program.send(signal.SIGTERM)
        assert client.is_closed()
        program.end()


def test_graceful_timeout(start: Start) -> None:
    program = start("web", "--port", "0", "--graceful-timeout", "0.2")
    address = program.address()
    with Wire(address) as client:
        client.request("GET /wait")
        program.wait_for("waiting")
        program.send(signal.SIGTERM)
        assert client.is_closed()
        program.end()


def ask_until(address: tuple[str, int], wanted: Callable[[str], bool]) -> str:
    """Asks new workers for their number until one is as wanted; every answer is right."""
    while True:
        try:
            with Wire(address) as client:
                answer = client.ask("GET /", "Connection: close")
        except (ConnectionResetError, AssertionError):
            continue
        assert answer.status == 200
        pid = answer.header("X-Pid")
        assert pid is not None
        if wanted(pid):
            return pid


@pytest.mark.parametrize("module", ["web", "aweb"])
def test_workers_share_the_port(start: Start, module: str) -> None:
    program = start(module, "--port", "0", "--workers", "2")
    address = program.address()
    first = ask_until(address, lambda pid: True)
    second = ask_until(address, lambda pid: pid != first)
    assert str(program.process.pid) not in (first, second)
    program.send(signal.SIGTERM)
    assert program.end() == 0


def test_a_worker_that_dies_is_replaced(start: Start) -> None:
    program = start("web", "--port", "0", "--workers", "1")
    address = program.address()
    before = ask_until(address, lambda pid: True)
    with Wire(address) as client:
        client.request("GET /die")
        assert client.is_closed()
    assert "status 9" in program.wait_for("another one is started")
    after = ask_until(address, lambda pid: pid != before)
    os.kill(int(after), signal.SIGKILL)
    assert "SIGKILL" in program.wait_for("another one is started")
    ask_until(address, lambda pid: pid not in (before, after))
    program.send(signal.SIGTERM)
    assert program.end() == 0


@pytest.mark.parametrize("module", ["web", "aweb"])
def test_sighup_replaces_the_workers_without_refusing_anybody(start: Start, module: str) -> None:
    program = start(module, "--port", "0", "--workers", "1")
    address = program.address()
    before = ask_until(address, lambda pid: True)
    program.send(signal.SIGHUP)
    pid = before
    while pid == before:
        with Wire(address) as client:
            answer = client.ask("GET /", "Connection: close")
        assert answer.status == 200
        pid = str(answer.header("X-Pid"))
    program.send(signal.SIGTERM)
    assert program.end() == 0


def test_sighup_with_a_broken_application_keeps_the_old_worker(
    start: Start, tmp_path: Path
) -> None:
    program = start("web", "--port", "0", "--workers", "1")
    address = program.address()
    before = ask_until(address, lambda pid: True)
    (tmp_path / "web.py").write_text("this is no Python")
    program.send(signal.SIGHUP)
    program.wait_for("the old one goes on")
    assert ask_until(address, lambda pid: True) == before
    program.send(signal.SIGTERM)
    assert program.end() == 0


def test_workers_end_with_their_supervisor(start: Start) -> None:
    program = start("web", "--port", "0", "--workers", "1")
    address = program.address()
    ask_until(address, lambda pid: True)
    with Wire(address) as client:
        client.ask("GET /")
        program.process.kill()
        assert client.is_closed()


def test_reload(start: Start, tmp_path: Path) -> None:
    program = start("web", "--port", "0", "--reload")
    address = program.address()
    before = ask_until(address, lambda pid: True)
    (tmp_path / "web.py").write_text("this is no Python")
    program.wait_for("web.py has changed")
    program.wait_for("SyntaxError")
    program.wait_for("waiting for a change")
    (tmp_path / "web.py").write_text(WSGI + "# repaired, and longer\n")
    program.wait_for("web.py has changed")
    ask_until(address, lambda pid: pid != before)
    program.send(signal.SIGTERM)
    assert program.end() == 0


def test_unix_socket_and_proxy_headers(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    program = start("web", "--unix-socket", str(path), "--trusted-proxies", "10.0.0.0/8")
    program.wait_for(f"unix:{path}")
    program.wait_for("Ctrl+C")
    with Wire((str(path), 0)) as client:
        assert client.ask("GET /", "X-Forwarded-For: 9.9.9.9, 10.1.1.1").body == b"web.py 9.9.9.9"
    program.send(signal.SIGTERM)
    assert program.end() == 0
    assert not path.exists()


@pytest.mark.parametrize(("options", "mode"), [([], 0o666), (["--socket-mode", "620"], 0o620)])
def test_permissions_of_a_unix_socket(
    start: Start, tmp_path: Path, options: list[str], mode: int
) -> None:
    path = tmp_path / "socket"
    program = start("web", "--unix-socket", str(path), *options)
    program.wait_for("Ctrl+C")
    assert path.stat().st_mode & 0o777 == mode


def test_sources_that_are_watched(tmp_path: Path) -> None:
    for name in (
        "shop/web.py",
        "env/pyvenv.cfg",
        "env/lib/tool.py",
        "env/lib/python3/site-packages/package.py",
        "lib/site-packages/package.py",
        "node_modules/package/setup.py",
        ".hidden/tool.py",
        "shop/__pycache__/web.py",
        "shop/page.html",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    sources = Watcher([str(tmp_path)]).sources()
    below = {name for name in sources if name.startswith(str(tmp_path))}
    assert below == {str(tmp_path / "shop" / "web.py")}
    # Modules from elsewhere are watched, but not what is installed.
    assert __file__ in sources
    assert pytest.__file__ not in sources
    assert contextlib.__file__ not in sources


def test_watching_takes_a_hundredth_of_a_core() -> None:
    assert pause_after(0.001) == 0.5
    assert pause_after(0.1) == 10


def test_access_log(start: Start) -> None:
    program = start("aweb", "--port", "0", "--access-log")
    with Wire(program.address()) as client:
        client.ask("GET /path?x=1")
    line = program.wait_for("GET /path?x=1")
    assert "127.0.0.1" in line
    assert "200" in line
    assert "4 B" in line


@pytest.mark.parametrize("module", ["web", "aweb"])
def test_an_access_log_that_nobody_reads(start: Start, module: str) -> None:
    program = start(module, "--port", "0", "--access-log", "--threads", "2")
    address = program.address()
    program.reads.clear()
    path = "/" + "x" * 4000
    with Wire(address) as client:
        # Much more than a pipe takes.
        for _ in range(100):
            assert client.ask(f"GET {path}").status == 200
    if module == "web":
        # The other one prints something of its own at the end.
        program.send(signal.SIGTERM)
        assert program.process.wait(TIMEOUT) == 0
    program.reads.set()
    program.send(signal.SIGTERM)
    assert program.end() == 0
    assert any(path in line for line in program.seen)


def test_lifespan(start: Start) -> None:
    program = start("aweb", "--port", "0")
    program.address()
    program.send(signal.SIGTERM)
    assert program.end() == 0
    lines = [line for line in program.seen if line.startswith("lifespan")]
    assert lines == ["lifespan.startup", "lifespan.shutdown"]


def test_a_factory(start: Start, tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text("import web\ndef make():\n    return web.app\n")
    program = start("made:make", "--factory", "--port", "0")
    with Wire(program.address()) as client:
        assert client.ask("GET /").status == 200


MISTAKES: list[tuple[list[str], str]] = [
    (["nothing:app"], "--app-dir"),
    (["web:application"], "has no 'application'"),
    (["web:gate.wait.x"], "has no 'x'"),
    (["web:__name__"], "is no application"),
    (["web", "--port", "99999"], "99999"),
    (["web", "--workers", "0"], "--workers"),
    (["web", "--threads", "0"], "threads is out of range: 0"),
    (["web", "--header-timeout", "0"], "header_timeout is out of range"),
    (["web", "--min-body-rate", "-1"], "min_body_rate is out of range: -1"),
    (["web", "--trusted-proxies", "nobody"], "nobody"),
    (["web", "--host", "192.0.2.1"], "check --host"),
    (["web", "--prot", "80"], "--prot"),
    (["web", "--unix-socket", "x", "--socket-mode", "888"], "--socket-mode"),
    (["web", "--root-path", "app"], "root_path does not begin with a slash"),
    (["aweb:app", "--workers", "2", "--lifespan", "never"], "never"),
    (["nothing:app", "--workers", "2"], "--app-dir"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_explained(start: Start, arguments: list[str], message: str) -> None:
    # Tests run beside one another, so none listens on the port of everyone's choice.
    has_place = {"--port", "--unix-socket"} & set(arguments)
    place = [] if has_place else ["--port", "0"]
    program = start(arguments[0], *place, *arguments[1:])
    assert program.end() != 0
    printed = "\n".join(program.seen)
    assert message in printed
    assert "Traceback" not in printed


def test_a_port_in_use_is_explained(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        program = start("web", "--port", str(taken.getsockname()[1]))
        assert program.end() == 1
    assert "another program listens there" in "\n".join(program.seen)


def test_version_and_help(start: Start) -> None:
    program = start("--version")
    assert program.end() == 0
    assert program.seen[0].startswith("dwell 0.")
    program = start("--help")
    assert program.end() == 0
    assert "module:app" in "\n".join(program.seen)


@pytest.mark.parametrize(
    ("source", "message"),
    [("import redi\n", "No module named 'redi'"), ("int('x')\n", "line 1, in <module>")],
)
def test_failures_of_the_application_are_shown(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "redi_app.py").write_text(source)
    command = [sys.executable, "-m", "dwell", "redi_app:app", "--port", "0"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert message in done.stderr
    assert "there is no module" not in done.stderr
