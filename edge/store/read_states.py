"""How far the devices of an AID have read their topics: what an application says, apart from delivery (node.db)."""

from __future__ import annotations

from typing import cast

import msgspec

from edge.contract.store import Unit
from edge.store.migration import statements

_CREATE = """CREATE TABLE message_read (aid TEXT NOT NULL, topic TEXT NOT NULL, device TEXT NOT NULL,
    targeted INTEGER NOT NULL, message_id TEXT NOT NULL, sent_ms INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (aid, topic, device, targeted)) STRICT, WITHOUT ROWID"""
_PUT = """INSERT INTO message_read (aid, topic, device, targeted, message_id, sent_ms, at_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET message_id = excluded.message_id,
    sent_ms = excluded.sent_ms, at_ms = excluded.at_ms"""
_COLUMNS = "topic, device, targeted, message_id, sent_ms, at_ms"
_OF_TOPIC = f"SELECT {_COLUMNS} FROM message_read WHERE aid = ? AND topic = ?"  # noqa: S608  constants only
_OF_AID = f"SELECT {_COLUMNS} FROM message_read WHERE aid = ? ORDER BY topic, device"  # noqa: S608  constants only
_TOPICS = "SELECT count(DISTINCT topic) FROM message_read WHERE aid = ?"

MIGRATIONS = [statements("node", "read-states-001", _CREATE)]


class ReadMark(msgspec.Struct, frozen=True):
    """One device's position in a topic. `sent_ms` is when that message was sent, 0 when it is not known.

    `targeted`: the message was for this device only, so it says nothing about the others.
    """

    topic: str
    device: str
    targeted: bool
    message_id: str
    sent_ms: int
    at_ms: int


def put(unit: Unit, aid: str, mark: ReadMark) -> None:
    """Keep a device's position in a topic."""
    unit.run(_PUT, (aid, mark.topic, mark.device, int(mark.targeted), mark.message_id, mark.sent_ms, mark.at_ms))


def marks(unit: Unit, aid: str, topic: str = "") -> list[ReadMark]:
    """The positions of all devices, in one topic or in all."""
    found = unit.run(_OF_TOPIC, (aid, topic)) if topic else unit.run(_OF_AID, (aid,))
    return [_mark(row) for row in found]


def topics(unit: Unit, aid: str) -> int:
    """How many topics an AID has a position in."""
    [(count,)] = unit.run(_TOPICS, (aid,))
    return cast(int, count)


def _mark(row: tuple[object, ...]) -> ReadMark:
    topic, device, targeted, message_id, sent_ms, at_ms = cast("tuple[str, str, int, str, int, int]", row)
    return ReadMark(topic, device, bool(targeted), message_id, sent_ms, at_ms)
