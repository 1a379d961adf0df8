"""The loss ledger (promise P2), one in each file.

What had a number is kept as its exact range. What never had one (a refused publish) is counted by log, class of
key, reason, who and minute of its boot. Pruning moves old rows into a total per log and reason that is never
dropped, so "acked = delivered + declared gaps" stays a query.
"""

from __future__ import annotations

import msgspec

from edge.contract.gap import Gap
from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.store.migration import statements

MINUTE = 60_000_000
KEY_CLASSES = 16
"""Classes of key told apart per log, reason, who and minute; the rest counts as `*`."""

_TABLES = (
    """CREATE TABLE gap (id INTEGER PRIMARY KEY, log TEXT NOT NULL, key TEXT NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, count INTEGER NOT NULL, reason TEXT NOT NULL, who TEXT NOT NULL,
        boot INTEGER NOT NULL, mono_us INTEGER NOT NULL) STRICT""",
    """CREATE TABLE gap_minute (log TEXT NOT NULL, reason TEXT NOT NULL, who TEXT NOT NULL, boot INTEGER NOT NULL,
        minute INTEGER NOT NULL, key TEXT NOT NULL, count INTEGER NOT NULL,
        PRIMARY KEY (log, reason, who, boot, minute, key)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE gap_total (log TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
        PRIMARY KEY (log, reason)) STRICT, WITHOUT ROWID""",
)
_RANGE = "INSERT INTO gap (log, key, first, last, count, reason, who, boot, mono_us) VALUES (?,?,?,?,?,?,?,?,?)"
_BUMP = (
    "UPDATE gap_minute SET count = count + ? WHERE (log, reason, who, boot, minute, key) = (?,?,?,?,?,?) RETURNING 1"
)
_CLASSES = "SELECT count(*) FROM gap_minute WHERE (log, reason, who, boot, minute) = (?,?,?,?,?)"
_MINUTE = """INSERT INTO gap_minute (log, reason, who, boot, minute, key, count) VALUES (?,?,?,?,?,?,?)
    ON CONFLICT DO UPDATE SET count = count + excluded.count"""
_TOTAL = """INSERT INTO gap_total (log, reason, count) VALUES (?,?,?)
    ON CONFLICT DO UPDATE SET count = count + excluded.count"""
_SUMS = """SELECT log, reason, sum(count) FROM (SELECT log, reason, count FROM gap UNION ALL
    SELECT log, reason, count FROM gap_minute UNION ALL SELECT log, reason, count FROM gap_total)
    GROUP BY log, reason ORDER BY log, reason"""
_RECENT = """SELECT log, key, first, last, count, reason, who, boot, mono_us FROM gap
    UNION ALL SELECT log, key, 0, 0, count, reason, who, boot, minute * 60000000 FROM gap_minute
    ORDER BY 8 DESC, 9 DESC LIMIT ?"""
_MATCHING = """SELECT log, key, first, last, count, reason, who, boot, mono_us FROM gap
    WHERE (?1 = '' OR reason = ?1) AND (?2 = '' OR who = ?2)
    UNION ALL SELECT log, key, 0, 0, count, reason, who, boot, minute * 60000000 FROM gap_minute
    WHERE (?1 = '' OR reason = ?1) AND (?2 = '' OR who = ?2) ORDER BY 8 DESC, 9 DESC"""
_OF_KEY = """SELECT log, key, first, last, count, reason, who, boot, mono_us FROM gap
    WHERE log = ? AND key = ? AND last > ? ORDER BY first LIMIT ?"""
_OLD_RANGES = "DELETE FROM gap WHERE id <= (SELECT max(id) FROM gap) - ? RETURNING log, reason, count"
_OLD_MINUTES = """DELETE FROM gap_minute WHERE (log, reason, who, boot, minute, key) IN (SELECT log, reason, who, boot,
    minute, key FROM gap_minute ORDER BY boot DESC, minute DESC LIMIT -1 OFFSET ?) RETURNING log, reason, count"""


class Drop(msgspec.Struct, frozen=True):
    """How much of a log was lost for one reason, ever."""

    log: str
    reason: str
    count: int


def key_class(key: str) -> str:
    """What a key without a number is counted under: its first topic level, at most 48 characters."""
    return key.split("/", 1)[0][:48]


def lose(unit: Unit, gap: Gap) -> None:
    """Write one gap: exactly if its rows had numbers, else added to its minute."""
    if gap.last:
        row = (gap.log, gap.key, gap.first, gap.last, gap.count, gap.reason, gap.who, gap.at.boot, gap.at.mono_us)
        unit.run(_RANGE, row)
        return
    place = (gap.log, gap.reason, gap.who, gap.at.boot, gap.at.mono_us // MINUTE)
    key = key_class(gap.key)
    if unit.run(_BUMP, (gap.count, *place, key)):
        return
    [(classes,)] = unit.run(_CLASSES, place)
    unit.run(_MINUTE, (*place, key if isinstance(classes, int) and classes < KEY_CLASSES else "*", gap.count))


def drops(unit: Unit) -> list[Drop]:
    """What was ever lost, by log and reason: the right side of P2's equation."""
    return [Drop(*row) for row in unit.run(_SUMS)]  # type: ignore[arg-type]


def recent(unit: Unit, rows: int = 100) -> list[Gap]:
    """The newest entries, newest first; counted minutes have `first` = `last` = 0."""
    return [_gap(row) for row in unit.run(_RECENT, (rows,))]


def matching(unit: Unit, reason: str = "", who: str = "") -> list[Gap]:
    """Every entry that is not yet folded into a total, newest first, of one reason and one client ("" is any)."""
    return [_gap(row) for row in unit.run(_MATCHING, (reason, who))]


def gaps(unit: Unit, log: str, key: str, after: int = 0, rows: int = 1000) -> list[Gap]:
    """Exact gaps of one log and key that end above `after`, oldest numbers first."""
    return [_gap(row) for row in unit.run(_OF_KEY, (log, key, after, rows))]


def prune(unit: Unit, keep_ranges: int = 20_000, keep_minutes: int = 20_000) -> int:
    """Fold the oldest entries into the totals; how many."""
    gone = unit.run(_OLD_RANGES, (keep_ranges,)) + unit.run(_OLD_MINUTES, (keep_minutes,))
    for row in gone:
        unit.run(_TOTAL, row)
    return len(gone)


def _gap(row: tuple[object, ...]) -> Gap:
    log, key, first, last, count, reason, who, boot, mono_us = row
    return Gap(log, key, first, last, count, reason, who, Stamp(boot, mono_us))  # type: ignore[arg-type]


MIGRATIONS = [statements(file, "ledger-001", *_TABLES) for file in ("node", "hot")]
