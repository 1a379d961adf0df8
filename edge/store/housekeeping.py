"""What a file needs while nobody asks for anything: checkpoints, vacuum, marks, the way out of a full disk.

Nothing runs, and nothing is written, as long as nothing was committed since it was done last.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock, later
from edge.store import ledger, once
from edge.store.marks import Mark, Marks
from edge.store.writer import Figures, Writer

logger = logging.getLogger(__name__)

IDLE_US = 30 * SECOND
"""After so long without a commit the WAL goes into the database; after ten times as long it is truncated."""
LONG_IDLE = 10
MARK_US = 60 * SECOND
"""Under load a mark is not written more often."""
PROBE_US = 5 * SECOND
"""How often a full disk is tried again."""
SWEEP_US = 3600 * SECOND
"""How often, while there is work, keys whose time is over go and the ledger is folded."""


class Kept(Store, Protocol):
    """The database, as far as it is looked after here."""

    name: str

    def figures(self) -> Figures:
        """What the writer has done since it started."""
        ...

    def control(self, work: Callable[[Writer], Any], done: Callable[[Any], None]) -> None:
        """Have the writer thread do something between two commits; `done` in the loop."""
        ...

    def in_loop(self, call: Callable[..., None], *args: Any) -> None:
        """From another thread: call in the loop, unless that has ended."""
        ...


class Housekeeping:
    """The timer of one open database; `touched` after each commit, `stop` before it closes. Loop only."""

    def __init__(self, db: Kept, clock: Clock, marks: Marks) -> None:
        self._db, self._clock, self._marks = db, clock, marks
        self._cancel: Callable[[], None] | None = None
        self._stopped = False
        self._probing = False
        self._whole = True
        """Whether all the room that is to be held back is."""
        self._commits = 0
        self._idle = 0
        self._marked_us = self._swept_us = clock.now().mono_us

    def touched(self) -> None:
        """Something was committed, or a commit failed."""
        if self._db.read_only and not self._probing:
            self._probing = True
            self._db.control(lambda writer: writer.suspicion(), self._marked)
            self._again(PROBE_US)
        elif self._cancel is None:
            self._again(IDLE_US)

    def cramped(self) -> None:
        """The start found a full disk: it is looked at again, also when nobody commits anything."""
        self._whole = False
        self.touched()

    def stop(self) -> None:
        """No more timers."""
        self._stopped = True
        if self._cancel is not None:
            self._cancel()

    def _again(self, us: int) -> None:
        if self._cancel is not None:
            self._cancel()
        if not self._stopped:
            self._cancel = later(self._clock, us, self._tick)

    def _tick(self) -> None:
        self._cancel = None
        if self._db.read_only:
            self._db.control(lambda writer: writer.probe(), self._probed)
            return
        if self._clock.now().mono_us - self._swept_us >= SWEEP_US:
            self._swept_us = self._clock.now().mono_us
            self._db.write(self._sweep, _log_failure)
        if not self._whole:
            self._db.control(lambda writer: writer.headroom.refill(), self._refilled)
        commits = self._db.figures().commits
        self._idle = self._idle + 1 if commits == self._commits else 0
        self._commits = commits
        if self._idle == 1:
            self._db.control(lambda writer: writer.rest(), self._marked)
        elif self._idle >= LONG_IDLE and self._whole:
            self._shrink()
            return
        elif not self._idle and self._clock.now().mono_us - self._marked_us >= MARK_US:
            self._db.control(lambda writer: writer.mark(), self._marked)
        self._again(IDLE_US)

    def _sweep(self, unit: Unit) -> None:
        ledger.prune(unit)
        if self._db.name == "node":
            once.purge(unit)

    def _refilled(self, whole: object) -> None:
        self._whole = whole is True

    def _probed(self, well: object) -> None:
        self._probing = well is not True
        self._whole = False
        if well is not None:
            self._again(PROBE_US)  # the next time for what else is to be held back

    def _marked(self, mark: object) -> None:
        if isinstance(mark, Mark):
            self._marked_us = self._clock.now().mono_us
            self._save(mark, lambda: None)

    def _shrink(self) -> None:
        """Truncate the WAL; the mark must not ask for its frames by then."""

        def truncate() -> None:
            if not self._stopped:
                self._db.control(lambda writer: writer.checkpoint("TRUNCATE"), lambda result: None)

        def save(mark: object) -> None:
            if isinstance(mark, Mark):
                self._save(mark, truncate)

        self._db.control(lambda writer: Mark(writer.generation), save)

    def _save(self, mark: Mark, then: Callable[[], None]) -> None:
        """Write the mark in a thread of its own: it syncs twice."""

        def run() -> None:
            try:
                self._marks.put(self._db.name, mark)
            except OSError as error:
                logger.warning("%s: its mark cannot be written: %s", self._db.name, error)
                return
            self._db.in_loop(then)

        threading.Thread(target=run, name=f"mark-{self._db.name}", daemon=True).start()


def _log_failure(result: object) -> None:
    if isinstance(result, Exception):
        logger.warning("sweeping failed: %s", result)
