"""A restore that is killed at any of its renames leaves the old state or the new one, and the next start finds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge.store import swap

RENAMES = "rename,renameat,renameat2"


def cli(*line: str, kill_at: int = 0) -> subprocess.CompletedProcess[str]:
    """A verb; with `kill_at` it gets SIGKILL in the place of so manieth rename."""
    command = [sys.executable, "-m", "edge.cli.main", *line]
    if kill_at:
        inject = f"inject={RENAMES}:signal=SIGKILL:when={kill_at}"
        command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={RENAMES}", "-e", inject, *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A node that has been backed up to `a.backup` and then went on."""
    made = tmp_path / "state"
    assert cli("init", "--issuer", "edge.test", "--state-dir", str(made)).returncode == 0
    (made / "config.d" / "90-local.toml").write_text('[node]\nname = "old"\n')
    (made / "ports.json").write_text('{"http":1}')
    assert cli("backup", "create", str(tmp_path / "a.backup"), "--state-dir", str(made)).returncode == 0
    (made / "config.d" / "90-local.toml").write_text('[node]\nname = "newer"\n')
    (made / "ports.json").write_text('{"http":2}')
    return made


def generation(state: Path) -> set[str]:
    """Which of both states the parts belong to."""
    texts = (state / "config.d" / "90-local.toml").read_text() + (state / "ports.json").read_text()
    incarnation = (state / "identity" / "incarnation").read_text()
    backed_up = {'"old"' in texts, '"http":1' in texts, '"incarnation":1' in incarnation}
    return {"restored" if one else "untouched" for one in backed_up}


@pytest.mark.needs("strace")
def test_killed_anywhere_it_is_the_old_state_or_the_new_one(state: Path, tmp_path: Path) -> None:
    outcomes = []
    for kill_at in range(1, 40):
        here = tmp_path / f"killed-{kill_at}"
        shutil.copytree(state, here)
        done = cli(
            "backup", "restore", "--force", str(tmp_path / "a.backup"), "--state-dir", str(here), kill_at=kill_at
        )
        decided = (here / swap.READY).exists()
        swap.finish(here)
        [found] = generation(here)
        assert decided <= (found == "restored")
        assert not (here / swap.STAGING).exists()
        assert not (here / swap.READY).exists()
        outcomes.append(found)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    assert outcomes[0] == "untouched"
    assert outcomes[-1] == "restored"
    assert outcomes == sorted(outcomes, reverse=True)
    assert outcomes.count("restored") >= 8
