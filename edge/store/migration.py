"""A schema change is one small function, additive for one release, never edited once released (design D6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite_utils


class Migration(NamedTuple):
    """`apply` brings file `node` or `hot` one step further; `name` (`messages-001`) is recorded once it is on disk."""

    file: str
    name: str
    apply: Callable[[sqlite_utils.Database], None]


def statements(file: str, name: str, *sql: str) -> Migration:
    """A migration that is nothing but SQL statements, each run once, in order."""

    def apply(db: sqlite_utils.Database) -> None:
        for statement in sql:
            db.conn.execute(statement)

    return Migration(file, name, apply)
