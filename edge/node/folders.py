"""The state directory."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

NAMES = ("identity", "store", "quarantine", "run", "config.d")


def make_folders(state_dir: Path) -> None:
    """Its folders, private to their owner."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_dir.chmod(0o700)
    for name in NAMES:
        (state_dir / name).mkdir(mode=0o700, exist_ok=True)


_HALF = re.compile(r"\..+\.([0-9]{1,10})\.new")
"""What `write_atomic` writes before it has the name of the file: `.<name>.<pid>.new`."""


def sweep(state_dir: Path) -> list[Path]:
    """Remove what a program that was killed left half written; which files. The caller holds the directory's lock.

    What a living program is writing (`config set`) stays, and so does everything that is not a plain file of ours.
    """
    gone = []
    for path in _files(state_dir):
        found = _HALF.fullmatch(path.name)
        if found is None or _alive(int(found[1])):
            continue
        try:
            path.unlink()
        except OSError as error:
            log.warning("%s is left over and cannot be removed: %s", path, error)
        else:
            gone.append(path)
    if gone:
        log.warning("removed what was left half written: %s", ", ".join(str(path) for path in gone))
    return gone


def _files(state_dir: Path) -> Iterator[Path]:
    """The plain files of the state directory and of its folders, two levels down: where small files are replaced."""
    folders = [state_dir, *(state_dir / name for name in NAMES)]
    while folders:
        for path in sorted(folders.pop(0).iterdir()):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                yield path
            elif stat.S_ISDIR(mode) and path.parent == state_dir / "identity":
                folders.append(path)


def _alive(pid: int) -> bool:
    """Does another program with this number run? (In a container ours may be that of the one that was killed.)"""
    if pid in (0, os.getpid()):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
