"""Files that are either the old or the new, never half; and the lock that keeps one node to a directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def write_atomic(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace `path` with `content`: on disk under its name, or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DirectoryInUse(Exception):
    """Another node holds the state directory."""


class StateLock:
    """One node per state directory: holds `run/lock` until closed or the process ends."""

    def __init__(self, path: Path) -> None:
        """Raises `DirectoryInUse`."""
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise DirectoryInUse(f"another node already runs on {path.parent.parent}") from None
        with contextlib.suppress(OSError):  # a full disk: the number is for people only
            os.ftruncate(self._file.fileno(), 0)
            os.write(self._file.fileno(), str(os.getpid()).encode())

    def close(self) -> None:
        """Let the next node in."""
        self._file.close()
