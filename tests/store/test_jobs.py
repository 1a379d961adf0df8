"""Units and rows of one commit: what is rolled back with whom, and in which order they run."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from edge.contract.store import Unit
from edge.store.connection import open_writer
from edge.store.jobs import BulkJob, Savepoints, UnitJob
from edge.store.marks import Marks
from tests.support.clock import FakeClock
from tests.support.store import database
from tests.support.things import ADD, THING, Held, add, things


async def test_a_failing_unit_is_rolled_back_alone(tmp_path: Path) -> None:
    heard: list[int] = []
    called: list[int] = []

    def bad(unit: Unit) -> None:
        unit.after(lambda: called.append(2))
        add(2)(unit)
        raise ValueError("no")

    async with database(tmp_path, extra=[THING], fanout=lambda e: heard.append(e.seq)) as db:
        with Held(db):
            waiting = [db.commit(add(1)), db.commit(bad), db.commit(add(3))]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [results[0], results[2]] == [1, 3]
        assert isinstance(results[1], ValueError)
        assert await db.read(things) == [1, 3]
        assert (heard, called) == ([1, 3], [])
        assert db.figures().failed_units == 1


async def test_a_statement_that_fails_in_a_unit_takes_nothing_with_it(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        with Held(db):
            waiting = [db.commit(add(1)), db.commit(add(1)), db.commit(add(2))]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results[1], sqlite3.IntegrityError)
        assert await db.read(things) == [1, 2]


async def test_rows_of_one_statement_go_down_in_order_and_a_bad_batch_fails_alone(tmp_path: Path) -> None:
    results: dict[str, BaseException | None] = {}
    async with database(tmp_path, extra=[THING]) as db:
        with Held(db):
            db.bulk(ADD, [(1,), (2,)], lambda error: results.update(a=error))
            db.bulk(ADD, [(3,), (1,)], lambda error: results.update(b=error))
            db.bulk(ADD, [(4,)], lambda error: results.update(c=error))
        await db.ping()
        assert await db.read(things) == [1, 2, 4]
    assert results["a"] is None
    assert results["c"] is None
    assert isinstance(results["b"], sqlite3.IntegrityError)


async def test_many_rows_go_down_as_they_are_queued_however_many_one_statement_takes(tmp_path: Path) -> None:
    numbers = [n * 7 % 10_007 for n in range(1, 64 + 16 + 4 + 4)]
    upsert = "INSERT INTO thing (n) VALUES (?) ON CONFLICT DO NOTHING"
    results: list[BaseException | None] = []

    def rows(unit: Unit) -> object:
        return [n for (n,) in unit.run("SELECT n FROM thing ORDER BY rowid")]

    async with database(tmp_path, extra=[THING]) as db:
        with Held(db):
            db.bulk(ADD, [(n,) for n in numbers[:30]], results.append)
            db.bulk(ADD, [(n,) for n in numbers[30:]], results.append)
        await db.ping()
        assert sorted(await db.read(rows)) == sorted(numbers)  # type: ignore[call-overload]
        db.bulk(upsert, [(n,) for n in [*numbers, 20_000]], results.append)
        await db.ping()
        assert 20_000 in await db.read(things)
        with Held(db):
            db.bulk(ADD, [(n,) for n in range(30_000, 30_100)], results.append)
            db.bulk(ADD, [(n,) for n in [*range(40_000, 40_070), numbers[0]]], results.append)
        await db.ping()
        found = await db.read(things)
    assert results[:4] == [None] * 4
    assert isinstance(results[4], sqlite3.IntegrityError)
    assert [n for n in found if n >= 30_000] == list(range(30_000, 30_100))


async def test_rows_queued_before_a_unit_are_there_for_it_and_later_ones_are_not(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        with Held(db):
            db.bulk(ADD, [(1,)], lambda error: None)
            seen = db.commit(things)
            db.bulk(ADD, [(2,)], lambda error: None)
        assert await seen == [1]


async def test_a_value_that_sqlite_cannot_hold_fails_its_rows_only(tmp_path: Path) -> None:
    results: list[BaseException | None] = []
    async with database(tmp_path, extra=[THING]) as db:
        with Held(db):
            db.bulk(ADD, [(1 << 70,)], results.append)
            db.bulk(ADD, [(1,)], results.append)
        await db.ping()
        assert await db.read(things) == [1]
        assert not db.read_only
    assert isinstance(results[0], OverflowError)
    assert results[1] is None


def test_what_a_failed_commit_left_on_a_job_is_gone_once_it_is_run_again(tmp_path: Path) -> None:
    """Row by row, because of a bad one, until the disk is full; then the urgent alone, and what fails by now."""
    conn = open_writer(tmp_path / "x.db")
    conn.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT")
    [(pages,)] = conn.execute("PRAGMA page_count").fetchall()
    savepoints = Savepoints(conn, FakeClock(), Marks())
    put = "INSERT INTO t (n, text) VALUES (?, ?)"
    bad = BulkJob(put, [(1, None)], print)
    urgent = BulkJob(put, [(2, "x" * 100_000)], print, urgent=True)
    calls: list[int] = []

    def once(unit: Unit) -> None:
        if calls:
            raise ValueError("no more")
        calls.append(1)
        unit.after(lambda: calls.append(2))

    unit = UnitJob(once, print, FakeClock().now())
    try:
        conn.execute(f"PRAGMA max_page_count = {pages}")
        conn.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            savepoints.run([unit, bad, urgent])
        assert urgent.result is not None
        assert len(unit.calls) == 1
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        conn.execute("PRAGMA max_page_count = 1000000")
        conn.execute("BEGIN IMMEDIATE")
        savepoints.run([urgent])
        conn.execute("COMMIT")
        assert urgent.result is None
        conn.execute("BEGIN IMMEDIATE")
        savepoints.run([unit])
        conn.execute("COMMIT")
        assert isinstance(unit.result, ValueError)
        assert (unit.calls, unit.events) == ((), ())
        assert conn.execute("SELECT n FROM t").fetchall() == [(2,)]
    finally:
        conn.close()
