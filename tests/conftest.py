"""Servers for the tests: each test gets its own, and they are gone when it ends."""

import contextlib
import resource

import pytest

from support.browser import Browser
from support.dwell import BINARY, Dwell
from support.memcached import Memcached
from support.raw_app import RawApp
from support.redis import REDIS, Redis
from support.secure import Secure
from support.upstream import Upstream


def pytest_sessionstart():
    # Ten thousand held polls are ten thousand descriptors, here and in the program under test.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def pytest_collection_finish(session):
    if session.items and not session.config.option.collectonly and not BINARY.exists():
        pytest.exit(f"{BINARY} does not exist: cargo build --bin dwell", returncode=2)


@pytest.fixture
def cleanup():
    """Ends what was started, last first, whatever else fails."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def start_dwell(cleanup, tmp_path):
    """Starts `dwell serve` with the given sections of the configuration."""

    def start(**sections):
        dwell = Dwell(tmp_path, **sections)
        cleanup.callback(dwell.stop)
        return dwell.start_ready()

    return start


@pytest.fixture
def secure(start_dwell, tmp_path, app):
    """An edge under TLS with an application."""
    return Secure(start_dwell, tmp_path, upstream={"url": app.url})


@pytest.fixture
def lone(start_dwell, tmp_path):
    """An edge under TLS without an application, so a poll for a key that has no value waits."""
    return Secure(start_dwell, tmp_path)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Headless Chromium; what a page keeps is kept by its profile."""
    started = Browser(tmp_path_factory.mktemp("browser"))
    yield started
    started.stop()


@pytest.fixture
def start_memcached(cleanup, tmp_path):
    """Starts one more memcached, with the given options if there are any."""

    def start(*extra):
        memcached = Memcached(tmp_path, *extra)
        cleanup.callback(memcached.stop)
        return memcached.start_ready()

    return start


@pytest.fixture
def memcached(start_memcached):
    """The real memcached."""
    return start_memcached()


@pytest.fixture
def start_redis(cleanup, tmp_path):
    """Starts a Redis, or a Valkey, with the given options if there are any."""

    def start(*extra, server=REDIS):
        redis = Redis(tmp_path, *extra, server=server)
        cleanup.callback(redis.stop)
        return redis.start_ready()

    return start


@pytest.fixture
def app(cleanup):
    """The application behind the edge."""
    upstream = Upstream().start()
    cleanup.callback(upstream.stop)
    return upstream


@pytest.fixture
def raw(cleanup):
    """An application played by the test, byte by byte."""
    app = RawApp()
    cleanup.callback(app.close)
    return app


@pytest.fixture
def edge(start_dwell, app):
    """The edge on its embedded store, with the application behind it."""
    return start_dwell(upstream={"url": app.url})


@pytest.fixture
def lone_edge(start_dwell):
    """The edge on its embedded store, with no application."""
    return start_dwell()


@pytest.fixture(params=["embedded", "memcached", "redis"])
def backend(request, start_dwell, app):
    """The edge and a client that writes to its cache, for each kind of cache."""
    if request.param == "embedded":
        dwell = start_dwell(upstream={"url": app.url})
        return dwell, dwell.store()
    if request.param == "redis":
        redis = request.getfixturevalue("start_redis")()
        dwell = start_dwell(upstream={"url": app.url}, redis={"url": redis.url})
        return dwell, redis.client()
    memcached = request.getfixturevalue("memcached")
    servers = {"servers": [memcached.name], "sweep_interval": "50ms"}
    dwell = start_dwell(upstream={"url": app.url}, memcached=servers)
    return dwell, memcached.client()
