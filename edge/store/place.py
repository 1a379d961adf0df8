"""Whether the names of an open database still lead to it.

A file that was removed or replaced under a running node takes every commit and keeps none of them: nobody would find
them again. So the writer looks after each commit, before it tells of it, and at each beat of the watchdog (P1).
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path


class Place:
    """The database and its write-ahead log by device and inode, as they were when they were seen first."""

    def __init__(self, path: Path) -> None:
        self._paths = (str(path), f"{path}-wal")
        self._known: dict[str, tuple[int, int]] = {}

    def lost(self) -> sqlite3.Error | None:
        """What is wrong, as an error of the medium; None while both names lead to the files that are open."""
        for path in self._paths:
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                if path in self._known:
                    return _gone(f"{path} was removed while the node runs")
                continue
            if self._known.setdefault(path, (found.st_dev, found.st_ino)) != (found.st_dev, found.st_ino):
                return _gone(f"{path} was replaced while the node runs")
        return None


def _gone(why: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(f"{why}: nothing is acknowledged any more; stop the node and put its state back")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    return error
