"""The state directory."""

from __future__ import annotations

from pathlib import Path

NAMES = ("identity", "store", "quarantine", "run", "config.d")


def make_folders(state_dir: Path) -> None:
    """Its folders, private to their owner."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_dir.chmod(0o700)
    for name in NAMES:
        (state_dir / name).mkdir(mode=0o700, exist_ok=True)
