"""The settings that promise P1 stands on (spec/vfs-sync.md §8.4)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edge.store.connection import BUSY_MS, checkpoint, open_reader, open_writer, primary

WRITER = {
    "journal_mode": "wal",
    "synchronous": 2,
    "wal_autocheckpoint": 0,
    "journal_size_limit": 8 << 20,
    "cache_size": -4096,
    "temp_store": 2,
    "mmap_size": 0,
    "auto_vacuum": 2,
    "page_size": 4096,
    "foreign_keys": 1,
    "cell_size_check": 1,
    "busy_timeout": 5000,
}


def test_the_writer_has_every_setting_also_on_a_new_file(tmp_path: Path) -> None:
    for _ in range(2):
        conn = open_writer(tmp_path / "x.db")
        conn.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER) STRICT")
        assert {name: conn.execute(f"PRAGMA {name}").fetchone()[0] for name in WRITER} == WRITER
        conn.close()


def test_locks_are_waited_for_again_after_a_checkpoint_that_failed(tmp_path: Path) -> None:
    conn = open_writer(tmp_path / "x.db")
    conn.execute("CREATE TABLE t (n INTEGER) STRICT")
    conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        checkpoint(conn, "TRUNCATE")
    assert conn.execute("PRAGMA busy_timeout").fetchone() == (BUSY_MS,)
    conn.execute("COMMIT")
    checkpoint(conn, "TRUNCATE")
    assert (tmp_path / "x.db-wal").stat().st_size == 0
    conn.close()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "x.db")
    writer.execute("CREATE TABLE t (n INTEGER) STRICT")
    reader = open_reader(tmp_path / "x.db")
    with pytest.raises(sqlite3.OperationalError) as caught:
        reader.execute("INSERT INTO t VALUES (1)")
    assert primary(caught.value) == sqlite3.SQLITE_READONLY
    assert reader.execute("PRAGMA cache_size").fetchone() == (-1024,)
    reader.close()
    writer.close()


def test_the_kinds_of_an_io_error_have_one_primary_code() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    assert primary(error) == sqlite3.SQLITE_IOERR
    assert primary(sqlite3.InterfaceError()) == 0
