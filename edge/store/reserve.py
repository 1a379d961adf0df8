"""Room held back for alarms: a file beside the database that is shortened step by step once the disk is full.

It gives up no more than what the next alarm needs, because whoever filled the disk may take what is given up; and what
can be had back of it is had back before anything else may use the room.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

logger = logging.getLogger(__name__)

OCTETS = 1 << 20
STEP_OCTETS = 16 << 10
"""What is given up at once: a few pages, about one small commit."""


def room(path: Path) -> int:
    """Bytes that the file system has left for us; what it does not say is plenty."""
    try:
        found = os.statvfs(path)
    except OSError:
        return sys.maxsize
    return found.f_bavail * found.f_frsize


class Reserve:
    """The file `.<name>.reserve`. It belongs to the thread that writes the database."""

    def __init__(self, path: Path, octets: int = OCTETS) -> None:
        """`path` is the database's."""
        self._path, self._octets = path.with_name(f".{path.name}.reserve"), octets

    @property
    def octets(self) -> int:
        """How much is held."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def hold(self) -> bool:
        """Hold all of it; False when there is no room for that, and then what was held stays."""
        if self.octets == self._octets:
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        held = os.fstat(descriptor).st_size
        try:
            os.posix_fallocate(descriptor, 0, self._octets)
            os.ftruncate(descriptor, self._octets)
        except OSError:
            os.ftruncate(descriptor, held)
            return False
        finally:
            os.close(descriptor)
        return True

    @property
    def missing(self) -> int:
        """How much of it is not held."""
        return max(0, self._octets - self.octets)

    def hold_some(self, spare: int) -> None:
        """Hold what there is room for, so that `spare` bytes are left to others."""
        steps = min(self.missing, room(self._path.parent) - spare) // STEP_OCTETS
        if steps <= 0:
            return
        held = self.octets
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            os.posix_fallocate(descriptor, 0, held + steps * STEP_OCTETS)
        except OSError as error:
            os.ftruncate(descriptor, held)
            logger.debug("the reserve stays as it is: %s", error)
        finally:
            os.close(descriptor)

    def give(self, octets: int = 1) -> bool:
        """Give up `octets` in whole steps, or what is left; False when nothing is."""
        held = self.octets
        if not held:
            return False
        left = max(0, held - -(-octets // STEP_OCTETS) * STEP_OCTETS)
        try:
            os.truncate(self._path, left)
        except OSError as error:
            logger.error("the reserve cannot be used: %s", error)
            return False
        logger.warning("the disk is full: %d bytes of the reserve for alarms are left", left)
        return True
