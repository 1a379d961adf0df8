"""Room held back for alarms: a file beside the database that is shortened step by step once the disk is full.

It gives up no more than what the next alarm needs, because whoever filled the disk may take what is given up; and what
can be had back of it is had back before anything else may use the room.
"""

from __future__ import annotations

import logging
from pathlib import Path

from edge.store.room import Held

logger = logging.getLogger(__name__)

OCTETS = 1 << 20
STEP_OCTETS = 16 << 10
"""What is given up at once: a few pages, about one small commit."""


class Reserve:
    """The file `.<name>.reserve`. It belongs to the thread that writes the database."""

    def __init__(self, path: Path, octets: int = OCTETS) -> None:
        """`path` is the database's."""
        self._held, self._octets = Held(path.with_name(f".{path.name}.reserve")), octets

    @property
    def octets(self) -> int:
        """How much is held."""
        return self._held.octets

    @property
    def missing(self) -> int:
        """How much of it is not held."""
        return max(0, self._octets - self.octets)

    def hold(self) -> bool:
        """Hold all of it; False when there is no room for that, and then what was held stays."""
        return self.octets == self._octets or self._held.hold(self._octets)

    def hold_some(self, spare: int) -> None:
        """Hold what there is room for, so that `spare` bytes are left to others."""
        steps = min(self.missing, self._held.free - spare) // STEP_OCTETS
        if steps > 0:
            self._held.hold(self.octets + steps * STEP_OCTETS)

    def give(self, octets: int = 1) -> bool:
        """Give up `octets` in whole steps, or what is left; False when nothing is."""
        if not self._held.give(-(-octets // STEP_OCTETS) * STEP_OCTETS):
            return False
        logger.warning("the disk is full: %d bytes of the reserve for alarms are left", self.octets)
        return True
