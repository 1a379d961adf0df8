"""What a store does on a full disk: alarms from the reserve, the log's own room, and what is held back again later."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from edge.contract.errors import StorageFull
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.store import ballast as ballasts
from edge.store.database import Database
from edge.store.housekeeping import IDLE_US
from edge.store.marks import Marks
from edge.store.migration import statements
from edge.store.reserve import STEP_OCTETS, Reserve
from tests.support.clock import FakeClock
from tests.support.disk import fill
from tests.support.store import database
from tests.support.things import THING, add, things

WIDE = statements("node", "wide-001", "CREATE TABLE wide (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")


async def urgently(db: Database, n: int, octets: int = 10) -> BaseException | None:
    """One more thing as a unit and as a row, urgent; what came of it."""
    done: list[object] = []
    db.write(add(n), done.append, urgent=True)
    await db.ping()
    db.bulk("INSERT INTO wide (n, body) VALUES (?, ?)", [(n, bytes(octets))], done.append, urgent=True)
    await db.ping()
    failed = [one for one in done if isinstance(one, BaseException)]
    assert len(done) == 2
    return failed[0] if failed else None


async def test_a_full_disk_takes_what_is_urgent_as_long_as_the_reserve_lasts(small_disk: Path) -> None:
    clock, held = FakeClock(), Reserve(small_disk / "node.db", octets=32 * STEP_OCTETS)
    async with database(small_disk, clock=clock, extra=[THING, WIDE], reserve=held) as db:
        fill(small_disk / "other")
        with pytest.raises(StorageFull):
            await db.commit(lambda unit: unit.append("inbox", "a", [b"x" * 200_000]))
        taken = []
        for n in range(1, 1000):
            with pytest.raises(StorageFull):
                await db.commit(add(-n))
            if await urgently(db, n, 2000) is not None:
                break
            fill(small_disk / "other")
            taken.append(n)
        assert len(taken) > 20
        assert held.octets == 0
        assert db.read_only
        assert db.figures().from_reserve >= 2 * len(taken)
        assert set(taken) <= set(await db.read(things))
        (small_disk / "other").unlink()
        clock.advance(5 * SECOND)
        await db.ping()
        assert not db.read_only
        assert held.octets == 32 * STEP_OCTETS
        assert await db.commit(add(5000)) == 5000
    async with database(small_disk, clock=clock, extra=[THING, WIDE]) as again:
        assert (again.damage, set(taken) <= set(await again.read(things))) == ("", True)


def again(n: int) -> Callable[[Unit], None]:
    """The same row, changed: nothing grows but the log."""

    def work(unit: Unit) -> None:
        unit.run("UPDATE wide SET body = ? WHERE n = 1", (n.to_bytes(2000, "big"),))

    return work


async def test_the_log_does_not_use_the_reserve_up(small_disk: Path) -> None:
    """Its own room is used again; and it gives that back, or the reserve could not be had again."""
    async with database(small_disk, extra=[THING, WIDE]) as before:
        await before.commit(add(1))
    clock, held = FakeClock(), Reserve(small_disk / "node.db", octets=32 * STEP_OCTETS)
    marks = Marks(small_disk / "incarnation")
    async with database(small_disk, clock=clock, extra=[THING, WIDE], reserve=held, marks=marks) as db:
        await db.commit(lambda unit: unit.run("INSERT INTO wide (n, body) VALUES (1, x'00')"))
        await db.commit(lambda unit: unit.append("inbox", "a", [bytes(20_000)]))
        fill(small_disk / "other")
        with pytest.raises(StorageFull):
            await db.commit(lambda unit: unit.append("inbox", "a", [bytes(3_000_000)]))
        done: list[object] = []
        for n in range(1000):
            db.write(again(n), done.append, urgent=True)
            await db.ping()
        assert done == [None] * 1000
        assert db.figures().from_reserve == 1000
        assert 0 < 32 * STEP_OCTETS - held.octets <= 8 * STEP_OCTETS
        clock.advance(5 * SECOND)
        await db.ping()
        assert not db.read_only, "the room of the log is enough"
        assert held.octets == 32 * STEP_OCTETS
        assert marks.mark("node").frames == 0  # type: ignore[union-attr]
        await db.commit(again(5000))


async def test_a_full_disk_is_no_reason_to_refuse_what_finds_room_in_the_log(small_disk: Path) -> None:
    async with database(small_disk, extra=[WIDE]) as db:
        await db.commit(lambda unit: unit.run("INSERT INTO wide (n, body) VALUES (1, x'00')"))
        for n in range(20):
            await db.commit(again(n))
        fill(small_disk / "other")
        for n in range(500):
            await db.commit(again(n))
        assert not db.read_only


async def test_without_room_for_all_of_the_reserve_what_fits_into_the_files_is_taken_all_the_same(
    small_disk: Path,
) -> None:
    """Else nothing could be removed any more, and no room would ever come of it."""
    async with database(small_disk, extra=[THING, WIDE]) as before:
        await before.commit(add(1))
    clock, held = FakeClock(), Reserve(small_disk / "node.db", octets=32 * STEP_OCTETS)
    async with database(small_disk, clock=clock, extra=[THING, WIDE], reserve=held) as db:
        await db.commit(lambda unit: unit.run("INSERT INTO wide (n, body) VALUES (1, x'00')"))
        fill(small_disk / "other")
        with pytest.raises(StorageFull):
            await db.commit(lambda unit: unit.append("inbox", "a", [bytes(3_000_000)]))
        done: list[object] = []
        n = 1
        while held.octets > 24 * STEP_OCTETS and n < 60:
            n += 1
            rows = [(n, bytes(20_000))]
            db.bulk("INSERT INTO wide (n, body) VALUES (?, ?)", rows, done.append, urgent=True)
            await db.ping()
            fill(small_disk / "other")
        assert set(done) == {None}
        assert held.octets < 32 * STEP_OCTETS
        clock.advance(5 * SECOND)
        await db.ping()
        assert not db.read_only
        least = held.octets
        assert await db.commit(lambda unit: unit.run("DELETE FROM wide WHERE n = 2 RETURNING n")) != []
        assert await db.commit(lambda unit: unit.run("INSERT INTO wide (body) VALUES (zeroblob(9000)) RETURNING 1"))
        assert held.octets >= least
        with pytest.raises(StorageFull):
            await db.commit(lambda unit: unit.append("inbox", "a", [bytes(3_000_000)]))


async def test_what_is_not_urgent_does_not_grow_at_the_expense_of_the_reserve(small_disk: Path) -> None:
    """Although the log has room for it: bringing it in would need room that is held back for alarms."""
    clock, held = FakeClock(), Reserve(small_disk / "node.db", octets=32 * STEP_OCTETS)
    async with database(small_disk, clock=clock, extra=[THING, WIDE], reserve=held) as db:
        await db.commit(lambda unit: unit.run("INSERT INTO wide (n, body) VALUES (1, x'00')"))
        fill(small_disk / "other")
        with pytest.raises(StorageFull):
            await db.commit(lambda unit: unit.append("inbox", "a", [bytes(3_000_000)]))
        taken = 0
        for n in range(2, 100):
            clock.advance(5 * SECOND)
            await db.ping()
            with suppress(StorageFull):
                await db.commit(
                    lambda unit, n=n: unit.run("INSERT INTO wide (n, body) VALUES (?, zeroblob(9000))", (n,))
                )
                taken += 1
            assert await urgently(db, 1000 + n) is None
            fill(small_disk / "other")
        assert taken < 8
        assert held.octets > 16 * STEP_OCTETS


async def test_what_a_start_on_a_full_disk_used_up_is_held_back_again_once_there_is_room(small_disk: Path) -> None:
    """Without anybody committing anything."""
    async with database(small_disk, extra=[THING]) as db:
        await db.commit(add(1))
    fill(small_disk / "other")
    clock = FakeClock()
    async with database(small_disk, clock=clock, extra=[THING]) as db:
        ballast = small_disk / ".node.db.ballast"
        assert ballast.stat().st_size < ballasts.OCTETS
        clock.advance(IDLE_US)
        await db.ping()
        assert ballast.stat().st_size < ballasts.OCTETS
        (small_disk / "other").unlink()
        for _ in range(3):
            clock.advance(IDLE_US)
            await db.ping()
        assert ballast.stat().st_size == ballasts.OCTETS
        assert ballast.stat().st_blocks * 512 >= ballasts.OCTETS


async def test_a_disk_that_was_full_at_the_start_is_tried_again_by_itself(small_disk: Path) -> None:
    async with database(small_disk, extra=[THING]) as db:
        await db.commit(add(1))
    (small_disk / ".node.db.ballast").write_bytes(bytes(40_960))  # room for the index of the log, and no more
    fill(small_disk / "other")
    clock = FakeClock()
    async with database(small_disk, clock=clock, extra=[THING]) as db:
        assert db.read_only
        (small_disk / "other").unlink()
        clock.advance(5 * SECOND)
        await db.ping()
        assert not db.read_only
