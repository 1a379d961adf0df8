"""Reads: one moment each, bounded, and nothing written."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import TimedOut
from edge.contract.event import Event
from edge.contract.store import Unit
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
