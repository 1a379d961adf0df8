"""What the disk knows of a queue message, which itself is in memory only: the answer its id got, in which life of the
node it was taken, and whether somebody is done with it.

So a repeat gets the first answer, a repeat of what a restart has lost is taken again, and what a restart has lost and
nobody repeats is declared (promise P2).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edge.contract.gap import Gap
from edge.contract.store import Unit
from edge.contract.wire import decode, dumps
from edge.protocol.aun_events import Delivery
from edge.services.message import records as r
from edge.store import messages, once

SURFACE = "message.send"
"""The surface under which queue messages are remembered (fanout messages are remembered by their rows)."""
DONE = "-"
"""In place of the life: read, or declared lost. A repeat is a duplicate in every life."""


def keep(unit: Unit, message: Delivery, sent: r.Sent, life: str, until_us: int) -> None:
    """Remember a queue message that this life of the node holds, until wall time `until_us`."""
    unit.keep(SURFACE, message.sender, message.message_id, _digest(life, message.to), dumps(sent), until_us)


def answered(unit: Unit, message: Delivery, life: str) -> tuple[str, r.Sent] | None:
    """To whom this sender's id went and the answer it got; None if never, or if an earlier life lost it unread."""
    kept = unit.once(SURFACE, message.sender, message.message_id)
    if kept is None:
        return None
    taken, to = kept[0].decode().split(" ", 1)
    return (to, decode(kept[1], r.Sent)) if taken in (life, DONE) else None


def settle(unit: Unit, rows: Sequence[Delivery]) -> None:
    """These were read, or are declared lost: a later life has nothing to say about them."""
    for one in rows:
        once.mark(unit, SURFACE, one.sender, one.message_id, _digest(DONE, one.to))


class Lost(msgspec.Struct, frozen=True):
    """Where a search for lost messages stopped, and whether there may be more behind it."""

    after: tuple[str, str]
    more: bool


def declare(unit: Unit, life: str, after: tuple[str, str], rows: int) -> Lost:
    """Look at `rows` remembered messages behind (sender, id) `after`; what earlier lives held unread is a gap now."""
    found = once.page(unit, SURFACE, after, rows)
    gone: dict[str, list[int]] = {}
    for sender, message_id, digest, answer in found:
        taken, to = digest.decode().split(" ", 1)
        if taken not in (life, DONE):
            gone.setdefault(to, []).append(decode(answer, r.Sent).seq or 0)
            once.forget(unit, SURFACE, sender, message_id)
    for to, numbers in gone.items():
        unit.lose(
            Gap(messages.INBOX, to, min(numbers), max(numbers), len(numbers), "queue_restart", "message", unit.at)
        )
    return Lost(found[-1][:2] if found else after, len(found) == rows)


def _digest(life: str, to: str) -> bytes:
    return f"{life} {to}".encode()
