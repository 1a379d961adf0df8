"""Pytest plugin: `@pytest.mark.needs("mosquitto_pub")` names a program, or `peer:fastaun` a peer, that a test needs.

Where it is missing the test is reported as NOT RUN; with CI=true that is a failure. What a test finds out only when it
tries (a machine that lets nobody mount) it says itself, by `pytest.skip("NOT RUN: …")`; no failure, as CI can do
nothing about it, but each such test is named in the summary.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path

import pytest


def peer(name: str) -> Path | None:
    """The environment of a published program (`tools/peers` makes them): a virtual one, or one with `node_modules`.

    None when there is none."""
    place = Path(os.environ.get("AUN_EDGE_PEERS", "/nonexistent")) / name
    return place if any((place / part).exists() for part in ("bin/python", "node_modules")) else None


def missing(need: str) -> bool:
    """Whether a need is not there."""
    kind, _, name = need.rpartition(":")
    if kind == "peer":
        return peer(name) is None
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin") is None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Called by pytest before each test."""
    wanted = [str(name) for mark in item.iter_markers("needs") for name in mark.args]
    lacking = [name for name in wanted if missing(name)]
    if not lacking:
        return
    text = f"NOT RUN: missing {', '.join(lacking)}"
    if os.environ.get("CI") == "true":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Called by pytest: every test that was NOT RUN, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for report in terminalreporter.getreports("skipped"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if "NOT RUN" in why:
            found[why.removeprefix("Skipped: ")].append(report.nodeid)
    if not found:
        return
    terminalreporter.section(f"NOT RUN: {sum(map(len, found.values()))} tests", yellow=True)
    for why, tests in sorted(found.items()):
        terminalreporter.write_line(why)
        for name in tests:
            terminalreporter.write_line(f"    {name}")
