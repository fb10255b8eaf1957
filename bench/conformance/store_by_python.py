"""Stores the keys of standard input on memcached servers, by a client's own rule.

usage: store_by_python.py RULE HOST:PORT:WEIGHT...
"""

import sys
from typing import Any

import pylibmc
from pymemcache.client.hash import HashClient


def client(rule: str, servers: list[str]) -> Any:  # noqa: ANN401
    """The client whose rule it is."""
    if rule == "rendezvous":
        addresses = [server.split(":") for server in servers]
        return HashClient([(host, int(port)) for host, port, _ in addresses], default_noreply=False)
    behaviors = {"ketama_weighted": {"ketama_weighted": True}, "modula": {}}[rule]
    return pylibmc.Client(servers, behaviors=behaviors)


def main() -> None:
    """Stores each key once."""
    rule, *servers = sys.argv[1:]
    storing = client(rule, servers)
    for key in sys.stdin.read().split():
        if not storing.set(key, b"1"):
            sys.exit(f"{key} was not stored")


main()
