"""Small functions that programs written for Mongoose expect beside the manager."""

from __future__ import annotations

import re
import time
from urllib.parse import quote, urlsplit

from dwell._events import Event

_TLS_SCHEMES = frozenset({"https", "wss", "mqtts", "tls", "ssl"})
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443, "mqtt": 1883, "mqtts": 8883}
_log_level = 0


def event_name(ev: int) -> str:
    """The name of an event.

    Example:
        >>> event_name(11)
        'MG_EV_HTTP_MSG'
        >>> event_name(28)
        'MG_EV_USER+5'
        >>> event_name(-1)
        'MG_EV_UNKNOWN(-1)'
    """
    try:
        return f"MG_EV_{Event(ev).name}"
    except ValueError:
        pass
    if ev > Event.USER:
        return f"MG_EV_USER+{ev - Event.USER}"
    return f"MG_EV_UNKNOWN({ev})"


def match(s: str, pattern: str) -> tuple[bool, list[str]]:
    """Matches a text against a glob.

    `?` stands for one character, `*` for any but `/`, and `#` for any.

    Returns:
        Whether it matches, and what each wildcard stood for.

    Example:
        >>> match("/api/users/12", "/api/*/#")
        (True, ['users', '12'])
        >>> match("a/b", "a*")
        (False, [])
    """
    wildcards = {"?": "(.)", "*": "([^/]*)", "#": "(.*)"}
    expression = "".join(wildcards.get(char) or re.escape(char) for char in pattern)
    found = re.fullmatch(expression, s, re.DOTALL)
    return (True, list(found.groups())) if found else (False, [])


def http_var(buf: str | bytes, name: str) -> str | None:
    """The value of a variable of a form or query, as it stands there.

    Example:
        >>> http_var("a=1&b=x%20y", "b")
        'x%20y'
    """
    text = buf.decode("utf-8", "surrogateescape") if isinstance(buf, bytes) else buf
    for pair in text.split("&"):
        key, equals, value = pair.partition("=")
        if equals and key == name:
            return value
    return None


def http_parse_multipart(
    body: str | bytes, offset: int = 0
) -> tuple[int, dict[str, str | bytes] | None]:
    r"""The next part of a `multipart/form-data` body.

    Args:
        body: The whole body.
        offset: Where to go on: 0, then what the call before returned.

    Returns:
        Where the next part begins, and this one as a dict of `name`, `filename` and `body`;
        `(0, None)` after the last one.

    Example:
        >>> body = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--\r\n'
        >>> offset, part = http_parse_multipart(body)
        >>> part
        {'name': 'a', 'filename': '', 'body': b'1'}
        >>> http_parse_multipart(body, offset)
        (0, None)
    """
    data = body.encode() if isinstance(body, str) else bytes(body)
    line_end = data.find(b"\r\n", offset)
    boundary = data[offset:line_end]
    if line_end < 0 or not boundary.startswith(b"--") or len(boundary) < 3:
        return 0, None
    head_end = data.find(b"\r\n\r\n", line_end)
    if head_end < 0:
        return 0, None
    part_end = data.find(b"\r\n" + boundary, head_end + 2)
    if part_end < 0:
        return 0, None
    head = data[line_end:head_end].decode("utf-8", "surrogateescape")
    part: dict[str, str | bytes] = {
        "name": _disposition(head, "name"),
        "filename": _disposition(head, "filename"),
        "body": data[head_end + 4 : max(part_end, head_end + 4)],
    }
    return part_end + 2, part


def _disposition(head: str, parameter: str) -> str:
    """A parameter of the Content-Disposition field in the head of a part."""
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() != "content-disposition":
            continue
        found = re.search(rf';\s*{parameter}\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^;\s]*))', value, re.I)
        if found:
            quoted, plain = found.groups()
            return plain if quoted is None else re.sub(r'\\(["\\])', r"\1", quoted)
    return ""


def url_encode(data: str) -> str:
    """Encodes all but unreserved characters.

    Example:
        >>> url_encode("a b/c?")
        'a%20b%2Fc%3F'
    """
    return quote(data, safe="")


def url_port(url: str) -> int:
    """The port of a URL; that of its scheme where it names none, and 0 where that has none.

    Example:
        >>> url_port("ws://localhost:8000/chat"), url_port("https://localhost")
        (8000, 443)
    """
    parts = urlsplit(_absolute(url))
    return parts.port or _PORTS.get(parts.scheme, 0)


def url_host(url: str) -> str:
    """The host of a URL; an IPv6 address with its brackets.

    Example:
        >>> url_host("http://user@localhost:8000/")
        'localhost'
    """
    authority = urlsplit(_absolute(url)).netloc.rpartition("@")[2]
    return authority[: authority.find("]") + 1] or authority.partition(":")[0]


def url_user(url: str) -> str:
    """The user name in a URL, or nothing.

    Example:
        >>> url_user("http://user:secret@localhost/")
        'user'
    """
    return _credentials(url)[0]


def url_pass(url: str) -> str:
    """The password in a URL, or nothing.

    Example:
        >>> url_pass("http://user:secret@localhost/")
        'secret'
    """
    return _credentials(url)[1]


def url_uri(url: str) -> str:
    """The path and query of a URL.

    Example:
        >>> url_uri("http://localhost/a?b=c"), url_uri("http://localhost")
        ('/a?b=c', '/')
    """
    after = _absolute(url).partition("://")[2]
    slash = after.find("/")
    return after[slash:] if slash >= 0 else "/"


def url_is_ssl(url: str) -> bool:
    """Whether the scheme of a URL asks for TLS.

    Example:
        >>> url_is_ssl("wss://localhost"), url_is_ssl("ws://localhost")
        (True, False)
    """
    return urlsplit(_absolute(url)).scheme in _TLS_SCHEMES


def millis() -> int:
    """Milliseconds of a clock that only goes forward.

    Example:
        >>> millis() <= millis()
        True
    """
    return time.monotonic_ns() // 1_000_000


def log_set(level: int) -> None:
    """Remembers a level of logging; what dwell logs goes to the logger `dwell`.

    Example:
        >>> log_set(2)
        >>> log_get()
        2
    """
    global _log_level
    _log_level = level


def log_get() -> int:
    """The level that `log_set` was told."""
    return _log_level


def _absolute(url: str) -> str:
    return url if "://" in url else f"//{url}"


def _credentials(url: str) -> tuple[str, str]:
    credentials, at, _ = urlsplit(_absolute(url)).netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    return (user, password) if at else ("", "")
