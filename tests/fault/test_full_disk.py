"""A node cut off by a full disk starts again, says that it cannot write, and writes once there is room (promise P3)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.cli.client import Control
from edge.cli.failure import NotRunning
from edge.contract.errors import StorageFull
from tests.support.disk import fill, mounted
from tests.support.process import QUIET

READY_WITHIN_S = 60.0
ROOM_WITHIN_S = 60.0
"""The housekeeping of the store looks for room every few seconds."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with mounted(tmp_path, 8 << 20) as folder:
        yield folder


class Served:
    """A node that answers at its control socket; its ready file may have to wait for room."""

    def __init__(self, state: Path) -> None:
        self.owner, self._state, self._log = Control(state), state, state.parent.parent / "log"

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        command = [sys.executable, "-m", "edge.cli.main", "run", "--state-dir", str(self._state), *QUIET]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + READY_WITHIN_S
        while True:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until, self._log.read_text()
            try:
                self.owner.call("status")
                return
            except (NotRunning, OSError):
                time.sleep(0.05)

    def leave(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        assert self._process.wait(30) == (0 if number is signal.SIGTERM else -number)

    def fill(self) -> int:
        """Add devices until the store takes no more; how many it took."""
        for number in range(10_000):
            try:
                self.owner.call("device.add", {"name": f"thing-{number}"})
            except StorageFull:
                return number
        raise AssertionError("the disk did not get full")


def test_a_node_cut_off_by_a_full_disk_starts_and_serves_what_it_has(small_disk: Path) -> None:
    state, filler = small_disk / "state", small_disk / "filler"
    state.mkdir()
    with Served(state) as node:
        fill(filler)
        kept = node.fill()
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
            node.leave(number)
            fill(filler)
            node.start()
            assert len(node.owner.call("device.list")) >= kept
        filler.unlink()
        until = time.monotonic() + ROOM_WITHIN_S
        while not (state / "run" / "ready.json").exists() or any(
            one["read_only"] for one in node.owner.call("status")["stores"].values()
        ):
            assert time.monotonic() < until
            time.sleep(0.1)
        node.owner.call("device.add", {"name": "late"})
        node.leave(signal.SIGTERM)
