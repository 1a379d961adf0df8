"""What every operation on a group begins and ends with: who may enter, and telling the others what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from edge.contract.channel import Presence
from edge.contract.errors import (
    AlreadyMember,
    GroupE2eeRequired,
    GroupNotFound,
    GroupSuspended,
    InvalidParams,
    JoinRejected,
    NotMember,
    NotPermitted,
    RoleInsufficient,
    UnknownAid,
)
from edge.contract.event import Event, Fanout
from edge.contract.limit import Limit, Limits
from edge.contract.op import Call, Params, Spawn
from edge.contract.principal import Principal
from edge.contract.store import Store, Unit
from edge.contract.time import Clock
from edge.contract.wire import decode, dumps
from edge.protocol import aid as aids
from edge.protocol import aun, aun_group_events, group_ids, group_rules
from edge.protocol.group_rules import ADMIN, MEMBER, RANKS
from edge.services.group import limits as bounds
from edge.services.group import views
from edge.store import group_joins, group_keys, group_logs, groups
from edge.store.group_joins import Invite
from edge.store.group_logs import Place
from edge.store.groups import Group, Member
from edge.store.keyring import Identity

Known = Callable[[Unit, str], bool]
"""Does this AID exist on this node? Runs inside a unit."""

E2EE_ONLY = "required"
"""Value of `metadata.e2ee` of a group that takes encrypted messages only (our own word)."""


class InGroup(Params, frozen=True, kw_only=True):
    """Which group; `device_id` and `slot_id` may repeat the connection's."""

    ALIASES: ClassVar[Mapping[str, str]] = {"group_aid": "group_id", "groupId": "group_id", "groupAid": "group_id"}

    group_id: str
    device_id: str | None = None
    slot_id: str | None = None


class Seat(msgspec.Struct, frozen=True):
    """A member in their group."""

    group: Group
    member: Member

    @property
    def gid(self) -> str:
        """The group's AID."""
        return self.group.gid

    @property
    def aid(self) -> str:
        """The member's AID."""
        return self.member.aid

    def at_least(self, role: str) -> bool:
        """Whether the member's role is this or a higher one."""
        return RANKS[self.member.role] >= RANKS[role]


