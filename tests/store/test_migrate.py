"""Schema changes: each once, each whole or not at all."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlite_utils

from edge.store import migrate, opening
from edge.store.connection import open_writer
from edge.store.migrate import Unusable
from edge.store.migration import Migration, statements
from edge.store.schema import MIGRATIONS

ONE = statements("node", "one", "CREATE TABLE one (n INTEGER) STRICT")
TWO = statements("node", "two", "CREATE TABLE two (n INTEGER) STRICT")
HOT = statements("hot", "hot", "CREATE TABLE hot (n INTEGER) STRICT")


def tables(conn: sqlite3.Connection) -> set[str]:
    return {name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_each_migration_of_the_file_runs_once_in_order(tmp_path: Path) -> None:
    conn = open_writer(tmp_path / "x.db")
    assert migrate.inline(conn, "node", [ONE, HOT]) == 1
    assert migrate.inline(conn, "node", [ONE, HOT, TWO]) == 1
    assert migrate.inline(conn, "node", [ONE, HOT, TWO]) == 0
    assert tables(conn) == {"migration", "one", "two"}
    conn.close()


def test_a_migration_that_fails_leaves_nothing_and_those_before_it_stay(tmp_path: Path) -> None:
    def fail(db: sqlite_utils.Database) -> None:
        db.conn.execute("CREATE TABLE half (n INTEGER) STRICT")
        raise ValueError("no")

    conn = open_writer(tmp_path / "x.db")
    with pytest.raises(ValueError, match="no"):
        migrate.inline(conn, "node", [ONE, Migration("node", "bad", fail), TWO])
    assert tables(conn) == {"migration", "one"}
    assert migrate.inline(conn, "node", [ONE, TWO]) == 1
    conn.close()


META = statements("node", "meta", "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER) STRICT, WITHOUT ROWID")


def test_a_file_to_which_a_newer_release_only_added_is_used(tmp_path: Path) -> None:
    conn = open_writer(tmp_path / "x.db")
    assert migrate.check(conn, [META, ONE], "node") == []
    migrate.inline(conn, "node", [META, ONE, TWO])
    opening.put(conn, "schema", migrate.SCHEMA + 1)
    opening.put(conn, "schema_oldest", migrate.SCHEMA)
    assert migrate.check(conn, [META, ONE], "node") == ["two"]
    assert migrate.check(conn, [META, ONE, TWO], "node") == []
    migrate.stamp(conn)
    assert (opening.get(conn, "schema"), opening.get(conn, "schema_oldest")) == (migrate.SCHEMA + 1, migrate.SCHEMA)
    conn.close()


def test_a_file_of_a_release_that_took_something_away_is_refused_with_the_next_command(tmp_path: Path) -> None:
    conn = open_writer(tmp_path / "x.db")
    migrate.inline(conn, "node", [META])
    migrate.stamp(conn)
    assert (opening.get(conn, "schema"), opening.get(conn, "schema_oldest")) == (migrate.SCHEMA, migrate.OLDEST)
    opening.put(conn, "schema", migrate.SCHEMA + 2)
    opening.put(conn, "schema_oldest", migrate.SCHEMA + 1)
    with pytest.raises(Unusable, match=r"(?s)newer release .*next: .*aun-edge backup restore"):
        migrate.check(conn, [META], "node")
    conn.close()


def test_a_release_can_go_back_by_one() -> None:
    assert migrate.OLDEST <= max(1, migrate.SCHEMA - 1)


def test_the_store_does_not_import_sqlite_utils() -> None:
    """It would cost 10 MB in the process that runs for years."""
    code = "import sys, edge.store.database, edge.store.schema; sys.exit('sqlite_utils' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_migration_has_a_name_of_its_own_and_every_table_is_strict(tmp_path: Path) -> None:
    for file in ("node", "hot"):
        names = [m.name for m in MIGRATIONS if m.file == file]
        assert len(names) == len(set(names))
        conn = open_writer(tmp_path / f"{file}.db")
        migrate.inline(conn, file, MIGRATIONS)
        loose = [name for _, name, kind, _, _, strict in conn.execute("PRAGMA table_list") if not strict]
        assert [name for name in loose if not name.startswith("sqlite_")] == []
        conn.close()
