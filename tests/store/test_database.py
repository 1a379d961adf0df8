"""Units, rows and reads of one file, through the doors that the node uses."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import StorageFull, TimedOut, Unavailable
from edge.contract.event import Event
from edge.contract.limit import Limits
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.store.database import LAZY_ROWS, PENDING, Database
from edge.store.migration import statements
from edge.store.schema import MIGRATIONS
from tests.support.clock import FakeClock
from tests.support.store import database

THING = statements("node", "thing-001", "CREATE TABLE thing (n INTEGER PRIMARY KEY) STRICT")
ADD = "INSERT INTO thing (n) VALUES (?)"
ALL = "SELECT n FROM thing ORDER BY n"


def add(n: int) -> Callable[[Unit], int]:
    def work(unit: Unit) -> int:
        unit.run(ADD, (n,))
        unit.emit(Event("thing", "", n))
        return n

    return work


def things(unit: Unit) -> list[Any]:
    return [row[0] for row in unit.run(ALL)]


class Held:
    """Keeps the writer busy, so that what is queued meanwhile is the next commit."""

    def __init__(self, db: Database) -> None:
        self._gate = threading.Event()
        db.control(lambda writer: self._gate.wait(10), lambda result: None)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        self._gate.set()


async def test_what_a_unit_wrote_is_there_for_a_read(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        assert await db.commit(lambda u: u.append("inbox", "a", [b"x", b"y"])) == 2
        assert await db.read(lambda u: u.log("inbox").after("a", 0, 10, 1000)) == [(1, b"x"), (2, b"y")]


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


async def test_what_gathers_while_a_commit_runs_is_one_commit(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        with Held(db):
            waiting = [db.commit(add(n)) for n in range(50)]
        assert await asyncio.gather(*waiting) == list(range(50))
        assert db.figures().commits == 1
        assert db.figures().units == 50


async def test_callbacks_come_in_the_order_of_queueing_each_after_its_calls_and_events(tmp_path: Path) -> None:
    said: list[str] = []
    done = asyncio.Event()

    def work(n: int) -> Callable[[Unit], None]:
        def run(unit: Unit) -> None:
            unit.emit(Event("thing", "", n))
            unit.after(lambda: said.append(f"after {n}"))

        return run

    async with database(tmp_path, extra=[THING], fanout=lambda e: said.append(f"event {e.seq}")) as db:
        with Held(db):
            db.write(work(1), lambda result: said.append("done 1"))
            db.bulk(ADD, [(7,), (8,)], lambda error: said.append(f"rows {error}"))
            db.write(work(2), lambda result: (said.append("done 2"), done.set()))  # type: ignore[func-returns-value]
        await done.wait()
    assert said == ["after 1", "event 1", "done 1", "rows None", "after 2", "event 2", "done 2"]


async def test_an_event_is_heard_only_when_another_connection_can_read_what_it_tells_of(tmp_path: Path) -> None:
    seen: list[bool] = []
    other = sqlite3.connect(tmp_path / "node.db", isolation_level=None)

    def hear(event: Event) -> None:
        seen.append((event.seq,) in other.execute(ALL).fetchall())

    async with database(tmp_path, extra=[THING], fanout=hear) as db:
        for n in range(20):
            await db.commit(add(n))
    other.close()
    assert seen == [True] * 20


async def test_a_broken_callback_does_not_swallow_the_acks_of_others(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        with Held(db):
            db.write(add(1), lambda result: 1 / 0)  # type: ignore[arg-type, return-value]
            second = db.commit(add(2))
        assert await second == 2


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


async def test_rows_queued_before_a_unit_are_there_for_it_and_later_ones_are_not(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        with Held(db):
            db.bulk(ADD, [(1,)], lambda error: None)
            seen = db.commit(things)
            db.bulk(ADD, [(2,)], lambda error: None)
        assert await seen == [1]


async def test_rows_without_an_ack_wait_for_the_wear_window(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, clock=clock, extra=[THING], wear_window_us=5 * SECOND) as db:
        done: list[BaseException | None] = []
        db.bulk(ADD, [(1,)], done.append, lazy=True)
        clock.advance(4 * SECOND)
        await db.ping()
        assert (done, db.figures().commits) == ([], 0)
        clock.advance(SECOND)
        await db.ping()
        assert (done, db.figures().commits) == ([None], 1)


async def test_rows_without_an_ack_join_the_next_commit(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING], wear_window_us=5 * SECOND) as db:
        db.bulk(ADD, [(1,)], lambda error: None, lazy=True)
        await db.commit(add(2))
        assert await db.read(things) == [1, 2]
        assert db.figures().commits == 1


async def test_too_many_rows_without_an_ack_start_a_commit(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING], wear_window_us=5 * SECOND) as db:
        db.bulk(ADD, [(n,) for n in range(LAZY_ROWS)], lambda error: None, lazy=True)
        await db.ping()
        assert db.figures().commits == 0
        db.bulk(ADD, [(LAZY_ROWS,)], lambda error: None, lazy=True)
        await db.ping()
        assert db.figures().rows == LAZY_ROWS + 1


async def test_rows_without_an_ack_are_on_disk_after_a_clean_stop(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING], wear_window_us=5 * SECOND) as db:
        db.bulk(ADD, [(1,)], lambda error: None, lazy=True)
    async with database(tmp_path, extra=[THING]) as db:
        assert await db.read(things) == [1]


@pytest.mark.limit("store.pending")
async def test_more_than_the_limit_waiting_for_a_commit_is_refused(tmp_path: Path) -> None:
    limits = Limits({PENDING.name: 3})
    async with database(tmp_path, extra=[THING], limits=limits) as db:
        with Held(db):
            waiting = [db.commit(add(n)) for n in range(5)]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert results[:3] == [0, 1, 2]
        assert [type(result) for result in results[3:]] == [Unavailable, Unavailable]
        assert limits.hits == {PENDING.name: 2}
        assert await db.commit(add(9)) == 9


async def test_a_read_cannot_write(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        with pytest.raises(sqlite3.OperationalError, match="readonly database"):
            await db.read(add(1))
        with pytest.raises(RuntimeError):
            await db.read(lambda u: u.emit(Event("thing", "", 1)))
        with pytest.raises(RuntimeError):
            await db.read(lambda u: u.after(lambda: None))


async def test_a_read_sees_one_moment(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        reading, go = threading.Event(), threading.Event()

        def twice(unit: Unit) -> tuple[list[Any], list[Any]]:
            first = things(unit)
            reading.set()
            go.wait(10)
            return first, things(unit)

        pending = asyncio.ensure_future(db.read(twice))
        await asyncio.to_thread(reading.wait, 10)
        await db.commit(add(1))
        go.set()
        assert await pending == ([], [])


async def test_a_read_over_a_second_is_cut_off(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    async with database(tmp_path) as db:
        with pytest.raises(TimedOut):
            await db.read(lambda u: u.run(endless))
        assert await db.read(lambda u: u.run("SELECT 1")) == [(1,)]


async def test_a_unit_is_over_when_its_work_returns(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        unit = await db.commit(lambda u: u)
        with pytest.raises(RuntimeError, match="over"):
            unit.run("SELECT 1")


async def test_a_unit_knows_when_it_was_handed_over(tmp_path: Path) -> None:
    clock = FakeClock(mono_us=77 * SECOND)
    async with database(tmp_path, clock=clock) as db:
        at, wall = await db.commit(lambda u: (u.at, u.wall_us))
        assert (at, wall) == (clock.now(), clock.wall(clock.now())[0])


async def test_a_closed_database_refuses(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        pass
    with pytest.raises(Unavailable):
        await db.commit(add(1))
    with pytest.raises(Unavailable):
        await db.read(things)
    with pytest.raises(Unavailable):
        await db.ping()
    assert db.stats()["commits"] == 0


async def test_work_queued_before_close_is_done(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        waiting = [db.commit(add(n)) for n in range(3)]
    assert await asyncio.gather(*waiting) == [0, 1, 2]


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


async def test_what_was_committed_survives_a_kill(tmp_path: Path) -> None:
    """The files as they lie while the node runs are what a kill leaves behind."""
    async with database(tmp_path, extra=[THING]) as db:
        await db.commit(add(1))
        copy = tmp_path / "copy"
        copy.mkdir()
        for part in ("", "-wal"):
            (copy / f"node.db{part}").write_bytes((tmp_path / f"node.db{part}").read_bytes())
    async with database(copy, extra=[THING]) as db:
        assert await db.read(things) == [1]


async def test_figures_tell_of_commits_rows_and_the_wal(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        db.bulk(ADD, [(n,) for n in range(10)], lambda error: None)
        await db.commit(add(99))
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
            frames.append((db.figures().wal_octets - before) // 4120)
    frames = frames[1:]
    assert sorted(frames)[len(frames) // 2] == 1
    assert sum(frames) * 4120 / len(frames) <= 5_000


async def test_the_release_migrates_in_a_process_of_its_own(tmp_path: Path) -> None:
    db = Database(tmp_path / "node.db", "node", FakeClock(), asyncio.get_running_loop())
    await db.open()
    names = await db.read(lambda u: {row[0] for row in u.run("SELECT name FROM migration")})
    await db.close()
    assert names == {m.name for m in MIGRATIONS if m.file == "node"}
