"""Opening a file so that the node always starts (promise P3): look, quarantine, migrate, compare with its mark.

A file that SQLite cannot read is moved to `<state>/quarantine/<name>-<stamp>/` and a fresh one takes its place. A
disk without any room gets the ballast file's room, so that the write-ahead log's index can be made.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import cast

from edge.store import wal
from edge.store.ballast import Ballast
from edge.store.connection import open_writer, primary
from edge.store.damaged_log import CHECK_OCTETS, Damage
from edge.store.marks import Found, Mark
from edge.store.migration import statements
from edge.system.files import sync_directory

logger = logging.getLogger(__name__)

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_PARTS = ("", "-wal", "-shm")
_GET = "SELECT value FROM meta WHERE name = ?"
_SET = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"


def sound(
    path: Path, mark: Mark | None, quarantine: Path, stamp: str, *, synchronous: str = "FULL"
) -> tuple[sqlite3.Connection, str]:
    """A writer's connection to `path`, and what was wrong with the file that had to be put aside for it ("" if none).

    The file is read whole if its mark says that its medium failed, and, unless it is large, after an unclean stop.
    Raises `sqlite3.Error` when even a fresh file cannot be opened.
    """
    try:
        return _checked(path, synchronous, thorough=_thorough(path, mark)), ""
    except sqlite3.DatabaseError as error:
        if not damaged(error):
            raise
        put_aside(path, quarantine, stamp)
        return open_writer(path, synchronous=synchronous), str(error)


UNUSABLE = (OSError, sqlite3.Error)
"""What a directory, a medium or a database raises that a node cannot stand on."""


def damaged(error: BaseException) -> bool:
    """Whether an error says that the file itself is not what SQLite wrote."""
    return isinstance(error, sqlite3.Error) and primary(error) in _DAMAGED


def _thorough(path: Path, mark: Mark | None) -> bool:
    if not path.exists() or mark is None or mark.suspect:
        return path.exists()
    return not mark.clean and path.stat().st_size <= CHECK_OCTETS


def _checked(path: Path, synchronous: str, *, thorough: bool) -> sqlite3.Connection:
    conn = _with_ballast(path, synchronous)
    try:
        conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if thorough:
            [(verdict,)] = conn.execute("PRAGMA quick_check(1)").fetchall()
            if verdict != "ok":
                raise _damage(str(verdict).splitlines()[0])
    except BaseException:
        abandon(conn)
        raise
    return conn


def _with_ballast(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open; without room for the WAL's index, with as much of the ballast's as that takes."""
    while True:
        conn: sqlite3.Connection | None = None
        try:
            conn = open_writer(path, synchronous=synchronous)
            conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return conn
        except sqlite3.DatabaseError as error:
            if conn is not None:
                abandon(conn)
            if primary(error) not in _NO_ROOM or not Ballast(path).give():
                raise
        logger.error("%s: no room to open it; using the ballast", path.name)


def abandon(conn: sqlite3.Connection) -> None:
    """Close a connection to a file that may not even let it."""
    try:
        conn.close()
    except sqlite3.Error as error:
        logger.warning("closing a damaged file: %s", error)


def _damage(verdict: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(verdict)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def put_aside(path: Path, quarantine: Path, stamp: str) -> Path:
    """Move a file and its WAL to a folder of their own; where that is."""
    folder = quarantine / f"{path.stem}-{stamp}"
    number = 1
    while folder.exists():
        number += 1
        folder = quarantine / f"{path.stem}-{stamp}-{number}"
    folder.mkdir(parents=True, mode=0o700)
    for part in _PARTS:
        source = Path(f"{path}{part}")
        if source.exists():
            source.replace(folder / source.name)
    sync_directory(folder)
    sync_directory(path.parent)
    logger.error("%s is damaged; it was moved to %s and a fresh one begins", path.name, folder)
    return folder


def look(conn: sqlite3.Connection, index: wal.Index, had_wal: bool, damage: Damage) -> Found:
    """What the file says about itself, for the comparison with its mark."""
    generation, incarnation = get(conn, "generation"), get(conn, "incarnation")
    return Found(generation, incarnation, index.state(), had_wal, 0 if damage.spared else damage.commits, damage.spared)


def get(conn: sqlite3.Connection, name: str) -> int:
    """A number of the file's own (`generation`, `incarnation`); 0 before it was ever set."""
    row = conn.execute(_GET, (name,)).fetchone()
    return cast(int, row[0]) if row else 0


def put(conn: sqlite3.Connection, name: str, value: int) -> None:
    """Set a number of the file's own."""
    conn.execute(_SET, (name, value))


MIGRATIONS = [
    statements(file, "meta-001", "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER) STRICT, WITHOUT ROWID")
    for file in ("node", "hot")
]
