"""The demonstration: clients that wait by each transport, and get a value."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess

import pytest

from support import ports
from support.dwell import BINARY
from support.events import EventStream
from support.http import Connection
from support.memcached import store_client
from support.process import Process
from support.wait import PATIENCE_S, until

TRANSPORTS = ["long-poll", "event-stream", "websocket"]
ENDS = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "KILL": signal.SIGKILL}


def once(*arguments, files=None):
    """Runs `dwell demo --once` to its end, with this limit of open files."""
    limit = [] if files is None else ["prlimit", f"--nofile={files}:{files}"]
    command = [*limit, BINARY, "demo", "--once", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def parts_of(pid, count=6):
    """Waits until a demonstration has its processes; returns the command of each by its pid."""

    def find():
        parts = parts_now(pid)
        return parts if len(parts) == count else None

    return until(find, f"{count} processes are started")


def parts_now(pid):
    # The kernel lists the children of each thread.
    threads = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    listed = " ".join(thread.read_text() for thread in threads).split()
    commands = {int(child): command_of(child) for child in listed}
    return {child: part for child, part in commands.items() if "--part" in part}


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture
def demo(cleanup, tmp_path):
    """Starts `dwell demo --once`, and stops the clients of one transport, so that it goes on."""
    # A run in the background hands down that SIGINT is ignored.
    command = ["env", "--default-signal=INT", BINARY, "demo", "--once", "--clients", "2000"]
    process = Process(command, tmp_path / "demo.log")
    cleanup.callback(process.stop)
    process.start()
    stopped = until(
        lambda: clients_of(process.pid, "event-stream"),
        lambda: f"the clients are started: {process.output()}",
    )
    os.kill(stopped, signal.SIGSTOP)
    cleanup.callback(go_on, stopped)
    return process, stopped


def clients_of(pid, transport):
    parts = parts_now(pid).items()
    return next((part for part, command in parts if f"--part {transport}@" in command), None)


def go_on(pid):
    # It has ended already where its parent has ended it.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_every_client_waits_and_is_answered():
    result = once("--clients", 200, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["clients"], document["limit"]) == (200, None)
    assert [lane["transport"] for lane in document["transports"]] == TRANSPORTS
    for lane in document["transports"]:
        assert (lane["waiting"], lane["lost"]) == (200, 0)
        # Pages of the system, shared among few: what it must not be is a buffer for each.
        assert 0 <= lane["bytes_per_client"] < 4096
        assert lane["threads"] >= 1
        assert 0 <= lane["cpu_idle_percent"] < 100
        wave = lane["wave"]
        assert (wave["expected"], wave["answered"], wave["wrong"]) == (200, 200, 0)
        times = [wave[name] for name in ("first_ms", "p50_ms", "p99_ms", "last_ms")]
        assert times == sorted(times)
        assert times[0] > 0
        assert wave["server_cpu_ms"] > 0
        assert sum(wave["histogram"]) == 200
        # The times are rounded.
        assert wave["last_ms"] <= (len(wave["histogram"]) + 1) * wave["bucket_ms"]


def test_the_figures_are_a_table_for_people():
    result = once("--clients", 3)
    assert result.returncode == 0, result.stderr
    rows = {line[:26].strip(): line[26:].split() for line in result.stdout.splitlines()}
    assert rows[""] == TRANSPORTS
    assert rows["clients waiting"] == rows["answered"] == ["3"] * 3
    assert "share the processors" in result.stdout


def test_a_number_beyond_a_limit_is_cut_and_the_limit_named():
    result = once("--clients", 5000, "--json", files=300)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert 100 < document["clients"] < 300
    assert "300 files" in document["limit"]
    for lane in document["transports"]:
        assert lane["waiting"] == lane["wave"]["answered"] == document["clients"]


def test_without_room_for_a_client_there_is_no_demonstration():
    result = once("--clients", 5, files=64)
    assert result.returncode == 1
    assert result.stderr.startswith("dwell demo: no clients can be started: ")
    assert "64 files" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--json"], ["--once", "--clients", "-1"], ["--once", "--clients", "many"], ["--part", "x"]],
)
def test_wrong_flags_are_refused(arguments):
    command = [BINARY, "demo", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2


@pytest.mark.parametrize("part", ["server", "long-poll@", "websocket@"])
def test_a_process_that_is_killed_ends_the_demonstration(demo, part):
    demo, _ = demo
    parts = parts_of(demo.pid)
    killed = next(pid for pid, command in parts.items() if f"--part {part}" in command)
    os.kill(killed, signal.SIGKILL)
    assert demo.wait() == 1
    what = "server has ended" if part == "server" else f"{part[:-1]} clients has ended"
    assert what in demo.output()
    assert "signal: 9" in demo.output()
    assert_gone(parts)


@pytest.mark.parametrize("end", ENDS)
def test_no_process_outlives_the_demonstration(demo, end):
    demo, stopped = demo
    parts = parts_of(demo.pid)
    demo.signal(ENDS[end])
    assert demo.wait() == -ENDS[end]
    go_on(stopped)
    assert_gone(parts)


def assert_gone(parts):
    """Waits until none of these processes is there; one that nobody waits for has no command."""
    until(lambda: not any(map(command_of, parts)), "the processes end", PATIENCE_S)


class Page:
    """`dwell demo` with its page."""

    def __init__(self, folder, clients, *extra, files=None):
        self.address, self.store, admin = (ports.free_address() for _ in range(3))
        flags = ["--listen", ports.text(self.address), "--store", ports.text(self.store)]
        limit = [] if files is None else ["prlimit", f"--nofile={files}:{files}"]
        command = [*limit, BINARY, "demo", "--clients", str(clients), *flags]
        command += ["--admin", ports.text(admin), *extra]
        self.process = Process(command, folder / "demo.log")
        self.process.start_listening(self.address, self.store)

    def post(self, path, body, **fields):
        """The status of a POST; the fields are sent with hyphens."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request("POST", path, body, named)
        status = connection.getresponse().status
        connection.close()
        return status

    def get(self, path):
        with Connection(self.address) as connection:
            return connection.get(path)

    def figures(self):
        answer = self.get("/poll/demo-clients")
        return json.loads(answer.body) if answer.status == 200 else {"phase": None}

    def await_figures(self, is_right):
        found = {}

        def look():
            found.update(self.figures())
            return is_right(found)

        until(look, lambda: f"the figures are {found}", 120)
        return found


