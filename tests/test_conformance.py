"""The conformance suite: this edge keeps every rule, and a wrong one is found out."""

import contextlib
import http.client
import http.server
import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.parse

import pytest

from support import ports
from support.dwell import ROOT

SUITE = ROOT / "conformance" / "src"


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(SUITE)}
    return subprocess.run(
        [sys.executable, "-m", "dwell_conformance", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )


def broken(address, store, *flags):
    """The rules that a server breaks, and all rules that were checked."""
    server = ["--json", "--store", ports.text(store), f"http://{ports.text(address)}"]
    result = run(*server, *flags)
    assert result.returncode in (0, 1), result.stderr
    found = json.loads(result.stdout)
    wrong = {rule["rule"]: rule["fault"] for rule in found["rules"] if rule["fault"]}
    assert (len(wrong), bool(wrong)) == (found["broken"], result.returncode == 1)
    return wrong, [rule["rule"] for rule in found["rules"]]


def test_every_rule_is_kept(start_dwell):
    dwell = start_dwell()
    wrong, rules = broken(dwell.address, dwell.store_address)
    assert wrong == {}
    assert len(set(rules)) == len(rules) >= 70
    # Nothing is left of the checks.
    assert dwell.metric("dwell_store_items") == 0


def test_the_rules_of_limits_are_kept(start_dwell):
    # The second route has a rate, and all share the waits.
    dwell = start_dwell(
        server={"pollers": 1},
        limits={"waiters_max": 3, "poll_body_bytes_max": "1KiB", "target_bytes_max": "500"},
        route=[{"prefix": "/poll/"}, {"prefix": "/rare/", "rate_per_address": "5/m"}],
    )
    flags = ["--body-bytes-max", "1024", "--target-bytes-max", "500", "--waiters-max", "3"]
    flags += ["--rate-path", "/rare/a", "--rule", "above the"]
    wrong, rules = broken(dwell.address, dwell.store_address, *flags)
    assert wrong == {}
    assert {re.search(r"gets (\d+)", rule)[1] for rule in rules} == {"413", "414", "429", "503"}
    # A wrong limit is found out.
    flags[1], flags[3], flags[5] = "2048", "400", "4"
    wrong, _ = broken(dwell.address, dwell.store_address, *flags, "--timeout", "2")
    assert len(wrong) == 3


def test_it_is_installed_as_its_page_says(start_dwell, tmp_path):
    dwell = start_dwell()
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=120)
    # What is built stays out of the sources.
    source = shutil.copytree(ROOT / "conformance", tmp_path / "conformance")
    install = [venv / "bin" / "pip", "install", "--quiet", "--retries", "1", source]
    installed = subprocess.run(
        install, capture_output=True, text=True, check=False, timeout=240, env=environment
    )
    if "Could not find a version that satisfies" in installed.stderr:
        pytest.skip("no index of packages can be reached")
    assert installed.returncode == 0, installed.stderr
    command = [venv / "bin" / "dwell-conformance", "--rule", "byte for byte"]
    command += ["--store", ports.text(dwell.store_address)]
    command += [f"http://{ports.text(dwell.address)}"]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
        cwd=tmp_path,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("1 of 1 rules are kept\n")


def test_every_rule_is_kept_on_memcached(start_dwell, memcached):
    dwell = start_dwell(memcached={"servers": [memcached.name]})
    host, port = memcached.name.rsplit(":", 1)
    wrong, _ = broken(dwell.address, (host, int(port)))
    assert wrong == {}


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_rule_is_from_a_section_of_the_book():
    found = json.loads(run("--list", "--json").stdout)["rules"]
    for rule in found:
        page, _, anchor = rule["anchor"].partition("#")
        assert anchor in anchors(page), rule


class Between(http.server.BaseHTTPRequestHandler):
    """Forwards requests to an edge, and answers them wrongly."""

    protocol_version = "HTTP/1.1"
    edge = None
    fault = None

    def forward(self):
        length = int(self.headers.get("Content-Length", 0))
        request = {
            "target": self.path,
            "fields": dict(self.headers.items()),
            "body": self.rfile.read(length),
        }
        change = self.fault(request)
        edge = http.client.HTTPConnection(*self.edge, timeout=60)
        with contextlib.closing(edge):
            edge.request(self.command, request["target"], request["body"], request["fields"])
            response = edge.getresponse()
            answer = {
                "status": response.status,
                "fields": dict(response.getheaders()),
                "body": response.read(),
            }
        if change:
            change(answer)
        self.send_response_only(answer["status"])
        if answer["status"] not in (204, 304) and self.command != "HEAD":
            answer["fields"]["Content-Length"] = str(len(answer["body"]))
        for name, value in answer["fields"].items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer["body"])

    do_GET = do_HEAD = do_POST = do_QUERY = do_PATCH = do_OPTIONS = forward  # noqa: N815

    def log_message(self, *_):
        pass


