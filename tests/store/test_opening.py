"""It always starts: damaged files are put aside and named, a full disk does not keep the node down."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from edge.contract.errors import StorageFull
from edge.contract.store import INCARNATION_SHIFT
from edge.contract.time import SECOND
from edge.store import ballast, ledger, opening
from edge.store.marks import Marks
from tests.support import disk
from tests.support.clock import FakeClock
from tests.support.store import database
from tests.support.things import THING, add, things


async def fill(folder: Path, rows: int = 400) -> None:
    async with database(folder, marks=Marks.load(folder / "incarnation")) as db:
        await db.commit(lambda u: u.append("inbox", "a", [b"x" * 500] * rows))


def damage(file: Path) -> None:
    """Overwrite the pages that hold rows."""
    content = file.read_bytes()
    pages = [content[start : start + 4096] for start in range(0, len(content), 4096)]
    file.write_bytes(b"".join(b"\xaa" * 4096 if b"x" * 400 in page else page for page in pages))


async def test_a_file_that_is_no_database_is_quarantined_and_a_fresh_one_begins(tmp_path: Path) -> None:
    await fill(tmp_path)
    damaged = os.urandom(40_000)
    (tmp_path / "node.db").write_bytes(damaged)
    async with database(tmp_path, marks=Marks.load(tmp_path / "incarnation")) as db:
        assert db.damage == "file is not a database"
        assert await db.commit(lambda u: u.append("inbox", "a", [b"y"])) == (1 << INCARNATION_SHIFT) + 1
        assert [drop.reason for drop in await db.read(ledger.drops)] == [db.damage]
    [folder] = (tmp_path / "quarantine").iterdir()
    assert folder.name.startswith("node-1-")
    assert (folder / "node.db").read_bytes() == damaged


async def test_damage_inside_is_found_after_an_unclean_stop(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with database(tmp_path, marks=Marks.load(tmp_path / "incarnation")):
        left = shutil.copytree(tmp_path, tmp_path / "left", ignore=shutil.ignore_patterns("left", "*-shm"))
    damage(left / "node.db")
    async with database(left, marks=Marks.load(left / "incarnation")) as db:
        assert db.damage
        assert db.incarnation == 1
        assert await db.read(lambda u: u.log("inbox").after("a", 0, 1, 1)) == []
    assert len(list((left / "quarantine").iterdir())) == 1


async def test_damage_met_while_running_makes_it_read_only_and_the_next_start_looks_thoroughly(tmp_path: Path) -> None:
    await fill(tmp_path)
    damage(tmp_path / "node.db")
    async with database(tmp_path, marks=Marks.load(tmp_path / "incarnation")) as db:
        assert not db.damage
        with pytest.raises((sqlite3.DatabaseError, StorageFull)):
            await db.commit(lambda u: u.run("UPDATE log_row SET body = zeroblob(900)"))
        assert db.read_only
    async with database(tmp_path, marks=Marks.load(tmp_path / "incarnation")) as db:
        assert db.damage
        assert not db.read_only


async def test_damage_met_by_a_read_stops_the_writes_too(tmp_path: Path) -> None:
    await fill(tmp_path)
    damage(tmp_path / "node.db")
    async with database(tmp_path, marks=Marks.load(tmp_path / "incarnation")) as db:
        with pytest.raises(sqlite3.DatabaseError):
            await db.read(lambda u: u.run("SELECT count(*) FROM log_row WHERE body > x'00'"))
        await db.ping()
        assert db.read_only


async def test_two_damaged_files_of_one_moment_get_two_folders(tmp_path: Path) -> None:
    for expected in ("x-s", "x-s-2"):
        (tmp_path / "x.db").write_bytes(b"x")
        assert opening.put_aside(tmp_path / "x.db", tmp_path / "q", "s").name == expected


async def test_a_sound_file_is_left_alone(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with database(tmp_path, marks=Marks.load(tmp_path / "incarnation")) as db:
        assert (db.damage, db.doubt) == ("", "")
    assert not (tmp_path / "quarantine").exists()


async def test_a_full_disk_stops_writes_not_reads_and_room_brings_them_back(small_disk: Path) -> None:
    clock = FakeClock()
    async with database(small_disk, clock=clock, extra=[THING]) as db:
        await db.commit(add(1))
        disk.fill(small_disk / "other")
        with pytest.raises(StorageFull):
            await db.commit(lambda u: u.append("inbox", "a", [b"x" * 2_000_000]))
        assert db.read_only
        assert await db.read(things) == [1]
        (small_disk / "other").unlink()
        clock.advance(5 * SECOND)
        await db.ping()
        assert not db.read_only
        assert await db.commit(add(2)) == 2
    async with database(small_disk, clock=clock, extra=[THING]) as db:
        assert await db.read(things) == [1, 2]


async def test_a_node_starts_on_a_disk_without_any_room(small_disk: Path) -> None:
    async with database(small_disk, extra=[THING]) as db:
        await db.commit(add(1))
    disk.fill(small_disk / "other")
    async with database(small_disk, extra=[THING]) as db:
        assert await db.read(things) == [1]
        assert await db.commit(add(2)) == 2
        left = (small_disk / ".node.db.ballast").stat().st_size
        assert ballast.OCTETS - 4 * ballast.STEP_OCTETS <= left < ballast.OCTETS


async def test_starts_and_stops_on_a_full_disk_do_not_use_the_ballast_up(small_disk: Path) -> None:
    """Although somebody takes whatever room there is each time; and no orderly stop is taken for a loss."""
    marks = Marks(small_disk / "incarnation")
    async with database(small_disk, extra=[THING], marks=marks) as db:
        await db.commit(add(1))
    for n in range(2, 42):
        disk.fill(small_disk / "other")
        async with database(small_disk, extra=[THING], marks=marks) as db:
            assert (db.damage, db.doubt) == ("", "")
            with suppress(StorageFull):
                await db.commit(add(n))
    left = (small_disk / ".node.db.ballast").stat().st_size
    assert left > ballast.OCTETS // 2


async def test_damage_that_only_the_first_questions_find_is_no_reason_not_to_start(tmp_path: Path) -> None:
    await fill(tmp_path, rows=4)
    file = tmp_path / "node.db"
    with sqlite3.connect(file) as conn:
        [(page,)] = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = 'migration'")
    conn.close()
    content = bytearray(file.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xaa" * 4096
    file.write_bytes(content)
    marks = Marks.load(tmp_path / "incarnation")
    assert marks.mark("node").clean  # type: ignore[union-attr]
    async with database(tmp_path, marks=marks) as db:
        assert db.damage
        assert db.incarnation == 1
        assert await db.commit(lambda u: u.append("inbox", "a", [b"y"])) == (1 << INCARNATION_SHIFT) + 1
    [folder] = (tmp_path / "quarantine").iterdir()
    assert (folder / "node.db").read_bytes()[(page - 1) * 4096 : page * 4096] == b"\xaa" * 4096
