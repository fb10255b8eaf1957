"""Servers of the Python package that answer `/held` with what the interpreter holds.

usage: idle_objects.py PORT starts a Manager; `wsgi` and `asgi` are applications.
"""

import asyncio
import gc
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import dwell

HELD = "/held"
HEADERS = [("Content-Type", "application/json")]


def held() -> bytes:
    """Blocks that the interpreter has given to objects, of which each has one, and threads."""
    gc.collect()
    threads = threading.active_count()
    return json.dumps({"objects": sys.getallocatedblocks(), "threads": threads}).encode()


def wsgi(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Answers with what is held."""
    start_response("200 OK", HEADERS)
    return [held() if environ["PATH_INFO"] == HELD else b"{}"]


async def asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[..., Awaitable[None]],
) -> None:
    """Answers with what is held, tasks of the loop among it."""
    if scope["type"] != "http":
        return
    await receive()
    body = b"{}"
    if scope["path"] == HELD:
        body = json.dumps(json.loads(held()) | {"tasks": len(asyncio.all_tasks())}).encode()
    fields = [(name.lower().encode(), value.encode()) for name, value in HEADERS]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Serves by a Manager for ever."""

    def handler(conn: dwell.Connection, event: int, data: Any) -> None:  # noqa: ANN401
        if event == dwell.MG_EV_HTTP_MSG:
            conn.reply(200, held() if data.uri == HELD else b"{}")

    manager = dwell.Manager(handler)
    manager.listen(f"http://127.0.0.1:{sys.argv[1]}")
    while True:
        manager.poll(100)


if __name__ == "__main__":
    main()
