"""Room held back for alarms: a file beside the database that is shortened step by step once the disk is full.

It gives up no more than what the next alarm needs, because whoever filled the disk may take what is given up; and the
disk counts as having room again only when all of it can be had back.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)

OCTETS = 1 << 20
STEP_OCTETS = 16 << 10
"""What is given up at once: a few pages, about one small commit."""


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

    def give(self) -> bool:
        """Give up a step; False when nothing is left."""
        held = self.octets
        if not held:
            return False
        try:
            os.truncate(self._path, max(0, held - STEP_OCTETS))
        except OSError as error:
            logger.error("the reserve cannot be used: %s", error)
            return False
        logger.warning("the disk is full: %d bytes of the reserve for alarms are left", held - STEP_OCTETS)
        return True
