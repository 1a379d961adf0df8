"""Who is in a group and what they may: members, roles, bans, blocks, statuses, presence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from edge.contract.errors import (
    AlreadyMember,
    GroupSuspended,
    InvalidParams,
    JoinRejected,
    MemberLimit,
    RateLimited,
    RoleInsufficient,
    UnknownAid,
)
from edge.contract.op import Call, op
from edge.contract.store import Unit
from edge.protocol import aid as aids
from edge.protocol.group_rules import ADMIN, MEMBER, OWNER
from edge.services.group import limits as bounds
from edge.services.group import views
from edge.services.group.lifecycle import ADMIN_ERRORS, GROUP_ERRORS
from edge.services.group.room import InGroup, Seat, Service, first_said
from edge.store import group_logs, groups
from edge.store.groups import BAN, BLOCK, Shut

KINDS = ("human", "ai")


class Subject(InGroup, frozen=True, kw_only=True):
    """Whom; `subject` and `aid` are the same."""

    subject: str = ""
    aid: str = ""

    def named(self) -> str:
        """The AID meant. Raises `InvalidParams`."""
        return aids.normal(first_said(self.subject, self.aid))


class AddMember(InGroup, frozen=True, kw_only=True):
    """Whom, as what."""

    aid: str
    role: str = MEMBER
    member_type: str = "human"


class Added(msgspec.Struct):
    """The group and its new member."""

    group: dict[str, Any]
    member: dict[str, Any]


class Who(InGroup, frozen=True, kw_only=True):
    """Which member."""

    aid: str


class Removed(msgspec.Struct):
    """Who was put out."""

    group: dict[str, Any]
    removed_aid: str


class Left(msgspec.Struct):
    """Who went."""

    group: dict[str, Any]
    left_aid: str


class SetRole(InGroup, frozen=True, kw_only=True):
    """Which member, to what."""

    aid: str
    role: str


class RoleSet(msgspec.Struct):
    """A member's roles, before and now."""

    group: dict[str, Any]
    member: dict[str, Any]
    old_role: str
    new_role: str


class GetMembers(InGroup, frozen=True, kw_only=True):
    """A page of members, of one role or all."""

    ALIASES: ClassVar[Mapping[str, str]] = {**InGroup.ALIASES, "limit": "size"}

    page: int = 1
    size: int | None = None
    role: str = ""


class Members(msgspec.Struct, kw_only=True):
    """Members, owner first, then admins."""

    group_id: str
    group_aid: str
    members: list[dict[str, Any]]
    items: list[dict[str, Any]]
    total: int
    count: int
    page: int
    size: int


class OnlineMembers(msgspec.Struct, kw_only=True):
    """Members with a connection; three names for one list."""

    group_id: str
    group_aid: str
    members: list[dict[str, Any]]
    items: list[dict[str, Any]]
    online_members: list[dict[str, Any]]
    online_count: int
    total: int
    page: int
    size: int


class Membership(InGroup, frozen=True, kw_only=True):
    """About whom; the caller by default."""

    aid: str = ""
    requester_aid: str = ""


class IsMember(msgspec.Struct):
    """`role` is empty for somebody who is not in the group."""

    group_id: str
    aid: str
    is_member: bool
    role: str


class BanAsked(Subject, frozen=True, kw_only=True):
    """Whom, why, until when: a moment (ms) or seconds from now; 0 has no end."""

    reason: str = ""
    expires_at: int = 0
    expires_in_seconds: int = 0
    duration_seconds: int = 0


class Banned(msgspec.Struct):
    """A ban that is in force now."""

    group_id: str
    group_aid: str
    ban: dict[str, Any]
    banned_aid: str


class BlockAsked(Subject, frozen=True, kw_only=True):
    """Whom, why."""

    reason: str = ""


class Blocked(msgspec.Struct):
    """A block that is in force now."""

    group_id: str
    group_aid: str
    block: dict[str, Any]


