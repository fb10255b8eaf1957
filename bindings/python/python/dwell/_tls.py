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
    certificate = _path(options, "ssl_certfile")
    key = _path(options, "ssl_keyfile")
    authorities = _path(options, "ssl_ca_certs")
    wanted = options.pop("ssl_cert_reqs", None)
    if certificate is None:
        others = {
            "ssl_keyfile": key,
            "ssl_ca_certs": authorities,
            "ssl_cert_reqs": None if wanted == 0 else wanted,
        }
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"{name} needs ssl_certfile")
        return None
    return _native.Tls(certificate, key, authorities, wanted)


def _path(options: dict[str, Any], name: str) -> str | None:
    """Takes the name of a file out of the options.

    Raises:
        TypeError: For what is no path.
    """
    file = options.pop(name, None)
    try:
        return None if file is None else os.fsdecode(file)
    except TypeError:
        raise TypeError(f"{name} is the path of a file: {file!r}") from None


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
