from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from edge.node.folders import NAMES, make_folders, sweep
from tests.support.process import NodeProcess


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


def test_what_a_killed_program_left_half_written_is_removed_and_nothing_else(tmp_path: Path) -> None:
    state = tmp_path / "state"
    make_folders(state)
    (state / "identity" / "pki").mkdir()
    (state / "store" / "blobs").mkdir()
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = [
        state / f".ports.json.{dead.pid}.new",
        state / "run" / f".ready.json.{dead.pid}.new",
        state / "identity" / "pki" / f".root.key.{dead.pid}.new",
        state / "identity" / f".incarnation.{os.getpid()}.new",
    ]
    kept = [
        state / "config.d" / f".90-local.toml.{os.getppid()}.new",
        state / "store" / "blobs" / f".x.{dead.pid}.new",
        state / "run" / f"ready.json.{dead.pid}.new",
        state / "run" / ".ready.json.new",
        state / "run" / ".ready.json.x.new",
        state / "store" / ".node.db.ballast",
    ]
    for path in (*left, *kept):
        path.write_text("half")
    (state / "run" / f".folder.{dead.pid}.new").mkdir()
    (state / "run" / f".link.{dead.pid}.new").symlink_to(kept[2])
    assert sorted(sweep(state)) == sorted(left)
    assert [path for path in left if path.exists()] == []
    assert [path for path in kept if not path.exists()] == []
    assert (state / "run" / f".link.{dead.pid}.new").is_symlink()
    assert (state / "run" / f".folder.{dead.pid}.new").is_dir()
    assert sweep(state) == []


def test_a_start_sweeps_what_a_kill_left(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "s") as node:
        half = tmp_path / "s" / "run" / f".ready.json.{node.pid}.new"
        node.kill()
        half.write_text("half")
        node.start()
        assert not half.exists()
        assert f"removed what was left half written: {half}" in node.log
