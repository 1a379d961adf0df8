"""Numbers of a log whose rows lie in a table of its owner's (readings): no second page per commit.

The counter lives in memory. It starts at the largest of: the saved head, the highest number still in the owner's
table, the start of this incarnation. It never goes back, because a number that anybody saw was committed as a row,
that row stays until a unit that removes it also saves the head, and a file that lost rows otherwise (a WAL that is
gone, a restore) gets a higher incarnation from `marks`. Numbers of a commit that failed may come again after a
restart: nobody ever saw them.
"""

from __future__ import annotations

from typing import cast

from edge.contract.gap import Gap
from edge.contract.store import INCARNATION_SHIFT, Store, Unit
from edge.store.logs import save_head, saved_head


class Sequence:
    """The numbers of one (log, key). `take` in the loop, before the rows are queued."""

    def __init__(self, log: str, key: str, highest: str) -> None:
        """`highest` is a query of the owner's: the largest number in its table (NULL when empty)."""
        self._log, self._key, self._highest = log, key, highest
        self._head = 0
        self._db: Store | None = None

    async def open(self, db: Store) -> None:
        """Find where to go on. Before the first `take`."""
        self._db = db
        self._head = max(await db.read(self._find), db.incarnation << INCARNATION_SHIFT)

    def _find(self, unit: Unit) -> int:
        [(highest,)] = unit.run(self._highest)
        return max(saved_head(unit, self._log, self._key), cast("int | None", highest) or 0)

    @property
    def head(self) -> int:
        """The last number given out."""
        return self._head

    def take(self, count: int = 1) -> range:
        """The next `count` numbers: of a new incarnation from the moment that one begins."""
        base = self._db.incarnation << INCARNATION_SHIFT if self._db is not None else 0
        first = max(self._head, base) + 1
        self._head = first + count - 1
        return range(first, first + count)

    def ack(self, unit: Unit, reader: str, seq: int) -> int:
        """Move a reader's cursor; never back, never above the head. Where it stands now."""
        self._save(unit)
        return unit.log(self._log).ack(self._key, reader, seq)

    def removed(self, unit: Unit, first: int, last: int, count: int, reason: str, who: str = "") -> Gap:
        """Declare rows that this unit deletes: head saved, floor raised to `last`, the gap in the ledger."""
        gap = Gap(self._log, self._key, first, last, count, reason, who, unit.at)
        self.aged(unit, last)
        unit.lose(gap)
        return gap

    def aged(self, unit: Unit, last: int) -> None:
        """Rows up to `last` went by a stated policy that is not a loss: head saved, floor raised, no gap."""
        self._save(unit)
        unit.log(self._log).raise_floor(self._key, last)

    def _save(self, unit: Unit) -> None:
        save_head(unit, self._log, self._key, self._head)
