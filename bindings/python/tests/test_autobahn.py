"""The core of the Autobahn test suite against the echo server in Python.

Where there is no CPython 2.7 this is skipped, and test_manager_websocket.py stands alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUITE = Path(os.environ.get("DWELL_AUTOBAHN", ROOT / "target/autobahn"))


@pytest.mark.timeout(400)
@pytest.mark.skipif(
    not (SUITE / "installed").exists(),
    reason="AUTOBAHN DID NOT RUN: no CPython 2.7 was found; see tests/autobahn/install",
)
def test_the_core_cases_behave_as_expected(tmp_path):
    echo = tmp_path / "echo"
    program = ROOT / "examples/python/websocket_echo.py"
    echo.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{program}" "$@"\n')
    echo.chmod(0o755)
    command = [sys.executable, ROOT / "tests/autobahn/run.py", "--cases", "core"]
    command += ["--suite", SUITE, "--echo", echo]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
