"""Groups come, change, sleep and go: create, info, update, lists, suspend, resume, dissolve, counters."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from edge.contract.errors import (
    GroupNotFound,
    InvalidParams,
    NameTaken,
    NotMember,
    NotPermitted,
    RateLimited,
    RoleInsufficient,
    TooLarge,
)
from edge.contract.op import Call, Params, op
from edge.contract.store import Unit
from edge.contract.wire import dumps
from edge.protocol import group_ids, group_rules, keys
from edge.protocol.group_rules import ADMIN, OWNER
from edge.services.group import limits as bounds
from edge.services.group import views
from edge.services.group.room import InGroup, Service, caller
from edge.store import group_joins, group_keys, groups
from edge.store import identity as names
from edge.store.groups import Group, Member, Setting
from edge.store.keyring import Issued

SERVER_OWNED = frozenset({"pending_owner_transfer", "transfer_history"})
"""Metadata that clients may neither set nor remove."""

GROUP_ERRORS = (InvalidParams, NotPermitted, GroupNotFound, NotMember)
ADMIN_ERRORS = (*GROUP_ERRORS, RoleInsufficient)


class Create(Params, frozen=True, kw_only=True):
    """A new group. With `group_name` and `public_key` it is named and certified at once."""

    ALIASES: ClassVar[Mapping[str, str]] = {"group_aid": "group_id", "groupId": "group_id", "groupAid": "group_id"}

    name: str
    group_id: str = ""
    group_name: str = ""
    public_key: str = ""
    curve: str = "P-256"
    visibility: str = group_rules.PRIVATE
    description: str = ""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    avatar_ref: str = ""
    join_mode: str = ""
    join_question: str = ""
    auto_approve_patterns: tuple[str, ...] = ()
    max_pending: int = group_rules.MAX_PENDING
    request_id: str = msgspec.field(name="_create_request_id", default="")


class Created(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The group; `aid_cert` when it was certified."""

    group: dict[str, Any]
    group_id: str
    group_aid: str
    aid: str
    aid_cert: dict[str, Any] | None = None


class GetInfo(InGroup, frozen=True, kw_only=True):
    """`required` asks for more than anybody may know: member, state, e2ee, avatar."""

    required: tuple[str, ...] = ()


class OldInfo(msgspec.Struct):
    """The shape of earlier servers."""

    found: bool
    group_id: str
    group: dict[str, Any] | None


class Update(InGroup, frozen=True, kw_only=True):
    """What to change; what is absent stays."""

    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    avatar_ref: str | None = None
    visibility: str | None = None


class GroupAnswer(msgspec.Struct, omit_defaults=True):
    """The group as it is now."""

    group: dict[str, Any]
    status: str = ""


class Listing(Params, frozen=True, kw_only=True):
    """How many."""

    ALIASES: ClassVar[Mapping[str, str]] = {"limit": "size"}

    size: int | None = None


class Mine(msgspec.Struct):
    """The caller's groups with their role in each."""

    items: list[dict[str, Any]]
    total: int
    page: int
    size: int
    aid: str


class Search(Params, frozen=True, kw_only=True):
    """Text in the name or AID of public groups."""

    ALIASES: ClassVar[Mapping[str, str]] = {"limit": "size", "q": "query"}

    query: str = ""
    size: int | None = None


class Found(msgspec.Struct):
    """Public groups."""

    query: str
    items: list[dict[str, Any]]
    total: int
    page: int
    size: int


class Dissolved(msgspec.Struct):
    """The end of a group."""

    group_id: str
    group_aid: str
    status: str


class _Plan(msgspec.Struct):
    """What `create` prepared: the AID (""= to be made up), its key, its certificate."""

    gid: str
    spki: bytes = b""
    made: Issued | None = None