def without_cursor(_):
    return lambda answer: answer["fields"].pop("Poll-Cursor", None)


def statuses(old, new):
    def change(answer):
        if answer["status"] == old:
            answer["status"] = new

    return lambda _: change


def decoding(request):
    path, mark, query = request["target"].partition("?")
    path = urllib.parse.quote(urllib.parse.unquote(path))
    request["target"] = path + mark + query


def impatient(request):
    request["target"] = request["target"].replace("wait=250ms", "wait=10ms")


def forgetful(request):
    request["target"] = re.sub(r"since=[^&]*", "", request["target"])


def strict(request):
    tag = request["fields"].get("If-None-Match", "")
    if tag.startswith("W/"):
        del request["fields"]["If-None-Match"]


def cacheable(_):
    def change(answer):
        if "Cache-Control" in answer["fields"]:
            answer["fields"]["Cache-Control"] = "max-age=60"

    return change


def ending_lines(_):
    def change(answer):
        if answer["status"] == 200 and answer["body"]:
            answer["body"] += b"\n"

    return change


# The fault of an edge, and a rule that it breaks.
FAULTS = {
    "no cursor": (without_cursor, "a response with a value has its cursor as ETag"),
    "204 is 304": (statuses(204, 304), "a POST of a client that has the value gets 204"),
    "304 is 200": (statuses(304, 200), "a client that has the value gets 304 for since"),
    "404 is 200": (statuses(404, 200), "a key without a value gets 404 without an application"),
    "414 is 400": (statuses(414, 400), "a key of more than 250 bytes gets 414"),
    "decoded paths": (decoding, "nothing in the path is decoded"),
    "early ends": (impatient, "a wait without a change ends with 204, and not early"),
    "no since": (forgetful, "storing the same bytes again wakes no client"),
    "strong tags": (strict, "an ETag that a proxy weakened or extended is still the cursor"),
    "caches": (cacheable, "a response is not stored if the poll may wait"),
    "text": (ending_lines, "a value is returned byte for byte"),
}


def started(cleanup, edge, fault):
    handler = type("Wrong", (Between,), {"edge": edge, "fault": staticmethod(fault)})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    cleanup.callback(server.server_close)
    cleanup.callback(server.shutdown)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_edge_is_found_out(cleanup, start_dwell, name):
    fault, rule = FAULTS[name]
    dwell = start_dwell()
    through = started(cleanup, dwell.address, lambda _: None)
    chosen = ["--rule", rule]
    wrong, rules = broken(through, dwell.store_address, *chosen)
    assert (wrong, len(rules)) == ({}, 1), "the proxy alone breaks nothing"
    planted = started(cleanup, dwell.address, fault)
    wrong, _ = broken(planted, dwell.store_address, *chosen)
    assert set(wrong) == set(rules)


def test_a_server_that_does_not_answer_keeps_no_rule():
    rule = ["--rule", "a poll returns the value", "--timeout", "0.2"]
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        refused, _ = broken(silent.getsockname(), silent.getsockname(), *rule)
        silent.listen()
        unanswered, _ = broken(silent.getsockname(), silent.getsockname(), *rule)
    assert "ConnectionRefusedError" in next(iter(refused.values()))
    assert "TimeoutError" in next(iter(unanswered.values()))


class Heartbeats(http.server.BaseHTTPRequestHandler):
    """An event stream that sends the same for ever."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):  # noqa: N802
        self.send_response_only(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.ends.wait(0.02):
                self.wfile.write(self.piece)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("piece", [b":\n\n", b"data: more\n", b"data"])
def test_heartbeats_and_pieces_give_an_event_no_more_time(cleanup, monkeypatch, piece):
    monkeypatch.syspath_prepend(str(SUITE))
    rule = importlib.import_module("dwell_conformance.rule")
    tested = importlib.import_module("dwell_conformance.server")
    handler = type("Endless", (Heartbeats,), {"piece": piece})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.ends = threading.Event()
    cleanup.callback(server.server_close)
    cleanup.callback(server.shutdown)
    cleanup.callback(server.ends.set)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://{ports.text(server.server_address)}"
    client = tested.Server(url, ("127.0.0.1", 1), timeout=0.3)
    broken = pytest.raises(rule.Broken, match=r"no event has come whole within 0\.3 s")
    with client.events("/poll/a") as stream, broken:
        stream.event()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["ftp://127.0.0.1"],
        ["http://127.0.0.1/path"],
        ["--rule", "nonsense", "http://a"],
        ["--store", "localhost:99999", "http://a"],
        ["--store", "localhost:0", "http://a"],
        ["http://a:99999"],
    ],
)
def test_wrong_flags_are_two(words):
    result = run(*words)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
