"""The options of ``python -m dwell``.

One table, from which the parser, the environment variables, the help and the manual come.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dwell import _native
from dwell._sockets import SOCKET_MODE


class UsageError(Exception):
    """What was asked for cannot be done; the text says what to do instead."""


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        flag: Its flag; the variable and the keyword argument follow from it.
        help: Its meaning, for the help and the manual.
        read: Turns text into its value; absent for a switch.
        default: The value where it is not given.
        metavar: The word for its value.
        choices: The values that are allowed, if not all.
        aliases: Further flags, as other servers have them.
        is_list: Whether it has several values: the flag is repeated, or commas part them.
        is_server: Whether it is a keyword argument of ``Server`` and ``serve``.
    """

    flag: str
    help: str
    read: Callable[[str], Any] | None = None
    default: Any = None
    metavar: str = "N"
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    is_list: bool = False
    is_server: bool = False

    @property
    def name(self) -> str:
        """Its name as an attribute and keyword argument."""
        return self.flag[2:].replace("-", "_")

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"DWELL_{self.name.upper()}"

    def add_to(self, group: argparse._ArgumentGroup) -> None:
        """Adds it to a parser, which leaves out what is not given."""
        names = (self.flag, *self.aliases)
        # The help is a format of its own.
        text = f"{self.help}; default: {self.shown()}".replace("%", "%%")
        given: dict[str, Any] = {"dest": self.name, "default": argparse.SUPPRESS, "help": text}
        if self.read is None:
            group.add_argument(*names, action=argparse.BooleanOptionalAction, **given)
            return
        given |= {"type": self.read, "choices": self.choices or None}
        given["metavar"] = None if self.choices else self.metavar
        group.add_argument(*names, action="append" if self.is_list else "store", **given)

    def of_environment(self, text: str) -> Any:
        """Reads the value of its variable.

        Raises:
            UsageError: For a value that it cannot have.
        """
        try:
            if self.read is None:
                return _switch(text)
            value = [text] if self.is_list else self.read(text)
            if self.choices and value not in self.choices:
                raise ValueError(f"not one of {', '.join(self.choices)}")
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise UsageError(f"{self.variable} is wrong: {text!r}: {error}") from None
        return value

    def shown(self) -> str:
        """Its default, for the help and the manual."""
        if self.read is None:
            return "on" if self.default else "off"
        if self.default is None or self.default in ("", []):
            return "none"
        if isinstance(self.default, list):
            return ",".join(self.default)
        return f"{self.default:o}" if self.read is _mode else str(self.default)


def _switch(text: str) -> bool:
    word = text.lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("a switch is 1 or 0")


def _mode(text: str) -> int:
    """Reads permissions such as 660."""
    mode = int(text, 8)
    if not 0 <= mode <= 0o777:
        raise ValueError(text)
    return mode


_mode.__name__ = "mode"

LISTENING = (
    Option("--host", "Address to listen on; 0.0.0.0 for all", str, "127.0.0.1", "HOST"),
    Option("--port", "Port to listen on; 0 for a free one", int, 8000),
    Option(
        "--uds",
        "Unix socket to listen on instead",
        str,
        metavar="PATH",
        aliases=("--unix-socket",),
    ),
    Option("--socket-mode", "Permissions of the unix socket", _mode, SOCKET_MODE, "MODE"),
    Option("--fd", "Descriptor of an inherited socket to listen on instead", int),
)

PROTOCOLS = (
    Option(
        "--h2c",
        "HTTP/2 without TLS, for clients that begin with it (prior knowledge); not with "
        "--ssl-certfile",
        default=False,
        is_server=True,
    ),
    Option(
        "--http2",
        "HTTP/2 under TLS, for clients that choose it (ALPN); needs --ssl-certfile",
        default=False,
        is_server=True,
    ),
)

TLS = (
    Option(
        "--ssl-certfile",
        "PEM file with the certificate, and those that vouch for it: clients are under TLS",
        str,
        metavar="PATH",
        is_server=True,
    ),
    Option(
        "--ssl-keyfile",
        "PEM file with the private key; without it, the key is in --ssl-certfile",
        str,
        metavar="PATH",
        is_server=True,
    ),
    Option(
        "--ssl-ca-certs",
        "PEM file with the authorities that issue certificates of clients",
        str,
        metavar="PATH",
        is_server=True,
    ),
    Option(
        "--ssl-cert-reqs",
        "Client certificates: 0, not requested; 1, optional; 2, required",
        int,
        0,
        is_server=True,
    ),
)

