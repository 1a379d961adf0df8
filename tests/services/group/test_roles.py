"""G-3: every operation of the group service, tried by the owner, an admin, a member and an outsider."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import EdgeError, NotMember, RoleInsufficient
from edge.contract.time import SECOND
from edge.dispatch.table import OpTable
from edge.protocol import keys
from edge.protocol.group_rules import ADMIN, MEMBER, OWNER
from edge.services.group.room import Room, Seat
from tests.support.clock import EPOCH_US
from tests.support.groups import DAVE, square
from tests.support.identity import new_key
from tests.support.messaging import CAROL, ISSUER

RUN = {"type": "run", "id": "r-1"}
PROOF = {"nonce": "n", "issued_ms": (EPOCH_US + SECOND) // 1000, "signature": "eA=="}
KEY = base64.b64encode(keys.spki_of(new_key("team").public_key())).decode()
ERIN = f"erin.{ISSUER}"
OUTSIDE = "outsider"

LEAST: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    OWNER: {
        "group.bind_group_aid": {"public_key": KEY},
        "group.bind_aid": {"public_key": KEY},
        "group.renew_group_aid": {"old_public_key": KEY, "new_public_key": KEY, "renew_proof": PROOF},
        "group.transfer_owner": {"new_owner": CAROL},
        "group.dissolve": {},
        "group.set_role": {"aid": CAROL, "role": "admin"},
        "group.update_member": {"aid": CAROL, "role": "admin"},
    },
    ADMIN: {
        "group.update": {"name": "x"},
        "group.suspend": {},
        "group.resume": {},
        "group.get_stats": {},
        "group.get_metrics": {},
        "group.add_member": {"aid": DAVE},
        "group.kick": {"aid": CAROL},
        "group.remove_member": {"aid": CAROL},
        "group.ban": {"aid": CAROL},
        "group.unban": {"aid": CAROL},
        "group.get_banlist": {},
        "group.get_blocklist": {},
        "group.invite_member": {"aid": DAVE},
        "group.list_join_requests": {},
        "group.review_join_request": {"aid": DAVE},
        "group.batch_review_join_request": {"aids": [DAVE]},
        "group.create_invite_code": {},
        "group.list_invite_codes": {},
        "group.revoke_invite_code": {"code": "x"},
        "group.set_settings": {"settings": {"name": "x"}},
        "group.update_announcement": {"content": "x"},
        "group.update_rules": {"mode": "open"},
        "group.update_join_requirements": {"mode": "open"},
        "group.v2.propose_state": {
            "state_version": 2,
            "state_hash": "h",
            "prev_state_hash": "",
            "membership_snapshot": "[]",
        },
        "group.v2.confirm_state": {"proposal_id": "x"},
        "group.e2ee.begin_rotation": {
            "base_epoch": 0,
            "target_epoch": 1,
            "rotation_id": "r",
            "key_commitment": "c",
        },
        "group.e2ee.rotate_epoch": {},
    },
    MEMBER: {
        "group.get_summary": {},
        "group.leave": {},
        "group.get_members": {},
        "group.get_online_members": {},
        "group.check_membership": {"aid": CAROL},
        "group.get_admins": {},
        "group.get_master": {},
        "group.refresh_member_types": {},
        "group.block": {"aid": "<self>"},
        "group.unblock": {"aid": "<self>"},
        "group.report_status": {"online_status": "x", "work_status": "x"},
        "group.get_member_statuses": {},
        "group.get_join_requirements": {},
        "group.get_settings": {},
        "group.get_announcement": {},
        "group.get_rules": {},
        "group.send": {"payload": {"type": "text", "text": "hi"}},
        "group.recall": {"message_ids": ["m"]},
        "group.pull": {},
        "group.v2.pull": {},
        "group.history": {"before_seq": 1},
        "group.ack": {"msg_seq": 0},
        "group.ack_messages": {"msg_seq": 0},
        "group.v2.ack": {"up_to_seq": 0},
        "group.pull_events": {},
        "group.ack_events": {"event_seq": 0},
        "group.list_devices": {},
        "group.unregister_device": {"device_id": ""},
        "group.thought.put": {"context": RUN, "payload": {}},
        "group.thought.get": {"context": RUN, "sender_aid": CAROL},
        "group.v2.put_group_pk": {"spk_id": "x", "spk_pk": "eA==", "spk_signature": "eA==", "spk_timestamp": 1},
        "group.v2.bootstrap": {},
        "group.get_state": {},
        "group.v2.get_proposal": {},
        "group.e2ee.get_epoch": {},
        "group.read": {"topic_key": "t", "last_read_message_id": "m"},
        "group.read_state": {},
        "group.complete_transfer": {"public_key": KEY, "transfer_accept": PROOF},
    },
}
"""The least role of each operation, and params that get past everything that is looked at before roles."""

ELSEWHERE = {
    "group.create": "makes its own group",
    "group.get": "the public part is for anybody",
    "group.get_info": "the public part is for anybody",
    "group.info": "the public part is for anybody",
    "group.get_public_info": "the public part is for anybody",
    "group.list": "of the caller",
    "group.list_my": "of the caller",
    "group.search": "public groups",
    "group.list_my_invites": "of the caller",
    "group.accept_invite": "by the invited one",
    "group.reject_invite": "by the invited one",
    "group.revoke_invite": "by the inviter",
    "group.request_join": "by outsiders",
    "group.use_invite_code": "by outsiders",
    "group.v2.send": "test_keys: its envelope is checked first",
    "group.e2ee.ack_rotation_key": "test_legacy: named by rotation",
    "group.e2ee.commit_rotation": "test_legacy: named by rotation",
    "group.e2ee.heartbeat_rotation": "test_legacy: named by rotation",
    "group.e2ee.abort_rotation": "test_legacy: named by rotation",
}
RANKS = {OUTSIDE: 0, MEMBER: 1, ADMIN: 2, OWNER: 3}
WALK = [(name, least, params) for least, found in LEAST.items() for name, params in found.items()]


async def test_every_operation_of_the_service_is_walked_or_explained(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        table = OpTable(*town.service.parts)
        assert {name for name, _, _ in WALK} | ELSEWHERE.keys() == set(table.names("aun"))


@pytest.mark.parametrize("role", [OWNER, ADMIN, MEMBER, OUTSIDE])
@pytest.mark.seed("S0-160")
async def test_g3_what_each_role_may(tmp_path: Path, role: str) -> None:
    async with square(tmp_path, limits={"group.created": 1_000, "group.joined": 1_000}) as town:
        town.post.aids.add(ERIN)
        erin = town.post.offline(ERIN)
        caller = {OWNER: town.alice, ADMIN: town.bob, MEMBER: erin, OUTSIDE: town.dave}[role]
        for name, least, given in WALK:
            gid = await town.found(town.carol, erin, admins=[town.bob])
            params = {key: caller.who.aid if value == "<self>" else value for key, value in given.items()}
            before = await town.everything()
            found: Any = None
            try:
                await caller.call(name, group_id=gid, **params)
            except EdgeError as error:
                found = error
            expected: type[EdgeError] | None = None
            if role == OUTSIDE:
                expected = NotMember
            elif RANKS[role] < RANKS[least] or (name, role) == ("group.leave", OWNER):
                expected = RoleInsufficient
            if expected is None:
                assert not isinstance(found, NotMember | RoleInsufficient), (name, found)
            else:
                assert type(found) is expected, (name, found)
            if found is not None:
                assert await town.everything() == before, name


async def test_a_seat_knows_its_place(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.carol, admins=[town.bob])
        room: Room = town.service._room
        seat: Seat = await town.post.node.read(lambda unit: room.seat(unit, gid, town.bob.who.aid))
        assert (seat.gid, seat.aid) == (gid, town.bob.who.aid)
        assert [seat.at_least(role) for role in (MEMBER, ADMIN, OWNER)] == [True, True, False]
