"""Bring a file up to the schema of this release.

sqlite-utils costs about 10 MB of private memory, so it is imported only when a migration is due, and then in a
child process that ends (`python -m edge.store.upgrade`, ≈ 0.2 s on the reference machine, at first start and after
an upgrade); `inline` does the same in this process.
"""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from edge.store import opening
from edge.store.migration import Migration

logger = logging.getLogger(__name__)

SCHEMA = 1
"""The schema of this release: one more than the last release's when it has migrations of its own."""
OLDEST = 1
"""The oldest schema whose program can still use a file of this release; each file says it in its table `meta`. Changes
are additive for one release (design D6), so from schema 2 on it is at most `SCHEMA - 1`."""

_TABLE = "CREATE TABLE IF NOT EXISTS migration (name TEXT PRIMARY KEY, at TEXT NOT NULL) STRICT, WITHOUT ROWID"
_ADD = "INSERT INTO migration (name, at) VALUES (?, datetime('now'))"


class Unusable(Exception):
    """A file that this release cannot use as it is: which, why, and the next command."""


def due(conn: sqlite3.Connection, migrations: Sequence[Migration], file: str) -> list[Migration]:
    """The migrations of `file` that this database has not seen, in order."""
    done = seen(conn)
    return [m for m in migrations if m.file == file and m.name not in done]


def seen(conn: sqlite3.Connection) -> set[str]:
    """The names of the migrations that this database has seen."""
    if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'migration'").fetchone() is None:
        return set()
    return {name for (name,) in conn.execute("SELECT name FROM migration")}


def check(conn: sqlite3.Connection, migrations: Sequence[Migration], file: str) -> list[str]:
    """The migrations of a newer release that this database has seen: they only added, so this release may use it.

    Raises `Unusable` when the newer release said that they did not.
    """
    unknown = sorted(seen(conn) - {m.name for m in migrations if m.file == file})
    found, oldest = _stamp(conn)
    if oldest > SCHEMA:
        raise Unusable(
            f"{file}.db is of a newer release (schema {found}, this program has {SCHEMA} and it needs {oldest})\n"
            "  next: install the newer release again, or put back a backup of this one: aun-edge backup restore FILE"
        )
    return unknown


def stamp(conn: sqlite3.Connection) -> None:
    """Say in the file which schema it has now and who can use it; never less than it says already."""
    found, oldest = _stamp(conn)
    opening.put(conn, "schema", max(found, SCHEMA))
    opening.put(conn, "schema_oldest", max(oldest, OLDEST))


def _stamp(conn: sqlite3.Connection) -> tuple[int, int]:
    if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is None:
        return 0, 0
    return opening.get(conn, "schema"), opening.get(conn, "schema_oldest")


def inline(conn: sqlite3.Connection, file: str, migrations: Sequence[Migration]) -> int:
    """Apply what is due, each migration in its own transaction with its record; how many."""
    todo = due(conn, migrations, file)
    if todo:
        _apply(conn, todo)
    return len(todo)


def _apply(conn: sqlite3.Connection, todo: Sequence[Migration]) -> None:
    import sqlite_utils

    database = sqlite_utils.Database(conn)
    conn.execute(_TABLE)
    for migration in todo:
        conn.execute("BEGIN IMMEDIATE")
        try:
            migration.apply(database)
            conn.execute(_ADD, (migration.name,))
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise


def in_child(path: Path, file: str) -> None:
    """Apply what is due of the release's own migrations in a short-lived process.

    Raises `Unusable` with what the child said when it failed.
    """
    command = [sys.executable, "-m", "edge.store.upgrade", str(path), file]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        logger.error("migration of %s: %s", path.name, result.stderr.strip()[-2000:])
        said = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unusable(
            f"{path.name} cannot be brought to this release: {said}\n"
            "  next: make room if the disk is full; else install the release before, or put back a backup: "
            "aun-edge backup restore FILE"
        )
