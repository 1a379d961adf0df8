"""Room on the disk: how much is free, and how some is held back, by a file whose blocks nobody else can have."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

logger = logging.getLogger(__name__)


def free(path: Path) -> int:
    """Bytes that the file system has left for us; what it does not say is plenty."""
    try:
        found = os.statvfs(path)
    except OSError:
        return sys.maxsize
    return found.f_bavail * found.f_frsize


class Held:
    """A file that holds room."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def octets(self) -> int:
        """How much is held."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    @property
    def free(self) -> int:
        """How much is free beside it."""
        return free(self._path.parent)

    def hold(self, octets: int) -> bool:
        """Hold so much; False when there is no room for that, and then what was held stays."""
        before = self.octets
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            logger.debug("%s cannot be opened: %s", self._path.name, error)
            return False
        try:
            os.posix_fallocate(descriptor, 0, octets)
            os.ftruncate(descriptor, octets)
        except OSError as error:
            os.ftruncate(descriptor, before)
            logger.debug("%s stays as it is: %s", self._path.name, error)
            return False
        finally:
            os.close(descriptor)
        return True

    def give(self, octets: int) -> bool:
        """Give up so much, or what is left; False when nothing is, or it cannot be given."""
        held = self.octets
        if not held:
            return False
        try:
            os.truncate(self._path, max(0, held - octets))
        except OSError as error:
            logger.error("the room that %s holds cannot be used: %s", self._path.name, error)
            return False
        return True
