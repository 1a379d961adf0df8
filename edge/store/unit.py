"""Units of work: what one caller does in one savepoint of the commit now gathering (writer thread), or reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from edge.contract.event import Event
from edge.contract.gap import Gap
from edge.contract.store import Log
from edge.contract.time import Clock, Stamp
from edge.store import ledger, once
from edge.store.logs import TableLog


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
            self.failure = error
            raise

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
