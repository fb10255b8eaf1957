"""Starting: flags, configuration files, ports that are taken."""

import json
import os
import re
import signal
import socket
import subprocess
import tomllib

import pytest

from support import ports
from support.dwell import BINARY, toml
from support.http import Connection
from support.memcached import store_client
from support.process import Process
from support.wait import accepts, until

KEY = "/poll/alice"


def run(*arguments, **variables):
    """Runs `dwell` to its end, with these environment variables added."""
    command = [BINARY, *map(str, arguments)]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


@pytest.fixture
def start(cleanup, tmp_path):
    """Starts `dwell` with the given arguments and waits for the given addresses."""

    def start(*arguments, addresses):
        process = Process([BINARY, *arguments], tmp_path / "dwell.log")
        cleanup.callback(process.stop)
        return process.start_listening(*addresses)

    return start


def test_serve_by_flags_alone(start, app):
    listen, admin, store = (ports.free_address() for _ in range(3))
    flags = ["--listen", ports.text(listen), "--admin", ports.text(admin)]
    flags += ["--store", ports.text(store), "--upstream", app.url, "--pollers", "1"]
    flags += ["--poll-prefix", "/poll/", "--poll-prefix", "/live/"]
    start("serve", *flags, addresses=[listen, admin, store])
    store_client(store).set("/live/alice", b"value")
    with Connection(listen) as connection:
        assert connection.get("/live/alice").body == b"value"
        assert connection.get("/poll/alice").body == b"from the app"
    with Connection(admin) as connection:
        assert connection.get("/-/health").status == 200


def test_serve_by_flags_on_memcached(start, app, memcached):
    listen, admin = (ports.free_address() for _ in range(2))
    flags = ["--listen", ports.text(listen), "--admin", ports.text(admin)]
    flags += ["--memcached", memcached.name, "--upstream", app.url]
    start("serve", *flags, addresses=[listen, admin])
    memcached.client().set(KEY, b"value")
    with Connection(listen) as connection:
        assert connection.get(KEY).body == b"value"
        assert connection.get("/poll/none").body == b"from the app"


def test_flags_come_before_the_file(start, tmp_path):
    listen, other, admin, store = (ports.free_address() for _ in range(4))
    file = tmp_path / "dwell.toml"
    server = {"listen": ports.text(other), "admin": ports.text(admin)}
    file.write_text(toml({"server": server, "store": {"listen": ports.text(store)}}))
    flags = ["--config", file, "--listen", ports.text(listen)]
    start("serve", *flags, addresses=[listen, admin])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(other, timeout=1)


@pytest.mark.parametrize("name", ["listen", "admin", "store"])
@pytest.mark.parametrize("holder", ["a_plain_listener", "another_dwell"])
def test_a_taken_port_is_said_plainly(name, holder, lone_edge):
    addresses = {flag: ports.free_address() for flag in ("listen", "admin", "store")}
    with socket.socket() as plain:
        if holder == "a_plain_listener":
            plain.bind(addresses[name])
            plain.listen()
        else:
            held = {
                "listen": lone_edge.address,
                "admin": lone_edge.admin_address,
                "store": lone_edge.store_address,
            }
            addresses[name] = held[name]
        flags = [part for flag, a in addresses.items() for part in (f"--{flag}", ports.text(a))]
        result = run("serve", *flags)
    assert result.returncode != 0
    said = result.stderr + result.stdout
    assert str(addresses[name][1]) in said
    assert "in use" in said or "taken" in said
    assert "panicked" not in said


