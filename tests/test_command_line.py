"""The command line: the configuration in effect, what programs read of a check, exit statuses."""

import functools
import json
import os
import pty
import re
import socket
import subprocess
import tomllib

import jsonschema
import pytest

from support import ports
from support.dwell import BINARY, ROOT, Dwell
from support.wait import accepts

FILE = """\
[server]
listen = "127.0.0.1:8080"
pollers = 2
[publish]
token = "a-token-of-the-file"
[[route]]
prefix = "/poll/"
wait_max = "9s"
"""


def run(*arguments, text=None, **variables):
    """Runs `dwell` to its end, with this standard input and these variables alone."""
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(
        [BINARY, *map(str, arguments)],
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def options(result):
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)["options"]
    return {(one["section"], one["route"], one["name"]): one for one in found}


def test_each_option_is_printed_with_its_source(tmp_path):
    file = tmp_path / "dwell.toml"
    file.write_text(FILE)
    variables = {
        "DWELL_CONFIG": str(file),
        "DWELL_SERVER_POLLERS": "3",
        "DWELL_LOG_LEVEL": "debug",
        "DWELL_SERVER_LISTN": "127.0.0.1:1",
    }
    flags = ["--log-level", "warn", "--set", "limits.waiters_max=7"]
    result = run("config", "print", "--json", *flags, **variables)
    found = options(result)
    for (section, route, name), (value, source, place) in {
        ("server", None, "listen"): ("127.0.0.1:8080", "file", f"{file}:2"),
        ("server", None, "pollers"): (3, "environment", "DWELL_SERVER_POLLERS"),
        ("log", None, "level"): ("warn", "flag", "--log-level"),
        ("limits", None, "waiters_max"): (7, "flag", "--set"),
        ("publish", None, "token"): ("(hidden)", "file", f"{file}:5"),
        ("route", 0, "wait_max"): ("9s", "file", f"{file}:8"),
        ("server", None, "h2c"): (False, "default", None),
    }.items():
        one = found[section, route, name]
        assert (one["value"], one["source"], one["place"]) == (value, source, place)
    assert "DWELL_SERVER_LISTN sets no option: did you mean `server.listen`?" in result.stderr
    text = run("config", "print", *flags, **variables).stdout
    assert "a-token-of-the-file" not in text
    assert tomllib.loads(text)["server"]["pollers"] == 3
    assert f'token = "(hidden)"                            # file {file}:5' in text.splitlines()
    changed = tomllib.loads(run("config", "print", "--changed", *flags, **variables).stdout)
    assert changed["log"] == {"level": "warn"}
    assert changed["route"] == [{"prefix": "/poll/", "wait_max": "9s"}]


def test_a_configuration_comes_from_the_standard_input():
    checked = run("check", "-", "--offline", text=FILE)
    assert (checked.returncode, checked.stdout[:27]) == (0, "the standard input is good:")
    wrong = run("check", "-", text="[server]\nlitsen = 1\n")
    assert wrong.returncode == 2
    assert "the standard input:2:1" in wrong.stderr
    found = options(run("config", "print", "--json", "--config", "-", text=FILE))
    assert found["server", None, "pollers"]["place"] == "the standard input:3"
    endless = run("check", "-", text="#" * (1 << 20) + "#")
    assert endless.returncode == 2
    assert "more than 1048576 bytes" in endless.stderr


def test_a_check_without_a_file_says_so():
    checked = run("check", "--set", "limits.connections_max=10")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.startswith("no file: flags and environment are good: polls under /poll/")


@pytest.mark.parametrize("document", ["default", "reference", "schema", "metrics", "commands"])
def test_a_document_takes_no_flag_that_sets_an_option(document):
    flag = f"--print-{document}"
    assert run("check", flag).returncode == 0
    for unused in (["--listen", "127.0.0.1:1"], ["--set", "limits.waiters_max=1"]):
        refused = run("check", flag, *unused)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"'{flag}' cannot be used with '{unused[0]}" in refused.stderr


