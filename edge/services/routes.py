"""`notification/*` and `event.*`: hints between connected clients that nobody stores, numbers or confirms.

Spec aun-services §1.10. A notification has no answer: what is refused here is dropped and counted. Only
`event/app.*` may be routed; who sent it is stamped on it and cannot be claimed.
"""

from __future__ import annotations

import re

import msgspec

from edge.contract.channel import Presence
from edge.contract.errors import EdgeError, InvalidParams, NotFound, NotPermitted, TooLarge
from edge.contract.event import Event, Fanout
from edge.contract.limit import Limits, declare
from edge.contract.op import Call, Calls, Empty, Params, op
from edge.contract.time import Clock, wall_ms
from edge.contract.wire import dumps
from edge.protocol.aid import normal
from edge.protocol.aun import isolation_key

OCTETS = declare("notification.octets", 65_536, "bytes", "of the params of a routed notification; larger are dropped")
TTL = declare("notification.ttl_ms", 60_000, "ms", "a routed notification may ask to live", InvalidParams)
MEMBERS = declare("notification.members", 1_000, "members", "of a group that one notification reaches", TooLarge)

LOG = "notification"
_METHOD = re.compile(r"event/(app\.[A-Za-z0-9_./-]{1,100})")


class Deliver(msgspec.Struct, frozen=True):
    """What the receivers get."""

    method: str
    params: dict[str, msgspec.Raw] = {}


class Target(msgspec.Struct, frozen=True):
    """Whom: every device of an AID, one device, or one slot of it."""

    aid: str
    type: str = "aid"
    device_id: str = ""
    slot_id: str = ""


class Route(Params, frozen=True, kw_only=True):
    """A notification for the connections of one AID."""

    target: Target
    deliver: Deliver
    ttl_ms: int | None = None


class GroupRoute(Params, frozen=True, kw_only=True):
    """A notification for the connected members of a group."""

    group_id: str
    deliver: Deliver
    ttl_ms: int | None = None


class Routed(msgspec.Struct):
    """How many connections it was queued for; seen only by who asked with an id."""

    delivered: int


class Subscribed(msgspec.Struct):
    """Every event reaches its audience; there is nothing to turn on or off."""

    ok: bool = True


class Activity(Params, frozen=True, kw_only=True):
    """What an application says about itself."""

    state: str = ""


class RouteService:
    """Hands notifications to live channels. `calls` asks the group area who its members are."""

    def __init__(self, clock: Clock, presence: Presence, fanout: Fanout, calls: Calls, limits: Limits) -> None:
        self._clock, self._presence, self._fanout, self._calls, self._limits = clock, presence, fanout, calls, limits

    @op(
        "notification.route",
        scope="message:write",
        wire={"aun": ("notification/route",)},
        raises=(InvalidParams, TooLarge),
    )
    async def route(self, call: Call[Route]) -> Routed:
        """Hand an `event/app.*` to the long connections of an AID, now or never."""
        asked = call.params
        if asked.target.type != "aid":
            raise InvalidParams("target.type is aid")
        if asked.target.slot_id and not asked.target.device_id:
            raise InvalidParams("slot_id needs device_id")
        kind, body = self._shown(call, asked.deliver, asked.ttl_ms)
        return Routed(self._deliver(kind, body, asked.target))

    @op(
        "notification.group_route",
        scope="message:write",
        wire={"aun": ("notification/group.route",)},
        raises=(InvalidParams, TooLarge, NotFound, NotPermitted),
    )
    async def group_route(self, call: Call[GroupRoute]) -> Routed:
        """Hand an `event/app.*` to the long connections of a group's other members, now or never."""
        kind, body = self._shown(call, call.params.deliver, call.params.ttl_ms)
        found = await self._calls.call("group.get_online_members", {"group_id": call.params.group_id}, call.who)
        members = [one for one in _members(found) if one != call.who.aid]
        if len(members) > self._limits[MEMBERS]:
            raise self._limits.refuse(MEMBERS)
        return Routed(sum(self._deliver(kind, body, Target(aid)) for aid in members))

    @op("notification.activity", scope="any", wire={"aun": ("notification/client.activity",)})
    async def activity(self, call: Call[Activity]) -> Subscribed:
        """Taken and not used: whether a client is connected says enough here."""
        return Subscribed()

    @op("event.subscribe", scope="any", wire={"aun": ("event.subscribe",)})
    async def subscribe(self, call: Call[Empty]) -> Subscribed:
        """Events reach whom they concern without being asked for."""
        return Subscribed()

    @op("event.unsubscribe", scope="any", wire={"aun": ("event.unsubscribe",)})
    async def unsubscribe(self, call: Call[Empty]) -> Subscribed:
        """Events cannot be turned off; a short connection gets none."""
        return Subscribed()

    def _shown(self, call: Call[Route] | Call[GroupRoute], deliver: Deliver, ttl_ms: int | None) -> tuple[str, bytes]:
        """The event's kind and its params, stamped with their sender. Raises `InvalidParams`, `TooLarge`."""
        named = _METHOD.fullmatch(deliver.method)
        if named is None:
            raise InvalidParams("deliver.method is event/app.*")
        if ttl_ms is not None and not 0 <= ttl_ms <= self._limits[TTL]:
            raise self._limits.refuse(TTL)
        if len(dumps(deliver.params)) > self._limits[OCTETS]:
            raise self._limits.refuse(OCTETS)
        stamp = {
            "from_aid": call.who.aid,
            "device_id": call.who.device_id,
            "slot_id": call.who.slot,
            "connection_id": call.door.channel,
            "sent_at": wall_ms(self._clock),
            "ttl_ms": ttl_ms,
        }
        return named[1], dumps({**deliver.params, "_notify": stamp})

    def _deliver(self, kind: str, body: bytes, target: Target) -> int:
        aid = normal(target.aid)
        chosen = [
            one
            for one in self._presence.instances(aid)
            if one.long
            and (not target.device_id or one.device_id == target.device_id)
            and (not target.slot_id or isolation_key(one.slot) == isolation_key(target.slot_id))
        ]
        for one in chosen:
            self._fanout.publish(Event(LOG, aid, 0, kind, body, frozenset({aid}), one.channel))
        return len(chosen)


def _members(found: object) -> list[str]:
    """The AIDs in what the group area answered. Raises `EdgeError` when it says something else."""
    listed = msgspec.to_builtins(found)
    rows = listed.get("members") if isinstance(listed, dict) else None
    if not isinstance(rows, list):
        raise EdgeError("the group area names no members")
    return [str(row["aid"]) if isinstance(row, dict) else str(row) for row in rows]
