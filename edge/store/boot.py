"""The table `boot` of node.db (design D12): what wall time each boot of the box had, and how surely.

Everything else stores (boot, monotonic µs); learning the time re-dates it all by one row here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

from edge.contract.errors import StorageFull
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, later
from edge.store.marks import Marks
from edge.store.migration import statements
from edge.system.clock import SystemClock
from edge.system.walltime import DAY, Belief

log = logging.getLogger(__name__)

RELEARN_US = 600 * SECOND
"""How often the system's clock is looked at; while it is unsure, twenty times as often."""

_ALL = "SELECT number, boot_id, offset_us, uncertainty_us, sure, seen_us FROM boot ORDER BY number"
_PUT = """INSERT INTO boot (number, boot_id, offset_us, uncertainty_us, sure, seen_us) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET boot_id = excluded.boot_id, offset_us = excluded.offset_us,
        uncertainty_us = excluded.uncertainty_us, sure = excluded.sure, seen_us = excluded.seen_us"""


class Boots:
    """Keeps the row of this boot, and tells the clock of the boots before."""

    def __init__(self, db: Store, clock: SystemClock, marks: Marks) -> None:
        self._db, self._clock, self._marks = db, clock, marks
        self._written_us = 0
        self._cancel: Callable[[], None] | None = None

    async def start(self) -> None:
        """Learn from the table, give this boot a number of its own, write its row. Before anything is stamped."""
        rows = cast("list[tuple[Any, ...]]", await self._db.read(lambda unit: unit.run(_ALL)))
        for number, boot_id, offset_us, uncertainty_us, sure, seen_us in rows:
            if sure:
                self._clock.raise_floor(offset_us + seen_us)
            if number >= self._clock.boot and boot_id != self._marks.boot_id:
                self._clock.boot = number + 1
            belief = Belief(offset_us, uncertainty_us, bool(sure))
            if boot_id and boot_id == self._marks.boot_id:
                self._clock.boot = number
                self._clock.adopt(belief)
            else:
                self._clock.earlier[number] = belief
        if self._clock.boot != self._marks.boot:
            self._marks.renumber_boot(self._clock.boot)
        self._clock.relearn()
        try:
            await self._db.commit(self._put)
        except StorageFull:
            log.error("the time of this boot cannot be written yet")
        self._arm()

    def stop(self) -> None:
        """No more looks at the clock."""
        if self._cancel is not None:
            self._cancel()

    def _arm(self) -> None:
        pause = RELEARN_US if self._clock.sure and self._written_us else RELEARN_US // 20
        self._cancel = later(self._clock, pause, self._look)

    def _look(self) -> None:
        changed = self._clock.relearn()
        stale = self._clock.sure and self._clock.now().mono_us - self._written_us > DAY
        if changed or stale or not self._written_us:
            self._db.write(self._put, lambda result: None)
        self._arm()

    def _put(self, unit: Unit) -> None:
        belief, now = self._clock.belief, self._clock.now()
        row = (now.boot, self._marks.boot_id, belief.offset_us, belief.uncertainty_us, int(belief.sure), now.mono_us)
        unit.run(_PUT, row)
        unit.after(lambda: self._wrote(now.mono_us))

    def _wrote(self, mono_us: int) -> None:
        self._written_us = mono_us


MIGRATIONS = [
    statements(
        "node",
        "boot-001",
        """CREATE TABLE boot (number INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, offset_us INTEGER NOT NULL,
            uncertainty_us INTEGER NOT NULL, sure INTEGER NOT NULL, seen_us INTEGER NOT NULL) STRICT""",
    )
]
