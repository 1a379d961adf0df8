"""`message.send` and `message.recall`: what goes into an inbox, and what is taken back.

Fanout messages are rows of `node.db`; queue messages take a number and live in the ring; volatile ones live in
memory without a number.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence

import msgspec

from edge.contract.channel import Instance, Presence
from edge.contract.errors import (
    InvalidParams,
    NotPermitted,
    RateLimited,
    RecipientsStale,
    TooLarge,
    UnknownAid,
)
from edge.contract.event import Event
from edge.contract.gap import Gap
from edge.contract.limit import Limits
from edge.contract.op import Call, op
from edge.contract.principal import Principal
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock, Stamp
from edge.contract.wire import dumps
from edge.protocol.aun_events import Delivery, Recalled
from edge.services.message import records as r
from edge.services.message import remembered
from edge.services.message.drafts import MULTI_DEVICE, Draft, Drafts, sender_of
from edge.services.message.memory import NOBODY, Memory, inbox_of, received, row_of
from edge.services.message.ring import Queued, place
from edge.store import messages
from edge.store.messages import RECALLED, SYNC, Message

logger = logging.getLogger(__name__)

RECALL = "message.recalled"

Stored = Callable[[Delivery, int, Principal], None]
"""Called in the loop when a fanout message is on disk: the message, its number, who sent it."""


class PostService:
    """Takes messages in."""

    def __init__(
        self,
        node: Store,
        clock: Clock,
        presence: Presence,
        memory: Memory,
        drafts: Drafts,
        limits: Limits,
        stored: Stored,
    ) -> None:
        self._node, self._clock, self._presence, self._memory = node, clock, presence, memory
        self._drafts, self._limits, self._stored = drafts, limits, stored

    @op(
        "message.send",
        scope="message:write",
        wire={"aun": ("message.send",)},
        raises=(InvalidParams, TooLarge, RateLimited, UnknownAid, RecipientsStale, NotPermitted),
    )
    async def send(self, call: Call[r.Send]) -> r.Sent:
        """Put a message into the recipient's inbox; the answer leaves after the commit."""
        draft = self._drafts.make(call.who, call.params)
        if call.params.ttl > 0:
            return await self._send_volatile(draft, min(call.params.ttl, self._limits[r.VOLATILE_TIME]))
        if (
            draft.message.payload_type != MULTI_DEVICE
            and self._mode(call.params.delivery_mode, draft.message.to) == "queue"
        ):
            return await self._send_queue(draft)
        return await self._send_fanout(draft)

    @op(
        "message.recall",
        scope="message:write",
        wire={"aun": ("message.recall",)},
        raises=(InvalidParams, NotPermitted),
        writes=True,
    )
    def recall(self, call: Call[r.Recall], unit: Unit) -> r.RecallResult:
        """Replace one's own recent messages by tombstones and tell the recipients."""
        sender, ids = sender_of(call.who), call.params.message_ids
        if not ids:
            raise InvalidParams("message_ids is empty")
        if len(ids) > self._limits[r.RECALLS]:
            raise self._limits.refuse(r.RECALLS)
        gone: dict[str, list[Message]] = {}
        errors = []
        for message_id in ids:
            outcome = self._recall(unit, sender, message_id, gone)
            if outcome:
                errors.append(r.RecallFailure(message_id, outcome))
        for aid, rows in gone.items():
            self._tell_recalled(unit, aid, sender, rows)
        return r.RecallResult(True, len(ids), len(ids) - len(errors), errors or None)

    def _mode(self, given: r.Mode, to: str) -> str:
        """Explicit param, else what the recipient's connections declared, else fanout (Q-2, C-1, C-2)."""
        mode = given.get("mode", "fanout") if isinstance(given, dict) else given
        if mode is None:
            live = self._presence.instances(to)
            return live[-1].mode if live else "fanout"
        if mode not in ("fanout", "queue"):
            raise InvalidParams("delivery_mode is fanout or queue")
        return str(mode)

    # Fanout.

    async def _send_fanout(self, draft: Draft) -> r.Sent:
        message, at = draft.message, self._clock.now()
        status = "delivered" if self._presence.online(message.to) else "sent"
        newest = self._memory.newest(message.to, message.sender)

        def work(unit: Unit) -> r.Sent:
            if (again := _again(unit, message, self._memory.life)) is not None:
                return again
            self._drafts.accept(unit, draft)
            self._room(unit, draft.who, draft.parts)
            numbers = [_put(unit, part, at, newest if not part.own else 0) for part in draft.parts]
            unit.after(lambda: self._stored(message, numbers[0], draft.who))
            return _sent(message, numbers[0], status)

        return await self._node.commit(work)

    def _room(self, unit: Unit, who: Principal, parts: Sequence[Delivery]) -> None:
        """Raises `RateLimited` when an inbox has no room for its parts of a message; then nothing of it is kept."""
        sizes: dict[str, list[int]] = {}
        for part in parts:
            sizes.setdefault(inbox_of(part), []).append(len(part.payload))
        for aid, octets in sizes.items():
            self._room_in(unit, aid, who, (len(octets), sum(octets)))

    def _room_in(self, unit: Unit, aid: str, who: Principal, more: tuple[int, int]) -> None:
        """Whoever fills an inbox keeps no alarm of ours out of it, and by himself nobody else who writes to its owner.

        The first sender may hold half of it, the next half of the rest: it takes many to fill one, and whoever has
        nothing there gets one message in as long as it is not full. Sizes are rows and bytes of payload.
        """
        ours, reserve = who.via == "node", False
        used, held = messages.usage(unit, aid), messages.held(unit, aid, who.aid)
        if not ours and not held[0] and messages.senders(unit, aid) >= self._limits[r.INBOX_SENDERS]:
            raise self._limits.refuse(r.INBOX_SENDERS, aid)
        for bound, have, own, add in zip((r.INBOX_ROWS, r.INBOX_OCTETS), used, held, more, strict=True):
            most, need = self._limits[bound], have + add
            if need > (most * (100 + self._limits[r.INBOX_RESERVE]) / 100 if ours else most):
                raise self._limits.refuse(bound, aid)
            reserve |= need > most
            left = most - (have - own)
            shared = not ours and who.aid != aid and own > 0
            if shared and (own + add) * 100 > left * self._limits[r.INBOX_SHARE]:
                raise self._limits.refuse(r.INBOX_SHARE, f"of {left} {bound.unit} in the inbox of {aid}")
        if reserve:
            self._limits.hit(r.INBOX_RESERVE)

    # Queue.

    async def _send_queue(self, draft: Draft) -> r.Sent:
        message = msgspec.structs.replace(draft.message, mode="queue")
        with self._memory.admit(message.sender, len(message.payload)):
            return await self._queue(draft, message)

    async def _queue(self, draft: Draft, message: Delivery) -> r.Sent:
        live = [i for i in self._presence.instances(message.to) if i.long and _may_see(message, i.device_id)]
        at = self._clock.now()
        chosen = self._memory.routes.choose(live, message.sender, at.mono_us)
        newest = self._memory.newest(message.to, message.sender)
        until_us = self._limits[r.RING_TIME] * SECOND

        def work(unit: Unit) -> r.Sent:
            if (again := _again(unit, message, self._memory.life)) is not None:
                return again
            self._drafts.accept(unit, draft)
            self._room(unit, draft.who, draft.parts[1:])
            stored = messages.last_of(unit, message.to, message.sender)
            seq = unit.log(messages.INBOX).number(message.to)
            linked = _linked(message, seq, newest, stored)
            unit.emit(received(linked, seq, only=chosen.channel if chosen else NOBODY))
            unit.after(lambda: self._enqueue(linked, seq, chosen))
            for part in draft.parts[1:]:
                _put(unit, part, at, 0)
            sent = _sent(message, seq, "delivered" if chosen else "sent")
            remembered.keep(unit, message, sent, self._memory.life, unit.wall_us + until_us)
            return sent

        with self._memory.queueing(message.to):
            return await self._node.commit(work)

    def _enqueue(self, message: Delivery, seq: int, chosen: Instance | None) -> None:
        at = self._clock.now()
        gone = self._memory.ring.put(message.to, seq, message, place(chosen) if chosen else None, at.mono_us)
        self._declare(message.to, gone, at)

    def _declare(self, aid: str, gone: Sequence[Queued], at: Stamp) -> None:
        """What the ring had no room for and nobody has acknowledged is a loss (P2)."""
        lost = [row for row in gone if not row.acked]
        if lost:
            first, last = min(row.seq for row in lost), max(row.seq for row in lost)
            gap = Gap(messages.INBOX, aid, first, last, len(lost), "ring_full", "message", at)

            def work(unit: Unit) -> None:
                unit.lose(gap)
                remembered.settle(unit, [row.message for row in lost])

            self._node.write(work, _log_failure)

    # Volatile.

    async def _send_volatile(self, draft: Draft, ttl_s: int) -> r.Sent:
        message, volatile, now_us = draft.message, self._memory.volatile, self._memory.now_us
        if (before := volatile.sent(message.sender, message.message_id)) is not None:
            return _held(before, "duplicate")
        with self._memory.admit(message.sender, len(message.payload)):
            await self._node.read(lambda unit: self._drafts.accept(unit, draft))
            if (before := volatile.sent(message.sender, message.message_id)) is not None:
                return _held(before, "duplicate")
            kept = msgspec.structs.replace(message, cursor=volatile.cursor(), expires_ms=message.sent_ms + ttl_s * 1000)
            gone = volatile.put(kept, now_us + ttl_s * SECOND, now_us)
        if gone:
            at = self._clock.now()
            gap = Gap("volatile", message.to, 0, 0, len(gone), "no_room", "message", at)
            self._node.write(lambda unit: unit.lose(gap), _log_failure)
        self._memory.push(kept, 0)
        return _held(kept, "accepted")

    # Recall.

    def _recall(self, unit: Unit, sender: str, message_id: str, gone: dict[str, list[Message]]) -> str:
        """Bury one message; "" or why not."""
        rows = [row for row in messages.find(unit, sender, message_id) if row.kind != RECALL or row.flags & RECALLED]
        if not rows:
            return "not_sender" if messages.used(unit, message_id) else "not_found"
        if all(row.flags & RECALLED for row in rows):
            return "already_recalled"
        if any(self._age_us(unit, row) > self._limits[r.RECALL_TIME] * SECOND for row in rows):
            return "expired"
        for row in rows:
            messages.bury(unit, row, RECALL, dumps({"type": RECALL, "message_ids": [message_id]}))
            gone.setdefault(row.aid, []).append(row)
        return ""

    @staticmethod
    def _age_us(unit: Unit, row: Message) -> int:
        if row.at.boot == unit.at.boot:
            return unit.at.mono_us - row.at.mono_us
        return unit.wall_us - row.sent_ms * 1000

    def _tell_recalled(self, unit: Unit, aid: str, sender: str, rows: Sequence[Message]) -> None:
        """Push the recall. A reader that has already passed the message finds a notice behind its cursor."""
        ids = tuple(row.message_id for row in rows)
        notice, seq, now_ms = (
            f"recall-{secrets.token_hex(12)}",
            rows[0].seq if len(rows) == 1 else 0,
            unit.wall_us // 1000,
        )
        if any(messages.acked_by_anybody(unit, aid, sender, row.seq) for row in rows):
            seq = messages.add(
                unit,
                Message(
                    aid=aid,
                    seq=0,
                    sender=sender,
                    message_id=notice,
                    kind=RECALL,
                    flags=RECALLED | (SYNC if aid == sender else 0),
                    sent_ms=now_ms,
                    at=unit.at,
                    payload=dumps({"type": RECALL, "message_ids": ids}),
                ),
            )
        body = Recalled(sender=sender, to=aid, message_ids=ids, sent_ms=now_ms, tombstone=notice, seq=seq)
        unit.emit(Event("inbox", aid, max(seq, rows[-1].seq), RECALL, dumps(body), frozenset({aid})))


