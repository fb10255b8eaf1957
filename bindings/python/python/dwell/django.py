"""A cache backend for Django, on the memcached client.

Example of ``settings.py``::

    CACHES = {
        "default": {
            "BACKEND": "dwell.django.MemcachedCache",
            "LOCATION": ["10.0.0.1:11211", "10.0.0.2:11211"],
            "OPTIONS": {"timeout": 0.2, "ignore_exc": True},
        }
    }
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT  # type: ignore[import-untyped]
from django.core.cache.backends.memcached import BaseMemcachedCache  # type: ignore[import-untyped]
from django.utils.functional import cached_property  # type: ignore[import-untyped]

from dwell import memcache

__all__ = ["MemcachedCache"]

# Django makes a backend for each thread, and for each request of ASGI. Their client is one, so
# that its connections are too.
_clients: dict[tuple[str, ...], memcache.Client] = {}
_clients_lock = threading.Lock()

# Options of pymemcache for what the client does in any case.
_NEEDLESS = ("no_delay", "use_pooling")


class MemcachedCache(BaseMemcachedCache):  # type: ignore[misc]
    """A backend with the API of Django's own for memcached.

    ``LOCATION`` is a server or several, as :class:`dwell.memcache.Client` has them. ``OPTIONS`` are
    its keyword arguments; values are pickled as pymemcache does it, unless ``serde`` says
    otherwise. So values that ``PyMemcacheCache`` has stored can be read, and are found with
    ``"distribution": "rendezvous"`` where there are several servers.
    """

    def __init__(self, server: str | list[str], params: dict[str, Any]) -> None:
        super().__init__(server, params, sys.modules[memcache.__name__], KeyError)
        options: dict[str, Any] = params.get("OPTIONS") or {}
        given = {key: value for key, value in options.items() if key not in _NEEDLESS}
        defaults = {"serde": memcache.PickleSerde(), "allow_unicode_keys": True}
        self._options: dict[str, Any] = defaults | given
        self._named = (*map(str, self._servers), *sorted(f"{one}={given[one]!r}" for one in given))

    @cached_property  # type: ignore[untyped-decorator]
    def _cache(self) -> memcache.Client:
        with _clients_lock:
            client = _clients.get(self._named)
            if client is None:
                client = memcache.Client(list(self._servers), **self._options)
                _clients[self._named] = client
            return client

    def set(
        self,
        key: Any,
        value: Any,
        timeout: float | None = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> None:
        """Stores a value; one that is too large removes the old one, as no value is better."""
        try:
            super().set(key, value, timeout, version)
        except memcache.MemcacheIllegalInputError:
            self.delete(key, version)
