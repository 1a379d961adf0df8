"""What changed in a group, event by event, and how far each device knows (spec aun-services §3.6).

Who has left or was put out may still read the events up to their departure, and confirm them: that is how they learn
of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from edge.contract.channel import Instance
from edge.contract.errors import NotMember
from edge.contract.event import Event
from edge.contract.op import Call, op
from edge.contract.store import INCARNATION_SHIFT, Unit
from edge.contract.wire import decode, dumps
from edge.protocol import aun
from edge.protocol.aun_group_events import HINT, Waiting
from edge.services.group import limits as bounds
from edge.services.group.lifecycle import GROUP_ERRORS
from edge.services.group.messages import PULL_DEFAULT, Cursor
from edge.services.group.room import InGroup, Service
from edge.store import group_logs, groups
from edge.store.group_logs import EVENTS, Place

HINTED = 1_000
"""Groups of one AID that are looked through at a connect."""


class PullEvents(InGroup, frozen=True, kw_only=True):
    """Events above a number; without one from where this device stands. Name and type describe the device."""

    ALIASES: ClassVar[Mapping[str, str]] = {**InGroup.ALIASES, "after_seq": "after_event_seq"}

    after_event_seq: int | None = None
    limit: int | None = None
    device_name: str = ""
    device_type: str = ""


class Events(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Events, oldest first, and where the device stands."""

    group_id: str
    group_aid: str
    events: list[dict[str, Any]]
    latest_event_seq: int
    has_more: bool
    limit: int
    retention_floor_event_seq: int
    earliest_available_event_seq: int
    cursor: Cursor | UnsetType = UNSET


class AckEvents(InGroup, frozen=True, kw_only=True):
    """Known up to here."""

    ALIASES: ClassVar[Mapping[str, str]] = {**InGroup.ALIASES, "seq": "event_seq"}

    event_seq: int
    device_name: str = ""
    device_type: str = ""


class EventsAcked(msgspec.Struct):
    """Where the device's cursor stands now."""

    success: bool
    group_id: str
    group_aid: str
    cursor: int
    latest_event_seq: int


class Devices(msgspec.Struct):
    """The caller's devices in a group."""

    group_id: str
    group_aid: str
    devices: list[dict[str, Any]]


class Unregistered(msgspec.Struct):
    """Nothing but success: forgetting none is no error."""

    success: bool


class Unregister(InGroup, frozen=True, kw_only=True):
    """Which of the caller's devices, not the connection's own."""

    device_id: str


class _Span(msgspec.Struct, frozen=True):
    """The events somebody may read: above `first`, up to `last`."""

    first: int
    last: int


