"""A rule, and the expectations of its check."""

import dataclasses
from collections.abc import Callable


class Broken(Exception):
    """The server does not keep a rule."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """One sentence about a server, and its check."""

    name: str
    anchor: str
    check: Callable
    # The limit that a flag has to tell of; without the flag the rule is not checked.
    needs: str | None = None


class Rules(list):
    """Rules of one section, declared by a decorator."""

    def __init__(self, page):
        super().__init__()
        self.page = page

    def of(self, anchor, name, needs=None):
        """Declares that the function checks this rule. Its heading is `ANCHOR` or `PAGE#ANCHOR`."""

        def declare(check):
            place = anchor if "#" in anchor else f"{self.page}#{anchor}"
            self.append(Rule(name, place, check, needs))
            return check

        return declare


def expect(what, found, wanted):
    if found != wanted:
        raise Broken(f"{what} is {found!r}, not {wanted!r}")


def expect_one_of(what, found, wanted):
    if found not in wanted:
        raise Broken(f"{what} is {found!r}, not one of {wanted!r}")


def expect_true(what, is_so):
    if not is_so:
        raise Broken(what)
