"""A stream of server-sent events: `curl -N http://127.0.0.1:8000/`."""

import sys
import time

from dwell import Event, Manager

listeners = set()


def handler(conn, event, data):
    if event == Event.HTTP_MSG:
        listeners.add(conn)
        conn.http_sse("welcome", "the time, every second", retry=1000)
    elif event == Event.CLOSE:
        listeners.discard(conn)


def tick():
    """Tells the time to all who listen."""
    for conn in listeners:
        conn.http_sse("tick", time.strftime("%X"))


with Manager(handler) as manager:
    manager.listen(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
    manager.timer_add(1000, tick, repeat=True)
    manager.run()