def test_check_passes_a_good_file(tmp_path):
    file = tmp_path / "good.toml"
    sections = {
        "server": {"listen": "127.0.0.1:8080", "pollers": 2},
        "limits": {"idle_timeout": "75s", "body_bytes_max": "1mb"},
        "upstream": {"url": "http://127.0.0.1:3000"},
        "route": [{"prefix": "/poll/", "wait_max": "55s"}],
    }
    file.write_text(toml(sections))
    result = run("check", file)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[server]\nlitsen = "127.0.0.1:80"\n', 2, ["litsen", "listen"]),
        ('[limits]\n\nidle_timeout = "soon"\n', 3, ["idle_timeout", "soon"]),
        ("[limits]\nidle_timeout = 75\n", 2, ["idle_timeout"]),
        ("[limts]\nwaiters_max = 5\n", 1, ["limts", "limits"]),
        ('[upstream]\nurl = "ftp://127.0.0.1"\n', 2, ["http"]),
        ('[upstream]\nurl = "127.0.0.1:80"\n', 2, ["http://"]),
        ("[server]\nlisten = \n", 2, []),
        ('[[route]]\nprefix = "poll"\n', 2, ["poll", "/"]),
        ('[[route]]\nprefix = "/poll/"\nkey = "{pth}"\n', 3, ["pth", "path"]),
        ('[log]\nlevel = "loud"\n', 2, ["loud"]),
        ('[store]\nlisten = "0.0.0.0:11211"\n', 2, ["allow_remote"]),
    ],
    ids=[
        "key",
        "duration",
        "unit",
        "section",
        "scheme",
        "no_scheme",
        "toml",
        "prefix",
        "template",
        "level",
        "open_store",
    ],
)
def test_check_says_where_a_file_is_wrong_and_how_to_mend_it(tmp_path, text, line, words):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    checked, served = run("check", file), run("serve", "--config", file)
    for result in (checked, served):
        assert result.returncode not in (0, 101)
        said = result.stderr + result.stdout
        assert f"bad.toml:{line}" in said, said
        for word in words:
            assert word in said, said


