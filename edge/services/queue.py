"""`queue.*`: what waited and what was given up. Both files' loss ledgers as one answer (promise P2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from edge.contract.gap import Gap
from edge.contract.op import Call, Params, op
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock
from edge.store import ledger
from edge.store.ledger import Drop

MINUTE_US = 60 * SECOND

Counters = Callable[[], Mapping[str, Mapping[str, int]]]
"""Counts since the start that have no ledger row: where they are kept → name → how often."""


class DropsAsked(Params, frozen=True, kw_only=True):
    """Which losses: of one reason, of one client, of the last `since_s` seconds (0: ever); at most `limit` lines."""

    reason: str = ""
    client: str = ""
    since_s: int = 0
    limit: int = 200


class DropLine(msgspec.Struct, omit_defaults=True):
    """Losses of one log, class (or first topic level), reason and client. `last` is the newest, µs since 1970 UTC, to
    the minute where nothing had a number; `ranges` are the newest numbered ones as `[first, last]`."""

    log: str
    klass: str = msgspec.field(name="class")
    reason: str
    client: str
    count: int
    last: int | None = None
    ranges: list[tuple[int, int]] = []


class Drops(msgspec.Struct):
    """`total` is everything ever lost by log and reason, `matching` the sum of what was asked for in the entries still
    kept one by one; `pending` losses are counted and not yet on disk; `counters` count since the start."""

    total: list[Drop]
    matching: int
    lines: list[DropLine]
    more: int
    pending: int
    counters: dict[str, dict[str, int]]


RANGES = 20
"""Numbered ranges shown on one line."""


class QueueService:
    """Reads the ledgers of both files. `pending` tells what is counted and not yet written."""

    def __init__(
        self, stores: Mapping[str, Store], clock: Clock, pending: Callable[[], int], counters: Counters
    ) -> None:
        self._stores, self._clock = dict(stores), clock
        self._pending, self._counters = pending, counters

    @op("queue.drops", scope="queue:read", wire={"edge": ("queue.drops",)})
    async def drops(self, call: Call[DropsAsked]) -> Drops:
        """What was refused, expired, evicted or dropped: by class, reason and client, from both loss ledgers."""
        asked = call.params
        found = await asyncio.gather(*(self._of(store, asked) for store in self._stores.values()))
        lines = [line for _, some in found for line in some]
        lines.sort(key=lambda line: (-line.count, line.log, line.reason, line.client))
        limit = max(0, asked.limit)
        return Drops(
            _summed([drop for drops, _ in found for drop in drops]),
            sum(line.count for line in lines),
            lines[:limit],
            max(0, len(lines) - limit),
            self._pending(),
            {place: {name: n for name, n in counts.items() if n} for place, counts in self._counters().items()},
        )

    async def _of(self, store: Store, asked: DropsAsked) -> tuple[list[Drop], list[DropLine]]:
        """One file's totals and lines."""
        wall, now = self._clock.wall, self._clock.now()
        since_us = wall(now)[0] - asked.since_s * SECOND if asked.since_s > 0 else None

        def recent(gap: Gap) -> bool:
            width = 0 if gap.last else MINUTE_US
            return since_us is None or wall(gap.at)[0] + width > since_us

        def look(unit: Unit) -> tuple[list[Drop], list[DropLine]]:
            gaps = ledger.matching(unit, asked.reason, asked.client)
            return ledger.drops(unit), _lines([gap for gap in gaps if recent(gap)], lambda gap: wall(gap.at)[0])

        return await store.read(look)


def _lines(gaps: list[Gap], moment: Callable[[Gap], int]) -> list[DropLine]:
    """Gaps, newest first, added up."""
    lines: dict[tuple[str, str, str, str], DropLine] = {}
    for gap in gaps:
        key = (gap.log, gap.key, gap.reason, gap.who)
        line = lines.get(key)
        if line is None:
            line = lines[key] = DropLine(*key, 0, moment(gap), [])
        line.count += gap.count
        if gap.last and len(line.ranges) < RANGES:
            line.ranges.append((gap.first, gap.last))
    return list(lines.values())


def _summed(drops: list[Drop]) -> list[Drop]:
    sums: dict[tuple[str, str], int] = {}
    for drop in drops:
        sums[drop.log, drop.reason] = sums.get((drop.log, drop.reason), 0) + drop.count
    return [Drop(log, reason, count) for (log, reason), count in sorted(sums.items())]
