"""The documentation is true: what its `console` blocks show is run, and what it names exists.

A document is one terminal. Lines that begin with `$ ` are commands; the lines below them are what
is seen, where `...` stands for anything. A command that starts a server goes on running until the
same program is started anew, or the document ends. The addresses in the documents are those of a
fresh installation; here each becomes a free one. A block of `toml`, `python`, `html` or `js` whose
first line is a comment with a file name is that file.
"""

import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import textwrap

import pytest

from support import ports
from support.dwell import BINARY, ROOT
from support.process import Process

BOOK = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
LINKED = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", *BOOK]
RECIPES = [page for page in BOOK if re.fullmatch(r"docs/recipes/[a-z-]+\.md", page)]
# The pages of the packages have tests of their own.
PACKAGES = {f"docs/{name}.md" for name in ("go", "python", "wsgi-asgi")}
PAGES = [
    page
    for page in LINKED
    if page not in PACKAGES and re.search("^```(?:console|toml)$", (ROOT / page).read_text(), re.M)
]

LISTEN, SECURE, ADMIN, STORE = "8080", "8443", "9090", "11211"
MEMCACHED, APP, FILES = "11311", "14002", "3000"
PORT = re.compile(rf"\b(?:{LISTEN}|{SECURE}|{ADMIN}|{STORE}|{MEMCACHED}|{APP}|{FILES})\b")

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"(?:# |// |<!-- )(\w+\.(?:py|mjs|html))(?: -->)?\n")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
SECTION = re.compile(r"\]\(([^)#:]*)#([^)]*)\)")
NAMED = re.compile(r"`((?:crates|bench|bindings|docs|examples|fuzz|scripts|tests)/[\w./-]+)`")
# Made by `make bench`, so a fresh checkout may lack it.
MADE = {"bench/results/latest.md"}


@dataclasses.dataclass
class Block:
    """A fenced block with the line it begins at."""

    line: int
    kind: str
    text: str

    def parts(self):
        """The commands of a console block, and what they are said to show, all together."""
        commands, shown = [], []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append(line.removeprefix("$ "))
            elif line.startswith("> ") and not shown:
                commands[-1] += "\n" + line.removeprefix("> ")
            else:
                shown.append(line)
        return commands, shown


def blocks(page):
    text = (ROOT / page).read_text()
    for match in FENCE.finditer(text):
        yield Block(text.count("\n", 0, match.start()) + 1, match[1], match[2])


