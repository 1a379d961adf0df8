"""Room held back for starts: on a full disk SQLite finds none for the index of its log, and nothing could be opened."""

from __future__ import annotations

import logging
from pathlib import Path

from edge.store.room import Held

logger = logging.getLogger(__name__)

OCTETS = 1 << 20
STEP_OCTETS = 64 << 10
"""What is given up, or held again, at once: two indexes of a log, which is what one start on a full disk uses up."""


class Ballast:
    """The file `.<name>.ballast` beside a database."""

    def __init__(self, path: Path) -> None:
        """`path` is the database's."""
        self._path = path.with_name(f".{path.name}.ballast")
        self._held = Held(self._path)

    @property
    def whole(self) -> bool:
        """Whether all of it is held."""
        return self._held.octets >= OCTETS

    def keep(self) -> None:
        """Hold it, if there never was one; where there is less room, less, with a rest for this start's own files."""
        if self._path.exists():
            return
        for octets in range(OCTETS, STEP_OCTETS, -STEP_OCTETS):
            if self._held.hold(octets):
                if octets < OCTETS:
                    self._held.give(STEP_OCTETS)
                return
        self._path.unlink(missing_ok=True)
        logger.warning("no room for %s", self._path.name)

    def give(self) -> bool:
        """Give up a step, for what must be written now; False when nothing is left."""
        return self._held.give(STEP_OCTETS)

    def fill(self, spare: int = STEP_OCTETS) -> bool:
        """Hold it again, as far as that leaves `spare` bytes to others; whether all of it is held."""
        while not self.whole and self._held.free >= STEP_OCTETS + spare:
            if not self._held.hold(self._held.octets + STEP_OCTETS):
                break
        return self.whole
