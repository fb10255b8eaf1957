"""A handler that answers a constant, on `dwell` or on the package it is modelled on.

usage: manager_hello.py PACKAGE PORT
"""

import importlib
import sys
from typing import Any


def main() -> None:
    """Polls for ever."""
    package, port = sys.argv[1:]
    m: Any = importlib.import_module(package)

    def handler(conn: Any, event: int, _data: Any) -> None:  # noqa: ANN401
        if event == m.MG_EV_HTTP_MSG:
            conn.reply(200, b"Hello, World!")

    manager = m.Manager(handler)
    manager.listen(f"http://127.0.0.1:{port}")
    while True:
        manager.poll(100)


main()
