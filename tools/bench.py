"""Runs the measures of tools/bench.d, each beside something that does the same work, and prints one table.

A measure is a file with `run() -> list[dict]`; each dict has `what`, `value`, `unit` and, where there is something to
compare with, `beside` (its value) and `beside_what`; `budget` is the design's words, `ok` whether it holds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "bench.d"
ROOT = FOLDER.parent.parent
sys.path.insert(0, str(ROOT))

Row = dict[str, Any]


def main() -> int:
    """Measure and print; 1 when a measure could not be taken."""
    names = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
    options = argparse.ArgumentParser(description="Measure the node beside what does the same work.")
    options.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    found: dict[str, Any] = {}
    broken = False
    for name in asked.only or names:
        sys.stderr.write(f"[bench] {name} …\n")
        began = time.monotonic()
        try:
            rows = _load(name).run()
        except Exception as error:  # a measure is a program of its own: the others go on
            rows, broken = [{"what": "FAILED", "error": repr(error)}], True
        found[name] = {"seconds": round(time.monotonic() - began, 1), "rows": rows}
    if asked.json:
        print(json.dumps({"machine": _machine(), "measures": found}, indent=2))
    else:
        _print(found)
    return 1 if broken else 0


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", FOLDER / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _machine() -> str:
    return f"Python {platform.python_version()}, {platform.machine()}, {platform.system()} {platform.release()}"


def _print(found: dict[str, Any]) -> None:
    print(_machine())
    for name, measure in found.items():
        print(f"\n{name} ({measure['seconds']} s)")
        for row in measure["rows"]:
            if "error" in row:
                print(f"  FAILED: {row['error']}")
                continue
            line = f"  {row['what']:52} {_number(row['value']):>10} {row['unit']:8}"
            if row.get("beside"):
                ratio = row["value"] / row["beside"]
                line += f" {ratio:6.2f} × {row.get('beside_what', '')} ({_number(row['beside'])})"
            if row.get("budget"):
                line += f"  [{'ok' if row.get('ok', True) else 'OVER'}: {row['budget']}]"
            print(line)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
