from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edge.store import snapshot
from edge.store.connection import open_writer
from tests.support.store import database


def silent(name: str, done: int, total: int) -> None:
    pass


def rows(file: Path) -> int:
    with sqlite3.connect(file) as conn:
        [(count,)] = conn.execute("SELECT count(*) FROM log_row").fetchall()
    conn.close()
    return int(count)


async def test_a_copy_is_the_file_of_one_moment_while_commits_go_on(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        await db.commit(lambda u: u.append("inbox", "a", [b"x" * 3000] * 2000))
        writing = [db.commit(lambda u: u.append("inbox", "a", [b"late" * 500])) for _ in range(50)]
        steps: list[tuple[str, int, int]] = []
        await db.snapshot(tmp_path / "copy.db", lambda *step: steps.append(step))
        for commit in writing:
            await commit
        for _ in range(10):
            await db.commit(lambda u: u.append("inbox", "a", [b"later"]))
        assert rows(tmp_path / "copy.db") == 2050
        assert rows(tmp_path / "node.db") == 2060
    assert len(steps) > 3
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    assert steps[-1] == ("store/node.db", steps[-1][2], (tmp_path / "copy.db").stat().st_size)


async def test_what_the_progress_raises_ends_the_copy(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(name: str, done: int, total: int) -> None:
        raise Enough

    async with database(tmp_path) as db:
        with pytest.raises(Enough):
            await db.snapshot(tmp_path / "copy.db", stop)
        assert await db.commit(lambda u: u.append("inbox", "a", [b"x"])) == 1


async def test_rows_that_wait_for_the_wear_window_are_in_the_copy(tmp_path: Path) -> None:
    async with database(tmp_path, wear_window_us=60_000_000) as db:
        db.bulk("INSERT INTO meta (name, value) VALUES (?, ?)", [("lazy", 7)], lambda error: None, lazy=True)
        await db.snapshot(tmp_path / "copy.db", silent)
    with sqlite3.connect(tmp_path / "copy.db") as conn:
        assert conn.execute("SELECT value FROM meta WHERE name = 'lazy'").fetchall() == [(7,)]
    conn.close()


def test_what_a_killed_node_left_in_its_wal_is_in_the_copy(tmp_path: Path) -> None:
    conn = open_writer(tmp_path / "node.db")
    conn.execute("CREATE TABLE log_row (x)")
    conn.execute("INSERT INTO log_row VALUES (1)")
    snapshot.copy_database(tmp_path / "node.db", tmp_path / "copy.db", "node.db", silent)
    assert rows(tmp_path / "copy.db") == 1
    assert Path(f"{tmp_path / 'node.db'}-wal").stat().st_size > 0
    conn.close()


def test_a_damaged_file_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "node.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(OSError, match=r"node\.db cannot be copied: file is not a database"):
        snapshot.copy_database(tmp_path / "node.db", tmp_path / "copy.db", "node.db", silent)


def test_links_and_half_written_files_are_left_out(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    (state / "identity" / "pki").mkdir(parents=True)
    (state / "identity" / "pki" / "seed").write_bytes(b"s" * 32)
    (state / "identity" / ".incarnation.77.new").write_bytes(b"half")
    (state / "identity" / "elsewhere").symlink_to("/etc/hostname")
    copy.mkdir()
    snapshot.copy_rest(state, copy)
    found = sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*"))
    assert found == ["config.d", "identity", "identity/pki", "identity/pki/seed"]
    assert (copy / "identity/pki/seed").stat().st_mode & 0o777 == 0o600
