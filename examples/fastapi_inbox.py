"""A FastAPI application behind Dwell: an inbox per person.

    python3 examples/fastapi_inbox.py LISTEN MEMCACHED

`POST /send/NAME` adds a message. `/poll/inbox/NAME` is a poll that found no value.
"""

import json
import sys
from threading import Lock
from typing import Annotated

import uvicorn
from fastapi import Body, FastAPI, Response
from pymemcache import PooledClient
from pymemcache.client.retrying import RetryingClient

LISTEN, MEMCACHED = sys.argv[1:]

app = FastAPI()
cache = RetryingClient(PooledClient(MEMCACHED, default_noreply=False), attempts=3)
inboxes: dict[str, list[str]] = {}
lock = Lock()


def store(name: str, *messages: str) -> str:
    """Stores what a poll of this inbox gets, and returns it."""
    # One at a time: of two values, the newer must be the one that stays.
    with lock:
        inbox = inboxes.setdefault(name, [])
        inbox.extend(messages)
        value = json.dumps(inbox)
        cache.set(f"/poll/inbox/{name}", value)
    return value


# A plain `def` runs in a thread, so the client of memcached blocks nothing.
@app.get("/poll/inbox/{name}")
def poll(name: str) -> Response:
    return Response(store(name), media_type="application/json")


@app.post("/send/{name}")
def send(
    name: str, message: Annotated[bytes, Body(media_type="text/plain")]
) -> dict[str, bool]:
    store(name, message.decode())
    return {"sent": True}


if __name__ == "__main__":
    host, port = LISTEN.rsplit(":", 1)
    uvicorn.run(app, host=host, port=int(port), log_level="warning")
