"""The ways into a group: directed invites, requests, invite codes (spec aun-services 2.G-14 to G-16)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from edge.contract.errors import (
    AlreadyMember,
    Conflict,
    EdgeError,
    GroupE2eeRequired,
    InvalidParams,
    InviteCodeInvalid,
    JoinRejected,
    NotFound,
    NotPermitted,
    UnknownAid,
)
from edge.contract.op import Call, Params, op
from edge.contract.store import Unit
from edge.contract.wire import decode
from edge.protocol import aid as aids
from edge.protocol import group_rules
from edge.protocol.group_rules import ADMIN, APPROVAL, OPEN, PUBLIC
from edge.services.group import limits as bounds
from edge.services.group import views
from edge.services.group.lifecycle import ADMIN_ERRORS, GROUP_ERRORS
from edge.services.group.members import JOIN_ERRORS, member_type
from edge.services.group.room import InGroup, Service, awake, caller, first_said
from edge.store import group_joins, groups
from edge.store.group_joins import Code, Invite, Request
from edge.store.groups import Group

WEEK_S = 7 * 86_400


class InviteMember(InGroup, frozen=True, kw_only=True):
    """Whom; `aid` and `invitee_aid` are the same."""

    aid: str = ""
    invitee_aid: str = ""
    member_type: str = "human"


class Paged(Params, frozen=True, kw_only=True):
    """Which page."""

    page: int = 1
    size: int | None = None


class MyInvites(msgspec.Struct):
    """Invitations that wait, one entry per group."""

    items: list[dict[str, Any]]
    total: int
    page: int
    size: int
    has_more: bool


class InviteNamed(Params, frozen=True, kw_only=True):
    """Which invitation."""

    invite_id: str
    group_id: str = ""


class InviteEnded(msgspec.Struct, omit_defaults=True):
    """How an invitation ended."""

    status: str
    invite_id: str
    group_id: str
    group_aid: str
    invitee_aid: str
    invite_ids: list[str]
    group: dict[str, Any] = {}
    member: dict[str, Any] = {}
    pending_invite_ids: list[str] = []


class RequestJoin(InGroup, frozen=True, kw_only=True):
    """Why, and the answer to the group's question."""

    message: str = ""
    answer: str = ""


