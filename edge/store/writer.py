"""The writer thread of one file: the only one that writes and checkpoints (design D5, D6).

Whatever gathered while the last commit ran is the next commit. When it has returned, and only then, the loop is told,
once, of everything that was in it.

When the disk is full nothing is written but what is urgent (alarms), from the room held back for it (`headroom`).
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from edge.contract.errors import StorageFull
from edge.contract.gap import Gap
from edge.contract.store import INCARNATION_SHIFT
from edge.contract.time import Clock, Stamp
from edge.store import migrate, opening, wal
from edge.store.connection import FRAME, MEDIUM_FAILED, checkpoint, primary
from edge.store.headroom import Headroom
from edge.store.jobs import BulkJob, Done, Savepoints, UnitJob
from edge.store.marks import Mark, Marks
from edge.store.place import Place
from edge.store.unit import WriteUnit

logger = logging.getLogger(__name__)

COMMIT_ROWS = 20_000
"""No commit gathers more units and rows than this: it bounds how long the first of them waits."""
ALARM_OCTETS = 32 << 20
"""A log so long, although it was just to be brought in, is held by a reader that does not end."""
FREE_PAGES = 256
"""Fewer free pages are kept for the next rows: giving them back would only wear the card."""


class ControlJob:
    """Something that the writer thread does between two commits; `done` gets its result or its error."""

    __slots__ = ("done", "result", "work")
    size = 0

    def __init__(self, work: Callable[[Writer], Any], done: Done) -> None:
        self.work, self.done = work, done
        self.result: Any = None


Job = UnitJob | BulkJob | ControlJob
Finished = Callable[[Sequence[Job]], None]


class Figures(msgspec.Struct):
    """What the writer has done since it started. Written by its thread, read by anybody."""

    commits: int = 0
    units: int = 0
    rows: int = 0
    failed_units: int = 0
    failed_commits: int = 0
    refused: int = 0
    from_reserve: int = 0
    checkpoints: int = 0
    wal_octets: int = 0
    wal_alarms: int = 0
    last_commit_us: int = 0
    slowest_commit_us: int = 0


class Writer:
    """Runs jobs in its own thread; `finished` is called there with the jobs of each commit, after it."""

    def __init__(
        self,
        path: Path,
        conn: sqlite3.Connection,
        clock: Clock,
        marks: Marks,
        finished: Finished,
        index: wal.Index,
        headroom: Headroom,
    ) -> None:
        """`conn` is the file's only writing connection; it belongs to the thread from `start` on, and so do the
        index of the WAL and the headroom."""
        self._clock, self._marks, self._finished = clock, marks, finished
        self._savepoints = Savepoints(conn, clock, marks)
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"writer-{path.stem}", daemon=True)
        self._wal = index
        self._place = Place(path)
        self.conn, self.headroom = conn, headroom
        self.figures = Figures()
        self.generation = opening.get(conn, "generation")
        self.failure: sqlite3.Error | None = None
        """Why nothing is written any more; None as long as the medium is well."""

    def start(self) -> None:
        """Begin to take jobs."""
        self._thread.start()

    def put(self, job: Job) -> None:
        """Queue a job; it is part of the next commit."""
        self._queue.put(job)

    def stop(self) -> None:
        """Let the thread end after what is queued now."""
        self._queue.put(None)

    def join(self) -> None:
        """Wait for the thread to end. Blocks: not for the loop."""
        self._thread.join()

    @property
    def depth(self) -> int:
        """Jobs that wait for the next commit."""
        return self._queue.qsize()

    @property
    def alive(self) -> bool:
        """Does the thread run?"""
        return self._thread.is_alive()

    def _run(self) -> None:
        job = self._queue.get()
        while job is not None:
            batch, control, stop = self._gather(job)
            if batch:
                self._commit(batch)
            if control is not None:
                self._control(control)
            job = None if stop else self._queue.get()
        self.conn.close()
        self._wal.close()
        self.headroom.leave()

    def _gather(self, job: Job | None) -> tuple[list[UnitJob | BulkJob], ControlJob | None, bool]:
        """What is queued, up to one commit's worth, a control job (it ends the commit) or the end."""
        batch: list[UnitJob | BulkJob] = []
        size = 0
        while job is not None:
            if isinstance(job, ControlJob):
                return batch, job, False
            batch.append(job)
            size += job.size
            if size >= COMMIT_ROWS:
                return batch, None, False
            try:
                job = self._queue.get_nowait()
            except Empty:
                return batch, None, False
        return batch, None, True

    def _control(self, job: ControlJob) -> None:
        try:
            job.result = job.work(self)
        except Exception as error:
            job.result = error
        self._finished((job,))

    def _commit(self, batch: list[UnitJob | BulkJob]) -> None:
        if self.failure is None:
            error = self._transact(batch)
            if isinstance(error, sqlite3.Error) and primary(error) == sqlite3.SQLITE_FULL and self.headroom.bring_in():
                error = self._transact(batch)
            if error is None:
                if self.headroom.wants_log_in(self.figures.wal_octets):
                    self._large_wal()
                return
            if not isinstance(error, sqlite3.Error):
                self._fail(batch, error)
                return
            self._broken(error)
        urgent = [job for job in batch if job.urgent] if self.full and self.headroom.for_alarms else []
        others = [job for job in batch if not job.urgent] if urgent else batch
        if others:
            self._fail(others)
        if urgent:
            self._from_reserve(urgent)

    def _transact(self, batch: list[UnitJob | BulkJob]) -> Exception | None:
        """One commit, and telling of it; else what went wrong, rolled back."""
        started = time.perf_counter_ns()
        try:
            self.conn.execute("BEGIN IMMEDIATE")
            pages = self.headroom.pages() if self.headroom.tight and self.failure is None else None
            self._savepoints.run(batch)
            if pages is not None:
                self.headroom.check_growth(pages)
            self.conn.execute("COMMIT")
            self._still_there()
        except Exception as error:
            if not isinstance(error, sqlite3.Error):
                logger.exception("%s: a commit failed", self._thread.name)
            self._roll_back()
            return error
        self._count(batch, (time.perf_counter_ns() - started) // 1000)
        self._finished(batch)
        self.figures.wal_octets = self._wal.state().frames * FRAME
        return None

    def _still_there(self) -> None:
        """Raise when the file that took the commit is nobody's any more."""
        if (lost := self._place.lost()) is not None:
            raise lost

    @property
    def full(self) -> bool:
        """Whether nothing is written because the disk has no room."""
        return self.failure is not None and primary(self.failure) == sqlite3.SQLITE_FULL

    def _from_reserve(self, batch: list[UnitJob | BulkJob]) -> None:
        """What is urgent, on a full disk."""
        for _ in self.headroom.tries():
            error = self._transact(batch)
            if error is None:
                self.figures.from_reserve += len(batch)
                if self.headroom.cramped(self.figures.wal_octets):
                    self.headroom.bring_in()
                return
            if not isinstance(error, sqlite3.Error):
                self._fail(batch, error)
                return
            self.failure = error
            if not self.full:
                break
        self._fail(batch)

    def _count(self, batch: list[UnitJob | BulkJob], took_us: int) -> None:
        figures = self.figures
        figures.commits += 1
        units = sum(isinstance(job, UnitJob) for job in batch)
        figures.units += units
        figures.failed_units = self._savepoints.failed_units
        figures.rows += sum(job.size for job in batch) - units
        figures.last_commit_us = took_us
        figures.slowest_commit_us = max(figures.slowest_commit_us, took_us)

    def _large_wal(self) -> None:
        self.checkpoint("PASSIVE")
        if self.figures.wal_octets >= ALARM_OCTETS:
            self.figures.wal_alarms += 1
            logger.error("%s: the WAL has %d bytes: a reader holds it", self._thread.name, self.figures.wal_octets)

    def _fail(self, batch: Sequence[UnitJob | BulkJob], error: Exception | None = None) -> None:
        self.figures.refused += len(batch)
        for job in batch:
            job.result = error or StorageFull()
            if isinstance(job, UnitJob):
                job.events = job.calls = ()
        self._finished(batch)

    def _broken(self, error: sqlite3.Error) -> None:
        """Roll back and stop writing. A sync that failed is not tried again: the page may be gone already."""
        self.failure = error
        self.headroom.tight = self.headroom.tight or self.full
        self.figures.failed_commits += 1
        logger.error("%s: store is read-only now: %s", self._thread.name, error)
        self._roll_back()

    def _roll_back(self) -> None:
        if self.conn.in_transaction:
            try:
                self.conn.execute("ROLLBACK")
            except sqlite3.Error as error:
                logger.error("%s: rollback failed: %s", self._thread.name, error)

    # What control jobs may ask of the thread.

    def begin(self, at: Stamp, lost: Gap | None) -> Mark:
        """The first commit, before the thread starts: a new generation, the incarnation, what the file lost."""
        try:
            self.conn.execute("BEGIN IMMEDIATE")
            opening.put(self.conn, "incarnation", self._marks.incarnation)
            opening.put(self.conn, "generation", self.generation + 1)
            migrate.stamp(self.conn)
            if lost is not None:
                WriteUnit(self.conn, at, self._clock, self._marks.incarnation).lose(lost)
            self.conn.execute("COMMIT")
            self.generation += 1
            self._still_there()
        except sqlite3.Error as error:
            self._broken(error)
        return self._now()

    def leap(self, seq: int, lost: Gap) -> bool:
        """Go on above `seq`, in a new incarnation, and declare what was forgotten; False when nothing had to be done.

        The database knows of it before the incarnation file does: a start between the two sees that the file is the
        older one. No unit of this file runs meanwhile, so every later one has the new number.
        """
        shown = seq >> INCARNATION_SHIFT
        if self.failure is not None or shown < self._marks.incarnation:
            return False
        try:
            self.conn.execute("BEGIN IMMEDIATE")
            opening.put(self.conn, "incarnation", shown + 1)
            WriteUnit(self.conn, lost.at, self._clock, shown + 1).lose(lost)
            self.conn.execute("COMMIT")
        except sqlite3.Error as error:
            self._broken(error)
            return False
        try:
            self._marks.leap(shown)
        except OSError as error:
            logger.error("the incarnation cannot be written: %s", error)
        return True

    def end(self) -> Mark:
        """The last thing: everything into the database; clean, unless the medium failed."""
        if self.failure is None:
            self.mark()
            self.checkpoint("TRUNCATE")
        return self.suspicion() or Mark(self.generation, clean=True)

    def look(self) -> None:
        """Stop writing when the file was removed or replaced (for the watchdog: an idle node commits nothing)."""
        if self.failure is None and (lost := self._place.lost()) is not None:
            self._broken(lost)

    def distrust(self, error: sqlite3.Error) -> None:
        """A reader found the file damaged: nothing more is written to it."""
        if self.failure is None:
            self._broken(error)

    def suspicion(self) -> Mark | None:
        """A mark that makes the next start look thoroughly; None as long as the medium has not failed."""
        if self.failure is None or primary(self.failure) not in MEDIUM_FAILED:
            return None
        return Mark(self.generation, suspect=True)

    def _now(self) -> Mark:
        state = self._wal.state()
        return Mark(self.generation, state.salt.hex(), state.frames)

    def checkpoint(self, mode: str) -> None:
        """`connection.checkpoint`, and count it; nothing once the store is read-only."""
        if self.failure is not None:
            return
        try:
            checkpoint(self.conn, mode)
        except sqlite3.Error as error:
            self._trouble("checkpoint", error)
            return
        self.figures.checkpoints += 1
        self.figures.wal_octets = self._wal.state().frames * FRAME

    def mark(self) -> Mark | None:
        """Commit a new generation of the file and say what its mark is; None when nothing can be written."""
        if self.failure is not None:
            return None
        try:
            self._advance()
        except sqlite3.Error as error:
            self._broken(error)
            return None
        return self._now()

    def rest(self) -> Mark | None:
        """What is done when no commit came for a while: free pages given back, a mark, a checkpoint."""
        if self.failure is not None:
            return None
        try:
            [(free,)] = self.conn.execute("PRAGMA freelist_count").fetchall()
            if free > FREE_PAGES:
                self.conn.executescript("PRAGMA incremental_vacuum(64)")  # `execute` would stop after the first page
        except sqlite3.Error as error:
            self._trouble("vacuum", error)
        mark = self.mark()
        self.checkpoint("PASSIVE")
        return mark

    def probe(self) -> bool | None:
        """Try a full disk, or a lock that was held, again: does a write with its sync succeed? First the reserve gets
        what there is of it.

        None: the medium failed, nothing but a restart can help.
        """
        if self.failure is None:
            return True
        if primary(self.failure) in MEDIUM_FAILED:
            return None
        try:
            self.headroom.hold_for_alarms(Mark(self.generation))
            self.headroom.make_room()  # for what alarms made the database grow by: the log is to be used again
            self._advance()
        except sqlite3.Error as error:
            self._roll_back()
            self.failure = error
            return None if primary(error) in MEDIUM_FAILED else False
        logger.warning("%s: the store takes writes again", self._thread.name)
        self.failure = None
        return True

    def _advance(self) -> None:
        self.conn.execute("BEGIN IMMEDIATE")
        opening.put(self.conn, "generation", self.generation + 1)
        self.conn.execute("COMMIT")
        self.generation += 1

    def _trouble(self, what: str, error: sqlite3.Error) -> None:
        """Housekeeping failed: without room it can wait, with a failed medium nothing is written any more."""
        if primary(error) in MEDIUM_FAILED:
            self._broken(error)
        else:
            logger.warning("%s: %s failed: %s", self._thread.name, what, error)
