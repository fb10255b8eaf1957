"""The Python programs of the documentation run as they stand, but for addresses."""

from __future__ import annotations

import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from test_memcache import CERTIFICATE, TIMEOUT, Memcached, free_port

DOCS = Path(__file__).parents[3] / "docs"
DATA = Path(__file__).parents[3] / "crates" / "tls" / "tests" / "data"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs(page: str) -> list[str]:
    """The programs of a page, in their order."""
    found = FENCE.findall((DOCS / page).read_text())
    assert found, f"{page} has no program"
    return found


HEARS_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
MEMCACHED = [
    *programs("memcached-client-python.md"),
    *programs("memcached-client-asyncio.md"),
    *programs("memcached-django.md"),
]
SECURE = programs("python-tls.md")
SERVERS = [*programs("python.md"), *programs("python-asyncio.md")]


@pytest.mark.skipif(not shutil.which("memcached"), reason="memcached is not installed")
@pytest.mark.parametrize("place", range(len(MEMCACHED)))
def test_programs_of_the_memcached_client(place: int) -> None:
    program = MEMCACHED[place]
    server = Memcached.secure() if "tls=True" in program else Memcached()
    program = program.replace("/etc/memcached/authority.pem", str(CERTIFICATE))
    # A handshake takes its time on a busy machine.
    patient = f"tls=True, timeout={TIMEOUT}, connect_timeout={TIMEOUT}"
    program = program.replace("tls=True", patient)
    for address in ("cache-1:11211", "cache-2:11211", "127.0.0.1:11211"):
        program = program.replace(address, server.address)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        if "print" in program:
            assert "hello" in done.stdout
    finally:
        server.stop()


@pytest.mark.parametrize("place", range(len(SERVERS)))
def test_programs_that_serve(place: int) -> None:
    port = free_port()
    serves(SERVERS[place].replace(":8000", f":{port}"), f"http://127.0.0.1:{port}/", None)


@pytest.mark.parametrize("place", range(len(SECURE)))
def test_programs_that_serve_under_tls(place: int) -> None:
    port = free_port()
    program = SECURE[place].replace("8443", str(port))
    for name, file in (("localhost.pem", "certificate.pem"), ("localhost.key", "key.pem")):
        program = program.replace(name, str(DATA / file))
    context = ssl.create_default_context(cafile=str(DATA / "certificate.pem"))
    assert serves(program, f"https://127.0.0.1:{port}/", context).startswith(b"hello")


def serves(program: str, url: str, context: ssl.SSLContext | None) -> bytes:
    """What a program answers until SIGINT, which ends it."""
    # Under a shell's background job, SIGINT is ignored, and asyncio leaves it so.
    program = HEARS_SIGINT + program
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                with urllib.request.urlopen(url, timeout=TIMEOUT, context=context) as answer:
                    assert answer.status == 200
                    body: bytes = answer.read()
                    assert body
                break
            except ConnectionError as error:
                last = error
            except urllib.error.URLError as error:
                last = error
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, last
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT)
        return body
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
