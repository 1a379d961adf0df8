"""`queue.drops`: both ledgers as one answer, filtered, added up, with what has no row yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from edge.contract.gap import Gap
from edge.contract.op import Call
from edge.contract.principal import NODE
from edge.contract.time import SECOND, Stamp
from edge.services.queue import RANGES, Drops, DropsAsked, QueueService
from edge.store import ledger
from edge.store.database import Database
from tests.support.clock import FakeClock
from tests.support.store import database

DAY = 86_400 * SECOND


class Desk:
    """The service on two real files."""

    def __init__(self, clock: FakeClock, node: Database, hot: Database) -> None:
        self.clock, self.node, self.hot = clock, node, hot
        self.service = QueueService(
            {"node": node, "hot": hot}, clock, lambda: 4, lambda: {"limits": {"mqtt.connections": 2, "quiet": 0}}
        )

    async def lose(self, db: Database, reason: str, who: str, count: int = 1, klass: str = "telemetry") -> None:
        at = self.clock.now()
        await db.commit(lambda unit: unit.lose(Gap("mqtt", klass, 0, 0, count, reason, who, at)))

    async def drops(self, **asked: Any) -> Drops:
        return await self.service.drops(Call(who=NODE, op="queue.drops", params=DropsAsked(**asked)))


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    clock = FakeClock(mono_us=DAY)
    async with database(folder, "node", clock) as node, database(folder, "hot", clock) as hot:
        yield Desk(clock, node, hot)


async def test_losses_of_both_files_are_one_list_the_largest_first(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.lose(made.node, "too large", "lamp")
        await made.lose(made.hot, "queue full", "pump", 7)
        await made.lose(made.hot, "queue full", "pump", 2, klass="alarm")
        found = await made.drops()
    assert [(line.count, line.klass, line.reason, line.client) for line in found.lines] == [
        (7, "telemetry", "queue full", "pump"),
        (2, "alarm", "queue full", "pump"),
        (1, "telemetry", "too large", "lamp"),
    ]
    assert [(drop.reason, drop.count) for drop in found.total] == [("queue full", 9), ("too large", 1)]
    assert (found.matching, found.pending, found.counters) == (10, 4, {"limits": {"mqtt.connections": 2}})


async def test_reason_and_client_narrow_the_list_and_not_the_total(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for who in ("lamp", "pump"):
            for reason in ("queue full", "expired"):
                await made.lose(made.hot, reason, who)
        found = await made.drops(reason="expired", client="pump")
    assert [(line.reason, line.client) for line in found.lines] == [("expired", "pump")]
    assert found.matching == 1
    assert sum(drop.count for drop in found.total) == 4


async def test_since_leaves_out_what_is_older(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.lose(made.hot, "old", "pump")
        made.clock.mono_us += 3600 * SECOND
        await made.lose(made.hot, "new", "pump")
        assert [line.reason for line in (await made.drops(since_s=600)).lines] == ["new"]
        assert (await made.drops(since_s=7200)).matching == 2


async def test_since_reaches_over_a_reboot(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.lose(made.hot, "before", "pump")
        made.clock.boot, made.clock.wall_at_zero_us = 2, made.clock.wall_at_zero_us + DAY
        made.clock.mono_us = SECOND
        await made.lose(made.hot, "after", "pump")
        assert {line.reason for line in (await made.drops(since_s=86_400 * 2)).lines} == {"before", "after"}


async def test_numbered_losses_show_their_newest_ranges(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for n in range(RANGES + 5):
            gap = Gap("inbox", "a.test", 10 * n + 1, 10 * n + 2, 2, "full", "store", Stamp(1, DAY + n))
            await made.node.commit(lambda unit, gap=gap: unit.lose(gap))
        (line,) = (await made.drops()).lines
    assert (line.count, len(line.ranges), line.ranges[0]) == (2 * (RANGES + 5), RANGES, (241, 242))


async def test_the_list_is_bounded_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for n in range(5):
            await made.lose(made.hot, "no room", f"c{n}", n + 1)
        found = await made.drops(limit=2)
    assert [line.count for line in found.lines] == [5, 4]
    assert (found.more, found.matching) == (3, 15)


async def test_what_was_folded_away_is_still_in_the_total(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.lose(made.hot, "no room", "pump", 5)
        await made.hot.commit(lambda unit: ledger.prune(unit, 0, 0))
        found = await made.drops()
    assert found.lines == []
    assert [drop.count for drop in found.total] == [5]
