"""One database file as the node sees it: units, rows and reads go in from the loop, results come back to it.

The loop thread never touches SQLite. `open` and `close` do their blocking part in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edge.contract.errors import Unavailable
from edge.contract.event import Event
from edge.contract.gap import Gap
from edge.contract.limit import Limits, declare
from edge.contract.store import Unit
from edge.contract.time import SECOND, Clock, Stamp, later
from edge.store import damaged_log, migrate, opening, snapshot, wal
from edge.store.connection import MEDIUM_FAILED, open_writer, primary
from edge.store.damaged_log import Damage
from edge.store.headroom import Headroom
from edge.store.housekeeping import Housekeeping
from edge.store.jobs import BulkJob, UnitJob
from edge.store.marks import Found, Mark, Marks
from edge.store.migration import Migration
from edge.store.readers import Readers, ReadJob
from edge.store.reserve import Reserve
from edge.store.schema import MIGRATIONS
from edge.store.sightings import Sightings
from edge.store.snapshot import Progress
from edge.store.unreadable import Mended, Unreadable
from edge.store.writer import ControlJob, Figures, Job, Writer

T = TypeVar("T")

logger = logging.getLogger(__name__)

PENDING = declare("store.pending", 100_000, "units and rows", "waiting for a commit of one file", Unavailable)
MENDS = 32
"""How often one read starts again because of rows that cannot be read; each time a page of them is gone."""
FORGOTTEN = "a reader knows later numbers"
"""The doubt, and the reason of the gap, when somebody showed a number above our head."""
LAZY_ROWS = 5_000
"""Rows without an ack that wait for the wear window at most; more of them start a commit."""


class Database:
    """`edge.contract.store.Store` over one file (`node.db` or `hot.db`). Use in the loop only."""

    def __init__(
        self,
        path: Path,
        name: str,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        marks: Marks | None = None,
        incarnation: int = 0,
        fanout: Callable[[Event], None] | None = None,
        limits: Limits | None = None,
        wear_window_us: int = 0,
        migrations: Sequence[Migration] | None = None,
        quarantine: Path | None = None,
        synchronous: str = "FULL",
        reserve: Reserve | None = None,
    ) -> None:
        """`marks` is shared by the files of a node (without it, `incarnation` is fixed: tests, tools).

        `migrations` None: the release's own, in a child process when due; else these, here. `synchronous` is only
        for measuring what its other values would lose. `reserve` is room for what is urgent once the disk is full.
        """
        self.path, self.name = path, name
        self.damage = ""
        """What was wrong with the file that had to be put aside at `open`; empty when nothing was."""
        self.doubt = ""
        """Why `open` took the file to have lost commits (the incarnation went up); empty when it has not."""
        self._marks = marks or Marks(incarnation=incarnation)
        self._sightings = Sightings(self._marks, limits := limits or Limits())
        self._quarantine = quarantine or path.parent / "quarantine"
        self._clock, self._loop, self._fanout = clock, loop, fanout or (lambda event: None)
        self._limits = limits
        self._wear_window_us = wear_window_us
        self._migrations = migrations
        self._synchronous = synchronous
        self._reserve = reserve
        self._housekeeping = Housekeeping(self, clock, self._marks)
        self._whole = True
        """Whether the start found all the room that is to be held back."""
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._pending = 0
        self._lazy: list[BulkJob] = []
        self._cancel_lazy: Callable[[], None] | None = None

    # Life.

    async def open(self) -> None:
        """Migrate and start the threads."""
        await _blocking(self._loop, self._open)
        if self.read_only or not self._whole:
            self._housekeeping.cramped()

    def _open(self) -> None:
        now = self._clock.now()
        stamp = f"{now.boot}-{now.mono_us // SECOND}"
        had_wal = Path(f"{self.path}-wal").exists()
        hidden = damaged_log.look(self.path) if had_wal else Damage()
        if hidden.commits:
            hidden = damaged_log.keep(self.path, self._quarantine, stamp, hidden)
        mark = self._marks.mark(self.name)
        conn, self.damage = opening.sound(self.path, mark, self._quarantine, stamp, synchronous=self._synchronous)
        index = wal.Index(self.path)
        try:
            conn, found = self._prepare(conn, index, had_wal and not self.damage, Damage() if self.damage else hidden)
        except sqlite3.DatabaseError as error:
            if self.damage or not opening.damaged(error):
                raise
            self.damage = str(error)
            opening.put_aside(self.path, self._quarantine, stamp)
            index = wal.Index(self.path)
            fresh = open_writer(self.path, synchronous=self._synchronous)
            conn, found = self._prepare(fresh, index, False, Damage())
        self._compare(found)
        if found.cut:
            logger.error("%s: %d commits or more are behind a damaged place of its log", self.name, found.cut)
            damaged_log.bring_in(conn, self.path)
        headroom = Headroom(self.path, conn, index, self._marks, self._reserve)
        writer = Writer(self.path, conn, self._clock, self._marks, self._finished, index, headroom)
        readers = Readers(self.path, self._clock, self._marks)
        self._whole = headroom.keep()
        headroom.save(self._begin(writer, now))
        writer.start()
        readers.start()
        self._writer, self._readers = writer, readers

    def _prepare(
        self, conn: sqlite3.Connection, index: wal.Index, had_wal: bool, hidden: Damage
    ) -> tuple[sqlite3.Connection, Found]:
        """Migrate, and read what the file says of itself; connection and index are closed when that fails."""
        try:
            conn = self._migrate(conn)
            return conn, opening.look(conn, index, had_wal, hidden)
        except BaseException:
            opening.abandon(conn)
            index.close()
            raise

    def _migrate(self, conn: sqlite3.Connection) -> sqlite3.Connection:
        migrations = MIGRATIONS if self._migrations is None else self._migrations
        if newer := migrate.check(conn, migrations, self.name):
            logger.warning("%s: a newer release added to it (%s): going on without", self.name, ", ".join(newer[:5]))
        if not migrate.due(conn, migrations, self.name):
            return conn
        if self._migrations is not None:
            migrate.inline(conn, self.name, self._migrations)
            return conn
        conn.close()
        migrate.in_child(self.path, self.name)
        return open_writer(self.path, synchronous=self._synchronous)

    def _compare(self, found: Found) -> None:
        """Does the file hold what its mark says? If not, numbers go on in a new incarnation."""
        self.doubt = self.damage or self._marks.doubt(self.name, found)
        if not self.doubt:
            return
        logger.error("%s may have lost commits: %s", self.name, self.doubt)
        try:
            self._marks.bump(found.incarnation)
        except OSError as error:
            logger.error("the incarnation cannot be written: %s", error)

    def _begin(self, writer: Writer, now: Stamp) -> Mark:
        """The first commit: a new generation, the incarnation, the gap if there is one; the mark of this run."""
        return writer.begin(now, Gap("*", self.name, 0, 0, 1, self.doubt, "store", now) if self.doubt else None)

    async def close(self) -> None:
        """Commit what is queued, bring the WAL in, mark the file clean, end the threads. Later work is refused."""
        if self._writer is None or self._readers is None:
            return
        writer, readers = self._writer, self._readers
        self._flush_lazy()
        self._housekeeping.stop()
        self._readers = None
        readers.stop()
        await _blocking(self._loop, readers.join)
        ended = self._ask(lambda writer: writer.end())
        self._writer = None
        mark = await ended
        await _blocking(self._loop, lambda: self._last(writer, mark))

    def _last(self, writer: Writer, mark: Mark) -> None:
        """The mark says "clean" before the connection removes the WAL."""
        writer.headroom.save(mark)
        writer.stop()
        writer.join()

    # Work.

    @property
    def incarnation(self) -> int:
        """The upper part of every number given out now."""
        return self._marks.incarnation

    @property
    def read_only(self) -> bool:
        """True after the medium failed or filled: reads go on, writes fail with `StorageFull`."""
        return self._writer is not None and self._writer.failure is not None

    @property
    def failure(self) -> str:
        """Why it is read-only; empty while it takes writes."""
        return str(self._writer.failure) if self._writer is not None and self._writer.failure is not None else ""

    @property
    def full(self) -> bool:
        """Whether it is read-only because the disk has no room: it goes on by itself once there is some."""
        return self._writer is not None and self._writer.full

    def write(
        self, work: Callable[[Unit], T], done: Callable[[T | BaseException], None], *, urgent: bool = False
    ) -> None:
        """Queue a unit for the next commit; `done` gets its result, in the loop, once it is on disk, or its error.

        `urgent`: an alarm, which a full disk takes too as long as there is a reserve.
        """
        self._queue(UnitJob(work, done, self._clock.now(), urgent=urgent))

    def commit(self, work: Callable[[Unit], T]) -> Coroutine[Any, Any, T]:
        """`write`, awaited; queued at once. Raises what the unit raised, or `StorageFull`."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.write(work, lambda result: _settle(future, result))
        return _wait(future)

    def bulk(
        self,
        sql: str,
        rows: Sequence[tuple[object, ...]],
        done: Callable[[BaseException | None], None],
        *,
        lazy: bool = False,
        urgent: bool = False,
    ) -> None:
        """Queue hot rows; all rows of one statement in a commit go down together, in order.

        Between two units, statements run in the order in which each was first queued. `lazy`: nobody waits for
        an ack, so the rows go with the next commit or after the wear window, whichever is first. `urgent`: as `write`.
        """
        job = BulkJob(sql, rows, done, urgent=urgent)
        if urgent or not lazy or not self._wear_window_us:
            self._queue(job)
            return
        if not self._admit(job):
            return
        self._lazy.append(job)
        if self._cancel_lazy is None:
            self._cancel_lazy = later(self._clock, self._wear_window_us, self._flush_lazy)
        elif sum(j.size for j in self._lazy) > LAZY_ROWS:
            self._flush_lazy()

    async def read(self, work: Callable[[Unit], T]) -> T:
        """Run a read-only unit on a reader thread; `TimedOut` after a second.

        Rows that it cannot read (`Unreadable`), and the writer's connection neither, are declared lost, and it runs
        again.
        """

        def look_again(unit: Unit) -> T | Mended:
            try:
                return work(unit)
            except Unreadable as found:
                return Mended(found.mend(unit))

        for _ in range(MENDS):
            try:
                return await self._read(work)
            except Unreadable:
                found = await self.commit(look_again)
            if not isinstance(found, Mended):
                logger.error("%s: a reader met rows that it cannot read; the writer can", self.name)
                return found
            logger.error("%s: %d rows cannot be read and are declared lost", self.name, found.lost)
        return await self._read(work)

    async def _read(self, work: Callable[[Unit], T]) -> T:
        if self._readers is None:
            raise Unavailable(f"{self.name} is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._readers.put(ReadJob(work, lambda result: self.in_loop(self._was_read, future, result), self._clock.now()))
        return await future

    def _was_read(self, future: asyncio.Future[T], result: T | BaseException) -> None:
        if isinstance(result, sqlite3.Error) and primary(result) in MEDIUM_FAILED:
            self.control(lambda writer: writer.distrust(result), lambda nothing: self._housekeeping.touched())
        _settle(future, result)

    def shown(self, seq: int, head: int, who: str) -> None:
        """`edge.contract.store.Store.shown`; what is believed says `sightings`."""
        if self.read_only or not self._sightings.believe(seq, head, who):
            return
        gap = Gap("*", self.name, 0, 0, 1, FORGOTTEN, who, self._clock.now())

        def done(leapt: bool | BaseException) -> None:
            if leapt is True:
                self.doubt = FORGOTTEN
                text = "%s: %s knows number %d, the last one here is %d: going on in incarnation %d"
                logger.error(text, self.name, who, seq, head, self.incarnation)

        self.control(lambda writer: writer.leap(seq, gap), done)

    async def snapshot(self, to: Path, progress: Progress) -> None:
        """Copy the file as of now to `to`; commits go on. `progress` is called in the copying thread.

        Raises what it raises, `OSError`.
        """
        self._flush_lazy()
        await self.ping()
        name = f"store/{self.path.name}"
        await _blocking(self._loop, lambda: snapshot.copy_database(self.path, to, name, progress))

    async def ping(self) -> None:
        """Return once the writer thread has answered, having looked for its file (for the watchdog)."""
        await self._ask(lambda writer: writer.look())

    def control(self, work: Callable[[Writer], T], done: Callable[[T | BaseException], None]) -> None:
        """Have the writer thread do something between two commits; `done` in the loop."""
        if self._writer is None:
            self._loop.call_soon(done, Unavailable(f"{self.name} is closed"))
        else:
            self._writer.put(ControlJob(work, done))

    def _ask(self, work: Callable[[Writer], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self.control(work, lambda result: _settle(future, result))
        return future

    def figures(self) -> Figures:
        """What the writer has done since it started."""
        return self._writer.figures if self._writer else Figures()

    def stats(self) -> dict[str, int]:
        """Figures for `status` and the metrics."""
        depth = self._writer.depth if self._writer else 0
        own = {"queued": depth, "pending": self._pending, "read_only": int(self.read_only)}
        if self._reserve is not None:
            own["reserve"] = self._reserve.octets
        return {**msgspec.structs.asdict(self.figures()), **own, "incarnation": self.incarnation}

    # Between the loop and the writer.

    def _queue(self, job: UnitJob | BulkJob) -> None:
        if self._admit(job) and self._writer is not None:
            if self._lazy:
                self._flush_lazy()
            self._writer.put(job)

    def _admit(self, job: UnitJob | BulkJob) -> bool:
        if self._writer is None:
            self._loop.call_soon(job.done, Unavailable(f"{self.name} is closed"))
            return False
        if self._pending + job.size > self._limits[PENDING] and self._pending:
            self._loop.call_soon(job.done, self._limits.refuse(PENDING, self.name))
            return False
        self._pending += job.size
        return True

    def _flush_lazy(self) -> None:
        if self._cancel_lazy is not None:
            self._cancel_lazy()
            self._cancel_lazy = None
        if self._lazy and self._writer is not None:
            for job in self._lazy:
                self._writer.put(job)
            self._lazy = []

    def _finished(self, jobs: Sequence[Job]) -> None:
        self.in_loop(self._complete, jobs)

    def in_loop(self, call: Callable[..., None], *args: Any) -> None:
        """From another thread: call in the loop, unless that has ended."""
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            logger.warning("%s: the loop ended before its last results", self.name)

    def _complete(self, jobs: Sequence[Job]) -> None:
        """In the loop, once per commit: for each job its calls, its events, its callback."""
        for job in jobs:
            self._pending -= job.size
            if isinstance(job, UnitJob):
                for call in job.calls:
                    _guarded(call)
                for event in job.events:
                    _guarded(self._fanout, event)
            try:
                job.done(job.result)
            except Exception:
                logger.exception("a callback of the store failed")
        if not isinstance(jobs[0], ControlJob) and self._writer is not None:
            self._housekeeping.touched()


def _guarded(call: Callable[..., None], *args: object) -> None:
    """One caller's broken callback must not swallow the acks of the others."""
    try:
        call(*args)
    except Exception:
        logger.exception("a callback of the store failed")


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if future.cancelled():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


async def _wait(future: asyncio.Future[T]) -> T:
    return await future


async def _blocking(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Run something that blocks in a thread of its own (the small pool may be busy or gone)."""
    future: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        result: BaseException | None = None
        try:
            work()
        except Exception as error:
            result = error
        loop.call_soon_threadsafe(_settle, future, result)

    threading.Thread(target=run, name="store-life", daemon=True).start()
    await future
