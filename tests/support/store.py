"""Real databases for tests, with all migrations, in a folder of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from edge.contract.event import Event
from edge.contract.limit import Limits
from edge.contract.time import Clock
from edge.store.database import Database
from edge.store.marks import Marks
from edge.store.migration import Migration
from edge.store.reserve import Reserve
from edge.store.schema import MIGRATIONS
from tests.support.clock import FakeClock


@asynccontextmanager
async def database(
    folder: Path,
    name: str = "node",
    clock: Clock | None = None,
    *,
    incarnation: int = 0,
    fanout: Callable[[Event], None] | None = None,
    extra: Sequence[Migration] = (),
    wear_window_us: int = 0,
    limits: Limits | None = None,
    marks: Marks | None = None,
    synchronous: str = "FULL",
    reserve: Reserve | None = None,
) -> AsyncIterator[Database]:
    """`node.db` or `hot.db` in `folder`, migrated and open; closed cleanly at the end.

    `extra` are migrations of the test's own tables. `synchronous` OFF is for tests that commit thousands of times and
    whose worst is a kill.
    """
    opened = Database(
        folder / f"{name}.db",
        name,
        clock or FakeClock(),
        asyncio.get_running_loop(),
        incarnation=incarnation,
        fanout=fanout,
        wear_window_us=wear_window_us,
        limits=limits,
        marks=marks,
        synchronous=synchronous,
        reserve=reserve,
        migrations=[*MIGRATIONS, *extra],
    )
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


async def full(db: Database) -> None:
    """Let SQLite find no room: nothing is written until the store looks for some again, seconds later."""
    fill_soon(db)
    await db.ping()
    assert db.read_only


def fill_soon(db: Database) -> None:
    """The same, before anything that is queued from now on."""
    told: list[object] = []
    db.control(lambda writer: writer.conn.execute("PRAGMA max_page_count = 1").fetchall(), told.append)
    db.write(lambda unit: unit.append("full", "disk", [bytes(1_000_000)]), told.append)
    db.control(lambda writer: writer.conn.execute("PRAGMA max_page_count = 1000000").fetchall(), told.append)
