"""What is published: the source distribution and the metadata."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from importlib.metadata import files, metadata
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent
# One source distribution for all.
pytestmark = pytest.mark.xdist_group("sdist")

LICENCES = {"LICENSE-APACHE", "LICENSE-MIT"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "maturin", "sdist", "--out", str(folder)]
    subprocess.run(command, cwd=PACKAGE, check=True, timeout=100)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def test_licences_are_in_the_source_distribution(source: Path) -> None:
    for name in LICENCES:
        assert (source / name).read_text() == (PACKAGE / ".." / ".." / name).read_text()


def test_licences_are_in_the_wheel() -> None:
    assert set(metadata("dwell").get_all("License-File") or []) == LICENCES
    installed = {Path(path).name for path in files("dwell") or []}
    assert installed >= LICENCES


def test_the_source_distribution_can_be_built(source: Path) -> None:
    # It has fewer crates than the repository, so its lock file is another one.
    project = tomllib.loads((source / "pyproject.toml").read_text())
    assert "locked" not in project["tool"]["maturin"]
    command = ["cargo", "metadata", "--offline", "--format-version", "1", "--no-deps"]
    manifest = source / "bindings" / "python" / "Cargo.toml"
    environment = os.environ | {"CARGO_TARGET_DIR": str(source / "target")}
    subprocess.run(
        [*command, "--manifest-path", str(manifest)],
        check=True,
        timeout=100,
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def test_the_description_has_no_links_into_the_repository(source: Path) -> None:
    text = (source / "README.md").read_text()
    assert text.strip() in (source / "PKG-INFO").read_text()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert all(link.startswith("https://") for link in links)
