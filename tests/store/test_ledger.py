"""What was lost is told: exactly where it had numbers, by the minute where it had none, and never forgotten."""

from __future__ import annotations

from pathlib import Path

from edge.contract.gap import Gap
from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.store import ledger
from edge.store.ledger import Drop
from tests.support.store import database


def numbered(first: int, last: int, mono_us: int = 0) -> Gap:
    return Gap("inbox", "a", first, last, last - first + 1, "full", "store", Stamp(1, mono_us))


def refused(topic: str, count: int = 1, minute: int = 0, who: str = "x") -> Gap:
    return Gap("publish", topic, 0, 0, count, "too large", who, Stamp(1, minute * ledger.MINUTE + 5))


async def test_a_gap_with_numbers_is_kept_exactly(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        await db.commit(lambda u: (u.lose(numbered(11, 12)), u.lose(numbered(1, 10))))
        assert await db.read(lambda u: ledger.gaps(u, "inbox", "a")) == [numbered(1, 10), numbered(11, 12)]
        assert await db.read(lambda u: ledger.gaps(u, "inbox", "a", after=10)) == [numbered(11, 12)]
        assert await db.read(ledger.drops) == [Drop("inbox", "full", 12)]


async def test_what_had_no_number_is_counted_by_class_of_key_and_minute(tmp_path: Path) -> None:
    def work(unit: Unit) -> None:
        for topic in ("s/1", "s/2/x", "t"):
            unit.lose(refused(topic, 2))
        unit.lose(refused("s/1", minute=1))

    async with database(tmp_path) as db:
        await db.commit(work)
        recent = await db.read(ledger.recent)
    seen = sorted((gap.at.mono_us // ledger.MINUTE, gap.key, gap.count) for gap in recent)
    assert seen == [(0, "s", 4), (0, "t", 2), (1, "s", 1)]


async def test_a_flood_of_different_keys_does_not_grow_the_ledger(tmp_path: Path) -> None:
    def flood(unit: Unit) -> None:
        for n in range(1000):
            unit.lose(refused(f"attack-{n}/x"))

    async with database(tmp_path) as db:
        await db.commit(flood)
        recent = await db.read(ledger.recent)
        assert len(recent) == ledger.KEY_CLASSES + 1
        assert {gap.count for gap in recent if gap.key == "*"} == {1000 - ledger.KEY_CLASSES}
        assert await db.read(ledger.drops) == [Drop("publish", "too large", 1000)]


async def test_pruning_keeps_the_sums_and_the_newest(tmp_path: Path) -> None:
    def work(unit: Unit) -> None:
        for n in range(10):
            unit.lose(numbered(n + 1, n + 1, n))
            unit.lose(refused("s", minute=n))

    async with database(tmp_path) as db:
        await db.commit(work)
        before = await db.read(ledger.drops)
        assert await db.commit(lambda u: ledger.prune(u, 3, 4)) == 7 + 6
        assert await db.read(ledger.drops) == before == [Drop("inbox", "full", 10), Drop("publish", "too large", 10)]
        assert [gap.first for gap in await db.read(lambda u: ledger.gaps(u, "inbox", "a"))] == [8, 9, 10]
        assert await db.commit(lambda u: ledger.prune(u, 3, 4)) == 0


async def test_a_gap_is_declared_only_if_its_unit_stands(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        db.write(lambda u: (u.lose(numbered(1, 1)), 1 // 0), lambda result: None)
        await db.ping()
        assert await db.read(ledger.drops) == []


def test_a_key_class_is_the_first_level_and_short() -> None:
    assert ledger.key_class("a/b/c") == "a"
    assert ledger.key_class("") == ""
    assert len(ledger.key_class("x" * 100)) == 48
