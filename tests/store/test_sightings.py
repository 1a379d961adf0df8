"""Numbers that readers show, above the head of their log: what is believed, what it changes, and what it cannot do."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable
from pathlib import Path

import pytest

from edge.contract.errors import StorageFull
from edge.contract.limit import Limits
from edge.contract.store import INCARNATION_SHIFT
from edge.store import ledger
from edge.store.database import FORGOTTEN, Database
from edge.store.marks import Marks
from edge.store.sightings import DISTANCE, LAST, LEAP, SIGHTINGS, Sightings
from tests.support.store import database

BOB = "bob.edge.test"


def number(incarnation: int, counter: int) -> int:
    return (incarnation << INCARNATION_SHIFT) + counter


def append(db: Database, count: int = 1) -> Awaitable[int]:
    """Queued at once."""
    return db.commit(lambda u: u.append("inbox", BOB, [b"x"] * count))


def test_a_number_up_to_the_head_and_one_of_an_earlier_incarnation_ask_for_nothing() -> None:
    limits = Limits()
    seen = Sightings(Marks(incarnation=2), limits)
    assert not seen.believe(number(2, 7), number(2, 7), BOB)
    assert not seen.believe(number(1, 900), 5, BOB)
    assert not limits.hits
    assert seen.believe(number(2, 8), number(2, 7), BOB)


@pytest.mark.limit("numbers.sighting_distance", "numbers.sighting_leap", "numbers.sighting_last")
@pytest.mark.parametrize(
    ("seq", "limit"),
    [
        (number(1, 20 + 1), DISTANCE),  # far above the head 10
        (number(2, 10 + 1), DISTANCE),  # far above where the next incarnation begins
        (number(4, 1), LEAP),
        (number(6, 1), LAST),
        ((1 << 53) - 1, LEAP),  # "from the end", as clients write it
        (1_763_600_000_000, DISTANCE),  # a time
    ],
)
def test_what_is_too_far_above_is_counted_and_changes_nothing(seq: int, limit: object) -> None:
    ours = 5 if limit is LAST else 1
    limits = Limits({DISTANCE.name: 10, LEAP.name: 2, LAST.name: 6})
    assert not Sightings(Marks(incarnation=ours), limits).believe(seq, number(ours, 10), BOB)
    assert list(limits.hits.items()) == [(limit.name, 1)]  # type: ignore[attr-defined]


@pytest.mark.limit("numbers.sighting_distance", "numbers.sighting_leap", "numbers.sighting_last")
@pytest.mark.parametrize("seq", [number(1, 20), number(2, 10), number(3, 10)])
def test_up_to_each_bound_it_is_believed(seq: int) -> None:
    limits = Limits({DISTANCE.name: 10, LEAP.name: 2, LAST.name: 4})
    assert Sightings(Marks(incarnation=1), limits).believe(seq, number(1, 10), BOB)
    assert not limits.hits


@pytest.mark.limit("numbers.sightings")
def test_each_reader_is_believed_once_and_so_many_readers_in_a_run() -> None:
    limits, marks = Limits({SIGHTINGS.name: 2}), Marks()
    seen = Sightings(marks, limits)
    assert seen.believe(number(1, 1), 0, BOB)
    assert not seen.believe(number(2, 1), 0, BOB)
    assert seen.believe(number(3, 1), 0, "carol.edge.test")
    assert not seen.believe(number(4, 1), 0, "dave.edge.test")
    assert limits.hits == {SIGHTINGS.name: 2}
    assert Sightings(marks, limits).believe(number(4, 1), 0, "dave.edge.test")


def test_in_an_incarnation_that_began_so_nothing_was_forgotten() -> None:
    marks, limits = Marks(), Limits()
    seen = Sightings(marks, limits)
    marks.leap(0)
    assert not seen.believe(number(1, 50), number(1, 3), BOB)
    assert limits.hits == {SIGHTINGS.name: 1}
    assert seen.believe(number(2, 50), number(1, 3), BOB)


async def test_what_is_queued_after_it_has_a_new_incarnation_and_the_loss_is_declared(tmp_path: Path) -> None:
    marks = Marks.load(tmp_path / "incarnation")
    async with database(tmp_path, marks=marks) as db, database(tmp_path, "hot", marks=marks) as hot:
        assert await append(db, 3) == 3
        before = append(db)
        db.shown(9, 3, BOB)
        after = append(db)
        assert (await before, await after) == (4, number(1, 1))
        assert await append(hot) == number(1, 1)
        [gap] = await db.read(ledger.recent)
        assert (gap.log, gap.key, gap.count, gap.reason, gap.who) == ("*", "node", 1, FORGOTTEN, BOB)
        assert (db.doubt, db.incarnation) == (FORGOTTEN, 1)
        assert Marks.load(tmp_path / "incarnation").incarnation == 1
        db.shown(20, 3, "carol.edge.test")
        assert await append(db) == number(1, 2)
    async with database(tmp_path, marks=Marks.load(tmp_path / "incarnation")) as db:
        assert (await append(db), db.doubt) == (number(1, 3), "")


async def test_a_number_of_a_later_incarnation_is_left_below(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        db.shown(number(4, 17), 0, BOB)
        assert await append(db) == number(5, 1)


async def test_two_readers_at_once_are_one_leap(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        db.shown(9, 0, BOB)
        db.shown(12, 0, "carol.edge.test")
        assert await append(db) == number(1, 1)
        assert len(await db.read(ledger.drops)) == 1


async def test_a_crash_before_the_incarnation_file_is_written_shows_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "incarnation"
    async with database(tmp_path, marks=Marks.load(path)) as db:
        await append(db)
        file = path.read_bytes()
        db.shown(9, 1, BOB)
        assert await append(db) == number(1, 1)
        cut = tmp_path / "cut"
        cut.mkdir()
        for name in ("node.db", "node.db-wal"):
            shutil.copy(tmp_path / name, cut)
        (cut / "incarnation").write_bytes(file)
    async with database(cut, marks=Marks.load(cut / "incarnation")) as db:
        assert db.doubt == "the incarnation file is older than the database"
        assert await append(db) == number(2, 1)


async def test_an_incarnation_file_that_cannot_be_written_counts_in_memory(tmp_path: Path) -> None:
    async with database(tmp_path, marks=Marks(tmp_path / "nowhere" / "incarnation")) as db:
        db.shown(9, 0, BOB)
        assert await append(db) == number(1, 1)


async def test_a_store_that_cannot_write_believes_nothing_and_uses_nothing_up(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        await append(db)
        [(pages,)] = await db.commit(lambda u: u.run("PRAGMA page_count"))
        await db.commit(lambda u: u.run(f"PRAGMA max_page_count = {pages}"))
        with pytest.raises(StorageFull):
            await db.commit(lambda u: u.append("inbox", BOB, [b"x" * 5_000] * 50))
        db.shown(9, 1, BOB)
        assert (db.read_only, db.incarnation) == (True, 0)
        db.control(lambda writer: writer.conn.execute("PRAGMA max_page_count = 1000000").fetchall(), lambda done: None)
        db.control(lambda writer: writer.probe(), lambda done: None)
        await db.ping()
        db.shown(9, 1, BOB)
        assert await append(db) == number(1, 1)


async def test_a_leap_that_cannot_be_committed_changes_no_number(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        await append(db)
        db.control(lambda writer: writer.conn.execute("PRAGMA query_only = ON").fetchall(), lambda done: None)
        db.shown(9, 1, BOB)
        await db.ping()
        assert (db.read_only, db.incarnation) == (True, 0)