@pytest.fixture
def start_page(cleanup, tmp_path):
    def start(clients, *extra, **limits):
        page = Page(tmp_path, clients, *extra, **limits)
        cleanup.callback(page.process.stop)
        return page

    return start


def wait_for_clients(page, clients):
    def is_right(figures):
        lanes = figures.get("transports", [])
        return figures["phase"] == "waiting" and all(lane["waiting"] == clients for lane in lanes)

    return page.await_figures(is_right)


def answered(figures):
    return [lane["wave"] and lane["wave"]["answered"] for lane in figures.get("transports", [])]


@pytest.mark.parametrize("by", ["page", "memcached"])
def test_a_key_that_is_set_answers_all_clients(start_page, by):
    page = start_page(30)
    wait_for_clients(page, 30)
    if by == "page":
        assert page.post("/demo/set", "from the page") == 200
        assert page.get("/poll/demo").body == b"from the page"
    else:
        # The end of a line is not the same in an event stream.
        store_client(page.store).set("/poll/demo", b"two\r\nlines")
    figures = page.await_figures(lambda figures: answered(figures) == [30, 30, 30])
    assert [lane["wave"]["wrong"] for lane in figures["transports"]] == [0, 0, 0]


def test_the_page_starts_and_stops_clients_within_a_bound(start_page):
    page = start_page(5)
    wait_for_clients(page, 5)
    before = parts_of(page.process.pid)
    assert page.post("/demo/clients", "7") == 202
    wait_for_clients(page, 7)
    assert_gone(before)
    for wrong in ("40001", "-1", "x", "99999999999999999999", ""):
        assert page.post("/demo/clients", wrong) == 400
    assert page.figures()["clients"] == 7
    parts = parts_of(page.process.pid)
    assert page.post("/demo/clients", "0") == 202
    page.await_figures(lambda figures: figures["phase"] == "stopped")
    assert_gone(parts)


