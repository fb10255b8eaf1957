"""The core of the Autobahn test suite against the smallest WebSocket server.

The whole suite is `make autobahn`. Where there is no CPython 2.7 this is skipped, and
`crates/engine/tests/websocket/conformance.rs` stands alone for these groups.
"""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
SUITE = pathlib.Path(os.environ.get("DWELL_AUTOBAHN", HERE.parent / "target/autobahn"))
ECHO = pathlib.Path(
    os.environ.get("DWELL_ECHO", HERE.parent / "target/debug/examples/websocket_echo")
)


@pytest.mark.timeout(400)
@pytest.mark.skipif(
    not (SUITE / "installed").exists(),
    reason="AUTOBAHN DID NOT RUN: no CPython 2.7 was found; see tests/autobahn/install",
)
def test_the_core_cases_behave_as_expected():
    command = [sys.executable, HERE / "autobahn/run.py", "--cases", "core"]
    command += ["--suite", SUITE, "--echo", ECHO]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
