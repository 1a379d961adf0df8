"""What one database and its log have left of the disk, and what is held back of that (design D5).

The ballast is for the next start, the reserve for alarms, and the log has room of its own: it is used again once what
it holds is in the database. On a disk that is nearly full the log is kept short, because it takes room from all files.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edge.store import wal
from edge.store.ballast import Ballast
from edge.store.connection import PAGE, checkpoint
from edge.store.marks import Mark, Marks
from edge.store.reserve import Reserve
from edge.store.room import free

logger = logging.getLogger(__name__)

CHECKPOINT_OCTETS = 4 << 20
"""A log that has grown so long is brought into the database."""
SMALL_OCTETS = 64 << 10
"""With less room on the disk than a long log takes, the log is brought in each time it has grown by so much."""
SPARE_OCTETS = 256 << 10
"""What the reserve leaves to the log and to other files when there is not room for all of it."""


class Headroom:
    """The room of one file. It belongs to the thread that writes the database."""

    def __init__(
        self, path: Path, conn: sqlite3.Connection, index: wal.Index, marks: Marks, reserve: Reserve | None = None
    ) -> None:
        """`path` is the database's, `conn` the connection that writes it, `index` that of its log."""
        self._path, self._wal_file = path, Path(f"{path}-wal")
        self._conn, self._index, self._marks = conn, index, marks
        self._ballast, self._reserve = Ballast(path), reserve
        self._looked_octets = 0
        """How long the log was when the room on the disk was looked at last."""
        self.tight = False
        """Whether there was little room when it was looked at last, or none since."""

    @property
    def for_alarms(self) -> bool:
        """Whether any room is held back for them."""
        return self._reserve is not None

    # Held back.

    def keep(self) -> bool:
        """At the start, before anything is written: hold back what there is room for; whether that is all.

        The ballast comes first: what is left of a full disk is for the next start."""
        self._ballast.keep()
        if self._reserve is None or self._reserve.hold():
            return self._ballast.whole
        logger.warning("%s: no room for the whole reserve for alarms", self._path.stem)
        return False

    def refill(self) -> bool:
        """Hold back again what a full disk took, where that leaves some room for others; whether all of it is held."""
        return (self._reserve is None or self._reserve.hold()) and self._ballast.fill()

    def leave(self) -> None:
        """At the end, when the log and its index are gone: what they leave is for the next start."""
        self._ballast.fill(spare=0)

    def hold_for_alarms(self, mark: Mark) -> None:
        """Hold back for alarms what can be had: all of it, if need be with the log's room; else what others can spare.

        What is written in the files' own room (free pages, the log) needs none of that, so it goes on either way.
        `mark` is the file's as soon as the log is empty."""
        reserve = self._reserve
        if reserve is None or reserve.hold():
            return
        log_octets = self._wal_file.stat().st_size if self._wal_file.exists() else 0
        if free(self._path) + log_octets >= reserve.missing:
            self._empty_log(mark)
        if not reserve.hold():
            reserve.hold_some(SPARE_OCTETS)

    # Given up.

    def save(self, mark: Mark) -> None:
        """Write a mark, at the ballast's expense if need be: a later start would take a log that is in the database for
        one that was lost."""
        while True:
            try:
                self._marks.put(self._path.stem, mark)
                return
            except OSError as error:
                if not self._ballast.give():
                    logger.error("%s: its mark cannot be written: %s", self._path.stem, error)
                    return

    def tries(self) -> Iterator[None]:
        """A step for each time that an alarm may be tried on a full disk, each with more room than the one before.

        The log must not use the reserve up by growing: before the second try what it holds is brought into the
        database, at the reserve's expense as far as the database has to grow for it, so that its own room is used
        again. Only when that is not enough the log gets more."""
        yield
        if self.make_room():
            yield
            while self._give():
                yield

    def make_room(self) -> bool:
        """Bring the log in, and give up of the reserve what that takes; False when the reserve is used up."""
        while not self.bring_in():
            missing = self._index.pages() * PAGE - self._path.stat().st_size
            if not self._give(max(1, missing)):
                return False
        return True

    def _give(self, octets: int = 1) -> bool:
        return self._reserve is not None and self._reserve.give(octets)

    # The log and the database share what is left.

    def wants_log_in(self, log_octets: int) -> bool:
        """Whether a log of this length is to be brought in: it is long, or takes room that others may need."""
        return log_octets >= CHECKPOINT_OCTETS or self.cramped(log_octets)

    def cramped(self, log_octets: int) -> bool:
        """Whether the log has grown, to this length, and takes room that others may need."""
        grown = log_octets - self._looked_octets
        if 0 <= grown < SMALL_OCTETS:
            return False
        self._looked_octets = log_octets
        self.tight = free(self._path) < 2 * CHECKPOINT_OCTETS
        return grown > 0 and self.tight

    def pages(self) -> int:
        """How many pages the database has, in the transaction that is open."""
        [(pages,)] = self._conn.execute("PRAGMA page_count").fetchall()
        return int(pages)

    def check_growth(self, before: int) -> None:
        """Raise when this commit, which found `before` pages, makes the database grow by more than there is room for
        once the log is brought in: the reserve would pay for that, and it is for alarms only."""
        pages = self.pages()
        if pages > before and pages * PAGE - self._path.stat().st_size > free(self._path):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    def bring_in(self) -> bool:
        """A checkpoint as far as readers let it, so that the log's room is used again; False without room for it."""
        try:
            self._conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            logger.debug("%s: checkpoint without room: %s", self._path.stem, error)
            return False
        return True

    def _empty_log(self, mark: Mark) -> None:
        """Bring the log in and give its room back; the mark must not ask for its frames by then."""
        try:
            self._put(mark)
            checkpoint(self._conn, "TRUNCATE")
        except (OSError, sqlite3.Error) as error:
            logger.debug("%s: the log keeps its room: %s", self._path.stem, error)

    def _put(self, mark: Mark) -> None:
        """Write a mark, at the reserve's expense if need be. Raises `OSError`."""
        try:
            self._marks.put(self._path.stem, mark)
        except OSError:
            if not self._give():
                raise
            self._marks.put(self._path.stem, mark)
