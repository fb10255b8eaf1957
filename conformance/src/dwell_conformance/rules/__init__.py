"""The rules, in the order of the documentation."""

from dwell_conformance.rules import (
    cursors,
    limits,
    polls,
    several_keys,
    streams,
    waits,
    websockets,
)

MODULES = [polls, cursors, waits, several_keys, streams, websockets, limits]
RULES = [rule for module in MODULES for rule in module.RULES]
