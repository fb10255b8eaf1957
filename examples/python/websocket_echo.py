"""A WebSocket echo server: what the Autobahn test suite is pointed at.

usage: websocket_echo.py ADDRESS
"""

import sys

from dwell import Event, Manager


def handler(conn, event, data):
    if event == Event.HTTP_MSG:
        conn.ws_upgrade(data)
    elif event == Event.WS_MSG:
        conn.ws_send(data.data, data.flags & 15)


with Manager(handler) as manager:
    manager.listen(f"ws://{sys.argv[1]}")
    manager.run()
