"""A node cut off by a full disk starts again, says that it cannot write, and writes once there is room (promise P3)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.cli.client import Control
from edge.contract.errors import StorageFull
from tests.support.process import NodeProcess

ROOM_WITHIN_S = 30.0
"""The housekeeping of the store looks for room every few seconds."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder]).returncode:
        pytest.skip("cannot mount a small file system here: tests/store/test_opening.py has what needs no mount")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    """Use up the room that is left."""
    with file.open("ab", buffering=0) as filler:
        for size in (4096, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue


def fill_with_devices(node: NodeProcess) -> int:
    """Add devices until the store takes no more; how many it took."""
    with Control(node.state_dir) as owner:
        for number in range(10_000):
            try:
                owner.call("device.add", {"name": f"thing-{number}"})
            except StorageFull:
                return number
    raise AssertionError("the disk did not get full")


def test_a_node_cut_off_by_a_full_disk_starts_and_serves_what_it_has(small_disk: Path) -> None:
    state, filler = small_disk / "state", small_disk / "filler"
    with NodeProcess(state) as node:
        fill(filler)
        kept = fill_with_devices(node)
        for leave in (node.kill, node.stop, node.stop):
            leave()
            fill(filler)
            assert node.start() < 10
            assert len(Control(state).call("device.list")) >= kept
        filler.unlink()
        until = time.monotonic() + ROOM_WITHIN_S
        while any(one["read_only"] for one in Control(state).call("status")["stores"].values()):
            assert time.monotonic() < until
            time.sleep(0.1)
        Control(state).call("device.add", {"name": "late"})
        assert node.stop() == 0
