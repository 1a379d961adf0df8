"""G-3: every operation of the group service, tried by everybody in every state of a group: done, or the exact code.

The rows are found by the declarations: an operation without a row fails the first test.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edge.contract.errors import (
    AlreadyMember,
    Conflict,
    EdgeError,
    GroupNotFound,
    GroupStateInvalid,
    GroupSuspended,
    InviteCodeInvalid,
    JoinRejected,
    NotFound,
    NotMember,
    NotPermitted,
    RoleInsufficient,
    SignatureInvalid,
)
from edge.contract.time import SECOND
from edge.dispatch.table import OpTable
from edge.protocol import keys
from edge.protocol.aun import NUMBERS
from edge.protocol.group_rules import ADMIN, MEMBER, OWNER
from edge.services.group.room import Room, Seat
from tests.support.clock import EPOCH_US
from tests.support.groups import DAVE, Square, envelope, say, square
from tests.support.identity import new_key
from tests.support.messaging import ISSUER, Client

ERIN, FRED, GINA = (f"{name}.{ISSUER}" for name in ("erin", "fred", "gina"))
RUN = {"type": "run", "id": "r-1"}
PROOF = {"nonce": "n", "issued_ms": (EPOCH_US + SECOND) // 1000, "signature": "eA=="}
KEY = base64.b64encode(keys.spki_of(new_key("team").public_key())).decode()
OUTSIDER, LEAVER, BANNED, SHUT_OUT = "outsider", "leaver", "banned member", "banned outsider"
ANYBODY = "anybody"
RANKS = {MEMBER: 1, ADMIN: 2, OWNER: 3}
ENDS = {"suspended": "group.suspend", "dissolved": "group.dissolve"}
Error = type[EdgeError] | None


class Scene:
    """A group, and everybody who may call."""

    def __init__(self, gid: str, people: Mapping[str, Client]) -> None:
        self.gid, self.people = gid, people

    def __getitem__(self, who: str) -> Client:
        return self.people[who]


class Row(NamedTuple):
    """The least role of an operation, and what else decides.

    `ready` prepares the group for this caller and gives the params; it runs before the group is suspended or ended.
    `speaks`: refused to banned members, and to plain ones while suspended. `enters`: a way in, refused to members, the
    banned and while suspended. `awake`: refused while suspended. `then`: what those permitted run into here. `last`:
    what a dissolved group answers. `leaver`: permitted to those who have left.
    """

    least: str
    params: Mapping[str, Any] = {}
    ready: Callable[[Scene, Client], Awaitable[Mapping[str, Any]]] | None = None
    speaks: bool = False
    enters: bool = False
    awake: bool = False
    then: Error = None
    last: Error = GroupNotFound
    leaver: bool = False
    but: Mapping[str, Error] = {}


async def own_message(scene: Scene, caller: Client) -> Mapping[str, Any]:
    return {"message_ids": ["m-1"]}


async def request(scene: Scene, caller: Client) -> Mapping[str, Any]:
    await scene["applicant"].call("group.request_join", group_id=scene.gid)
    return {"aid": scene["applicant"].who.aid}


async def requests(scene: Scene, caller: Client) -> Mapping[str, Any]:
    return {"aids": [(await request(scene, caller))["aid"]]}


async def code(scene: Scene, caller: Client) -> Mapping[str, Any]:
    made = await scene[OWNER].call("group.create_invite_code", group_id=scene.gid)
    return {"code": made["invite_code"]["code"]}


async def invited(scene: Scene, caller: Client) -> Mapping[str, Any]:
    try:
        made = await scene[OWNER].call("group.invite_member", group_id=scene.gid, aid=caller.who.aid)
    except (AlreadyMember, JoinRejected):
        return {"invite_id": "gi-none"}
    return {"invite_id": made["invite_id"]}


async def inviting(scene: Scene, caller: Client) -> Mapping[str, Any]:
    try:
        made = await caller.call("group.invite_member", group_id=scene.gid, aid=scene["applicant"].who.aid)
    except (NotMember, RoleInsufficient):
        made = await scene[OWNER].call("group.invite_member", group_id=scene.gid, aid=scene["applicant"].who.aid)
    return {"invite_id": made["invite_id"]}


async def rotation(scene: Scene, caller: Client) -> Mapping[str, Any]:
    asked = {"base_epoch": 0, "target_epoch": 1, "rotation_id": f"r-{scene.gid}", "key_commitment": "c"}
    await scene[OWNER].call("group.e2ee.begin_rotation", group_id=scene.gid, **asked)
    return {"rotation_id": f"r-{scene.gid}", "key_commitment": "c"}


async def proposal(scene: Scene, caller: Client) -> Mapping[str, Any]:
    return {
        "proposal_id": (await scene[OWNER].call("group.v2.propose_state", group_id=scene.gid, **STATE))["proposal_id"]
    }


async def second_state(scene: Scene, caller: Client) -> Mapping[str, Any]:
    first = await proposal(scene, caller)
    await scene[OWNER].call("group.v2.confirm_state", group_id=scene.gid, **first)
    return {**STATE, "state_version": 2, "prev_state_hash": "h", "state_hash": "h2"}


async def bound(scene: Scene, caller: Client) -> Mapping[str, Any]:
    await scene[OWNER].call("group.bind_group_aid", group_id=scene.gid, public_key=KEY)
    return {"old_public_key": KEY, "new_public_key": KEY, "renew_proof": PROOF}


async def sealed(scene: Scene, caller: Client) -> Mapping[str, Any]:
    info = await scene[OWNER].call("group.get_info", group_id=scene.gid, required=["e2ee"])
    members = (await scene[OWNER].call("group.get_members", group_id=scene.gid))["members"]
    to = [(one["aid"], "") for one in members]
    made = envelope(caller, scene.gid, to, epoch=info["epoch"], message_id="e-1")
    return {"envelope": made, "message_id": "e-1"}


async def themselves(scene: Scene, caller: Client) -> Mapping[str, Any]:
    return {"aid": caller.who.aid}


STATE = {"state_version": 1, "state_hash": "h", "prev_state_hash": "", "membership_snapshot": "[]"}
PAIR = base64.b64encode(b"k" * 64).decode()
SPK = {
    "spk_id": "sha256:" + hashlib.sha256(b"k" * 64).hexdigest()[:16],
    "spk_pk": PAIR,
    "spk_signature": PAIR,
    "spk_timestamp": 1,
}
ROTATE = {"base_epoch": 0, "target_epoch": 1, "rotation_id": "r", "key_commitment": "c"}
TARGET = {"aid": GINA}
OUTSIDE = (OUTSIDER, LEAVER, SHUT_OUT)
NOT_INVITED: Mapping[str, Error] = dict.fromkeys((OWNER, ADMIN, MEMBER, BANNED, SHUT_OUT), NotFound)
NOT_INVITING: Mapping[str, Error] = dict.fromkeys((MEMBER, BANNED, *OUTSIDE), NotPermitted)

ROWS: Mapping[str, Row] = {
    # Of nobody's group, or of anybody.
    "group.create": Row(ANYBODY, {"name": "Mine"}, last=None),
    "group.list": Row(ANYBODY, last=None),
    "group.list_my": Row(ANYBODY, last=None),
    "group.search": Row(ANYBODY, last=None),
    "group.list_my_invites": Row(ANYBODY, last=None),
    "group.get_info": Row(ANYBODY, last=None),
    "group.get": Row(ANYBODY, last=None),
    "group.info": Row(ANYBODY, last=None),
    "group.get_public_info": Row(ANYBODY, last=None),
    "group.check_membership": Row(ANYBODY),
    # Ways in.
    "group.request_join": Row(ANYBODY, enters=True),
    "group.use_invite_code": Row(ANYBODY, ready=code, enters=True, last=InviteCodeInvalid),
    "group.accept_invite": Row(ANYBODY, ready=invited, enters=True, but=NOT_INVITED, last=Conflict),
    "group.reject_invite": Row(ANYBODY, ready=invited, but=NOT_INVITED, last=Conflict),
    "group.revoke_invite": Row(ANYBODY, ready=inviting, but=NOT_INVITING, last=Conflict),
    # The owner's.
    "group.bind_group_aid": Row(OWNER, {"public_key": KEY}),
    "group.bind_aid": Row(OWNER, {"public_key": KEY}),
    "group.renew_group_aid": Row(OWNER, ready=bound, then=SignatureInvalid),
    "group.transfer_owner": Row(OWNER, {"new_owner": GINA}),
    "group.dissolve": Row(OWNER),
    "group.set_role": Row(OWNER, {**TARGET, "role": "admin"}),
    "group.update_member": Row(OWNER, {**TARGET, "role": "admin"}),
    # Owner and admins.
    "group.update": Row(ADMIN, {"name": "x"}),
    "group.suspend": Row(ADMIN),
    "group.resume": Row(ADMIN),
    "group.get_stats": Row(ADMIN),
    "group.get_metrics": Row(ADMIN),
    "group.add_member": Row(ADMIN, {"aid": DAVE}, awake=True),
    "group.kick": Row(ADMIN, TARGET),
    "group.remove_member": Row(ADMIN, TARGET),
    "group.ban": Row(ADMIN, TARGET),
    "group.unban": Row(ADMIN, TARGET),
    "group.get_banlist": Row(ADMIN),
    "group.get_blocklist": Row(ADMIN),
    "group.invite_member": Row(ADMIN, {"aid": DAVE}, awake=True),
    "group.list_join_requests": Row(ADMIN),
    "group.review_join_request": Row(ADMIN, ready=request, awake=True),
    "group.batch_review_join_request": Row(ADMIN, ready=requests),
    "group.create_invite_code": Row(ADMIN, awake=True),
    "group.list_invite_codes": Row(ADMIN),
    "group.revoke_invite_code": Row(ADMIN, ready=code),
    "group.set_settings": Row(ADMIN, {"settings": {"name": "x"}}),
    "group.update_announcement": Row(ADMIN, {"content": "x"}),
    "group.update_rules": Row(ADMIN, {"mode": "open"}),
    "group.update_join_requirements": Row(ADMIN, {"mode": "open"}),
    "group.v2.propose_state": Row(ADMIN, ready=second_state),
    "group.v2.confirm_state": Row(ADMIN, ready=proposal),
    "group.e2ee.begin_rotation": Row(ADMIN, ROTATE),
    "group.e2ee.rotate_epoch": Row(ADMIN),
    "group.e2ee.commit_rotation": Row(ADMIN, ready=rotation, last=NotFound),
    "group.e2ee.heartbeat_rotation": Row(ADMIN, ready=rotation, last=NotFound),
    "group.e2ee.abort_rotation": Row(ADMIN, ready=rotation, last=NotFound),
    # Members.
    "group.e2ee.ack_rotation_key": Row(MEMBER, ready=rotation, last=NotFound),
    "group.get_summary": Row(MEMBER),
    "group.leave": Row(MEMBER, but={OWNER: RoleInsufficient}),
    "group.get_members": Row(MEMBER),
    "group.get_online_members": Row(MEMBER),
    "group.get_admins": Row(MEMBER),
    "group.get_master": Row(MEMBER),
    "group.refresh_member_types": Row(MEMBER),
    "group.block": Row(MEMBER, ready=themselves),
    "group.unblock": Row(MEMBER, ready=themselves),
    "group.report_status": Row(MEMBER, {"online_status": "x", "work_status": "x"}),
    "group.get_member_statuses": Row(MEMBER),
    "group.get_join_requirements": Row(MEMBER),
    "group.get_settings": Row(MEMBER),
    "group.get_announcement": Row(MEMBER),
    "group.get_rules": Row(MEMBER),
    "group.send": Row(MEMBER, {"payload": {"type": "text", "text": "hi"}}, speaks=True),
    "group.v2.send": Row(MEMBER, ready=sealed, speaks=True),
    "group.thought.put": Row(MEMBER, {"context": RUN, "payload": {}}, speaks=True),
    "group.thought.get": Row(MEMBER, {"context": RUN, "sender_aid": GINA}),
    "group.recall": Row(MEMBER, ready=own_message),
    "group.pull": Row(MEMBER),
    "group.v2.pull": Row(MEMBER),
    "group.history": Row(MEMBER, {"before_seq": 1}),
    "group.ack": Row(MEMBER, {"msg_seq": 0}),
    "group.ack_messages": Row(MEMBER, {"msg_seq": 0}),
    "group.v2.ack": Row(MEMBER, {"up_to_seq": 0}),
    "group.pull_events": Row(MEMBER, leaver=True),
    "group.ack_events": Row(MEMBER, {"event_seq": 0}, leaver=True),
    "group.list_devices": Row(MEMBER),
    "group.unregister_device": Row(MEMBER, {"device_id": ""}),
    "group.v2.put_group_pk": Row(MEMBER, SPK),
    "group.v2.bootstrap": Row(MEMBER),
    "group.get_state": Row(MEMBER),
    "group.v2.get_proposal": Row(MEMBER),
    "group.e2ee.get_epoch": Row(MEMBER),
    "group.read": Row(MEMBER, {"topic_key": "t", "last_read_message_id": "m"}),
    "group.read_state": Row(MEMBER),
    "group.complete_transfer": Row(MEMBER, {"public_key": KEY, "transfer_accept": PROOF}, then=GroupStateInvalid),
}


def answers(row: Row, state: str, who: str) -> tuple[Error, ...]:
    """What the matrix says: the error of this call, None when it succeeds; two where either is true."""
    outside, role, asleep = who in OUTSIDE, MEMBER if who == BANNED else who, state == "suspended"
    if who in row.but and (state != "dissolved" or row.last is Conflict):
        return (row.but[who],)
    if state == "dissolved":
        return (None,) if row.leaver and who not in (OUTSIDER, SHUT_OUT) else (row.last,)
    if row.least != ANYBODY and outside:
        return (None,) if row.leaver and who == LEAVER else (NotMember,)
    if row.least != ANYBODY and RANKS[role] < RANKS[row.least]:
        return (RoleInsufficient,)
    wrong: list[Error] = []
    if row.speaks and who == BANNED:
        wrong.append(NotPermitted)
    if row.enters and not outside:
        wrong.append(AlreadyMember)
    if row.enters and who == SHUT_OUT:
        wrong.append(JoinRejected)
    if asleep and (row.awake or row.enters or (row.speaks and role == MEMBER)):
        wrong.append(GroupSuspended)
    return tuple(wrong) or (row.then,)


async def scene(town: Square) -> Scene:
    """A group with everybody in it or out of it."""
    named = {who: town.post.offline(aid) for who, aid in (("applicant", FRED), (SHUT_OUT, ERIN), ("target", GINA))}
    people = {OWNER: town.alice, ADMIN: town.bob, MEMBER: town.carol, OUTSIDER: town.dave, **named}
    leaver, banned = (town.post.offline(f"{name}.{ISSUER}") for name in ("hugo", "inge"))
    gid = await town.found(people[MEMBER], leaver, banned, people["target"], admins=[people[ADMIN]])
    for one in (people[OWNER], people[ADMIN], people[MEMBER], banned):
        await say(one, gid, message_id=f"m-{one.who.aid}")
    await leaver.call("group.leave", group_id=gid)
    for one in (banned, people[SHUT_OUT]):
        await people[OWNER].call("group.ban", group_id=gid, subject=one.who.aid)
    return Scene(gid, {**people, LEAVER: leaver, BANNED: banned})


async def test_every_operation_of_the_service_has_a_row(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        assert set(OpTable(*town.service.parts).names("aun")) == ROWS.keys()


@pytest.mark.parametrize("state", ["active", "suspended", "dissolved"])
@pytest.mark.parametrize("who", [OWNER, ADMIN, MEMBER, OUTSIDER, LEAVER, BANNED, SHUT_OUT])
@pytest.mark.seed("S0-160")
async def test_g3_what_everybody_may_in_every_state_of_a_group(tmp_path: Path, who: str, state: str) -> None:
    limits = {"group.created": 10_000, "group.joined": 10_000, "group.ever": 10_000}
    async with square(tmp_path, limits=limits, synchronous="OFF") as town:
        town.post.aids |= {ERIN, FRED, GINA, f"hugo.{ISSUER}", f"inge.{ISSUER}"}
        made: Scene | None = None
        for name, row in ROWS.items():
            if made is None or row.ready is not None:
                made = await scene(town)
                params = {**row.params, **(await row.ready(made, made[who]) if row.ready else {})}
                if state in ENDS:
                    await made[OWNER].call(ENDS[state], group_id=made.gid)
            else:
                params = dict(row.params)
            expected, before = answers(row, state, who), await town.everything()
            named = {} if name == "group.create" else {"group_id": made.gid}
            found: EdgeError | None = None
            try:
                await made[who].call(name, **named, **params)
            except EdgeError as error:
                found = error
            if found is None:
                assert expected == (None,), name
                made = None
                continue
            numbers = [NUMBERS.number(one) for one in expected if one is not None]
            assert NUMBERS.number(type(found)) in numbers, (name, repr(found), expected)
            assert await town.everything() == before, name
            if row.ready is not None:
                made = None


async def test_a_seat_knows_its_place(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.carol, admins=[town.bob])
        room: Room = town.service._room
        seat: Seat = await town.post.node.read(lambda unit: room.seat(unit, gid, town.bob.who.aid))
        assert (seat.gid, seat.aid) == (gid, town.bob.who.aid)
        assert [seat.at_least(role) for role in (MEMBER, ADMIN, OWNER)] == [True, True, False]
