"""Reads: one moment each, bounded, and nothing written."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from edge.contract.errors import TimedOut
from edge.contract.event import Event
from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.store.connection import open_writer
from edge.store.marks import Marks
from edge.store.readers import Readers, ReadJob
from tests.support.clock import FakeClock
from tests.support.store import database
from tests.support.things import THING, add, things


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


def test_a_file_that_cannot_be_opened_is_an_answer_and_the_next_read_tries_again(tmp_path: Path) -> None:
    answers: SimpleQueue[Any] = SimpleQueue()
    readers = Readers(tmp_path / "x.db", FakeClock(), Marks(), threads=1)
    readers.start()

    def ask() -> Any:
        readers.put(ReadJob(lambda unit: unit.run("SELECT 1"), answers.put, Stamp(0, 0)))
        return answers.get(timeout=20)

    assert isinstance(ask(), sqlite3.OperationalError)
    (tmp_path / "x.db").write_bytes(b"no database " * 1000)
    assert isinstance(ask(), sqlite3.DatabaseError)
    (tmp_path / "x.db").unlink()
    open_writer(tmp_path / "x.db").close()
    assert ask() == [(1,)]
    readers.stop()
    readers.join()
