"""The same tests for the real memcached and for the embedded store: the first proves the tests."""

import pytest

from support.dwell import Dwell
from support.memcached import Memcached

MEMCACHED, EMBEDDED = "memcached", "embedded"


@pytest.fixture(scope="module", params=[MEMCACHED, EMBEDDED])
def store_address(request, tmp_path_factory):
    """Where the memcached protocol is spoken."""
    folder = tmp_path_factory.mktemp(request.param)
    server = Memcached(folder) if request.param == MEMCACHED else Dwell(folder)
    try:
        server.start_ready()
        yield server.address if request.param == MEMCACHED else server.store_address
    finally:
        server.stop()