class LifecycleService(Service):
    """Makes and ends groups."""

    @op(
        "group.create",
        scope="group:write",
        wire={"aun": ("group.create",)},
        raises=(InvalidParams, NotPermitted, NameTaken, RateLimited, TooLarge),
        writes=True,
        before="plan",
    )
    def create(self, call: Call[Create], unit: Unit) -> Created:
        """Make a group; the caller owns it and is its only member."""
        asked, plan, aid = call.params, call.prepared, caller(call.who)
        again = self._again(unit, asked, plan, aid)
        if again is not None:
            return again
        ever, still = groups.made_by(unit, aid)
        if ever >= self._limits[bounds.EVER]:
            raise self._limits.refuse(bounds.EVER, aid)
        if still >= self._limits[bounds.GROUPS]:
            raise self._limits.refuse(bounds.GROUPS, aid)
        if groups.count_of(unit, aid) >= self._limits[bounds.JOINED]:
            raise self._limits.refuse(bounds.JOINED, aid)
        gid, now_ms = plan.gid or self._made_up(unit), unit.wall_us // 1000
        if self._taken(unit, gid):
            raise NameTaken(f"group already exists: {gid}")
        group = Group(
            gid=gid,
            name=asked.name,
            owner=aid,
            creator=aid,
            visibility=group_rules.visibility(asked.visibility),
            description=asked.description,
            avatar=asked.avatar_ref,
            metadata=dumps({key: value for key, value in asked.metadata.items() if key not in SERVER_OWNED}),
            created_ms=now_ms,
            updated_ms=now_ms,
        )
        groups.add(unit, group, _create_key(asked, aid))
        groups.join(
            unit,
            Member(gid=gid, aid=aid, role=OWNER, kind="human", joined_ms=now_ms, join_seq=0, join_event=0),
        )
        self._settle(unit, asked, gid, aid, now_ms)
        if plan.made is not None:
            names.issue(unit, plan.made, kind="group", spki=plan.spki, operation="agent_cert_issue")
        else:
            names.hold(unit, gid, "group")
        self._room.changed(unit, group, "upsert", aid)
        told = {"owner_aid": aid, "visibility": group.visibility}
        self._room.tell(unit, gid, "group.created", (aid,), **told)
        return self._created(unit, self._room.group(unit, gid), aid, plan.made)

    async def plan(self, call: Call[Create]) -> _Plan:
        """Everything that needs no table, and the certificate of a named group."""
        asked = call.params
        if not asked.name.strip():
            raise InvalidParams("name is empty")
        self._fits(bounds.NAME, asked.name, asked.avatar_ref)
        self._fits(bounds.TEXT, asked.description, asked.join_question)
        if len(dumps(asked.metadata)) > self._limits[bounds.METADATA]:
            raise self._limits.refuse(bounds.METADATA)
        group_rules.patterns(list(asked.auto_approve_patterns))
        if asked.join_mode:
            group_rules.join_mode(asked.join_mode)
        group_rules.max_pending(asked.max_pending)
        if not asked.group_name:
            return _Plan(group_ids.custom(asked.group_id, self._room.issuer) if asked.group_id else "")
        gid = group_ids.named(asked.group_name, self._room.issuer)
        spki = keys.public_of(asked.public_key, asked.curve)
        now_us, unsure_us = self._room.clock.wall(self._room.clock.now())
        made = await asyncio.to_thread(self._room.identity.issue, gid, spki, now_us, unsure_us, self._room.base())
        return _Plan(gid, spki, made)

    @op("group.get_info", scope="group:read", wire={"aun": ("group.get_info",)}, raises=(InvalidParams, NotMember))
    async def get_info(self, call: Call[GetInfo]) -> dict[str, Any]:
        """What is known of a group: the public part for anybody, more for members who ask."""
        gid, aid = self._room.named(call), caller(call.who)

        def look(unit: Unit) -> dict[str, Any]:
            group = groups.find(unit, gid)
            if group is None or group.status == groups.DISSOLVED:
                return {"found": False, "group_id": gid, "group_aid": gid}
            return {"found": True, **views.public(group), **self._required(unit, group, aid, call.params.required)}

        return await self._room.node.read(look)

    @op(
        "group.info",
        scope="group:read",
        wire={"aun": ("group.get", "group.info", "group.get_public_info")},
        raises=(InvalidParams,),
    )
    async def info(self, call: Call[InGroup]) -> OldInfo:
        """`group.get_info` in the shape of earlier servers; members get the whole group."""
        gid, aid = self._room.named(call), caller(call.who)

        def look(unit: Unit) -> OldInfo:
            group = groups.find(unit, gid)
            if group is None or group.status == groups.DISSOLVED:
                return OldInfo(False, gid, None)
            inside = groups.member(unit, gid, aid) is not None
            return OldInfo(True, gid, views.group(unit, group) if inside else views.public(group))

        return await self._room.node.read(look)

    @op(
        "group.update",
        scope="group:write",
        wire={"aun": ("group.update",)},
        raises=(*ADMIN_ERRORS, TooLarge),
        writes=True,
    )
    def update(self, call: Call[Update], unit: Unit) -> GroupAnswer:
        """Change name, description, metadata, picture or visibility."""
        asked = call.params
        seat = self._room.enter(unit, call, ADMIN)
        given = {
            "name": asked.name,
            "description": asked.description,
            "avatar": asked.avatar_ref,
            "visibility": group_rules.visibility(asked.visibility) if asked.visibility is not None else None,
            "metadata": self._metadata(asked.metadata) if asked.metadata is not None else None,
        }
        fields = {name: value for name, value in given.items() if value is not None}
        self._fits(bounds.NAME, asked.name or "", asked.avatar_ref or "")
        self._fits(bounds.TEXT, asked.description or "")
        if asked.name is not None and not asked.name.strip():
            raise InvalidParams("name is empty")
        group = groups.change(unit, seat.gid, unit.wall_us // 1000, **fields)
        self._room.changed(unit, group, "update", seat.aid, updated_keys=sorted(fields))
        return GroupAnswer(views.group(unit, group))

    @op("group.list_my", scope="group:read", wire={"aun": ("group.list_my", "group.list")}, raises=(NotPermitted,))
    async def list_my(self, call: Call[Listing]) -> Mine:
        """The caller's groups, most lately changed first."""
        aid, size = caller(call.who), self._page(call.params.size)

        def look(unit: Unit) -> Mine:
            items = [
                {
                    **views.public(group),
                    "owner_aid": group.owner,
                    "updated_at": group.updated_ms,
                    "role": member.role,
                    "my_role": member.role,
                }
                for group, member in groups.of(unit, aid, size)
            ]
            return Mine(items, groups.count_of(unit, aid), 1, size, aid)

        return await self._room.node.read(look)

    @op("group.search", scope="group:read", wire={"aun": ("group.search",)}, raises=(InvalidParams,))
    async def search(self, call: Call[Search]) -> Found:
        """Public groups by text in their name or AID."""
        asked, size = call.params, self._page(call.params.size)
        self._fits(bounds.NAME, asked.query)
        found = await self._room.node.read(lambda unit: groups.search(unit, asked.query.strip(), size))
        return Found(asked.query, [views.public(group) for group in found], len(found), 1, size)

    @op("group.suspend", scope="group:write", wire={"aun": ("group.suspend",)}, raises=ADMIN_ERRORS, writes=True)
    def suspend(self, call: Call[InGroup], unit: Unit) -> GroupAnswer:
        """Let only owner and admins speak, and nobody in, until resumed."""
        return self._sleep(call, unit, groups.SUSPENDED, "suspended")

    @op("group.resume", scope="group:write", wire={"aun": ("group.resume",)}, raises=ADMIN_ERRORS, writes=True)
    def resume(self, call: Call[InGroup], unit: Unit) -> GroupAnswer:
        """End a suspension."""
        return self._sleep(call, unit, groups.ACTIVE, "resumed")

    @op("group.dissolve", scope="group:write", wire={"aun": ("group.dissolve",)}, raises=ADMIN_ERRORS, writes=True)
    def dissolve(self, call: Call[InGroup], unit: Unit) -> Dissolved:
        """End a group for good: its members learn of it, its certificate is revoked, its name stays taken.

        Messages age out as everywhere; nobody can read them any more.
        """
        seat, now_ms = self._room.enter(unit, call, OWNER), unit.wall_us // 1000
        event = self._room.changed(unit, seat.group, "dissolved", seat.aid, status=groups.DISSOLVED)
        for invitee, invite_id, inviter in group_joins.end_invites(unit, seat.gid, now_ms):
            told = {"invitee_aid": invitee, "invite_id": invite_id, "inviter_aid": inviter, "status": "revoked"}
            self._room.tell(unit, seat.gid, "group.invite_finalized", (invitee,), **told)
        for member in groups.members(unit, seat.gid):
            groups.leave(unit, member, event, now_ms)
        for part in (groups, group_joins, group_keys):
            part.clear(unit, seat.gid)
        groups.change(unit, seat.gid, now_ms, status=groups.DISSOLVED, pending=b"")
        names.revoke(unit, seat.gid, "cessationOfOperation")
        return Dissolved(seat.gid, seat.gid, groups.DISSOLVED)

    @op(
        "group.get_stats",
        scope="group:read",
        wire={"aun": ("group.get_stats", "group.get_metrics")},
        raises=ADMIN_ERRORS,
    )
    async def get_stats(self, call: Call[InGroup]) -> dict[str, Any]:
        """The group's counters, with the requests that wait."""

        def look(unit: Unit) -> tuple[Group, int]:
            seat = self._room.enter(unit, call, ADMIN)
            return seat.group, group_joins.count_requests(unit, seat.gid, group_joins.PENDING)

        group, waiting = await self._room.node.read(look)
        return {**await self._counts(group), "pending_join_request_count": waiting}

    @op("group.get_summary", scope="group:read", wire={"aun": ("group.get_summary",)}, raises=GROUP_ERRORS)
    async def get_summary(self, call: Call[InGroup]) -> dict[str, Any]:
        """The group's counters, for members."""
        group = await self._room.node.read(lambda unit: self._room.enter(unit, call).group)
        return await self._counts(group)

    # Parts.

    def _again(self, unit: Unit, asked: Create, plan: _Plan, aid: str) -> Created | None:
        """The group that this very request made before (G-2)."""
        key = _create_key(asked, aid)
        found = groups.by_create_key(unit, key) if key else None
        if found is None:
            return None
        if found.status == groups.DISSOLVED:
            raise NameTaken(f"group already exists, dissolved: {found.gid}")
        return self._created(unit, found, aid, _kept(unit, found.gid) if plan.spki else None)

    def _created(self, unit: Unit, group: Group, aid: str, made: Issued | None) -> Created:
        chain = self._room.identity.chain_pem
        return Created(
            group=views.group(unit, group),
            group_id=group.gid,
            group_aid=group.gid,
            aid=aid,
            aid_cert=views.certificate(made, chain) if made is not None else None,
        )

    def _made_up(self, unit: Unit) -> str:
        while True:
            gid = group_ids.generated(secrets.token_hex(5), self._room.issuer)
            if not self._taken(unit, gid):
                return gid

    def _taken(self, unit: Unit, gid: str) -> bool:
        """Is this the name of a group that is or was, of anybody, or kept for somebody?"""
        base = gid.partition(".")[0]
        return (
            groups.find(unit, gid) is not None
            or names.aid(unit, gid) is not None
            or names.reservation(unit, base) is not None
            or self._room.known(unit, gid)
        )

    def _settle(self, unit: Unit, asked: Create, gid: str, aid: str, now_ms: int) -> None:
        """The way in that the creator chose."""
        chosen: dict[str, object] = {}
        if asked.join_mode:
            chosen["join.mode"] = asked.join_mode
        if asked.join_question:
            chosen["join.question"] = asked.join_question
        if asked.auto_approve_patterns:
            chosen["join.auto_approve_patterns"] = asked.auto_approve_patterns
        if asked.max_pending != group_rules.MAX_PENDING:
            chosen["join.max_pending"] = asked.max_pending
        rows = {key: dumps(value) for key, value in chosen.items()}
        self._fit_settings(unit, gid, rows)
        for key, raw in rows.items():
            groups.put_setting(unit, gid, Setting(key, raw, aid, now_ms))

    def _metadata(self, given: dict[str, Any]) -> bytes:
        if SERVER_OWNED & given.keys():
            raise InvalidParams(f"metadata: {', '.join(sorted(SERVER_OWNED))} are the server's")
        raw = dumps(given)
        if len(raw) > self._limits[bounds.METADATA]:
            raise self._limits.refuse(bounds.METADATA)
        return raw

    def _required(self, unit: Unit, group: Group, aid: str, required: tuple[str, ...]) -> dict[str, Any]:
        """The fields that only members may ask for."""
        unknown = set(required) - {"member", "state", "e2ee", "avatar"}
        if unknown:
            raise InvalidParams(f"required: unknown {sorted(unknown)[0][:40]!r}")
        if not required:
            return {}
        seat = self._room.seat(unit, group.gid, aid)
        whole = views.group(unit, group)
        more: dict[str, Any] = {}
        if "member" in required:
            wanted = ("owner_aid", "creator_aid", "message_seq", "event_seq", "e2ee_epoch", "updated_at", "metadata")
            more |= {name: whole[name] for name in wanted} | {"my_role": seat.member.role}
        if "state" in required:
            state = group_keys.state(unit, group.gid)
            more |= {"state_version": state.proposal.version if state else 0}
            more |= {"state_hash": state.proposal.hash if state else ""}
        if "e2ee" in required:
            more |= {"e2ee_epoch": group.legacy_epoch, "epoch": group.epoch}
        if "avatar" in required:
            more["avatar_ref"] = group.avatar
        return more

    def _sleep(self, call: Call[InGroup], unit: Unit, status: str, action: str) -> GroupAnswer:
        seat = self._room.enter(unit, call, ADMIN)
        if seat.group.status == status:
            return GroupAnswer(views.group(unit, seat.group), "unchanged")
        group = groups.change(unit, seat.gid, unit.wall_us // 1000, status=status)
        self._room.changed(unit, group, action, seat.aid, status=status)
        return GroupAnswer(views.group(unit, group), status)

    async def _counts(self, group: Group) -> dict[str, Any]:
        members = await self._room.node.read(lambda unit: groups.member_aids(unit, group.gid))
        online = sum(self._room.presence.online(aid) for aid in members)
        return await self._room.node.read(lambda unit: views.counts(unit, group, online))


def _create_key(asked: Create, aid: str) -> str:
    """What makes two creations the same one (G-2); "" when nothing does."""
    if asked.group_name:
        digest = hashlib.sha256(asked.public_key.encode()).hexdigest()
        return f"{aid}|named|{asked.group_name.strip().lower()}|{digest}"
    return f"{aid}|{asked.request_id[:200]}" if asked.request_id else ""


def _kept(unit: Unit, gid: str) -> Issued | None:
    """The certificate a named group got."""
    found = names.current(unit, gid)
    if found is None:
        return None
    return Issued(
        serial=found.serial,
        aid=gid,
        pem=found.pem,
        cert_sha256=found.cert_sha256,
        spki_sha256=found.spki_sha256,
        curve=found.curve,
        start=found.not_before,
        end=found.not_after,
    )
