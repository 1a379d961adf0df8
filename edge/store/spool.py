"""What the node publishes to a foreign broker, kept until that broker has acked it (hot.db)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from edge.contract.store import Unit
from edge.contract.time import Stamp
from edge.store.migration import statements

MIGRATIONS = [
    statements(
        "hot",
        "spool-001",
        """CREATE TABLE mqtt_spool (number INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL,
            retain INTEGER NOT NULL, boot INTEGER NOT NULL, mono_us INTEGER NOT NULL) STRICT""",
    )
]

_PUT = "INSERT OR REPLACE INTO mqtt_spool (number, topic, payload, retain, boot, mono_us) VALUES (?, ?, ?, ?, ?, ?)"
_TAKE = "DELETE FROM mqtt_spool WHERE number = ?"
_ALL = "SELECT number, topic, payload, retain, boot, mono_us FROM mqtt_spool ORDER BY number"


class Spooled(msgspec.Struct, frozen=True):
    """A message on its way out. `number` orders all of them; `at` is when it was published."""

    number: int
    topic: str
    payload: bytes
    retain: bool
    at: Stamp

    @property
    def octets(self) -> int:
        """What it weighs."""
        return len(self.topic) + len(self.payload)


def put(unit: Unit, one: Spooled) -> None:
    """Keep a message."""
    unit.run(_PUT, (one.number, one.topic, one.payload, int(one.retain), one.at.boot, one.at.mono_us))


def take(unit: Unit, numbers: Sequence[int]) -> None:
    """Forget messages: the broker has them, or they are declared lost in this very unit."""
    for number in numbers:
        unit.run(_TAKE, (number,))


def load(unit: Unit) -> list[Spooled]:
    """What the last run left, in order."""
    return [
        Spooled(
            cast(int, row[0]),
            cast(str, row[1]),
            cast(bytes, row[2]),
            bool(row[3]),
            Stamp(cast(int, row[4]), cast(int, row[5])),
        )
        for row in unit.run(_ALL)
    ]
