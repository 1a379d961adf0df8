from __future__ import annotations

import stat
from pathlib import Path

import pytest

from edge.system.files import DirectoryInUse, StateLock, write_atomic


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_replacement_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "place"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomic(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_takes_one_node_at_a_time(tmp_path: Path) -> None:
    first = StateLock(tmp_path / "lock")
    with pytest.raises(DirectoryInUse, match="already runs"):
        StateLock(tmp_path / "lock")
    first.close()
    StateLock(tmp_path / "lock").close()
