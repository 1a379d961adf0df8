"""What is given up in the loop, counted there and written to the loss ledger within seconds (promise P2).

For what never had a number: a message that a slow client had no room for, one nobody may publish. Whatever is acked
after it was given up belongs into the unit of its ack instead (`unit.lose`), so that a crash cannot part the two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from edge.contract.gap import Gap
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock, Stamp, later
from edge.store.ledger import MINUTE

logger = logging.getLogger(__name__)

FLUSH_US = 3 * SECOND
"""How long a count waits at most before it is handed to the store."""
KEYS = 2_000
"""Different (log, class, reason, who, minute) in memory at once; above it `who` is `*`."""

_Key = tuple[str, str, str, str, int]


class Losses:
    """Counts by log, class, reason, who and minute. Loop only; `flush` before the store closes.

    Nothing counted is forgotten: what a store refuses is kept and tried again.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._counts: dict[_Key, int] = {}
        self._writing = 0
        self._stopped = False
        self._cancel: Callable[[], None] | None = None

    @property
    def pending(self) -> int:
        """How many losses are not on disk yet."""
        return sum(self._counts.values()) + self._writing

    def note(self, klass: str, reason: str, who: str, count: int = 1, *, log: str = "mqtt") -> None:
        """Count a loss: of which class (`alarm`, `state`, `telemetry`), why, whose."""
        key = (log, klass, reason, who, self._clock.now().mono_us // MINUTE)
        self._add(key, count)
        self._arm()

    def _arm(self) -> None:
        if self._cancel is None and not self._stopped:
            self._cancel = later(self._clock, FLUSH_US, self._due)

    def _add(self, key: _Key, count: int) -> None:
        if key not in self._counts and len(self._counts) >= KEYS:
            key = (*key[:3], "*", key[4])
        self._counts[key] = self._counts.get(key, 0) + count

    def _due(self) -> None:
        self._cancel = None
        self.flush()

    def flush(self) -> None:
        """Hand what was counted to the store, as one unit."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        counts, self._counts = self._counts, {}
        if not counts:
            return
        total = sum(counts.values())
        self._writing += total
        boot = self._clock.now().boot

        def work(unit: Unit) -> None:
            for (log, klass, reason, who, minute), count in counts.items():
                unit.lose(Gap(log, klass, 0, 0, count, reason, who, Stamp(boot, minute * MINUTE)))

        def done(result: object) -> None:
            self._writing -= total
            if isinstance(result, BaseException):
                self._keep(counts, result)

        self._store.write(work, done)

    def _keep(self, counts: dict[_Key, int], error: BaseException) -> None:
        """The store took nothing: try again later; at the end the log is all that is left."""
        told = logger.error if self._stopped else logger.warning
        told("%d losses could not be written: %s", sum(counts.values()), error)
        for key, count in counts.items():
            self._add(key, count)
            if self._stopped:
                logger.error("not in the ledger: %d x %s %s, %s of %s", count, *key[:4])
        self._arm()

    def stop(self) -> None:
        """The last flush, before the store closes. What it refuses then is told to the log, line by line."""
        self._stopped = True
        self.flush()
