"""The types: the stubs say what the module has, and everything is strictly typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dwell

PACKAGE = Path(dwell.__file__).parent


def checked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a checker over the package as it is installed."""
    environment = dict(os.environ)
    # mypy finds what lies in site-packages by itself, and refuses to be told of it.
    if "site-packages" not in PACKAGE.parts:
        environment["MYPYPATH"] = str(PACKAGE.parent)
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def test_the_stubs_say_what_the_module_has():
    done = checked("mypy.stubtest", "dwell", "--ignore-disjoint-bases")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_strictly_typed(tmp_path):
    done = checked("mypy", "--strict", "--cache-dir", str(tmp_path), "-p", "dwell")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_is_checked_against_the_types(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from dwell import Connection, Event, Manager\n"
        "def handler(conn: Connection, event: int, data: object) -> None:\n"
        "    if event == Event.HTTP_MSG:\n"
        "        conn.reply(200, 'ok', {'X-A': '1'})\n"
        "        conn.reply('200')\n"
        "Manager(handler).listen(5)\n"
    )
    done = checked("mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program))
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == ["5", "6"], done.stdout
