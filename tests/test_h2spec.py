"""Every case of h2spec, the strict ones too, with and without TLS, and with the engine alone.

A case that is not to pass stands here with its reason; one that stands here and passes fails the
test. `make conformance-h2` builds h2spec and runs this. Without h2spec it is skipped.
"""

import os
import pathlib
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from support import ports
from support.process import Process
from support.secure import Secure

ROOT = pathlib.Path(__file__).resolve().parent.parent
H2SPEC = pathlib.Path(os.environ.get("DWELL_H2SPEC", ROOT / "target/h2spec/h2spec"))
H2C = pathlib.Path(os.environ.get("DWELL_H2C", ROOT / "target/debug/examples/h2c"))
CASES = 146
# Long: a machine that halts for a moment must not look like a server that fails.
TIMEOUT_SECONDS = 20

# The server allows no dynamic table (SETTINGS_HEADER_TABLE_SIZE is 0), and these use one of 4,096
# bytes after they have acknowledged that. RFC 7541 section 6.3: a size beyond the limit "MUST be
# treated as a decoding error", as the suite's own case hpack/6.3 asks; section 2.3.3: so must be an
# index beyond the tables.
NO_TABLE = {
    "generic/5: Sends a dynamic table size update",
    "generic/5: Sends multiple dynamic table size update",
    "http2/6.10: Sends multiple CONTINUATION frames preceded by a HEADERS frame",
}
# Without TLS the port is that of HTTP/1.1 too, so what does not begin as HTTP/2 does gets the 400
# of HTTP/1.1 before the connection is closed (RFC 9112 section 3); the suite wants the end alone.
SHARED_PORT = {"http2/3.5: Sends invalid connection preface"}

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not H2SPEC.exists(), reason="H2SPEC DID NOT RUN: see tests/h2spec/install, which needs Go"
    ),
]


@pytest.fixture
def faults(tmp_path, record_property):
    """Runs all cases; returns what those that fail have seen, by their names."""

    def run(address, *more):
        report = tmp_path / "report.xml"
        host, port = address
        command = [H2SPEC, "--strict", "-o", str(TIMEOUT_SECONDS), "-h", host, "-p", str(port)]
        command += ["-j", report, *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
        assert report.exists(), done.stdout[-2000:] + done.stderr[-2000:]
        cases = list(ElementTree.parse(report).iter("testcase"))
        assert len(cases) == CASES
        assert not [case for case in cases if case.find("skipped") is not None]
        found = {}
        for case in cases:
            for kind in ("failure", "error"):
                if (fault := case.find(kind)) is not None:
                    found[f"{case.get('package')}: {case.get('classname')}"] = fault.text
        record_property("cases", len(cases))
        record_property("failed", len(found))
        return found

    return run


def check(found, expected):
    assert {name: text for name, text in found.items() if name not in expected} == {}
    assert expected - set(found) == set(), "these pass, and are not to be listed any more"


def test_the_edge(start_dwell, app, faults):
    edge = start_dwell(server={"h2c": True}, upstream={"url": app.url})
    check(faults(edge.address), NO_TABLE | SHARED_PORT)


def test_the_edge_under_tls(start_dwell, tmp_path, app, faults):
    secure = Secure(start_dwell, tmp_path, upstream={"url": app.url})
    check(faults(secure.address, "--tls", "--insecure"), NO_TABLE)


def test_the_engine_alone(tmp_path, cleanup, faults):
    address = ports.free_address()
    engine = Process([H2C, ports.text(address)], tmp_path / "h2c.log")
    cleanup.callback(engine.stop)
    engine.start_listening(address)
    check(faults(address), NO_TABLE | SHARED_PORT)
