"""Certificates of web servers."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from dwell import _native

logger = logging.getLogger("dwell")


def tls_of(options: dict[str, Any]) -> _native.Tls | None:
    """Takes the files of certificates out of the options of a server, and reads them.

    Raises:
        TypeError, ValueError: For files that cannot be used.
    """
    certificate = options.pop("ssl_certfile", None)
    key = options.pop("ssl_keyfile", None)
    if certificate is None:
        if key is not None:
            raise ValueError("ssl_keyfile needs ssl_certfile")
        return None
    return _native.Tls(os.fspath(certificate), None if key is None else os.fspath(key))


def reload_on_hangup(tls: _native.Tls | None) -> Callable[[], None]:
    """Has SIGHUP read the files again; the result undoes it.

    Does nothing without certificates, and in other threads than the main one, which alone hears
    signals.
    """
    if tls is None or threading.current_thread() is not threading.main_thread():
        return lambda: None

    def reload(*_: object) -> None:
        try:
            tls.reload()
        except ValueError as error:
            logger.error("the certificates before are used: %s", error)
        else:
            logger.info("the certificates were read again")

    before = signal.signal(signal.SIGHUP, reload)

    def restore() -> None:
        signal.signal(signal.SIGHUP, before)

    return restore
