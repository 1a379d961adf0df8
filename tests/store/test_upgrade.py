"""The release's own schema, by the child process that a start uses and by a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.store import migrate, upgrade
from edge.store.connection import open_writer
from edge.store.migrate import Unusable
from edge.store.schema import MIGRATIONS


def test_a_child_process_brings_a_file_to_the_release_and_says_why_it_cannot(tmp_path: Path) -> None:
    for file in ("node", "hot"):
        migrate.in_child(tmp_path / f"{file}.db", file)
        conn = open_writer(tmp_path / f"{file}.db")
        assert migrate.due(conn, MIGRATIONS, file) == []
        conn.close()
    (tmp_path / "bad.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(Unusable, match=r"(?s)bad\.db cannot be brought .*not a database.*next: "):
        migrate.in_child(tmp_path / "bad.db", "node")


def test_a_file_that_is_of_this_release_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "hot.db"
    for _ in range(2):
        upgrade.main(str(path), "hot")
        conn = open_writer(path)
        assert sorted(migrate.seen(conn)) == sorted(one.name for one in MIGRATIONS if one.file == "hot")
        conn.close()
