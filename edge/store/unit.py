"""Units of work: what one caller does in one savepoint of the commit now gathering (writer thread), or reads."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

from edge.contract.event import Event
from edge.contract.gap import Gap
from edge.contract.store import Log
from edge.contract.time import Clock, Stamp
from edge.store import ledger, once
from edge.store.logs import TableLog

logger = logging.getLogger(__name__)

_UNDECODED = "Could not decode to UTF-8"
"""What sqlite3 says of a damaged text."""


class WriteUnit:
    """`edge.contract.store.Unit` on the writer thread; closed when its work returns."""

    def __init__(self, conn: sqlite3.Connection, at: Stamp, clock: Clock, incarnation: int) -> None:
        self._conn: sqlite3.Connection | None = conn
        self._clock = clock
        self.at = at
        self.incarnation = incarnation
        self.events: list[Event] = []
        self.calls: list[Callable[[], None]] = []
        self.failure: sqlite3.Error | None = None

    @property
    def wall_us(self) -> int:
        return self._clock.wall(self.at)[0]

    def run(self, sql: str, args: Sequence[object] = ()) -> list[tuple[object, ...]]:
        if self._conn is None:
            raise RuntimeError("this unit of work is over")
        try:
            return self._conn.execute(sql, args).fetchall()
        except sqlite3.Error as error:
            if _UNDECODED in str(error) and sql.lstrip().startswith("SELECT"):
                return self._damaged(self._conn, sql, args, error)
            self.failure = error
            raise

    def _damaged(
        self, conn: sqlite3.Connection, sql: str, args: Sequence[object], error: sqlite3.Error
    ) -> list[tuple[object, ...]]:
        """Rows with a text that is no UTF-8 any more, U+FFFD in the place of what is damaged: one flipped bit in one
        name keeps the node neither from starting nor from reading the others (P3)."""
        logger.error("a stored text is damaged and read as far as it goes: %s", str(error).partition(" with text ")[0])
        conn.text_factory = partial(str, encoding="utf-8", errors="replace")
        try:
            return conn.execute(sql, args).fetchall()
        finally:
            conn.text_factory = str

    def log(self, name: str) -> Log:
        return TableLog(self, name)

    def append(self, log: str, key: str, rows: Sequence[bytes]) -> int:
        return self.log(log).append(key, rows)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def after(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def once(self, surface: str, who: str, key: str) -> tuple[bytes, bytes] | None:
        return once.recall(self, surface, who, key)

    def keep(self, surface: str, who: str, key: str, digest: bytes, answer: bytes, until_us: int) -> None:
        once.keep(self, surface, who, key, digest, answer, until_us)

    def lose(self, gap: Gap) -> None:
        ledger.lose(self, gap)

    def close(self) -> None:
        """No more statements: the work has returned."""
        self._conn = None


class ReadUnit(WriteUnit):
    """A unit on a reader thread: its connection cannot write, and there is no commit for an event to follow."""

    def emit(self, event: Event) -> None:
        raise RuntimeError("a read has no events")

    def after(self, call: Callable[[], None]) -> None:
        raise RuntimeError("a read has no commit")