def test_a_page_of_another_site_changes_nothing(start_page):
    page = start_page(5)
    wait_for_clients(page, 5)
    own = f"http://{ports.text(page.address)}"
    for fields in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        assert page.post("/demo/set", "evil", **fields) == 403
        assert page.post("/demo/clients", "0", **fields) == 403
        assert page.post("/demo/kill", "websocket", **fields) == 403
        assert page.post("/demo/reload", "", **fields) == 403
    # With DNS rebinding a page has a name of its own for this address, so both fields agree.
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert page.post("/demo/set", "evil", **rebound) == 421
    assert page.get("/poll/demo").status == 404
    assert page.post("/demo/set", "good", Origin=own) == 200
    assert page.get("/poll/demo").body == b"good"
    assert page.post("/demo/set", "x" * 4097) == 413
    assert page.figures()["clients"] == 5


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_clients_of_a_killed_server_come_back(start_page, transport):
    page = start_page(20)
    wait_for_clients(page, 20)
    before = parts_of(page.process.pid)
    assert page.post("/demo/set", "newest") == 200
    page.await_figures(lambda figures: answered(figures) == [20, 20, 20])
    page.await_figures(lambda figures: figures["phase"] == "waiting")
    assert page.post("/demo/kill", "server") == 400
    assert page.post("/demo/kill", transport) == 202
    figures = page.await_figures(lambda figures: figures.get("returned"))
    returned = figures["returned"]
    assert (returned["transport"], returned["clients"], returned["missed"]) == (transport, 20, 0)
    # A connection that comes too early for the new server is lost as well.
    lost = {lane["transport"]: lane["lost"] for lane in figures["transports"]}
    assert lost.pop(transport) >= 20
    assert set(lost.values()) == {0}
    measured = {lane["transport"]: lane["bytes_per_client"] for lane in figures["transports"]}
    assert [name for name, count in measured.items() if count is None] == [transport]
    started = set(parts_of(page.process.pid)) - set(before)
    assert len(started) == 1
    # The new server has the key, and wakes the clients.
    assert page.post("/demo/set", "the next one") == 200
    page.await_figures(lambda figures: [lane["waves"] for lane in figures["transports"]] == [2] * 3)
    figures = page.await_figures(lambda figures: answered(figures) == [20, 20, 20])
    assert [lane["wave"]["wrong"] for lane in figures["transports"]] == [0, 0, 0]


def test_all_clients_wait_through_a_reload_of_their_servers(start_page):
    page = start_page(20)
    wait_for_clients(page, 20)
    before = parts_of(page.process.pid)
    assert page.post("/demo/reload", "") == 202
    figures = page.await_figures(lambda figures: figures.get("reloaded"))
    reloaded = figures["reloaded"]
    assert (figures["phase"], reloaded["waiting"], reloaded["lost"]) == ("waiting", 60, 0)
    assert [lane["lost"] for lane in figures["transports"]] == [0, 0, 0]
    assert parts_of(page.process.pid) == before
    assert page.post("/demo/set", "after it") == 200
    page.await_figures(lambda figures: answered(figures) == [20, 20, 20])


def test_a_reload_has_an_effect_in_the_servers(start_page):
    """One that does not answer the signal ends the demonstration after a deadline."""
    page = start_page(3)
    wait_for_clients(page, 3)
    parts = parts_of(page.process.pid)
    stopped = next(pid for pid, command in parts.items() if "--part server" in command)
    os.kill(stopped, signal.SIGSTOP)
    assert page.post("/demo/reload", "") == 202
    figures = page.await_figures(lambda figures: figures["phase"] == "failed")
    assert "after 10 s a server has not read its configuration again" in figures["error"]
    assert_gone(parts)


def test_one_action_is_in_progress_at_a_time(start_page):
    page = start_page(20)
    wait_for_clients(page, 20)
    assert page.post("/demo/kill", "websocket") == 202
    for path, body in (("reload", ""), ("kill", "long-poll"), ("clients", "5")):
        assert page.post(f"/demo/{path}", body) == 409
    page.await_figures(lambda figures: figures.get("returned"))
    assert page.post("/demo/reload", "") == 202
    # To end the clients is always possible.
    assert page.post("/demo/clients", "0") == 202
    page.await_figures(lambda figures: figures["phase"] == "stopped")
    for path, body in (("reload", ""), ("kill", "websocket")):
        assert page.post(f"/demo/{path}", body) == 409


def test_as_many_clients_as_fit_are_started_and_the_limit_is_named(start_page):
    page = start_page(3, files=200)
    wait_for_clients(page, 3)
    assert page.post("/demo/clients", "fit") == 202
    figures = wait_for_clients(page, 200 - 128)
    assert figures["limit"] == "a process may open 200 files here (`ulimit -Hn`)"