def _again(unit: Unit, message: Delivery, life: str) -> r.Sent | None:
    """The first answer to this sender's message id, if there was one (M-1)."""
    for row in messages.find(unit, message.sender, message.message_id):
        if not row.flags & SYNC:
            _same_recipient(row.aid, message.to)
            first = msgspec.structs.replace(message, sent_ms=row.sent_ms)
            return _sent(first, row.seq, "duplicate")
    kept = remembered.answered(unit, message, life)
    if kept is None:
        return None
    _same_recipient(kept[0], message.to)
    return msgspec.structs.replace(kept[1], status="duplicate")


def _same_recipient(first: str, now: str) -> None:
    """One id to two recipients would be a message lost in silence."""
    if first != now:
        raise InvalidParams(f"message_id was already used for a message to {first}: give every message its own")


def _linked(message: Delivery, seq: int, newest: int | None, stored: int) -> Delivery:
    """A message with the number of the one before it. Too high a number costs its reader a pull, nothing else."""
    return msgspec.structs.replace(message, prev=seq - 1 if newest is None else max(newest, stored))


def _put(unit: Unit, message: Delivery, at: Stamp, newest: int | None) -> int:
    """One row and its event; its number."""
    stored = messages.last_of(unit, inbox_of(message), message.sender)
    seq = messages.add(unit, row_of(message, at))
    unit.emit(received(_linked(message, seq, newest, stored), seq))
    return seq


def _may_see(message: Delivery, device: str) -> bool:
    return not message.devices or device in message.devices


def _sent(message: Delivery, seq: int, status: str) -> r.Sent:
    return r.Sent(
        message_id=message.message_id,
        seq=seq,
        timestamp=message.sent_ms,
        status=status,
        delivery_mode=message.mode,
    )


def _held(message: Delivery, status: str) -> r.Sent:
    return r.Sent(
        message_id=message.message_id,
        timestamp=message.sent_ms,
        status=status,
        storage="volatile",
        volatile_cursor=message.cursor,
        created_at=message.sent_ms,
        expires_at=message.expires_ms,
    )


def _log_failure(result: object) -> None:
    if isinstance(result, BaseException):
        logger.warning("a gap could not be written: %s", result)
