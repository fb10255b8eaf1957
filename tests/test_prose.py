"""The prose is plain English: words and openings of sentences that readers stumble over are absent.

The pages of the book, the files beside it, the help texts of the program, and the sources are read:
messages, descriptions of options and metrics, labels of the dashboard, and doc comments.
Code blocks, code in a line, quotes and the addresses of links are not prose. The program prints the
pages `docs/configuration.md` and `docs/metrics.md`, so their sentences are corrected in the source.
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


CRATES = ROOT / "crates"
# The sources of what is built for users. Their tests, and the crates for tests, print nothing.
SOURCES = [
    path
    for path in sorted(CRATES.rglob("*.rs"))
    if not {"tests", "testkit", "sim", "tidy", "target", "examples"}
    & set(path.relative_to(CRATES).parts)
    and path.name != "tests.rs"
]
LABELS = sorted(
    path
    for kind in ("html", "js")
    for path in CRATES.rglob(f"*.{kind}")
    if "target" not in path.parts
)
TESTS = re.compile(r"^#\[cfg\((?:all\(|any\()?test\b.*\]\nmod \w+ \{.*", re.M | re.S)
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)
STRING_OF_SCRIPT = re.compile(
    r"""\"((?:[^"\\\n]|\\.)*)\"|`((?:[^`\\]|\\.)*)`|'((?:[^'\\\n]|\\.)*)'"""
)
DOC = re.compile(r"^[ \t]*//[/!] ?(.*)$")

# Messages that still have such words, of crates beside the edge. None is added.
OLD_MESSAGES = {
    "scheme is none of http, https, ws, wss, tcp, tls, unix, http+unix",
    "distribution is none of {}: {}",
    "it is told of listeners",
    "memcached does not tell of changes now",
    "memcached tells of changes",
    "nobody waits for this answer any more",
    "too many handshakes are under way",
}


def messages(text):
    """The literals of a source that have more than one word."""
    lines = TESTS.sub("", text).splitlines()
    code = "\n".join(re.sub(r"(^|\s)//.*", "", line) for line in lines)
    for literal in LITERAL.findall(code):
        message = re.sub(r"\\[nrt\"]", " ", re.sub(r"\\\n\s*", "", literal))
        if " " in message.strip():
            yield message


def comments(text):
    """The doc comments of a source, each as a whole."""
    block = []
    for line in [*text.splitlines(), ""]:
        if found := DOC.match(line):
            block.append(found[1])
        elif block:
            yield "\n".join(block)
            block = []


def labels(path):
    """The texts of a page or a script of the program."""
    text = path.read_text()
    if path.suffix == ".html":
        text = re.sub(r"<(script|style)\b.*?</\1>|<!--.*?-->", "\n\n", text, flags=re.S)
        return re.sub(r"<[^>]*>", "\n\n", text)
    return "\n\n".join("".join(found) for found in STRING_OF_SCRIPT.findall(text))


def test_the_messages_of_a_source_are_in_plain_english():
    found, count = [], 0
    for path in SOURCES:
        for message in messages(path.read_text()):
            count += 1
            if message not in OLD_MESSAGES:
                found += [f"{path.relative_to(ROOT)}: {fault}" for fault in faults(message)]
    assert count > 1000, "the sources are read"
    assert not found, "\n".join(found)


def test_the_labels_of_a_source_are_in_plain_english():
    assert len(LABELS) >= 4
    found = [f"{path}: {fault}" for path in LABELS for fault in faults(labels(path))]
    assert not found, "\n".join(found)


def test_the_comments_of_a_source_are_in_plain_english():
    found, count = [], 0
    for path in SOURCES:
        for comment in comments(path.read_text()):
            count += 1
            found += [f"{path}: {fault}" for fault in faults(comment)]
    assert count > 1000, "the sources are read"
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('warn!("a line");', ["a line"]),
        ('"a \\\n    line" "word" // "a comment"\n', ["a line"]),
        ('"a \\"quoted\\" word"', ["a  quoted  word"]),
        ('#[cfg(test)]\nmod tests {\n    "a test"\n}\n', []),
        ('// "a comment"\n', []),
    ],
)
def test_the_messages_of_a_source_are_found(text, found):
    assert list(messages(text)) == found


def test_the_comments_of_a_source_are_found():
    text = "//! A\n//! page.\n\n/// One.\nfn one() {} // no\n    /// Two.\n"
    assert list(comments(text)) == ["A\npage.", "One.", "Two."]


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
