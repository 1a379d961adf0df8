"""Putting a prepared state in the place of the present one: all of it or nothing (design D18).

What is being prepared lies in `restore.new`. Renaming that to `restore.ready` is the decision: killed before it, the
old state stays; killed after it, the next start goes on with `finish`, which moves the old parts to the quarantine and
the new ones into place.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from edge.store.snapshot import FILES, FOLDERS
from edge.system.files import sync_directory

STAGING, READY = "restore.new", "restore.ready"
PARTS = ("identity", "store", *(name for name in (*FOLDERS, *FILES) if name != "identity"))
"""The identity moves first: until the last part has moved, nobody may start with the old one."""
ASIDE = "aside"
"""The file in `restore.ready` that names where the old parts go."""


def finish(state_dir: Path) -> Path | None:
    """Go on with a restore that was decided, drop one that was not; where the state before it lies, if there was any.

    The caller holds the lock of the state directory. Called at every start: without a restore it does nothing.
    """
    shutil.rmtree(state_dir / STAGING, ignore_errors=True)
    ready = state_dir / READY
    if not ready.is_dir():
        return None
    if not (ready / ASIDE).exists():
        ready.rmdir()  # everything had moved
        return None
    aside = state_dir / "quarantine" / (ready / ASIDE).read_text().strip()
    aside.mkdir(mode=0o700, parents=True, exist_ok=True)
    give_to_owner(aside, state_dir)
    for name in PARTS:
        _move(state_dir / name, ready / name, aside)
    sync_directory(aside)
    sync_directory(state_dir)
    (ready / ASIDE).unlink()
    ready.rmdir()
    sync_directory(state_dir)
    return aside if any(aside.iterdir()) else None


def _move(old: Path, new: Path, aside: Path) -> None:
    """The new part comes in the place of the old one; done again after a kill it goes on where it was."""
    if not new.exists():
        return
    if old.exists():
        place = aside / old.name
        number = 1
        while place.exists():
            number += 1
            place = aside / f"{old.name}-{number}"
        old.rename(place)
    new.rename(old)


def give_to_owner(folder: Path, state_dir: Path) -> None:
    """What root restores belongs to the node's own user."""
    if os.geteuid():
        return
    owner = state_dir.stat()
    for place, _, names in os.walk(folder):
        for name in ("", *names):
            os.chown(Path(place) / name, owner.st_uid, owner.st_gid, follow_symlinks=False)
