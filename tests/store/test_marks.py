"""Numbers never go back: what the incarnation file notices at start, through real files that lost something."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edge.contract.store import INCARNATION_SHIFT
from edge.store import ledger
from edge.store.connection import FRAME
from edge.store.database import Database
from edge.store.marks import Found, Mark, Marks
from edge.store.wal import State
from tests.support.clock import FakeClock
from tests.support.store import database


@asynccontextmanager
async def node(folder: Path, clock: FakeClock | None = None) -> AsyncIterator[tuple[Database, Marks]]:
    """One start and clean stop of a node with its incarnation file."""
    marks = Marks.load(folder / "incarnation")
    async with database(folder, marks=marks, clock=clock) as db:
        yield db, marks


def power_cut(source: Path, target: Path) -> Path:
    """Copy the files as they lie while the node runs: what a power cut or a kill leaves."""
    target.mkdir()
    for file in source.iterdir():
        if file.is_file() and not file.name.endswith("-shm"):
            shutil.copy(file, target)
    return target


async def append(db: Database, *bodies: bytes) -> int:
    return await db.commit(lambda u: u.append("inbox", "a", bodies))


async def test_a_first_start_is_incarnation_0_and_its_first_number_is_1(tmp_path: Path) -> None:
    async with node(tmp_path) as (db, marks):
        assert await append(db, b"x") == 1
        assert (marks.incarnation, db.incarnation, db.doubt) == (0, 0, "")


async def test_a_clean_stop_and_start_goes_on_in_the_same_incarnation(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        async with node(tmp_path) as (db, marks):
            assert await append(db, b"x") == expected
            assert marks.incarnation == 0


async def test_a_kill_goes_on_in_the_same_incarnation(tmp_path: Path) -> None:
    async with node(tmp_path) as (db, _):
        await append(db, b"x", b"y")
        left = power_cut(tmp_path, tmp_path / "cut")
    async with node(left) as (db, marks):
        assert (marks.incarnation, db.doubt) == (0, "")
        assert await append(db, b"z") == 3


async def test_a_wal_that_is_gone_after_a_kill_raises_the_incarnation(tmp_path: Path) -> None:
    async with node(tmp_path) as (db, _):
        await append(db, b"x", b"y")
        left = power_cut(tmp_path, tmp_path / "cut")
    (left / "node.db-wal").unlink()
    async with node(left) as (db, marks):
        assert marks.incarnation == 1
        assert db.doubt
        assert await append(db, b"z") == (1 << INCARNATION_SHIFT) + 1
        [lost] = await db.read(ledger.drops)
        assert (lost.log, lost.reason) == ("*", db.doubt)
    async with node(left) as (db, marks):
        assert marks.incarnation == 1
        assert await append(db, b"z") == (1 << INCARNATION_SHIFT) + 2


async def test_a_wal_that_lost_its_end_raises_the_incarnation(tmp_path: Path) -> None:
    clock = FakeClock()
    async with node(tmp_path, clock) as (db, _):
        await append(db, b"x" * 9000)
        left = power_cut(tmp_path, tmp_path / "cut")
        marked = _marks_of(left)["node"]
    whole = (left / "node.db-wal").read_bytes()
    (left / "node.db-wal").write_bytes(whole[: 32 + 4120 * (marked.frames - 1)])
    async with node(left) as (db, marks):
        assert marks.incarnation == 1
        assert db.doubt


async def test_an_older_copy_of_the_file_raises_the_incarnation(tmp_path: Path) -> None:
    async with node(tmp_path) as (db, _):
        await append(db, b"x")
    old = (tmp_path / "node.db").read_bytes()
    async with node(tmp_path) as (db, _):
        assert await append(db, b"y") == 2
    (tmp_path / "node.db").write_bytes(old)
    async with node(tmp_path) as (db, marks):
        assert (marks.incarnation, db.doubt) == (1, "the file is behind its mark")
        assert await append(db, b"z") == (1 << INCARNATION_SHIFT) + 1


async def test_a_file_that_is_gone_raises_the_incarnation(tmp_path: Path) -> None:
    async with node(tmp_path) as (db, _):
        await append(db, b"x")
    (tmp_path / "node.db").unlink()
    async with node(tmp_path) as (db, marks):
        assert (marks.incarnation, db.doubt) == (1, "the file is behind its mark")


async def test_an_incarnation_file_that_is_gone_or_damaged_raises_the_incarnation(tmp_path: Path) -> None:
    async with node(tmp_path) as (db, _):
        await append(db, b"x")
    (tmp_path / "incarnation").unlink()
    async with node(tmp_path) as (db, marks):
        assert marks.incarnation == 1
    (tmp_path / "incarnation").write_bytes(b"{")
    async with node(tmp_path) as (db, marks):
        assert marks.incarnation == 2
        assert (tmp_path / "incarnation.damaged").read_bytes() == b"{"
        assert await append(db, b"y") == (2 << INCARNATION_SHIFT) + 1


async def test_the_other_file_of_the_node_takes_the_new_incarnation_too(tmp_path: Path) -> None:
    async with node(tmp_path), database(tmp_path, "hot"):
        pass
    marks = Marks.load(tmp_path / "incarnation")
    async with database(tmp_path, "node", marks=marks) as first, database(tmp_path, "hot", marks=marks) as second:
        marks.bump()
        assert await append(first, b"x") == await append(second, b"x") == (1 << INCARNATION_SHIFT) + 1


async def test_a_number_above_our_head_bumps_to_above_it(tmp_path: Path) -> None:
    async with node(tmp_path) as (db, marks):
        await append(db, b"x")
        assert marks.bump(at_least=4) == 5
        assert await append(db, b"y") == (5 << INCARNATION_SHIFT) + 1
    assert Marks.load(tmp_path / "incarnation").incarnation == 5


async def test_marks_are_written_under_load_at_most_once_a_minute(tmp_path: Path) -> None:
    clock = FakeClock()
    async with node(tmp_path, clock) as (db, _):
        before = _marks_of(tmp_path)["node"]
        seen = {before.generation}
        for _ in range(8):
            await append(db, b"x")
            clock.advance(20_000_000)
            await db.ping()
            await _mark_threads()
            seen.add(_marks_of(tmp_path)["node"].generation)
        assert len(seen) == 3
        assert _marks_of(tmp_path)["node"].frames > before.frames


async def test_an_unwritable_incarnation_file_does_not_stop_the_start(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "nowhere" / "incarnation")
    async with database(tmp_path, marks=marks) as db:
        assert await append(db, b"x") == 1


def test_each_boot_has_a_number_of_its_own_and_a_restart_in_it_has_the_same(tmp_path: Path) -> None:
    path = tmp_path / "incarnation"
    assert Marks.load(path).begin_boot("a") == 1
    assert Marks.load(path).begin_boot("a") == 1
    assert Marks.load(path).begin_boot("b") == 2
    assert Marks.load(path).begin_boot("") == 3
    assert Marks.load(path).begin_boot("") == 4


S = State(b"\x01" * 8, 10)


@pytest.mark.parametrize(
    ("found", "doubt"),
    [
        (Found(5, 0, S, True), ""),
        (Found(6, 0, State(b"\x02" * 8, 1), True), ""),
        (Found(4, 0, S, True), "the file is behind its mark"),
        (Found(5, 1, S, True), "the incarnation file is older than the database"),
        (Found(5, 0, S, True, 2), "its WAL is damaged"),
        (Found(5, 0, S, False), "its WAL is gone"),
        (Found(5, 0, State(b"", 0), True), "its WAL is empty"),
        (Found(5, 0, State(b"\x01" * 8, 9), True), "its WAL is shorter than marked"),
    ],
)
def test_what_raises_a_doubt_after_an_unclean_stop(found: Found, doubt: str) -> None:
    marks = Marks()
    marks.put("node", Mark(5, "01" * 8, 10))
    assert marks.doubt("node", found) == doubt


def test_after_a_clean_stop_only_the_generation_counts() -> None:
    marks = Marks()
    marks.put("node", Mark(5, clean=True))
    assert marks.doubt("node", Found(5, 0, State(b"", 0), False)) == ""
    assert marks.doubt("node", Found(4, 0, State(b"", 0), False)) == "the file is behind its mark"


def _marks_of(folder: Path) -> dict[str, Mark]:
    return Marks.load(folder / "incarnation")._record.marks


async def _mark_threads() -> None:
    """Let the thread that writes a mark come to its end."""
    import threading

    for thread in threading.enumerate():
        if thread.name.startswith("mark-"):
            await asyncio.to_thread(thread.join)


async def test_commits_that_a_damaged_log_hides_are_declared_once_and_their_numbers_never_come_again(
    tmp_path: Path,
) -> None:
    """SQLite takes the damaged frame for the end of the log and says ok; no mark was written since."""
    source = tmp_path / "source"
    source.mkdir()
    async with node(source) as (db, _):
        for _ in range(6):
            await append(db, b"x" * 300)
        left = power_cut(source, tmp_path / "left")
    log = left / "node.db-wal"
    content = bytearray(log.read_bytes())
    content[-5 * FRAME] ^= 1
    log.write_bytes(content)
    async with node(left) as (db, marks):
        assert (db.doubt, marks.incarnation) == ("its WAL is damaged", 1)
        assert await append(db, b"y") > 1 << INCARNATION_SHIFT
        assert [drop.reason for drop in await db.read(ledger.drops)] == ["its WAL is damaged"]
        again = power_cut(left, tmp_path / "again")
    [folder] = (left / "quarantine").iterdir()
    assert (folder / "node.db-wal").read_bytes() == content
    async with node(again) as (db, marks):
        assert (db.doubt, marks.incarnation) == ("", 1)


async def test_a_damaged_log_that_the_database_has_all_of_costs_nothing(tmp_path: Path) -> None:
    """So an idle node's is: a kill, a flipped bit, and all that was said to be on disk is there."""
    source, left = tmp_path / "source", tmp_path / "left"
    source.mkdir()
    async with node(source) as (db, _):
        for number in range(6):
            assert await append(db, b"x" * 300) == number + 1
        done = asyncio.get_running_loop().create_future()
        db.control(lambda writer: writer.checkpoint("PASSIVE"), done.set_result)
        assert await done is None
        power_cut(source, left)
        shutil.copy(source / "node.db-shm", left)
    log = left / "node.db-wal"
    content = bytearray(log.read_bytes())
    content[-5 * FRAME] ^= 1
    log.write_bytes(content)
    async with node(left) as (db, marks):
        assert (db.doubt, marks.incarnation) == ("", 0)
        assert await append(db, b"y") == 7
        assert await db.read(ledger.drops) == []
    [folder] = (left / "quarantine").iterdir()
    assert (folder / "node.db-wal").read_bytes() == content
