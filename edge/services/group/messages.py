"""What is said in a group: send, recall, pull, history, ack (spec aun-services §1.3, §3.6).

Every message goes to every member; its number is the group's. Two row formats: `group.v2.*` and `group.history`
answer V2 rows, `group.pull` flat ones. A device sees the plain messages since its member joined, and those encrypted
ones that carry a key for it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from edge.contract.errors import (
    GroupE2eeRequired,
    GroupEpochMismatch,
    GroupSuspended,
    InvalidParams,
    TooLarge,
)
from edge.contract.event import Event
from edge.contract.op import Call, op
from edge.contract.store import INCARNATION_SHIFT, Unit
from edge.contract.time import SECOND
from edge.contract.wire import decode, dumps
from edge.protocol import aun, wraps
from edge.protocol.aun_group_events import CREATED, DISPATCH, RECALLED, GroupMessage, flat_row, v2_row
from edge.services.group import limits as bounds
from edge.services.group import views
from edge.services.group.lifecycle import GROUP_ERRORS
from edge.services.group.room import InGroup, Room, Seat, Service, e2ee_only, may_speak
from edge.store import group_logs, groups
from edge.store.group_logs import ENCRYPTED, EVENTS, MESSAGES, QUIET, V2, Place, Said, Wrap

PULL_DEFAULT = 50
LEGACY_KIND = "e2ee.group_encrypted"


class Head(msgspec.Struct):
    """What the node reads of a payload."""

    type: Any = None
    version: Any = None
    epoch: Any = None


class Send(InGroup, frozen=True, kw_only=True):
    """A message for everybody in the group; there is no other way of delivery (G-17)."""

    payload: msgspec.Raw
    type: str = ""
    attachments: msgspec.Raw = msgspec.Raw(b"[]")
    message_id: str = ""
    encrypted: bool = False
    need_render: bool = True


class Sent(msgspec.Struct, kw_only=True):
    """The stored message. Messages write no event of their own: `event.seq` is the head of the event log."""

    group_id: str
    group_aid: str
    message: dict[str, Any]
    event: dict[str, Any]
    dispatch: dict[str, str]
    message_dispatch: dict[str, str]
    mention_mode: str
    seq: int
    message_id: str
    timestamp: int
    status: str


class Pull(InGroup, frozen=True, kw_only=True):
    """Messages above a number; `window_mode` `tail` asks for the newest page."""

    ALIASES: ClassVar[Mapping[str, str]] = {**InGroup.ALIASES, "after_message_seq": "after_seq"}

    after_seq: int = 0
    limit: int | None = None
    ack_up_to_seq: int | None = None
    window_mode: str = ""
    force: bool = False


class Cursor(msgspec.Struct):
    """Where this device stands."""

    current_seq: int
    join_seq: int
    latest_seq: int
    retention_floor_seq: int
    unread_count: int


class Page(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Messages, oldest first, and what they cover. The window fields are there for `tail`."""

    group_id: str
    group_aid: str
    messages: list[dict[str, Any]]
    latest_message_seq: int
    has_more: bool
    limit: int
    retention_floor_message_seq: int
    earliest_available_message_seq: int
    cursor: Cursor | UnsetType = UNSET
    window_mode: str | UnsetType = UNSET
    window_start_seq: int | UnsetType = UNSET
    head_seq: int | UnsetType = UNSET
    covered_through_seq: int | UnsetType = UNSET


class History(InGroup, frozen=True, kw_only=True):
    """Messages below a number, going back."""

    before_seq: int
    limit: int | None = None


class HistoryPage(msgspec.Struct, kw_only=True):
    """A page going back; both boundaries are the first row's number, null on an empty page only."""

    group_id: str
    group_aid: str
    messages: list[dict[str, Any]]
    window_start_seq: int | None
    next_before_seq: int | None
    has_older: bool
    retention_floor_seq: int
    earliest_available_seq: int


class Ack(InGroup, frozen=True, kw_only=True):
    """Read up to here; three spellings of one number."""

    msg_seq: int | None = None
    seq: int | None = None
    up_to_seq: int | None = None

    def number(self) -> int:
        """Raises `InvalidParams` when it is missing or negative."""
        given = next((one for one in (self.msg_seq, self.up_to_seq, self.seq) if one is not None), None)
        if given is None:
            raise InvalidParams("msg_seq is missing")
        if given < 0:
            raise InvalidParams("msg_seq must not be negative")
        return given


