"""What waits for a commit, and how what is in one commit is run: in savepoints, so that what fails takes nothing with
it; rows of one statement go down together."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from edge.contract.event import Event
from edge.contract.store import Unit
from edge.contract.time import Clock, Stamp
from edge.store.connection import MEDIUM_FAILED, primary
from edge.store.marks import Marks
from edge.store.unit import WriteUnit

WIDTHS = (64, 16, 4)
"""How many rows one statement takes, as long as there are so many."""

Done = Callable[[Any], None]


class UnitJob:
    """One unit of work, and who waits for it."""

    __slots__ = ("at", "calls", "done", "events", "result", "urgent", "work")
    size = 1

    def __init__(self, work: Callable[[Unit], Any], done: Done, at: Stamp, *, urgent: bool = False) -> None:
        self.work, self.done, self.at, self.urgent = work, done, at, urgent
        self.result: Any = None
        self.events: Sequence[Event] = ()
        self.calls: Sequence[Callable[[], None]] = ()


class BulkJob:
    """Rows of one statement, and who waits for them."""

    __slots__ = ("done", "result", "rows", "size", "sql", "urgent")

    def __init__(self, sql: str, rows: Sequence[tuple[object, ...]], done: Done, *, urgent: bool = False) -> None:
        self.sql, self.rows, self.done, self.urgent = sql, rows, done, urgent
        self.size = len(rows)
        self.result: BaseException | None = None


class Savepoints:
    """Runs the jobs of one commit after the other, in transactions that the writer opens and ends. A job may be run
    again after a transaction that failed: nothing of that is left on it."""

    def __init__(self, conn: sqlite3.Connection, clock: Clock, marks: Marks) -> None:
        self._conn, self._clock, self._marks = conn, clock, marks
        self._wide: dict[tuple[str, int], str] = {}
        self.failed_units = 0
        """How many units failed by themselves."""

    def run(self, batch: Sequence[UnitJob | BulkJob]) -> None:
        """Run what is in one commit; each job has its result then. Raises only what ends the whole commit."""
        groups: dict[str, list[BulkJob]] = {}
        units = False
        for job in batch:
            if isinstance(job, BulkJob):
                groups.setdefault(job.sql, []).append(job)
                continue
            if groups:
                self._rows(groups)
                groups = {}
            units = True
            self._unit(job)
        if units or len(groups) != 1 or not self._only(groups):
            self._rows(groups)

    def _unit(self, job: UnitJob) -> None:
        unit = WriteUnit(self._conn, job.at, self._clock, self._marks.incarnation)
        self._conn.execute("SAVEPOINT unit")
        try:
            job.result = job.work(unit)
        except Exception as error:
            self._still_well(unit.failure)
            self._conn.execute("ROLLBACK TO unit")
            job.result, job.events, job.calls = error, (), ()
            self.failed_units += 1
        else:
            self._still_well(unit.failure)
            job.events, job.calls = unit.events, unit.calls
        finally:
            unit.close()
        self._conn.execute("RELEASE unit")

    def _still_well(self, failure: sqlite3.Error | None) -> None:
        """Raise an error of a statement that concerns the medium, whatever the unit made of it."""
        if failure is not None and (_medium(failure) or not self._conn.in_transaction):
            raise failure

    def _only(self, groups: dict[str, list[BulkJob]]) -> bool:
        """The rows of one statement, when nothing else is in the transaction: that is their savepoint. False when it
        had to be begun anew, without them."""
        [(sql, jobs)] = groups.items()
        try:
            self._put(sql, [row for job in jobs for row in job.rows])
        except Exception as caught:
            self._still_well(caught if isinstance(caught, sqlite3.Error) else None)
            self._conn.execute("ROLLBACK")
            self._conn.execute("BEGIN IMMEDIATE")
            return False
        for job in jobs:
            job.result = None
        return True

    def _rows(self, groups: dict[str, list[BulkJob]]) -> None:
        for sql, jobs in groups.items():
            if not self._many(sql, [row for job in jobs for row in job.rows], jobs) and len(jobs) > 1:
                for job in jobs:
                    self._many(sql, job.rows, [job])

    def _many(self, sql: str, rows: Sequence[tuple[object, ...]], jobs: Sequence[BulkJob]) -> bool:
        """Put down rows of one statement, or none of them; the jobs then have the error."""
        self._conn.execute("SAVEPOINT rows")
        try:
            self._put(sql, rows)
            error: Exception | None = None
        except Exception as caught:
            self._still_well(caught if isinstance(caught, sqlite3.Error) else None)
            self._conn.execute("ROLLBACK TO rows")
            error = caught
        self._conn.execute("RELEASE rows")
        for job in jobs:
            job.result = error
        return error is None

    def _put(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Most rows by statements that take many at once: before and after each statement the interpreter may be
        another thread's for a while."""
        at, left = 0, len(rows)
        for width in WIDTHS if left >= WIDTHS[-1] and _VALUES.search(sql) else ():
            while left >= width:
                self._conn.execute(self._widened(sql, width), list(chain.from_iterable(rows[at : at + width])))
                at += width
                left -= width
        if left:
            self._conn.executemany(sql, rows[at:])

    def _widened(self, sql: str, width: int) -> str:
        wide = self._wide.get((sql, width))
        if wide is None:
            _, _, values = sql.rpartition("VALUES ")
            wide = self._wide[sql, width] = f"{sql}{f', {values}' * (width - 1)}"
        return wide


_VALUES = re.compile(r" VALUES \(\?(?:, \?)*\)\Z")
"""The end of a statement that can take more rows than one."""


def _medium(error: sqlite3.Error) -> bool:
    """Is it the disk, not the statement?"""
    return primary(error) == sqlite3.SQLITE_FULL or primary(error) in MEDIUM_FAILED
