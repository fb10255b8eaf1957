"""The design of 2009: libevent's HTTP server with one libmemcached get per request."""

import shutil
import subprocess
from pathlib import Path

from harness import memcached
from harness.contenders.base import BODY, HIT_KEYS, Contender, Running
from harness.paths import BENCH, release_directory
from harness.stage import SERVER_CORE, Stage

SOURCE = BENCH / "peers" / "design2009.c"
LIBRARIES = ("libevent", "libmemcached")


def program_path() -> Path:
    """Where the compiled program is."""
    return release_directory() / "bench-design2009"


def build() -> bool:
    """Compiles the program; False where the compiler or a library's headers are missing."""
    if shutil.which("cc") is None or shutil.which("pkg-config") is None:
        return False
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", *LIBRARIES],
        capture_output=True,
        text=True,
        check=False,
    )
    if flags.returncode != 0:
        return False
    command = ["cc", "-std=c11", "-O2", "-o", str(program_path()), str(SOURCE)]
    return subprocess.run([*command, *flags.stdout.split()], check=False).returncode == 0


class Design2009(Contender):
    """A hit in one memcached, 1,000 keys in turn."""

    name = "design2009"
    label = "the 2009 design, 1,000 keys"
    traced = True
    note = "libevent, one blocking libmemcached get per request; bench/peers/design2009.c"

    def start(self, stage: Stage) -> Running:
        """Starts memcached, fills it, and starts the program on the server's core."""
        memcached_port = memcached.start(stage)
        memcached.fill(memcached_port, HIT_KEYS.paths(), BODY)
        port = stage.free_port()
        arguments = [str(program_path()), str(port), str(memcached_port)]
        program = stage.start("design2009", arguments, SERVER_CORE, [port])
        return Running(program, port, HIT_KEYS.path(0), HIT_KEYS)
