"""What the wal-index and the log tell beside SQLite."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from edge.store import damaged_log
from edge.store.connection import FRAME, open_reader, open_writer
from edge.store.damaged_log import Damage
from edge.store.wal import Index, State, brought_in
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


def written(folder: Path, commits: int = 6) -> tuple[Path, bytes]:
    """A database with so many commits in its log, one frame each, as a power cut would leave it; the log."""
    folder.mkdir()
    conn = open_writer(folder / "x.db")
    conn.execute("CREATE TABLE t (n INTEGER) STRICT")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(commits):
        conn.execute("INSERT INTO t VALUES (?)", (number,))
    main, log = (folder / "x.db").read_bytes(), (folder / "x.db-wal").read_bytes()
    conn.close()
    (folder / "x.db").write_bytes(main)
    return folder / "x.db", log


def opened(path: Path, log: bytes) -> tuple[int, int]:
    """(rows that SQLite finds, commits that were cut off)."""
    Path(f"{path}-wal").write_bytes(log)
    Path(f"{path}-shm").unlink(missing_ok=True)
    before = path.read_bytes()
    cut, aside, _ = damaged_log.look(path)
    assert not aside
    conn = open_writer(path)
    try:
        [(rows,)] = conn.execute("SELECT count(*) FROM t").fetchall()
        return rows, cut
    finally:
        conn.close()
        path.write_bytes(before)


def flipped(log: bytes, at: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]


def frame(number: int) -> int:
    """Where the frame of a commit begins."""
    return 32 + number * FRAME


@pytest.mark.parametrize("inside", [3, 7, 20, 24, FRAME - 1])
def test_commits_behind_a_flipped_bit_of_the_log_are_found(tmp_path: Path, inside: int) -> None:
    """Page number, end of commit, checksum, page: whichever it is, SQLite takes that frame for the end and says ok."""
    path, log = written(tmp_path / "x")
    rows, cut = opened(path, flipped(log, frame(2) + inside))
    assert rows == 2
    assert 1 <= cut <= 4


@pytest.mark.parametrize("damage", [slice(0, 4), slice(26, 30), slice(0, 4096), slice(32, 2048)])
def test_so_they_are_where_the_log_begins_with_something_else(tmp_path: Path, damage: slice) -> None:
    path, log = written(tmp_path / "x")
    rows, cut = opened(path, log[: damage.start] + bytes(damage.stop - damage.start) + log[damage.stop :])
    assert rows == 0
    assert cut >= 4


def test_what_a_power_cut_leaves_is_no_damage(tmp_path: Path) -> None:
    """Torn anywhere in its last transaction, or cut short anywhere, nothing that was on disk is missing."""
    path, log = written(tmp_path / "x")
    assert opened(path, log) == (6, 0)
    for at in range(frame(5), len(log), 97):
        assert opened(path, flipped(log, at)) == (5, 0)
        assert opened(path, log[:at]) == (5, 0)
    for at in (0, 31, 32, 33, frame(1), frame(3) + 100):
        assert opened(path, log[:at]) == (max(0, (at - 32) // FRAME), 0)


def test_a_log_that_began_anew_over_an_older_one_is_whole(tmp_path: Path) -> None:
    """Behind its end are frames of the older one, with commits and checksums that fit; their salt tells them apart."""
    path = tmp_path / "x.db"
    conn = open_writer(path)
    conn.execute("CREATE TABLE t (n INTEGER) STRICT")
    for number in range(6):
        conn.execute("INSERT INTO t VALUES (?)", (number,))
    conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    conn.execute("INSERT INTO t VALUES (6)")
    log, main = Path(f"{path}-wal").read_bytes(), path.read_bytes()
    conn.close()
    assert len(log) > frame(5)
    path.write_bytes(main)
    assert opened(path, log) == (7, 0)


def test_without_a_log_or_without_a_database_nothing_can_be_said(tmp_path: Path) -> None:
    path, log = written(tmp_path / "x")
    assert damaged_log.look(path) == Damage()
    path.write_bytes(b"no database")
    Path(f"{path}-wal").write_bytes(flipped(log, frame(2)))
    assert damaged_log.look(path) == Damage()


def left_by_a_kill(folder: Path, *, behind: int = 0) -> Path:
    """A database with six commits in its log, as a kill leaves it: all of them brought in but so many."""
    folder.mkdir()
    conn, reader = open_writer(folder / "x.db"), open_reader(folder / "x.db")
    conn.execute("CREATE TABLE t (n INTEGER) STRICT")
    for number in range(6):
        if number == 6 - behind:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM t").fetchall()
        conn.execute("INSERT INTO t VALUES (?)", (number,))
    conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    left = folder / "left"
    left.mkdir()
    for part in ("", "-wal", "-shm"):
        shutil.copyfile(folder / f"x.db{part}", left / f"x.db{part}")
    reader.close()
    conn.close()
    return left / "x.db"


@pytest.mark.parametrize("damaged", [2, 4, 6, 8])
def test_a_damaged_log_takes_nothing_back_from_a_database_that_has_it(tmp_path: Path, damaged: int) -> None:
    """An idle node's log is brought in: SQLite would put the pages before the damaged place over the newer ones."""
    path = left_by_a_kill(tmp_path / "x")
    log = Path(f"{path}-wal")
    assert log.stat().st_size == frame(9)
    content = flipped(log.read_bytes(), frame(damaged) + 100)
    log.write_bytes(content)
    cut = damaged_log.look(path)
    assert cut.spared
    assert cut.commits >= 1
    assert damaged_log.keep(path, tmp_path / "quarantine", "now", cut) == cut
    assert (tmp_path / "quarantine" / "x-log-now" / "x.db-wal").read_bytes() == content
    assert rows(path) == 6


