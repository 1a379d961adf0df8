"""Pytest plugin: which lines of the user's documents the tests show (`@pytest.mark.seed("S0-027")`).

The outcome of every marked test is kept in pytest's cache, over partial runs too; `tools/seeds` reads it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ".pytest_cache/v/aun-edge/seeds"

Outcomes = dict[str, dict[str, object]]
"""Test id → {"ids": […], "passed": bool}."""


def checklist() -> dict[str, str]:
    """Every line of the checklist by its id, in its order."""
    text = (ROOT / "tests" / "seeds" / "checklist.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^- ((?:C|S\d)-\d+) (.*)$", text, re.MULTILINE))


def shown(outcomes: Outcomes) -> set[str]:
    """The ids with a passing test, none of whose tests fails."""
    passed: set[str] = set()
    failed: set[str] = set()
    for outcome in outcomes.values():
        ids = {str(name) for name in outcome["ids"]}  # type: ignore[attr-defined]
        (passed if outcome["passed"] else failed).update(ids)
    return passed - failed


class Collector:
    """Hears about every test of a session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._marked: dict[str, list[str]] = {}
        self._bad: set[str] = set()
        self._ran: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note the ids; one that is not in the checklist is a mistake in the test."""
        known = checklist()
        for item in items:
            ids = [str(name) for mark in item.iter_markers("seed") for name in mark.args]
            unknown = [name for name in ids if name not in known]
            if unknown:
                raise pytest.UsageError(f"{item.nodeid}: not in tests/seeds/checklist.md: {', '.join(unknown)}")
            if ids:
                self._marked[item.nodeid] = ids

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test passes when none of its phases fails and its call was not skipped."""
        if report.nodeid in self._marked:
            if report.when == "call":
                self._ran.add(report.nodeid)
            if not report.passed:
                self._bad.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Keep what was learned; tests whose file is gone are forgotten."""
        path = self._config.rootpath / CACHE
        before: Outcomes = json.loads(path.read_text()) if path.exists() else {}
        kept = {name: one for name, one in before.items() if (self._config.rootpath / name.partition("::")[0]).exists()}
        for name in self._ran | self._bad:
            kept[name] = {"ids": self._marked[name], "passed": name not in self._bad}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept, indent=1, sort_keys=True))


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    config.pluginmanager.register(Collector(config), "aun-edge-seeds")
