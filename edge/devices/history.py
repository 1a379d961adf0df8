"""How long readings stay: by age, which is policy, and by bytes, which is a declared loss (promise P2).

The latest value of every capability outlives both: before rows go, whatever was last said in them is restated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from edge.contract.op import Spawn
from edge.contract.time import SECOND, later
from edge.devices.intake import Intake
from edge.devices.registry import Registry

log = logging.getLogger(__name__)

DAY_US = 86_400 * SECOND
CHUNK = 5_000
"""Rows that one unit removes: the commits of others wait no longer than for that."""
STEPS = (CHUNK, CHUNK // 10, CHUNK // 100, 0)
"""How far above the oldest row is looked for one that is old."""
PERIOD_US = 600 * SECOND


class Keeper:
    """Removes old readings every ten minutes. `keep_days` and `keep_octets` are the configuration's."""

    def __init__(
        self, registry: Registry, intake: Intake, spawn: Spawn, *, keep_days: int = 30, keep_octets: int = 128 << 20
    ) -> None:
        self._registry, self._intake, self._spawn = registry, intake, spawn
        self._clock, self._readings = registry.clock, registry.readings
        self._keep_us, self._keep_octets = keep_days * DAY_US, keep_octets
        self._cancel: Callable[[], None] | None = None

    def start(self) -> None:
        """Sweep from now on."""
        self._cancel = later(self._clock, PERIOD_US, self._turn)

    def stop(self) -> None:
        """Sweep no more."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _turn(self) -> None:
        self._spawn(self._swept())
        self.start()

    async def _swept(self) -> None:
        await self.sweep()

    async def sweep(self) -> int:
        """Remove what is due now; how many rows."""
        if self._registry.node.read_only:
            return 0
        gone = 0
        while (last := await self._aged()) is not None:
            gone += await self._drop(last, "")
        while await self._readings.measure() > self._keep_octets:
            found = await self._readings.dated(CHUNK)
            if found is None:
                break
            gone += await self._drop(found[0] - 1, "evicted")
        return gone

    async def _aged(self) -> int | None:
        """The last number of the largest step of rows that is older than the policy, None when none is."""
        now, doubt = self._clock.wall(self._clock.now())
        for rows in STEPS:
            found = await self._readings.dated(rows)
            if found is not None:
                then, uncertainty = self._clock.wall(found[1])
                if now - then - uncertainty - doubt > self._keep_us:
                    return found[0]
        return None

    async def _drop(self, last: int, reason: str) -> int:
        self._intake.restate(last)
        sweep = await self._readings.drop(last, reason)
        log.info("readings up to %d removed: %d rows, %s", last, sweep.rows, reason or "by age")
        return sweep.rows
