"""The examples of the documentation run as they stand."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import dwell

PACKAGE = Path(dwell.__file__).parent
MODULES = [
    module.name
    for module in pkgutil.walk_packages([str(PACKAGE)], "dwell.")
    # Those of the memcached client need a server.
    if module.name
    not in {"dwell.__main__", "dwell._native", "dwell.memcache", "dwell._memcache_aio"}
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.pyi")), ids=lambda path: path.name)
def test_examples_of_stubs(path):
    documented = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
    for node in ast.walk(ast.parse(path.read_text())):
        text = ast.get_docstring(node) if isinstance(node, documented) else None
        if text and ">>>" in text:
            names = {name: getattr(dwell, name) for name in dwell.__all__}
            name = getattr(node, "name", path.name)
            examples = doctest.DocTestParser().get_doctest(text, names, name, str(path), 0)
            assert doctest.DocTestRunner().run(examples).failed == 0
