"""The plot of CPU time per request: horizontal bars in SVG, drawn from a result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from harness.results import Result

# What is drawn, and the table that has it for requests that come on a connection each.
FIGURE = "us_per_request"
AB_TABLE = "ab"

WIDTH = 920
MARGIN = 32
LABEL_WIDTH = 310
VALUE_WIDTH = 70
BAR_HEIGHT = 20
ROW_HEIGHT = 30
GROUP_HEAD_HEIGHT = 44
TITLE_HEIGHT = 74
FOOT_HEIGHT = 40
BAR_LEFT = MARGIN + LABEL_WIDTH
BAR_WIDTH_MAX = WIDTH - BAR_LEFT - VALUE_WIDTH - MARGIN

STYLE = """
    .paper { fill: #ffffff; }
    text { font-family: system-ui, "DejaVu Sans", "Helvetica Neue", Arial, sans-serif;
           font-size: 13px; fill: #57606a; }
    .title { font-size: 19px; font-weight: 600; fill: #1f2328; }
    .group { font-size: 13px; font-weight: 600; fill: #1f2328; }
    .ours { fill: #1f2328; font-weight: 600; }
    .value { font-variant-numeric: tabular-nums; }
    .small { font-size: 12px; fill: #6e7781; }
    .bar { fill: #c3ccd6; }
    .bar-ours { fill: #0b7a75; }
    .bar-floor { fill: #eef1f4; stroke: #8c959f; stroke-width: 1; }
    .rule { stroke: #d8dee4; stroke-width: 1; }
"""


@dataclass(frozen=True)
class Bar:
    """One bar: its label, value in microseconds, and style."""

    label: str
    value: float
    kind: str


@dataclass(frozen=True)
class BarGroup:
    """Bars under one heading."""

    title: str
    bars: tuple[Bar, ...]


def bar_groups(result: Result) -> list[BarGroup]:
    """The bars of a result: the rows of its load tables that are plotted and were measured."""
    groups = []
    for part in result["tables"]:
        bars = tuple(
            Bar(row["label"], row["median"][FIGURE], _kind(row))
            for row in part["rows"]
            if part["name"] != AB_TABLE and row["plotted"] and FIGURE in row["median"]
        )
        if bars:
            groups.append(BarGroup(part["title"], bars))
    return groups


def _kind(row: dict[str, Any]) -> str:
    if row["name"] == "floor":
        return "bar-floor"
    return "bar-ours" if row["ours"] else "bar"


def svg(groups: Sequence[BarGroup], source: str) -> str:
    """The whole picture; `source` is its small print."""
    height = TITLE_HEIGHT + FOOT_HEIGHT
    height += sum(GROUP_HEAD_HEIGHT + ROW_HEIGHT * len(group.bars) for group in groups)
    greatest = max(bar.value for group in groups for bar in group.bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="CPU time per request">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="10"/>',
        f'<text class="title" x="{MARGIN}" y="40">CPU time of the server per request</text>',
        f'<text class="small" x="{MARGIN}" y="61">microseconds, user and system; shorter is '
        "better; 100 keep-alive connections, 13-byte body</text>",
    ]
    top = TITLE_HEIGHT
    for group in groups:
        lines += _group(group, top, greatest)
        top += GROUP_HEAD_HEIGHT + ROW_HEIGHT * len(group.bars)
    lines.append(f'<text class="small" x="{MARGIN}" y="{top + 26}">{escape(source)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _group(group: BarGroup, top: float, greatest: float) -> Iterator[str]:
    yield f'<text class="group" x="{MARGIN}" y="{top + 26}">{escape(group.title)}</text>'
    rule = top + 36
    yield f'<line class="rule" x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{rule}" y2="{rule}"/>'
    for index, bar in enumerate(group.bars):
        yield from _bar(bar, top + GROUP_HEAD_HEIGHT + index * ROW_HEIGHT, greatest)


def _bar(bar: Bar, top: float, greatest: float) -> Iterator[str]:
    width = max(2.0, bar.value / greatest * BAR_WIDTH_MAX)
    middle = top + ROW_HEIGHT / 2
    text_class = "ours" if bar.kind == "bar-ours" else "peer"
    yield (
        f'<text class="{text_class}" x="{MARGIN}" y="{middle + 4.5:g}">{escape(bar.label)}</text>'
    )
    yield (
        f'<rect class="{bar.kind}" x="{BAR_LEFT}" y="{middle - BAR_HEIGHT / 2:g}" '
        f'width="{width:.1f}" height="{BAR_HEIGHT}" rx="3"/>'
    )
    yield (
        f'<text class="value {text_class}" x="{BAR_LEFT + width + 8:.1f}" '
        f'y="{middle + 4.5:g}">{bar.value:.1f}</text>'
    )
