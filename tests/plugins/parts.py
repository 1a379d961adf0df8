"""Pytest plugin: how many seconds each part took, before pytest's own last line; too long is a failure in CI.

`AUN_EDGE_PARTS` names a file with the parts before pytest (name, tab, seconds), `CI_STARTED` when it all began.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path

import pytest

WARN_S, FAIL_S = 30 * 60, 40 * 60


class Parts:
    """Adds up seconds by folder of tests."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._started = time.time()
        self._words = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each phase of each test."""
        folder = "/".join(report.nodeid.split("::")[0].split("/")[:2])
        self._seconds[folder] += report.duration

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge the whole time."""
        total = time.time() - float(os.environ.get("CI_STARTED", self._started))
        if "CI_STARTED" not in os.environ:
            return
        if total > FAIL_S:
            self._words = f"FAILED: {total / 60:.1f} minutes, more than {FAIL_S // 60}"
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        elif total > WARN_S:
            self._words = f"WARNING: {total / 60:.1f} minutes, more than {WARN_S // 60}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table."""
        path = Path(os.environ.get("AUN_EDGE_PARTS", "/nonexistent"))
        if not path.exists():
            return
        before = [line.split("\t") for line in path.read_text().splitlines()]
        terminalreporter.section("seconds per part")
        for name, seconds in [*before, *sorted(self._seconds.items())]:
            terminalreporter.write_line(f"{float(seconds):9.1f}  {name}")
        if self._words:
            terminalreporter.write_line(self._words, red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    config.pluginmanager.register(Parts(), "aun-edge-parts")
