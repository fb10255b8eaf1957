"""Options of ``python -m dwell``: where they come from, and what they open, watch and log."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dwell._options import UsageError, manual, options, parse, read_env_file
from dwell._reload import Watcher
from dwell._sockets import Address, Listening, activated_sockets
from programs import Program, Start
from wire import Wire

MANUAL = Path(__file__).parents[3] / "docs" / "wsgi-asgi-options.md"
BOUNDS = ("<!-- options: written by a test, see test_cli_options.py -->\n", "<!-- end -->")


def test_the_manual_has_the_table_of_options() -> None:
    text = MANUAL.read_text()
    before, rest = text.split(BOUNDS[0])
    table, after = rest.split(BOUNDS[1])
    if os.environ.get("DWELL_WRITE_DOCS"):
        MANUAL.write_text(f"{before}{BOUNDS[0]}\n{manual()}\n\n{BOUNDS[1]}{after}")
    else:
        assert table.strip() == manual(), "run this test with DWELL_WRITE_DOCS=1"


def test_every_option_can_be_given_in_the_environment() -> None:
    samples = {
        option.variable: "1" if option.read in (None, int, float) else "x" for option in options()
    }
    samples |= {"DWELL_SOCKET_MODE": "600", "DWELL_PORT": "81", "DWELL_ENV_FILE": ""}
    samples |= {option.variable: option.choices[-1] for option in options() if option.choices}
    values = parse(["web"], samples)
    for option in options():
        wanted: object = samples[option.variable]
        if option.read is None:
            wanted = True
        elif option.is_list:
            wanted = ["x"]
        elif wanted:
            wanted = option.read(str(wanted))
        assert getattr(values, option.name) == (wanted or None), option.variable
    assert values.socket_mode == 0o600
    assert values.given >= {option.name for option in options()} - {"env_file"}


def test_the_command_line_wins_over_the_environment() -> None:
    environment = {"DWELL_PORT": "81", "DWELL_ACCESS_LOG": "on", "DWELL_APP": "shop:app"}
    values = parse(["--port", "82", "--no-access-log"], environment)
    assert (values.port, values.access_log, values.app) == (82, False, "shop:app")
    assert parse(["web"], environment).access_log is True
    # An empty variable is as one that is not there.
    assert parse(["web"], {"DWELL_PORT": ""}).port == 8000
    assert parse(["web"], {"DWELL_TRUSTED_PROXIES": "::1, 10.0.0.0/8"}).trusted_proxies == [
        "::1",
        "10.0.0.0/8",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "tcp://10.0.0.1:80"), ("RELOAD", "maybe"), ("LIFESPAN", "never")],
)
def test_wrong_values_of_the_environment_are_named(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"DWELL_{name} is wrong: '{value}'"):
        parse(["web"], {f"DWELL_{name}": value})


def test_an_env_file(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text(
        "# a comment\n\nPLAIN=a b#c # comment\nexport EXPORTED=1\nEMPTY=\n"
        'SINGLE=\'a # \\n b\'  # comment\nDOUBLE="a\\nb \\"c\\" #"\n  SPACED = x \n'
    )
    assert read_env_file(str(path)) == {
        "PLAIN": "a b#c",
        "EXPORTED": "1",
        "EMPTY": "",
        "SINGLE": "a # \\n b",
        "DOUBLE": 'a\nb "c" #',
        "SPACED": "x",
    }
    path.write_text("A=1\nno line of ours\n")
    with pytest.raises(UsageError, match=r"env:2: not NAME=value: 'no line of ours'"):
        read_env_file(str(path))
    # Many ways to read the blanks would take for ever, and the message is short.
    path.write_text("A=a" + " " * 100_000 + "b'\n")
    with pytest.raises(UsageError, match=r"env:1: not NAME=value: 'A=a {77}'$"):
        read_env_file(str(path))
    path.write_text("A=a#'b'\n")
    with pytest.raises(UsageError, match=r"env:1: not NAME=value: \"A=a#'b'\""):
        read_env_file(str(path))
    with pytest.raises(UsageError, match="No such file"):
        read_env_file(str(tmp_path / "nothing"))


def test_an_env_file_is_the_application_s_and_ours(start: Start, tmp_path: Path) -> None:
    (tmp_path / "env").write_text("DWELL_PORT=0\nGREETING=from-file\nKEPT=from-file\n")
    (tmp_path / "greet.py").write_text(
        "import os\ntext = os.environ['GREETING'] + ' ' + os.environ['KEPT']\n"
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [])\n    return [text.encode()]\n"
    )
    program = start("greet", "--env-file", "env", environment={"KEPT": "kept"})
    with Wire(program.address()) as client:
        assert client.ask("GET /").body == b"from-file kept"


def serves(program: Program, address: tuple[str, int]) -> None:
    """Checks that it serves at an address, and that it ends in order."""
    program.wait_for("Ctrl+C")
    with Wire(address) as client:
        assert client.ask("GET /").status == 200
    program.send(signal.SIGTERM)
    assert program.end() == 0


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
@pytest.mark.parametrize("module", ["web", "aweb"])
def test_an_inherited_socket(start: Start, module: str, workers: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        number = bound.fileno()
        program = start(module, "--fd", str(number), *workers, pass_fds=[number])
        serves(program, bound.getsockname())
        # It is not ours to end: clients still find it.
        socket.create_connection(bound.getsockname()).close()


def test_an_inherited_unix_socket_keeps_its_file(start: Start, tmp_path: Path) -> None:
    path = str(tmp_path / "inherited")
    with socket.socket(socket.AF_UNIX) as bound:
        # Not listening yet.
        bound.bind(path)
        program = start("web", "--fd", str(bound.fileno()), pass_fds=[bound.fileno()])
        assert f"unix:{path}" in program.wait_for(" on ")
        serves(program, (path, 0))
        assert os.path.exists(path)


def test_socket_activation(tmp_path: Path) -> None:
    """As systemd starts a program: the sockets are 3 and 4, and the variables name the process."""
    (tmp_path / "web.py").write_text(
        "import os\n"
        "def app(environ, start_response):\n"
        "    assert not any(name.startswith('LISTEN_') for name in os.environ)\n"
        "    start_response('200 OK', [])\n    return [b'here']\n"
    )
    starter = (
        "import os, sys\n"
        "for place, number in enumerate(map(int, sys.argv[1:3]), 10): os.dup2(number, place)\n"
        "for place in (3, 4): os.dup2(place + 7, place); os.set_inheritable(place, True)\n"
        "os.environ |= {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '2'}\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'dwell', 'web'])\n"
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        numbers = [one.fileno(), other.fileno()]
        process = subprocess.Popen(
            [sys.executable, "-c", starter, *map(str, numbers)], cwd=tmp_path, pass_fds=numbers
        )
        try:
            for bound in (one, other):
                with Wire(bound.getsockname()) as client:
                    assert client.ask("GET /").body == b"here"
        finally:
            process.terminate()
            assert process.wait(30) == 0


def test_sockets_for_another_process_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid() + 1))
    assert activated_sockets() == []
    assert os.environ["LISTEN_FDS"] == "1"
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    assert activated_sockets() == [Address(descriptor=3)]
    assert "LISTEN_FDS" not in os.environ


def test_descriptors_that_are_no_listening_sockets() -> None:
    assert Address.parse("fd://7") == Address.parse("fd:7") == Address(descriptor=7)
    with pytest.raises(ValueError, match="no descriptor in 'fd:x'"):
        Address.parse("fd:x")
    read, write = os.pipe()
    with pytest.raises(RuntimeError, match=f"Failed to listen on 'fd:{read}'"):
        Listening([Address(descriptor=read)], 1)
    os.close(write)
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        number = os.dup(datagrams.fileno())
    with pytest.raises(RuntimeError, match="Failed to listen on"):
        Listening([Address(descriptor=number)], 1)


LOG_APP = """
import logging
def app(environ, start_response):
    logging.getLogger("shop").warning("sold %s", environ["PATH_INFO"])
    if environ["PATH_INFO"] == "/fail":
        raise LookupError("nothing left")
    start_response("200 OK", [])
    return [b""]