class Acked(msgspec.Struct, kw_only=True):
    """Where the device's cursor stands now."""

    success: bool
    group_id: str
    group_aid: str
    cursor: int
    ack_seq: int
    effective_ack_seq: int
    latest_message_seq: int


class AckedV2(msgspec.Struct, kw_only=True):
    """Where the device's cursor stands now, as the current SDK reads it."""

    success: bool
    group_id: str
    group_aid: str
    cursor: dict[str, int]
    ack_seq: int
    effective_ack_seq: int
    latest_message_seq: int


class Recall(InGroup, frozen=True, kw_only=True):
    """One's own recent messages."""

    message_ids: list[str]
    reason: str = ""


class RecallResult(msgspec.Struct):
    """`accepted` ids passed the checks, `recalled` are gone; `errors` says why others are not."""

    success: bool
    group_id: str
    accepted: list[str]
    recalled: list[str]
    errors: list[dict[str, str]]


class MessageService(Service):
    """Messages of groups."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._led: OrderedDict[tuple[str, str], None] = OrderedDict()

    @op(
        "group.send",
        scope="group:write",
        wire={"aun": ("group.send",)},
        raises=(*GROUP_ERRORS, TooLarge, GroupSuspended, GroupEpochMismatch, GroupE2eeRequired),
        writes=True,
        before="read_payload",
    )
    def send(self, call: Call[Send], unit: Unit) -> Sent:
        """Say something to the group; the answer leaves after the commit."""
        asked, head = call.params, call.prepared
        seat = self._room.enter(unit, call)
        if (again := self._again(unit, seat, asked.message_id)) is not None:
            return self._sent(unit, *again, "duplicate")
        may_speak(unit, seat)
        encrypted = asked.encrypted or _kind(head).startswith("e2ee.")
        if e2ee_only(seat.group) and not encrypted:
            raise GroupE2eeRequired(f"{seat.gid} takes encrypted messages only")
        if _kind(head) == LEGACY_KIND and head.version != "v2":
            self._check_epoch(seat, head)
        said = Said(
            gid=seat.gid,
            seq=0,
            sender=seat.aid,
            device=call.who.device_id,
            message_id=asked.message_id or f"gm-{secrets.token_hex(16)}",
            kind=asked.type,
            mode=views.mention_mode(unit, seat.gid),
            flags=(ENCRYPTED if encrypted else 0) | (0 if asked.need_render else QUIET),
            sent_ms=unit.wall_us // 1000,
            at=unit.at,
            payload=bytes(asked.payload),
            attachments=b"" if bytes(asked.attachments) == b"[]" else bytes(asked.attachments),
        )
        return self._sent(unit, *self.post(unit, seat, said, _kind(head)), "sent")

    async def read_payload(self, call: Call[Send]) -> Head:
        """What of a message needs no table."""
        asked, raw = call.params, bytes(call.params.payload)
        if not raw.lstrip().startswith(b"{"):
            raise InvalidParams("payload must be a JSON object")
        if len(raw) > self._limits[bounds.PAYLOAD]:
            raise self._limits.refuse(bounds.PAYLOAD)
        if not bytes(asked.attachments).lstrip().startswith(b"["):
            raise InvalidParams("attachments must be an array")
        if len(asked.attachments) > self._limits[bounds.ATTACHMENTS]:
            raise self._limits.refuse(bounds.ATTACHMENTS)
        self._fits(bounds.MESSAGE_ID, asked.message_id, asked.type)
        return decode(raw, Head)

    @op(
        "group.recall",
        scope="group:write",
        wire={"aun": ("group.recall",)},
        raises=GROUP_ERRORS,
        writes=True,
    )
    def recall(self, call: Call[Recall], unit: Unit) -> RecallResult:
        """Take back one's own recent messages: tombstones in their places, a notice behind them."""
        asked, seat = call.params, self._room.enter(unit, call)
        if not asked.message_ids:
            raise InvalidParams("message_ids is empty")
        if len(asked.message_ids) > self._limits[bounds.RECALLS]:
            raise self._limits.refuse(bounds.RECALLS)
        self._fits(bounds.REASON, asked.reason)
        gone: list[str] = []
        errors: list[dict[str, str]] = []
        for message_id in dict.fromkeys(asked.message_ids):
            why = self._recall(unit, seat, message_id, asked.reason)
            if why:
                errors.append({"message_id": message_id, "error": why})
            else:
                gone.append(message_id)
        return RecallResult(True, seat.gid, gone, gone, errors)

    # Reading.

    @op("group.pull", scope="group:read", wire={"aun": ("group.pull",)}, raises=GROUP_ERRORS)
    async def pull(self, call: Call[Pull]) -> Page:
        """Messages after a number; changes nothing and may be repeated."""
        return await self._pull(call, v2=False)

    @op("group.v2.pull", scope="group:read", wire={"aun": ("group.v2.pull",)}, raises=GROUP_ERRORS)
    async def pull_v2(self, call: Call[Pull]) -> Page:
        """`group.pull` with V2 rows."""
        return await self._pull(call, v2=True)

    @op("group.history", scope="group:read", wire={"aun": ("group.history",)}, raises=GROUP_ERRORS)
    async def history(self, call: Call[History]) -> HistoryPage:
        """Messages below a number, oldest first; moves no cursor."""
        asked, place = call.params, self._room.place(call)
        if asked.before_seq <= 0:
            raise InvalidParams("before_seq must be above 0")
        limit, octets = self._page(asked.limit, PULL_DEFAULT), self._limits[bounds.PAGE_OCTETS]

        def look(unit: Unit) -> HistoryPage:
            seat = self._room.seat(unit, place.gid, place.aid)
            above = max(seat.member.join_seq, group_logs.floor(unit, place.gid))
            found: tuple[list[Said], bool] = ([], False)
            if not self._deaf(unit, seat):
                found = group_logs.before(unit, place, asked.before_seq, above, rows=limit, octets=octets)
            start = found[0][0].seq if found[0] else None
            return HistoryPage(
                group_id=place.gid,
                group_aid=place.gid,
                messages=self._rows(unit, place, found[0], v2=True),
                window_start_seq=start,
                next_before_seq=start,
                has_older=found[1],
                retention_floor_seq=group_logs.floor(unit, place.gid),
                earliest_available_seq=above + 1,
            )

        return await self._room.node.read(look)

    @op(
        "group.ack",
        scope="group:read",
        wire={"aun": ("group.ack", "group.ack_messages")},
        raises=GROUP_ERRORS,
        writes=True,
    )
    def ack(self, call: Call[Ack], unit: Unit) -> Acked:
        """Confirm messages up to a number; a device's cursor only goes forward."""
        now, head = self._ack(unit, call, call.params.number())
        gid = self._room.gid(call.params.group_id)
        return Acked(
            success=True,
            group_id=gid,
            group_aid=gid,
            cursor=now,
            ack_seq=now,
            effective_ack_seq=now,
            latest_message_seq=head,
        )

    @op(
        "group.v2.ack",
        scope="group:read",
        wire={"aun": ("group.v2.ack",)},
        raises=GROUP_ERRORS,
        writes=True,
    )
    def ack_v2(self, call: Call[Ack], unit: Unit) -> AckedV2:
        """`group.ack` as the current SDK calls it."""
        now, head = self._ack(unit, call, call.params.number())
        gid = self._room.gid(call.params.group_id)
        return AckedV2(
            success=True,
            group_id=gid,
            group_aid=gid,
            cursor={"current_seq": now},
            ack_seq=now,
            effective_ack_seq=now,
            latest_message_seq=head,
        )

    # Shared with the encrypted way.

    def post(self, unit: Unit, seat: Seat, said: Said, kind: str, keys: list[Wrap] | None = None) -> tuple[Said, int]:
        """One row, its event, and room for it; the row and its number."""
        seq = group_logs.add(unit, said, keys or ())
        groups.said(unit, seat.gid, seat.aid, kind, said.sent_ms)
        deaf = {one.subject for one in groups.shuts(unit, seat.gid, groups.BLOCK, unit.wall_us // 1000)}
        audience = frozenset(groups.member_aids(unit, seat.gid)) - deaf
        unit.emit(Event(MESSAGES, seat.gid, seq, CREATED, dumps(views.delivery(said)), audience))
        self._make_room(unit, seat.gid)
        return said, seq

    def _make_room(self, unit: Unit, gid: str) -> None:
        """The oldest messages go when there are more than a group may have."""
        rows, octets = self._limits[bounds.ROWS], self._limits[bounds.OCTETS]
        have = group_logs.usage(unit, gid)
        if have[0] > rows or have[1] > octets:
            self._limits.hit(bounds.ROWS if have[0] > rows else bounds.OCTETS)
            group_logs.evict(unit, gid, rows, octets)

    def _again(self, unit: Unit, seat: Seat, message_id: str) -> tuple[Said, int] | None:
        """The first message with this id, if there was one (G-21)."""
        found = group_logs.find(unit, seat.gid, message_id) if message_id else None
        if found is None:
            return None
        if found.sender != seat.aid:
            raise InvalidParams("message_id was already used: give every message its own")
        return found, found.seq

    # Parts.

    def _check_epoch(self, seat: Seat, head: Head) -> None:
        """A first-generation message must be encrypted with the committed key: its SDK then recovers and resends."""
        if isinstance(head.epoch, int) and not isinstance(head.epoch, bool) and head.epoch != seat.group.legacy_epoch:
            word = "too old" if head.epoch < seat.group.legacy_epoch else "not committed"
            raise GroupEpochMismatch(f"e2ee epoch {word}: {head.epoch}, the group's is {seat.group.legacy_epoch}")

    def _sent(self, unit: Unit, said: Said, seq: int, status: str) -> Sent:
        message = flat_row(views.delivery(said), seq)
        event = {
            "seq": unit.log(EVENTS).head(said.gid),
            "event_type": "message_created",
            "actor_aid": said.sender,
            "data": {"dispatch": DISPATCH},
            "created_at": said.sent_ms,
        }
        return Sent(
            group_id=said.gid,
            group_aid=said.gid,
            message=message,
            event=event,
            dispatch=DISPATCH,
            message_dispatch={"status": "broadcast"},
            mention_mode=said.mode,
            seq=seq,
            message_id=said.message_id,
            timestamp=said.sent_ms,
            status=status,
        )

    def _recall(self, unit: Unit, seat: Seat, message_id: str, reason: str) -> str:
        """Take back one message; "" or why not."""
        said, now_ms = group_logs.find(unit, seat.gid, message_id), unit.wall_us // 1000
        if said is None:
            return "not_found"
        if said.sender != seat.aid:
            return "not_sender"
        if said.flags & group_logs.RECALLED:
            return "already_recalled"
        if seat.group.status != groups.ACTIVE:
            return "group_inactive"
        if _age_us(unit, said) > self._limits[bounds.RECALL_TIME] * SECOND:
            return "expired"
        facts = {
            "message_ids": [message_id],
            "target_message_seqs": [said.seq],
            "sender_aid": said.sender,
            "recalled_by": seat.aid,
            "recalled_at": now_ms,
            "reason": reason,
        }
        payload = dumps({"type": RECALLED, "group_id": seat.gid, **facts})
        group_logs.bury(unit, said, RECALLED, payload)
        notice = Said(
            gid=seat.gid,
            seq=0,
            sender=seat.aid,
            device=said.device,
            message_id=f"grm-{secrets.token_hex(16)}",
            kind=RECALLED,
            mode=said.mode,
            flags=group_logs.RECALLED,
            sent_ms=now_ms,
            at=unit.at,
            payload=payload,
        )
        seq = group_logs.add(unit, notice)
        self._make_room(unit, seat.gid)
        told = {**facts, "seq": seq, "message_id": notice.message_id, "tombstone_message_id": notice.message_id}
        noted: dict[str, Any] = {**told, "event_type": RECALLED}
        self._room.changed(unit, seat.group, "message_recalled", seat.aid, **noted)
        deaf = {one.subject for one in groups.shuts(unit, seat.gid, groups.BLOCK, now_ms)}
        audience = set(groups.member_aids(unit, seat.gid)) - deaf
        self._room.tell(unit, seat.gid, RECALLED, audience, **told, timestamp=now_ms)
        return ""

    async def _pull(self, call: Call[Pull], *, v2: bool) -> Page:
        asked, place = call.params, self._room.place(call)
        if asked.window_mode not in ("", "tail"):
            raise InvalidParams("window_mode is tail or absent")
        if asked.ack_up_to_seq is not None and asked.window_mode:
            raise InvalidParams("tail takes no ack_up_to_seq")
        if asked.ack_up_to_seq is not None:
            up_to = asked.ack_up_to_seq
            await self._room.node.commit(lambda unit: self._ack(unit, call, max(0, up_to)))
        read = self._tail if asked.window_mode else self._forward
        led = not place.device or asked.window_mode or not _flat(call) or (call.door.channel, place.gid) in self._led

        def look(unit: Unit) -> tuple[Page, int, list[Said] | None]:
            page, head = read(unit, call, place, v2=v2), group_logs.head(unit, place.gid)
            jumps = not led and asked.after_seq < head >> INCARNATION_SHIFT << INCARNATION_SHIFT
            return page, head, self._missed(unit, call, place) if jumps else None

        page, head, missed = await self._room.node.read(look)
        self._room.node.shown(asked.after_seq, head, place.aid)
        if missed is not None and page.cursor is not UNSET:
            self._lead(call.door.channel, place, missed)
            page.messages, page.has_more, page.cursor.current_seq = [], page.has_more or bool(page.messages), head
        return page

    def _lead(self, channel: str, place: Place, missed: list[Said]) -> None:
        """Push what the pull that leads a connection over a jump of numbers leaves out; once for each connection."""
        self._led[channel, place.gid] = None
        if len(self._led) > self._limits[bounds.LED]:
            self._led.popitem(last=False)
            self._limits.hit(bounds.LED)
        for said in missed:
            body, to = dumps(views.delivery(said)), frozenset((place.aid,))
            self._room.fanout.publish(Event(MESSAGES, place.gid, said.seq, CREATED, body, to, channel))

    def _missed(self, unit: Unit, call: Call[Pull], place: Place) -> list[Said]:
        """What a 0.2 SDK does not get by the pull that leads it over a jump of numbers (D18), and did not hear live.

        The oldest of it, within bounds; the rest is there for its next pull that names a number below.

        That SDK lists every number of a gap in memory as soon as a page has rows, also of a gap that an event made
        which was faster than its first pull. An empty page whose cursor is at the head makes it forget every gap.
        """
        seat = self._room.seat(unit, place.gid, place.aid)
        if self._deaf(unit, seat):
            return []
        start = max(call.params.after_seq, self._above(unit, seat), group_logs.cursor(unit, place)[0])
        most, octets = self._limits[bounds.LED_ROWS], self._limits[bounds.PAGE_OCTETS]
        rows, more = group_logs.after(unit, place, start, rows=most, octets=octets)
        if more:
            self._limits.hit(bounds.LED_ROWS if len(rows) == most else bounds.PAGE_OCTETS)
        return [said for said in rows if said.sent_ms < call.door.since_ms]

    def _forward(self, unit: Unit, call: Call[Pull], place: Place, *, v2: bool) -> Page:
        if self._has_just_gone(unit, call, place):
            return self._nothing_more(unit, call, place)
        asked, seat = call.params, self._room.seat(unit, place.gid, place.aid)
        limit, octets = self._page(asked.limit, PULL_DEFAULT), self._limits[bounds.PAGE_OCTETS]
        head, above = group_logs.head(unit, place.gid), self._above(unit, seat)
        found: tuple[list[Said], bool] = ([], False)
        if self._deaf(unit, seat):
            head = max(asked.after_seq, above)
        else:
            found = group_logs.after(unit, place, max(asked.after_seq, above), rows=limit, octets=octets)
        cursor = self._cursor(unit, seat, place, head)
        return Page(
            group_id=place.gid,
            group_aid=place.gid,
            messages=self._rows(unit, place, found[0], v2=v2),
            latest_message_seq=head,
            has_more=found[1],
            limit=limit,
            retention_floor_message_seq=group_logs.floor(unit, place.gid),
            earliest_available_message_seq=above + 1,
            cursor=cursor if place.device else UNSET,
        )

    def _tail(self, unit: Unit, call: Call[Pull], place: Place, *, v2: bool) -> Page:
        """The newest page; numbers of its window that have no row are numbers that this device has no row for."""
        if self._has_just_gone(unit, call, place):
            return self._nothing_more(unit, call, place)
        asked, seat = call.params, self._room.seat(unit, place.gid, place.aid)
        limit, octets = self._page(asked.limit, PULL_DEFAULT), self._limits[bounds.PAGE_OCTETS]
        above, after = self._above(unit, seat), max(0, asked.after_seq)
        head = max(group_logs.head(unit, place.gid), after) if not self._deaf(unit, seat) else after
        rows: list[Said] = []
        start = head
        if head > after:
            start = max(after + 1, head - limit + 1)
            rows, cut = group_logs.before(unit, place, head + 1, max(start - 1, above), rows=limit, octets=octets)
            start = rows[0].seq if cut else start
        return Page(
            group_id=place.gid,
            group_aid=place.gid,
            messages=self._rows(unit, place, rows, v2=v2),
            latest_message_seq=head,
            has_more=False,
            limit=limit,
            retention_floor_message_seq=group_logs.floor(unit, place.gid),
            earliest_available_message_seq=above + 1,
            cursor=self._cursor(unit, seat, place, head) if place.device else UNSET,
            window_mode="tail",
            window_start_seq=start,
            head_seq=head,
            covered_through_seq=head,
        )

    def _has_just_gone(self, unit: Unit, call: Call[Any], place: Place) -> bool:
        """Was the caller a member until lately, with an SDK that a refusal would make deaf?

        The current SDK does not listen to a group any more, until its connection ends, once a pull in the background
        is answered by "not a member": it would miss its own return. It learns of its departure by the event.
        """
        return _peer_pull(call) and groups.leaver(unit, place.gid, place.aid) is not None

    def _nothing_more(self, unit: Unit, call: Call[Pull], place: Place) -> Page:
        """An empty page that ends where the device stands."""
        after = max(0, call.params.after_seq)
        current, floor = group_logs.cursor(unit, place)[0], group_logs.floor(unit, place.gid)
        tail: dict[str, Any] = {}
        if call.params.window_mode:
            tail = {"window_mode": "tail", "window_start_seq": after, "head_seq": after, "covered_through_seq": after}
        return Page(
            group_id=place.gid,
            group_aid=place.gid,
            messages=[],
            latest_message_seq=after,
            has_more=False,
            limit=self._page(call.params.limit, PULL_DEFAULT),
            retention_floor_message_seq=floor,
            earliest_available_message_seq=floor + 1,
            cursor=Cursor(current, 0, after, floor, 0) if place.device else UNSET,
            **tail,
        )

    def _above(self, unit: Unit, seat: Seat) -> int:
        """Nothing up to here is shown: gone, or said before the member came in (G-7)."""
        return max(seat.member.join_seq, group_logs.floor(unit, seat.gid))

    def _deaf(self, unit: Unit, seat: Seat) -> bool:
        """A blocked member is shown nothing (G-10)."""
        return groups.is_shut(unit, seat.gid, groups.BLOCK, seat.aid, unit.wall_us // 1000)

    def _cursor(self, unit: Unit, seat: Seat, place: Place, head: int) -> Cursor:
        current = max(group_logs.cursor(unit, place)[0], seat.member.join_seq)
        floor = group_logs.floor(unit, place.gid)
        unread = group_logs.unread(unit, place, max(current, floor), self._limits[bounds.UNREAD])
        return Cursor(current, seat.member.join_seq, head, floor, unread if not self._deaf(unit, seat) else 0)

    def _rows(self, unit: Unit, place: Place, found: list[Said], *, v2: bool) -> list[dict[str, Any]]:
        if not found:
            return []
        own = group_logs.wraps(unit, place, found[0].seq, found[-1].seq) if any(s.flags & V2 for s in found) else {}
        shown = [(self._shown(said, own.get(said.seq)), said.seq) for said in found]
        return [v2_row(message, seq) if v2 else flat_row(message, seq) for message, seq in shown]

    def _shown(self, said: Said, own: tuple[int, bytes] | None) -> GroupMessage:
        if own is None or not said.flags & V2:
            return views.delivery(said)
        row = msgspec.json.decode(own[1], type=wraps.Row)
        return views.delivery(said, wraps.recipient(row), wraps.proof(wraps.split(said.leaves), own[0]))

    def _ack(self, unit: Unit, call: Call[Any], seq: int) -> tuple[int, int]:
        """Move the cursor, clamped to what there is for this member; where it stands, and the head."""
        place = self._room.place(call)
        if self._has_just_gone(unit, call, place):
            now = group_logs.cursor(unit, place)[0]
            return now, now
        seat = self._room.seat(unit, place.gid, place.aid)
        head = group_logs.head(unit, place.gid)
        if seq > head:
            unit.after(lambda: self._room.node.shown(seq, head, place.aid))
        up_to = max(seat.member.join_seq, min(seq, head))
        most = self._limits[bounds.CURSORS]
        now, _ = group_logs.ack(unit, place, unit.wall_us // 1000, seq=up_to, most=most)
        return now, head


def _kind(head: Head) -> str:
    """`payload.type`, when it is a string."""
    return head.type if isinstance(head.type, str) else ""


def _age_us(unit: Unit, said: Said) -> int:
    if said.at.boot == unit.at.boot:
        return unit.at.mono_us - said.at.mono_us
    return unit.wall_us - said.sent_ms * 1000


def _flat(call: Call[Any]) -> bool:
    """Is this a client of the seed's shapes? The 0.2 SDK among them lists every number of a gap in memory."""
    return bool(call.door.hello) and not _peer_pull(call)


def _peer_pull(call: Call[Any]) -> bool:
    """Is this the current SDK?"""
    return bool(call.door.hello) and aun.hello(decode(call.door.hello, dict[str, Any])).peer_pull
