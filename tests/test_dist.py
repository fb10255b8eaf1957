"""The scripts that make the artefacts of a release, as far as that is quick: they are not run.

`make test-dist` installs and runs the artefacts themselves.
"""

import ast
import os
import re
import subprocess
import tomllib

import pytest

from support.dwell import ROOT

DIST = ROOT / "dist"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
SCRIPTS = sorted(
    path
    for path in DIST.rglob("*")
    if path.is_file() and (path.suffix in ("", ".sh", ".py")) and path.name != "artefacts"
)
PAGES = ("install", "containers", "kubernetes")
INSTALL = "".join((ROOT / "docs" / f"{page}.md").read_text() for page in PAGES)
# Each line: the name of a file, and the script that makes it.
ARTEFACTS = dict(
    line.replace("VERSION", VERSION).split()
    for line in (DIST / "artefacts").read_text().splitlines()
    if not line.startswith("#")
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(DIST)))
def test_every_script_can_be_read(path):
    text = path.read_text()
    first = text.splitlines()[0]
    if "python" in first or path.suffix == ".py":
        ast.parse(text)
        return
    shell = "sh" if first == "#!/bin/sh" else "bash"
    subprocess.run([shell, "-n", str(path)], check=True)
    # Without `set -e` a step that failed would be followed by the next one.
    assert "set -e" in text or '/environment"' in text, path
    if path.name != "environment" and path.suffix != ".sh":
        assert os.access(path, os.X_OK), f"{path} cannot be started"


def test_the_page_names_every_artefact_and_no_other_file():
    named = set(
        re.findall(
            rf"\bdwell(?:-client|-c|-go|-crates)?[_-]{re.escape(VERSION)}[\w.-]*\.[a-z]\w*"
            r"(?:\.zst|\.gz)?",
            INSTALL,
        )
    )
    assert named == set(ARTEFACTS)


def test_every_artefact_has_a_script_a_test_and_a_place_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    listed = re.search(r"^ARTEFACTS := (.*)$", makefile, re.MULTILINE)[1].split()
    assert set(listed) == set(ARTEFACTS.values())
    assert listed[0] == "program"
    for script in listed:
        assert os.access(DIST / script, os.X_OK), script
        assert os.access(DIST / "tests" / script, os.X_OK), script


def test_the_commands_of_the_page_are_run():
    blocks = re.findall(r"^## (.+)\n(?:(?!^## ).*\n)*?```sh\n", INSTALL, re.MULTILINE)
    assert blocks, "no commands"
    tests = "".join(path.read_text() for path in (DIST / "tests").iterdir() if path.is_file())
    assert [heading for heading in blocks if f"page '{heading}'" not in tests] == []
    assert INSTALL.count("```sh\n") == len(blocks), "two blocks under a heading: one is not run"


def test_the_chart_has_the_version_of_the_project():
    chart = (DIST / "chart.d" / "Chart.yaml").read_text()
    assert re.findall(r"^(?:appV|v)ersion: (.*)$", chart, re.MULTILINE) == [VERSION, VERSION]


def test_the_variables_of_the_chart_are_options():
    options = tomllib.loads((ROOT / "docs" / "dwell.example.toml").read_text())
    known = {
        f"DWELL_{section}_{option}".upper()
        for section, table in options.items()
        if isinstance(table, dict)
        for option in table
    }
    named = set()
    for path in (DIST / "chart.d" / "templates").iterdir():
        text = path.read_text()
        named |= set(re.findall(r"\bDWELL_[A-Z_]+[A-Z]\b", text))
        for group in re.findall(r"\bDWELL_\(([A-Z_|]+)\)", text):
            named |= {f"DWELL_{name}" for name in group.split("|")}
    assert len(named) > 4
    assert named - known == set()
