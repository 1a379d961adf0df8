"""What the message services keep in the loop: queue ring, routes, volatile messages; and how a message is announced."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from edge.contract.event import Event, Fanout
from edge.contract.limit import Limits
from edge.contract.store import Unit
from edge.contract.time import Clock, Stamp
from edge.contract.wire import decode, dumps
from edge.protocol.aun_events import TYPE_LENGTH, Acked, Delivery
from edge.services.message.records import JUMPS, RING_SHARE, RING_TOTAL
from edge.services.message.ring import Ring, Routes, weigh
from edge.services.message.volatile import Volatile
from edge.store.messages import ENCRYPTED, QUIET, RECALLED, SYNC, TARGETED, V2, Message, Reader

Known = Callable[[Unit, str], bool]
"""Does this AID exist on this node? Runs inside a unit."""


class Head(msgspec.Struct):
    """What the node reads of a payload."""

    type: Any = None
    version: Any = None
    recipients: Any = None
    recipient_copies: msgspec.Raw = msgspec.Raw()
    self_copies: msgspec.Raw = msgspec.Raw()


def kind_of(head: Head) -> str:
    """`payload.type`, when it is a string of a sensible length."""
    return head.type if isinstance(head.type, str) and len(head.type) <= TYPE_LENGTH else ""


NOBODY = "-"
"""An `Event.only` that no channel has: the event is for watchers, not for connections."""


class Memory:
    """Shared by the services of `message.*`. Used in the loop only."""

    def __init__(self, clock: Clock, fanout: Fanout, limits: Limits) -> None:
        self.life = secrets.token_hex(8)
        """What is held here is gone with this life of the node."""
        self.ring, self.routes = Ring(limits), Routes(limits)
        self.volatile = Volatile(limits, self.life)
        self._clock, self._fanout, self._limits = clock, fanout, limits
        self._coming: Counter[str] = Counter()
        """Bytes by sender that have room and are not there yet."""
        self._queueing: dict[str, set[asyncio.Future[None]]] = {}
        self._jumped: OrderedDict[str, None] = OrderedDict()

    @property
    def now_us(self) -> int:
        """The monotonic clock."""
        return self._clock.now().mono_us

    @contextmanager
    def admit(self, sender: str, octets: int) -> Iterator[None]:
        """Room for another message in memory, held until it is there: calls of one sender run side by side.

        Raises `RateLimited` when there is none, or none for this sender.
        """
        coming = self._coming
        used, most = self.ring.octets + self.volatile.octets + coming.total(), self._limits[RING_TOTAL]
        if used + octets > most:
            raise self._limits.refuse(RING_TOTAL)
        held = self.ring.held[sender] + self.volatile.held[sender] + coming[sender]
        if held and (held + octets) * 100 > (most - used + held) * self._limits[RING_SHARE]:
            raise self._limits.refuse(RING_SHARE, f"of {most - used + held} bytes")
        weigh(coming, sender, octets)
        try:
            yield
        finally:
            weigh(coming, sender, -octets)

    def push(self, message: Delivery, seq: int, *, only: str = "") -> None:
        """Announce a message that no commit announces."""
        self._fanout.publish(received(message, seq, only=only))

    def first_jump(self, channel: str) -> bool:
        """Has this channel not been led over a jump of numbers yet? Asked once per channel, of the last so many."""
        if channel in self._jumped:
            return False
        self._jumped[channel] = None
        if len(self._jumped) > self._limits[JUMPS]:
            self._jumped.popitem(last=False)
            self._limits.hit(JUMPS)
        return True

    @contextmanager
    def queueing(self, aid: str) -> Iterator[None]:
        """A queue message for `aid` has a number soon, and is in the ring a moment later."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queueing.setdefault(aid, set()).add(done)
        try:
            yield
        finally:
            done.set_result(None)
            self._queueing[aid].discard(done)
            if not self._queueing[aid]:
                del self._queueing[aid]

    def newest(self, aid: str, sender: str) -> int | None:
        """The last queue number of a sender; None while one is on its way and nobody knows it yet."""
        return None if aid in self._queueing else self.ring.last_of(aid, sender)

    async def settled(self, aid: str) -> None:
        """Return once every queue message whose number a reader may already have seen is in the ring."""
        waiting = self._queueing.get(aid)
        if waiting:
            await asyncio.wait(waiting)


def inbox_of(message: Delivery) -> str:
    """Whose inbox a message goes to: a copy of what somebody sent goes to the sender's own."""
    return message.sender if message.own else message.to


def received(message: Delivery, seq: int, *, only: str = "") -> Event:
    """The event of a message in an inbox."""
    aid = inbox_of(message)
    return Event("inbox", aid, seq, "message.received", dumps(message), frozenset({aid}), only)


def acknowledged(reader: Reader, sender: str, seq: int, at_ms: int, *, peer: bool = False) -> Event:
    """The event that tells a sender how far a reader has read."""
    body = Acked(
        by=reader.aid, device=reader.device, slot=reader.slot, seq=seq, sent_ms=at_ms, sender=sender, peer=peer
    )
    return Event("inbox", reader.aid, seq, "message.ack", dumps(body), frozenset({sender}))


def row_of(message: Delivery, at: Stamp) -> Message:
    """A message as a row of an inbox, without its number."""
    return Message(
        aid=inbox_of(message),
        seq=0,
        sender=message.sender,
        sender_device=message.sender_device,
        recipient=message.to if message.own else "",
        message_id=message.message_id,
        kind=message.kind,
        devices=message.devices,
        flags=(ENCRYPTED if message.encrypted else 0)
        | (0 if message.render else QUIET)
        | (SYNC if message.own else 0)
        | (V2 if message.v2 else 0)
        | (TARGETED if message.targeted else 0),
        sent_ms=message.sent_ms,
        at=at,
        payload=bytes(message.payload),
    )


def delivery_of(row: Message) -> Delivery:
    """A row of an inbox as its readers get it."""
    return Delivery(
        sender=row.sender,
        to=row.recipient or row.aid,
        message_id=row.message_id,
        payload=msgspec.Raw(row.payload),
        sent_ms=row.sent_ms,
        kind=row.kind,
        payload_type=kind_of(decode(row.payload, Head)),
        sender_device=row.sender_device,
        devices=row.devices,
        encrypted=bool(row.flags & ENCRYPTED),
        render=not row.flags & QUIET,
        v2=bool(row.flags & V2),
        own=bool(row.flags & SYNC),
        recalled=bool(row.flags & RECALLED),
    )
