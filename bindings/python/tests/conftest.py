"""Servers for the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dwell import wsgi
from programs import ASGI, WSGI, Program, Start
from servers import AsgiApp, RunAsgi, RunningAsgi, RunWsgi, WsgiApp


@pytest.fixture
def run_asgi() -> Iterator[RunAsgi]:
    """Starts ASGI servers that end with the test."""
    servers: list[RunningAsgi] = []

    def start(app: AsgiApp, url: str = "http://127.0.0.1:0", **options: Any) -> RunningAsgi:
        servers.append(RunningAsgi(app, url, options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
        server.end()


@pytest.fixture
def run_wsgi() -> Iterator[RunWsgi]:
    """Starts WSGI servers that end with the test."""
    servers: list[wsgi.Server] = []

    def start(app: WsgiApp, url: str = "http://127.0.0.1:0", **options: Any) -> wsgi.Server:
        servers.append(wsgi.Server(app, url, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop(timeout=5)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs in a directory with applications; they end with the test."""
    (tmp_path / "web.py").write_text(WSGI)
    (tmp_path / "aweb.py").write_text(ASGI)
    programs: list[Program] = []

    def start(*arguments: str, **options: Any) -> Program:
        programs.append(Program(tmp_path, *arguments, **options))
        return programs[-1]

    yield start
    for program in programs:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()
