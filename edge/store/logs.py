"""Logs in tables: numbered rows per (log, key), a head that never goes back, cursors, eviction with a gap (D18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from edge.contract.gap import Gap
from edge.contract.store import INCARNATION_SHIFT, Unit
from edge.contract.time import Stamp
from edge.store.migration import statements

_TABLES = (
    """CREATE TABLE log_head (id INTEGER PRIMARY KEY, log TEXT NOT NULL, key TEXT NOT NULL, head INTEGER NOT NULL,
        floor INTEGER NOT NULL, octets INTEGER NOT NULL, UNIQUE (log, key)) STRICT""",
    """CREATE TABLE log_row (head INTEGER NOT NULL REFERENCES log_head (id), seq INTEGER NOT NULL,
        boot INTEGER NOT NULL, mono_us INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (head, seq)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE log_cursor (head INTEGER NOT NULL REFERENCES log_head (id), reader TEXT NOT NULL,
        seq INTEGER NOT NULL, PRIMARY KEY (head, reader)) STRICT, WITHOUT ROWID""",
)
_HEAD = "SELECT id, head, floor, octets FROM log_head WHERE log = ? AND key = ?"
_NEW = "INSERT INTO log_head (log, key, head, floor, octets) VALUES (?, ?, 0, 0, 0) RETURNING id, head, floor, octets"
_MOVE = "UPDATE log_head SET head = ?, octets = octets + ? WHERE id = ?"
_ADD = "INSERT INTO log_row (head, seq, boot, mono_us, body) VALUES (?, ?, ?, ?, ?)"
_AFTER = "SELECT seq, body FROM log_row WHERE head = ? AND seq > ? ORDER BY seq LIMIT ?"
_CURSOR = "SELECT seq FROM log_cursor WHERE head = ? AND reader = ?"
_SET_CURSOR = """INSERT INTO log_cursor (head, reader, seq) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET seq = max(seq, excluded.seq) RETURNING seq"""
_FLOOR = "UPDATE log_head SET floor = ?, octets = octets - ? WHERE id = ?"
_OLDEST = "SELECT seq, length(body) FROM log_row WHERE head = ? AND seq > ? ORDER BY seq LIMIT ?"
_OLDER = """SELECT max(seq) FROM log_row WHERE head = ? AND seq < coalesce(
    (SELECT seq FROM log_row WHERE head = ? AND (boot, mono_us) >= (?, ?) ORDER BY seq LIMIT 1), 1 << 62)"""
_DROP = "DELETE FROM log_row WHERE head = ? AND seq <= ?"
_TAKE_OUT = "DELETE FROM log_row WHERE head = ? AND seq = ? RETURNING length(body)"
_DROPPED = """SELECT count(*), coalesce(sum(length(body)), 0), coalesce(min(seq), 0) FROM log_row
    WHERE head = ? AND seq <= ?"""
_KEYS = "SELECT key, head, floor, octets FROM log_head WHERE log = ? ORDER BY key"
_SAVED = "SELECT head FROM log_head WHERE log = ? AND key = ?"
_SAVE = """INSERT INTO log_head (log, key, head, floor, octets) VALUES (?, ?, ?, 0, 0)
    ON CONFLICT DO UPDATE SET head = max(head, excluded.head)"""
_LOWEST = "SELECT min(seq) FROM log_cursor WHERE head = ?"

_STEP = 256


class NumberingUnit(Unit, Protocol):
    """A unit that knows which incarnation its numbers are of."""

    incarnation: int


class TableLog:
    """`edge.contract.store.Log` inside one unit."""

    def __init__(self, unit: NumberingUnit, name: str) -> None:
        self._unit = unit
        self._name = name

    def head(self, key: str) -> int:
        return self._find(key)[1]

    def floor(self, key: str) -> int:
        return self._find(key)[2]

    def octets(self, key: str) -> int:
        """Bytes of the bodies that are kept."""
        return self._find(key)[3]

    def keys(self) -> list[str]:
        """Every key of this log that ever had a number."""
        return [cast(str, row[0]) for row in self._unit.run(_KEYS, (self._name,))]

    def append(self, key: str, rows: Sequence[bytes]) -> int:
        ident, head, _, _ = self._find(key, make=True)
        if not rows:
            return head
        first = self._next(head)
        at = self._unit.at
        for seq, body in enumerate(rows, first):
            self._unit.run(_ADD, (ident, seq, at.boot, at.mono_us, body))
        last = first + len(rows) - 1
        self._unit.run(_MOVE, (last, sum(map(len, rows)), ident))
        return last

    def number(self, key: str, count: int = 1) -> int:
        if count < 1:
            raise ValueError("at least one number")
        ident, head, _, _ = self._find(key, make=True)
        last = self._next(head) + count - 1
        self._unit.run(_MOVE, (last, 0, ident))
        return last

    def after(self, key: str, seq: int, rows: int, octets: int) -> list[tuple[int, bytes]]:
        ident = self._find(key)[0]
        found: list[tuple[int, bytes]] = []
        while rows > 0:
            page = cast(list[tuple[int, bytes]], self._unit.run(_AFTER, (ident, seq, min(rows, _STEP))))
            for row in page:
                octets -= len(row[1])
                if octets < 0 and found:
                    return found
                found.append(row)
            if len(page) < min(rows, _STEP):
                break
            rows -= len(page)
            seq = page[-1][0]
        return found

    def ack(self, key: str, reader: str, seq: int) -> int:
        ident, head, _, _ = self._find(key)
        if not ident:
            return 0
        [(now,)] = self._unit.run(_SET_CURSOR, (ident, reader, max(0, min(seq, head))))
        return cast(int, now)

    def cursor(self, key: str, reader: str) -> int:
        found = self._unit.run(_CURSOR, (self._find(key)[0], reader))
        return cast(int, found[0][0]) if found else 0

    def lowest_cursor(self, key: str) -> int | None:
        """Where the slowest reader stands; None without readers."""
        [(seq,)] = self._unit.run(_LOWEST, (self._find(key)[0],))
        return cast("int | None", seq)

    def raise_floor(self, key: str, seq: int) -> None:
        ident, head, floor, _ = self._find(key)
        if not ident or seq <= floor:
            return
        self._drop(ident, min(seq, head))

    def evict(self, key: str, keep_octets: int, reason: str) -> Gap | None:
        ident, _, _, octets = self._find(key)
        last = 0
        while octets > keep_octets:
            page = cast(list[tuple[int, int]], self._unit.run(_OLDEST, (ident, last, _STEP)))
            if not page:
                break
            for seq, size in page:
                last, octets = seq, octets - size
                if octets <= keep_octets:
                    break
        return self._lose(key, ident, last, reason) if last else None

    def expire(self, key: str, before: Stamp, reason: str) -> Gap | None:
        """Drop the rows older than `before` that have none younger below them; the gap is declared."""
        ident = self._find(key)[0]
        [(last,)] = self._unit.run(_OLDER, (ident, ident, before.boot, before.mono_us))
        return self._lose(key, ident, cast(int, last), reason) if last else None

    def _lose(self, key: str, ident: int, last: int, reason: str) -> Gap:
        first, count = self._drop(ident, last)
        gap = Gap(self._name, key, first, last, count, reason, "", self._unit.at)
        self._unit.lose(gap)
        return gap

    def take_out(self, key: str, seqs: Sequence[int], reason: str) -> int:
        ident, head, _, _ = self._find(key)
        count = 0
        for seq in seqs:
            for (octets,) in cast("list[tuple[int]]", self._unit.run(_TAKE_OUT, (ident, seq))):
                self._unit.run(_MOVE, (head, -octets, ident))
                self._unit.lose(Gap(self._name, key, seq, seq, 1, reason, "store", self._unit.at))
                count += 1
        return count

    def _drop(self, ident: int, last: int) -> tuple[int, int]:
        [(count, octets, first)] = self._unit.run(_DROPPED, (ident, last))
        self._unit.run(_DROP, (ident, last))
        self._unit.run(_FLOOR, (last, octets, ident))
        return cast(int, first), cast(int, count)

    def _find(self, key: str, *, make: bool = False) -> tuple[int, int, int, int]:
        found = self._unit.run(_HEAD, (self._name, key))
        if not found and make:
            found = self._unit.run(_NEW, (self._name, key))
        return cast(tuple[int, int, int, int], found[0]) if found else (0, 0, 0, 0)

    def _next(self, head: int) -> int:
        """The number after `head`. The first one of a new incarnation lies above every one of the last."""
        return max(head, self._unit.incarnation << INCARNATION_SHIFT) + 1


MIGRATIONS = [statements(file, "logs-001", *_TABLES) for file in ("node", "hot")]


def saved_head(unit: Unit, log: str, key: str) -> int:
    """The head on disk of a log whose rows lie elsewhere (0: none yet)."""
    found = unit.run(_SAVED, (log, key))
    return cast(int, found[0][0]) if found else 0


def save_head(unit: Unit, log: str, key: str, head: int) -> None:
    """Bring the head on disk up to `head`; never back."""
    unit.run(_SAVE, (log, key, head))
