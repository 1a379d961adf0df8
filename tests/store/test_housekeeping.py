"""What a file does when nobody asks, and that an idle one does nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import cast

from edge.contract.time import SECOND
from edge.store import headroom, opening, writer
from edge.store.database import Database
from edge.store.housekeeping import IDLE_US, LONG_IDLE, MARK_US, SWEEP_US
from edge.store.marks import Marks
from tests.support.clock import FakeClock
from tests.support.store import database


async def settle(db: Database) -> None:
    """Let the writer and the threads that write marks come to rest."""
    await db.ping()
    for thread in threading.enumerate():
        if thread.name.startswith("mark-"):
            await asyncio.to_thread(thread.join)
    await db.ping()
    await db.ping()


async def append(db: Database, size: int = 1) -> None:
    await db.commit(lambda u: u.append("inbox", "a", [b"x" * size]))


async def test_after_30_idle_seconds_the_wal_is_in_the_database_and_later_empty(tmp_path: Path) -> None:
    clock, marks = FakeClock(), Marks(tmp_path / "incarnation")
    async with database(tmp_path, clock=clock, marks=marks) as db:
        await append(db, 50_000)
        clock.advance(IDLE_US)
        await settle(db)
        assert db.figures().checkpoints == 0
        clock.advance(IDLE_US)
        await settle(db)
        assert db.figures().checkpoints == 1
        assert (tmp_path / "node.db-wal").stat().st_size > 0
        for _ in range(LONG_IDLE):
            clock.advance(IDLE_US)
            await settle(db)
        assert db.figures().checkpoints == 2
        assert (tmp_path / "node.db-wal").stat().st_size == 0
        mark = marks.mark("node")
        assert mark is not None
        assert (mark.frames, mark.clean) == (0, False)


async def test_an_idle_file_has_no_timer_and_writes_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, clock=clock) as db:
        assert clock.next_timer() is None
        await append(db)
        for _ in range(LONG_IDLE + 5):
            clock.advance(IDLE_US)
            await settle(db)
        assert clock.next_timer() is None
        before = db.stats()
        clock.advance(24 * 3600 * SECOND)
        await settle(db)
        assert db.stats() == before
        await append(db)
        assert clock.next_timer() is not None


async def test_under_load_the_wal_goes_in_at_4_mib_without_waiting_for_idleness(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        while db.figures().checkpoints == 0:
            assert db.figures().wal_octets < headroom.CHECKPOINT_OCTETS
            await append(db, 200_000)
            await db.ping()
        assert (tmp_path / "node.db").stat().st_size > 3 << 20
        await append(db)
        await append(db)
        await db.ping()
        assert db.figures().wal_octets < 1 << 20


async def test_a_generation_is_committed_with_each_mark(tmp_path: Path) -> None:
    clock, marks = FakeClock(), Marks(tmp_path / "incarnation")
    async with database(tmp_path, clock=clock, marks=marks) as db:
        first = marks.mark("node")
        assert first is not None
        for _ in range(4):
            await append(db)
            clock.advance(IDLE_US)
            await settle(db)
        second = marks.mark("node")
        assert second is not None
        assert second.generation == first.generation + (4 * IDLE_US) // MARK_US
        [(stored,)] = await db.read(lambda u: u.run("SELECT value FROM meta WHERE name = 'generation'"))
        assert stored == second.generation
    last = marks.mark("node")
    assert last is not None
    assert last.clean


async def test_free_pages_are_given_back_a_few_at_a_time_when_there_are_many(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, clock=clock) as db:
        await append(db, 2 << 20)
        await db.commit(lambda u: u.log("inbox").evict("a", 0, "full"))
        free = "PRAGMA freelist_count"
        before = cast(int, (await db.read(lambda u: u.run(free)))[0][0])
        clock.advance(IDLE_US)
        await settle(db)
        clock.advance(IDLE_US)
        await settle(db)
        after = cast(int, (await db.read(lambda u: u.run(free)))[0][0])
        assert before > writer.FREE_PAGES
        assert after == before - 64


async def test_a_database_that_closes_has_no_timer_left(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, clock=clock) as db:
        await append(db)
    assert clock.next_timer() is None
    conn = opening.open_writer(tmp_path / "node.db")
    assert opening.get(conn, "generation") > 0
    conn.close()


async def test_while_there_is_work_keys_whose_time_is_over_are_swept_each_hour(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, clock=clock) as db:
        await db.commit(lambda u: u.keep("aun", "alice", "k", b"", b"", u.wall_us + SECOND))
        clock.advance(SWEEP_US)
        await settle(db)
        await append(db)
        clock.advance(IDLE_US)
        await settle(db)
        assert await db.read(lambda u: u.run("SELECT key FROM once")) == []