def test_the_page_tells_that_a_server_was_killed(start_page):
    page = start_page(5)
    wait_for_clients(page, 5)
    parts = parts_of(page.process.pid)
    with EventStream(page.address, "/poll/demo-clients").begin() as stream:
        killed = next(pid for pid, command in parts.items() if "--part server" in command)
        os.kill(killed, signal.SIGKILL)
        told = json.loads(stream.event().data)
        while told["phase"] != "failed":
            told = json.loads(stream.event().data)
    assert "server has ended: signal: 9" in told["error"]
    assert_gone(parts)
    assert page.post("/demo/clients", "3") == 202
    wait_for_clients(page, 3)


@pytest.mark.parametrize("end", ENDS)
def test_the_page_ends_with_all_its_processes(start_page, end):
    page = start_page(50)
    wait_for_clients(page, 50)
    parts = parts_of(page.process.pid)
    with EventStream(page.address, "/poll/demo-clients").begin():
        page.process.signal(ENDS[end])
        assert page.process.wait() == (-signal.SIGKILL if end == "KILL" else 0)
    assert_gone(parts)


def test_without_clients_there_is_a_page_with_a_single_poll(start_page):
    page = start_page(0)
    assert b"<textarea" in page.get("/").body
    assert page.post("/demo/set", "hello") == 200
    assert page.get("/poll/demo").body == b"hello"
    assert page.post("/demo/clients", "5") == 404
    assert page.get("/poll/demo-clients").status == 404


def test_other_machines_reach_the_page_only_if_that_is_wanted(start_page):
    port = ports.free_address()[1]
    command = [BINARY, "demo", "--clients", "0", "--listen", f"0.0.0.0:{port}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert f"0.0.0.0:{port}: --remote allows it" in result.stderr
    page = start_page(0, "--remote", "--listen", f"0.0.0.0:{port}")
    page.process.await_port(("127.0.0.1", port))


# One browser for all.
BROWSER = pytest.mark.xdist_group("browser")

WATCH = """
addEventListener("securitypolicyviolation", (event) => {
  (window.faults ??= []).push(`${event.violatedDirective}: ${event.blockedURI}`);
});
addEventListener("error", (event) => (window.faults ??= []).push(event.message));
addEventListener("unhandledrejection", (event) => (window.faults ??= []).push(`${event.reason}`));
"""


@BROWSER
@pytest.mark.parametrize("look", [{}, {"width": 400, "dark": True}], ids=["wide", "narrow_dark"])
def test_the_page_shows_waiting_clients_and_their_values(start_page, browser, look):
    demo = start_page(40)
    page = browser.page(f"http://{ports.text(demo.address)}/", before=WATCH, **look)
    page.wait_for("!document.getElementById('set').disabled")
    page.wait_for("/bytes/.test(document.getElementById('cost').textContent)")
    assert page.text("#headline") == "120 clients are waiting."
    assert page.text("#you-title") == "You are number 121"
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.run(
        "[...document.querySelectorAll('#elsewhere .bar')].length"
        " === ELSEWHERE.groups.flatMap((group) => group.bars).length && ELSEWHERE.groups.length > 1"
    )
    for waves, value in ((1, "hello"), (2, "hello 2")):
        page.run("document.getElementById('set').click()")
        page.wait_for(f"document.getElementById('value').textContent === '{value}'")
        page.wait_for(
            "[...document.querySelectorAll('.wave b')].filter((text) => "
            "text.textContent === '40 of 40 answered, 0 wrong').length === 3"
        )
        page.wait_for(f"[...lanes.values()].every((lane) => lane.waves === {waves})")
        page.wait_for("!document.getElementById('set').disabled")
    page.run("document.getElementById('reload').click()")
    page.wait_for(
        "/120 clients wait; 0 connections have ended/"
        ".test(document.getElementById('outcome').textContent)"
    )
    page.wait_for("!document.getElementById('kill').disabled")
    page.run("document.getElementById('kill').click()")
    page.wait_for(
        "/All 40 clients wait again after .* 0 missed/"
        ".test(document.getElementById('outcome').textContent)"
    )
    page.run("document.querySelector('[data-clients=\"0\"]').click()")
    page.wait_for("document.getElementById('headline').textContent === 'No clients are waiting.'")
    assert page.run("window.faults ?? []") == []
    page.close()
