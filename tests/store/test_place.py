"""A database whose names lead elsewhere: no ack, whoever moved it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.contract.errors import StorageFull
from edge.store.connection import open_writer
from edge.store.place import Place
from tests.support.store import database
from tests.support.things import THING, Held, add


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    aside = path.with_name("aside")
    path.rename(aside)
    shutil.copyfile(aside, path)


@pytest.mark.parametrize("part", ["", "-wal"])
@pytest.mark.parametrize("change", [remove, replace])
async def test_a_commit_into_a_file_that_is_gone_is_not_acknowledged(
    tmp_path: Path, part: str, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with database(tmp_path, extra=[THING]) as db:
        await db.commit(add(1))
        with Held(db):
            waiting = [db.commit(add(2)), db.commit(add(3))]
            await asyncio.sleep(0)
            change(Path(f"{db.path}{part}"))
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, StorageFull) for result in results)
        assert db.read_only
        assert f"node.db{part} was {change.__name__}" in db.failure
        assert "nothing is acknowledged any more" in caplog.text
        with pytest.raises(StorageFull):
            await db.commit(add(4))


async def test_an_idle_database_is_found_gone_by_the_watchdog(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    async with database(tmp_path / "sub", extra=[THING]) as db:
        await db.ping()
        assert (db.read_only, db.failure) == (False, "")
        shutil.rmtree(tmp_path / "sub")
        await db.ping()
        assert db.read_only


def test_a_log_that_comes_and_goes_before_it_was_seen_is_nothing(tmp_path: Path) -> None:
    conn = open_writer(tmp_path / "x.db")
    conn.execute("CREATE TABLE t (n INTEGER) STRICT")
    conn.close()
    place = Place(tmp_path / "x.db")
    assert place.lost() is None
    assert place.lost() is None
    (tmp_path / "x.db").unlink()
    assert "removed" in str(place.lost())
