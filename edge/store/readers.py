"""Two reader threads with connections that cannot write; a read lasts at most a second (it would stop checkpoints)."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from edge.contract.errors import TimedOut
from edge.contract.store import Unit
from edge.contract.time import Clock, Stamp
from edge.store.connection import open_reader
from edge.store.marks import Marks
from edge.store.unit import ReadUnit

READ_NS = 1_000_000_000
"""No read transaction lasts longer."""
_STEPS = 4_000
"""SQLite instructions between two looks at the watch."""


class ReadJob:
    """One read, and who waits for it: `done` is called on the reader thread with the result or the error."""

    __slots__ = ("at", "done", "work")

    def __init__(self, work: Callable[[Unit], Any], done: Callable[[Any], None], at: Stamp) -> None:
        self.work, self.done, self.at = work, done, at


class Readers:
    """A queue of reads and the threads that serve it."""

    def __init__(self, path: Path, clock: Clock, marks: Marks, threads: int = 2) -> None:
        self._path, self._clock, self._marks = path, clock, marks
        self._queue: SimpleQueue[ReadJob | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"reader-{path.stem}-{n}", daemon=True) for n in range(threads)
        ]

    def start(self) -> None:
        """Begin to take reads."""
        for thread in self._threads:
            thread.start()

    def put(self, job: ReadJob) -> None:
        """Queue a read."""
        self._queue.put(job)

    def stop(self) -> None:
        """Let the threads end after what is queued now."""
        for _ in self._threads:
            self._queue.put(None)

    def join(self) -> None:
        """Wait for the threads to end. Blocks: not for the loop."""
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        conn: sqlite3.Connection | None = None
        while (job := self._queue.get()) is not None:
            try:
                conn = conn or open_reader(self._path)
            except sqlite3.Error as error:
                job.done(error)  # the next read tries again: a thread that ends would leave every read waiting
                continue
            job.done(self._read(conn, job))
        if conn is not None:
            conn.close()

    def _read(self, conn: sqlite3.Connection, job: ReadJob) -> Any:
        unit = ReadUnit(conn, job.at, self._clock, self._marks.incarnation)
        end = time.perf_counter_ns() + READ_NS
        conn.set_progress_handler(lambda: time.perf_counter_ns() > end, _STEPS)
        try:
            conn.execute("BEGIN")
            return job.work(unit)
        except sqlite3.OperationalError as error:
            return TimedOut("a read took over a second") if time.perf_counter_ns() > end else error
        except Exception as error:
            return error
        finally:
            unit.close()
            conn.set_progress_handler(None, 0)
            if conn.in_transaction:
                conn.execute("ROLLBACK")
