"""Any order of what may happen to groups, crashes and restores in between, against a model made from the spec.

Every call is compared: whether it may be, with which error, what it answers, which events go out to whom. After every
step what the node shows of the groups is compared with the model whole, to an owner, a member, one who left, an
outsider. `tests.support.group_model` has the rules.
"""

from __future__ import annotations

import asyncio
import atexit
import copy
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge.contract.errors import (
    Conflict,
    EdgeError,
    EpochStale,
    InvalidParams,
    NameTaken,
    NotMember,
    NotPermitted,
    RateLimited,
    RecipientsStale,
    RoleInsufficient,
    StateStale,
    VersionConflict,
)
from edge.contract.time import SECOND, Stamp
from edge.contract.wire import JsonLimits, loads
from edge.services.group import limits as bounds
from edge.store import group_logs, ledger
from tests.services.group.test_settings import index, register
from tests.support.clock import EPOCH_US, FakeClock, turn
from tests.support.group_model import (
    BANS,
    CODES,
    INVITES,
    MEMBERS,
    PROPOSALS,
    RANK,
    ROWS,
    Code,
    Group,
    Invite,
    Member,
    Proposal,
    Rotation,
    Row,
    Wrong,
)
from tests.support.groups import DAVE, Square, envelope, publish_key, square
from tests.support.messaging import ALICE, BOB, CAROL, ISSUER, Client

ERIN = f"erin.{ISSUER}"
AIDS = (ALICE, BOB, CAROL, DAVE, ERIN)
DEVICES = ("d1", "d1", "d2")
LIMITS = {
    bounds.MEMBERS.name: MEMBERS,
    bounds.CODES.name: CODES,
    bounds.INVITES.name: INVITES,
    bounds.SHUTS.name: BANS,
    bounds.PROPOSALS.name: PROPOSALS,
    bounds.ROWS.name: ROWS,
}
LEASE_MS = 60_000
LIVES = ("stop", "kill", "kill", "save", "restore", "restore")
QUIET = ("group.v2.state_retry_needed",)
"""Events that are only looked at for who hears them."""


class Boots(FakeClock):
    """A clock that knows the boots before its own, as the node does from its table."""

    def __init__(self, before: Boots | None = None) -> None:
        super().__init__(before.boot + 1 if before else 1)
        self._zero: dict[int, int] = dict(before._zero) if before else {}
        now_us = before.wall(before.now())[0] + SECOND if before else EPOCH_US + SECOND
        self._zero[self.boot] = now_us - self.mono_us

    def wall(self, at: Stamp) -> tuple[int, int]:
        return self._zero[at.boot] + at.mono_us, 0

    @property
    def now_ms(self) -> int:
        return self.wall(self.now())[0] // 1000


def house(folder: Path, clock: FakeClock, incarnation: int = 0) -> Any:
    return square(
        folder, clock=clock, limits=LIMITS, incarnation=incarnation, synchronous="OFF", made_us=EPOCH_US + SECOND
    )


