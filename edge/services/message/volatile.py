"""Volatile messages (`ttl` > 0): in memory, without a number, gone after their time or a restart (M-24).

Each has an opaque cursor `v1:<epoch>:<n>`; the epoch is this run of the node. Pure state, used in the loop.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection

import msgspec

from edge.contract.errors import InvalidParams
from edge.contract.limit import Limits
from edge.protocol.aun_events import Delivery
from edge.services.message.records import VOLATILE_ROWS
from edge.services.message.ring import Place, weigh


class Held(msgspec.Struct):
    """A volatile message; `number` counts in its AID. `read` are the readers that have acknowledged it."""

    number: int
    message: Delivery
    until_us: int
    read: set[Place]


class Volatile:
    """The volatile messages of every AID."""

    def __init__(self, limits: Limits, epoch: str) -> None:
        self._limits, self._epoch = limits, epoch
        self._rows: dict[str, deque[Held]] = {}
        self._sent: dict[tuple[str, str], Delivery] = {}
        self._number = 0
        self._dropped: dict[str, int] = {}
        self._due = 0
        self.octets = 0
        self.held: Counter[str] = Counter()
        """Bytes by sender."""

    def cursor(self) -> str:
        """The cursor of the next message to be put."""
        return f"v1:{self._epoch}:{self._number + 1}"

    def sent(self, sender: str, message_id: str) -> Delivery | None:
        """What this sender already sent under this id, while it lives."""
        return self._sent.get((sender, message_id))

    def put(self, message: Delivery, until_us: int, now_us: int) -> list[Delivery]:
        """Keep a message that carries `cursor()`; the result are those that had to go for it."""
        self.expire(now_us)
        self._number += 1
        self._due = min(self._due, until_us) if self._sent else until_us
        rows = self._rows.setdefault(message.to, deque())
        rows.append(Held(self._number, message, until_us, set()))
        self._sent[message.sender, message.message_id] = message
        self.octets += len(message.payload)
        weigh(self.held, message.sender, len(message.payload))
        gone = []
        while len(rows) > self._limits[VOLATILE_ROWS]:
            gone.append(self._forget(rows.popleft()))
            self._dropped[message.to] = self._dropped.get(message.to, 0) + 1
            self._limits.hit(VOLATILE_ROWS)
        return gone

    def after(self, aid: str, reader: Place, cursor: str, now_us: int, sender: str = "") -> list[Delivery]:
        """What this reader has not acknowledged, after a cursor. Raises `InvalidParams` for one of another epoch."""
        self.expire(now_us)
        number = self._parse(cursor) if cursor else 0
        return [
            row.message
            for row in self._rows.get(aid, ())
            if row.number > number and reader not in row.read and _meant(row.message, reader[0], sender)
        ]

    def senders(self, aid: str, reader: Place, now_us: int) -> set[str]:
        """Who has something here that this reader has not acknowledged."""
        return {message.sender for message in self.after(aid, reader, "", now_us)}

    def acknowledge(
        self, aid: str, reader: Place, cursors: Collection[str], ids: Collection[str], now_us: int, sender: str = ""
    ) -> tuple[int, int]:
        """Mark messages as read by this reader; how many were there, and how many were not."""
        self.expire(now_us)
        accepted = 0
        for row in self._rows.get(aid, ()):
            named = row.message.cursor in cursors or row.message.message_id in ids
            if named and _meant(row.message, reader[0], sender):
                row.read.add(reader)
                accepted += 1
        return accepted, max(0, len(set(cursors)) + len(set(ids)) - accepted)

    def dropped(self, aid: str) -> int:
        """How many had to go for lack of room since the node started."""
        return self._dropped.get(aid, 0)

    def expire(self, now_us: int) -> None:
        """Let go of what has lived."""
        if now_us < self._due:
            return
        for aid in list(self._rows):
            rows = self._rows[aid]
            if all(row.until_us > now_us for row in rows):
                continue
            kept: deque[Held] = deque()
            for row in rows:
                if row.until_us > now_us:
                    kept.append(row)
                else:
                    self._forget(row)
            if kept:
                self._rows[aid] = kept
            else:
                del self._rows[aid]
        self._due = min((row.until_us for rows in self._rows.values() for row in rows), default=0)

    def _forget(self, row: Held) -> Delivery:
        self.octets -= len(row.message.payload)
        weigh(self.held, row.message.sender, -len(row.message.payload))
        self._sent.pop((row.message.sender, row.message.message_id), None)
        return row.message

    def _parse(self, cursor: str) -> int:
        version, _, rest = cursor.partition(":")
        epoch, _, number = rest.partition(":")
        if version != "v1" or not number.isascii() or not number.isdigit() or len(number) > 16:
            raise InvalidParams("invalid volatile cursor")
        if epoch != self._epoch:
            raise InvalidParams("volatile cursor epoch mismatch")
        return int(number)


def _meant(message: Delivery, device: str, sender: str) -> bool:
    return sender in ("", message.sender) and (not message.devices or device in message.devices)
