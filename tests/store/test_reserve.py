"""Room held back for alarms: taken whole, given up in steps, and what the store does with it on a full disk."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.contract.errors import StorageFull
from edge.contract.time import SECOND
from edge.store.database import Database
from edge.store.migration import statements
from edge.store.reserve import STEP_OCTETS, Reserve
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
