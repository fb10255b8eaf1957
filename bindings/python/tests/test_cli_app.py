"""What ``python -m dwell`` finds out of an application, and tells of its failures."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.wsgi import WsgiToAsgi

from dwell._interface import UnknownInterface, interface_of
from programs import Start
from wire import Wire


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    pass


def wsgi(environ: Any, start_response: Any) -> list[bytes]:
    return []


class AsgiObject:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        pass


class AsgiMethods:
    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        pass


class AsgiSlot:
    """A call of its own in each object, as the middleware of Sentry has it."""

    __slots__ = ("__call__",)

    def __init__(self) -> None:
        self.__call__ = self._run

    async def _run(self, *arguments: Any) -> None:
        pass


class AsgiClass:
    def __init__(self, scope: Any, receive: Any, send: Any) -> None:
        pass

    def __await__(self) -> Any:
        yield


class WsgiObject:
    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        return []


class WsgiClass:
    def __init__(self, environ: Any, start_response: Any) -> None:
        pass

    def __iter__(self) -> Any:
        yield b""


def wrapped(app: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(app)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return app(*arguments, **named)

    return wrapper


def bare(*arguments: Any) -> Any:
    return asgi(*arguments)


def sync_asgi(scope: Any, receive: Any, send: Any) -> Any:
    return asgi(scope, receive, send)


def other_names(s: Any, r: Any, t: Any) -> Any:
    return asgi(s, r, t)


def configured(option: Any, environ: Any, start_response: Any) -> Any:
    return wsgi(environ, start_response)


def optional(env: Any, respond: Any, more: Any = None) -> Any:
    return wsgi(env, respond)


@pytest.mark.parametrize(
    ("app", "interface"),
    [
        (asgi, "asgi"),
        (AsgiObject(), "asgi"),
        (AsgiMethods().serve, "asgi"),
        (AsgiSlot(), "asgi"),
        (AsgiClass, "asgi"),
        (functools.partial(asgi), "asgi"),
        (functools.partial(AsgiObject()), "asgi"),
        (functools.partial(functools.partial(sync_asgi)), "asgi"),
        (wrapped(asgi), "asgi"),
        (sync_asgi, "asgi"),
        (other_names, "asgi"),
        (lambda scope, receive, send: asgi(scope, receive, send), "asgi"),
        (lambda a, b, c: asgi(a, b, c), "asgi"),
        (WsgiToAsgi(wsgi), "asgi"),
        (wsgi, "wsgi"),
        (WsgiObject(), "wsgi"),
        (WsgiClass, "wsgi"),
        (wrapped(wsgi), "wsgi"),
        (functools.partial(configured, "option"), "wsgi"),
        (optional, "wsgi"),
        (lambda a, b: wsgi(a, b), "wsgi"),
        (bare, None),
        (lambda request, *more: None, None),
        (lambda scope: asgi, None),
    ],
)
def test_interface(app: Any, interface: str | None) -> None:
    if interface is None:
        with pytest.raises(UnknownInterface):
            interface_of(app)
    else:
        assert interface_of(app) == interface


def test_an_unclear_interface_is_asked_for(start: Start, tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("import aweb\ndef app(*all):\n    return aweb.app(*all)\n")
    program = start("bare", "--port", "0")
    assert program.end() == 2
    printed = "\n".join(program.seen)
    assert "use --interface wsgi or --interface asgi" in printed
    assert "Traceback" not in printed
    program = start("bare", "--port", "0", "--interface", "asgi")
    with Wire(program.address()) as client:
        assert client.ask("GET /").body == b"asgi"


def test_the_root_logger_is_the_applications(start: Start, tmp_path: Path) -> None:
    source = (
        "import logging, web\n"
        "logging.basicConfig(format='mine %(levelname)s %(message)s', level='DEBUG')\n"
        "logging.getLogger('shop').debug('a detail')\n"
        "def app(environ, start_response):\n"
        "    raise KeyError('no such thing')\n"
    )
    (tmp_path / "logapp.py").write_text(source)
    program = start("logapp", "--port", "0")
    with Wire(program.address()) as client:
        assert client.ask("GET /").status == 500
    program.wait_for("KeyError: 'no such thing'")
    program.send(signal.SIGTERM)
    assert program.end() == 0
    assert "mine DEBUG a detail" in program.seen
    ours = [line for line in program.seen if "the application failed on GET /" in line]
    assert len(ours) == 1
    assert " ERROR dwell: " in ours[0]


LIFESPAN: list[tuple[str, str]] = [
    # It has received `lifespan.startup`: it fails at its start.
    ("await receive(); raise RuntimeError('no database')", "in app"),
    ("await receive(); raise asyncio.CancelledError", "CancelledError"),
]


@pytest.mark.parametrize(("source", "message"), LIFESPAN)
@pytest.mark.parametrize("mode", ["auto", "on"])
def test_a_start_that_fails(
    start: Start, tmp_path: Path, source: str, message: str, mode: str
) -> None:
    text = f"import asyncio\nasync def app(scope, receive, send):\n    {source}\n"
    (tmp_path / "failing.py").write_text(text)
    program = start("failing", "--port", "0", "--lifespan", mode)
    assert program.end() == 1
    printed = "\n".join(program.seen)
    assert message in printed
    assert "dwell: the application has failed at its start" in printed


@pytest.mark.parametrize(
    "source",
    [
        # As Django does it.
        "raise ValueError(f'only HTTP,\\n not {scope[\"type\"]}')",
        # An application that does not look at its scope.
        "await receive(); await send({'type': 'http.response.start', 'status': 200})",
    ],
)
def test_an_application_without_lifespan(start: Start, tmp_path: Path, source: str) -> None:
    text = (
        "import aweb\nasync def app(scope, receive, send):\n"
        "    if scope['type'] == 'http':\n"
        "        return await aweb.app(scope, receive, send)\n"
        f"    {source}\n"
    )
    (tmp_path / "plain.py").write_text(text)
    program = start("plain", "--port", "0")
    with Wire(program.address()) as client:
        assert client.ask("GET /").body == b"asgi"
    line = next(line for line in program.seen if "INFO" in line)
    assert "seems to know no lifespan: " in line
    assert "not lifespan" in line or "http.response.start" in line


@pytest.mark.parametrize("workers", [[], ["--workers", "1"]])
def test_a_factory_that_fails(start: Start, tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "made.py").write_text("def make():\n    return int('x')\n")
    program = start("made:make", "--factory", "--port", "0", *workers)
    assert program.end() != 0
    printed = "\n".join(program.seen)
    assert "line 2, in make" in printed
    assert "the factory 'made:make' has failed" in printed
