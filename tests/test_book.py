"""The links of the book: `scripts/book-links` lets them work where `make book` puts the pages."""

import json
import os
import re
import subprocess
import sys
import urllib.parse

import pytest

from support.dwell import ROOT

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
FENCE = re.compile(r"^ *```.*?^ *```[ ]*$", re.MULTILINE | re.DOTALL)
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def in_book(pages, repository=None, items="items"):
    """The texts of pages, by their paths, as mdbook gets them from the script."""
    settings = {"repository": repository} if repository else {}
    context = {"config": {"preprocessor": {"book-links": settings}}, "renderer": "html"}
    chapters = [
        {"Chapter": {"content": text, "source_path": path, "path": path, "sub_items": []}}
        for path, text in pages.items()
    ]
    # A part of the book has a title, and the chapters below a chapter.
    first, *others = chapters
    first["Chapter"]["sub_items"] = others
    book = {items: [{"PartTitle": "Reference"}, "Separator", first]}
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/book-links"],
        input=json.dumps([context, book]),
        capture_output=True,
        text=True,
        check=True,
    )
    *_, first = json.loads(done.stdout)[items]
    found = [first, *first["Chapter"]["sub_items"]]
    return {item["Chapter"]["path"]: item["Chapter"]["content"] for item in found}


@pytest.fixture(scope="module")
def book():
    return in_book({page: (DOCS / page).read_text() for page in PAGES})


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(book, page):
    # mdbook names the page of a folder "index".
    names = {re.sub(r"(^|/)README\.md$", r"\1index.md", page) for page in PAGES}
    lost = []
    for link in LINK.findall(FENCE.sub("", book[page])):
        path = os.path.normpath(os.path.join(os.path.dirname(page), urllib.parse.unquote(link)))
        if path.startswith("../"):
            # Not a page of the book, so mdbook must not take it for one.
            if ".md" in link or not (DOCS / path).exists():
                lost.append(link)
        elif path not in names and not ((DOCS / path).is_file() and ".md" not in link):
            lost.append(link)
    assert set(lost) <= {"../bench/results/latest%2Emd"}, "made by `make bench`, that one"


@pytest.mark.parametrize("items", ["items", "sections"])
@pytest.mark.parametrize(
    ("page", "before", "after"),
    [
        ("a.md", "[b](b.md#c)", "[b](b.md#c)"),
        ("a.md", "[all](recipes/README.md)", "[all](recipes/index.md)"),
        ("recipes/a.md", "[all](README.md)", "[all](index.md)"),
        ("a.md", "[read](../README.md#try-it)", "[read](../README%2Emd#try-it)"),
        ("recipes/a.md", "[read](../../README.md)", "[read](../../README%2Emd)"),
        ("recipes/a.md", "[up](../b.md)", "[up](../b.md)"),
        ("a.md", "[app](../examples/app.py)", "[app](../examples/app.py)"),
        ("a.md", "[far](https://example.org/README.md)", "[far](https://example.org/README.md)"),
        ("a.md", "```\n[b](../README.md)\n```\n", "```\n[b](../README.md)\n```\n"),
    ],
)
def test_a_link(page, before, after, items):
    assert in_book({page: before}, items=items)[page] == after


def test_a_book_apart_from_the_repository_links_to_its_address():
    pages = {
        "a.md": "[read](../README.md#try-it)",
        "b/c.md": "[app](../../examples/app.py) [a](../a.md)",
    }
    assert in_book(pages, "https://example.org/dwell/blob/main/") == {
        "a.md": "[read](https://example.org/dwell/blob/main/README.md#try-it)",
        "b/c.md": "[app](https://example.org/dwell/blob/main/examples/app.py) [a](../a.md)",
    }
