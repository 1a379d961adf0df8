"""What is given up in the loop is in the ledger within seconds, and a store that fails makes nobody forget it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import StorageFull
from edge.contract.time import SECOND
from edge.store import ledger
from edge.store.database import Database
from edge.store.ledger import Drop
from edge.store.losses import FLUSH_US, KEYS, Losses
from tests.support.clock import FakeClock
from tests.support.store import database


class Broken:
    """A store whose medium takes nothing until `mended`."""

    def __init__(self, db: Database) -> None:
        self._db, self.mended = db, False

    def write(self, work: Callable[[Any], Any], done: Callable[[Any], None], *, urgent: bool = False) -> None:
        if self.mended:
            self._db.write(work, done, urgent=urgent)
        else:
            done(StorageFull())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


async def test_losses_are_written_together_within_seconds(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, "hot", clock) as db:
        losses = Losses(db, clock)
        for _ in range(5):
            losses.note("telemetry", "no room", "pump")
        losses.note("alarm", "queue full", "lamp", 2)
        units = db.figures().units
        assert losses.pending == 7
        clock.advance(FLUSH_US)
        await db.commit(lambda unit: None)
        assert losses.pending == 0
        assert db.figures().units == units + 2
        lines = {(gap.key, gap.reason, gap.who): gap.count for gap in await db.read(ledger.recent)}
        assert lines == {("telemetry", "no room", "pump"): 5, ("alarm", "queue full", "lamp"): 2}


async def test_minutes_are_told_apart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, "hot", clock) as db:
        losses = Losses(db, clock)
        losses.note("state", "no room", "pump")
        clock.mono_us += 60 * SECOND
        losses.note("state", "no room", "pump")
        losses.flush()
        await db.commit(lambda unit: None)
        minutes = [gap.at.mono_us // ledger.MINUTE for gap in await db.read(ledger.recent)]
        assert minutes == [1, 0]


async def test_what_a_failing_store_refuses_is_kept_and_tried_again(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, "hot", clock) as db:
        store = Broken(db)
        losses = Losses(store, clock)
        losses.note("telemetry", "no room", "pump", 3)
        clock.advance(FLUSH_US)
        losses.note("telemetry", "no room", "pump")
        assert losses.pending == 4
        store.mended = True
        clock.advance(FLUSH_US)
        await db.commit(lambda unit: None)
        assert losses.pending == 0
        assert await db.read(ledger.drops) == [Drop("mqtt", "no room", 4)]


async def test_the_last_flush_is_part_of_an_orderly_end(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, "hot", clock) as db:
        losses = Losses(db, clock)
        losses.note("telemetry", "no room", "pump")
        losses.stop()
    async with database(tmp_path, "hot", clock) as db:
        assert await db.read(ledger.drops) == [Drop("mqtt", "no room", 1)]


async def test_what_the_store_refuses_at_the_end_is_told_to_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with database(tmp_path, "hot", clock) as db:
        losses = Losses(Broken(db), clock)
        losses.note("alarm", "no room", "pump", 3)
        with caplog.at_level(logging.ERROR):
            losses.stop()
        assert "not in the ledger: 3 x mqtt alarm, no room of pump" in caplog.text
        assert losses.pending == 3


async def test_a_flood_of_names_is_bounded_and_its_sum_is_right(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, "hot", clock) as db:
        losses = Losses(db, clock)
        for number in range(KEYS + 50):
            losses.note("telemetry", "refused", f"client-{number}")
        losses.flush()
        await db.commit(lambda unit: None)
        gaps = await db.read(lambda unit: ledger.recent(unit, 2 * KEYS))
        assert len(gaps) == KEYS + 1
        assert {gap.count for gap in gaps if gap.who == "*"} == {50}
        assert await db.read(ledger.drops) == [Drop("mqtt", "refused", KEYS + 50)]
