"""``python -m dwell module:app``: serves an application from the command line."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from dwell import _log, _native
from dwell._interface import UnknownInterface, interface_of
from dwell._options import UsageError, keywords, parse
from dwell._processes import Stop, workers_for
from dwell._reload import Watcher
from dwell._sockets import Address, Listening, activated_sockets


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    try:
        options = parse(arguments)
        _log.start(options)
        return _serve(options)
    except UsageError as error:
        print(f"dwell: {error}", file=sys.stderr)
        return 2
    except (RuntimeError, TypeError, ValueError) as error:
        print(f"dwell: {error}{_remedy(error)}", file=sys.stderr)
        return 1


def _serve(options: argparse.Namespace) -> int:
    directory = os.path.abspath(options.app_dir)
    sys.path.insert(0, directory)
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers is out of range: {options.workers}")
    addresses = _addresses(options)
    watch = _watcher(options, directory)
    replaced = (options.worker_timeout, options.limit_max_requests)
    # Only a supervisor can start a process again.
    workers = workers_for(options.workers, *replaced) or (1 if watch else None)
    interface = options.interface
    if interface == "auto":
        # With a supervisor only the workers load the application: what it is is found in one.
        interface = _interface_of(options) if workers is None else _ask_child(options)
    limits = keywords(options)

    def started(listening: Listening) -> None:
        _greet(listening, interface, workers, options)

    if interface == "wsgi":
        from dwell import wsgi

        return wsgi.run(
            lambda: _load(options, watch),
            addresses,
            options.threads,
            workers,
            options.graceful_timeout,
            limits,
            started,
            watch,
            is_program=True,
            worker_timeout=options.worker_timeout,
            limit_max_requests=options.limit_max_requests,
        )
    from dwell import asgi

    return asgi.run(
        lambda: _load(options, watch),
        addresses,
        workers,
        options.graceful_timeout,
        options.lifespan,
        limits,
        started,
        watch,
        is_program=True,
        worker_timeout=options.worker_timeout,
        limit_max_requests=options.limit_max_requests,
    )


def _addresses(options: argparse.Namespace) -> list[Address]:
    """Where to listen: as the options have it, or on the sockets that systemd has opened."""
    places = options.given & {"host", "port", "uds", "fd"}
    if len(places - {"host", "port"}) + bool(places & {"host", "port"}) > 1:
        flags = ", ".join(f"--{name}" for name in sorted(places))
        raise UsageError(f"these exclude one another: {flags}")
    if options.fd is not None:
        return [Address(descriptor=options.fd)]
    if options.uds:
        return [Address(path=options.uds, mode=options.socket_mode)]
    if not 0 <= options.port <= 65535:
        raise UsageError(f"--port is out of range: {options.port}")
    activated = [] if places else activated_sockets()
    return activated or [Address(host=options.host, port=options.port)]


def _watcher(options: argparse.Namespace, directory: str) -> Watcher | None:
    if not (
        options.reload or options.reload_dir or options.reload_include or options.reload_exclude
    ):
        return None
    for folder in options.reload_dir:
        if not os.path.isdir(folder):
            raise UsageError(f"--reload-dir is no folder: {folder!r}")
    return Watcher(
        options.reload_dir or [directory], options.reload_include, options.reload_exclude
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
