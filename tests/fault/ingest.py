"""A program that stores numbered rows with our own Database and says `ACK n` for each one on disk.

`python -m tests.fault.ingest FOLDER SYNCHRONOUS ROWS IN_FLIGHT`; with a row count of 0 it goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path
from typing import cast

from edge.contract.store import Unit
from edge.store import headroom
from edge.store.database import Database
from edge.store.marks import Marks, kernel_boot_id
from edge.store.migration import statements
from edge.store.schema import MIGRATIONS
from edge.system.clock import SystemClock

TABLE = statements("hot", "fault-row", "CREATE TABLE fault_row (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")
ADD = "INSERT INTO fault_row (n, body) VALUES (?, ?)"
ALL = "SELECT n FROM fault_row"


def open_database(folder: Path, synchronous: str = "FULL") -> Database:
    """The database of the experiment; `await .open()` is the caller's."""
    marks = Marks.load(folder / "incarnation")
    clock = SystemClock(marks.begin_boot(kernel_boot_id()))
    loop = asyncio.get_running_loop()
    migrations = [*MIGRATIONS, TABLE]
    path = folder / "hot.db"
    return Database(path, "hot", clock, loop, marks=marks, migrations=migrations, synchronous=synchronous)


def say(number: int) -> None:
    """Tell that a row is on disk."""
    os.write(1, b"ACK %d\n" % number)


async def run(folder: Path, synchronous: str, rows: int, in_flight: int) -> None:
    """Half of the producers store hot rows, half store units; each waits for its ack."""
    headroom.CHECKPOINT_OCTETS = 400_000
    db = open_database(folder, synchronous)
    await db.open()
    first = 1 + max([cast(int, n) for (n,) in await db.read(lambda u: u.run(ALL))], default=0)
    numbers = itertools.count(first)

    async def producer(kind: int) -> None:
        for n in numbers:
            if rows and n >= first + rows:
                return
            await (_unit(db, n) if kind % 2 else _row(db, n))
            say(n)

    say(0)
    await asyncio.gather(*(producer(kind) for kind in range(in_flight)))
    await db.close()


async def _row(db: Database, n: int) -> None:
    done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    db.bulk(ADD, [(n, os.urandom(200))], done.set_result)
    if error := await done:
        raise error


async def _unit(db: Database, n: int) -> None:
    def work(unit: Unit) -> None:
        unit.run(ADD, (n, os.urandom(200)))
        unit.append("fault", str(n % 3), [b"%d" % n])

    await db.commit(work)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
