"""Which lines of the user's documents have a passing test, and which have none."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.plugins.seeds import CACHE, checklist, shown  # noqa: E402  the repository itself is not installed


def main() -> int:
    """Print the open ids and the totals."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--run", action="store_true", help="run the tests first")
    options.add_argument("--totals", action="store_true", help="print only the totals")
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    if asked.run:
        subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=ROOT, check=False)
    cache = ROOT / CACHE
    if not cache.exists():
        sys.stderr.write("no test has run here yet: tools/seeds --run\n")
        return 1
    lines, done = checklist(), shown(json.loads(cache.read_text()))
    missing = [name for name in lines if name not in done]
    if asked.json:
        print(json.dumps({"shown": sorted(done), "missing": missing, "totals": _totals(lines, done)}, indent=2))
        return 0
    if not asked.totals:
        for name in missing:
            print(f"{name:8} {lines[name]}")
    print(f"{'document':9} {'lines':>6} {'shown':>6} {'open':>6}")
    for document, (count, passing) in _totals(lines, done).items():
        print(f"{document:9} {count:6} {passing:6} {count - passing:6}")
    return 0


def _totals(lines: Iterable[str], done: set[str]) -> dict[str, tuple[int, int]]:
    totals: dict[str, tuple[int, int]] = {}
    for name in lines:
        document = name.partition("-")[0]
        count, passing = totals.get(document, (0, 0))
        totals[document] = (count + 1, passing + (name in done))
    return {**totals, "all": (sum(one for one, _ in totals.values()), sum(one for _, one in totals.values()))}


if __name__ == "__main__":
    sys.exit(main())
