"""Numbers of hot rows: from memory, never twice, and one page per commit."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import StorageFull
from edge.contract.gap import Gap
from edge.contract.store import INCARNATION_SHIFT, Unit
from edge.store.database import Database
from edge.store.migration import statements
from edge.store.numbers import Sequence
from tests.support.store import database

TABLE = statements("hot", "r", "CREATE TABLE r (seq INTEGER PRIMARY KEY) STRICT")
ADD = "INSERT INTO r (seq) VALUES (?)"


async def opened(db: Database) -> Sequence:
    sequence = Sequence("reading", "", "SELECT max(seq) FROM r")
    await sequence.open(db)
    return sequence


async def add(db: Database, sequence: Sequence, count: int) -> list[int]:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    numbers = sequence.take(count)
    db.bulk(ADD, [(n,) for n in numbers], done.set_result)
    assert await done is None
    return list(numbers)


async def test_numbers_begin_at_1_and_go_on_after_a_restart(tmp_path: Path) -> None:
    async with database(tmp_path, "hot", extra=[TABLE]) as db:
        sequence = await opened(db)
        assert await add(db, sequence, 3) == [1, 2, 3]
        assert await add(db, sequence, 1) == [4]
        assert sequence.head == 4
    async with database(tmp_path, "hot", extra=[TABLE]) as db:
        assert await add(db, await opened(db), 1) == [5]


async def test_rows_that_were_removed_do_not_free_their_numbers(tmp_path: Path) -> None:
    async with database(tmp_path, "hot", extra=[TABLE]) as db:
        sequence = await opened(db)
        await add(db, sequence, 5)

        def evict(unit: Unit) -> Gap:
            unit.run("DELETE FROM r")
            return sequence.removed(unit, 1, 5, 5, "full")

        gap = await db.commit(evict)
        assert (gap.log, gap.first, gap.last, gap.count) == ("reading", 1, 5, 5)
        assert await db.read(lambda u: u.log("reading").floor("")) == 5
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy", "*-shm"))
    async with database(copy, "hot", extra=[TABLE]) as db:
        assert await add(db, await opened(db), 1) == [6]


async def test_a_new_incarnation_starts_above_all_numbers_of_the_last(tmp_path: Path) -> None:
    async with database(tmp_path, "hot", extra=[TABLE]) as db:
        await add(db, await opened(db), 2)
    async with database(tmp_path, "hot", incarnation=3, extra=[TABLE]) as db:
        assert await add(db, await opened(db), 1) == [(3 << INCARNATION_SHIFT) + 1]


async def test_a_readers_cursor_reaches_the_head_that_is_only_in_memory(tmp_path: Path) -> None:
    async with database(tmp_path, "hot", extra=[TABLE]) as db:
        sequence = await opened(db)
        await add(db, sequence, 4)
        assert await db.commit(lambda u: sequence.ack(u, "upstream", 3)) == 3
        assert await db.commit(lambda u: sequence.ack(u, "upstream", 2)) == 3
        assert await db.commit(lambda u: sequence.ack(u, "upstream", 99)) == 4
        assert await db.read(lambda u: u.log("reading").cursor("", "upstream")) == 4


async def test_ageing_by_policy_is_no_gap(tmp_path: Path) -> None:
    async with database(tmp_path, "hot", extra=[TABLE]) as db:
        sequence = await opened(db)
        await add(db, sequence, 4)
        await db.commit(lambda u: (u.run("DELETE FROM r WHERE seq <= 2"), sequence.aged(u, 2)))
        assert await db.read(lambda u: (u.log("reading").floor(""), u.run("SELECT * FROM gap"))) == (2, [])


async def test_numbers_of_a_commit_that_failed_are_not_given_out_again_by_this_process(tmp_path: Path) -> None:
    async with database(tmp_path, "hot", extra=[TABLE]) as db:
        sequence = await opened(db)
        db.control(lambda writer: writer.conn.execute("PRAGMA max_page_count = 1"), lambda result: None)
        with pytest.raises(StorageFull):
            await db.commit(lambda u: u.append("x", "y", [b"z" * 50_000]))
        refused: list[BaseException | None] = []
        db.bulk(ADD, [(n,) for n in sequence.take(2)], refused.append)
        await db.ping()
        assert isinstance(refused[0], StorageFull)
        assert sequence.take() == range(3, 4)


async def test_a_new_incarnation_begins_with_the_next_number(tmp_path: Path) -> None:
    async with database(tmp_path, "hot", extra=[TABLE]) as db:
        sequence = await opened(db)
        assert await add(db, sequence, 2) == [1, 2]
        db.shown(7, sequence.head, "bob.edge.test")
        assert await db.commit(lambda u: None) is None
        assert await add(db, sequence, 2) == [(1 << INCARNATION_SHIFT) + 1, (1 << INCARNATION_SHIFT) + 2]
        assert sequence.head == (1 << INCARNATION_SHIFT) + 2