def test_every_mistake_of_a_file_is_told_at_once(tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text('[server]\nlitsen = "x"\n[limits]\nwaiters = 5\n')
    said = run("check", file).stderr
    assert "bad.toml:2" in said
    assert "bad.toml:4" in said


FAULTS = {
    "upstream": ({"upstream": {"url": "http://nobody.invalid:1"}}, "nobody.invalid"),
    "memcached": ({"memcached": {"servers": ["nobody.invalid:1"]}}, "nobody.invalid"),
    "webhook": ({"presence": {"webhook_url": "http://nobody.invalid:1"}}, "nobody.invalid"),
    "token_file": ({"publish": {"token_file": "{folder}/none"}}, "{folder}/none"),
    "keys": (
        {"jwt": {"jwks_file": "{folder}/none"}, "route": [{"prefix": "/", "jwt": True}]},
        "{folder}/none",
    ),
    "snapshot": ({"store": {"snapshot": "{folder}/none/snapshot"}}, "{folder}/none/snapshot"),
    "snapshot_kind": ({"store": {"snapshot": "{folder}"}}, "{folder}"),
    "socket": ({"store": {"unix_socket": "{folder}/none/socket"}}, "{folder}/none/socket"),
    "access_log": (
        {"log": {"access": "{folder}/none/log"}},
        "cannot open {folder}/none/log: No such file",
    ),
    "user": ({"server": {"user": "no-such-user-here"}}, "no-such-user-here"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_check_finds_what_serve_would_not_start_with(tmp_path, fault):
    sections, word = FAULTS[fault]
    sections = json.loads(json.dumps(sections).replace("{folder}", str(tmp_path)))
    addresses = {"listen": ports.text(ports.free_address()), "admin": "off"}
    sections["server"] = {**addresses, **sections.get("server", {})}
    sections["store"] = {"listen": "off", **sections.get("store", {})}
    file = tmp_path / "dwell.toml"
    file.write_text(toml(sections))
    before = sorted(tmp_path.iterdir())
    found = run("check", file)
    assert found.returncode == 1, found.stdout
    assert word.replace("{folder}", str(tmp_path)) in found.stderr
    assert sorted(tmp_path.iterdir()) == before
    assert run("check", "--offline", file).returncode == 0
    # Only root becomes somebody else.
    if fault != "user" or os.geteuid() == 0:
        refused = run("serve", "--config", file)
        assert refused.returncode == 1
        assert found.stderr.splitlines()[-1] in refused.stderr


@pytest.mark.parametrize(
    ("server", "is_told"),
    [
        ({"admin": "0.0.0.0:9090"}, True),
        ({"admin": "[::]:9090"}, True),
        ({"admin": "0.0.0.0:9090", "admin_hosts": ["dwell.internal"]}, False),
        ({"admin": "127.0.0.1:9090"}, False),
        ({"admin": "off"}, False),
        ({}, False),
    ],
)
def test_check_warns_of_an_admin_listener_that_is_open_to_others(tmp_path, server, is_told):
    file = tmp_path / "dwell.toml"
    file.write_text(toml({"server": server}))
    found = run("check", "--offline", file)
    assert found.returncode == 0, found.stderr
    assert ("warning: other machines can reach server.admin at " in found.stderr) == is_told
    assert ("server.admin_hosts" in found.stderr) == is_told


@pytest.mark.parametrize(
    ("route", "is_told"),
    [
        ({"websocket_publish": True, "allowed_origins": "*"}, True),
        ({"websocket_publish": True, "allowed_origins": "*", "auth": "/may"}, False),
        ({"websocket_publish": True, "allowed_origins": "https://a.example"}, False),
        ({"allowed_origins": "*"}, False),
    ],
)
def test_check_warns_of_publishing_that_is_open_to_pages_of_every_origin(tmp_path, route, is_told):
    file = tmp_path / "dwell.toml"
    upstream = {"url": "http://127.0.0.1:1"}
    file.write_text(toml({"upstream": upstream, "route": [{"prefix": "/poll/", **route}]}))
    found = run("check", "--offline", file)
    assert found.returncode == 0, found.stderr
    warning = "warning: pages of every origin can publish under `/poll/`"
    assert (warning in found.stderr) == is_told


def test_check_takes_the_flags_of_serve(tmp_path):
    file = tmp_path / "dwell.toml"
    file.write_text(toml({"limits": {"waiters_max": 5}}))
    flags = ["--upstream", "http://127.0.0.1:1", "--set", "limits.waiters_max=7"]
    found = run("check", "--offline", "--print", *flags, file)
    assert found.returncode == 0, found.stderr
    shown = tomllib.loads(found.stdout)
    assert shown["limits"]["waiters_max"] == 7, "flags win over the file"
    assert shown["upstream"]["url"] == "http://127.0.0.1:1"
    refused = run("check", "--offline", "--pollers", "2000")
    assert refused.returncode == 2
    assert "--pollers 2000: must be 0 to 1024: 2000" in refused.stderr


def test_check_of_a_file_that_is_not_there(tmp_path):
    result = run("check", tmp_path / "none.toml")
    assert result.returncode not in (0, 101)
    assert "none.toml" in result.stderr


def test_a_wrong_flag_is_told_with_the_nearest():
    result = run("serve", "--upsteam", "http://127.0.0.1:1")
    assert result.returncode not in (0, 101)
    assert "--upstream" in result.stderr


def test_help_is_for_people():
    result = run("--help")
    assert result.returncode == 0
    for word in ("serve", "check", "demo"):
        assert word in result.stdout
    helped = run("serve", "--help")
    flags = [
        "upstream",
        "memcached",
        "store",
        "listen",
        "admin",
        "poll-prefix",
        "pollers",
        "config",
    ]
    for flag in flags:
        assert f"--{flag}" in helped.stdout
    assert max(len(line) for line in helped.stdout.splitlines()) <= 100


def test_version():
    result = run("--version")
    assert (result.returncode, result.stdout.split()[0]) == (0, "dwell")
    assert run("version").stdout == result.stdout
    assert run("help").stdout == run("--help").stdout
    assert run("help", "check").stdout == run("check", "--help").stdout


def test_version_names_what_is_built_in():
    lines = run("version").stdout.splitlines()
    assert re.fullmatch(r"dwell [0-9.]+( \([0-9a-f]{12}\))?", lines[0])
    assert [line.split(":")[0] for line in lines[1:]] == [
        "target",
        "rustc",
        "features",
        "allocator",
        "tls",
    ]
    assert run("-V").stdout.split() == lines[0].split()[:2]


def test_health_is_an_exit_status(start_dwell, app):
    dwell = start_dwell(upstream={"url": app.url}, limits={"drain_timeout": "60s"})
    admin = ports.text(dwell.admin_address)
    healthy = run("health", "--admin", admin)
    assert (healthy.returncode, json.loads(healthy.stdout)["status"]) == (0, "ok")
    assert run("health", DWELL_SERVER_ADMIN=admin).returncode == 0
    for choice in ("--live", "--ready"):
        assert run("health", choice, "--admin", admin).returncode == 0
    assert run("health", "--live", "--ready", "--admin", admin).returncode == 2
    dwell.pause()
    silent = run("health", "--admin", admin, "--timeout", "1")
    assert silent.returncode == 1
    assert silent.stderr == f"dwell health: {admin}: timed out\n"
    assert run("health", "--live", "--admin", admin, "--timeout", "1").returncode == 1
    dwell.resume()
    # A request that the application has not answered keeps the process from ending.
    app.hang()
    with dwell.connect() as connection:
        connection.ask("/page")
        app.await_requests(1)
        dwell.signal(signal.SIGTERM)
        until(lambda: run("health", "--admin", admin).returncode == 1, "the process drains")
        # A supervisor must not kill what ends by itself; a balancer sends it nothing more.
        alive = run("health", "--live", "--admin", admin)
        assert (alive.returncode, json.loads(alive.stdout)["status"]) == (0, "draining")
        assert run("health", "--ready", "--admin", admin).returncode == 1
        app.release()
        assert connection.answer().status == 200
    until(lambda: not dwell.is_alive(), "the process ends")
    assert run("health", "--live", "--admin", admin).returncode == 1
    ended = run("health", "--admin", admin)
    assert (ended.returncode, ended.stderr) == (
        1,
        f"dwell health: {admin}: no process listens there\n",
    )


def test_the_environment_sets_options(tmp_path):
    file = tmp_path / "dwell.toml"
    file.write_text('[limits]\nwaiters_max = 5\nidle_timeout = "3s"\n[server]\npollers = 3\n')
    variables = {
        "DWELL_CONFIG": str(file),
        "DWELL_LIMITS_WAITERS_MAX": "7",
        "DWELL_SERVER_LISTEN": "127.0.0.1:1,127.0.0.1:2",
        "DWELL_SERVER_ADMIN": "",
        "DWELL_SERVER_LISTN": "127.0.0.1:3",
        "DWELL_STORE_PORT": "tcp://10.0.0.1:11211",
    }
    printed = run("check", "--print", **variables)
    assert tomllib.loads(printed.stdout) == {
        "server": {"listen": ["127.0.0.1:1", "127.0.0.1:2"], "pollers": 3},
        "limits": {"waiters_max": 7, "idle_timeout": "3s"},
    }
    assert "DWELL_SERVER_LISTN sets no option: did you mean `server.listen`?" in printed.stderr
    assert "DWELL_STORE_PORT" not in printed.stderr
    again = tmp_path / "printed.toml"
    again.write_text(printed.stdout)
    assert run("check", "--print", again).stdout == printed.stdout
    for command in ("check", "serve"):
        wrong = run(command, **variables, DWELL_SERVER_POLLERS="many")
        assert wrong.returncode == 2
        assert "DWELL_SERVER_POLLERS: " in wrong.stderr


def test_without_a_process_the_configuration_of_the_environment_is_explained(tmp_path):
    file = tmp_path / "dwell.toml"
    file.write_text('[[route]]\nprefix = "/live/"\n')
    variables = {"DWELL_CONFIG": str(file), "DWELL_SERVER_ADMIN": "off"}
    explanation = json.loads(run("explain", "/live/a", "--json", **variables).stdout)
    assert not explanation["is_live"]
    topics = {topic["name"]: topic for topic in explanation["topics"]}
    assert topics["route"]["facts"]["prefix"] == "/live/"
    asked = run("health", **variables)
    assert (asked.returncode, asked.stderr) == (
        1,
        "dwell health: server.admin is off: name the address in --admin\n",
    )


def test_a_flag_wins_over_the_environment(cleanup, tmp_path):
    by_flag, by_variable, admin, store = (ports.free_address() for _ in range(4))
    command = ["env", f"DWELL_SERVER_LISTEN={ports.text(by_variable)}"]
    command += [f"DWELL_SERVER_ADMIN={ports.text(admin)}"]
    command += [f"DWELL_STORE_LISTEN={ports.text(store)}", BINARY, "serve"]
    process = Process([*command, "--listen", ports.text(by_flag)], tmp_path / "dwell.log")
    cleanup.callback(process.stop)
    process.start_listening(by_flag, admin, store)
    assert not accepts(by_variable)


def test_manual_pages_and_completions(tmp_path):
    assert run("man").stdout.startswith(".")
    assert run("man", "--dir", tmp_path / "man1").returncode == 0
    pages = {page.name for page in (tmp_path / "man1").iterdir()}
    assert {"dwell.1", "dwell-serve.1", "dwell-health.1"} <= pages
    assert "dwell\\-serve \\- " in (tmp_path / "man1" / "dwell-serve.1").read_text()
    script = tmp_path / "dwell.bash"
    script.write_text(run("completions", "bash").stdout)
    complete = f"source {script}; COMP_WORDS=(dwell he); COMP_CWORD=1; _dwell dwell he dwell"
    said = subprocess.run(
        ["bash", "-c", f"{complete}; echo ${{COMPREPLY[@]}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout.split() == ["health", "help"]
    assert run("man", "--dir", "/dev/null/no").returncode == 1


def test_the_log_can_be_json(start_dwell):
    dwell = start_dwell(log={"format": "json", "level": "debug"})
    dwell.get(KEY)
    dwell.stop()
    lines = dwell.output().splitlines()
    assert lines
    for line in lines:
        assert json.loads(line)


def test_the_access_log_has_a_line_for_each_request(start_dwell, tmp_path):
    file = tmp_path / "access.log"
    dwell = start_dwell(log={"access": str(file)})
    dwell.store().set(KEY, b"value")
    with dwell.connect() as connection:
        connection.get(f"{KEY}?x=1")
        connection.get("/page", "POST", body=b"x")
        connection.send(b"BAD\r\n\r\n")
        connection.answer()
    dwell.stop()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    seen = [(line["method"], line["target"], line["status"]) for line in lines[:2]]
    assert seen == [("GET", f"{KEY}?x=1", 200), ("POST", "/page", 404)]
    assert lines[0]["outcome"] == "hit"
    assert lines[0]["remote"].startswith("127.0.0.1:")
    assert (lines[0]["route"], lines[0]["key"]) == ("/poll/", KEY)
    assert "route" not in lines[1]


def test_demo_serves_its_page_and_takes_the_next_free_store_port(start):
    listen, admin = (ports.free_address() for _ in range(2))
    # The next one is kept free, too: a server of a test beside this one may be about to take it.
    store, following = ports.free_neighbours(2)
    flags = ["--listen", ports.text(listen), "--admin", ports.text(admin)]
    with socket.socket() as holder:
        holder.bind(store)
        holder.listen()
        flags += ["--clients", "0"]
        demo = start("demo", *flags, "--store", ports.text(store), addresses=[listen, following])
    with Connection(listen) as connection:
        page = connection.get("/")
        assert page.status == 200
        assert page.field("Content-Type").startswith("text/html")
        assert b"<script" in page.body
    # Says which port was taken and which it has instead.
    until(lambda: str(store[1]) in demo.output(), "it is told")
