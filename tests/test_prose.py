"""The prose is plain English: words and openings of sentences that readers stumble over are absent.

The pages of the book, the files beside it and the help texts of the program are read. Code blocks,
code in a line, quotes and the addresses of links are not prose. The program prints the pages
`docs/configuration.md` and `docs/metrics.md`, so their sentences are corrected in the source.
"""

import dataclasses
import os
import re
import subprocess

import pytest

from support.dwell import BINARY, ROOT

BESIDE = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/README.md",
    "bindings/python/README.md",
    "clients/javascript/README.md",
    "conformance/README.md",
    "docs/openapi.yaml",
    *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("crates/*/README.md")),
    "tests/README.md",
]
BOOK = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
PAGES = [*BESIDE, *BOOK]

# What to write instead is behind each.
WORDS = {
    "anew": "again",
    "as ever": "as before, or nothing",
    "by itself|by themselves": "on its own, or nothing",
    "does not have there": "lacks",
    "gives? up|gave up": "stops, ends, drops",
    "is none|are none": "say what it is",
    r"looks?( \w+)? at|looked( \w+)? at|a look|(?:one|two|the) looks?": "reads, checks, sweeps",
    "newcomers?": "new clients",
    "news": "change",
    "nobody|whoever|whomever|whosoever": "no client, every client, you",
    "none of (?:it|its|them|that|those|these|this)": "nothing, not",
    "so long": "for the length of time, with its unit",
    r"tells?( \w+)? of|told( \w+)? of": "reports",
    "under way": "in progress",
}
BANNED = {re.compile(rf"\b(?:{words})\b", re.I): better for words, better in WORDS.items()}

# A sentence begins with what acts: Dwell, the client, the application, you.
OPENING = re.compile(
    r"(?:What|Where|Whether|Whose|Who|Whoever|Whatever|Of|One that|One which|Those that|Those who"
    r"|That which|Nobody|None of)\s+(?![^.?!]*\?)[\w/`\"(-]"
)

FENCE = re.compile(r"^ *```.*?^ *```[ ]*$", re.M | re.S)
QUOTED = re.compile(r"`[^`]*`|\"[^\"\n]{0,200}\"|“[^”]*”")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
# What divides a page into pieces of prose: empty lines, items, cells, headings.
PIECES = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+|\n?\|\s*|\n#+ |\A#+ ")
MARKS = re.compile(r"^(?:[#>*_-]+ *|\d+\. +|\[[ xX]\] +)+")
SENTENCES = re.compile(r"(?<=[.!?:])[\s*_]+(?=[A-Z])")


@dataclasses.dataclass
class Fault:
    """Words of a text that are not used, and the piece of the text that has them."""

    words: str
    place: str
    better: str

    def __str__(self):
        return f"{self.words!r} in {self.place!r}: {self.better}"


def faults(text):
    text = FENCE.sub("\n\n", text)
    text = LINK.sub(r"\1", QUOTED.sub("X", text))
    for piece in PIECES.split(text):
        plain = MARKS.sub("", " ".join(piece.split()))
        for words, better in BANNED.items():
            for match in words.finditer(plain):
                yield Fault(match[0], plain[max(0, match.start() - 40) : match.end() + 40], better)
        for sentence in SENTENCES.split(plain):
            if match := OPENING.match(sentence):
                yield Fault(match[0], sentence[:80], "begin with what acts")


def shown(found):
    return "\n".join(map(str, found))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_in_plain_english(page):
    found = list(faults((ROOT / page).read_text()))
    assert not found, shown(found)


def help_of(*command):
    # Wide enough that the text of an option stands behind its name.
    environment = {**os.environ, "COLUMNS": "100"}
    arguments = [BINARY, *command, "--help"]
    return subprocess.run(
        arguments, capture_output=True, text=True, check=True, env=environment
    ).stdout


def subcommands(text):
    section = re.search(r"^Commands:\n(.*?)\n\n", text, re.M | re.S)
    names = re.findall(r"^  ([\w-]+)", section[1], re.M) if section else []
    return [name for name in names if name != "help"]


def test_the_help_is_in_plain_english():
    texts, waiting = {}, [()]
    while waiting:
        command = waiting.pop()
        texts[command] = help_of(*command)
        waiting += [(*command, name) for name in subcommands(texts[command])]
    assert {("serve",), ("mc", "get")} <= set(texts)
    # Each line of an option begins with its name, two blanks before its text.
    found = [
        f"dwell {' '.join(command)}: {fault}"
        for command, text in texts.items()
        for fault in faults(re.sub(r"(?<=\S)  +|\n(?= {0,6}\S)", "\n\n", text))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dwell returns the value.", 0),
        ("The file is read anew.", 1),
        ("The file is read\nanew.", 1),
        ("- an item\n- Whoever asks, waits.", 2),
        ("It ends. What comes later waits.", 1),
        ("**Bold.** Where the key is gone, it waits.", 1),
        ("| a cell | One that waits |", 1),
        ("# What a poll gets", 1),
        ("A line.\n\n## What a poll gets\n\nIt gets the value.", 1),
        ("A line:\n\n- **What it gets** is the value.\n", 1),
        ("A line:\n\n1. What it gets.\n", 1),
        ("- [ ] Who stops it waits.", 1),
        ("- [x] **Who stops it** waits.", 1),
        ("What is it?", 0),
        ('`anew` and "no news" are quotes.', 0),
        ("```\nanew\n```\n", 0),
        ("[no news](page.md#news)", 1),
        ("[a change](page.md#no-news)", 0),
        ("One of them, and the others.", 0),
    ],
)
def test_the_words_are_found(text, count):
    assert len(list(faults(text))) == count