APPLICATION = (
    Option("--factory", "Call what is named to get the application", default=False),
    Option("--app-dir", "Folder in which modules are looked for", str, ".", "DIR"),
    Option(
        "--interface", "Interface of the application", str, "auto", choices=("auto", "wsgi", "asgi")
    ),
    Option("--lifespan", "Lifespan of ASGI", str, "auto", choices=("auto", "on", "off")),
    Option("--env-file", "File of environment variables to load first", str, metavar="PATH"),
    Option(
        "--root-path",
        "Prefix that a proxy takes off",
        str,
        "",
        "PATH",
        is_server=True,
    ),
    Option(
        "--trusted-proxies",
        "Networks, or '*', whose X-Forwarded-For and -Proto are believed, as 10.0.0.0/8,::1: the "
        "client is the nearest address that is not one of them",
        str,
        [],
        "NETWORKS",
        is_list=True,
        is_server=True,
    ),
    Option(
        "--half-close",
        "ASGI: answer clients that send no more",
        default=False,
        is_server=True,
    ),
)

PROCESSES = (
    Option("--workers", "Worker processes; without it, the one process serves", int),
    Option("--threads", "Threads of WSGI in each process", int, 8),
    Option(
        "--worker-timeout",
        "Seconds after which a worker that hangs is replaced",
        float,
        aliases=("--timeout-worker-healthcheck",),
    ),
    Option("--limit-max-requests", "Requests after which a worker is replaced", int),
    Option(
        "--graceful-timeout",
        "Seconds for requests in progress when it stops",
        float,
        30.0,
        aliases=("--timeout-graceful-shutdown",),
    ),
    Option("--reload", "Restart when a source file changes", default=False),
    Option(
        "--reload-dir",
        "Folder to watch instead of the one of the application; implies --reload",
        str,
        [],
        "DIR",
        is_list=True,
    ),
    Option(
        "--reload-include",
        "Pattern of further files to watch, as '*.html'; implies --reload",
        str,
        [],
        "PATTERN",
        is_list=True,
    ),
    Option(
        "--reload-exclude",
        "Pattern of files and folders not to watch; implies --reload",
        str,
        [],
        "PATTERN",
        is_list=True,
    ),
)

LOGS = (
    Option(
        "--access-log",
        "A line on standard output for each answer; 1 MiB of them waits for a reader",
        default=False,
        is_server=True,
    ),
    Option(
        "--access-log-format",
        "Form of that line; implies --access-log",
        str,
        metavar="FORMAT",
        is_server=True,
    ),
    Option(
        "--log-level",
        "Level of the log",
        str,
        "info",
        choices=("debug", "info", "warning", "error"),
    ),
    Option(
        "--log-config",
        "Configuration of logging: a file in JSON, YAML or INI",
        str,
        metavar="PATH",
    ),
)

LIMITS = (
    Option(
        "--max-connections",
        "Clients at once, in each process; more are closed as they come",
        int,
        100_000,
    ),
    Option("--max-requests-per-connection", "Then the connection closes", int, 100_000),
    Option("--max-header-bytes", "Bytes of a request's head; 431 beyond", int, 16_384),
    Option("--max-header-fields", "Fields of a request's head; 431 beyond", int, 100),
    Option("--max-target-bytes", "Bytes of a request's target; 414 beyond", int, 8192),
    Option("--max-body-bytes", "Bytes of a request's body; 413 beyond", int),
    Option(
        "--max-message-bytes",
        "Bytes of a WebSocket message; closed with 1009 beyond",
        int,
        1_048_576,
    ),
    Option("--limit-concurrency", "Requests that the application has at once; 503 beyond", int),
    Option("--max-queue", "WSGI: requests that wait for a thread; 503 beyond", int, 1024),
    Option(
        "--max-gathered-body-bytes",
        "WSGI: bytes of a body that are taken before a thread has its request",
        int,
        1_048_576,
    ),
    Option(
        "--max-gathered-bytes",
        "WSGI: the same of all bodies of a process; what comes then counts as longer than that",
        int,
        67_108_864,
    ),
    Option("--header-timeout", "From the first byte of a head to its end; 408", float, 10.0),
    Option(
        "--read-timeout",
        "For a body, beside the time of its bytes at --min-body-rate, and for any pause in it. "
        "Once the application was called, only while it waits for more; 408",
        float,
        30.0,
    ),
    Option(
        "--min-body-rate",
        "Bytes a second that a body has at least; with 0, one byte in each --read-timeout",
        int,
        512,
    ),
    Option("--write-timeout", "For which a client may take nothing; cut off", float, 30.0),
    Option(
        "--keep-alive-timeout",
        "Between two requests; closed",
        float,
        75.0,
        aliases=("--timeout-keep-alive",),
    ),
    Option("--ping-interval", "Silence of a WebSocket before a ping", float, 30.0),
    Option("--ping-timeout", "From a ping to a sign of life; cut off", float, 20.0),
)

