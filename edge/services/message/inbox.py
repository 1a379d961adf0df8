"""Reading an inbox: pull, ack, history, presence (spec aun-services §3.3).

Two cursor scopes: the whole inbox (the seed) and one sender (`cursor_scope:"peer"`, the current SDK); an ack in one
leaves the other where it is (C-5). The method name chooses the row format: `message.v2.*` and `message.history`
answer V2 rows, `message.pull` the seed's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from edge.contract.channel import Presence
from edge.contract.errors import InvalidParams, NotPermitted
from edge.contract.limit import Limits
from edge.contract.op import Call, op
from edge.contract.store import INCARNATION_SHIFT, Store, Unit
from edge.contract.time import Clock, wall_ms
from edge.contract.wire import decode
from edge.protocol import aid as aids
from edge.protocol.aun_events import Delivery, bearable, first_generation, flat_row, v2_row, weight
from edge.protocol.pages import fitting
from edge.services.message import records as r
from edge.services.message import remembered
from edge.services.message.memory import Memory, acknowledged, delivery_of
from edge.services.message.places import clamp, place_of, reader_of, scope_of
from edge.store import messages
from edge.store.messages import Reader

GLOBAL_DEFAULT, PEER_DEFAULT, HISTORY_DEFAULT = 100, 200, 50


class Numbered(msgspec.Struct):
    """A message with its number in the inbox."""

    seq: int
    message: Delivery


class InboxService:
    """What the owner of an inbox does with it."""

    def __init__(
        self, node: Store, clock: Clock, presence: Presence, memory: Memory, issuer: str, limits: Limits
    ) -> None:
        self._node, self._clock, self._presence, self._memory = node, clock, presence, memory
        self._issuer, self._limits = issuer, limits

    @op(
        "message.pull",
        scope="message:read",
        wire={"aun": ("message.pull",)},
        raises=(InvalidParams, NotPermitted),
    )
    async def pull(self, call: Call[r.Pull]) -> r.Page:
        """Messages after a number; changes nothing and may be repeated."""
        return await self._pull(call, v2=False)

    @op(
        "message.v2.pull",
        scope="message:read",
        wire={"aun": ("message.v2.pull",)},
        raises=(InvalidParams, NotPermitted),
    )
    async def pull_v2(self, call: Call[r.Pull]) -> r.Page:
        """`message.pull` with V2 rows: what the current SDK reads by sender."""
        return await self._pull(call, v2=True)

    @op(
        "message.ack",
        scope="message:read",
        wire={"aun": ("message.ack",)},
        raises=(InvalidParams, NotPermitted),
    )
    async def ack(self, call: Call[r.Ack]) -> r.AckResult:
        """Confirm messages up to a number, and volatile ones by name; cursors only go forward."""
        return await self._ack(call)

    @op(
        "message.v2.ack",
        scope="message:read",
        wire={"aun": ("message.v2.ack",)},
        raises=(InvalidParams, NotPermitted),
    )
    async def ack_v2(self, call: Call[r.Ack]) -> r.AckResult:
        """`message.ack` as the current SDK calls it."""
        return await self._ack(call)

    @op(
        "message.history",
        scope="message:read",
        wire={"aun": ("message.history",)},
        raises=(InvalidParams, NotPermitted),
    )
    async def history(self, call: Call[r.History]) -> r.Page:
        """Stored messages below a number, oldest first; moves no cursor, never volatile."""
        asked, reader = call.params, reader_of(call, call.params)
        sender = scope_of(asked)
        if asked.before_seq <= 0:
            raise InvalidParams("before_seq must be above 0")
        limit = clamp(asked.limit, PEER_DEFAULT if sender else HISTORY_DEFAULT, self._limits[r.PAGE_ROWS])
        octets = self._limits[r.PAGE_OCTETS]

        def work(unit: Unit) -> tuple[list[messages.Message], bool, int]:
            rows, older = messages.before(unit, reader, asked.before_seq, rows=limit, octets=octets, sender=sender)
            return rows, older, messages.floor(unit, reader.aid)

        rows, older, floor = await self._node.read(work)
        start = rows[0].seq if rows else None
        page = r.Page(
            messages=[v2_row(delivery_of(row), row.seq) for row in rows],
            count=len(rows),
            window_start_seq=start,
            next_before_seq=start,
            has_older=older,
            retention_floor_seq=floor,
            earliest_available_seq=floor + 1 if floor else None,
        )
        if sender:
            page.cursor_scope, page.sender_aid = "peer", sender
        return page

    @op(
        "message.query_online",
        scope="message:read",
        wire={"aun": ("message.query_online",)},
        raises=(InvalidParams,),
    )
    async def query_online(self, call: Call[r.QueryOnline]) -> r.Online:
        """Who is connected (long connections; a device by its availability); unknown AIDs are not."""
        if not call.params.aids:
            raise InvalidParams("aids is empty")
        if len(call.params.aids) > self._limits[r.ONLINE]:
            raise self._limits.refuse(r.ONLINE)
        return r.Online({aid: self._presence.online(aids.normal(aid)) for aid in call.params.aids})

    # Pull.

    async def _pull(self, call: Call[r.Pull], *, v2: bool) -> r.Page:
        asked, reader = call.params, reader_of(call, call.params)
        if asked.window_mode not in ("", "tail"):
            raise InvalidParams("window_mode is tail or absent")
        sender = scope_of(asked)
        if sender and asked.ack_up_to_seq is not None:
            await self._acknowledge(reader, asked.ack_up_to_seq, sender)
        if not sender:
            return await self._pull_inbox(call, reader, v2=v2)
        if asked.window_mode == "tail":
            return await self._pull_tail(asked, reader, sender, v2=v2)
        return await self._pull_peer(asked, reader, sender, v2=v2)

    async def _pull_inbox(self, call: Call[r.Pull], reader: Reader, *, v2: bool) -> r.Page:
        asked = call.params
        after = max(0, asked.after_seq or 0)
        limit, octets = clamp(asked.limit, GLOBAL_DEFAULT, self._limits[r.PAGE_ROWS]), self._limits[r.PAGE_OCTETS]

        def work(unit: Unit) -> tuple[list[messages.Message], bool, int, int, int, int]:
            head, floor = messages.head(unit, reader.aid), messages.floor(unit, reader.aid)
            rows, more = messages.after(unit, reader, after, rows=limit, octets=octets)
            cursor = max(messages.cursor(unit, reader), floor)
            return rows, more, head, floor, cursor, messages.next_seen(unit, reader, cursor)

        stored, more, head, floor, cursor, unread = await self._node.read(work)
        self._node.shown(after, head, reader.aid)
        queued = await self._queued(reader, head)
        rows, more = _merge(stored, more, [row for row in queued if row.seq > after], limit, octets)
        unread = min(
            (seq for seq in (unread, *(row.seq for row in queued if row.seq > cursor)) if seq), default=head + 1
        )
        latest = rows[-1].seq if rows else after
        read_to = max(cursor, unread - 1)
        if self._jumps(call, after, head):
            self._push_missed(call, rows)
            rows, more, read_to, latest = [], more or bool(rows), head, after
        now, aid, hello = self._memory.now_us, reader.aid, _hello(call)
        self._claim(reader, rows)
        page = r.Page(
            messages=[_shown(Numbered(row.seq, bearable(row.message, hello)), v2) for row in rows],
            count=len(rows),
            latest_seq=latest,
            ephemeral_earliest_available_seq=self._memory.ring.earliest(aid, now),
            ephemeral_dropped_count=self._memory.ring.dropped(aid),
            server_ack_seq=read_to,
            retention_floor_seq=floor,
            earliest_available_seq=floor + 1 if floor else None,
            has_more=more,
        )
        self._add_volatile(page, asked, reader, "", limit, _weight(rows), v2=v2)
        return page

    def _jumps(self, call: Call[r.Pull], after: int, head: int) -> bool:
        """Is this the first pull of a 0.2 SDK across a jump of numbers (D18)?

        That SDK lists every number of a gap in memory as soon as a page has rows. An empty page whose
        `server_ack_seq` lies above the gap makes it forget the gap; what it missed then comes as events.
        """
        over = after < head >> INCARNATION_SHIFT << INCARNATION_SHIFT
        return over and first_generation(_hello(call)) and self._memory.first_jump(call.door.channel)

    def _push_missed(self, call: Call[r.Pull], rows: Sequence[Numbered]) -> None:
        for row in rows:
            if row.message.sent_ms < call.door.since_ms:
                self._memory.push(row.message, row.seq, only=call.door.channel)

    async def _pull_peer(self, asked: r.Pull, reader: Reader, sender: str, *, v2: bool) -> r.Page:
        """Forward by sender, with the exact proof of what the page covers.

        The head is read before the rows, so that every row up to it is among them.
        """
        limit, octets = clamp(asked.limit, PEER_DEFAULT, self._limits[r.PAGE_ROWS]), self._limits[r.PAGE_OCTETS]

        def work(unit: Unit) -> tuple[list[messages.Message], bool, int, int, int, int]:
            known = messages.head(unit, reader.aid)
            cursor, floor = messages.cursor(unit, reader, sender), messages.floor(unit, reader.aid)
            start = max(cursor if asked.after_seq is None else max(0, asked.after_seq), floor)
            rows, more = messages.after(unit, reader, start, rows=limit, octets=octets, sender=sender)
            return rows, more, start, cursor, floor, known

        stored, more, start, cursor, floor, known = await self._node.read(work)
        self._node.shown(asked.after_seq or 0, known, reader.aid)
        queued = [row for row in await self._queued(reader, known, sender) if row.seq > start]
        head = max([start, *(row.seq for row in queued), *(row.seq for row in stored)])
        if more:
            head = max(head, await self._node.read(lambda unit: messages.last_of(unit, reader.aid, sender)))
        rows, more = _merge(stored, more, queued, limit, octets)
        covered = rows[-1].seq if more else head
        self._claim(reader, rows)
        page = r.Page(
            cursor_scope="peer",
            sender_aid=sender,
            messages=[_shown(row, v2) for row in rows],
            count=len(rows),
            scan_after_seq=start,
            covered_through_seq=covered,
            next_after_seq=covered,
            head_seq=head,
            server_ack_seq=cursor,
            retention_floor_seq=floor,
            earliest_available_seq=floor + 1 if floor else None,
            persistent_has_more=more,
            volatile_has_more=False,
            has_more=more,
        )
        self._add_volatile(page, asked, reader, sender, limit, _weight(rows), v2=v2)
        return page

    async def _pull_tail(self, asked: r.Pull, reader: Reader, sender: str, *, v2: bool) -> r.Page:
        """The newest page of a sender above `after_seq`; a window, not a proof of what lies before it."""
        limit, octets = clamp(asked.limit, PEER_DEFAULT, self._limits[r.PAGE_ROWS]), self._limits[r.PAGE_OCTETS]

        def work(unit: Unit) -> tuple[list[messages.Message], int, int, int, int]:
            cursor, floor = messages.cursor(unit, reader, sender), messages.floor(unit, reader.aid)
            start = cursor if asked.after_seq is None else max(0, asked.after_seq)
            known = messages.head(unit, reader.aid)
            rows, _ = messages.before(unit, reader, known + 1, rows=limit, octets=octets, sender=sender)
            return [row for row in rows if row.seq > start], start, cursor, floor, known

        stored, start, cursor, floor, known = await self._node.read(work)
        self._node.shown(asked.after_seq or 0, known, reader.aid)
        queued = [row for row in await self._queued(reader, known, sender) if row.seq > start]
        rows = _numbered(stored, queued)
        fits = fitting([weight(row.message) for row in reversed(rows)], limit, octets)
        rows = rows[len(rows) - fits :]
        self._claim(reader, rows)
        head = max(start, rows[-1].seq if rows else 0)
        return r.Page(
            cursor_scope="peer",
            sender_aid=sender,
            messages=[_shown(row, v2) for row in rows],
            count=len(rows),
            window_start_seq=rows[0].seq if rows else head,
            head_seq=head,
            covered_through_seq=head,
            server_ack_seq=cursor,
            retention_floor_seq=floor,
            earliest_available_seq=floor + 1 if floor else None,
            volatile_has_more=bool(self._volatile(reader, "", sender)),
        )

    async def _queued(self, reader: Reader, known: int, sender: str = "") -> list[Numbered]:
        """What the ring holds for this reader, of the numbers that the read of the database knew of."""
        await self._memory.settled(reader.aid)
        found = self._memory.ring.visible(reader.aid, place_of(reader), self._memory.now_us, sender)
        return [Numbered(row.seq, row.message) for row in found if row.seq <= known]

    def _claim(self, reader: Reader, rows: Sequence[Numbered]) -> None:
        self._memory.ring.claim(reader.aid, place_of(reader), {row.seq for row in rows})

    def _volatile(self, reader: Reader, cursor: str, sender: str) -> list[Delivery]:
        return self._memory.volatile.after(reader.aid, place_of(reader), cursor, self._memory.now_us, sender)

    def _add_volatile(
        self, page: r.Page, asked: r.Pull, reader: Reader, sender: str, limit: int, taken: int, *, v2: bool
    ) -> None:
        """Volatile messages fill what stored ones have left of the page, for callers that know of them."""
        if not sender and not asked.after_volatile_cursor and not v2:
            return
        waiting = self._volatile(reader, asked.after_volatile_cursor, sender)
        sizes = [taken, *map(weight, waiting)] if page.messages else [weight(one) for one in waiting]
        whole = fitting(sizes, limit - len(page.messages) + bool(page.messages), self._limits[r.PAGE_OCTETS])
        fits = whole - bool(page.messages)
        page.messages += [_shown(Numbered(0, message), v2) for message in waiting[:fits]]
        page.count = len(page.messages)
        page.latest_volatile_cursor = waiting[fits - 1].cursor if fits else None
        page.volatile_dropped_count = self._memory.volatile.dropped(reader.aid)
        page.volatile_has_more = len(waiting) > fits
        page.has_more = bool(page.has_more) or page.volatile_has_more

    # Ack.

    async def _ack(self, call: Call[r.Ack]) -> r.AckResult:
        asked, reader = call.params, reader_of(call, call.params)
        sender = scope_of(asked)
        seq = asked.up_to_seq if asked.up_to_seq is not None else asked.seq
        cursors = {*asked.volatile_cursors, *([asked.volatile_cursor] if asked.volatile_cursor else [])}
        ids = set(asked.volatile_ids)
        if seq is None and not cursors and not ids:
            raise InvalidParams("seq is missing")
        if seq is not None and seq < 0:
            raise InvalidParams("seq must not be negative")
        result = r.AckResult(success=True)
        if cursors or ids:
            done = self._memory.volatile.acknowledge(
                reader.aid, place_of(reader), cursors, ids, self._memory.now_us, sender
            )
            result.volatile_ack = r.VolatileAck(*done)
        now, effective = await self._acknowledge(reader, seq, sender)
        if sender:
            result.cursor_scope, result.sender_aid = "peer", sender
            result.peer_ack_seq, result.effective_ack_seq = now, effective
        else:
            result.ack_seq = now
        return result

    async def _acknowledge(self, reader: Reader, seq: int | None, sender: str) -> tuple[int, int]:
        """Move a cursor and tell the senders of what it newly covers; where it stands, and what that amounts to.

        A cursor by sender is clamped to what the sender has sent; nothing of the sender lies between it and a
        number up to the inbox head, so that is what it amounts to.
        """
        if seq is None:
            now = await self._node.read(lambda unit: messages.cursor(unit, reader, sender))
            return now, now
        await self._memory.settled(reader.aid)
        ring = self._memory.ring
        mine = ring.visible(reader.aid, place_of(reader), self._memory.now_us, sender)
        queued = {row.seq: row.message for row in mine if row.owner is not None}
        at_ms = wall_ms(self._clock)

        def work(unit: Unit) -> tuple[int, int]:
            head = messages.head(unit, reader.aid)
            if seq > head:
                unit.after(lambda: self._node.shown(seq, head, reader.aid))
            before = messages.cursor(unit, reader, sender)
            limit = head
            if sender:
                last = max([0, *queued, messages.last_of(unit, reader.aid, sender)])
                limit = min(head, max(last, messages.floor(unit, reader.aid)))
            now = messages.ack(unit, reader, min(seq, limit), sender) if seq > before else before
            read = [message for number, message in queued.items() if before < number <= now]
            remembered.settle(unit, read)
            covered = {message.sender for message in read}
            covered |= messages.covered(unit, reader.aid, before, now) if now > before else set()
            for name in sorted(covered & {sender} if sender else covered):
                unit.emit(acknowledged(reader, name, now, at_ms, peer=bool(sender)))
            return now, max(now, min(seq, head) if seq <= head else now)

        now, effective = await self._node.commit(work)
        ring.acknowledge(reader.aid, place_of(reader), effective, sender)
        return now, effective


def _shown(row: Numbered, v2: bool) -> dict[str, Any]:
    return v2_row(row.message, row.seq) if v2 else flat_row(row.message, row.seq)


def _weight(rows: Sequence[Numbered]) -> int:
    return sum(weight(row.message) for row in rows)


def _numbered(stored: Sequence[messages.Message], queued: Sequence[Numbered]) -> list[Numbered]:
    return sorted([*(Numbered(row.seq, delivery_of(row)) for row in stored), *queued], key=lambda row: row.seq)


def _merge(
    stored: Sequence[messages.Message], more: bool, queued: Sequence[Numbered], limit: int, octets: int
) -> tuple[list[Numbered], bool]:
    """One page by number out of rows and ring. Behind a page that was cut nothing of the ring may be shown."""
    if more:
        queued = [row for row in queued if row.seq < stored[-1].seq]
    rows = _numbered(stored, queued)
    fits = fitting([weight(row.message) for row in rows], limit, octets)
    return rows[:fits], more or fits < len(rows)


def _hello(call: Call[Any]) -> dict[str, Any]:
    """What the connection announced."""
    return decode(call.door.hello, dict[str, Any]) if call.door.hello else {}
