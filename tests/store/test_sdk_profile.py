from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from edge.store.sdk_profile import set_metadata


def value(path: Path) -> object:
    with closing(sqlite3.connect(path)) as conn:
        return conn.execute("SELECT value FROM metadata_kv WHERE key = 'gateway_url'").fetchone()[0]


def test_a_value_is_set_in_a_new_file_and_in_one_the_sdk_made(tmp_path: Path) -> None:
    path = tmp_path / "aun.db"
    set_metadata(path, "gateway_url", '"ws://a/aun"')
    assert value(path) == '"ws://a/aun"'
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("CREATE TABLE theirs (x)")
        conn.execute("INSERT INTO metadata_kv VALUES ('other', '1', 5)")
    set_metadata(path, "gateway_url", '"ws://b/aun"')
    assert value(path) == '"ws://b/aun"'
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT count(*) FROM metadata_kv").fetchone() == (2,)
