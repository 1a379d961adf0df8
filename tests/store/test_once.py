"""The same key gets the same answer, in the same commit as the work, until its time is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.store import Unit
from edge.contract.time import SECOND, wall_us
from edge.store import once
from tests.support.clock import FakeClock
from tests.support.store import database


async def test_a_kept_answer_comes_back_for_its_caller_only(tmp_path: Path) -> None:
    clock = FakeClock()
    until = wall_us(clock) + 10 * SECOND
    async with database(tmp_path, clock=clock) as db:
        await db.commit(lambda u: u.keep("aun", "alice", "k", b"digest", b"answer", until))
        assert await db.commit(lambda u: u.once("aun", "alice", "k")) == (b"digest", b"answer")
        for who in (("aun", "bob", "k"), ("a2a", "alice", "k"), ("aun", "alice", "l")):
            assert await db.commit(lambda u, who=who: u.once(*who)) is None
        clock.advance(10 * SECOND)
        assert await db.read(lambda u: u.once("aun", "alice", "k")) == (b"digest", b"answer")
        clock.advance(1)
        assert await db.read(lambda u: u.once("aun", "alice", "k")) is None


async def test_an_answer_is_not_kept_when_the_work_failed(tmp_path: Path) -> None:
    def work(unit: Unit) -> None:
        unit.keep("aun", "alice", "k", b"d", b"a", unit.wall_us + SECOND)
        raise ValueError("no")

    async with database(tmp_path) as db:
        with pytest.raises(ValueError, match="no"):
            await db.commit(work)
        assert await db.read(lambda u: u.once("aun", "alice", "k")) is None


async def test_answers_whose_time_is_over_are_purged_a_few_at_a_time(tmp_path: Path) -> None:
    clock = FakeClock()
    now = wall_us(clock)
    async with database(tmp_path, clock=clock) as db:
        for n in range(5):
            await db.commit(lambda u, n=n: u.keep("aun", "a", str(n), b"", b"", now + n))
        clock.advance(4)
        await db.commit(lambda u: once.purge(u, 3))
        assert await db.read(lambda u: u.run("SELECT key FROM once ORDER BY key")) == [("3",), ("4",)]
        await db.commit(once.purge)
        assert await db.read(lambda u: u.run("SELECT key FROM once")) == [("4",)]
