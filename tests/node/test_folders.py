from __future__ import annotations

import stat
from pathlib import Path

from edge.node.folders import NAMES, make_folders


def test_a_state_directory_is_its_owners_alone(tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    make_folders(state)
    make_folders(state)
    assert {path.name for path in state.iterdir()} == set(NAMES)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in (state, *state.iterdir()))


def test_a_directory_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folders(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
