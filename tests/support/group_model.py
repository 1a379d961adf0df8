"""What a group is and what each call must come to: a model to test the group service against.

Written from spec aun-services §1.3 and §2 (rules G-1 to G-23), the seed and DESIGN D18; it knows nothing of the code
under test. A question that ends in `_wrong` is answered by the errors that the call may raise; none means that it must
succeed. Whether somebody may enter at all is told before anything else, so that nobody learns more than they may.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edge.contract.errors import (
    AlreadyMember,
    Conflict,
    EdgeError,
    GroupNotFound,
    GroupStateMismatch,
    GroupSuspended,
    InvalidParams,
    InviteCodeInvalid,
    JoinRejected,
    MemberLimit,
    NotFound,
    NotMember,
    NotPermitted,
    RateLimited,
    RoleInsufficient,
)

Wrong = set[type[EdgeError]]
RANK = {"member": 1, "admin": 2, "owner": 3}
MEMBERS, CODES, INVITES, BANS, PROPOSALS, ROWS = 4, 2, 2, 2, 2, 6
"""The limits that the tests set, low enough to be met."""
RECALL_MS = 120_000
SHIFT = 40


@dataclass
class Member:
    role: str
    join_seq: int
    join_event: int


@dataclass
class Left:
    """Somebody who was in: the events above `first` up to `last` are still theirs to read."""

    first: int
    last: int


@dataclass
class Row:
    seq: int
    sender: str
    message_id: str
    text: str
    mode: str
    at_ms: int
    kind: str = "plain"
    readers: frozenset[str] | None = None
    """Of an encrypted message: for whom there is a key."""


@dataclass
class Code:
    text: str
    most: int
    until_ms: int
    used: int = 0
    revoked: bool = False

    def status(self, now_ms: int) -> str:
        if self.revoked:
            return "revoked"
        return "active" if now_ms < self.until_ms and self.used < self.most else "expired"


@dataclass
class Invite:
    invite_id: str
    invitee: str
    inviter: str
    status: str = "pending"


@dataclass
class Rotation:
    rotation_id: str
    by: str
    base: int
    members: list[str]
    required: set[str]
    until_ms: int
    acked: set[str] = field(default_factory=set)
    status: str = "distributing"


@dataclass
class Proposal:
    proposal_id: str
    actor: str
    version: int
    hash: str
    previous: str
    members: tuple[str, ...]
    due_ms: int
    status: str = "pending"


@dataclass
class Group:
    gid: str
    owner: str
    visibility: str
    name: str = "Team"
    status: str = "active"
    members: dict[str, Member] = field(default_factory=dict)
    left: dict[str, Left] = field(default_factory=dict)
    bans: dict[str, int] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)
    requests: dict[str, str] = field(default_factory=dict)
    invites: list[Invite] = field(default_factory=list)
    codes: list[Code] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    etag: str = ""
    rows: list[Row] = field(default_factory=list)
    head: int = 0
    floor: int = 0
    lost: int = 0
    events: list[tuple[int, str]] = field(default_factory=list)
    event_head: int = 0
    cursors: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    reads: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    epoch: int = 1
    legacy: int = 0
    rotations: list[Rotation] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)
    state: Proposal | None = None

    # Who.

    def rank(self, aid: str) -> int:
        return RANK[self.members[aid].role] if aid in self.members else 0

    def enter(self, aid: str, least: str = "member") -> Wrong:
        if self.status == "dissolved":
            return {GroupNotFound}
        if aid not in self.members:
            return {NotMember}
        return {RoleInsufficient} if self.rank(aid) < RANK[least] else set()

    def banned(self, aid: str, now_ms: int) -> bool:
        return aid in self.bans and (self.bans[aid] == 0 or now_ms < self.bans[aid])

    def banlist(self, now_ms: int) -> dict[str, int]:
        return {aid: until for aid, until in self.bans.items() if self.banned(aid, now_ms)}

    @property
    def mode(self) -> str:
        chosen = self.settings.get("join.mode")
        return str(chosen) if chosen else ("open" if self.visibility == "public" else "approval")

    @property
    def mention_mode(self) -> str:
        return str(self.settings.get("mention_mode", "disabled"))

    # What may be done.

    def let_in_wrong(self, aid: str, now_ms: int) -> Wrong:
        wrong: Wrong = set()
        if self.status == "dissolved":
            return {GroupNotFound}
        if aid in self.members:
            wrong.add(AlreadyMember)
        if self.banned(aid, now_ms):
            wrong.add(JoinRejected)
        if self.status == "suspended":
            wrong.add(GroupSuspended)
        if len(self.members) >= MEMBERS:
            wrong.add(MemberLimit)
        return wrong

    def add_wrong(self, actor: str, aid: str, role: str, now_ms: int) -> Wrong:
        return self.enter(actor, "owner" if role == "admin" else "admin") or self.let_in_wrong(aid, now_ms)

    def act_on_wrong(self, actor: str, aid: str) -> Wrong:
        """An admin's act on a member of a lower role."""
        if wrong := self.enter(actor, "admin"):
            return wrong
        if aid not in self.members:
            return {NotMember}
        return {RoleInsufficient} if self.rank(aid) >= self.rank(actor) else set()

    def set_role_wrong(self, actor: str, aid: str, role: str) -> Wrong:
        if wrong := self.enter(actor, "admin"):
            return wrong
        if aid not in self.members:
            return {NotMember}
        steps_down = actor == aid and role == "member"
        owners = self.members[actor].role == "owner"
        return {RoleInsufficient} if self.members[aid].role == "owner" or not (owners or steps_down) else set()

    def ban_wrong(self, actor: str, aid: str, now_ms: int) -> Wrong:
        if wrong := self.enter(actor, "admin"):
            return wrong
        if self.rank(aid) >= self.rank(actor):
            return {RoleInsufficient}
        full = len(self.banlist(now_ms).keys() - {aid}) >= BANS
        return {RateLimited} if full else set()

    def unban_wrong(self, actor: str, aid: str) -> Wrong:
        """The owner stands above everybody, so also above a ban of their own from before they owned the group."""
        if wrong := self.enter(actor, "admin"):
            return wrong
        return {RoleInsufficient} if self.rank(aid) >= self.rank(actor) and actor != self.owner else set()

    def block_wrong(self, actor: str, aid: str) -> Wrong:
        return self.enter(actor) if actor == aid else self.act_on_wrong(actor, aid)

    def speak_wrong(self, aid: str, now_ms: int) -> Wrong:
        wrong: Wrong = set()
        if self.status == "suspended" and self.rank(aid) < RANK["admin"]:
            wrong.add(GroupSuspended)
        if self.banned(aid, now_ms):
            wrong.add(NotPermitted)
        return wrong

    def send_wrong(self, aid: str, message_id: str, now_ms: int) -> Wrong:
        if wrong := self.enter(aid):
            return wrong
        known = self.find(message_id)
        if known is not None:
            return set() if known.sender == aid else {InvalidParams}
        return self.speak_wrong(aid, now_ms)

    def recall_refusal(self, aid: str, message_id: str, now_ms: int) -> str:
        row = self.find(message_id)
        if row is None:
            return "not_found"
        if row.sender != aid:
            return "not_sender"
        if row.kind in ("tombstone", "notice"):
            return "already_recalled"
        if self.status != "active":
            return "group_inactive"
        return "expired" if now_ms - row.at_ms > RECALL_MS else ""

    def ask_wrong(self, aid: str, now_ms: int) -> Wrong:
        """A request to join in the mode `approval`, or where nobody comes in by request."""
        wrong = self.let_in_wrong(aid, now_ms) - {MemberLimit}
        if self.mode != "approval":
            wrong.add(JoinRejected)
        waiting = sum(status == "pending" for status in self.requests.values())
        if self.requests.get(aid) != "pending" and waiting >= int(self.settings.get("join.max_pending", 100)):
            wrong.add(JoinRejected)
        return wrong

    def review_wrong(self, actor: str, aid: str, approve: bool, now_ms: int) -> Wrong:
        if wrong := self.enter(actor, "admin"):
            return wrong
        wrong = {GroupSuspended} if self.status == "suspended" else set()
        if self.requests.get(aid) != "pending":
            return wrong | {NotFound}
        return wrong | (self.let_in_wrong(aid, now_ms) if approve else set())

    def code_wrong(self, actor: str, text: str, now_ms: int) -> Wrong:
        if wrong := self.enter(actor, "admin"):
            return wrong
        wrong = {GroupSuspended} if self.status == "suspended" else set()
        if sum(one.status(now_ms) == "active" for one in self.codes) >= CODES:
            wrong.add(RateLimited)
        return wrong

    def use_wrong(self, code: Code, aid: str, now_ms: int) -> Wrong:
        if self.status == "dissolved" or code not in self.codes or code.status(now_ms) != "active":
            return {InviteCodeInvalid}
        return self.let_in_wrong(aid, now_ms)

    def invite_wrong(self, actor: str, aid: str, now_ms: int) -> Wrong:
        if wrong := self.enter(actor, "member" if self.visibility == "public" else "admin"):
            return wrong
        wrong = self.let_in_wrong(aid, now_ms) - {MemberLimit}
        pending = [one for one in self.invites if one.status == "pending"]
        again = any((one.invitee, one.inviter) == (aid, actor) for one in pending)
        if len(pending) >= INVITES and not again:
            wrong.add(RateLimited)
        return wrong

    def accept_wrong(self, invite: Invite, aid: str, now_ms: int) -> Wrong:
        if invite.invitee != aid:
            return {NotPermitted}
        return {Conflict} if invite.status != "pending" else self.let_in_wrong(aid, now_ms)

    def propose_wrong(self, actor: str, version: int, previous: str) -> Wrong:
        if wrong := self.enter(actor, "admin"):
            return wrong
        if version == 1 and actor != self.owner:
            return {RoleInsufficient}
        if not self.follows(version, previous):
            return {GroupStateMismatch}
        full = sum(one.status == "pending" for one in self.proposals) >= PROPOSALS
        return {RateLimited} if full else set()

    def follows(self, version: int, previous: str) -> bool:
        state = self.state
        return (version, previous) == ((state.version + 1, state.hash) if state else (1, ""))

    def confirm_wrong(self, actor: str, proposal: Proposal) -> Wrong:
        if wrong := self.enter(actor, "admin"):
            return wrong
        if proposal not in self.proposals:
            return {NotFound}
        return {GroupStateMismatch} if proposal.status == "superseded" else set()

    # What becomes of it.

    def audience(self) -> frozenset[str]:
        return frozenset(self.members)

    def hearing(self) -> frozenset[str]:
        return frozenset(self.members) - self.blocks

    def next(self, head: int, incarnation: int) -> int:
        """The number after `head`: one more, or the first one of a later incarnation (D18)."""
        return max(head, incarnation << SHIFT) + 1

    def event(self, action: str, incarnation: int) -> int:
        self.event_head = self.next(self.event_head, incarnation)
        self.events.append((self.event_head, action))
        return self.event_head

    def come(self, aid: str, role: str = "member") -> None:
        """Somebody is in: whatever waited for that waits no longer."""
        self.members[aid] = Member(role, self.head, self.event_head)
        self.left.pop(aid, None)
        self.epoch += 1
        if self.requests.get(aid) == "pending":
            self.requests[aid] = "approved"
        for one in self.invites:
            if one.invitee == aid and one.status == "pending":
                one.status = "accepted"

    def go(self, aid: str, event: int) -> None:
        self.left[aid] = Left(self.members.pop(aid).join_event, event)
        self.epoch += 1

    def say(self, row: Row, incarnation: int) -> Row:
        self.head = row.seq = self.next(self.head, incarnation)
        self.rows.append(row)
        self.lost += max(0, len(self.rows) - ROWS)
        while len(self.rows) > ROWS:
            self.floor = self.rows.pop(0).seq
        return row

    def find(self, message_id: str) -> Row | None:
        return next((row for row in self.rows if row.message_id == message_id), None)

    def dissolve(self) -> None:
        for aid in list(self.members):
            self.go(aid, self.event_head)
        for one in self.invites:
            if one.status == "pending":
                one.status = "revoked"
        self.status = "dissolved"
        self.codes, self.requests, self.proposals, self.rotations = [], {}, [], []

    def confirm(self, won: Proposal) -> None:
        """Of all that follow the same state one is confirmed; the others never are."""
        for one in self.proposals:
            if one.status == "pending":
                one.status = "superseded"
        won.status, self.state = "confirmed", won

    def open_rotation(self, now_ms: int) -> Rotation | None:
        last = self.rotations[-1] if self.rotations else None
        return last if last is not None and last.status == "distributing" and now_ms < last.until_ms else None

    # What may be read.

    def readable(self, aid: str) -> list[Row]:
        """The messages that a member is shown, oldest first (G-7, G-10, G-23)."""
        if aid in self.blocks:
            return []
        above = self.members[aid].join_seq
        return [row for row in self.rows if row.seq > above and (row.readers is None or aid in row.readers)]

    def span(self, aid: str) -> tuple[int, int] | None:
        """The events somebody may read: above the first number, up to the second."""
        if aid in self.left:
            return self.left[aid].first, self.left[aid].last
        if self.status != "dissolved" and aid in self.members:
            return self.members[aid].join_event, self.event_head
        return None

    def trusted(self, sender: str) -> frozenset[str]:
        """For whom a message is encrypted: whom the signed state vouches for, in open groups everybody (§5.3)."""
        trusted = set(self.members)
        if self.state is not None and self.mode != "open":
            trusted &= set(self.state.members) | {sender}
        return frozenset(trusted - self.blocks)
