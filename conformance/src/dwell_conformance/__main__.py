"""The command `dwell-conformance`."""

import argparse
import contextlib
import http.client
import json
import sys

from dwell_conformance.rule import Broken
from dwell_conformance.rules import RULES
from dwell_conformance.server import Limits, Server

PORT_MAX = 65_535
WAITERS_MAX = 1000
BODY_BYTES_MAX = 64 << 20


def address(text):
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"not HOST:PORT: {text}")
    if not 1 <= int(port) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"the port is not from 1 to {PORT_MAX}: {text}")
    return host.strip("[]"), int(port)


def arguments(words):
    parser = argparse.ArgumentParser(
        prog="dwell-conformance",
        description="Checks that a server keeps the rules of Dwell's HTTP interface.",
        epilog="Exit status: 0 if every rule is kept, 1 if one is broken or the server cannot be "
        "reached, 2 if the flags are wrong.",
    )
    parser.add_argument("url", nargs="?", help="the server, such as http://127.0.0.1:8080")
    parser.add_argument(
        "--store",
        type=address,
        default=("127.0.0.1", 11211),
        metavar="HOST:PORT",
        help="its store, which speaks the memcached protocol [default: 127.0.0.1:11211]",
    )
    parser.add_argument("--prefix", default="/poll/", help="the prefix of polls [default: /poll/]")
    parser.add_argument(
        "--rule", action="append", default=[], metavar="WORDS", help="check only rules of this name"
    )
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="longest time for an answer"
    )
    parser.add_argument(
        "--body-bytes-max",
        type=int,
        default=Limits.body_bytes,
        metavar="BYTES",
        help="longest body of a poll [default: 65536]",
    )
    parser.add_argument(
        "--target-bytes-max",
        type=int,
        default=Limits.target_bytes,
        metavar="BYTES",
        help="longest target of a request [default: 8192]",
    )
    parser.add_argument(
        "--rate-path",
        metavar="PATH",
        help="a path of a route with a rate for each address; without it 429 is not checked",
    )
    parser.add_argument(
        "--waiters-max",
        type=int,
        metavar="NUMBER",
        help="most waits of the server, up to 1000; without it 503 is not checked",
    )
    parser.add_argument("--list", action="store_true", help="print the rules, and check nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(words)
    given.limits = Limits(
        given.body_bytes_max, given.target_bytes_max, given.rate_path, given.waiters_max
    )
    given.rules = [rule for rule in RULES if chosen(rule, given.rule) and may_check(rule, given)]
    if not given.rules:
        parser.error("no rule has this name")
    if (
        not 1 <= given.body_bytes_max <= BODY_BYTES_MAX
        or not 64 <= given.target_bytes_max <= 1 << 20
    ):
        parser.error(f"a body has from 1 to {BODY_BYTES_MAX} bytes, a target from 64 to 1048576")
    if given.waiters_max is not None and not 1 <= given.waiters_max <= WAITERS_MAX:
        parser.error(f"the number of waits is not from 1 to {WAITERS_MAX}")
    if given.timeout <= 0:
        parser.error("the timeout is not above 0")
    if given.url is None and not given.list:
        parser.error("name the URL of the server")
    if given.url is not None:
        try:
            given.server = Server(given.url, given.store, given.prefix, given.timeout, given.limits)
        except ValueError as error:
            parser.error(str(error))
    return given


def chosen(rule, words):
    return not words or any(part in rule.name for part in words)


def may_check(rule, given):
    """True if the flags tell of the limit that the rule is about; a list has all rules."""
    return given.list or rule.needs is None or getattr(given.limits, rule.needs) is not None


def fault(rule, server):
    """The way in which the server breaks the rule; `None` if it keeps it."""
    try:
        rule.check(server)
    except Broken as broken:
        return str(broken)
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {type(error).__name__}: {error}"
    except Exception as error:
        # An answer of another shape than the rule has: a key, a number, a frame is not there.
        return f"not readable: {type(error).__name__}: {error}"
    return None


def check(given, out):
    results = []
    for rule in given.rules:
        found = fault(rule, given.server)
        results.append({"rule": rule.name, "anchor": rule.anchor, "fault": found})
        if not given.json:
            print("kept  " if found is None else "BROKEN", rule.name, file=out)
            if found is not None:
                print(f"       {found}\n       docs/{rule.anchor}", file=out)
    # A store that is gone has been reported by every rule.
    with contextlib.suppress(OSError, Broken):
        given.server.clean()
    broken = sum(result["fault"] is not None for result in results)
    if given.json:
        summary = {"server": given.url, "rules": results, "broken": broken}
        print(json.dumps(summary, indent=2), file=out)
    else:
        print(f"{len(results) - broken} of {len(results)} rules are kept", file=out)
    return 1 if broken else 0


def main(words=None, out=sys.stdout):
    given = arguments(words)
    if not given.list:
        return check(given, out)
    rules = [{"rule": rule.name, "anchor": rule.anchor} for rule in given.rules]
    if given.json:
        print(json.dumps({"rules": rules}, indent=2), file=out)
    else:
        for rule in rules:
            print(f"{rule['rule']}  (docs/{rule['anchor']})", file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
