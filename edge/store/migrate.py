"""Bring a file up to the schema of this release.

sqlite-utils costs about 10 MB of private memory, so it is imported only when a migration is due, and then in a
child process that ends (`python -m edge.store.migrate`, ≈ 0.2 s on the reference machine, at first start and after
an upgrade); `inline` does the same in this process.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from edge.store.connection import open_writer
from edge.store.migration import Migration

_TABLE = "CREATE TABLE IF NOT EXISTS migration (name TEXT PRIMARY KEY, at TEXT NOT NULL) STRICT, WITHOUT ROWID"
_ADD = "INSERT INTO migration (name, at) VALUES (?, datetime('now'))"


def due(conn: sqlite3.Connection, migrations: Sequence[Migration], file: str) -> list[Migration]:
    """The migrations of `file` that this database has not seen, in order."""
    done = seen(conn)
    return [m for m in migrations if m.file == file and m.name not in done]


def seen(conn: sqlite3.Connection) -> set[str]:
    """The names of the migrations that this database has seen."""
    if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'migration'").fetchone() is None:
        return set()
    return {name for (name,) in conn.execute("SELECT name FROM migration")}


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

    Raises `RuntimeError` with what the child said when it failed.
    """
    command = [sys.executable, "-m", "edge.store.migrate", str(path), file]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        raise RuntimeError(f"migration of {path.name} failed: {result.stderr.strip()[-2000:]}")


def _main() -> None:
    from edge.store.schema import MIGRATIONS

    path, file = sys.argv[1:]
    conn = open_writer(Path(path))
    inline(conn, file, MIGRATIONS)
    conn.close()


if __name__ == "__main__":
    _main()