class Lifted(msgspec.Struct, omit_defaults=True):
    """A ban or block that is over."""

    group_id: str
    group_aid: str
    subject: str
    status: str
    unbanned_aid: str = ""


class Shuts(msgspec.Struct):
    """Bans or blocks in force."""

    group_id: str
    group_aid: str
    items: list[dict[str, Any]]
    total: int
    page: int
    size: int


class Report(InGroup, frozen=True, kw_only=True):
    """What the caller says about themselves."""

    online_status: str
    work_status: str


class Reported(msgspec.Struct):
    """The caller's status."""

    group_id: str
    group_aid: str
    status: dict[str, Any]


class Statuses(msgspec.Struct):
    """Every member's status; empty texts where nothing was said."""

    group_id: str
    group_aid: str
    items: list[dict[str, Any]]


class Admins(msgspec.Struct):
    """Owner and admins."""

    group_id: str
    group_aid: str
    admins: list[dict[str, Any]]


class Master(msgspec.Struct):
    """The owner."""

    group_id: str
    group_aid: str
    owner_aid: str


class MemberTypes(msgspec.Struct):
    """Members by type."""

    group_id: str
    total: int
    human_count: int
    ai_count: int
    members: list[dict[str, Any]]


JOIN_ERRORS = (UnknownAid, AlreadyMember, JoinRejected, GroupSuspended, MemberLimit, RateLimited)