class Room:
    """Shared by the services of `group.*`. Methods that take a unit run on its thread and touch nothing else."""

    def __init__(
        self,
        node: Store,
        clock: Clock,
        presence: Presence,
        fanout: Fanout,
        spawn: Spawn,
        identity: Identity,
        limits: Limits,
        *,
        issuer: str,
        known: Known,
        base: Callable[[], str],
    ) -> None:
        self.node, self.clock, self.presence, self.fanout, self.spawn = node, clock, presence, fanout, spawn
        self.identity, self.limits, self.issuer, self.known, self.base = identity, limits, issuer, known, base

    # Who and where.

    def gid(self, text: str) -> str:
        """The stored form of a group id. Raises `InvalidParams`."""
        return group_ids.canonical(text, self.issuer)

    def named(self, call: Call[Any]) -> str:
        """Which group a call is about. Raises `InvalidParams`, `NotPermitted` when the params name another device."""
        self._same_device(call.params, call.who)
        return self.gid(call.params.group_id)

    def place(self, call: Call[Any]) -> Place:
        """Where this connection keeps its cursors. Raises `NotPermitted` when the params name another device."""
        gid, who = self.named(call), call.who
        slot = aun.isolation_key(who.slot) if who.device_id else ""
        return Place(gid, caller(who), who.device_id, slot)

    def group(self, unit: Unit, gid: str) -> Group:
        """A group that is not dissolved. Raises `GroupNotFound`."""
        found = groups.find(unit, gid)
        if found is None:
            raise GroupNotFound(f"group not found: {gid}")
        if found.status == groups.DISSOLVED:
            raise GroupNotFound(f"group is dissolved: {gid}")
        return found

    def enter(self, unit: Unit, call: Call[Any], least: str = MEMBER) -> Seat:
        """The caller in the group of the params. Raises `GroupNotFound`, `NotMember`, `RoleInsufficient`."""
        return self.seat(unit, self.named(call), caller(call.who), least)

    def seat(self, unit: Unit, gid: str, aid: str, least: str = MEMBER) -> Seat:
        """Somebody in a group. Raises `GroupNotFound`, `NotMember`, `RoleInsufficient`."""
        group, member = self.group(unit, gid), groups.member(unit, gid, aid)
        if member is None:
            raise NotMember(f"{aid} is not a member of {gid}")
        seat = Seat(group, member)
        if not seat.at_least(least):
            raise RoleInsufficient(f"{least} of {gid} required")
        return seat

    def other(self, unit: Unit, seat: Seat, given: str, *, below: bool = True) -> Member:
        """Another member, of a lower role than the seat's. Raises `NotMember`, `RoleInsufficient`."""
        aid = aids.normal(given)
        found = groups.member(unit, seat.gid, aid)
        if found is None:
            raise NotMember(f"{aid} is not a member of {seat.gid}")
        if below and not group_rules.outranks(seat.member.role, found.role):
            raise RoleInsufficient(f"{seat.member.role} may not act on {found.role}")
        return found

    # Telling.

    def changed(
        self, unit: Unit, group: Group, action: str, actor: str, *, also: Iterable[str] = (), **fields: object
    ) -> int:
        """Write one event and tell every member of it, and those named; its number (G-5)."""
        body: dict[str, object] = {
            "module_id": "group",
            "event_type": fields.pop("event_type", aun_group_events.CHANGED),
            "action": action,
            "group_id": group.gid,
            "group_aid": group.gid,
            "actor_aid": actor,
            "created_at": unit.wall_us // 1000,
            **fields,
        }
        log = unit.log(group_logs.EVENTS)
        seq = log.append(group.gid, [dumps(body)])
        if log.octets(group.gid) > self.limits[bounds.EVENT_OCTETS]:
            self.limits.hit(bounds.EVENT_OCTETS)
            log.evict(group.gid, self.limits[bounds.EVENT_OCTETS], "events_full")
        audience = frozenset((*groups.member_aids(unit, group.gid), *also))
        told = dumps({**body, "event_seq": seq})
        unit.emit(Event(group_logs.EVENTS, group.gid, seq, aun_group_events.CHANGED, told, audience))
        return seq

    def tell(self, unit: Unit, gid: str, kind: str, audience: Iterable[str], **fields: object) -> None:
        """Tell somebody something that no log holds."""
        body = dumps({"module_id": "group", "group_id": gid, "group_aid": gid, **fields})
        unit.emit(Event(group_logs.EVENTS, gid, 0, kind, body, frozenset(audience)))

    # Coming in.

    def let_in(
        self, unit: Unit, group: Group, aid: str, action: str, actor: str, *, role: str = MEMBER, kind: str = "human"
    ) -> tuple[Group, Member]:
        """Make somebody a member and tell everybody.

        Raises `UnknownAid`, `AlreadyMember`, `JoinRejected` (banned), `GroupSuspended`, `MemberLimit`, `RateLimited`.
        """
        now_ms = unit.wall_us // 1000
        if not self.known(unit, aid):
            raise UnknownAid(f"aid not registered: {aid}")
        if groups.member(unit, group.gid, aid) is not None:
            raise AlreadyMember(f"{aid} is already a member of {group.gid}")
        if groups.is_shut(unit, group.gid, groups.BAN, aid, now_ms):
            raise JoinRejected(f"{aid} is banned from {group.gid}")
        awake(group)
        if group.members >= self.limits[bounds.MEMBERS]:
            raise self.limits.refuse(bounds.MEMBERS, group.gid)
        if groups.count_of(unit, aid) >= self.limits[bounds.JOINED]:
            raise self.limits.refuse(bounds.JOINED, aid)
        member = Member(
            gid=group.gid,
            aid=aid,
            role=role,
            kind=kind,
            joined_ms=now_ms,
            join_seq=group_logs.head(unit, group.gid),
            join_event=unit.log(group_logs.EVENTS).head(group.gid),
        )
        groups.join(unit, member)
        named: dict[str, Any] = {"member_aid": aid, "joined_aid": aid, "aid": aid, "role": role}
        self.changed(unit, group, action, actor, **named, old_epoch=group.legacy_epoch)
        self._waits_no_longer(unit, group.gid, aid, now_ms)
        return self.group(unit, group.gid), member

    def end_invites(self, unit: Unit, ended: list[Invite], left: list[Invite], status: str) -> None:
        """End invitations of one AID to one group, and say so to the invitee; `left` wait on."""
        for one in ended:
            group_joins.settle(unit, one.invite_id, status, unit.wall_us // 1000)
        told = {**views.told(ended), "status": status, "pending_invite_ids": [one.invite_id for one in left]}
        self.tell(unit, ended[0].gid, "group.invite_finalized", (ended[0].invitee,), **told)

    def _waits_no_longer(self, unit: Unit, gid: str, aid: str, now_ms: int) -> None:
        """Whoever is in, by whichever way, has no request and no invitation that waits."""
        asked = group_joins.request(unit, gid, aid)
        if asked is not None and asked.status == group_joins.PENDING:
            done = msgspec.structs.replace(asked, status=group_joins.APPROVED, updated_ms=now_ms)
            group_joins.put_request(unit, done)
        if invited := group_joins.invites(unit, gid, aid):
            self.end_invites(unit, invited, [], group_joins.ACCEPTED)

    def put_out(self, unit: Unit, seat: Seat, member: Member, action: str, **fields: object) -> Group:
        """Somebody goes: told to everybody, them included; their keys are forgotten."""
        gone: dict[str, Any] = {"member_aid": member.aid, "aid": member.aid, **fields}
        event = self.changed(unit, seat.group, action, seat.aid, **gone, old_epoch=seat.group.legacy_epoch)
        groups.leave(unit, member, event, unit.wall_us // 1000)
        group_keys.drop_spks(unit, seat.gid, member.aid)
        return self.group(unit, seat.gid)

    def capable(self, call: Call[Any], group: Group) -> None:
        """May this connection come into a group for encrypted messages only? Raises `GroupE2eeRequired` (C-15)."""
        hello = decode(call.door.hello, dict[str, Any]) if call.door.hello else {}
        capabilities = hello.get("capabilities")
        if e2ee_only(group) and isinstance(capabilities, Mapping) and capabilities.get("group_e2ee") is False:
            raise GroupE2eeRequired(f"{group.gid} takes encrypted messages only: this client says it has no group_e2ee")

    def _same_device(self, params: Any, who: Principal) -> None:
        device, slot = getattr(params, "device_id", None), getattr(params, "slot_id", None)
        if device is not None and device != who.device_id:
            raise NotPermitted("device_id is not the connection's")
        if slot is not None and aun.isolation_key(slot) != aun.isolation_key(who.slot):
            raise NotPermitted("slot_id is not the connection's")


class Service:
    """What the parts of the group service have in common."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._limits = room.limits

    def _fits(self, limit: Limit, *texts: str) -> None:
        """Are these texts short enough? Raises the limit's error."""
        if any(len(text) > self._limits[limit] for text in texts):
            raise self._limits.refuse(limit)

    def _fit_settings(self, unit: Unit, gid: str, new: Mapping[str, bytes]) -> None:
        """Is there room for these? Raises the limit's error; nothing is written then."""
        for key, raw in new.items():
            if len(raw) > self._limits[bounds.SETTING]:
                raise self._limits.refuse(bounds.SETTING, key)
        then = {one.key: one.value for one in groups.settings(unit, gid)} | dict(new)
        if len(then) > self._limits[bounds.SETTINGS]:
            raise self._limits.refuse(bounds.SETTINGS, gid)
        if sum(len(key) + len(raw) for key, raw in then.items()) > self._limits[bounds.SETTINGS_OCTETS]:
            raise self._limits.refuse(bounds.SETTINGS_OCTETS, gid)

    def _page(self, size: int | None, default: int = 50) -> int:
        """Sizes out of range are clamped (Q-11)."""
        most = self._limits[bounds.PAGE]
        return min(default, most) if size is None else max(1, min(size, most))


def caller(who: Principal) -> str:
    """The AID a caller speaks for. Raises `NotPermitted` without one."""
    if not who.aid:
        raise NotPermitted("group.* needs an AID")
    return who.aid


def awake(group: Group) -> None:
    """Raises `GroupSuspended`."""
    if group.status == groups.SUSPENDED:
        raise GroupSuspended(f"group is suspended: {group.gid}")


def e2ee_only(group: Group) -> bool:
    """Whether the group takes encrypted messages only."""
    return bool(decode(group.metadata, dict[str, Any]).get("e2ee") == E2EE_ONLY)


def first_said(*given: str | None) -> str:
    """The first spelling of a param that was given. Raises `InvalidParams` when none was."""
    for one in given:
        if one:
            return one
    raise InvalidParams("a required param is missing")


def may_speak(unit: Unit, seat: Seat) -> None:
    """Raises `GroupSuspended` (members only), `NotPermitted` (banned) (G-9, G-11)."""
    if not seat.at_least(ADMIN):
        awake(seat.group)
    if groups.is_shut(unit, seat.gid, groups.BAN, seat.aid, unit.wall_us // 1000):
        raise NotPermitted(f"member is banned: {seat.aid}")
