"""The same answer as a WSGI and as an ASGI application."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

BODY = b"Hello, World!"
HEADERS = [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))]
RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS]


def wsgi(_environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Answers a constant."""
    start_response("200 OK", HEADERS)
    return [BODY]


async def asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[..., Awaitable[None]],
) -> None:
    """Answers a constant."""
    if scope["type"] == "http":
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": RAW_HEADERS})
        await send({"type": "http.response.body", "body": BODY})
