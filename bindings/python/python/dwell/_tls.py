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
    authorities = options.pop("ssl_ca_certs", None)
    wanted = options.pop("ssl_cert_reqs", None)
    if certificate is None:
        others = {"ssl_keyfile": key, "ssl_ca_certs": authorities, "ssl_cert_reqs": wanted or None}
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"{name} needs ssl_certfile")
        return None
    return _native.Tls(os.fspath(certificate), _path(key), _path(authorities), wanted or 0)


def _path(file: str | os.PathLike[str] | None) -> str | None:
    return None if file is None else os.fspath(file)


def read_again(tls: _native.Tls | None) -> bool:
    """Reads the files again; where they cannot be used, logs it, and those before stay.

    Returns:
        Whether they are as they should be.
    """
    if tls is None:
        return True
    try:
        tls.reload()
    except ValueError as error:
        logger.error("the certificates before are used: %s", error)
        return False
    logger.info("the certificates were read again")
    return True


def reload_on_hangup(tls: _native.Tls | None) -> Callable[[], None]:
    """Has SIGHUP read the files again; the result undoes it.

    Does nothing without certificates, and in other threads than the main one, which alone hears
    signals.
    """
    if tls is None or threading.current_thread() is not threading.main_thread():
        return lambda: None

    before = signal.signal(signal.SIGHUP, lambda *_: read_again(tls))

    def restore() -> None:
        signal.signal(signal.SIGHUP, before)

    return restore
