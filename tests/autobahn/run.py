"""Runs the Autobahn test suite against the echo server, and compares with what is expected.

usage: run.py --suite FOLDER --echo PROGRAM [--cases core|all] [--reports FOLDER]

The suite was put into FOLDER by `install`; PROGRAM is the example `websocket_echo`. Each agent of
`expected.json` is a route of the server, with the cases it is given, how many there are, and the
behaviours that are not `OK`. What is expected of a case is exactly that: one that does better is a
difference too, and `expected.json` is to say so.
"""

import argparse
import collections
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
START_SECONDS = 10


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, server):
    """Waits until the server listens."""
    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit(f"the echo server does not listen at port {port}")


def run_agent(wstest, port, agent, expected, cases, folder):
    """The behaviours of one agent, by case."""
    specification = {
        "outdir": str(folder),
        "servers": [{"agent": agent, "url": f"ws://127.0.0.1:{port}{expected['path']}"}],
        "cases": expected[cases],
        "exclude-cases": [],
        "exclude-agent-cases": {},
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "specification.json"
    file.write_text(json.dumps(specification))
    output = folder / "output.txt"
    with output.open("w") as said:
        command = [wstest, "-m", "fuzzingclient", "-s", str(file)]
        done = subprocess.run(command, check=False, stdout=said, stderr=said)
    if done.returncode != 0:
        # The folder may be gone when somebody looks for it.
        last = "\n".join(output.read_text().splitlines()[-20:])
        sys.exit(f"wstest ended with status {done.returncode}:\n{last}")
    index = json.loads((folder / "index.json").read_text())
    return index[agent]


def differences(expected, results, cases):
    """What is not as expected, a line each."""
    lines = []
    count = expected["counts"][cases]
    if len(results) != count:
        lines.append(f"{len(results)} cases instead of {count}")
    for case, result in results.items():
        wanted = expected["other_than_ok"].get(case, "OK")
        for behaviour in (result["behavior"], result["behaviorClose"]):
            if behaviour != wanted:
                lines.append(f"{case}: {behaviour} instead of {wanted}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", type=pathlib.Path, required=True)
    parser.add_argument("--echo", type=pathlib.Path, required=True)
    parser.add_argument("--cases", choices=["core", "all"], default="all")
    parser.add_argument("--reports", type=pathlib.Path)
    arguments = parser.parse_args()
    wstest = arguments.suite / "venv/bin/wstest"
    expectations = json.loads((HERE / "expected.json").read_text())
    port = free_port()
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        reports = arguments.reports or pathlib.Path(temporary)
        server = subprocess.Popen([arguments.echo, f"127.0.0.1:{port}"])
        try:
            wait_for(port, server)
            for agent, expected in expectations.items():
                folder = reports / agent
                results = run_agent(wstest, port, agent, expected, arguments.cases, folder)
                behaviours = collections.Counter(case["behavior"] for case in results.values())
                table = ", ".join(f"{name} {count}" for name, count in sorted(behaviours.items()))
                print(f"{agent:8} {len(results):4} cases: {table}", flush=True)
                for line in differences(expected, results, arguments.cases):
                    failed = True
                    print(f"{agent:8} {line}")
        finally:
            server.terminate()
            server.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