@cache
def registered() -> Path:
    """A database in which everybody has a key; made once."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)

    async def make() -> None:
        async with house(Path(folder.name), FakeClock()) as town:
            for aid in AIDS:
                await register(town, aid)

    asyncio.run(make())
    return Path(folder.name)


class Move(NamedTuple):
    """Something that may happen: how, how often beside others, when, with what."""

    run: Callable[..., None]
    weight: int
    when: Callable[[Any], bool]
    given: Mapping[str, Any]


MOVES: list[Move] = []
DATA = object()


def move(weight: int = 2, when: Callable[[Any], bool] = lambda self: True, **given: Any) -> Any:
    """Note something that may happen; `given` are what to choose its arguments from."""

    def keep(run: Callable[..., None]) -> Callable[..., None]:
        MOVES.append(Move(run, weight, when, given))
        return run

    return keep


class Groups(RuleBasedStateMachine):
    """Five AIDs with two devices each, and the groups they make."""

    weights: ClassVar[Mapping[str, int] | None] = None
    """Of the moves that happen at all, how often each; None is every move by its own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="groups-machine-"))
        self.copies = 0
        self.incarnation = 0
        self.clock = Boots()
        self.groups: list[Group] = []
        self.keys: dict[str, tuple[str, str]] = {}
        self.expected: Counter[tuple[str, str, int, str, frozenset[str]]] = Counter()
        self.ever: dict[tuple[str, str], int] = {}
        self.saved: tuple[Path, list[Group], dict[str, tuple[str, str]]] | None = None
        self.count = self.steps = 0
        self.returned = True

    # The node: opened, ended, gone.

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def open(self, folder: Path) -> None:
        self.close = asyncio.Event()
        opened: asyncio.Future[Square] = asyncio.get_running_loop().create_future()

        async def hold(close: asyncio.Event) -> None:
            try:
                async with house(folder, self.clock, self.incarnation) as town:
                    town.post.aids.add(ERIN)
                    opened.set_result(town)
                    await close.wait()
            except Exception as error:
                if opened.done():
                    raise
                opened.set_exception(error)

        self.held = asyncio.create_task(hold(self.close))
        self.town = await opened
        self.place = folder
        await self.town.post.rest()

    async def end(self) -> None:
        self.close.set()
        await self.held

    def copied(self, files: Path) -> Path:
        """The database as a kill would leave it: what is in the files now, the WAL's index aside."""
        self.copies += 1
        folder = self.folder / str(self.copies)
        folder.mkdir()
        for name in ("node.db", "node.db-wal"):
            if (files / name).exists():
                shutil.copy(files / name, folder / name)
        return folder

    async def reopen(self, folder: Path) -> None:
        """The next boot of the node, on these files."""
        self.incarnation = max(self.incarnation, self.town.post.node.incarnation)
        await self.end()
        self.clock = Boots(self.clock)
        self.settle_due(self.clock.now_ms)
        await self.open(folder)
        self.town.post.heard.clear()
        self.expected.clear()
        self.returned = True

    @initialize(visibility=st.sampled_from(["private", "public"]), count=st.integers(1, 3))
    def begin(self, visibility: str, count: int) -> None:
        self.do(self.open(self.copied(registered())))
        self.found(visibility, 0, False)
        for at in range(1, count + 1):
            self.add(0, 0, AIDS[at], "admin" if at == 1 else "member")

    def teardown(self) -> None:
        if hasattr(self, "held"):
            self.do(self.end())
        self.runner.close()
        shutil.rmtree(self.folder)

    # Calls.

    def client(self, aid: str, device: str = "") -> Client:
        return self.town.post.offline(aid, device)

    def call(self, client: Client, method: str, wrong: Wrong, /, **params: Any) -> Any:
        """A call that must be refused for one of these reasons, or answered when there is none."""
        self.clock.advance_to(self.clock.mono_us)

        async def one() -> Any:
            self.clock.advance(1_000)
            self.settle_due(self.clock.now_ms)
            await turn(1)
            return await client.call(method, **params)

        return self.compare(one(), wrong, method, params)

    def compare(self, call: Coroutine[Any, Any, Any], wrong: Wrong, *what: object) -> Any:
        """Its answer; None when it was refused as it should be."""
        refused: EdgeError | None = None
        try:
            answer = self.do(call)
        except EdgeError as error:
            refused = error
        # A number above the head may have begun a new incarnation (D18): when is the store's business.
        self.incarnation = self.town.post.node.incarnation
        if refused is not None:
            assert type(refused) in wrong, (what, repr(refused), wrong)
            return None
        assert not wrong, (what, "was let through", wrong)
        return answer

    @property
    def now_ms(self) -> int:
        """When the next call is made."""
        return self.clock.now_ms + 1

    def group(self, at: int) -> Group:
        """One of the groups, mostly one that is not dissolved."""
        live = [group for group in self.groups if group.status != "dissolved"]
        among = live if live and at % 8 else self.groups
        return among[at % len(among)]

    def expect(self, kind: str, group: Group, seq: int, action: str, audience: frozenset[str]) -> None:
        self.expected[kind, group.gid, seq, action, audience] += 1

    def changed(self, group: Group, action: str, before: frozenset[str] | None = None) -> int:
        """An event for everybody who was or is in the group."""
        seq = group.event(action, self.incarnation)
        self.expect("group.changed", group, seq, action, group.audience() | (before or frozenset()))
        return seq

    def came(self, group: Group, aid: str, action: str, role: str = "member") -> None:
        """Somebody came in: one event for everybody, and the end of what waited for it."""
        ended = sum((one.invitee, one.status) == (aid, "pending") for one in group.invites)
        group.members[aid] = Member(role, 0, 0)
        audience = group.audience()
        joined = group.event_head
        seq = group.event(action, self.incarnation)
        group.come(aid, role)
        group.members[aid].join_event = joined
        self.expect("group.changed", group, seq, action, audience)
        self.ended_invites(group, aid, ended)

    def ended_invites(self, group: Group, aid: str, count: int) -> None:
        """The invitee is told of the end of invitations, however many ended at once."""
        if count:
            self.expect("group.invite_finalized", group, 0, "", frozenset({aid}))

    def went(self, group: Group, aid: str, action: str) -> None:
        group.go(aid, self.changed(group, action))

    def settle_due(self, now_ms: int) -> None:
        """Proposals whose time has come are confirmed, if their proposers may still propose."""
        for group in self.groups:
            for one in sorted(group.proposals, key=lambda one: one.due_ms):
                if one.status == "pending" and one.due_ms <= now_ms:
                    if group.rank(one.actor) >= RANK["admin"] and group.follows(one.version, one.previous):
                        group.confirm(one)
                        self.expect("group.v2.state_confirmed", group, 0, "", group.audience())
                    else:
                        one.status = "superseded"

    @rule(seed=st.binary(min_size=4, max_size=4))
    def act(self, seed: bytes) -> None:
        """Whatever may happen now. Drawn evenly: hypothesis itself would leave many of so many rules out of an
        example, and repeat the others."""
        self.steps += 1
        data = Random(seed + self.steps.to_bytes(2))
        chosen = data.choice([one for one in MOVES if one.when(self) for _ in range(self.weight(one))])
        given = {name: data if among is DATA else data.choice(among) for name, among in chosen.given.items()}
        note(f"{chosen.run.__name__} { ({name: one for name, one in given.items() if one is not data}) }")
        chosen.run(self, **given)

    def weight(self, one: Move) -> int:
        return one.weight if self.weights is None else self.weights.get(one.run.__name__, 0)

    # Lifecycle.

    @move(weight=1, visibility=["private", "public"], by=range(0, 5), again=(False, True))
    def found(self, visibility: str, by: int, again: bool) -> None:
        owner, key = AIDS[by], f"k-{by}-{len(self.groups)}"
        if self.keys and (again or len(self.groups) >= 3):
            key = sorted(self.keys)[by % len(self.keys)]
            owner = self.keys[key][0]
        known = next((g for g in self.groups if g.gid == self.keys.get(key, ("", ""))[1]), None)
        wrong: Wrong = set()
        if known is not None and known.status == "dissolved":
            wrong = {NameTaken}
        made = self.call(
            self.client(owner),
            "group.create",
            wrong,
            name="Team",
            visibility=visibility,
            _create_request_id=key,
        )
        if wrong:
            return
        if known is not None:
            assert made["group_id"] == known.gid
            return
        group = Group(made["group_id"], owner, visibility)
        group.members[owner] = Member("owner", 0, 0)
        self.keys[key] = (owner, group.gid)
        self.groups.append(group)
        self.changed(group, "upsert")
        self.expect("group.created", group, 0, "", frozenset({owner}))
        assert made["group"]["owner_aid"] == owner

    @move(weight=2, at=range(16), data=DATA, what=["suspend", "resume"])
    def sleep(self, at: int, data: Random, what: str) -> None:
        group = self.group(at)
        self.turn(group, self.actor(data, group, "admin"), what)

    def turn(self, group: Group, actor: str, what: str) -> None:
        answer = self.call(self.client(actor), f"group.{what}", group.enter(actor, "admin"), group_id=group.gid)
        if answer is None:
            return
        status = "suspended" if what == "suspend" else "active"
        if group.status == status:
            assert answer["status"] == "unchanged"
            return
        group.status = status
        assert answer["status"] == status
        self.changed(group, "suspended" if what == "suspend" else "resumed")

    @move(weight=1, when=lambda self: self.count % 5 == 0, at=range(16), data=DATA)
    def dissolve(self, at: int, data: Random) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "owner")
        answer = self.call(self.client(actor), "group.dissolve", group.enter(actor, "owner"), group_id=group.gid)
        if answer is None:
            return
        self.changed(group, "dissolved")
        for one in group.invites:
            if one.status == "pending":
                self.expect("group.invite_finalized", group, 0, "", frozenset({one.invitee}))
        group.dissolve()

    # Members.

    @move(weight=4, at=range(16), data=DATA, role=["member", "member", "admin"])
    def add_somebody(self, at: int, data: Random, role: str) -> None:
        group = self.group(at)
        least = "owner" if role == "admin" else "admin"
        self.add(at, AIDS.index(self.actor(data, group, least)), self.anybody(data, group, inside=1), role)

    def add(self, at: int, by: int, aid: str, role: str) -> None:
        group, actor = self.group(at), AIDS[by]
        wrong = group.add_wrong(actor, aid, role, self.now_ms)
        answer = self.call(self.client(actor), "group.add_member", wrong, group_id=group.gid, aid=aid, role=role)
        if answer is not None:
            self.came(group, aid, "member_added", role)
            assert (answer["member"]["aid"], answer["member"]["role"]) == (aid, role)

    @move(at=range(16), data=DATA)
    def kick(self, at: int, data: Random) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "admin")
        self.kick_out(group, actor, self.anybody(data, group, likely=self.below(group, actor)))

    def kick_out(self, group: Group, actor: str, aid: str) -> None:
        wrong = group.act_on_wrong(actor, aid)
        answer = self.call(self.client(actor), "group.kick", wrong, group_id=group.gid, aid=aid)
        if answer is not None:
            self.went(group, aid, "member_removed")

    @move(at=range(16), data=DATA)
    def leave(self, at: int, data: Random) -> None:
        group = self.group(at)
        aid = self.anybody(data, group)
        wrong = group.enter(aid) or ({RoleInsufficient} if group.owner == aid else set())
        if self.call(self.client(aid), "group.leave", wrong, group_id=group.gid) is not None:
            self.went(group, aid, "member_left")

    @move(at=range(16), data=DATA, role=["member", "admin"])
    def set_role(self, at: int, data: Random, role: str) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "owner")
        self.give_role(group, actor, self.anybody(data, group, likely=self.below(group, actor)), role)

    def give_role(self, group: Group, actor: str, aid: str, role: str) -> None:
        wrong = group.set_role_wrong(actor, aid, role)
        answer = self.call(self.client(actor), "group.set_role", wrong, group_id=group.gid, aid=aid, role=role)
        if answer is None:
            return
        assert (answer["old_role"], answer["new_role"]) == (group.members[aid].role, role)
        if group.members[aid].role != role:
            group.members[aid].role = role
            self.changed(group, "role_changed")

    @move(at=range(16), data=DATA)
    def transfer(self, at: int, data: Random) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "owner")
        to = self.anybody(data, group, likely=self.below(group, actor))
        wrong = group.enter(actor, "owner")
        if not wrong and to not in group.members:
            wrong = {NotMember}
        elif not wrong and to == actor:
            wrong = {InvalidParams}
        answer = self.call(self.client(actor), "group.transfer_owner", wrong, group_id=group.gid, new_owner=to)
        if answer is not None:
            group.members[actor].role, group.members[to].role, group.owner = "admin", "owner", to
            self.changed(group, "owner_transferred")
            assert answer["status"] == "transferred"

    @move(weight=3, at=range(16), data=DATA, seconds=[0, 60, 60])
    def ban(self, at: int, data: Random, seconds: int) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "admin")
        aid = self.anybody(data, group, inside=data.choice((1, 3, 3)), likely=self.below(group, actor))
        wrong = group.ban_wrong(actor, aid, self.now_ms)
        answer = self.call(
            self.client(actor), "group.ban", wrong, group_id=group.gid, subject=aid, expires_in_seconds=seconds
        )
        if answer is not None:
            group.bans[aid] = self.clock.now_ms + seconds * 1000 if seconds else 0
            assert answer["ban"]["expires_at"] == group.bans[aid]
            self.changed(group, "member_banned")

    @move(at=range(16), data=DATA)
    def unban(self, at: int, data: Random) -> None:
        group = self.group(at)
        actor, aid = self.actor(data, group, "admin"), self.anybody(data, group, likely=list(group.bans))
        wrong = group.unban_wrong(actor, aid)
        held = group.banned(aid, self.now_ms)
        if self.call(self.client(actor), "group.unban", wrong, group_id=group.gid, subject=aid) is not None:
            group.bans.pop(aid, None)
            if held:
                self.changed(group, "member_unbanned")

    @move(at=range(16), data=DATA, block=(False, True))
    def block(self, at: int, data: Random, block: bool) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "admin")
        aid = self.anybody(data, group, likely=[] if block else sorted(group.blocks))
        wrong = group.block_wrong(actor, aid)
        if block and not wrong and len(group.blocks - {aid}) >= BANS:
            wrong = {RateLimited}
        name = "group.block" if block else "group.unblock"
        if self.call(self.client(actor), name, wrong, group_id=group.gid, subject=aid) is None:
            return
        if block:
            group.blocks.add(aid)
            self.changed(group, "member_blocked")
        elif aid in group.blocks:
            group.blocks.discard(aid)
            self.changed(group, "member_unblocked")

    # Ways in.

    @move(weight=4, at=range(16), data=DATA, answer=["", "because"])
    def request_join(self, at: int, data: Random, answer: str) -> None:
        group = self.group(at)
        aid = self.anybody(data, group, inside=1)
        opened = group.mode == "open"
        wrong = group.let_in_wrong(aid, self.now_ms) if opened else group.ask_wrong(aid, self.now_ms)
        asks = not opened and bool(group.settings.get("join.question")) and not answer
        if asks and len(wrong) == 1:
            waiting = [one for one, status in group.requests.items() if status == "pending"]
            full = len(waiting) >= int(group.settings.get("join.max_pending", 100))
            if full and group.mode == "approval" and not group.banned(aid, self.now_ms) and aid not in group.members:
                wrong = wrong if group.status == "suspended" else set()
        found = self.call(self.client(aid), "group.request_join", wrong, group_id=group.gid, answer=answer)
        if found is None:
            return
        if opened:
            assert found["status"] == "joined"
            self.came(group, aid, "joined")
        elif asks:
            assert (found["status"], found["question"]) == ("question_required", group.settings["join.question"])
        else:
            assert found["status"] == "pending"
            if group.requests.get(aid) != "pending":
                group.requests[aid] = "pending"
                self.changed(group, "join_requested")

    @move(
        weight=4,
        when=lambda self: any(group.requests for group in self.groups),
        data=DATA,
        approve=[True, True, False],
        batch=(False, True),
    )
    def review(self, data: Random, approve: bool, batch: bool) -> None:
        """Of somebody who waits, or whose request is over: that is nobody's any more."""
        asked = [group for group in self.groups if "pending" in group.requests.values()]
        group = data.choice([*asked, *asked, *self.groups])
        waiting = sorted(aid for aid, status in group.requests.items() if status == "pending")
        over = sorted(group.requests.keys() - set(waiting))
        actor, aid = self.actor(data, group, "admin"), self.anybody(data, group, likely=[*waiting, *waiting, *over])
        self.judge(group, actor, aid, approve, batch)

    @move(when=lambda self: bool(self.waiting()), data=DATA, approve=[True, False], batch=(False, True))
    def review_asleep(self, data: Random, approve: bool, batch: bool) -> None:
        """A group that is suspended lets nobody in and turns nobody away."""
        group, aid = data.choice(self.waiting())
        self.turn(group, group.owner, "suspend")
        self.judge(group, group.owner, aid, approve, batch)
        self.turn(group, group.owner, "resume")

    def waiting(self) -> list[tuple[Group, str]]:
        """Who asks to come in, and where."""
        return [(group, aid) for group in self.groups for aid, one in group.requests.items() if one == "pending"]

    def judge(self, group: Group, actor: str, aid: str, approve: bool, batch: bool) -> None:
        wrong = group.review_wrong(actor, aid, approve, self.now_ms)
        if batch and not group.enter(actor, "admin"):
            done = self.call(
                self.client(actor),
                "group.batch_review_join_request",
                set(),
                group_id=group.gid,
                requests=[{"aid": aid, "approve": approve}],
            )
            assert (done["success_count"], done["fail_count"]) == ((0, 1) if wrong else (1, 0))
            if wrong:
                return
        else:
            name = "group.review_join_request"
            if self.call(self.client(actor), name, wrong, group_id=group.gid, aid=aid, approve=approve) is None:
                return
        if approve:
            self.came(group, aid, "join_approved")
        else:
            group.requests[aid] = "rejected"
            self.changed(group, "join_rejected")
            self.expect("group.changed", group, 0, "join_rejected", frozenset({aid}))

    @move(at=range(16), data=DATA, most=range(1, 3), seconds=[60, 3600])
    def make_code(self, at: int, data: Random, most: int, seconds: int) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "admin")
        self.count += 1
        text = f"Code-{self.count}"
        wrong = group.code_wrong(actor, text, self.now_ms)
        made = self.call(
            self.client(actor),
            "group.create_invite_code",
            wrong,
            group_id=group.gid,
            code=text,
            max_uses=most,
            expires_in_seconds=seconds,
        )
        if made is None:
            return
        if len(group.codes) >= CODES:
            group.codes = [one for one in group.codes if one.status(self.clock.now_ms) == "active"]
        group.codes.append(Code(text.lower(), most, self.clock.now_ms + seconds * 1000))
        self.changed(group, "invite_code_created")

    @move(weight=4, when=lambda self: any(group.codes for group in self.groups), data=DATA)
    def use_code(self, data: Random) -> None:
        """One after the other, so that the last use is tried again."""
        group, code = data.choice([(g, one) for g in self.groups for one in g.codes])
        for _ in range(2):
            aid = self.anybody(data, group, inside=1)
            wrong = group.use_wrong(code, aid, self.now_ms)
            if self.call(self.client(aid), "group.use_invite_code", wrong, code=code.text.upper()) is not None:
                code.used += 1
                self.came(group, aid, "invite_code_used")

    @move(when=lambda self: any(group.codes for group in self.groups), data=DATA)
    def revoke_code(self, data: Random) -> None:
        group, code = data.choice([(g, one) for g in self.groups for one in g.codes])
        actor = self.actor(data, group, "admin")
        wrong = group.enter(actor, "admin")
        name = "group.revoke_invite_code"
        if self.call(self.client(actor), name, wrong, group_id=group.gid, code=code.text) is not None:
            if not code.revoked:
                self.changed(group, "invite_code_revoked")
            code.revoked = True

    @move(weight=3, at=range(16), data=DATA)
    def invite(self, at: int, data: Random) -> None:
        group = self.group(at)
        actor, aid = self.actor(data, group, "admin"), self.anybody(data, group, inside=1)
        wrong = group.invite_wrong(actor, aid, self.now_ms)
        made = self.call(self.client(actor), "group.invite_member", wrong, group_id=group.gid, aid=aid)
        if made is None:
            return
        same = [one for one in group.invites if (one.invitee, one.inviter, one.status) == (aid, actor, "pending")]
        if same:
            assert made["invite_id"] == same[0].invite_id
            return
        group.invites.append(Invite(made["invite_id"], aid, actor))
        self.expect("group.invite_created", group, 0, "", frozenset({aid}))

    @move(
        weight=3,
        when=lambda self: any(group.invites for group in self.groups),
        data=DATA,
        what=["accept", "accept", "reject", "revoke"],
        honest=range(0, 5),
    )
    def answer_invite(self, data: Random, what: str, honest: int) -> None:
        found = [(g, one) for g in self.groups for one in g.invites]
        waiting = [(g, one) for g, one in found if one.status == "pending"]
        group, one = data.choice([*waiting, *waiting, *waiting, *found[-3:]])
        party = one.inviter if what == "revoke" else one.invitee
        aid = party if honest else data.choice(AIDS)
        if aid != party:
            wrong: Wrong = {NotPermitted}
        elif what == "accept":
            wrong = group.accept_wrong(one, aid, self.now_ms)
        else:
            wrong = {Conflict} if one.status != "pending" else set()
        if self.call(self.client(aid), f"group.{what}_invite", wrong, invite_id=one.invite_id) is None:
            return
        if what == "accept":
            self.came(group, aid, "joined")
            return
        ended = [one] if what == "revoke" else [o for o in group.invites if o.invitee == aid and o.status == "pending"]
        for each in ended:
            each.status = "revoked" if what == "revoke" else "rejected"
        self.ended_invites(group, one.invitee, len(ended))

    # Settings.

    @move(
        at=range(16),
        data=DATA,
        key=["mention_mode", "name", "visibility"],
        value=(False, True),
    )
    def set_setting(self, at: int, data: Random, key: str, value: bool) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "admin")
        chosen = {
            "mention_mode": ("disabled", "mention-only"),
            "name": ("Team", "Crew"),
            "visibility": ("private", "public"),
        }[key][value]
        wrong = group.enter(actor, "admin")
        name = "group.set_settings"
        if self.call(self.client(actor), name, wrong, group_id=group.gid, settings={key: chosen}) is None:
            return
        if key == "mention_mode":
            group.settings[key] = chosen
        elif key == "name":
            group.name = chosen
        else:
            group.visibility = chosen
        self.changed(group, "update")

    @move(
        weight=3,
        at=range(16),
        data=DATA,
        mode=["open", "approval", "approval", "closed"],
        question=["", "Why?"],
        most=range(1, 3),
    )
    def set_rules(self, at: int, data: Random, mode: str, question: str, most: int) -> None:
        group = self.group(at)
        self.put_rules(group, self.actor(data, group, "admin"), mode, question, most)

    def put_rules(self, group: Group, actor: str, mode: str, question: str, most: int) -> None:
        asked = {"mode": mode, "question": question, "max_pending": most}
        wrong = group.enter(actor, "admin")
        if self.call(self.client(actor), "group.update_rules", wrong, group_id=group.gid, **asked) is not None:
            group.settings |= {"join.mode": mode, "join.question": question, "join.max_pending": most}
            group.etag = ""
            self.changed(group, "rules_updated")

    @move(weight=3, at=range(16), data=DATA, stale=[False, False, True])
    def write_document(self, at: int, data: Random, stale: bool) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "admin")
        self.count += 1
        key, text = "rules.content", f"Rules {self.count}"
        signed = index(group.gid, key, signer=actor, last_modified=self.count)
        wrong = group.enter(actor, "admin") or ({VersionConflict} if stale else set())
        answer = self.call(
            self.client(actor),
            "group.set_settings",
            wrong,
            group_id=group.gid,
            settings={key: text, "group.index": signed},
            expected_index_etag='"sha256:00"' if stale else group.etag,
        )
        if answer is not None:
            group.settings[key] = text
            group.etag = answer["_meta"]["group_indexes"][group.gid]["etag"]
            self.changed(group, "rules_updated")

    # Messages.

    @move(weight=5, at=range(16), data=DATA, again=[False, False, False, True])
    def send(self, at: int, data: Random, again: bool) -> None:
        group = self.group(at)
        known = [row.message_id for row in group.rows if row.kind != "notice"]
        self.count += 1
        message_id = data.choice(known) if again and known else f"m-{self.count}"
        self.say(group, self.actor(data, group, "member"), message_id)

    def say(self, group: Group, actor: str, message_id: str) -> Any:
        wrong = group.send_wrong(actor, message_id, self.now_ms)
        known = group.find(message_id)
        text = f"text of {message_id}"
        answer = self.call(
            self.client(actor, "d1"),
            "group.send",
            wrong,
            group_id=group.gid,
            payload={"type": "text", "text": text},
            message_id=message_id,
        )
        if answer is None:
            return None
        if known is not None:
            assert (answer["seq"], answer["status"]) == (known.seq, "duplicate"), (answer, known, group.rows)
            return answer
        row = group.say(Row(0, actor, message_id, text, group.mention_mode, self.clock.now_ms), self.incarnation)
        assert (answer["seq"], answer["status"]) == (row.seq, "sent")
        assert answer["message"]["mention_mode"] == row.mode
        self.expect("group.message_created", group, row.seq, "", group.hearing())
        return answer

    @move(
        weight=3,
        at=range(16),
        data=DATA,
        fault=["", "", "", "epoch", "missing", "stranger", "state"],
    )
    def seal(self, at: int, data: Random, fault: str) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "member")
        wrong = group.enter(actor) or group.speak_wrong(actor, self.now_ms)
        to = set(group.trusted(actor)) | {actor}
        state = None
        if fault == "missing" and to - {actor}:
            to.discard(min(to - {actor}))
            wrong = wrong or {RecipientsStale}
        elif fault == "stranger" and set(AIDS) - to:
            to.add(min(set(AIDS) - to))
            wrong = wrong or {RecipientsStale}
        elif fault == "epoch":
            wrong = wrong or {EpochStale}
        elif fault == "state" and group.state is not None:
            state = {"state_version": group.state.version + 1, "state_hash": group.state.hash, "state_chain": ""}
            wrong = wrong or {StateStale}
        self.count += 1
        message_id = f"e-{self.count}"
        client = self.client(actor, "d1")
        made = envelope(
            client,
            group.gid,
            [(aid, "") for aid in sorted(to)],
            epoch=group.epoch + (fault == "epoch"),
            message_id=message_id,
            state=state,
        )
        answer = self.call(client, "group.v2.send", wrong, group_id=group.gid, message_id=message_id, envelope=made)
        if answer is not None:
            row = Row(0, actor, message_id, "", group.mention_mode, self.clock.now_ms, "sealed", frozenset(to))
            assert answer["seq"] == group.say(row, self.incarnation).seq
            self.expect("group.message_created", group, row.seq, "", group.hearing())

    @move(
        weight=3,
        when=lambda self: bool(self.known()),
        data=DATA,
        own=[True, True, False],
    )
    def recall(self, data: Random, own: bool) -> None:
        group, row = data.choice(self.known())
        actor = row.sender if own else data.choice(AIDS)
        wrong, mode = group.enter(actor), row.mode
        why = group.recall_refusal(actor, row.message_id, self.now_ms)
        answer = self.call(self.client(actor), "group.recall", wrong, group_id=group.gid, message_ids=[row.message_id])
        if answer is None:
            return
        if why:
            assert answer["errors"] == [{"message_id": row.message_id, "error": why}]
            assert (answer["accepted"], answer["recalled"]) == ([], [])
            return
        assert answer["recalled"] == [row.message_id]
        row.kind, row.text, row.readers = "tombstone", "", None
        notice = Row(0, actor, "", "", mode, self.clock.now_ms, "notice")
        group.say(notice, self.incarnation)
        self.changed(group, "message_recalled")
        self.expect("group.message_recalled", group, 0, "", group.hearing())

    @move(at=range(16), data=DATA, step=range(-3, 3), limit=range(1, 5), v2=(False, True))
    def pull(self, at: int, data: Random, step: int, limit: int, v2: bool) -> None:
        group = self.group(at)
        aid, device = self.anybody(data, group), data.choice(DEVICES)
        after = max(0, group.head + step)
        page = self.call(
            self.client(aid, device),
            "group.v2.pull" if v2 else "group.pull",
            group.enter(aid),
            group_id=group.gid,
            after_seq=after,
            limit=limit,
        )
        if page is None:
            return
        shown = [row for row in group.readable(aid) if row.seq > after]
        self.same_rows(page["messages"], shown[:limit])
        assert page["has_more"] is (len(shown) > limit)
        above = max(group.members[aid].join_seq, group.floor)
        assert page["earliest_available_message_seq"] == above + 1
        assert page["retention_floor_message_seq"] == group.floor
        assert page["latest_message_seq"] == (max(after, above) if aid in group.blocks else group.head)
        stands = max(group.cursors.get((aid, device), [0, 0])[0], group.members[aid].join_seq)
        assert page["cursor"]["current_seq"] == stands
        assert page["cursor"]["unread_count"] == sum(row.seq > stands for row in group.readable(aid))

    @move(at=range(16), data=DATA, step=range(-2, 2), limit=range(1, 5))
    def history(self, at: int, data: Random, step: int, limit: int) -> None:
        group = self.group(at)
        aid, before = self.anybody(data, group), max(1, group.head + step)
        wrong = group.enter(aid)
        found = self.call(self.client(aid), "group.history", wrong, group_id=group.gid, before_seq=before, limit=limit)
        if found is None:
            return
        shown = [row for row in group.readable(aid) if row.seq < before]
        self.same_rows(found["messages"], shown[-limit:])
        start = shown[-limit:][0].seq if shown else None
        assert (found["window_start_seq"], found["next_before_seq"]) == (start, start)
        assert found["has_older"] is (len(shown) > limit)

    @move(weight=4, at=range(16), data=DATA, step=range(-4, 3), name=["ack", "v2.ack"])
    def ack(self, at: int, data: Random, step: int, name: str) -> None:
        group = self.group(at)
        aid, device = self.anybody(data, group), data.choice(DEVICES)
        for seq in (max(0, group.head + step), max(0, group.head + step - 2)):
            self.ack_to(group, aid, device, name, seq)

    def ack_to(self, group: Group, aid: str, device: str, name: str, seq: int) -> None:
        answer = self.call(self.client(aid, device), f"group.{name}", group.enter(aid), group_id=group.gid, seq=seq)
        if answer is None:
            return
        cursor = group.cursors.setdefault((aid, device), [0, 0])
        cursor[0] = max(cursor[0], min(seq, group.head), group.members[aid].join_seq)
        assert answer["ack_seq"] == answer["effective_ack_seq"] == cursor[0]

    @move(at=range(16), data=DATA, step=range(-4, 3), limit=range(1, 5))
    def pull_events(self, at: int, data: Random, step: int, limit: int) -> None:
        group = self.group(at)
        aid, device = self.anybody(data, group, likely=list(group.left)), data.choice(DEVICES)
        span, after = group.span(aid), max(0, group.event_head + step)
        wrong = set() if span else group.enter(aid)
        page = self.call(
            self.client(aid, device),
            "group.pull_events",
            wrong,
            group_id=group.gid,
            after_event_seq=after,
            limit=limit,
        )
        if page is None:
            return
        assert span is not None
        shown = [one for one in group.events if max(after, span[0]) < one[0] <= span[1]]
        assert [(one["event_seq"], one["action"]) for one in page["events"]] == shown[:limit]
        assert (page["has_more"], page["latest_event_seq"]) == (len(shown) > limit, span[1])
        stands = group.cursors.get((aid, device), [0, 0])[1]
        assert page["cursor"]["current_seq"] == max(stands, span[0])

    @move(weight=4, at=range(16), data=DATA, step=range(-4, 3))
    def ack_events(self, at: int, data: Random, step: int) -> None:
        group = self.group(at)
        aid, device = self.anybody(data, group, likely=list(group.left)), data.choice(DEVICES)
        for seq in (max(0, group.event_head + step), max(0, group.event_head + step - 2)):
            self.ack_events_to(group, aid, device, seq)

    def ack_events_to(self, group: Group, aid: str, device: str, seq: int) -> None:
        span = group.span(aid)
        wrong = set() if span else group.enter(aid)
        client = self.client(aid, device)
        answer = self.call(client, "group.ack_events", wrong, group_id=group.gid, event_seq=seq)
        if answer is None:
            return
        assert span is not None
        cursor = group.cursors.setdefault((aid, device), [0, 0])
        cursor[1] = max(cursor[1], span[0], min(seq, span[1]))
        assert answer["cursor"] == cursor[1]

    @move(weight=4, at=range(16), data=DATA, topic=["t1", "t2"])
    def read(self, at: int, data: Random, topic: str) -> None:
        """A topic is read on, and then perhaps another message of it that was before."""
        group = self.group(at)
        aid = self.anybody(data, group)
        known = [row.message_id for row in group.rows if row.message_id]
        for _ in range(2):
            self.read_to(group, aid, topic, data.choice([*known, *known, "unknown-1"]))

    def read_to(self, group: Group, aid: str, topic: str, message_id: str) -> None:
        answer = self.call(
            self.client(aid, "d1"),
            "group.read",
            group.enter(aid),
            group_id=group.gid,
            topic_key=topic,
            last_read_message_id=message_id,
        )
        if answer is None:
            return
        row = group.find(message_id)
        place = row.seq if row is not None and row.seq > group.members[aid].join_seq else 0
        before = group.reads.get((aid, topic))
        forward = before is None or place > before[0] or (before[0] == 0 == place and before[1] != message_id)
        assert answer["updated"] == int(forward)
        if forward:
            group.reads[aid, topic] = (place, message_id)
            self.expect("group.read_changed", group, 0, "", frozenset({aid}))

    # Keys.

    @move(weight=1, at=range(16), data=DATA)
    def put_key(self, at: int, data: Random) -> None:
        group = self.group(at)
        aid = self.anybody(data, group)
        publish = publish_key(self.client(aid, data.choice(DEVICES)), group.gid)
        self.compare(publish, group.enter(aid), "group.v2.put_group_pk", aid)

    @move(weight=5, at=range(16), data=DATA, fault=["", "", "", "base", "members"], acks=(False, True))
    def begin_rotation(self, at: int, data: Random, fault: str, acks: bool) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "admin")
        self.count += 1
        base = group.legacy + (fault == "base")
        members = sorted(group.members)
        answer = self.call(
            self.client(actor),
            "group.e2ee.begin_rotation",
            group.enter(actor, "admin"),
            group_id=group.gid,
            base_epoch=base,
            target_epoch=base + 1,
            rotation_id=f"r-{self.count}",
            key_commitment="c",
            expected_members=[*members, ERIN] if fault == "members" else members,
            required_acks=[members[-1]] if acks and members else [],
            lease_ms=LEASE_MS,
        )
        if answer is None:
            return
        refused = group.open_rotation(self.clock.now_ms) is not None or fault == "base"
        refused |= fault == "members" and sorted({*members, ERIN}) != members
        assert answer["success"] is not refused
        if not refused:
            if group.rotations and group.rotations[-1].status == "distributing":
                group.rotations[-1].status = "aborted"
            required = {members[-1]} if acks else set()
            until = self.clock.now_ms + LEASE_MS
            group.rotations.append(Rotation(f"r-{self.count}", actor, base, members, required, until))

    @move(
        late=[False, True],
        weight=8,
        when=lambda self: any(group.rotations for group in self.groups),
        data=DATA,
        what=["commit_rotation", "commit_rotation", "ack_rotation_key", "abort_rotation"],
    )
    def turn_rotation(self, data: Random, what: str, late: bool) -> None:
        if late:
            self.wait(LEASE_MS // 1000)
        group, one = data.choice([(g, r) for g in self.groups for r in g.rotations[-2:]])
        least = "member" if what == "ack_rotation_key" else "admin"
        actor = self.actor(data, group, least)
        answer = self.call(
            self.client(actor),
            f"group.e2ee.{what}",
            group.enter(actor, least),
            rotation_id=one.rotation_id,
            key_commitment="c",
        )
        if answer is None:
            return
        if what == "ack_rotation_key":
            assert answer["success"] is (one.status != "aborted")
            if one.status != "aborted":
                one.acked.add(actor)
            return
        if what == "abort_rotation":
            assert answer["success"] is (one.status != "committed")
            if one.status == "distributing":
                one.status = "aborted"
            return
        if one.status == "committed":
            assert answer["success"]
            return
        good = one.status == "distributing" and self.clock.now_ms < one.until_ms and one.base == group.legacy
        good = good and one.members == sorted(group.members) and not one.required - one.acked
        assert answer["success"] is good
        if good:
            one.status, group.legacy = "committed", one.base + 1

    @move(at=range(16), data=DATA, stale=(False, True))
    def rotate(self, at: int, data: Random, stale: bool) -> None:
        group = self.group(at)
        actor = self.actor(data, group, "admin")
        answer = self.call(
            self.client(actor),
            "group.e2ee.rotate_epoch",
            group.enter(actor, "admin"),
            group_id=group.gid,
            current_epoch=group.legacy + stale,
        )
        if answer is not None:
            refused = stale or group.open_rotation(self.clock.now_ms) is not None
            assert answer["success"] is not refused
            group.legacy += not refused

    @move(weight=4, at=range(16), data=DATA, fault=["", "", "", "version", "previous"])
    def propose(self, at: int, data: Random, fault: str) -> None:
        group = self.group(at)
        least = data.choice(("owner", "owner", "admin")) if group.state is None else "admin"
        actor = self.actor(data, group, least)
        version = (group.state.version if group.state else 0) + 1 + (fault == "version")
        previous = (group.state.hash if group.state else "") + ("x" if fault == "previous" else "")
        self.count += 1
        members = tuple(sorted(group.members))
        wrong = group.propose_wrong(actor, version, previous)
        made = self.call(
            self.client(actor),
            "group.v2.propose_state",
            wrong,
            group_id=group.gid,
            state_version=version,
            state_hash=f"h-{self.count}",
            prev_state_hash=previous,
            membership_snapshot=snapshot(members),
            signature=f"s-{self.count}",
            auto_confirm_seconds=30,
        )
        if made is None:
            return
        due = self.clock.now_ms + 30_000
        assert made["auto_confirm_at"] == due
        group.proposals.append(Proposal(made["proposal_id"], actor, version, f"h-{self.count}", previous, members, due))
        admins = {aid for aid in group.members if group.rank(aid) >= RANK["admin"]}
        self.expect("group.v2.state_proposed", group, 0, "", frozenset(admins - {actor}))

    @move(weight=3, when=lambda self: any(group.proposals for group in self.groups), data=DATA)
    def confirm(self, data: Random) -> None:
        group, one = data.choice([(g, p) for g in self.groups for p in g.proposals[-3:]])
        actor = self.actor(data, group, "admin")
        self.settle_due(self.now_ms)
        wrong = group.confirm_wrong(actor, one)
        name = "group.v2.confirm_state"
        if self.call(self.client(actor), name, wrong, group_id=group.gid, proposal_id=one.proposal_id) is None:
            return
        if one.status == "pending":
            group.confirm(one)
            self.expect("group.v2.state_confirmed", group, 0, "", group.audience())

    @move(when=lambda self: bool(self.unconfirmed()), data=DATA, how=["set_role", "kick"], seconds=[29, 30, 30])
    def unseat(self, data: Random, how: str, seconds: int) -> None:
        """Whose proposal waits may no longer propose when its time comes."""
        group, aid = data.choice(self.unconfirmed())
        if how == "kick":
            self.kick_out(group, group.owner, aid)
        else:
            self.give_role(group, group.owner, aid, "member")
        self.wait(seconds)

    def unconfirmed(self) -> list[tuple[Group, str]]:
        """The proposals that wait, of others than the owner."""
        return [
            (group, one.actor)
            for group in self.groups
            for one in group.proposals
            if one.status == "pending" and group.rank(one.actor) == RANK["admin"]
        ]

    # Time, ends, returns.

    @move(weight=4, seconds=[1, 29, 30, 30, 59, 60, 119, 3700])
    def wait(self, seconds: int) -> None:
        async def wait() -> None:
            await self.clock.pass_(seconds * SECOND)
            await self.town.post.rest()

        self.settle_due(self.clock.now_ms + seconds * 1000)
        self.do(wait())

    @move(weight=3, at=range(16), count=range(0, 4), turns=range(0, 7), what=LIVES)
    def life(self, at: int, count: int, turns: int, what: str) -> None:
        """The node stops and starts, dies and starts, is saved, is restored."""
        if what == "stop":
            self.do(self.reopen(self.place))
        elif what == "kill":
            self.kill(at, count, turns)
        elif what == "save" or self.saved is None:
            self.saved = (self.copied(self.place), copy.deepcopy(self.groups), dict(self.keys))
        else:
            self.restore()

    def kill(self, at: int, count: int, turns: int) -> None:
        """The node dies while members send; they send again what was not answered."""
        group = self.group(at)
        first = self.count + 1
        self.count += count
        able = [aid for aid in sorted(group.members) if not group.speak_wrong(aid, self.now_ms)]
        names = [f"m-{number}" for number in range(first, first + count)] if able else []
        sends = {name: able[place % len(able)] for place, name in enumerate(names)}
        answered: dict[str, int] = {}

        async def one(aid: str, message_id: str) -> None:
            payload = {"type": "text", "text": f"text of {message_id}"}
            client = self.client(aid, "d1")
            sent = await client.call("group.send", group_id=group.gid, payload=payload, message_id=message_id)
            answered[message_id] = sent["seq"]

        async def die() -> tuple[dict[str, int], int]:
            self.clock.advance(1_000)
            now_ms = self.clock.now_ms
            running = [asyncio.create_task(one(aid, name)) for name, aid in sends.items()]
            await turn(turns)
            folder, acked = self.copied(self.place), dict(answered)
            await asyncio.gather(*running)
            await self.reopen(folder)
            return acked, now_ms

        self.settle_due(self.clock.now_ms + 1)
        acked, sent_ms = self.do(die())
        kept = self.kept(group) if sends else {}
        unasked = [name for name in kept.values() if name in sends]
        assert acked.keys() <= set(unasked)
        for name in unasked:
            row = Row(0, sends[name], name, f"text of {name}", group.mention_mode, sent_ms)
            seq = group.say(row, self.incarnation).seq
            assert acked.get(name, seq) == seq
        for name, aid in sends.items():
            self.say(group, aid, name)

    def known(self) -> list[tuple[Group, Row]]:
        """The messages whose ids are known: that of a notice is, once somebody has read it."""
        return [(group, row) for group in self.groups for row in group.rows if row.message_id]

    def kept(self, group: Group) -> dict[int, str]:
        """The messages above the head that are on disk."""

        def look(unit: Any) -> dict[int, str]:
            place = group_logs.Place(group.gid, group.owner)
            rows, _ = group_logs.after(unit, place, group.head, rows=99, octets=1 << 20)
            return {row.seq: row.message_id for row in rows}

        found: dict[int, str] = self.do(self.town.post.node.read(look))
        return found

    def restore(self) -> None:
        """The node is as it was when it was saved, in a new incarnation: no number comes twice."""
        assert self.saved is not None
        files, found, keys = self.saved
        self.incarnation = self.town.post.node.incarnation + 1
        self.groups, self.keys = copy.deepcopy(found), dict(keys)

        async def back() -> None:
            await self.reopen(self.copied(files))

        self.do(back())

    # What is shown.

    @invariant()
    def told(self) -> None:
        """Everybody concerned, and nobody else, heard of what happened; in order."""
        if not hasattr(self, "town"):
            return
        if self.returned or self.steps % 4 == 0 or any(group.proposals for group in self.groups):
            self.do(self.town.post.rest())
        heard, last = Counter[tuple[str, str, int, str, frozenset[str]]](), dict[str, int]()
        for event in self.town.post.heard:
            if not event.kind.startswith("group."):
                continue
            body = loads(event.body, JsonLimits(octets=1 << 20))
            if event.kind == "group.changed" and event.seq:
                assert event.seq > last.get(event.key, 0)
                last[event.key] = body["event_seq"] = event.seq
            if event.kind not in QUIET:
                shown = body.get("action", "") if event.kind == "group.changed" else ""
                heard[event.kind, event.key, event.seq, shown, event.audience] += 1
        for known in (heard, self.expected):
            for one in [one for one in known if one[0] == "group.invite_finalized" or not one[4]]:
                known[one] = 1
                if not one[4]:
                    del known[one]
        assert heard == self.expected
        self.town.post.heard.clear()
        self.expected.clear()

    @invariant()
    def shown(self) -> None:
        """What the node says of every group is what the model says. What is wrong stays wrong, so not every time."""
        if self.steps % 4 and not self.returned:
            return
        self.returned = False
        for group in self.groups:
            for name, seq in (("message", group.head), ("event", group.event_head)):
                assert seq >= self.ever.get((group.gid, name), 0) or self.incarnation
                self.ever[group.gid, name] = max(seq, self.ever.get((group.gid, name), 0))
            self.do(self.audit(group) if group.status != "dissolved" else self.audit_end(group))
        if hasattr(self, "town"):
            self.do(self.own_lists())

    async def audit_end(self, group: Group) -> None:
        """Who was in a dissolved group when it ended, or left it before, reads how it ended for them."""
        await asyncio.gather(*(self.audit_reader(group, aid) for aid in group.left))

    async def audit(self, group: Group) -> None:
        owner, gid, now_ms = self.client(group.owner), group.gid, self.clock.now_ms
        info = await owner.call("group.get_info", group_id=gid, required=["member", "state", "e2ee"])
        state = group.state
        expected = {
            "name": group.name,
            "visibility": group.visibility,
            "status": group.status,
            "owner_aid": group.owner,
            "my_role": "owner",
            "member_count": len(group.members),
            "message_seq": group.head,
            "event_seq": group.event_head,
            "epoch": group.epoch,
            "e2ee_epoch": group.legacy,
            "state_version": state.version if state else 0,
            "state_hash": state.hash if state else "",
        }
        assert {key: info[key] for key in expected} == expected
        members = (await owner.call("group.get_members", group_id=gid))["members"]
        acked = {aid: max([0, *(c[0] for (who, _), c in group.cursors.items() if who == aid)]) for aid in group.members}
        assert {one["aid"]: (one["role"], one["last_ack_seq"]) for one in members} == {
            aid: (one.role, acked[aid]) for aid, one in group.members.items()
        }
        assert [one.role for one in group.members.values()].count("owner") == 1
        bans = (await owner.call("group.get_banlist", group_id=gid))["items"]
        assert {one["subject"]: one["expires_at"] for one in bans} == group.banlist(now_ms)
        blocks = (await owner.call("group.get_blocklist", group_id=gid))["items"]
        assert {one["subject"] for one in blocks} == group.blocks
        waiting = (await owner.call("group.list_join_requests", group_id=gid))["items"]
        assert {one["aid"] for one in waiting} == {a for a, status in group.requests.items() if status == "pending"}
        codes = (await owner.call("group.list_invite_codes", group_id=gid))["items"]
        assert {one["code"]: (one["used_count"], one["status"]) for one in codes} == {
            one.text: (one.used, one.status(now_ms)) for one in group.codes
        }
        kept = await owner.call("group.get_settings", group_id=gid)
        values = {one["key"]: one["value"] for one in kept["settings"]}
        assert ("group.index" in values) is bool(group.etag)
        core = {"name": group.name, "visibility": group.visibility, "description": "", "join.mode": group.mode}
        values.pop("group.index", None)
        assert values == {**group.settings, **core, "mention_mode": group.mention_mode}
        signed = await owner.call("group.get_state", group_id=gid)
        assert signed["membership_snapshot"] == (snapshot(state.members) if state else "")
        epoch = await owner.call("group.e2ee.get_epoch", group_id=gid)
        last = group.rotations[-1] if group.rotations else None
        pending = last.rotation_id if last is not None and last.status == "distributing" else None
        assert (epoch["pending_rotation"] or {}).get("rotation_id") == pending
        await self.audit_keys(group)
        await self.audit_reading(group)

    async def audit_keys(self, group: Group) -> None:
        found = await self.client(group.owner).call("group.v2.bootstrap", group_id=group.gid)
        assert {one["aid"] for one in found["devices"]} == group.trusted(group.owner)
        assert (found["member_aids"], found["epoch"]) == (sorted(group.members), group.epoch)
        proposal = (await self.client(group.owner).call("group.v2.get_proposal", group_id=group.gid))["proposal"]
        waiting = [one.proposal_id for one in group.proposals if one.status == "pending"]
        assert (proposal or {}).get("proposal_id") == (waiting[-1] if waiting else None)

    async def audit_reading(self, group: Group) -> None:
        """Every member reads what is theirs; who has left, their events; others nothing."""
        await asyncio.gather(*(self.audit_reader(group, aid) for aid in AIDS))

        def look(unit: Any) -> tuple[int, tuple[int, int]]:
            gaps = ledger.gaps(unit, group_logs.MESSAGES, group.gid)
            return sum(gap.count for gap in gaps), group_logs.usage(unit, group.gid)

        lost, usage = await self.town.post.node.read(look)
        assert (lost, usage[0]) == (group.lost, len(group.rows))

    async def audit_reader(self, group: Group, aid: str) -> None:
        client, span = self.client(aid), group.span(aid)
        if span is None:
            for name in ("group.pull_events", "group.pull", "group.get_members", "group.get_settings"):
                with pytest.raises(NotMember):
                    await client.call(name, group_id=group.gid)
            return
        device = DEVICES[-1 - self.steps % 2]
        client, stands = self.client(aid, device), group.cursors.get((aid, device), [0, 0])
        found = await client.call("group.pull_events", group_id=group.gid, after_event_seq=0, limit=200)
        assert found["cursor"]["current_seq"] == max(stands[1], span[0])
        wanted = [one for one in group.events if span[0] < one[0] <= span[1]]
        assert [(one["event_seq"], one["action"]) for one in found["events"]] == wanted
        if aid in group.members:
            page = await client.call("group.v2.pull", group_id=group.gid, limit=200)
            self.same_rows(page["messages"], group.readable(aid))
            assert page["retention_floor_message_seq"] == group.floor
            assert page["cursor"]["current_seq"] == max(stands[0], group.members[aid].join_seq)
            states = (await client.call("group.read_state", group_id=group.gid))["states"]
            assert {(one["topic_key"], one["last_read_order"]) for one in states} == {
                (topic, place) for (who, topic), (place, _) in group.reads.items() if who == aid
            }

    async def own_lists(self) -> None:
        await asyncio.gather(*(self.own_list(aid) for aid in AIDS))

    async def own_list(self, aid: str) -> None:
        live = [group for group in self.groups if group.status != "dissolved"]
        mine = (await self.client(aid).call("group.list_my"))["items"]
        assert {one["group_id"]: one["role"] for one in mine} == {
            group.gid: group.members[aid].role for group in live if aid in group.members
        }
        asked = (await self.client(aid).call("group.list_my_invites"))["items"]
        wanted = {
            group.gid: {one.invite_id for one in group.invites if (one.invitee, one.status) == (aid, "pending")}
            for group in self.groups
        }
        assert {one["group_id"]: set(one["invite_ids"]) for one in asked} == {g: i for g, i in wanted.items() if i}

    def same_rows(self, found: Sequence[dict[str, Any]], wanted: Sequence[Row]) -> None:
        assert [one["seq"] for one in found] == [row.seq for row in wanted]
        for one, row in zip(found, wanted, strict=True):
            assert one.get("from_aid", one.get("sender_aid")) == row.sender
            assert one["mention_mode"] == row.mode
            if row.kind in ("tombstone", "notice"):
                assert one["type"] == one["payload"]["type"] == "group.message_recalled"
            elif row.kind == "plain":
                assert one["payload"]["text"] == row.text
            if row.message_id:
                assert one["message_id"] == row.message_id
            row.message_id = one["message_id"]

    # Choices.

    def actor(self, data: Random, group: Group, least: str) -> str:
        """Somebody who acts: mostly somebody who may."""
        able = [aid for aid in AIDS if group.rank(aid) >= RANK[least]]
        return data.choice([*able, *able, *able, *AIDS])

    def below(self, group: Group, actor: str) -> list[str]:
        return [aid for aid in group.members if group.rank(aid) < group.rank(actor)]

    def anybody(self, data: Random, group: Group, *, inside: int = 3, likely: Sequence[str] = ()) -> str:
        """Somebody to act on: mostly a member, unless others are likelier."""
        chosen = list(likely) or list(group.members) if inside > 1 else [a for a in AIDS if a not in group.members]
        return data.choice([*chosen, *chosen, *AIDS])


def snapshot(aids: Sequence[str]) -> str:
    """A membership snapshot, in a spelling of its own."""
    return '{ "members": [' + ", ".join(f'{{"aid":"{aid}", "role": "x"}}' for aid in aids) + "] }"


class Doors(Groups):
    """One group whose members come by request and sign states: what most of the moves above leave little time for."""

    weights: ClassVar[Mapping[str, int] | None] = {
        "request_join": 12,
        "review": 12,
        "propose": 10,
        "confirm": 5,
        "unseat": 3,
        "review_asleep": 2,
        "set_rules": 3,
        "wait": 3,
        "set_role": 3,
        "kick": 3,
        "ban": 2,
        "unban": 1,
        "sleep": 1,
        "add_somebody": 1,
        "transfer": 1,
        "leave": 1,
        "life": 1,
    }

    @initialize(most=st.integers(1, 2))
    def begin(self, most: int) -> None:
        """An owner and an admin; three may ask, of whom one or two may wait."""
        self.do(self.open(self.copied(registered())))
        self.found("private", 0, False)
        self.add(0, 0, AIDS[1], "admin")
        self.put_rules(self.groups[0], ALICE, "approval", "", most)


def explored(machine: type[Groups], examples: int) -> Any:
    """The test case of a machine."""
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink what depends on every step takes for ever
        report_multiple_bugs=False,
    )
    return pytest.mark.seed("S0-160")(case)


TestGroups = explored(Groups, 100)
TestDoors = explored(Doors, 60)