"""
CONFIG = {
    "version": 1,
    "formatters": {"f": {"format": "CONFIGURED %(name)s %(message)s"}},
    "handlers": {"h": {"class": "logging.StreamHandler", "formatter": "f"}},
    "root": {"handlers": ["h"], "level": "INFO"},
}
INI = """
[loggers]
keys=root
[handlers]
keys=h
[formatters]
keys=f
[logger_root]
level=INFO
handlers=h
[handler_h]
class=StreamHandler
formatter=f
args=(sys.stderr,)
[formatter_f]
format=CONFIGURED %(name)s %(message)s
"""


@pytest.mark.parametrize("kind", ["json", "yaml", "ini"])
def test_a_configuration_of_logging(start: Start, tmp_path: Path, kind: str) -> None:
    if kind == "yaml":
        pytest.importorskip("yaml")
    (tmp_path / "shop.py").write_text(LOG_APP)
    # What is JSON is YAML as well.
    (tmp_path / f"log.{kind}").write_text(INI if kind == "ini" else json.dumps(CONFIG))
    program = start("shop", "--port", "0", "--log-config", f"log.{kind}")
    with Wire(program.address()) as client:
        client.ask("GET /apple")
        program.wait_for("CONFIGURED shop sold /apple")
        client.ask("GET /fail")
        program.wait_for("CONFIGURED dwell the application failed on GET /fail")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.json", None, "No such file"),
        ("log.json", "{", "is wrong"),
        ("log.json", '{"version": 1, "root": {"handlers": ["none"]}}', "none"),
        ("log.ini", "nothing", "is wrong"),
    ],
)
def test_a_wrong_configuration_of_logging(
    start: Start, tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    program = start("web", "--port", "0", "--log-config", name)
    assert program.end() == 2
    printed = "\n".join(program.seen)
    assert f"--log-config '{name}'" in printed
    assert message in printed
    assert "Traceback" not in printed


def test_folders_and_patterns_that_are_watched(tmp_path: Path) -> None:
    for name in ("app/web.py", "app/old/web.py", "app/page.html", "other/tool.py", "third/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    watcher = Watcher(
        [str(tmp_path / "app"), str(tmp_path / "other")], ["*.html"], ["old", "tool*"]
    )
    sources = watcher.sources()
    found = {name[len(str(tmp_path)) + 1 :] for name in sources if name.startswith(str(tmp_path))}
    assert found == {"app/web.py", "app/page.html"}
    # Modules from elsewhere can be left out too.
    assert __file__ in sources
    assert __file__ not in Watcher([], (), ["test_*.py"]).sources()


def test_reload_of_a_folder_and_a_pattern(start: Start, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    page = tmp_path / "pages" / "page.html"
    page.write_text("one")
    options = ["--reload-dir", "pages", "--reload-include", "*.html"]
    program = start("web", "--port", "0", *options)
    with Wire(program.address()) as client:
        # It watches by the time it serves.
        client.ask("GET /")
    page.write_text("another")
    os.utime(page, (1, 1))
    program.wait_for("pages/page.html has changed")


HANGING = {
    "hangs": """