def test_a_program_reads_the_result_of_a_check(tmp_path):
    def check(text, *flags):
        result = run("check", "-", "--json", *flags, text=text)
        assert result.stderr == ""
        found = json.loads(result.stdout)
        assert found["status"] == result.returncode
        return found

    good = check(FILE, "--offline")
    assert (good["result"], good["mistakes"], good["errors"]) == ("good", [], [])
    assert good["summary"].startswith("polls under /poll/")
    wrong = check("[server]\nlitsen = 1\npollers = 9999\n")
    assert wrong["result"] == "wrong"
    assert [(one["line"], one["column"]) for one in wrong["mistakes"]] == [(2, 1), (3, 11)]
    assert wrong["mistakes"][0]["help"] == "did you mean `listen`?"
    lost = check(f'[publish]\ntoken_file = "{tmp_path}/none"\n')
    assert (lost["result"], len(lost["errors"])) == ("does-not-start", 1)
    assert f"{tmp_path}/none" in lost["errors"][0]
    # `--live` asks a server that is not there.
    closed = ports.text(ports.free_address())
    asked = check(f'[upstream]\nurl = "http://{closed}"\n', "--live")
    assert asked["result"] == "server-faults"
    assert [one["severity"] for one in asked["servers"]] == ["fault"]
    flag = run("check", "--json", DWELL_SERVER_POLLERS="many")
    [mistake] = json.loads(flag.stdout)["mistakes"]
    assert (mistake["flag"], mistake["file"]) == ("DWELL_SERVER_POLLERS", None)


def test_check_warns_of_a_limit_on_open_files_that_is_too_low():
    def warned(connections):
        text = f'[limits]\nconnections_max = {connections}\n[store]\nlisten = "off"\n'
        command = ["bash", "-c", 'ulimit -n 1024; exec "$0" check -', BINARY]
        result = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert result.returncode == 0, result.stderr
        return "the limit here is 1024" in result.stderr

    assert warned(10_000)
    assert not warned(100)


