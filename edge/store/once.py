"""The table `once` (design D23): the answer a caller's key already got, kept in the commit that did the work."""

from __future__ import annotations

from typing import cast

from edge.contract.store import Unit
from edge.store.migration import statements

_CREATE = """CREATE TABLE once (surface TEXT NOT NULL, who TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL,
    answer BLOB NOT NULL, until_us INTEGER NOT NULL, PRIMARY KEY (surface, who, key)) STRICT, WITHOUT ROWID"""
_INDEX = "CREATE INDEX once_until ON once (until_us)"
_FIND = "SELECT digest, answer, until_us FROM once WHERE surface = ? AND who = ? AND key = ?"
_KEEP = "INSERT OR REPLACE INTO once (surface, who, key, digest, answer, until_us) VALUES (?, ?, ?, ?, ?, ?)"
_MARK = "UPDATE once SET digest = ? WHERE surface = ? AND who = ? AND key = ?"
_FORGET = "DELETE FROM once WHERE surface = ? AND who = ? AND key = ?"
_PAGE = """SELECT who, key, digest, answer FROM once WHERE surface = ? AND (who, key) > (?, ?) AND until_us >= ?
    ORDER BY who, key LIMIT ?"""
_PURGE = "DELETE FROM once WHERE (surface, who, key) IN (SELECT surface, who, key FROM once WHERE until_us < ? LIMIT ?)"


def recall(unit: Unit, surface: str, who: str, key: str) -> tuple[bytes, bytes] | None:
    """The digest of the request that used this caller's key and the answer it got, unless its time is over."""
    for digest, answer, until_us in unit.run(_FIND, (surface, who, key)):
        if cast(int, until_us) >= unit.wall_us:
            return cast(bytes, digest), cast(bytes, answer)
    return None


def keep(unit: Unit, surface: str, who: str, key: str, digest: bytes, answer: bytes, until_us: int) -> None:
    """Remember the answer to a key until wall time `until_us`."""
    unit.run(_KEEP, (surface, who, key, digest, answer, until_us))


def mark(unit: Unit, surface: str, who: str, key: str, digest: bytes) -> None:
    """Change what is kept beside an answer."""
    unit.run(_MARK, (digest, surface, who, key))


def forget(unit: Unit, surface: str, who: str, key: str) -> None:
    """Let a key be used again."""
    unit.run(_FORGET, (surface, who, key))


def page(unit: Unit, surface: str, after: tuple[str, str], rows: int) -> list[tuple[str, str, bytes, bytes]]:
    """The next `rows` of a surface behind (who, key) `after` whose time is not over: who, key, digest, answer."""
    found = unit.run(_PAGE, (surface, *after, unit.wall_us, rows))
    return cast("list[tuple[str, str, bytes, bytes]]", found)


def purge(unit: Unit, rows: int = 500) -> None:
    """Forget at most `rows` keys whose time is over."""
    unit.run(_PURGE, (unit.wall_us, rows))


MIGRATIONS = [statements("node", "once-001", _CREATE, _INDEX)]
