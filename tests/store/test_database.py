"""Units, rows and reads of one file, through the doors that the node uses."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.contract.errors import Unavailable
from edge.contract.event import Event
from edge.contract.limit import Limits
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.store.database import LAZY_ROWS, PENDING, Database
from edge.store.schema import MIGRATIONS
from tests.support.clock import FakeClock
from tests.support.store import database
from tests.support.things import ADD, ALL, THING, Held, add, things


async def test_what_a_unit_wrote_is_there_for_a_read(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        assert await db.commit(lambda u: u.append("inbox", "a", [b"x", b"y"])) == 2
        assert await db.read(lambda u: u.log("inbox").after("a", 0, 10, 1000)) == [(1, b"x"), (2, b"y")]


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
            db.write(work(2), lambda result: (said.append("done 2"), done.set()))  # type: ignore[arg-type,func-returns-value]
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


async def test_the_release_migrates_in_a_process_of_its_own(tmp_path: Path) -> None:
    db = Database(tmp_path / "node.db", "node", FakeClock(), asyncio.get_running_loop())
    await db.open()
    names = await db.read(lambda u: {row[0] for row in u.run("SELECT name FROM migration")})
    await db.close()
    assert names == {m.name for m in MIGRATIONS if m.file == "node"}
