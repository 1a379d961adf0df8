"""Table of alarms (node.db): which value of each capability the owner was told last."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import cast

from edge.contract.store import Unit
from edge.store.migration import statements

MIGRATIONS = [
    statements(
        "node",
        "alarms-001",
        "CREATE TABLE alarm_told (cap INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT",
    )
]

_ALL = "SELECT cap, value FROM alarm_told"
_PUT = "INSERT INTO alarm_told (cap, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
_DROP = "DELETE FROM alarm_told WHERE cap = ?"


def told(unit: Unit) -> dict[int, bytes]:
    """The JSON value that was told last, by capability."""
    return cast("dict[int, bytes]", dict(unit.run(_ALL)))  # type: ignore[arg-type]


def tell(unit: Unit, values: Iterable[tuple[int, bytes]]) -> None:
    """These were told."""
    for cap, value in values:
        unit.run(_PUT, (cap, value))


def forget(unit: Unit, caps: Collection[int]) -> None:
    """These capabilities are no more."""
    for cap in caps:
        unit.run(_DROP, (cap,))
