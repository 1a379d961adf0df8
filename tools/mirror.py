"""Every module that does something has its test file: `edge/a/b.py` is tested by `tests/a/test_b.py`.

A module of a package may also be tested by the package's file (`tests/a/test_pkg.py` for `edge/a/pkg/b.py`). Records
and ports have nothing to run and need none. In folders that mirror one of `edge/`, a test file without a module is a
leftover.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FREE = {"contract", "node", "interop", "fault", "seeds", "plugins", "support", "system", "tools", "security"}
"""Folders of tests that walk more than one module."""


def main() -> int:
    """Print what is out of step; 1 if anything is."""
    told = [*_untested(), *_left_over()]
    for line in told:
        print(line)
    return 1 if told else 0


def _untested() -> list[str]:
    told = []
    for path in sorted((ROOT / "edge").rglob("*.py")):
        if path.name == "__init__.py" or not _does_something(path):
            continue
        place = path.relative_to(ROOT / "edge")
        own = ROOT / "tests" / place.parent / f"test_{place.name}"
        package = ROOT / "tests" / place.parent.parent / f"test_{place.parent.name}.py"
        if not own.exists() and not (len(place.parts) > 1 and package.exists()):
            told.append(f"edge/{place}: no {own.relative_to(ROOT)}")
    return told


def _left_over() -> list[str]:
    told = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT / "tests")
        module = ROOT / "edge" / place.parent / place.name.removeprefix("test_")
        if place.parts[0] not in FREE and not module.exists() and not module.with_suffix("").is_dir():
            told.append(f"tests/{place}: no {module.relative_to(ROOT)}")
    return told


def _does_something(path: Path) -> bool:
    """Whether a module has a function with a body of more than its docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [line for line in node.body if not _is_words(line)]
            if body:
                return True
    return False


def _is_words(line: ast.stmt) -> bool:
    """A docstring or `...`."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


if __name__ == "__main__":
    sys.exit(main())
