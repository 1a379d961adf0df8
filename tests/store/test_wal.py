"""What the wal-index tells beside SQLite."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from edge.store.connection import open_writer
from edge.store.wal import Index, State
from edge.system.clock import SystemClock
from tests.support.store import database


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


WALK = """
import sqlite3, sys
for _ in range(20):
    conn = sqlite3.connect(sys.argv[1])
    conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
    conn.close()
"""


async def test_another_program_may_look_into_the_file_while_it_is_written(tmp_path: Path) -> None:
    async with database(tmp_path, "hot", SystemClock(1)) as db:
        await db.commit(lambda unit: unit.log("x").append("k", [b"1"]))
        assert locked(Path(f"{db.path}-shm"))
        look = await asyncio.create_subprocess_exec(sys.executable, "-c", WALK, str(db.path))
        while look.returncode is None:
            await db.commit(lambda unit: unit.log("x").append("k", [b"more"]))
            await db.read(lambda unit: unit.log("x").head("k"))
            await asyncio.sleep(0)
        assert look.returncode == 0
        assert locked(Path(f"{db.path}-shm"))


def locked(path: Path) -> bool:
    """Whether a process holds a lock on a file: what keeps other programs from starting its wal-index anew."""
    inode = path.stat().st_ino
    return any(line.split()[5].endswith(f":{inode}") for line in Path("/proc/locks").read_text().splitlines())