class JoinAnswer(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`joined`, `question_required` or `pending`."""

    status: str
    group_id: str
    group_aid: str
    group: dict[str, Any] = {}
    member: dict[str, Any] = {}
    question: str = ""
    request: dict[str, Any] = {}


class ListRequests(InGroup, frozen=True, kw_only=True):
    """Which requests."""

    status: str = group_joins.PENDING
    page: int = 1
    size: int | None = None


class Requests(msgspec.Struct):
    """Requests, oldest first."""

    group_id: str
    group_aid: str
    items: list[dict[str, Any]]
    total: int
    page: int
    size: int


class Review(InGroup, frozen=True, kw_only=True):
    """Whose request, yes or no."""

    aid: str
    approve: bool = True
    reason: str = ""


class Reviewed(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`approved` or `rejected`."""

    status: str
    request: dict[str, Any]
    group: dict[str, Any]
    member: dict[str, Any] = {}


class Verdict(msgspec.Struct, frozen=True):
    """One applicant, yes or no."""

    aid: str
    approve: bool = True
    reason: str = ""


class ReviewAll(InGroup, frozen=True, kw_only=True):
    """Many applicants: each with a verdict, or all with the same."""

    requests: tuple[Verdict, ...] = ()
    aids: tuple[str, ...] = ()
    approve: bool = True
    reason: str = ""


class ReviewedAll(msgspec.Struct):
    """What became of each."""

    group_id: str
    group_aid: str
    results: list[dict[str, Any]]
    success_count: int
    fail_count: int


class CreateCode(InGroup, frozen=True, kw_only=True):
    """A code of one's own choice or a random one."""

    code: str = ""
    max_uses: int = 1
    expires_in_seconds: int = WEEK_S


class CodeMade(msgspec.Struct):
    """The new code."""

    group_id: str
    group_aid: str
    invite_code: dict[str, Any]


class UseCode(Params, frozen=True, kw_only=True):
    """The code says which group."""

    code: str


class Joined(msgspec.Struct):
    """In by a code."""

    status: str
    group: dict[str, Any]
    member: dict[str, Any]
    invite_code: dict[str, Any]


class ListCodes(InGroup, frozen=True, kw_only=True):
    """Codes of a status, or all."""

    status: str = ""


class Codes(msgspec.Struct):
    """Codes, oldest first."""

    group_id: str
    group_aid: str
    items: list[dict[str, Any]]
    total: int


class CodeNamed(InGroup, frozen=True, kw_only=True):
    """Which code."""

    code: str


class CodeRevoked(msgspec.Struct):
    """The code lets nobody in any more."""

    group_id: str
    group_aid: str
    code: str
    status: str


class Requirements(msgspec.Struct):
    """How one comes in; the same under three names."""

    group_id: str
    group_aid: str
    requirements: dict[str, Any]


class JoinService(Service):
    """Lets people in."""

    # Directed invites.

    @op(
        "group.invite_member",
        scope="group:write",
        wire={"aun": ("group.invite_member",)},
        raises=(*ADMIN_ERRORS, *JOIN_ERRORS),
        writes=True,
    )
    def invite_member(self, call: Call[InviteMember], unit: Unit) -> dict[str, Any]:
        """Invite somebody; nothing changes until they accept. Again is the same invitation."""
        asked, now_ms = call.params, unit.wall_us // 1000
        kind, invitee = member_type(asked.member_type), aids.normal(first_said(asked.invitee_aid, asked.aid))
        seat = self._room.enter(unit, call)
        if seat.group.visibility != PUBLIC:
            seat = self._room.enter(unit, call, ADMIN)
        awake(seat.group)
        if not self._room.known(unit, invitee):
            raise UnknownAid(f"aid not registered: {invitee}")
        if groups.member(unit, seat.gid, invitee) is not None:
            raise AlreadyMember(f"{invitee} is already a member of {seat.gid}")
        if groups.is_shut(unit, seat.gid, groups.BAN, invitee, now_ms):
            raise JoinRejected(f"{invitee} is banned from {seat.gid}")
        for one in group_joins.invites(unit, seat.gid, invitee):
            if one.inviter == seat.aid:
                return {**views.invite(one), "invite": views.invite(one)}
        if group_joins.count_invites(unit, seat.gid) >= self._limits[bounds.INVITES]:
            raise self._limits.refuse(bounds.INVITES, seat.gid)
        made = Invite(
            f"gi-{secrets.token_hex(12)}", seat.gid, invitee, seat.aid, kind, group_joins.PENDING, now_ms, now_ms
        )
        group_joins.add_invite(unit, made, self._limits[bounds.INVITES])
        self._room.tell(unit, seat.gid, "group.invite_created", (invitee,), **views.told([made]), name=seat.group.name)
        return {**views.invite(made), "invite": views.invite(made)}

    @op("group.list_my_invites", scope="group:read", wire={"aun": ("group.list_my_invites",)}, raises=(NotPermitted,))
    async def list_my_invites(self, call: Call[Paged]) -> MyInvites:
        """The invitations that wait for the caller."""
        aid, size, page = caller(call.who), self._page(call.params.size, 200), max(1, call.params.page)

        def look(unit: Unit) -> MyInvites:
            found: dict[str, list[Invite]] = {}
            for one in group_joins.invites_of(unit, aid):
                found.setdefault(one.gid, []).append(one)
            shown = [views.invitation(one) for one in found.values()][(page - 1) * size : page * size]
            return MyInvites(shown, len(found), page, size, page * size < len(found))

        return await self._room.node.read(look)

    @op(
        "group.accept_invite",
        scope="group:write",
        wire={"aun": ("group.accept_invite",)},
        raises=(*GROUP_ERRORS, *JOIN_ERRORS, NotFound, Conflict, GroupE2eeRequired),
        writes=True,
    )
    def accept_invite(self, call: Call[InviteNamed], unit: Unit) -> InviteEnded:
        """Come in; every other invitation to the same group ends with it."""
        found = self._waiting(call, unit)
        group = self._room.group(unit, found.gid)
        self._room.capable(call, group)
        every = group_joins.invites(unit, found.gid, found.invitee)
        group, member = self._room.let_in(unit, group, found.invitee, "joined", found.invitee, kind=found.kind)
        answer = _ended(found, every, [], group_joins.ACCEPTED)
        answer.group, answer.member = views.group(unit, group), views.member(member)
        return answer

    @op(
        "group.reject_invite",
        scope="group:write",
        wire={"aun": ("group.reject_invite",)},
        raises=(*GROUP_ERRORS, NotFound, Conflict),
        writes=True,
    )
    def reject_invite(self, call: Call[InviteNamed], unit: Unit) -> InviteEnded:
        """Stay out; every invitation to this group ends."""
        return self._end(unit, self._waiting(call, unit), group_joins.REJECTED, whole=True)

    @op(
        "group.revoke_invite",
        scope="group:write",
        wire={"aun": ("group.revoke_invite",)},
        raises=(*GROUP_ERRORS, NotFound, Conflict),
        writes=True,
    )
    def revoke_invite(self, call: Call[InviteNamed], unit: Unit) -> InviteEnded:
        """Take one's own invitation back; those of others stay."""
        found = self._invite(call, unit)
        if found.inviter != caller(call.who):
            raise NotPermitted("only the inviter revokes an invite")
        return self._end(unit, self._pending(found), group_joins.REVOKED, whole=False)

    # Requests.

    @op(
        "group.request_join",
        scope="group:write",
        wire={"aun": ("group.request_join",)},
        raises=(*GROUP_ERRORS, *JOIN_ERRORS, GroupE2eeRequired),
        writes=True,
    )
    def request_join(self, call: Call[RequestJoin], unit: Unit) -> JoinAnswer:
        """Ask to come in: at once, after a question, or when an admin says yes, as the group's rules have it."""
        asked, aid = call.params, caller(call.who)
        self._fits(bounds.TEXT, asked.message, asked.answer)
        group = self._room.group(unit, self._room.named(call))
        self._room.capable(call, group)
        awake(group)
        rules = self._rules(unit, group)
        if rules["mode"] == OPEN or group_rules.approved(aid, rules["auto_approve_patterns"]):
            joined, member = self._room.let_in(unit, group, aid, "joined", aid)
            named: dict[str, Any] = {"group_id": group.gid, "group_aid": group.gid}
            return JoinAnswer(status="joined", group=views.group(unit, joined), member=views.member(member), **named)
        return self._ask(unit, group, aid, asked, rules)

    @op(
        "group.list_join_requests", scope="group:read", wire={"aun": ("group.list_join_requests",)}, raises=ADMIN_ERRORS
    )
    async def list_join_requests(self, call: Call[ListRequests]) -> Requests:
        """Requests of a status, oldest first."""
        asked, size = call.params, self._page(call.params.size)
        if asked.status not in ("", group_joins.PENDING, group_joins.APPROVED, group_joins.REJECTED):
            raise InvalidParams("status is pending, approved or rejected")

        def look(unit: Unit) -> Requests:
            gid, page = self._room.enter(unit, call, ADMIN).gid, max(1, asked.page)
            found = group_joins.requests(unit, gid, asked.status, size, (page - 1) * size)
            total = group_joins.count_requests(unit, gid, asked.status)
            return Requests(gid, gid, [views.request(one) for one in found], total, page, size)

        return await self._room.node.read(look)

    @op(
        "group.review_join_request",
        scope="group:write",
        wire={"aun": ("group.review_join_request",)},
        raises=(*ADMIN_ERRORS, *JOIN_ERRORS, NotFound),
        writes=True,
    )
    def review_join_request(self, call: Call[Review], unit: Unit) -> Reviewed:
        """Say yes or no to one applicant."""
        asked = call.params
        seat = self._room.enter(unit, call, ADMIN)
        return self._review(unit, seat.group, seat.aid, Verdict(asked.aid, asked.approve, asked.reason))

    @op(
        "group.batch_review_join_request",
        scope="group:write",
        wire={"aun": ("group.batch_review_join_request",)},
        raises=ADMIN_ERRORS,
        writes=True,
    )
    def batch_review(self, call: Call[ReviewAll], unit: Unit) -> ReviewedAll:
        """Say yes or no to many applicants; each succeeds or fails alone."""
        asked, seat = call.params, self._room.enter(unit, call, ADMIN)
        verdicts = asked.requests or tuple(Verdict(aid, asked.approve, asked.reason) for aid in asked.aids)
        if not verdicts:
            raise InvalidParams("requests or aids is missing")
        if len(verdicts) > self._limits[bounds.PAGE]:
            raise InvalidParams(f"at most {self._limits[bounds.PAGE]} at once")
        results: list[dict[str, Any]] = []
        for verdict in verdicts:
            try:
                done = self._review(unit, self._room.group(unit, seat.gid), seat.aid, verdict)
                results.append({"aid": verdict.aid, "ok": True, "status": done.status, "request": done.request})
            except EdgeError as error:
                results.append({"aid": verdict.aid, "ok": False, "error": error.message})
        good = sum(one["ok"] for one in results)
        return ReviewedAll(seat.gid, seat.gid, results, good, len(results) - good)

    @op(
        "group.get_join_requirements",
        scope="group:read",
        wire={"aun": ("group.get_join_requirements",)},
        raises=GROUP_ERRORS,
    )
    async def get_join_requirements(self, call: Call[InGroup]) -> Requirements:
        """How one comes into the group."""

        def look(unit: Unit) -> Requirements:
            seat = self._room.enter(unit, call)
            return Requirements(seat.gid, seat.gid, {"group_id": seat.gid, **self._rules(unit, seat.group)})

        return await self._room.node.read(look)

    # Invite codes.

    @op(
        "group.create_invite_code",
        scope="group:write",
        wire={"aun": ("group.create_invite_code",)},
        raises=(*ADMIN_ERRORS, *JOIN_ERRORS, Conflict),
        writes=True,
    )
    def create_invite_code(self, call: Call[CreateCode], unit: Unit) -> CodeMade:
        """Make a code that lets its first users in."""
        asked, now_ms = call.params, unit.wall_us // 1000
        seat = self._room.enter(unit, call, ADMIN)
        awake(seat.group)
        if not 0 < asked.max_uses <= self._limits[bounds.CODE_USES]:
            raise self._limits.refuse(bounds.CODE_USES, "max_uses")
        if not 0 < asked.expires_in_seconds <= self._limits[bounds.CODE_TIME]:
            raise self._limits.refuse(bounds.CODE_TIME, "expires_in_seconds")
        text = asked.code.strip().lower() or f"ic-{secrets.token_hex(8)}"
        self._fits(bounds.CODE_LENGTH, text)
        if len(group_joins.codes(unit, seat.gid)) >= self._limits[bounds.CODES]:
            group_joins.forget_dead_codes(unit, seat.gid, now_ms)
            if len(group_joins.codes(unit, seat.gid)) >= self._limits[bounds.CODES]:
                raise self._limits.refuse(bounds.CODES, seat.gid)
        if group_joins.code(unit, text) is not None:
            raise Conflict("this code is taken: choose another")
        made = Code(text, seat.gid, seat.aid, now_ms + asked.expires_in_seconds * 1000, asked.max_uses, 0, 0, now_ms)
        group_joins.add_code(unit, made)
        self._room.changed(unit, seat.group, "invite_code_created", seat.aid)
        return CodeMade(seat.gid, seat.gid, views.code(made, now_ms))

    @op(
        "group.use_invite_code",
        scope="group:write",
        wire={"aun": ("group.use_invite_code",)},
        raises=(*GROUP_ERRORS, *JOIN_ERRORS, InviteCodeInvalid, GroupE2eeRequired),
        writes=True,
    )
    def use_invite_code(self, call: Call[UseCode], unit: Unit) -> Joined:
        """Come in by a code; upper and lower case are the same."""
        aid, now_ms = caller(call.who), unit.wall_us // 1000
        found = group_joins.code(unit, call.params.code.strip().lower())
        if found is None or found.status(now_ms) != group_joins.CODE_ACTIVE:
            raise InviteCodeInvalid
        group = self._room.group(unit, found.gid)
        self._room.capable(call, group)
        group, member = self._room.let_in(unit, group, aid, "invite_code_used", aid)
        group_joins.use(unit, found.code)
        used = msgspec.structs.replace(found, used=found.used + 1)
        shown = {**views.code(used, now_ms), "used_by": aid}
        return Joined("joined", views.group(unit, group), views.member(member), shown)

    @op("group.list_invite_codes", scope="group:read", wire={"aun": ("group.list_invite_codes",)}, raises=ADMIN_ERRORS)
    async def list_invite_codes(self, call: Call[ListCodes]) -> Codes:
        """The group's codes."""
        asked = call.params

        def look(unit: Unit) -> Codes:
            gid, now_ms = self._room.enter(unit, call, ADMIN).gid, unit.wall_us // 1000
            shown = [views.code(one, now_ms) for one in group_joins.codes(unit, gid)]
            wanted = [one for one in shown if asked.status in ("", one["status"])]
            return Codes(gid, gid, wanted, len(wanted))

        return await self._room.node.read(look)

    @op(
        "group.revoke_invite_code",
        scope="group:write",
        wire={"aun": ("group.revoke_invite_code",)},
        raises=(*ADMIN_ERRORS, InviteCodeInvalid),
        writes=True,
    )
    def revoke_invite_code(self, call: Call[CodeNamed], unit: Unit) -> CodeRevoked:
        """End a code."""
        seat = self._room.enter(unit, call, ADMIN)
        found = group_joins.code(unit, call.params.code.strip().lower())
        if found is None or found.gid != seat.gid:
            raise InviteCodeInvalid
        if not found.revoked:
            group_joins.revoke_code(unit, found.code)
            self._room.changed(unit, seat.group, "invite_code_revoked", seat.aid)
        return CodeRevoked(seat.gid, seat.gid, found.code, group_joins.CODE_REVOKED)

    # Parts.

    def _invite(self, call: Call[InviteNamed], unit: Unit) -> Invite:
        found = group_joins.invite(unit, call.params.invite_id)
        if found is None:
            raise NotFound("invite not found")
        return found

    def _pending(self, found: Invite) -> Invite:
        if found.status != group_joins.PENDING:
            raise Conflict(f"invite is not pending: {found.status}", data={"status": found.status})
        return found

    def _waiting(self, call: Call[InviteNamed], unit: Unit) -> Invite:
        """A pending invitation of the caller's."""
        found = self._invite(call, unit)
        if found.invitee != caller(call.who):
            raise NotPermitted("this invite is for somebody else")
        return self._pending(found)

    def _end(self, unit: Unit, found: Invite, status: str, *, whole: bool) -> InviteEnded:
        """End one invitation, or all of this AID to this group, and say so to the invitee."""
        all_of_them = group_joins.invites(unit, found.gid, found.invitee)
        ended = all_of_them if whole else [found]
        left = [one for one in all_of_them if one not in ended]
        self._room.end_invites(unit, ended, left, status)
        return _ended(found, ended, left, status)

    def _rules(self, unit: Unit, group: Group) -> dict[str, Any]:
        """How one comes in."""
        kept = {one.key: one for one in groups.settings(unit, group.gid) if one.key.startswith("join.")}

        def value(key: str, default: Any) -> Any:
            return decode(kept[key].value, object) if key in kept else default

        newest = max(kept.values(), key=lambda one: one.updated_ms, default=None)
        return {
            "mode": value("join.mode", group_rules.default_mode(group.visibility)),
            "question": value("join.question", ""),
            "auto_approve_patterns": value("join.auto_approve_patterns", []),
            "max_pending": value("join.max_pending", group_rules.MAX_PENDING),
            "attachments": value("join.attachments", []),
            "updated_by": newest.by if newest is not None else "",
            "updated_at": newest.updated_ms if newest is not None else 0,
        }

    def _ask(self, unit: Unit, group: Group, aid: str, asked: RequestJoin, rules: Mapping[str, Any]) -> JoinAnswer:
        """A request that somebody must say yes to."""
        named: dict[str, Any] = {"group_id": group.gid, "group_aid": group.gid}
        now_ms = unit.wall_us // 1000
        if groups.member(unit, group.gid, aid) is not None:
            raise AlreadyMember(f"{aid} is already a member of {group.gid}")
        if rules["mode"] != APPROVAL or groups.is_shut(unit, group.gid, groups.BAN, aid, now_ms):
            raise JoinRejected(f"{group.gid} lets nobody in by request" if rules["mode"] != APPROVAL else "banned")
        if rules["question"] and not asked.answer.strip():
            return JoinAnswer(status="question_required", question=rules["question"], **named)
        before = group_joins.request(unit, group.gid, aid)
        waits = before is not None and before.status == group_joins.PENDING
        most = min(int(rules["max_pending"]), 1000)
        if not waits and group_joins.count_requests(unit, group.gid, group_joins.PENDING) >= most:
            raise JoinRejected("too many requests are waiting: try again later")
        since = before.created_ms if before is not None and waits else now_ms
        made = Request(group.gid, aid, asked.message, asked.answer, group_joins.PENDING, "", "", since, now_ms)
        group_joins.put_request(unit, made)
        if not waits:
            self._room.changed(unit, group, "join_requested", aid, aid=aid)
        return JoinAnswer(status="pending", request=views.request(made), **named)

    def _review(self, unit: Unit, group: Group, by: str, verdict: Verdict) -> Reviewed:
        aid, now_ms = aids.normal(verdict.aid), unit.wall_us // 1000
        self._fits(bounds.REASON, verdict.reason)
        awake(group)
        found = group_joins.request(unit, group.gid, aid)
        if found is None or found.status != group_joins.PENDING:
            raise NotFound(f"no pending request of {aid}")
        status = group_joins.APPROVED if verdict.approve else group_joins.REJECTED
        member: dict[str, Any] = {}
        if verdict.approve:
            group, joined = self._room.let_in(unit, group, aid, "join_approved", by)
            member = views.member(joined)
        done = msgspec.structs.replace(found, status=status, by=by, reason=verdict.reason, updated_ms=now_ms)
        group_joins.put_request(unit, done)
        if not verdict.approve:
            self._room.changed(unit, group, "join_rejected", by, aid=aid, reason=verdict.reason)
            told = {"action": "join_rejected", "aid": aid, "reason": verdict.reason, "actor_aid": by}
            self._room.tell(unit, group.gid, "group.changed", (aid,), **told)
        return Reviewed(status=status, request=views.request(done), group=views.group(unit, group), member=member)


def _ended(found: Invite, ended: list[Invite], left: list[Invite], status: str) -> InviteEnded:
    ids, waiting = [one.invite_id for one in ended], [one.invite_id for one in left]
    return InviteEnded(status, found.invite_id, found.gid, found.gid, found.invitee, ids, pending_invite_ids=waiting)
