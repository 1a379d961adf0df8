"""Every module that does something is tested in the folder that mirrors its own: `edge/a/b.py` in `tests/a/`.

Best by a file of its name (`tests/a/test_b.py`); else by one of the package's name, or by any file of that folder that
imports it. Records and ports have nothing to run and need none. In folders that mirror one of `edge/`, a test file
whose name is no module of that folder must import one, itself or by the `conftest.py` beside it.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
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
        in_package = len(place.parts) > 1 and package.exists()
        if not own.exists() and not in_package and _name(path) not in _imported_in(own.parent):
            told.append(f"edge/{place}: no {own.relative_to(ROOT)}, and nothing beside it imports the module")
    return told


def _left_over() -> list[str]:
    told = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT / "tests")
        module = ROOT / "edge" / place.parent / place.name.removeprefix("test_")
        if place.parts[0] in FREE or module.exists() or module.with_suffix("").is_dir():
            continue
        package = ".".join(["edge", *place.parent.parts])
        beside = path.parent / "conftest.py"
        used = _imports(path) | (_imports(beside) if beside.exists() else frozenset())
        if not any(name.startswith(package) for name in used):
            told.append(f"tests/{place}: no {module.relative_to(ROOT)}, and it imports nothing of {package}")
    return told


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def _imported_in(folder: Path) -> frozenset[str]:
    """The modules that the test files of a folder import."""
    return frozenset(name for path in folder.glob("test_*.py") for name in _imports(path))


@cache
def _imports(path: Path) -> frozenset[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return frozenset(found)


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
