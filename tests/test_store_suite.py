"""libmemcached's own conformance suite."""

import subprocess

from support.either import store_address  # noqa: F401 -- a fixture


def test_memccapable_passes_every_test_of_both_protocols(store_address):  # noqa: F811
    host, port = store_address
    done = subprocess.run(
        ["memccapable", "-h", host, "-p", str(port)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    lines = (done.stdout + done.stderr).splitlines()
    passed = [line for line in lines if line.endswith("[pass]")]
    assert [line for line in lines if "[FAIL]" in line] == []
    assert sum(line.startswith("ascii") for line in passed) == 27, lines
    assert sum(line.startswith("binary") for line in passed) == 27, lines
