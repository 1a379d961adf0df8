from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

EDGE = Path(__file__).resolve().parents[2] / "edge"
STORE = EDGE / "store"

STATEMENT = re.compile(
    r"\b(?:SELECT\s.+\sFROM|INSERT\s+(?:OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+(?:TABLE|INDEX))\b",
    re.DOTALL,
)
TOUCHED = re.compile(r"\b(?:FROM|INTO|JOIN|UPDATE|TABLE)\s+([a-z_][a-z0-9_]*)\b")
MADE = re.compile(r"\bCREATE\s+(?:VIRTUAL\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?([a-z_][a-z0-9_]*)")


def texts(path: Path) -> list[str]:
    """Every string of a module but its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    words = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words
    ]


def tables() -> dict[str, str]:
    """Every table with the module that makes it."""
    return {
        name: path.stem for path in sorted(STORE.rglob("*.py")) for text in texts(path) for name in MADE.findall(text)
    }


def test_sql_is_written_in_the_store_only() -> None:
    found = {
        str(path.relative_to(EDGE)): text
        for path in sorted(EDGE.rglob("*.py"))
        if STORE not in path.parents
        for text in texts(path)
        if STATEMENT.search(text)
    }
    assert found == {}


def test_the_search_for_sql_would_find_some() -> None:
    assert any(STATEMENT.search(text) for path in STORE.rglob("*.py") for text in texts(path))


@pytest.mark.parametrize("path", sorted(STORE.rglob("*.py")), ids=lambda path: path.stem)
def test_a_module_names_its_own_tables_only(path: Path) -> None:
    owners = tables()
    foreign = {
        name: owners[name]
        for text in texts(path)
        for name in TOUCHED.findall(text)
        if owners.get(name, path.stem) != path.stem
    }
    assert foreign == {}
