"""The target figures, each with its newest measured value and whether it holds."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import results
from harness.paths import TARGETS_FILE

# Where the figures stand on a page.
PAGE_BEGIN = "<!-- figures: written by bench/targets --write -->\n"
PAGE_END = "<!-- end of figures -->\n"

KEYS = {"figure", "section", "unit", "at_most", "at_least", "interim", "result", "over", "note"}


class TargetsError(ValueError):
    """`targets.toml` is wrong; the message says where."""


@dataclass(frozen=True)
class Target:
    """One figure to reach.

    Attributes:
        figure: its name for people.
        at_most, at_least: its bound; exactly one is set, or both for an exact value.
        interim: a nearer bound, on the way to the bound.
        result: the flat name of the figure that measures it, None while nothing does.
        over: the figure to divide by, where the target is a ratio.
    """

    section: str
    figure: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    interim: float | None = None
    result: str | None = None
    over: str | None = None
    note: str = ""

    def holds(self, value: float) -> bool:
        """Whether a measured value is within the bound."""
        within = self.at_most is None or value <= self.at_most
        return within and (self.at_least is None or value >= self.at_least)

    @property
    def bound(self) -> str:
        """The bound as it is printed."""
        if self.at_most is not None and self.at_least is not None:
            return f"= {self.at_most:g}"
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}"


@dataclass(frozen=True)
class Standing:
    """A target and the newest measurement of it, if there is one."""

    target: Target
    value: float | None = None
    date: str = ""

    @property
    def verdict(self) -> str:
        """`holds`, `misses`, `interim` (only the nearer bound holds) or `not measured`."""
        if self.value is None:
            return "not measured"
        if self.target.holds(self.value):
            return "holds"
        if self.target.interim is not None and self.value <= self.target.interim:
            return "interim"
        return "misses"


def parse(document: dict[str, Any]) -> list[Target]:
    """Reads the sections of `targets.toml`.

    Raises:
        TargetsError: a key is unknown, a bound is missing, or `over` stands without `result`.
    """
    targets = []
    for section in document["section"]:
        for entry in section["target"]:
            target = _parse_target(section["title"], entry)
            targets.append(target)
    return targets


def _parse_target(section: str, entry: dict[str, Any]) -> Target:
    name = entry.get("figure", entry)
    if unknown := set(entry) - KEYS:
        raise TargetsError(f"{name}: unknown key {', '.join(sorted(unknown))}")
    try:
        target = Target(section=section, **entry)
    except TypeError as error:
        raise TargetsError(f"{name}: {error}") from error
    if target.at_most is None and target.at_least is None:
        raise TargetsError(f"{name}: neither at_most nor at_least")
    if target.over is not None and target.result is None:
        raise TargetsError(f"{name}: over without result")
    return target


def load(path: Path = TARGETS_FILE) -> list[Target]:
    """All targets, in the order of the file."""
    return parse(tomllib.loads(path.read_text()))


def standing(target: Target, kept: Sequence[results.Result]) -> Standing:
    """The newest measurement of a target; both sides of a ratio come from the same run."""
    if target.result is None:
        return Standing(target)
    for result in kept:
        figures = results.figures(result)
        if target.result not in figures or (target.over and not figures.get(target.over)):
            continue
        value = figures[target.result]
        if target.over is not None:
            value /= figures[target.over]
        return Standing(target, value, result["date"][:10])
    return Standing(target)


def report(targets: Sequence[Target], kept: Sequence[results.Result]) -> str:
    """The table `make targets` prints."""
    standings = [standing(target, kept) for target in targets]
    width = max(len(target.figure) for target in targets)
    lines: list[str] = []
    section = ""
    for entry in standings:
        target = entry.target
        if target.section != section:
            section = target.section
            lines += ["", section]
        value = "-" if entry.value is None else number(entry.value)
        lines.append(
            f"  {target.figure:<{width}}  {target.bound:>9} {target.unit:<11}"
            f" {value:>8}  {entry.date:<10}  {entry.verdict}".rstrip()
        )
    counts = {
        verdict: sum(entry.verdict == verdict for entry in standings)
        for verdict in ("holds", "interim", "misses", "not measured")
    }
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    lines += ["", f"{len(standings)} figures: {summary}"]
    if counts["interim"]:
        lines.append("interim: misses its bound, holds the nearer one on the way to it")
    return "\n".join(lines[1:])


def markdown(targets: Sequence[Target], kept: Sequence[results.Result]) -> str:
    """The same as tables of Markdown, one for each section."""
    lines: list[str] = []
    section = ""
    for entry in (standing(target, kept) for target in targets):
        target = entry.target
        if target.section != section:
            section = target.section
            lines += ["", f"### {section}", ""]
            lines += ["| figure | bound | measured | on | |", "|---|---:|---:|---|---|"]
        unit = "" if target.unit == "ratio" else f" {target.unit}"
        value = "" if entry.value is None else f"{number(entry.value)}{unit}"
        verdict = "**misses**" if entry.verdict == "misses" else entry.verdict
        lines.append(
            f"| {target.figure} | {target.bound}{unit} | {value} | {entry.date} | {verdict} |"
        )
    return "\n".join(lines[1:]) + "\n"


def write_page(path: Path, tables: str) -> None:
    """Puts the tables into a page, in place of those between its two marks.

    Raises:
        TargetsError: the page has no such marks.
    """
    before, begin, rest = path.read_text().partition(PAGE_BEGIN)
    _, end, after = rest.partition(PAGE_END)
    if not begin or not end:
        raise TargetsError(f"{path} has no place for the figures")
    path.write_text(f"{before}{begin}\n{tables}\n{end}{after}")


def number(value: float) -> str:
    """A number with as many digits as it deserves."""
    if value == round(value):
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"