@pytest.fixture
def closed():
    """An address that refuses connections, for as long as the test takes."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield ports.text(held.getsockname())


# The exit status of a wrong flag is everywhere 2, that of a failure 1, and 3 of a server in `mc`.
def statuses(closed, folder):
    absent, wrong = folder / "none.toml", folder / "wrong.toml"
    wrong.write_text("[server]\nlitsen = 1\n")
    unstarted = ["--store", "off", "--admin", "off", "--set", f"publish.token_file={absent}"]
    listen = ["--listen", "127.0.0.1:0"]
    return [
        (0, ["help"]),
        (0, ["version"]),
        (0, ["--version"]),
        (2, []),
        (2, ["nonsense"]),
        (1, ["serve", *unstarted, *listen]),
        (2, ["serve", "--config", wrong]),
        (2, ["serve", "--config", absent]),
        (2, ["serve", "--nonsense"]),
        (0, ["check", "--offline"]),
        (2, ["check", wrong]),
        (2, ["check", absent]),
        (2, ["check", "--nonsense"]),
        (0, ["config", "print"]),
        (2, ["config", "print", "--config", wrong]),
        (2, ["config"]),
        (2, ["config", "nonsense"]),
        (1, ["health", "--admin", closed]),
        (2, ["health", "--nonsense"]),
        (1, ["top", closed, "--once"]),
        (2, ["top", "--nonsense"]),
        (0, ["explain", "/poll/x", "--admin", closed]),
        (2, ["explain", "/poll/x", "--config", wrong]),
        (1, ["explain", "/poll/x", "-H", "no colon", "--admin", closed]),
        (2, ["explain"]),
        (2, ["demo", "--nonsense"]),
        (2, ["demo", "--listen", "nonsense"]),
        (2, ["demo", "--listen", "0.0.0.0:0"]),
        (0, ["store", "-V"]),
        (1, ["store", "-p", "0", "-s", f"{folder}/none/socket"]),
        (2, ["store", "--nonsense"]),
        (3, ["mc", "-s", closed, "get", "key"]),
        (2, ["mc", "--nonsense"]),
        (1, ["reload", "--pid-file", absent]),
        (2, ["reload", "--config", wrong]),
        (2, ["reload"]),
        (1, ["stop", "--pid-file", absent]),
        (2, ["stop", "--config", wrong]),
        (2, ["stop", "--timeout", "-1"]),
        (1, ["upgrade", "--pid-file", absent]),
        (2, ["upgrade", "--config", absent]),
        (2, ["upgrade", "--nonsense"]),
        (0, ["man"]),
        (1, ["man", "--dir", "/dev/null/none"]),
        (0, ["completions", "bash"]),
        (2, ["completions", "nonsense"]),
    ]


def test_an_exit_status_means_the_same_in_each_command(closed, tmp_path):
    table = statuses(closed, tmp_path)
    found = [(run(*arguments).returncode, arguments) for _, arguments in table]
    assert found == table
    helped = run("help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    commands = {line.split()[0] for line in helped.splitlines()}
    assert commands == {arguments[0] for _, arguments in table if arguments} - {
        "--version",
        "nonsense",
    }


def test_the_long_version_names_what_is_built_in():
    first, *lines = run("--version").stdout.splitlines()
    built = dict(line.split(": ", 1) for line in lines)
    assert list(built) == ["target", "rustc", "features", "allocator", "tls"]
    assert first.startswith(run("-V").stdout.strip())
    assert re.match(r"\d+\.\d+\.\d+", built["rustc"])
    assert built["allocator"] == ("mimalloc" if "musl" in built["target"] else "system")
    assert built["tls"] == "rustls, aws-lc-rs"
    assert run("version").stdout == run("--version").stdout
    for command in (["serve"], ["check"], ["mc", "get"], ["config", "print"]):
        versioned = run(*command, "--version")
        assert versioned.returncode == 0
        assert versioned.stdout.splitlines()[1:] == run("--version").stdout.splitlines()[1:]


def commands(*parent):
    """Each command and subcommand, by the help of its parent."""
    helped = run(*parent, "--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    for line in helped.splitlines():
        one = [*parent, line.split()[0]]
        if one[-1] != "help":
            yield one
            yield from commands(*one)


def test_the_help_of_each_command_has_its_exit_statuses():
    helped = {" ".join(one): run(*one, "--help").stdout for one in commands()}
    assert {"serve", "store", "config", "config print", "mc", "mc get"} < set(helped)
    exempt = {"version"}
    assert {name for name, text in helped.items() if "Exit status: 0" not in text} == exempt


def test_an_absent_key_is_one(start_dwell):
    dwell = start_dwell()
    store = ports.text(dwell.store_address)
    assert run("mc", "-s", store, "get", "absent").returncode == 1
    dwell.store().set("present", b"value")
    assert run("mc", "-s", store, "get", "present").returncode == 0


def test_the_log_begins_with_the_ports_that_the_system_has_chosen(tmp_path, cleanup):
    dwell = Dwell(tmp_path, server={"listen": "127.0.0.1:0"}, store={"listen": "127.0.0.1:0"})
    cleanup.callback(dwell.stop)
    dwell.start()
    dwell.await_output("started: polls under")
    [told] = [line for line in dwell.output().splitlines() if "started: polls" in line]
    ports_told = re.findall(r"at 127\.0\.0\.1:(\d+)", told)
    assert len(ports_told) == 2, told
    for port in ports_told:
        assert accepts(("127.0.0.1", int(port))), told


def test_the_log_begins_with_the_process_and_ends_with_its_figures(start_dwell):
    dwell = start_dwell(log={"format": "json", "level": "info"}, limits={"waiters_max": 77})
    for _ in range(3):
        dwell.get("/poll/absent")
    dwell.stop()
    lines = [json.loads(line) for line in dwell.output().splitlines()]
    [begun] = [line for line in lines if line["message"].startswith("started: polls under /poll/")]
    assert begun["configuration"] == str(dwell.config)
    assert begun["version"] == run("-V").stdout.split()[1]
    assert (begun["loops"], begun["waiters_max"]) == (2, 77)
    assert lines[-1]["message"] == "ended"
    assert (lines[-1]["reason"], lines[-1]["requests"]) == ("drained", 3)
    assert lines[-1]["seconds"] > 0


@functools.cache
def schema():
    return json.loads(run("check", "--print-schema").stdout)


def accepts_as_schema(text):
    return jsonschema.Draft7Validator(schema()).is_valid(tomllib.loads(text))


def test_the_schema_is_one_and_accepts_the_files_of_the_documentation():
    jsonschema.Draft7Validator.check_schema(schema())
    assert accepts_as_schema("")
    assert accepts_as_schema(run("check", "--print-default").stdout)
    files = [
        *ROOT.glob("docs/**/*.toml"),
        *ROOT.glob("examples/**/dwell*.toml"),
        *ROOT.glob("dist/packages.d/*.toml"),
    ]
    assert len(files) > 1
    for file in files:
        assert run("check", "--offline", file).returncode == 0, file
        assert accepts_as_schema(file.read_text()), file


def test_the_schema_refuses_options_that_do_not_exist():
    for wrong in (
        "[server]\nlitsen = 1\n",
        "[sever]\n",
        "server = 1\n",
        "[route]\nprefix = '/poll/'\n",
        "[[route]]\n",
        "[[route]]\nprefix = '/poll/'\nwiat_max = '1s'\n",
        "[memcached]\nservers = [{address = 'a:1', wieght = 2}]\n",
    ):
        assert not accepts_as_schema(wrong), wrong
        assert run("check", "--offline", "-", text=wrong).returncode == 2, wrong


@pytest.mark.parametrize(
    ("option", "good", "wrong"),
    [
        ("server.pollers", ["0", "1024"], ["-1", "1025", "'2'", "1.5", "true"]),
        ("server.h2c", ["true"], ["'true'", "1"]),
        ("server.admin", ["'off'", "'[::1]:9090'", "'localhost:1'"], ["9090", "[]", "'9090'"]),
        ("server.listen", ["'127.0.0.1:0'", "['127.0.0.1:1', '[::]:2']"], ["8080", "[]", "[1]"]),
        ("limits.idle_timeout", ["'1m30s'", "'250ms'", "'1d'"], ["30", "'30'", "'1.5s'", "''"]),
        ("store.bytes_max", ["'64MiB'", "'64m'", "67108864"], ["'64TiB'", "1.5", "'MiB'", "-1"]),
        ("store.unix_permissions", ["'0700'", "'7'"], ["'8'", "700"]),
        ("log.level", ["'debug'"], ["'loud'", "1"]),
        ("upstream.url", ["'off'", "'http://a:1'", "['http://a:1', 'http://b']"], ["1", "[]"]),
        ("memcached.servers", ["'a:1=2'", "[{address = 'a:1', weight = 3}]"], ["1", "[{}]"]),
    ],
)
def test_the_schema_knows_the_type_of_a_value(option, good, wrong):
    for values, expected in ((good, True), (wrong, False)):
        for value in values:
            text = f"{option} = {value}\n"
            assert accepts_as_schema(text) == expected, text
            is_good = run("check", "--offline", "-", text=text).returncode == 0
            assert is_good == expected, text


def test_every_option_of_the_schema_has_a_type():
    """A table is no value of any option, and each default is one."""
    sections = schema()["properties"]
    assert set(sections) == set(tomllib.loads(run("check", "--print-default").stdout))
    for name, section in sections.items():
        for option, of_option in section.get("items", section)["properties"].items():
            validator = jsonschema.Draft7Validator(of_option)
            assert validator.is_valid(of_option["default"]), (name, option)
            assert not validator.is_valid({"a": "table"}), (name, option)
            assert of_option["description"], (name, option)


@pytest.mark.parametrize(("variables", "colors"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_text_on_a_terminal_has_colors_unless_they_are_unwanted(variables, colors):
    near, far = pty.openpty()
    absent = "/dev/null/none"
    # A warning of the log, and a mistake in the configuration.
    logged = ["serve", "--listen", "127.0.0.1:0", "--store", "off", "--admin", "off"]
    logged += ["--log-level", "trace", "--access-log", absent]
    for arguments in (logged, ["serve", "--set", "server.pollers=x"]):
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm", **variables}
        command = [BINARY, *arguments]
        child = subprocess.Popen(command, env=environment, stdin=far, stderr=far)
        assert child.wait(60) in (1, 2)
        output = os.read(near, 1 << 16)
        assert output
        assert (b"\x1b[" in output) == colors, output
    os.close(near)
    os.close(far)
