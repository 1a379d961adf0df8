from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from edge.contract.store import INCARNATION_SHIFT
from edge.contract.time import SECOND
from edge.store import archive, ledger, migrate, restore, snapshot, swap
from edge.store.archive import Damaged
from edge.store.keyring import load_identity
from edge.store.marks import Marks
from edge.store.schema import MIGRATIONS
from tests.support.store import database

NOW_US = 1_790_000_000 * SECOND


def silent(name: str, done: int, total: int) -> None:
    pass


async def append(state: Path, *bodies: bytes) -> int:
    """A start, one commit and a clean stop of a node."""
    (state / "store").mkdir(parents=True, exist_ok=True)
    marks = Marks.load(state / "identity" / "incarnation")
    async with database(state / "store", marks=marks) as db:
        return await db.commit(lambda u: u.append("inbox", "a", bodies))


async def bodies(state: Path) -> list[bytes]:
    marks = Marks.load(state / "identity" / "incarnation")
    async with database(state / "store", marks=marks) as db:
        return [body for _, body in await db.read(lambda u: u.log("inbox").after("a", 0, 100, 1 << 20))]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An identity: made once, copied by each test."""
    home = tmp_path_factory.mktemp("keys")
    load_identity(home, "edge.test", NOW_US, NOW_US)
    return home


@pytest.fixture
async def state(tmp_path: Path, keys: Path) -> Path:
    """A node's state with two rows."""
    made = tmp_path / "state"
    shutil.copytree(keys, made)
    (made / "config.d").mkdir()
    (made / "config.d" / "90-local.toml").write_text("[node]\n")
    (made / "ports.json").write_text('{"http":9010}')
    assert await append(made, b"one", b"two") == 2
    return made


def backup(state: Path) -> Path:
    """An archive of it as it is now."""
    copy, file = state.parent / "copy", state.parent / "a.backup"
    snapshot.make(state, copy, silent)
    archive.write(copy, restore.about(copy, "0.1", NOW_US), file, silent)
    shutil.rmtree(copy)
    return file


def tree(state: Path) -> dict[str, bytes]:
    """Every file but the databases, which open and close leave other bytes in."""
    skip = {"node.db", "node.db-wal", "node.db-shm", ".node.db.ballast", "incarnation"}
    return {
        path.relative_to(state).as_posix(): path.read_bytes()
        for path in sorted(state.rglob("*"))
        if path.is_file() and path.name not in skip and "quarantine" not in path.parts
    }


async def test_a_restore_brings_back_what_was_and_numbers_go_on_above(state: Path) -> None:
    file = backup(state)
    assert await append(state, b"three") == 3
    (state / "ports.json").write_text("{}")
    done = restore.restore(file, state, MIGRATIONS, silent)
    assert (done.issuer, done.incarnation, done.made_us) == ("edge.test", 1, NOW_US)
    assert await bodies(state) == [b"one", b"two"]
    assert (state / "ports.json").read_text() == '{"http":9010}'
    assert await append(state, b"four") == (1 << INCARNATION_SHIFT) + 1
    assert Path(done.aside, "store", "node.db").exists()
    assert Path(done.aside, "ports.json").read_text() == "{}"


async def test_the_hole_is_in_the_ledger(state: Path) -> None:
    file = backup(state)
    restore.restore(file, state, MIGRATIONS, silent)
    async with database(state / "store", marks=Marks.load(state / "identity" / "incarnation")) as db:
        assert db.doubt == ""
        [drop] = await db.read(ledger.drops)
        assert (drop.log, drop.reason, drop.count) == ("*", restore.REASON, 1)


async def test_restoring_the_same_backup_twice_gives_no_number_twice(state: Path) -> None:
    file = backup(state)
    for incarnation in (1, 2, 3):
        assert restore.restore(file, state, MIGRATIONS, silent).incarnation == incarnation
        assert await append(state, b"x") == (incarnation << INCARNATION_SHIFT) + 1


async def test_the_incarnation_of_the_databases_counts_when_the_file_is_gone(state: Path) -> None:
    file = backup(state)
    restore.restore(file, state, MIGRATIONS, silent)
    await append(state, b"x")
    (state / "identity" / "incarnation").unlink()
    assert restore.restore(file, state, MIGRATIONS, silent).incarnation == 2


async def test_a_restore_makes_a_node_where_there_was_none(state: Path, tmp_path: Path) -> None:
    file, fresh = backup(state), tmp_path / "fresh"
    fresh.mkdir()
    done = restore.restore(file, fresh, MIGRATIONS, silent)
    assert done.aside == ""
    assert tree(fresh) == tree(state)
    assert await bodies(fresh) == [b"one", b"two"]
    assert await append(fresh, b"three") == (1 << INCARNATION_SHIFT) + 1


async def test_a_damaged_archive_changes_nothing(state: Path) -> None:
    file = backup(state)
    whole, before = file.read_bytes(), tree(state)
    for place in (len(whole) // 3, len(whole) - 3):
        file.write_bytes(whole[:place])
        with pytest.raises(Damaged):
            restore.restore(file, state, MIGRATIONS, silent)
        assert tree(state) == before
        assert not (state / swap.STAGING).exists()
    assert await bodies(state) == [b"one", b"two"]


async def test_a_good_archive_of_a_damaged_database_is_refused(state: Path) -> None:
    path = state / "store" / "node.db"
    content = bytearray(path.read_bytes())
    root = content.find(b"one", 4096) // 4096
    content[root * 4096 : root * 4096 + 100] = b"\xaa" * 100
    path.write_bytes(bytes(content))
    file = backup(state)
    with pytest.raises(Damaged, match=r"node\.db"):
        restore.verify(file, _empty(state.parent / "scratch"), MIGRATIONS, silent)


async def test_a_backup_of_a_newer_release_is_taken_while_it_only_added_and_refused_else(state: Path) -> None:
    with sqlite3.connect(state / "store" / "node.db") as conn:
        conn.execute("INSERT INTO migration VALUES ('future-001', 'now')")
    conn.close()
    file = backup(state)
    assert restore.restore(file, state, MIGRATIONS, silent).incarnation == 1
    file.unlink()
    with sqlite3.connect(state / "store" / "node.db") as conn:
        conn.execute("UPDATE meta SET value = ? WHERE name = 'schema_oldest'", (migrate.SCHEMA + 1,))
    conn.close()
    with pytest.raises(Damaged, match="newer release"):
        restore.restore(backup(state), state, MIGRATIONS, silent)


async def test_an_identity_that_is_not_whole_is_refused(state: Path) -> None:
    (state / "identity" / "pki" / "root.key").unlink()
    file = backup(state)
    with pytest.raises(Damaged, match="identity"):
        restore.verify(file, _empty(state.parent / "scratch"), MIGRATIONS, silent)


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder
