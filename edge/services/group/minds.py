"""Beside the conversation: thoughts of members (in memory, fetched, never pushed) and how far topics were read."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from edge.contract.errors import GroupSuspended, InvalidParams, NotPermitted, RateLimited, TooLarge
from edge.contract.op import Call, Params, op
from edge.contract.store import Unit
from edge.contract.time import wall_ms
from edge.protocol import aid as aids
from edge.protocol import pages
from edge.protocol.thoughts import Bounds, Shelf
from edge.services.group import limits as bounds
from edge.services.group.lifecycle import GROUP_ERRORS
from edge.services.group.room import InGroup, Room, Seat, Service, caller, may_speak
from edge.store import group_logs, groups
from edge.store.groups import Read


class Context(msgspec.Struct, frozen=True):
    """What a thought is about, `{"type": "run", "id": "run-1"}`."""

    type: str
    id: str


class PutThought(InGroup, frozen=True, kw_only=True):
    """Add a thought to the caller's head for a context."""

    context: Context
    payload: msgspec.Raw
    thought_id: str = ""


class Put(msgspec.Struct):
    """The head now holds `stored_count` thoughts."""

    group_id: str
    group_aid: str
    sender_aid: str
    context: Context
    thought_id: str
    stored_count: int
    updated_at: int


class GetThoughts(InGroup, frozen=True, kw_only=True):
    """Whose thoughts on what."""

    sender_aid: str
    context: Context


class Thoughts(msgspec.Struct):
    """The head, oldest thought first; nothing is no error."""

    found: bool
    group_id: str
    group_aid: str
    sender_aid: str
    context: Context
    thoughts: list[Mapping[str, object]]
    updated_at: int


class Position(msgspec.Struct, frozen=True):
    """A topic of a group and the last message of it that was read."""

    group_id: str
    topic_key: str
    last_read_message_id: str
    scope: str = "group"


class ReadAsked(Params, frozen=True, kw_only=True):
    """Positions; a single one may stand without `states`."""

    states: list[Position] | None = None
    group_id: str = ""
    topic_key: str = ""
    last_read_message_id: str = ""
    scope: str = "group"


class ReadDone(msgspec.Struct):
    """What this device's positions became."""

    updated: int
    ignored: int
    states: list[dict[str, Any]]


class ReadState(Params, frozen=True, kw_only=True):
    """Of which group and topic; all by default."""

    scope: str = "group"
    group_id: str = ""
    topic_key: str = ""
    aid: str = ""


class MindService(Service):
    """Thoughts while the node runs, positions for good."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        kept = Bounds(bounds.CONTEXTS, bounds.THOUGHTS, bounds.THOUGHT_CONTEXT_OCTETS, bounds.THOUGHT_OCTETS)
        self._shelf = Shelf(room.limits, kept, thinker=2)

    @op(
        "group.thought.put",
        scope="group:write",
        wire={"aun": ("group.thought.put",)},
        raises=(*GROUP_ERRORS, TooLarge, GroupSuspended),
    )
    async def put_thought(self, call: Call[PutThought]) -> Put:
        """Keep a thought for members to fetch; no number, no event, nothing on disk."""
        asked, raw = call.params, bytes(call.params.payload)
        self._named(asked.context, asked.thought_id)
        if not raw.lstrip().startswith(b"{"):
            raise InvalidParams("payload must be a JSON object")
        if len(raw) > self._limits[bounds.PAYLOAD]:
            raise self._limits.refuse(bounds.PAYLOAD)

        def look(unit: Unit) -> Seat:
            seat = self._room.enter(unit, call)
            may_speak(unit, seat)
            return seat

        seat = await self._room.node.read(look)
        key, now_ms = (seat.gid, seat.aid, asked.context.type, asked.context.id), wall_ms(self._room.clock)
        thought_id = asked.thought_id or f"gt-{secrets.token_hex(16)}"
        item = {
            "thought_id": thought_id,
            "message_id": thought_id,
            "context": asked.context,
            "group_id": seat.gid,
            "sender_aid": seat.aid,
            "from": seat.aid,
            "payload": asked.payload.copy(),
            "created_at": now_ms,
        }
        count = self._shelf.put(key, thought_id, item, now_ms)
        return Put(seat.gid, seat.gid, seat.aid, asked.context, thought_id, count, now_ms)

    @op("group.thought.get", scope="group:read", wire={"aun": ("group.thought.get",)}, raises=GROUP_ERRORS)
    async def get_thoughts(self, call: Call[GetThoughts]) -> Thoughts:
        """A member's thoughts on a context."""
        asked = call.params
        self._named(asked.context)
        seat = await self._room.node.read(lambda unit: self._room.enter(unit, call))
        sender = aids.normal(asked.sender_aid)
        items, at_ms = self._shelf.get((seat.gid, sender, asked.context.type, asked.context.id))
        return Thoughts(bool(items), seat.gid, seat.gid, sender, asked.context, items, at_ms)

    @op(
        "group.read",
        scope="group:read",
        wire={"aun": ("group.read",)},
        raises=(*GROUP_ERRORS, RateLimited),
        writes=True,
    )
    def read(self, call: Call[ReadAsked], unit: Unit) -> ReadDone:
        """Say how far topics were read; one bad item refuses all."""
        aid, asked = caller(call.who), call.params
        wanted = asked.states
        if wanted is None:
            wanted = [Position(asked.group_id, asked.topic_key, asked.last_read_message_id, asked.scope)]
        if not wanted or len(wanted) > self._limits[bounds.READ_BATCH]:
            raise InvalidParams(f"states holds 1 to {self._limits[bounds.READ_BATCH]} positions")
        checked = [self._position(unit, aid, one) for one in wanted]
        mine = {(one.gid, one.topic): one for one in groups.reads(unit, aid, call.who.device_id) if one.device}
        shared = {(one.gid, one.topic): one for one in groups.reads(unit, aid, "")}
        if len(shared.keys() | {(one.gid, one.topic) for one in checked}) > self._limits[bounds.READS]:
            raise self._limits.refuse(bounds.READS, aid)
        shown = []
        for one in checked:
            key = (one.gid, one.topic)
            own = msgspec.structs.replace(one, device=call.who.device_id)
            changed = _forward(mine.get(key) or (shared.get(key) if not own.device else None), own)
            if changed and own.device:
                groups.put_read(unit, aid, own)
                mine[key] = own
            if _forward(shared.get(key), one):
                groups.put_read(unit, aid, one)
                shared[key] = one
                self._tell_read(unit, aid, one)
            shown.append(
                {
                    "scope": "group",
                    "group_id": one.gid,
                    "topic_key": one.topic,
                    "last_read_message_id": one.message_id,
                    "changed": changed,
                }
            )
        updated = sum(one["changed"] is True for one in shown)
        return ReadDone(updated, len(shown) - updated, shown)

    @op(
        "group.read_state",
        scope="group:read",
        wire={"aun": ("group.read_state",)},
        raises=GROUP_ERRORS,
    )
    async def read_state(self, call: Call[ReadState]) -> dict[str, Any]:
        """How far the caller's AID has read its topics, on any device; the newest when not all fit one answer."""
        asked, aid = call.params, caller(call.who)
        if asked.scope not in ("", "group"):
            raise InvalidParams("scope is group")
        if asked.aid and aids.normal(asked.aid) != aid:
            raise NotPermitted("only one's own positions can be read")

        def look(unit: Unit) -> list[dict[str, Any]]:
            gid = self._room.gid(asked.group_id) if asked.group_id else ""
            if gid:
                self._room.seat(unit, gid, aid)
            inside = {group.gid for group, _ in groups.of(unit, aid, 1 << 31)}
            found = [one for one in groups.reads(unit, aid, "") if one.gid in inside and gid in ("", one.gid)]
            return [_state(one) for one in found if asked.topic_key in ("", one.topic)]

        found, octets = await self._room.node.read(look), self._limits[bounds.PAGE_OCTETS]
        states, cut = pages.newest(found, lambda one: int(one["updated_at"]), octets)
        return {**(states[0] if len(states) == 1 else {}), "states": states, **({"has_more": True} if cut else {})}

    # Parts.

    def _named(self, context: Context, thought_id: str = "") -> None:
        if not context.type or not context.id:
            raise InvalidParams("context.type and context.id must not be empty")
        self._fits(bounds.READ_NAME, context.type, context.id, thought_id)

    def _position(self, unit: Unit, aid: str, given: Position) -> Read:
        """A position checked against the group. Raises."""
        if given.scope not in ("", "group"):
            raise InvalidParams("scope is group")
        if not given.group_id or not given.topic_key or not given.last_read_message_id:
            raise InvalidParams("group_id, topic_key and last_read_message_id are required")
        self._fits(bounds.READ_NAME, given.topic_key, given.last_read_message_id)
        seat = self._room.seat(unit, self._room.gid(given.group_id), aid)
        said = group_logs.find(unit, seat.gid, given.last_read_message_id)
        place = said.seq if said is not None and said.seq > seat.member.join_seq else 0
        return Read(seat.gid, given.topic_key, "", given.last_read_message_id, place, unit.wall_us // 1000)

    def _tell_read(self, unit: Unit, aid: str, one: Read) -> None:
        """Only the same AID hears of it."""
        told = {
            "owner_aid": aid,
            "scope": "group",
            "topic_key": one.topic,
            "last_read_message_id": one.message_id,
            "last_read_order": one.place,
            "updated_at": one.updated_ms,
        }
        self._room.tell(unit, one.gid, "group.read_changed", (aid,), **told)


def _forward(before: Read | None, now: Read) -> bool:
    """Positions only go forward; one that is not known never replaces one that is."""
    if before is None:
        return True
    return now.place > before.place or (before.place == 0 == now.place and now.message_id != before.message_id)


def _state(one: Read) -> dict[str, Any]:
    return {
        "scope": "group",
        "group_id": one.gid,
        "topic_key": one.topic,
        "last_read_message_id": one.message_id,
        "last_read_order": one.place,
        "current_device_seq": one.place or None,
        "mapping_status": "resolved" if one.place else "unresolved",
        "updated_at": one.updated_ms,
    }