@pytest.mark.parametrize("header", [0, 18, 25])
def test_so_it_does_where_its_header_is_damaged(tmp_path: Path, header: int) -> None:
    path = left_by_a_kill(tmp_path / "x")
    log = Path(f"{path}-wal")
    log.write_bytes(flipped(log.read_bytes(), header))
    cut = damaged_log.look(path)
    assert cut.spared
    damaged_log.keep(path, tmp_path / "quarantine", "now", cut)
    assert rows(path) == 6


@pytest.mark.parametrize("fails", [["mkdir"], ["mkdir", "unlink"]])
def test_a_log_that_nobody_needs_goes_also_where_it_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: list[str]
) -> None:
    path = left_by_a_kill(tmp_path / "x")
    log = Path(f"{path}-wal")
    log.write_bytes(flipped(log.read_bytes(), frame(4) + 100))
    cut = damaged_log.look(path)

    def refuse(*given: object, **more: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as patched:
        for name in fails:
            patched.setattr(Path, name, refuse)
        left = damaged_log.keep(path, tmp_path / "quarantine", "now", cut)
    assert left == (cut if "unlink" not in fails else Damage(cut.commits))
    assert log.exists() is not left.spared


def rows(path: Path) -> int:
    conn = open_writer(path)
    try:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        [(count,)] = conn.execute("SELECT count(*) FROM t").fetchall()
        return int(count)
    finally:
        conn.close()


def test_a_log_that_is_needed_stays_where_it_is(tmp_path: Path) -> None:
    """What was brought in of it has pages that only the rest completes."""
    path = left_by_a_kill(tmp_path / "x", behind=3)
    log = Path(f"{path}-wal")
    whole = log.read_bytes()
    assert len(whole) == frame(9)
    log.write_bytes(flipped(whole, frame(7) + 100))
    assert not damaged_log.look(path).spared
    again = left_by_a_kill(tmp_path / "y", behind=3)
    assert damaged_log.look(again) == Damage()
    assert rows(again) == 6


@pytest.mark.parametrize("end", [0, 47, 100, 131])
def test_an_index_that_says_too_little_says_nothing(tmp_path: Path, end: int) -> None:
    path = left_by_a_kill(tmp_path / "x")
    assert brought_in(path).frames == 9
    Path(f"{path}-shm").write_bytes(Path(f"{path}-shm").read_bytes()[:end])
    assert brought_in(path) == State(b"", 0)


def test_an_older_index_than_the_log_is_not_believed(tmp_path: Path) -> None:
    """A power cut may leave one: the log went on, or began anew over the frames that the index tells of."""
    path = left_by_a_kill(tmp_path / "x")
    log, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    whole, old = log.read_bytes(), index.read_bytes()
    log.write_bytes(flipped(whole, frame(4) + 100) + whole[-FRAME:])
    assert not damaged_log.look(path).spared
    log.write_bytes(whole)
    conn = open_writer(path)
    conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    conn.execute("INSERT INTO t VALUES (6)")
    conn.execute("INSERT INTO t VALUES (7)")
    main, anew = path.read_bytes(), log.read_bytes()[: len(whole)]
    conn.close()
    assert anew[16:24] != whole[16:24]
    assert anew[-FRAME:] == whole[-FRAME:]
    for damage in (None, 20, frame(1) + 100, frame(6) + 100):
        path.write_bytes(main)
        log.write_bytes(flipped(anew, damage) if damage else anew)
        index.write_bytes(old)
        assert brought_in(path).frames == 9
        assert not damaged_log.look(path).spared


def test_without_room_a_damaged_log_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room is for the node that starts."""
    path, log = written(tmp_path / "x")
    Path(f"{path}-wal").write_bytes(log)
    kept = tmp_path / "quarantine" / "x-log-now" / "x.db-wal"
    with monkeypatch.context() as patched:
        patched.setattr(damaged_log, "free", lambda path: damaged_log.KEEP_FREE_OCTETS + len(log) - 1)
        damaged_log.keep(path, tmp_path / "quarantine", "now", Damage(1))
        assert not kept.exists()
    damaged_log.keep(path, tmp_path / "quarantine", "now", Damage(1))
    assert kept.read_bytes() == log


def mixed(folder: Path, *, octets: int = 0) -> tuple[Path, int]:
    """A database that has all of its log, in the middle of which a bit flipped; and its rows. A power cut took the
    index."""
    folder.mkdir()
    chance = random.Random(20261120)
    conn = open_writer(folder / "x.db")
    conn.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, name TEXT NOT NULL, body BLOB NOT NULL) STRICT")
    conn.execute("CREATE INDEX t_by_name ON t (name)")
    put = "INSERT OR REPLACE INTO t VALUES (?, ?, ?)"
    conn.executemany(put, [(n, str(chance.random()), chance.randbytes(300)) for n in range(0, 40_000, 20)])
    conn.execute("INSERT INTO t VALUES (-1, '', zeroblob(?))", (octets,))
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for _ in range(60):
        conn.execute("BEGIN")
        conn.execute("DELETE FROM t WHERE n BETWEEN ?1 AND ?1 + 300", (chance.randrange(40_000),))
        more = [(chance.randrange(40_000), str(chance.random()), chance.randbytes(300)) for _ in range(5)]
        conn.executemany(put, more)
        conn.execute("COMMIT")
    [(count,)] = conn.execute("SELECT count(*) FROM t").fetchall()
    conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    main, log = (folder / "x.db").read_bytes(), (folder / "x.db-wal").read_bytes()
    conn.close()
    (folder / "x.db").write_bytes(main)
    (folder / "x.db-wal").write_bytes(flipped(log, frame((len(log) - 32) // FRAME // 2) + 100))
    return folder / "x.db", count


def test_a_database_that_half_a_log_would_spoil_is_better_off_without(tmp_path: Path) -> None:
    """Old pages before the damaged place between newer ones: SQLite would call the whole file malformed."""
    path, count = mixed(tmp_path / "x")
    cut = damaged_log.look(path)
    assert (cut.aside, cut.spared, cut.commits > 1) == (True, False, True)
    assert damaged_log.keep(path, tmp_path / "quarantine", "now", cut) == cut
    assert rows(path) == count


def test_so_it_is_when_not_even_its_tables_can_be_read_with_it(tmp_path: Path) -> None:
    """The list of tables of a time when it was longer, in pages that hold rows by now."""
    conn = open_writer(tmp_path / "x.db")
    for number in range(200):
        conn.execute(f"CREATE TABLE t{number} (a_column_with_a_name_that_takes_room INTEGER, another TEXT) STRICT")
    conn.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, body BLOB) STRICT")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    conn.execute("DROP TABLE t0")
    start = Path(f"{tmp_path}/x.db-wal").stat().st_size
    for number in range(1, 200):
        conn.execute(f"DROP TABLE t{number}")
    conn.executemany("INSERT INTO t VALUES (?, ?)", [(n, bytes(3_000)) for n in range(300)])
    conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    main, log = (tmp_path / "x.db").read_bytes(), (tmp_path / "x.db-wal").read_bytes()
    conn.close()
    path = tmp_path / "x.db"
    path.write_bytes(main)
    Path(f"{path}-wal").write_bytes(flipped(log, start + 100))
    with pytest.raises(sqlite3.DatabaseError, match="malformed"), closing(open_reader(path)) as reader:
        reader.execute("SELECT count(*) FROM sqlite_master").fetchall()
    cut = damaged_log.look(path)
    assert (cut.aside, cut.spared) == (True, False)
    damaged_log.keep(path, tmp_path / "quarantine", "now", cut)
    assert rows(path) == 300


def test_a_large_one_is_not_looked_at_for_that(tmp_path: Path) -> None:
    path, _ = mixed(tmp_path / "x", octets=damaged_log.CHECK_OCTETS)
    cut = damaged_log.look(path)
    assert (cut.aside, cut.commits > 1) == (False, True)


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
