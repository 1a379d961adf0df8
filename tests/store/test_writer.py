"""The writer thread: what is one commit, what it counts, what a full disk does."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import StorageFull
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.store.database import Database
from edge.store.migration import statements
from tests.support.clock import FakeClock
from tests.support.store import database
from tests.support.things import ADD, THING, Held, add, things


async def test_what_gathers_while_a_commit_runs_is_one_commit(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        with Held(db):
            waiting = [db.commit(add(n)) for n in range(50)]
        assert await asyncio.gather(*waiting) == list(range(50))
        assert db.figures().commits == 1
        assert db.figures().units == 50


async def test_a_full_file_makes_the_store_read_only_until_there_is_room(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, clock=clock, extra=[THING]) as db:
        await db.commit(add(1))
        await _quota(db, pages=0)
        big = b"x" * 50_000
        failed = db.commit(lambda u: u.append("inbox", "a", [big]))
        late = db.commit(add(2))
        with pytest.raises(StorageFull):
            await failed
        with pytest.raises(StorageFull):
            await late
        assert db.read_only
        assert await db.read(things) == [1]
        rows: list[BaseException | None] = []
        db.bulk(ADD, [(3,)], rows.append)
        await db.ping()
        assert isinstance(rows[0], StorageFull)
        await _quota(db, pages=100_000)
        clock.advance(5 * SECOND)
        await db.ping()
        assert not db.read_only
        await db.commit(add(4))
        assert await db.read(things) == [1, 4]
        assert db.figures().failed_commits == 1


async def _quota(db: Database, pages: int) -> None:
    """Give the file room for `pages` pages, or for what it has and not one more."""
    done = asyncio.Event()

    def limit(writer: Any) -> None:
        writer.conn.execute(f"PRAGMA max_page_count = {pages or 1}")

    db.control(limit, lambda result: done.set())
    await done.wait()


async def test_figures_tell_of_commits_rows_and_the_wal(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        db.bulk(ADD, [(n,) for n in range(10)], lambda error: None)
        await db.commit(add(99))
        await db.ping()  # how long the log is, is looked at after it was told
        stats = db.stats()
        assert (stats["rows"], stats["units"], stats["read_only"], stats["pending"]) == (10, 1, 0, 0)
        assert stats["wal_octets"] > 0
        assert stats["last_commit_us"] > 0


async def test_one_reading_in_a_commit_is_one_wal_frame(tmp_path: Path) -> None:
    """Design §9: at most 5 KB written for a QoS 1 reading."""
    table = statements("hot", "r", "CREATE TABLE r (seq INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")
    async with database(tmp_path, "hot", extra=[table]) as db:
        frames = []
        for n in range(100):
            done = asyncio.Event()
            before = db.figures().wal_octets
            db.bulk("INSERT INTO r (seq, body) VALUES (?, ?)", [(n, b"x" * 200)], lambda error, done=done: done.set())
            await done.wait()
            await db.ping()
            frames.append((db.figures().wal_octets - before) // 4120)
    frames = frames[1:]
    assert sorted(frames)[len(frames) // 2] == 1
    assert sum(frames) * 4120 / len(frames) <= 5_000


async def test_a_lock_held_by_another_program_stops_writes_until_it_is_gone(tmp_path: Path) -> None:
    clock = FakeClock()
    other = sqlite3.connect(tmp_path / "node.db", isolation_level=None)
    async with database(tmp_path, clock=clock, extra=[THING]) as db:
        db.control(lambda writer: writer.conn.execute("PRAGMA busy_timeout = 20").fetchall(), lambda result: None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageFull):
            await db.commit(add(1))
        assert db.read_only
        other.execute("ROLLBACK")
        clock.advance(5 * SECOND)
        await db.ping()
        assert await db.commit(add(1)) == 1
    other.close()


async def test_a_unit_that_hides_a_full_file_does_not_get_an_ack(tmp_path: Path) -> None:
    def hide(unit: Unit) -> str:
        try:
            unit.append("inbox", "a", [b"x" * 50_000])
        except sqlite3.Error:
            return "all is well"
        return "it fits"

    async with database(tmp_path, extra=[THING]) as db:
        await _quota(db, pages=0)
        with pytest.raises(StorageFull):
            await db.commit(hide)