class EventService(Service):
    """Events of groups."""

    @op("group.pull_events", scope="group:read", wire={"aun": ("group.pull_events",)}, raises=GROUP_ERRORS)
    async def pull_events(self, call: Call[PullEvents]) -> Events:
        """Events after a number, or after those this device has confirmed."""
        asked, place = call.params, self._room.place(call)
        limit, octets = self._page(asked.limit, PULL_DEFAULT), self._limits[bounds.PAGE_OCTETS]

        def look(unit: Unit) -> tuple[Events, int]:
            span, log = self._span(unit, place), unit.log(EVENTS)
            acked, floor = group_logs.cursor(unit, place)[1], log.floor(place.gid)
            after = max(acked if asked.after_event_seq is None else asked.after_event_seq, span.first)
            rows = group_logs.events(unit, place.gid, after, rows=limit + 1, octets=octets)
            found = [(seq, body) for seq, body in rows if seq <= span.last]
            more = len(found) > limit or (bool(found) and len(found) == len(rows) and found[-1][0] < span.last)
            current = max(acked, span.first)
            cursor = Cursor(current, span.first, span.last, floor, _between(current, span.last))
            page = Events(
                group_id=place.gid,
                group_aid=place.gid,
                events=[_shown(seq, body) for seq, body in found[:limit]],
                latest_event_seq=span.last,
                has_more=more,
                limit=limit,
                retention_floor_event_seq=floor,
                earliest_available_event_seq=max(floor, span.first) + 1,
                cursor=cursor if place.device else UNSET,
            )
            return page, log.head(place.gid)

        page, head = await self._room.node.read(look)
        self._room.node.shown(asked.after_event_seq or 0, head, place.aid)
        return page

    @op(
        "group.ack_events",
        scope="group:read",
        wire={"aun": ("group.ack_events",)},
        raises=GROUP_ERRORS,
        writes=True,
    )
    def ack_events(self, call: Call[AckEvents], unit: Unit) -> EventsAcked:
        """Confirm events up to a number; a device's cursor only goes forward."""
        asked, place = call.params, self._room.place(call)
        self._fits(bounds.STATUS, asked.device_name, asked.device_type)
        span, head = self._span(unit, place), unit.log(EVENTS).head(place.gid)
        if asked.event_seq > head:
            unit.after(lambda: self._room.node.shown(asked.event_seq, head, place.aid))
        _, now = group_logs.ack(
            unit,
            place,
            unit.wall_us // 1000,
            event=max(span.first, min(max(0, asked.event_seq), span.last)),
            name=asked.device_name,
            kind=asked.device_type,
            most=self._limits[bounds.CURSORS],
        )
        return EventsAcked(True, place.gid, place.gid, now, span.last)

    @op("group.list_devices", scope="group:read", wire={"aun": ("group.list_devices",)}, raises=GROUP_ERRORS)
    async def list_devices(self, call: Call[InGroup]) -> Devices:
        """The caller's devices that keep a place in the group."""

        def look(unit: Unit) -> Devices:
            seat, most = self._room.enter(unit, call), self._limits[bounds.UNREAD]
            head, shown = unit.log(EVENTS).head(seat.gid), []
            for one in group_logs.devices(unit, seat.gid, seat.aid):
                place = Place(seat.gid, seat.aid, one.device)
                shown.append(
                    {
                        "device_id": one.device,
                        "device_name": one.name,
                        "device_type": one.type,
                        "last_pull_at": one.at_ms,
                        "msg_unread": group_logs.unread(unit, place, max(one.seq, seat.member.join_seq), most),
                        "event_unread": _between(max(one.event, seat.member.join_event), head),
                    }
                )
            return Devices(seat.gid, seat.gid, shown)

        return await self._room.node.read(look)

    @op(
        "group.unregister_device",
        scope="group:write",
        wire={"aun": ("group.unregister_device",)},
        raises=GROUP_ERRORS,
        writes=True,
    )
    def unregister_device(self, call: Call[Unregister], unit: Unit) -> Unregistered:
        """Forget the place of one of the caller's devices."""
        gid, aid = self._room.gid(call.params.group_id), call.who.aid
        self._room.seat(unit, gid, aid)
        group_logs.drop_device(unit, gid, aid, call.params.device_id)
        return Unregistered(True)

    def connected(self, instance: Instance) -> None:
        """A connection of an AID is live: one hint per group that has something for this device (G-22)."""
        if instance.peer_pull and instance.long:
            self._room.spawn(self._hint(instance))

    async def _hint(self, instance: Instance) -> None:
        slot = aun.isolation_key(instance.slot) if instance.device_id else ""
        look = partial(self._backlog, aid=instance.aid, device=instance.device_id, slot=slot)
        audience = frozenset({instance.aid})
        for gid, waiting in await self._room.node.read(look):
            for hint in (Waiting(seq=waiting.seq), Waiting(event_seq=waiting.event_seq)):
                if hint != Waiting():
                    body = dumps(hint)
                    self._room.fanout.publish(Event(EVENTS, gid, 0, HINT, body, audience, instance.channel))

    def _backlog(self, unit: Unit, aid: str, device: str, slot: str) -> list[tuple[str, Waiting]]:
        """By group: the newest message and the last event that a device has not confirmed."""
        found: list[tuple[str, Waiting]] = []
        now_ms, log = unit.wall_us // 1000, unit.log(EVENTS)
        for group, member in groups.of(unit, aid, HINTED):
            place = Place(group.gid, aid, device, slot)
            seq, event = group_logs.cursor(unit, place)
            above = max(seq, member.join_seq, group_logs.floor(unit, group.gid))
            deaf = groups.is_shut(unit, group.gid, groups.BLOCK, aid, now_ms)
            newest = 0 if deaf else group_logs.newest(unit, place, above)
            head = log.head(group.gid)
            waiting = Waiting(newest, head if head > max(event, member.join_event) else 0)
            if waiting != Waiting():
                found.append((group.gid, waiting))
        for gone in groups.departures(unit, aid):
            if group_logs.cursor(unit, Place(gone.gid, aid, device, slot))[1] < gone.event:
                found.append((gone.gid, Waiting(0, gone.event)))
        return found

    def _span(self, unit: Unit, place: Place) -> _Span:
        """What the caller may read. Raises `GroupNotFound`, `NotMember`."""
        left = groups.leaver(unit, place.gid, place.aid)
        if left is not None:
            return _Span(left.join_event, left.event)
        self._room.group(unit, place.gid)
        member = groups.member(unit, place.gid, place.aid)
        if member is None:
            raise NotMember(f"{place.aid} is not a member of {place.gid}")
        return _Span(member.join_event, unit.log(EVENTS).head(place.gid))


def _shown(seq: int, body: bytes) -> dict[str, Any]:
    return {**decode(body, dict[str, Any]), "event_seq": seq, "seq": seq}


def _between(low: int, high: int) -> int:
    """How many numbers lie between, not counting the jump to a new incarnation."""
    base = high >> INCARNATION_SHIFT << INCARNATION_SHIFT
    return max(0, high - max(low, base))
