"""The files that a recipe shows.

A block of code is a file if its first line is a comment with the name of the file.
"""

import re

from support.dwell import ROOT

NODE_MODULES = ROOT / "tests/clients/node/node_modules"
JAVASCRIPT_CLIENT = ROOT / "clients/javascript"

_FILE = re.compile(r"^```\w+\n(?:# |// )([\w./-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files(page):
    """The text of each file of a page, by its name, without the comment."""
    text = (ROOT / "docs/recipes" / page).read_text()
    return dict(_FILE.findall(text))


def write(page, folder, replaced):
    """Writes the files of a page into a folder, with other addresses than those of the page."""
    for name, text in files(page).items():
        for old, new in replaced.items():
            text = text.replace(old, new)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def install_node_modules(folder):
    """Lets programs in a folder import what the tests have from npm, and dwell.js."""
    modules = folder / "node_modules"
    modules.mkdir()
    for package in NODE_MODULES.iterdir():
        (modules / package.name).symlink_to(package)
    (modules / "dwell-client").symlink_to(JAVASCRIPT_CLIENT)