class MemberService(Service):
    """Members of groups."""

    @op(
        "group.add_member",
        scope="group:write",
        wire={"aun": ("group.add_member",)},
        raises=(*ADMIN_ERRORS, *JOIN_ERRORS),
        writes=True,
    )
    def add_member(self, call: Call[AddMember], unit: Unit) -> Added:
        """Make somebody a member at once; an admin only by the owner."""
        asked = call.params
        if asked.role not in (ADMIN, MEMBER):
            raise InvalidParams("role is admin or member")
        member_type(asked.member_type)
        seat = self._room.enter(unit, call, OWNER if asked.role == ADMIN else ADMIN)
        aid = aids.normal(asked.aid)
        group, member = self._room.let_in(
            unit, seat.group, aid, "member_added", seat.aid, role=asked.role, kind=asked.member_type
        )
        return Added(views.group(unit, group), views.member(member))

    @op(
        "group.kick",
        scope="group:write",
        wire={"aun": ("group.kick", "group.remove_member")},
        raises=ADMIN_ERRORS,
        writes=True,
    )
    def kick(self, call: Call[Who], unit: Unit) -> Removed:
        """Put out a member of a lower role."""
        seat = self._room.enter(unit, call, ADMIN)
        member = self._room.other(unit, seat, call.params.aid)
        group = self._room.put_out(unit, seat, member, "member_removed", removed_aid=member.aid)
        return Removed(views.group(unit, group), member.aid)

    @op("group.leave", scope="group:write", wire={"aun": ("group.leave",)}, raises=ADMIN_ERRORS, writes=True)
    def leave(self, call: Call[InGroup], unit: Unit) -> Left:
        """Go; the owner hands the group over first."""
        seat = self._room.enter(unit, call)
        if seat.member.role == OWNER:
            raise RoleInsufficient("the owner cannot leave: group.transfer_owner or group.dissolve first")
        group = self._room.put_out(unit, seat, seat.member, "member_left", left_aid=seat.aid)
        return Left(views.group(unit, group), seat.aid)

    @op(
        "group.set_role",
        scope="group:write",
        wire={"aun": ("group.set_role", "group.update_member")},
        raises=ADMIN_ERRORS,
        writes=True,
    )
    def set_role(self, call: Call[SetRole], unit: Unit) -> RoleSet:
        """Make a member an admin or an admin a member; an admin may only step down."""
        asked, seat = call.params, self._room.enter(unit, call, ADMIN)
        if asked.role not in (ADMIN, MEMBER):
            raise InvalidParams("role is admin or member")
        member = self._room.other(unit, seat, asked.aid, below=False)
        steps_down = member.aid == seat.aid and asked.role == MEMBER
        if member.role == OWNER or (seat.member.role != OWNER and not steps_down):
            raise RoleInsufficient("only the owner gives roles, and only group.transfer_owner moves the owner's")
        if member.role != asked.role:
            groups.set_role(unit, seat.gid, member.aid, asked.role)
            told = {"member_aid": member.aid, "aid": member.aid, "old_role": member.role, "new_role": asked.role}
            self._room.changed(unit, seat.group, "role_changed", seat.aid, **told)
        now = self._room.seat(unit, seat.gid, member.aid)
        return RoleSet(views.group(unit, now.group), views.member(now.member), member.role, asked.role)

    @op("group.get_members", scope="group:read", wire={"aun": ("group.get_members",)}, raises=GROUP_ERRORS)
    async def get_members(self, call: Call[GetMembers]) -> Members:
        """The members, a page at a time."""
        asked, size = call.params, self._page(call.params.size)
        if asked.role not in ("", OWNER, ADMIN, MEMBER):
            raise InvalidParams("role is owner, admin or member")

        def look(unit: Unit) -> Members:
            gid, page = self._room.enter(unit, call).gid, max(1, asked.page)
            found = groups.members(unit, gid, role=asked.role, limit=size, offset=(page - 1) * size)
            acked = group_logs.furthest(unit, gid)
            shown = [views.member(one, acked.get(one.aid, (0, 0))) for one in found]
            return Members(
                group_id=gid,
                group_aid=gid,
                members=shown,
                items=shown,
                total=groups.count_members(unit, gid, asked.role),
                count=len(shown),
                page=page,
                size=size,
            )

        return await self._room.node.read(look)

    @op(
        "group.get_online_members", scope="group:read", wire={"aun": ("group.get_online_members",)}, raises=GROUP_ERRORS
    )
    async def get_online_members(self, call: Call[InGroup]) -> OnlineMembers:
        """The members who are connected."""

        def look(unit: Unit) -> tuple[str, list[groups.Member]]:
            gid = self._room.enter(unit, call).gid
            return gid, groups.members(unit, gid)

        gid, members = await self._room.node.read(look)
        online = [{**views.member(one), "online": True} for one in members if self._room.presence.online(one.aid)]
        return OnlineMembers(
            group_id=gid,
            group_aid=gid,
            members=online,
            items=online,
            online_members=online,
            online_count=len(online),
            total=len(members),
            page=1,
            size=len(members),
        )

    @op("group.check_membership", scope="group:read", wire={"aun": ("group.check_membership",)}, raises=GROUP_ERRORS)
    async def check_membership(self, call: Call[Membership]) -> IsMember:
        """Whether somebody is in the group; about others only members may ask."""
        asked = call.params

        def look(unit: Unit) -> IsMember:
            gid, me = self._room.named(call), call.who.aid
            named = asked.aid or asked.requester_aid
            aid = aids.normal(named) if named else me
            self._room.group(unit, gid)
            if aid != me:
                self._room.seat(unit, gid, me)
            found = groups.member(unit, gid, aid)
            return IsMember(gid, aid, found is not None, found.role if found is not None else "")

        return await self._room.node.read(look)

    @op("group.get_admins", scope="group:read", wire={"aun": ("group.get_admins",)}, raises=GROUP_ERRORS)
    async def get_admins(self, call: Call[InGroup]) -> Admins:
        """Who owns and who administers the group."""

        def look(unit: Unit) -> Admins:
            gid = self._room.enter(unit, call).gid
            found = [*groups.members(unit, gid, role=OWNER), *groups.members(unit, gid, role=ADMIN)]
            return Admins(gid, gid, [views.member(one) for one in found])

        return await self._room.node.read(look)

    @op("group.get_master", scope="group:read", wire={"aun": ("group.get_master",)}, raises=GROUP_ERRORS)
    async def get_master(self, call: Call[InGroup]) -> Master:
        """Who owns the group."""
        seat = await self._room.node.read(lambda unit: self._room.enter(unit, call))
        return Master(seat.gid, seat.gid, seat.group.owner)

    @op(
        "group.refresh_member_types",
        scope="group:read",
        wire={"aun": ("group.refresh_member_types",)},
        raises=GROUP_ERRORS,
    )
    async def refresh_member_types(self, call: Call[InGroup]) -> MemberTypes:
        """How many members are people and how many are not."""

        def look(unit: Unit) -> MemberTypes:
            gid = self._room.enter(unit, call).gid
            found = groups.members(unit, gid)
            kinds = [one.kind for one in found]
            listed = [{"aid": one.aid, "role": one.role, "member_type": one.kind} for one in found]
            return MemberTypes(gid, len(found), kinds.count("human"), kinds.count("ai"), listed)

        return await self._room.node.read(look)

    # Bans and blocks.

    @op(
        "group.ban",
        scope="group:write",
        wire={"aun": ("group.ban",)},
        raises=(*ADMIN_ERRORS, RateLimited),
        writes=True,
    )
    def ban(self, call: Call[BanAsked], unit: Unit) -> Banned:
        """Forbid somebody to speak here, and to come in."""
        asked, now_ms = call.params, unit.wall_us // 1000
        self._fits(bounds.REASON, asked.reason)
        lasts_s = asked.expires_in_seconds or asked.duration_seconds
        if lasts_s < 0 or asked.expires_at < 0:
            raise InvalidParams("a ban ends in the future, or never")
        seat, subject = self._room.enter(unit, call, ADMIN), asked.named()
        self._below(unit, seat, subject)
        until_ms = now_ms + lasts_s * 1000 if lasts_s else asked.expires_at
        row = self._shut(unit, seat, BAN, subject, asked.reason, until_ms)
        self._room.changed(unit, seat.group, "member_banned", seat.aid, aid=subject, member_aid=subject)
        return Banned(seat.gid, seat.gid, views.shut(row), subject)

    @op("group.unban", scope="group:write", wire={"aun": ("group.unban",)}, raises=ADMIN_ERRORS, writes=True)
    def unban(self, call: Call[Subject], unit: Unit) -> Lifted:
        """End a ban; ending none is no error."""
        seat, subject = self._room.enter(unit, call, ADMIN), call.params.named()
        if seat.member.role != OWNER:  # who was made owner while banned can end that
            self._below(unit, seat, subject)
        if groups.lift(unit, seat.gid, BAN, subject, unit.wall_us // 1000):
            self._room.changed(unit, seat.group, "member_unbanned", seat.aid, aid=subject, member_aid=subject)
        return Lifted(seat.gid, seat.gid, subject, "removed", subject)

    @op("group.get_banlist", scope="group:read", wire={"aun": ("group.get_banlist",)}, raises=ADMIN_ERRORS)
    async def get_banlist(self, call: Call[InGroup]) -> Shuts:
        """The bans in force."""
        return await self._room.node.read(lambda unit: self._shuts(unit, call, BAN))

    @op(
        "group.block",
        scope="group:write",
        wire={"aun": ("group.block",)},
        raises=(*ADMIN_ERRORS, RateLimited),
        writes=True,
    )
    def block(self, call: Call[BlockAsked], unit: Unit) -> Blocked:
        """Let a member hear nothing of this group, oneself included; speaking stays allowed."""
        asked = call.params
        self._fits(bounds.REASON, asked.reason)
        seat, subject = self._blocking(call, unit)
        row = self._shut(unit, seat, BLOCK, subject, asked.reason, 0)
        self._room.changed(unit, seat.group, "member_blocked", seat.aid, aid=subject, member_aid=subject)
        return Blocked(seat.gid, seat.gid, views.shut(row))

    @op("group.unblock", scope="group:write", wire={"aun": ("group.unblock",)}, raises=ADMIN_ERRORS, writes=True)
    def unblock(self, call: Call[Subject], unit: Unit) -> Lifted:
        """End a block; ending none is no error."""
        seat, subject = self._blocking(call, unit)
        if groups.lift(unit, seat.gid, BLOCK, subject, unit.wall_us // 1000):
            self._room.changed(unit, seat.group, "member_unblocked", seat.aid, aid=subject, member_aid=subject)
        return Lifted(seat.gid, seat.gid, subject, "removed")

    @op("group.get_blocklist", scope="group:read", wire={"aun": ("group.get_blocklist",)}, raises=ADMIN_ERRORS)
    async def get_blocklist(self, call: Call[InGroup]) -> Shuts:
        """The blocks in force."""
        return await self._room.node.read(lambda unit: self._shuts(unit, call, BLOCK))

    # Statuses.

    @op(
        "group.report_status",
        scope="group:write",
        wire={"aun": ("group.report_status",)},
        raises=GROUP_ERRORS,
        writes=True,
    )
    def report_status(self, call: Call[Report], unit: Unit) -> Reported:
        """Say how one is doing in this group."""
        asked, seat = call.params, self._room.enter(unit, call)
        self._fits(bounds.STATUS, asked.online_status, asked.work_status)
        groups.set_status(unit, seat.gid, seat.aid, asked.online_status, asked.work_status, unit.wall_us // 1000)
        return Reported(seat.gid, seat.gid, views.status(self._room.seat(unit, seat.gid, seat.aid).member))

    @op(
        "group.get_member_statuses",
        scope="group:read",
        wire={"aun": ("group.get_member_statuses",)},
        raises=GROUP_ERRORS,
    )
    async def get_member_statuses(self, call: Call[InGroup]) -> Statuses:
        """How every member is doing, as far as they said."""

        def look(unit: Unit) -> Statuses:
            gid = self._room.enter(unit, call).gid
            return Statuses(gid, gid, [views.status(one) for one in groups.members(unit, gid)])

        return await self._room.node.read(look)

    # Parts.

    def _below(self, unit: Unit, seat: Seat, subject: str) -> None:
        """Nobody acts on their equals; somebody who is no member stands below everybody."""
        if groups.member(unit, seat.gid, subject) is not None:
            self._room.other(unit, seat, subject)

    def _blocking(self, call: Call[Any], unit: Unit) -> tuple[Seat, str]:
        """Oneself may be blocked by oneself; others by their admins."""
        seat, subject = self._room.enter(unit, call), call.params.named()
        if subject == seat.aid:
            return seat, subject
        seat = self._room.enter(unit, call, ADMIN)
        self._room.other(unit, seat, subject)
        return seat, subject

    def _shut(self, unit: Unit, seat: Seat, what: str, subject: str, reason: str, until_ms: int) -> Shut:
        now_ms = unit.wall_us // 1000
        groups.forget_shuts(unit, seat.gid, now_ms)
        others = [one for one in groups.shuts(unit, seat.gid, what, now_ms) if one.subject != subject]
        if len(others) >= self._limits[bounds.SHUTS]:
            raise self._limits.refuse(bounds.SHUTS, seat.gid)
        row = Shut(
            gid=seat.gid,
            what=what,
            subject=subject,
            by=seat.aid,
            reason=reason,
            until_ms=until_ms,
            created_ms=now_ms,
        )
        groups.shut(unit, row)
        return row

    def _shuts(self, unit: Unit, call: Call[InGroup], what: str) -> Shuts:
        gid = self._room.enter(unit, call, ADMIN).gid
        found = groups.shuts(unit, gid, what, unit.wall_us // 1000)
        return Shuts(gid, gid, [views.shut(row) for row in found], len(found), 1, len(found))


def member_type(given: str) -> str:
    """Raises `InvalidParams`."""
    if given not in KINDS:
        raise InvalidParams("member_type is human or ai")
    return given