# Titles with their options. All limits are keyword arguments.
GROUPS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    ("Listening", LISTENING),
    ("HTTP/2", PROTOCOLS),
    ("TLS", TLS),
    ("Application", APPLICATION),
    ("Processes", PROCESSES),
    ("Logs", LOGS),
    ("Limits, and times in seconds", LIMITS),
)


# Options of other servers that dwell does not have, and what there is instead.
REFUSED = {
    "--ssl-keyfile-password": "keys are not decrypted here: "
    "openssl pkey -in encrypted.pem -out key.pem",
}


def options() -> Iterable[Option]:
    """All options."""
    return (option for _, group in GROUPS for option in group)


def keywords(values: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of a server."""
    wanted = (option for option in options() if option.is_server or option in LIMITS)
    return {option.name: getattr(values, option.name) for option in wanted}


def parse(
    arguments: Sequence[str] | None, environment: Mapping[str, str] | None = None
) -> argparse.Namespace:
    """Reads the command line, and the environment for what it does not have.

    Variables of ``--env-file`` that the environment lacks are added to it.

    Returns:
        The value of each option, ``app``, and in ``given`` the names of those that were given.

    Raises:
        UsageError: For a variable with a value that its option cannot have.
    """
    parser = _parser()
    for argument in sys.argv[1:] if arguments is None else arguments:
        if remedy := REFUSED.get(argument.partition("=")[0]):
            raise UsageError(f"there is no {argument.partition('=')[0]}: {remedy}")
    given = vars(parser.parse_args(arguments))
    path = given.get("env_file") or os.environ.get("DWELL_ENV_FILE")
    if path:
        for name, text in read_env_file(path).items():
            os.environ.setdefault(name, text)
    environment = os.environ if environment is None else environment
    values = argparse.Namespace()
    for option in options():
        told = environment.get(option.variable)
        if option.name not in given and told:
            given[option.name] = option.of_environment(told)
        value: Any = given.get(option.name, option.default)
        if option.is_list:
            value = [part for text in value for part in _parts(text)]
        setattr(values, option.name, value)
    values.app = given.get("app") or environment.get("DWELL_APP")
    if not values.app:
        parser.error("the application is missing: name it as module:app, or in DWELL_APP")
    values.given = frozenset(given)
    return values


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dwell",
        description="Serves a WSGI or ASGI application.",
        epilog="Each option can be given in the environment too: --max-queue as DWELL_MAX_QUEUE. "
        "Example: python -m dwell shop.web:app --port 8080 --workers 4",
    )
    parser.add_argument(
        "app", metavar="module:app", nargs="?", help="where the application is; 'app' if left out"
    )
    parser.add_argument("--version", action="version", version=f"dwell {_native.__version__}")
    for title, group in GROUPS:
        part = parser.add_argument_group(title)
        for option in group:
            option.add_to(part)
    return parser


# Every repetition ends where the next begins: a line is read in one way, in linear time.
_LINE = re.compile(
    r"""(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=
    (?:\s*(?:'([^']*)'
           |"((?:[^"\\]|\\.)*)"
           |((?:[^\s#'"]|(?<==)\#)[^\s'"]*(?:[ \t]+[^\s#'"][^\s'"]*)*)))?
    \s*(?:(?<=\s)\#.*|(?<=['"])\#.*)?""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(path: str) -> dict[str, str]:
    r"""Reads lines such as ``NAME=value``, ``export NAME='value'`` and ``NAME="two\nlines"``.

    Raises:
        UsageError: When there is no such file, or for a line of another form.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--env-file {path!r} cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise UsageError(f"{path}:{number}: not NAME=value: {line[:80]!r}")
        name, single, double, bare = match.groups()
        if double is not None:
            double = re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), double)
        found[name] = next((text for text in (single, double, bare) if text is not None), "")
    return found


def manual() -> str:
    """The tables of the manual."""
    tables = []
    for title, group in GROUPS:
        lines = [f"{title}:", "", "| flag | default | meaning |", "|---|---|---|"]
        for option in group:
            mark = " \\*" if option.is_server or option in LIMITS else ""
            flags = ", ".join(f"`{flag}`" for flag in (option.flag, *option.aliases))
            choices = f": {', '.join(option.choices)}" if option.choices else ""
            lines.append(f"| {flags}{mark} | {option.shown()} | {option.help}{choices} |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables)
