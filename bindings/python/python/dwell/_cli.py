"""``python -m dwell module:app``: serves an application from the command line."""

from __future__ import annotations

import argparse
import errno
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from dwell import _native
from dwell._interface import UnknownInterface, interface_of
from dwell._processes import Stop
from dwell._reload import Watcher
from dwell._sockets import SOCKET_MODE, Address, Listening


class UsageError(Exception):
    """What was asked for cannot be done; the text says what to do instead."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    _start_log(options)
    try:
        return _serve(options)
    except UsageError as error:
        print(f"dwell: {error}", file=sys.stderr)
        return 2
    except (RuntimeError, TypeError, ValueError) as error:
        print(f"dwell: {error}{_remedy(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dwell",
        description="Serves a WSGI or ASGI application.",
        epilog="Example: python -m dwell shop.web:app --port 8080 --workers 4",
    )
    parser.add_argument(
        "app", metavar="module:app", help="where the application is; 'app' if left out"
    )
    parser.add_argument("--version", action="version", version=f"dwell {_native.__version__}")
    parser.add_argument(
        "--factory", action="store_true", help="call what 'app' names to get the application"
    )
    parser.add_argument(
        "--app-dir", default=".", metavar="DIR", help="where modules are looked for"
    )

    group = parser.add_argument_group("where it listens")
    group.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1; 0.0.0.0 for all")
    group.add_argument("--port", type=int, default=8000, help="default: 8000; 0 for a free one")
    group.add_argument("--unix-socket", metavar="PATH", help="a unix socket instead")
    group.add_argument(
        "--socket-mode",
        type=_mode,
        default=SOCKET_MODE,
        metavar="MODE",
        help="who may connect to the unix socket, as chmod has it: 666",
    )

    group = parser.add_argument_group("how it serves")
    group.add_argument("--interface", choices=("auto", "wsgi", "asgi"), default="auto")
    group.add_argument("--workers", type=int, metavar="N", help="processes; without it, this one")
    group.add_argument("--threads", type=int, default=8, metavar="N", help="threads of WSGI: 8")
    group.add_argument("--lifespan", choices=("auto", "on", "off"), default="auto", help="of ASGI")
    group.add_argument(
        "--root-path", default="", metavar="PATH", help="where a proxy has mounted it"
    )
    group.add_argument(
        "--half-close", action="store_true", help="answer clients that send no more (ASGI)"
    )
    group.add_argument(
        "--trusted-proxies",
        default="",
        metavar="NETWORKS",
        help="whose X-Forwarded-For and -Proto are believed: 10.0.0.0/8,::1 or '*'",
    )
    group.add_argument(
        "--reload", action="store_true", help="start anew when a source file changes"
    )
    group.add_argument("--access-log", action="store_true", help="a line for each answer")
    group.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="info"
    )

    group = parser.add_argument_group("limits", "times are in seconds")
    for name, kind, text in _LIMITS:
        group.add_argument(f"--{name}", type=kind, metavar="N", help=text)
    group.add_argument(
        "--graceful-timeout",
        type=float,
        default=30.0,
        metavar="N",
        help="for requests under way when it stops: 30",
    )
    return parser


def _mode(text: str) -> int:
    """Reads permissions such as 660."""
    mode = int(text, 8)
    if not 0 <= mode <= 0o777:
        raise ValueError(text)
    return mode


_LIMITS: list[tuple[str, type, str]] = [
    ("max-connections", int, "clients at once: 100000"),
    ("max-requests-per-connection", int, "then it is closed: 100000"),
    ("max-header-bytes", int, "of a request: 16384"),
    ("max-header-fields", int, "of a request: 100"),
    ("max-target-bytes", int, "of a request: 8192"),
    ("max-body-bytes", int, "of a request: no bound"),
    ("max-message-bytes", int, "of a WebSocket: 1048576"),
    ("max-queue", int, "requests that wait for a thread: 1024"),
    ("max-gathered-body-bytes", int, "of a body before a thread has it: 1048576"),
    ("max-gathered-bytes", int, "the same, of all bodies together: 67108864"),
    ("header-timeout", float, "from the first byte to the end of a head: 10"),
    ("read-timeout", float, "for a body, beside the time of its bytes: 30"),
    ("min-body-rate", int, "bytes a second that a body has at least: 512"),
    ("write-timeout", float, "for which a client may take nothing: 30"),
    ("keep-alive-timeout", float, "between two requests: 75"),
    ("ping-interval", float, "of a WebSocket that is silent: 30"),
    ("ping-timeout", float, "from a ping to a sign of life: 20"),
]


def _serve(options: argparse.Namespace) -> int:
    directory = os.path.abspath(options.app_dir)
    sys.path.insert(0, directory)
    if options.unix_socket:
        address = Address(path=options.unix_socket, mode=options.socket_mode)
    else:
        address = Address(host=options.host, port=options.port)
        if not 0 <= options.port <= 65535:
            raise UsageError(f"--port is out of range: {options.port}")
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers is out of range: {options.workers}")
    workers = options.workers or (1 if options.reload else None)
    interface = options.interface
    if interface == "auto":
        # With a supervisor only the workers load the application: what it is is found in one.
        interface = _interface_of(options) if workers is None else _ask_child(options)
    limits = {
        name.replace("-", "_"): value
        for name, _, _ in _LIMITS
        if (value := getattr(options, name.replace("-", "_"))) is not None
    }
    limits["root_path"] = options.root_path
    limits["access_log"] = options.access_log
    limits["half_close"] = options.half_close
    limits["trusted_proxies"] = [
        network.strip() for network in options.trusted_proxies.split(",") if network.strip()
    ]
    watch = Watcher(directory) if options.reload else None

    def started(listening: Listening) -> None:
        _greet(listening, interface, workers, options)

    if interface == "wsgi":
        from dwell import wsgi

        return wsgi.run(
            lambda: _load(options, watch),
            [address],
            options.threads,
            workers,
            options.graceful_timeout,
            limits,
            started,
            watch,
            is_program=True,
        )
    from dwell import asgi

    return asgi.run(
        lambda: _load(options, watch),
        [address],
        workers,
        options.graceful_timeout,
        options.lifespan,
        limits,
        started,
        watch,
        is_program=True,
    )


def _load(options: argparse.Namespace, watch: Callable[[Stop], None] | None = None) -> Any:
    """Imports the application.

    While sources are watched, one that cannot be imported is waited for.
    """
    try:
        return _import(options)
    except BaseException:
        if watch is None:
            raise
        traceback.print_exc()
        stop = Stop()
        stop.on_signals()
        watch(stop)
        print("dwell: waiting for a change", file=sys.stderr, flush=True)
        stop.wait()
        raise SystemExit(stop.status) from None


def _import(options: argparse.Namespace) -> Any:
    module_name, _, attribute = options.app.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # One that the application itself lacks is told as such, by the traceback.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"there is no module {module_name!r} in {os.path.abspath(options.app_dir)!r}; "
            "start in the directory it is in, or name that with --app-dir"
        ) from None
    except (RuntimeError, TypeError, ValueError) as error:
        # Else they would be taken for mistakes of the command line, which need one line only.
        traceback.print_exc()
        raise UsageError(f"module {module_name!r} cannot be imported; see above") from error
    app: Any = module
    for name in (attribute or "app").split("."):
        try:
            app = getattr(app, name)
        except AttributeError:
            raise UsageError(
                f"module {module_name!r} has no {name!r}; name the application after a colon, "
                f"as in {module_name}:application"
            ) from None
    if options.factory:
        try:
            app = app()
        except (RuntimeError, TypeError, ValueError) as error:
            traceback.print_exc()
            raise UsageError(f"the factory {options.app!r} has failed; see above") from error
    if not callable(app):
        raise UsageError(f"{options.app!r} is no application: {app!r}")
    return app


def _interface_of(options: argparse.Namespace) -> str:
    try:
        return interface_of(_import(options))
    except UnknownInterface as error:
        text = f"the interface of {options.app!r} is unclear: {error}; "
        raise UsageError(f"{text}use --interface wsgi or --interface asgi") from None


def _ask_child(options: argparse.Namespace) -> str:
    """Finds out in a process of its own, so that this one stays as it is."""
    receiver, sender = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        found = "?"
        try:
            found = _interface_of(options)
        except UsageError as error:
            found = f"!{error}"
        except BaseException:
            traceback.print_exc()
        os.write(sender, found.encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as answers:
        answer = answers.read().decode()
    os.waitpid(pid, 0)
    if answer.startswith("!"):
        raise UsageError(answer[1:])
    if answer not in ("wsgi", "asgi"):
        raise UsageError("the application cannot be imported; the reason is above")
    return answer


def _start_log(options: argparse.Namespace) -> None:
    # The root logger is the application's: it configures that as if nothing had been before.
    logger = logging.getLogger("dwell")
    logger.setLevel(options.log_level.upper())
    logger.propagate = False
    handler = logging.StreamHandler()
    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(logging.Formatter(text, "%H:%M:%S"))
    logger.addHandler(handler)


def _greet(
    listening: Listening, interface: str, workers: int | None, options: argparse.Namespace
) -> None:
    parts = [f"{interface.upper()} application {options.app}"]
    if workers is not None:
        parts.append(f"{workers} {'process' if workers == 1 else 'processes'}")
    if interface == "wsgi":
        parts.append(f"{options.threads} {'thread' if options.threads == 1 else 'threads'}")
    where = ", ".join(str(address) for address in listening.addresses)
    print(f"dwell {_native.__version__} on {where}: {', '.join(parts)}")
    print("Press Ctrl+C to stop.", flush=True)


def _remedy(error: BaseException) -> str:
    """What can be done about an error that is not one of the command line."""
    cause = error.__cause__
    if isinstance(cause, OSError):
        if cause.errno == errno.EADDRINUSE:
            return "; another program listens there: stop it, or choose another --port"
        if cause.errno == errno.EACCES:
            return "; ports below 1024 need rights: choose another --port"
        if cause.errno == errno.EADDRNOTAVAIL:
            return "; no interface of this machine has that address: check --host"
    return ""
