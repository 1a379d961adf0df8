"""Room held back for alarms: taken whole, given up in steps, and what the store does with it on a full disk."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
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
from edge.store.room import free
from edge.store.schema import MIGRATIONS
from tests.support.clock import FakeClock
from tests.support.store import database
from tests.support.things import THING, add, things

WIDE = statements("node", "wide-001", "CREATE TABLE wide (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")


def test_it_is_held_whole_and_given_up_in_steps(tmp_path: Path) -> None:
    held = Reserve(tmp_path / "hot.db", octets=2 * STEP_OCTETS)
    assert held.octets == 0
    assert not held.give()
    assert held.hold()
    assert (tmp_path / ".hot.db.reserve").stat().st_blocks * 512 >= 2 * STEP_OCTETS
    assert [held.give(), held.octets, held.give(), held.octets, held.give()] == [True, STEP_OCTETS, True, 0, False]
    assert held.hold()
    assert held.octets == 2 * STEP_OCTETS
    assert held.give(STEP_OCTETS + 1)
    assert held.octets == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", folder]).returncode:
        pytest.skip("NOT RUN: cannot mount a small file system here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    with file.open("ab", buffering=0) as filler:
        for size in (1 << 16, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue


def test_without_room_for_all_of_it_what_was_held_stays(small_disk: Path) -> None:
    held = Reserve(small_disk / "hot.db", octets=4 * STEP_OCTETS)
    assert held.hold()
    assert held.give()
    fill(small_disk / "other")
    assert not held.hold()
    assert held.octets == 3 * STEP_OCTETS
    (small_disk / "other").unlink()
    assert held.hold()


def test_what_there_is_of_it_is_held_and_something_left_to_others(small_disk: Path) -> None:
    held = Reserve(small_disk / "hot.db", octets=8 * STEP_OCTETS)
    assert held.hold()
    assert held.give(6 * STEP_OCTETS)
    fill(small_disk / "other")
    held.hold_some(0)
    assert held.octets == 2 * STEP_OCTETS
    os.truncate(small_disk / "other", (small_disk / "other").stat().st_size - 5 * STEP_OCTETS)
    held.hold_some(2 * STEP_OCTETS)
    assert held.octets == 5 * STEP_OCTETS
    assert free(small_disk) >= 2 * STEP_OCTETS
    assert held.missing == 3 * STEP_OCTETS
    (small_disk / "other").unlink()
    held.hold_some(0)
    assert (held.octets, held.missing) == (8 * STEP_OCTETS, 0)


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
    db = Database(
        small_disk / "node.db",
        "node",
        clock,
        asyncio.get_running_loop(),
        migrations=[*MIGRATIONS, THING, WIDE],
        reserve=held,
    )
    await db.open()
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
    await db.close()
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
    db = Database(
        small_disk / "node.db",
        "node",
        clock,
        asyncio.get_running_loop(),
        migrations=[*MIGRATIONS, THING, WIDE],
        reserve=held,
        marks=marks,
    )
    await db.open()
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
    await db.close()


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
    db = Database(
        small_disk / "node.db",
        "node",
        clock,
        asyncio.get_running_loop(),
        migrations=[*MIGRATIONS, THING, WIDE],
        reserve=held,
    )
    await db.open()
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
    await db.close()


async def test_what_is_not_urgent_does_not_grow_at_the_expense_of_the_reserve(small_disk: Path) -> None:
    """Although the log has room for it: bringing it in would need room that is held back for alarms."""
    clock, held = FakeClock(), Reserve(small_disk / "node.db", octets=32 * STEP_OCTETS)
    db = Database(
        small_disk / "node.db",
        "node",
        clock,
        asyncio.get_running_loop(),
        migrations=[*MIGRATIONS, THING, WIDE],
        reserve=held,
    )
    await db.open()
    await db.commit(lambda unit: unit.run("INSERT INTO wide (n, body) VALUES (1, x'00')"))
    fill(small_disk / "other")
    with pytest.raises(StorageFull):
        await db.commit(lambda unit: unit.append("inbox", "a", [bytes(3_000_000)]))
    taken = 0
    for n in range(2, 100):
        clock.advance(5 * SECOND)
        await db.ping()
        with suppress(StorageFull):
            await db.commit(lambda unit, n=n: unit.run("INSERT INTO wide (n, body) VALUES (?, zeroblob(9000))", (n,)))
            taken += 1
        assert await urgently(db, 1000 + n) is None
        fill(small_disk / "other")
    assert taken < 8
    assert held.octets > 16 * STEP_OCTETS
    await db.close()


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
