"""Where other clients put keys, and whether `dwell mc where` names the same servers.

Each ring has servers of its own; the client stores every key on them, each server is asked which of
them it holds, and that is where Dwell has to look.
"""

import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from harness import memcached
from harness.paths import BENCH, release_directory
from harness.stage import HOST, LOAD_CORE, Stage
from harness.suites import Counted, SuiteError

CLIENTS = BENCH / "conformance"
KEYS = [f"key{place}" for place in range(200)] + [f"/poll/user{place}" for place in range(200)]
EQUAL, WEIGHTED = (1, 1, 1), (1, 2, 5)
# Row -> the rule's name in Dwell, and the weights of the rings.
ROWS = {
    "ring_ketama_weighted": ("ketama_weighted", (EQUAL, WEIGHTED)),
    "ring_libmemcached_default": ("modula", (EQUAL,)),
    "ring_dalli": ("dalli", (EQUAL, WEIGHTED)),
    "ring_pymemcache": ("rendezvous", (EQUAL,)),
}
CLIENT_SECONDS = 60


def count() -> list[Counted]:
    """How many of the keys are at the same server, in the ring where the fewest are."""
    return [
        compare(row, [places(rule, weights) for weights in rings])
        for row, (rule, rings) in ROWS.items()
    ]


def compare(row: str, found: Sequence[tuple[Mapping[str, str], Mapping[str, str]]]) -> Counted:
    """The fewest equal places of some rings, of theirs and ours.

    Raises:
        SuiteError: a key is missing on either side, or all keys are at one server.
    """
    equal, remarks = [], []
    for theirs, ours in found:
        if set(theirs) != set(KEYS) or set(ours) != set(KEYS):
            raise SuiteError(f"{row}: {len(theirs)} and {len(ours)} of {len(KEYS)} keys")
        if len(set(theirs.values())) < len(EQUAL):
            raise SuiteError(f"{row}: a server holds no key, so nothing is told apart")
        wrong = [key for key in KEYS if theirs[key] != ours[key]]
        equal.append(len(KEYS) - len(wrong))
        remarks += [f"{key}: {ours[key]}, not {theirs[key]}" for key in wrong[:3]]
    if not equal:
        raise SuiteError(f"{row}: no ring")
    return Counted(row, {"equal": min(equal), "cases": len(KEYS), "rings": len(equal)}, remarks)


def places(rule: str, weights: Sequence[int]) -> tuple[dict[str, str], dict[str, str]]:
    """Each key's server, by the real client and by Dwell."""
    with Stage() as stage:
        ports = [memcached.start_on(stage, LOAD_CORE)[1] for _ in weights]
        servers = [f"{HOST}:{port}" for port in ports]
        store(rule, [f"{at}:{weight}" for at, weight in zip(servers, weights, strict=True)])
        theirs = {key: f"{HOST}:{port}" for port in ports for key in held(port)}
    command = [str(release_directory() / "dwell"), "mc", "--distribution", rule]
    for server, weight in zip(servers, weights, strict=True):
        command += ["--server", f"{server}={weight}"]
    done = subprocess.run([*command, "where", *KEYS], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SuiteError(f"dwell mc where: {done.stderr.strip()}")
    return theirs, read_places(done.stdout)


def store(rule: str, servers: Sequence[str]) -> None:
    """Has the rule's own client store every key.

    Raises:
        SuiteError: it is not there, or fails.
    """
    if rule == "dalli":
        command = ["ruby", str(CLIENTS / "store_by_dalli.rb")]
    else:
        command = [sys.executable, str(CLIENTS / "store_by_python.py"), rule]
    if shutil.which(command[0]) is None:
        raise SuiteError(f"{command[0]} is not there")
    done = subprocess.run(
        [*command, *servers],
        input="\n".join(KEYS),
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise SuiteError(f"{rule}: {done.stderr.strip()[-300:]}")


def held(port: int) -> list[str]:
    """The keys that a server holds."""
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.sendall(b"get " + " ".join(KEYS).encode() + b"\r\n")
        lines = iter(connection.makefile("rb").readline, b"END\r\n")
        return [line.split()[1].decode() for line in lines if line.startswith(b"VALUE ")]


def read_places(output: str) -> dict[str, str]:
    """What `dwell mc where` prints: a line for each key, a tab before its server."""
    lines = (line.split("\t") for line in output.splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}
