"""What a unit of work knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.time import SECOND
from tests.support.clock import FakeClock
from tests.support.store import database


async def test_a_unit_is_over_when_its_work_returns(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        unit = await db.commit(lambda u: u)
        with pytest.raises(RuntimeError, match="over"):
            unit.run("SELECT 1")


async def test_a_unit_knows_when_it_was_handed_over(tmp_path: Path) -> None:
    clock = FakeClock(mono_us=77 * SECOND)
    async with database(tmp_path, clock=clock) as db:
        at, wall = await db.commit(lambda u: (u.at, u.wall_us))
        assert (at, wall) == (clock.now(), clock.wall(clock.now())[0])


async def test_a_text_that_is_damaged_is_read_as_far_as_it_goes_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One flipped bit in a name kept the node from starting."""
    async with database(tmp_path) as db:
        for ask in (db.read, db.commit):
            found = await ask(lambda u: u.run("SELECT 'leaf' AS name UNION ALL SELECT CAST(x'66ff72' AS TEXT)"))
            assert found == [("leaf",), ("f\ufffdr",)]
        assert caplog.text.count("a stored text is damaged and read as far as it goes") == 2
