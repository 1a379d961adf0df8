"""Units, rows and reads of one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.event import Event
from edge.store.migration import Migration
from tests.support.store import database

THING = Migration("node", "thing", lambda db: db.conn.execute("CREATE TABLE thing (n INTEGER PRIMARY KEY) STRICT"))
ADD = "INSERT INTO thing (n) VALUES (?)"


async def test_what_a_unit_wrote_is_there_for_a_read(tmp_path: Path) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        assert await db.commit(lambda u: u.append("inbox", "a", [b"x", b"y"])) == 2
        assert await db.read(lambda u: u.log("inbox").after("a", 0, 10, 1000)) == [(1, b"x"), (2, b"y")]


async def test_a_failing_unit_is_rolled_back_alone(tmp_path: Path) -> None:
    heard: list[Event] = []
    async with database(tmp_path, extra=[THING], fanout=heard.append) as db:

        def bad(unit: object) -> None:
            db_unit = unit
            db_unit.run(ADD, (2,))
            db_unit.emit(Event("x", "y", 2))
            raise ValueError("no")

        first = db.commit(lambda u: (u.run(ADD, (1,)), u.emit(Event("x", "y", 1))))
        second = db.commit(bad)
        third = db.commit(lambda u: u.run(ADD, (3,)))
        await first
        with pytest.raises(ValueError, match="no"):
            await second
        await third
        assert await db.read(lambda u: u.run("SELECT n FROM thing ORDER BY n")) == [(1,), (3,)]
        assert [event.seq for event in heard] == [1]