import os, time
def app(environ, start_response):
    start_response("200 OK", [("X-Pid", str(os.getpid()))])
    if environ["PATH_INFO"] == "/hang":
        os.write(1, b"hanging\\n")
        time.sleep(3600)
    return [b""]
""",
    "ahangs": """
import os, time
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise RuntimeError
    if scope["path"] == "/hang":
        os.write(1, b"hanging\\n")
        time.sleep(3600)
    headers = [(b"x-pid", str(os.getpid()).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body"})
""",
}


@pytest.mark.parametrize("module", HANGING)
def test_a_worker_that_hangs_is_replaced(start: Start, tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(HANGING[module])
    program = start(module, "--port", "0", "--threads", "1", "--worker-timeout", "1.5")
    address = program.address()
    with Wire(address) as client, Wire(address) as waiting:
        before = client.ask("GET /").header("X-Pid")
        client.request("GET /hang")
        program.wait_for("hanging")
        # The thread of WSGI is wanted for this one.
        waiting.request("GET /")
        program.wait_for("Timeout")
        assert f"{module}.py" in program.wait_for(" in app")
        program.wait_for("another one is started")
        assert client.is_closed()
    with Wire(address) as client:
        assert client.ask("GET /").header("X-Pid") != before
    program.send(signal.SIGTERM)
    assert program.end() == 0


@pytest.mark.parametrize("module", ["web", "aweb"])
def test_a_worker_that_is_idle_does_not_hang(start: Start, module: str) -> None:
    options = ["--worker-timeout", "1", "--keep-alive-timeout", "2.5"]
    program = start(module, "--port", "0", *options)
    address = program.address()
    with Wire(address) as client:
        before = client.ask("GET /").header("X-Pid")
        # An end that comes later than the timeout of the worker.
        assert client.is_closed()
    with Wire(address) as client:
        assert client.ask("GET /").header("X-Pid") == before
    program.send(signal.SIGTERM)
    assert program.end() == 0


MISTAKES = [
    (["web", "--fd", "77"], "Failed to listen on 'fd:77'"),
    (["web", "--fd", "3", "--uds", "x"], "these exclude one another: --fd, --uds"),
    (["web", "--uds", "x", "--port", "1"], "these exclude one another: --port, --uds"),
    (["web", "--port", "0", "--worker-timeout", "0"], "worker_timeout is out of range: 0.0"),
    (["web", "--reload-dir", "nowhere"], "--reload-dir is no folder: 'nowhere'"),
    (["web", "--env-file", "nowhere"], "--env-file 'nowhere' cannot be read"),
    (["--port", "0"], "the application is missing"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_explained(start: Start, arguments: list[str], message: str) -> None:
    program = start(*arguments)
    assert program.end() != 0
    printed = "\n".join(program.seen)
    assert message in printed
    assert "Traceback" not in printed