class Terminal:
    """A shell in a folder of its own, and the servers started from it."""

    def __init__(self, folder, cleanup):
        self.folder = folder
        self.cleanup = cleanup
        self.servers = {}
        self.ports = {}
        (folder / "examples").symlink_to(ROOT / "examples")
        (folder / "node_modules").mkdir()
        (folder / "node_modules/dwell-client").symlink_to(ROOT / "clients/javascript")
        path = [str(folder), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
        # As the program, but `dwell mc` asks the store that stands for the one at 11211, and the
        # limit on open files of this machine is no matter of `dwell check`.
        store = ports.text(self.address(STORE))
        program = folder / "dwell"
        program.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = mc ] && shift && exec {BINARY} mc --server {store} "$@"\n'
            '[ "$1" = check ] && export DWELL_LIMITS_CONNECTIONS_MAX=100\n'
            f'exec {BINARY} "$@"\n'
        )
        program.chmod(0o755)
        # To a person's terminal curl writes no progress, so it writes none here.
        (folder / ".curlrc").write_text("silent\nshow-error\n")
        self.shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env={**os.environ, "PATH": os.pathsep.join(path), "CURL_HOME": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        cleanup.callback(self.shell.wait, 10)
        cleanup.callback(self.shell.stdin.close)

    def address(self, port):
        """The free address that stands for a port of the documents."""
        if port not in self.ports:
            self.ports[port] = ports.free_address()
        return self.ports[port]

    def here(self, text):
        """The text with the ports of this run."""
        return PORT.sub(lambda match: str(self.address(match[0])[1]), text)

    def documented(self, text):
        """The text with the ports of the documents."""
        for port, address in self.ports.items():
            text = re.sub(rf"\b{address[1]}\b", port, text)
        return text

    def run(self, commands):
        """Runs commands to their end, those in the background too; returns all they wrote."""
        end = "-- end of block --"
        lines = [self.here(command) for command in commands]
        self.shell.stdin.write("\n".join([*lines, "wait", f"printf '\\n{end}\\n'"]) + "\n")
        self.shell.stdin.flush()
        seen = []
        for line in self.shell.stdout:
            if line == f"{end}\n":
                return self.documented("".join(seen)).replace("\r", "").strip("\n")
            seen.append(line)
        raise AssertionError("the shell ended:\n" + "".join(seen))

    def start(self, command):
        """Starts a server if the command is one; whether it is."""
        words = shlex.split(command)
        if words[:2] == ["make", "run"]:
            # The same with fewer clients: the machine is shared with other tests.
            demo = [BINARY, "demo", "--clients", "20", *self._addresses([])]
            self._start("dwell", demo, LISTEN, STORE, ADMIN)
        elif words[:2] == ["dwell", "serve"]:
            words = [self.folder / word if word.endswith(".toml") else word for word in words]
            store = [] if "--memcached" in words else [STORE]
            added = self._addresses(words)
            self._start("dwell", [BINARY, *words[1:], *added], LISTEN, ADMIN, *store)
        elif words[0] == "memcached":
            user = ["-u", "root"] if os.geteuid() == 0 else []
            self._start("memcached", [*words, *user], MEMCACHED)
        elif words[:2] == ["python3", "examples/app.py"]:
            script = [sys.executable, ROOT / "examples/app.py", *words[2:]]
            self._start("app", script, APP)
        elif re.match(r"python3 (-m http\.server|\w+\.py)\b", command):
            self._start("files", [sys.executable, *words[1:]], FILES)
        else:
            return False
        return True

    def _addresses(self, words):
        flags = [("--listen", LISTEN), ("--admin", ADMIN)]
        if "--memcached" not in words:
            flags.append(("--store", STORE))
        missing = [(flag, port) for flag, port in flags if flag not in words]
        return [part for flag, port in missing for part in (flag, ports.text(self.address(port)))]

    def _start(self, name, arguments, *listening):
        if name in self.servers:
            self.servers[name].stop()
        arguments = [self.here(str(argument)) for argument in arguments]
        server = Process(arguments, self.folder / f"{name}.log", self.folder)
        self.cleanup.callback(server.stop)
        self.servers[name] = server
        server.start_listening(*map(self.address, listening))


def matches(shown, seen):
    """Whether `seen` is what the lines `shown` say."""
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*"
        else:
            pattern += re.escape(line.rstrip()).replace(r"\.\.\.", "[^\n]*") + r"[ ]*\n"
    return re.fullmatch(pattern, seen + "\n" if seen else "") is not None


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_one_sees(page, tmp_path, cleanup):
    if page == "docs/javascript.md" and shutil.which("node") is None:
        pytest.skip("node is not installed")
    terminal = Terminal(tmp_path, cleanup)
    for block in blocks(page):
        place = f"{page}:{block.line}"
        if block.kind == "toml":
            name = re.match(r"# (\S+\.toml)\n", block.text)
            file = tmp_path / (name[1] if name else "unnamed.toml")
            file.write_text(terminal.here(block.text))
            checked = subprocess.run(
                [BINARY, "check", file],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert checked.returncode == 0, f"{place}\n{checked.stderr}"
        elif name := FILE_NAME.match(block.text):
            (tmp_path / name[1]).write_text(terminal.here(block.text))
        elif block.kind == "console":
            commands, shown = block.parts()
            started = [terminal.start(command) for command in commands]
            assert len(set(started)) == 1, f"{place}: servers have a block of their own"
            if not any(started):
                seen = terminal.run(commands)
                if not matches(shown, seen):
                    both = textwrap.indent("\n".join([*shown, "-- but --", seen]), "    ")
                    pytest.fail(f"{place} shows\n{both}", pytrace=False)


@pytest.mark.parametrize("page", LINKED)
def test_what_a_page_names_exists(page):
    text = (ROOT / page).read_text()
    links = [os.path.normpath(pathlib.Path(page).parent / link) for link in LINK.findall(text)]
    named = [name.rstrip("./") for name in NAMED.findall(text)]
    missing = [name for name in (*links, *named) if not (ROOT / name).exists()]
    assert set(missing) <= MADE


def sections(page):
    """The names by which links find the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", LINKED)
def test_a_link_to_a_heading_finds_it(page):
    place = ROOT / page
    links = SECTION.findall(FENCE.sub("", place.read_text()))
    targets = [((place.parent / link) if link else place, name) for link, name in links]
    lost = [f"{path.name}#{name}" for path, name in targets if name not in sections(path)]
    assert lost == []


def test_the_book_has_every_page():
    summary = (ROOT / "docs/SUMMARY.md").read_text()
    assert sorted({f"docs/{link}" for link in LINK.findall(summary)} | {"docs/SUMMARY.md"}) == BOOK


def test_the_summary_names_each_page_by_its_title():
    entries = re.findall(r"\[(.*)\]\((.*)\)", (ROOT / "docs/SUMMARY.md").read_text())
    titles = [(ROOT / "docs" / page).read_text().split("\n")[0] for _, page in entries]
    assert [f"# {name}" for name, _ in entries] == titles


@pytest.mark.parametrize("page", RECIPES)
def test_a_recipe_has_its_parts(page):
    text = (ROOT / page).read_text()
    parts = ["**You need** ", "## Check it works", "## Common mistakes"]
    assert [part for part in parts if f"\n{part}" not in text] == []


def test_the_architecture_is_a_short_read():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 300


@pytest.mark.parametrize(
    ("shown", "seen", "same"),
    [
        ([], "", True),
        ([], "x", False),
        (["a", "b"], "a\nb", True),
        (["a", "b"], "a\nc\nb", False),
        (["a", "...", "b"], "a\nc\nd\nb", True),
        (["a", "...", "b"], "a\nb", True),
        (["Date: ... GMT"], "Date: Sun, 06 Nov 1994 08:49:37 GMT", True),
        (["a."], "ab", False),
    ],
)
def test_an_ellipsis_stands_for_anything(shown, seen, same):
    assert matches(shown, seen) is same
