"""How a connection is opened: every setting of spec/vfs-sync.md §8.4, and nothing anywhere else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

PAGE = 4096
FRAME = PAGE + 24
"""A WAL frame: the page and its header."""

BUSY_MS = 5000
"""How long a lock of another program (a backup) is waited for."""
WRITER_CACHE_KIB = 4096
READER_CACHE_KIB = 1024
MEDIUM_FAILED = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
)
"""Primary result codes after which only opening the file again can help."""


def open_writer(path: Path, *, synchronous: str = "FULL") -> sqlite3.Connection:
    """The one connection that writes and checkpoints. Transactions are explicit (`BEGIN IMMEDIATE`)."""
    conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    conn.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute(f"PRAGMA synchronous = {synchronous}")
    conn.execute("PRAGMA wal_autocheckpoint = 0")
    conn.execute("PRAGMA journal_size_limit = 8388608")
    conn.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
    _common(conn)
    return conn


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write."""
    conn = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        conn.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        conn.execute("PRAGMA query_only = ON")
        conn.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
        _common(conn)
    except BaseException:
        conn.close()
        raise
    return conn


def _common(conn: sqlite3.Connection) -> None:
    conn.execute("PRAGMA temp_store = MEMORY")
    conn.execute("PRAGMA mmap_size = 0")
    conn.execute("PRAGMA foreign_keys = ON")
    conn.execute("PRAGMA cell_size_check = ON")


def checkpoint(conn: sqlite3.Connection, mode: str) -> None:
    """Bring the WAL into the database as far as readers let it, never waiting for them; `TRUNCATE` empties it. Raises
    `sqlite3.Error`; locks of other programs are waited for again afterwards either way."""
    conn.execute("PRAGMA busy_timeout = 0")
    try:
        conn.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    finally:
        conn.execute(f"PRAGMA busy_timeout = {BUSY_MS}")


def primary(error: sqlite3.Error) -> int:
    """The primary result code of an error (SQLITE_IOERR for each of its kinds); 0 for Python's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
