"""What the wal-index tells beside SQLite."""

from __future__ import annotations

from pathlib import Path

from edge.store.connection import open_writer
from edge.store.wal import Index, State


def test_frames_grow_with_commits_and_salts_change_when_the_wal_restarts(tmp_path: Path) -> None:
    index = Index(tmp_path / "x.db")
    assert index.state() == State(b"", 0)
    conn = open_writer(tmp_path / "x.db")
    conn.execute("CREATE TABLE t (n INTEGER) STRICT")
    first = index.state()
    conn.execute("INSERT INTO t VALUES (1)")
    second = index.state()
    assert (second.salt, second.frames) == (first.salt, first.frames + 1)
    assert second.salt == (tmp_path / "x.db-wal").read_bytes()[16:24]
    [(_, frames, moved)] = conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    assert frames == moved == second.frames
    conn.execute("INSERT INTO t VALUES (2)")
    third = index.state()
    assert (third.frames, third.salt == second.salt) == (1, False)
    conn.close()
    index.close()
