"""Pytest plugin: a test that never ends fails after ten minutes, so that the others are run and the summary is printed.

Not in the long runs that somebody asked for (`AUN_EDGE_KILLS` and the like), which say themselves how long they take.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

LONGEST_S = 600
LONG_RUNS = ("AUN_EDGE_KILLS", "AUN_EDGE_CUTS", "AUN_EDGE_FILLINGS", "AUN_EDGE_SOAK_MINUTES", "AUN_EDGE_FUZZ_SECONDS")


def _over(number: int, frame: FrameType | None) -> None:
    pytest.fail(f"not over after {os.environ.get('AUN_EDGE_TEST_SECONDS', LONGEST_S)} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Wake the main thread, wherever it waits, when a test takes too long."""
    if any(name in os.environ for name in LONG_RUNS):
        return (yield)
    before = signal.signal(signal.SIGALRM, _over)
    signal.alarm(int(os.environ.get("AUN_EDGE_TEST_SECONDS", LONGEST_S)))
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
